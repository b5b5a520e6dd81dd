"""Pictures of pages: their size before they exist, an even background, and whether they are blank.

Only pixels: nothing here knows a PDF or an OCR engine.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pdf_ops.contract.errors import ErrorKind, PdfOpsError

if TYPE_CHECKING:
    from PIL import Image

    from ocr_worker.engines import Gray

# Below this a page cannot be read, so drawing it would only cost time and memory.
MIN_DPI = 20.0
# Tesseract takes no picture that is wider or higher.
MAX_SIDE_PIXELS = 32_000
# The background is estimated on squares of this many pixels: wider than a stroke, finer than a shadow.
BACKGROUND_SQUARE = 16
# A background this even needs no flattening, which saves 20 ms on a clean scan.
EVEN_BACKGROUND = 12
# Pale print darkens a 4 x 4 square by this much, or by so many times what the paper's grain does.
# Dust may pass for print: that costs one OCR, while print that passes for dust would be lost.
BLANK_SQUARE = 4
BLANK_LEVEL = 14
BLANK_GRAINS = 8.0
BLANK_MAX_SQUARES = 5
BLANK_MARGIN = 0.02


def capped_dpi(width_pt: float, height_pt: float, dpi: float, max_pixels: int) -> float:
    """The resolution at which a page stays below the pixel limit, computed before drawing it.

    Raises:
        PdfOpsError: BOMB/pixels if no readable resolution is low enough.
    """
    square_inches = (width_pt / 72) * (height_pt / 72)
    if not (width_pt > 0 and height_pt > 0 and 0 < square_inches < math.inf):
        raise PdfOpsError(ErrorKind.BOMB_PIXELS, f"the page measures {width_pt:g} x {height_pt:g} points")
    capped = min(dpi, math.sqrt(max_pixels / square_inches), MAX_SIDE_PIXELS * 72 / max(width_pt, height_pt))
    if capped < MIN_DPI:
        raise PdfOpsError(
            ErrorKind.BOMB_PIXELS,
            f"the page measures {width_pt / 72:.0f} x {height_pt / 72:.0f} inches: "
            f"{square_inches * MIN_DPI**2:.0f} pixels at {MIN_DPI:.0f} dpi, {max_pixels} are allowed",
        )
    return capped


def resized_gray(gray: Image.Image, scale: float) -> Gray:
    """A gray image at another scale, as pixels."""
    import numpy as np
    from PIL import Image

    if scale != 1.0:
        size = (max(1, round(gray.width * scale)), max(1, round(gray.height * scale)))
        gray = gray.resize(size, Image.Resampling.BILINEAR, reducing_gap=2.0)
    return np.ascontiguousarray(np.asarray(gray, dtype=np.uint8))


def flattened(pixels: Gray) -> Gray:
    """Even out the background: divide each pixel by the paper's brightness around it.

    Tesseract picks one threshold for the page; under uneven light that loses whole areas, and it
    then reports empty text with a confidence of 95.
    """
    import numpy as np
    from PIL import Image, ImageFilter

    height, width = pixels.shape
    if min(height, width) < 4 * BACKGROUND_SQUARE:
        return pixels
    small = Image.fromarray(pixels).reduce(BACKGROUND_SQUARE).filter(ImageFilter.MaxFilter(5))
    levels = np.asarray(small)
    if int(levels.max()) - int(np.percentile(levels, 2)) <= EVEN_BACKGROUND and int(levels.max()) > 200:
        return pixels
    smooth = small.filter(ImageFilter.GaussianBlur(3)).resize((width, height), Image.Resampling.BILINEAR)
    paper = np.maximum(np.asarray(smooth), 1)
    # Whole numbers, 16 bits: half the time of floating point on these sizes.
    scaled = pixels.astype(np.uint16)
    scaled *= 255
    scaled //= paper
    return np.minimum(scaled, 255).astype(np.uint8)


def is_blank(pixels: Gray) -> bool:
    """Whether nothing but paper, dust and shadow at the rim is to be seen; expects a flat background."""
    import numpy as np
    from PIL import Image

    height, width = pixels.shape
    rim_y, rim_x = int(height * BLANK_MARGIN), int(width * BLANK_MARGIN)
    inner = pixels[rim_y : height - rim_y or None, rim_x : width - rim_x or None]
    if min(inner.shape) < 2 * BLANK_SQUARE:
        return bool(inner.size == 0 or int(inner.max()) - int(inner.min()) < 32)
    squares = np.asarray(Image.fromarray(np.ascontiguousarray(inner)).reduce(BLANK_SQUARE)).astype(np.int16)
    away = np.abs(squares - int(np.median(squares[::4, ::4])))
    grain = float(np.median(away[::4, ::4]))  # A sixteenth of them tells as much.
    marks = int(np.count_nonzero(away > max(BLANK_LEVEL, BLANK_GRAINS * grain)))
    return marks < BLANK_MAX_SQUARES


def turned(pixels: Gray, clockwise: int) -> Gray:
    """The picture turned clockwise by a multiple of 90 degrees."""
    import numpy as np

    return np.ascontiguousarray(np.rot90(pixels, k=-(clockwise // 90) % 4))
