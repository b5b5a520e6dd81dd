"""pdfium: the first parser and renderer, through pypdfium2.

Not thread-safe: one process, one thread. Text and pictures come from here; what they are worth is
judged elsewhere.
"""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from ocr_worker.engines import Geometry, Picture, TextLayer
from ocr_worker.engines.pdfium_contents import MAX_FILE_BYTES, has_unpacked
from ocr_worker.engines.pdfium_glyphs import INVISIBLE, sample_glyphs
from ocr_worker.pictures import capped_dpi, resized_gray
from pdf_ops.contract.errors import ErrorKind, PdfOpsError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Below this many characters it matters what else the page draws; above, the text speaks for itself.
FEW_CHARACTERS = 250
MAX_OBJECTS = 5_000
# A scan with an OCR layer draws its words, a page that draws more is not looked through for one.
MAX_SCAN_OBJECTS = 48
UNIFORM_LEVELS = 8
# Smaller ones are logos and rules: a page without them is still the page.
LARGE_IMAGE = 0.1
MAX_FORM_DEPTH = 3


@cache
def version() -> str:
    """Name and version, as rows carry it."""
    from pypdfium2 import version as pypdfium2_version

    return f"pdfium {pypdfium2_version.PDFIUM_INFO.build}"


class PdfiumDocument:
    """A PDF opened by pdfium."""

    def __init__(self, path: Path, password: str | None) -> None:
        """Open the file.

        Raises:
            PdfOpsError: ENCRYPTED/… if it needs a password, CORRUPT/unreadable if pdfium gives up.
        """
        import pypdfium2.raw as pdfium_c

        try:
            self._pdf = _open(path, None)
        except PdfOpsError as error:
            # Only then: a document that needs no password refuses a wrong one.
            if error.kind is not ErrorKind.ENCRYPTED_PASSWORD_REQUIRED or password is None:
                raise
            self._pdf = _open(path, password)
        self._path = path
        self._has_form = pdfium_c.FPDF_GetFormType(self._pdf) != pdfium_c.FORMTYPE_NONE
        self.page_count = len(self._pdf)
        self.parser = version()

    @contextmanager
    def page(self, index: int) -> Iterator[PdfiumPage]:
        """Open one page.

        Raises:
            PdfOpsError: CORRUPT/page_unreadable.
        """
        import pypdfium2
        import pypdfium2.raw as pdfium_c

        try:
            page = self._pdf[index]
            if self._has_form and pdfium_c.FPDFPage_GetAnnotCount(page) > 0:
                # What people filled in is drawn over the page, and no text of it, until it is flattened.
                pdfium_c.FPDFPage_Flatten(page, pdfium_c.FLAT_NORMALDISPLAY)
                page.close()
                page = self._pdf[index]
        except pypdfium2.PdfiumError as error:
            raise PdfOpsError(ErrorKind.CORRUPT_PAGE_UNREADABLE, f"pdfium: {error}") from error
        try:
            yield PdfiumPage(page)
        finally:
            page.close()

    def has_unpacked(self, index: int) -> bool:
        """Whether a page's contents can be unpacked for sure, so that it is empty if it draws nothing."""
        return self._path.stat().st_size <= MAX_FILE_BYTES and has_unpacked(self._pdf, index)

    def close(self) -> None:
        """Close the file."""
        self._pdf.close()


def _open(path: Path, password: str | None) -> Any:
    import pypdfium2
    import pypdfium2.raw as pdfium_c

    # pdfium does not always set an error when it fails, and then shows that of an earlier document:
    # a file without pages after an encrypted one looked encrypted. Failing on no bytes resets it.
    pdfium_c.FPDF_LoadMemDocument(b"", 0, None)
    try:
        return pypdfium2.PdfDocument(path, password=password)
    except pypdfium2.PdfiumError as error:
        if getattr(error, "err_code", None) == pdfium_c.FPDF_ERR_PASSWORD:
            kind = ErrorKind.ENCRYPTED_PASSWORD_WRONG if password else ErrorKind.ENCRYPTED_PASSWORD_REQUIRED
            raise PdfOpsError(kind) from error
        if getattr(error, "err_code", None) == pdfium_c.FPDF_ERR_SECURITY:
            raise PdfOpsError(ErrorKind.ENCRYPTED_CERTIFICATE_REQUIRED) from error
        raise PdfOpsError(ErrorKind.CORRUPT_UNREADABLE, f"pdfium: {error}") from error


