"""Builders of single documents: text, scans, mixtures, and every kind of damage.

Real files in real formats, small and the same each time. Not for choosing which: see ``sample_set``.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pikepdf
from PIL import Image, ImageDraw, ImageFont
from reportlab.lib.pagesizes import A4
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PARAGRAPH = (
    "The quick brown fox jumps over the lazy dog while the old clock on the kitchen wall",
    "counts the minutes of a long and quiet afternoon in the country house by the river.",
    "Nobody had expected the letter to arrive before the end of the week, least of all the",
    "woman who opened it with a small silver knife and read it twice before she said a word.",
    "Outside, the gardener went on with his work, and the shadow of the great oak moved",
    "slowly across the lawn towards the terrace where the children had left their books.",
)
SCAN_DPI = 200
# A4 at SCAN_DPI, and a narrower page by which a faulty engine knows what to fail on.
PAGE_PIXELS = (1654, 2339)
MARKED_PIXELS = (1200, 2339)


def text_pdf(path: Path, pages: Sequence[Sequence[str]] | int = 1) -> Path:
    """A PDF with a good text layer; a number gives that many pages of the same paragraph."""
    canvas = Canvas(str(path), pagesize=A4, invariant=1)
    for lines in [PARAGRAPH] * pages if isinstance(pages, int) else pages:
        draw_text(canvas, lines)
        canvas.showPage()
    canvas.save()
    return path


def draw_text(canvas: Canvas, lines: Sequence[str], *, mode: int = 0, font: str = "Helvetica") -> None:
    """Draw lines of text; mode 3 is invisible."""
    text = canvas.beginText(60, 760)
    text.setFont(font, 11)
    text.setTextRenderMode(mode)
    for line in lines:
        text.textLine(line)
    canvas.drawText(text)


def scan(
    lines: Sequence[str] = PARAGRAPH, *, size: tuple[int, int] = PAGE_PIXELS, turned: int = 0, ink: int = 20
) -> Image.Image:
    """A page as a scanner sees it, turned clockwise."""
    image = Image.new("L", size, 245)
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(size=28)
    for number, line in enumerate(lines):
        draw.text((150, 200 + number * 60), line, fill=ink, font=font)
    return image.rotate(-turned, expand=True) if turned else image


def blank_scan() -> Image.Image:
    """A page with nothing on it."""
    return Image.new("L", PAGE_PIXELS, 245)


def scan_pdf(path: Path, images: Sequence[Image.Image]) -> Path:
    """A PDF whose pages are one image each, as a scanner writes it."""
    canvas = Canvas(str(path), invariant=1)
    for image in images:
        draw_scan(canvas, image)
        canvas.showPage()
    canvas.save()
    return path


def draw_scan(canvas: Canvas, image: Image.Image) -> None:
    """Draw an image as a whole page."""
    width, height = (side / SCAN_DPI * 72 for side in image.size)
    canvas.setPageSize((width, height))
    canvas.drawImage(ImageReader(image), 0, 0, width, height)


def mixed_pdf(path: Path) -> Path:
    """A typed cover page, then two scanned ones."""
    canvas = Canvas(str(path), pagesize=A4, invariant=1)
    draw_text(canvas, PARAGRAPH)
    canvas.showPage()
    for _ in range(2):
        draw_scan(canvas, scan())
        canvas.showPage()
    canvas.save()
    return path


def ocr_layer_pdf(path: Path, layer: Sequence[str]) -> Path:
    """A scan with invisible text over it, as an earlier OCR leaves it."""
    canvas = Canvas(str(path), pagesize=A4, invariant=1)
    draw_scan(canvas, scan())
    draw_text(canvas, layer, mode=3)
    canvas.showPage()
    canvas.save()
    return path


def damaged_font_pdf(path: Path) -> Path:
    """Text that looks right and extracts as private-use characters."""
    from reportlab.pdfbase import pdfmetrics
    from reportlab.pdfbase.ttfonts import TTFont

    pdfmetrics.registerFont(TTFont("Vera", "Vera.ttf"))
    canvas = Canvas(str(path), pagesize=A4, invariant=1)
    draw_text(canvas, PARAGRAPH, font="Vera")
    canvas.save()
    with pikepdf.open(path, allow_overwriting_input=True) as pdf:
        for item in pdf.objects:
            if isinstance(item, pikepdf.Dictionary) and "/ToUnicode" in item:
                cmap = item.ToUnicode.read_bytes().decode("latin-1")
                lines = [_to_private_use(line) for line in cmap.splitlines()]
                item.ToUnicode.write("\n".join(lines).encode("latin-1"))
        pdf.save(path)
    return path


def _to_private_use(line: str) -> str:
    """A line of a CMap with its Unicode values moved to the private use area."""
    parts = line.split()
    if not parts or not all(part.startswith("<") and part.endswith(">") for part in parts):
        return line
    if len(parts[-1]) != 6:
        return line
    return " ".join([*parts[:-1], f"<E{parts[-1][2:5]}>"])


def encrypted_pdf(path: Path, password: str) -> Path:
    """A PDF that opens with a password; an empty one opens for everybody."""
    text_pdf(path)
    with pikepdf.open(path, allow_overwriting_input=True) as pdf:
        pdf.save(path, encryption=pikepdf.Encryption(user=password, owner="owner"))
    return path


def truncated_pdf(path: Path) -> Path:
    """A PDF that ends in the middle."""
    text_pdf(path, 3)
    path.write_bytes(path.read_bytes()[:700])
    return path


def pageless_pdf(path: Path) -> Path:
    """A PDF without a page."""
    with pikepdf.new() as pdf:
        pdf.save(path)
    return path


def huge_page_pdf(path: Path) -> Path:
    """Two pages, the second of which would be far too many pixels."""
    canvas = Canvas(str(path), pagesize=A4, invariant=1)
    draw_text(canvas, PARAGRAPH)
    canvas.showPage()
    canvas.setPageSize((200_000, 200_000))
    canvas.rect(10, 10, 100_000, 100_000, fill=1)
    canvas.showPage()
    canvas.save()
    return path


def tiff(path: Path, images: Sequence[Image.Image]) -> Path:
    """A TIFF, a page for each image."""
    images[0].save(
        path,
        "TIFF",
        compression="tiff_lzw",
        save_all=True,
        append_images=images[1:],
        dpi=(SCAN_DPI, SCAN_DPI),
    )
    return path


def png_bytes(image: Image.Image) -> bytes:
    """A PNG."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG", dpi=(SCAN_DPI, SCAN_DPI))
    return buffer.getvalue()


def words(text: str) -> set[str]:
    """The words of a text, as they are compared."""
    return {word.strip(".,").lower() for word in text.split()}


PARAGRAPH_WORDS = words(" ".join(PARAGRAPH))


def share_read(text: str) -> float:
    """How much of the paragraph is in a text."""
    return len(PARAGRAPH_WORDS & words(text)) / len(PARAGRAPH_WORDS)