class PdfiumPage:
    """One page opened by pdfium."""

    def __init__(self, page: Any) -> None:
        """Wrap an open page."""
        self._page = page

    def geometry(self) -> Geometry:
        """Size as shown, and the declared rotation."""
        width, height = self._page.get_size()
        return Geometry(width_pt=width, height_pt=height, rotation=self._page.get_rotation())

    def text_layer(self) -> TextLayer:
        """The text with figures from a sample of its glyphs.

        Raises:
            PdfOpsError: CORRUPT/page_unreadable.
        """
        import pypdfium2
        import pypdfium2.raw as pdfium_c

        try:
            textpage = self._page.get_textpage()
        except pypdfium2.PdfiumError as error:
            raise PdfOpsError(ErrorKind.CORRUPT_PAGE_UNREADABLE, f"pdfium text: {error}") from error
        try:
            count = pdfium_c.FPDFText_CountChars(textpage)
            if count <= 0:
                covered, shapes, drawn = self._drawn()
                return TextLayer(text="", is_drawn=drawn, image_coverage=covered, path_count=shapes)
            buffer = (ctypes.c_ushort * (count + 1))()
            written = pdfium_c.FPDFText_GetText(textpage, 0, count, buffer)
            text = bytes(memoryview(buffer).cast("B")[: max(0, written - 1) * 2]).decode(
                "utf-16-le", errors="replace"
            )
            sample = sample_glyphs(self._page, textpage, count)
        finally:
            textpage.close()
        coverage: float | None = None
        paths: int | None = None
        if len(text) < FEW_CHARACTERS or sample.invisible > 0:
            coverage, paths, _ = self._drawn()
        return TextLayer(
            text=text,
            unmapped_ratio=sample.unmapped,
            invisible_ratio=sample.invisible,
            hidden_ratio=sample.hidden,
            image_coverage=coverage,
            path_count=paths,
        )

    def _drawn(self) -> tuple[float, int, bool]:
        """Share of the page under images, number of shapes, and whether anything is drawn."""
        import pypdfium2.raw as pdfium_c

        left, bottom, right, top = self._page.get_cropbox()
        page_area = max(1.0, abs((right - left) * (top - bottom)))
        x0, y0, x1, y1 = (ctypes.c_float() for _ in range(4))
        image_area, paths, drawn = 0.0, 0, False
        for item, depth in _objects(self._page.raw, MAX_OBJECTS):
            drawn = True
            kind = pdfium_c.FPDFPageObj_GetType(item)
            if kind == pdfium_c.FPDF_PAGEOBJ_PATH:
                paths += 1
            elif kind == pdfium_c.FPDF_PAGEOBJ_IMAGE and depth:
                image_area += page_area  # Inside a form its bounds are the form's; take it as large.
            elif kind == pdfium_c.FPDF_PAGEOBJ_IMAGE and pdfium_c.FPDFPageObj_GetBounds(item, x0, y0, x1, y1):
                wide = min(x1.value, right) - max(x0.value, left)
                high = min(y1.value, top) - max(y0.value, bottom)
                image_area += max(0.0, wide) * max(0.0, high)
        return min(1.0, image_area / page_area), paths, drawn or self._has_annotations()

    def _has_annotations(self) -> bool:
        import pypdfium2.raw as pdfium_c

        return bool(pdfium_c.FPDFPage_GetAnnotCount(self._page) > 0)

    def picture(self, dpi: int, max_pixels: int) -> Picture:
        """The page in gray: the scan's own image where the page is one, else a render.

        Raises:
            PdfOpsError: BOMB/pixels, CORRUPT/page_unreadable.
        """
        import numpy as np
        import pypdfium2

        width, height = self._page.get_size()
        capped = capped_dpi(width, height, dpi, max_pixels)
        try:
            embedded = self._embedded_scan(capped, max_pixels)
            if embedded is not None:
                return embedded
            bitmap = self._page.render(scale=capped / 72, grayscale=True, may_draw_forms=True)
        except pypdfium2.PdfiumError as error:
            raise PdfOpsError(ErrorKind.CORRUPT_PAGE_UNREADABLE, f"pdfium render: {error}") from error
        rows: Any = np.asarray(bitmap.to_numpy()).reshape(bitmap.height, -1)
        pixels = np.ascontiguousarray(rows[:, : bitmap.width])
        self._check_images(pixels, capped / 72, max_pixels)
        return Picture(pixels=pixels, dpi=capped)

    def _check_images(self, pixels: Any, scale: float, max_pixels: int) -> None:
        """Make sure that no image is missing: pdfium draws nothing where one cannot be decoded.

        Looked for where an image should be and nothing is to be seen.

        Raises:
            PdfOpsError: BOMB/pixels, CORRUPT/page_unreadable.
        """
        import pypdfium2.raw as pdfium_c

        left, _, _, top = self._page.get_cropbox()
        x0, y0, x1, y1 = (ctypes.c_float() for _ in range(4))
        width, height = ctypes.c_uint(), ctypes.c_uint()
        for item, depth in _objects(self._page.raw, MAX_SCAN_OBJECTS):
            if pdfium_c.FPDFPageObj_GetType(item) != pdfium_c.FPDF_PAGEOBJ_IMAGE:
                continue
            seen = pixels
            if not depth and not self._page.get_rotation():
                pdfium_c.FPDFPageObj_GetBounds(item, x0, y0, x1, y1)
                edges = (top - y1.value, top - y0.value, x0.value - left, x1.value - left)
                above, below, begin, end = (max(0, round(edge * scale)) for edge in edges)
                seen = pixels[above:below, begin:end]
            if seen.size < LARGE_IMAGE * pixels.size or int(seen.max()) != int(seen.min()):
                continue
            pdfium_c.FPDFImageObj_GetImagePixelSize(item, width, height)
            if width.value * height.value > 4 * max_pixels:
                size = f"{width.value} x {height.value} pixels, {4 * max_pixels} are allowed"
                raise PdfOpsError(ErrorKind.BOMB_PIXELS, f"an image on the page has {size}")
            decoded = pdfium_c.FPDFImageObj_GetBitmap(item)
            if not decoded:
                detail = "pdfium: an image on the page cannot be decoded"
                raise PdfOpsError(ErrorKind.CORRUPT_PAGE_UNREADABLE, detail)
            pdfium_c.FPDFBitmap_Destroy(decoded)

    def _embedded_scan(self, dpi: float, max_pixels: int) -> Picture | None:
        """The image of a page that is nothing but one upright scan: cheaper, and never resampled twice."""
        import pypdfium2.raw as pdfium_c

        if self._page.get_rotation():
            return None
        if not 0 < pdfium_c.FPDFPage_CountObjects(self._page) <= MAX_SCAN_OBJECTS:
            return None
        image = None
        for item in self._page.get_objects(max_depth=1):
            if item.type == pdfium_c.FPDF_PAGEOBJ_IMAGE and image is None:
                image = item
            elif item.type != pdfium_c.FPDF_PAGEOBJ_TEXT or not _is_invisible(item):
                return None
        if image is None or self._has_annotations() or not self._fills_page(image):
            return None
        pixels_wide, pixels_high = image.get_px_size()
        width_pt = self._page.get_size()[0]
        image_dpi = pixels_wide / width_pt * 72
        # Sources finer than twice the target are cheaper to render than to decode whole.
        if pixels_wide * pixels_high > max_pixels or not 0.7 * dpi <= image_dpi <= 2 * dpi:
            return None
        info = image.get_metadata()
        plain = {pdfium_c.FPDF_COLORSPACE_DEVICEGRAY, pdfium_c.FPDF_COLORSPACE_DEVICERGB}
        if info.bits_per_pixel not in (8, 24) or info.colorspace not in plain:
            return None
        gray = image.get_bitmap(render=False).to_pil().convert("L")
        darkest, lightest = gray.getextrema()
        if lightest - darkest < UNIFORM_LEVELS:
            return None  # Blank, or black ink that shows only through its mask: a render tells.
        scale = dpi / image_dpi if image_dpi > dpi * 1.1 else 1.0
        return Picture(pixels=resized_gray(gray, scale), dpi=image_dpi * scale)

    def _fills_page(self, image: Any) -> bool:
        a, b, c, d, _, _ = image.get_matrix().get()
        left, bottom, right, top = self._page.get_cropbox()
        x0, y0, x1, y1 = image.get_bounds()
        slack_x, slack_y = 0.02 * (right - left), 0.02 * (top - bottom)
        return bool(
            a > 0
            and d > 0
            and abs(b) < 1e-3 * a
            and abs(c) < 1e-3 * d
            and abs(x0 - left) <= slack_x
            and abs(x1 - right) <= slack_x
            and abs(y0 - bottom) <= slack_y
            and abs(y1 - top) <= slack_y
        )


def _objects(page: Any, most: int) -> Iterator[tuple[Any, int]]:
    """What a page draws, with how deep in forms it is; at most so many, as a hostile page has millions.

    The binding's own iterator makes a Python object of each, which costs ten times as much.
    """
    import pypdfium2.raw as pdfium_c

    form_type = pdfium_c.FPDF_PAGEOBJ_FORM
    waiting = [(page, 0, pdfium_c.FPDFPage_CountObjects, pdfium_c.FPDFPage_GetObject)]
    while waiting:
        parent, depth, count, get = waiting.pop()
        for index in range(min(count(parent), most)):
            most -= 1
            item = get(parent, index)
            if pdfium_c.FPDFPageObj_GetType(item) == form_type and depth < MAX_FORM_DEPTH:
                waiting.append(
                    (item, depth + 1, pdfium_c.FPDFFormObj_CountObjects, pdfium_c.FPDFFormObj_GetObject)
                )
            else:
                yield item, depth


def _is_invisible(item: Any) -> bool:
    import pypdfium2.raw as pdfium_c

    return bool(pdfium_c.FPDFTextObj_GetTextRenderMode(item) == INVISIBLE)
