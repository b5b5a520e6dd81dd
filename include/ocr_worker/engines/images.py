"""Pillow: PNG, JPEG and TIFF, each frame a page.

Only these three formats are ever opened, whatever else Pillow could: its other readers are attack
surface without a user.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from ocr_worker.engines import Geometry, Picture, told_by
from ocr_worker.pictures import MAX_SIDE_PIXELS, MIN_DPI, resized_gray
from pdf_ops.contract.errors import ErrorKind, PdfOpsError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from PIL import Image

FORMATS = ("PNG", "JPEG", "TIFF")
PLAUSIBLE_DPI = (100.0, 1300.0)
# Screens and cameras write 72 or 96 or nothing; then the image is taken for a letter page.
ASSUMED_LONG_SIDE_INCHES = 11.0
MAX_UPSCALE = 2.0
ASSUMED_SHORT_SIDE_INCHES = 8.5
_EXIF_ORIENTATION = 0x0112
_EXIF_UPRIGHT = 1
# How each EXIF orientation is undone, as Pillow names it, and the clockwise turn in it.
_EXIF_TURNS = {
    2: ("FLIP_LEFT_RIGHT", 0),
    3: ("ROTATE_180", 180),
    4: ("FLIP_TOP_BOTTOM", 180),
    5: ("TRANSPOSE", 90),
    6: ("ROTATE_270", 90),
    7: ("TRANSVERSE", 270),
    8: ("ROTATE_90", 270),
}


@cache
def version() -> str:
    """Name and version, as rows carry it."""
    import PIL

    return f"pillow {PIL.__version__}"


class ImageDocument:
    """An image file; a TIFF may hold many pages."""

    def __init__(self, path: Path, max_pixels: int) -> None:
        """Open the file and count its frames; no pixel is decoded yet.

        Raises:
            PdfOpsError: BOMB/pixels, CORRUPT/image_unreadable.
        """
        from PIL import Image

        # The limit is ours and checked per frame, before decoding; Pillow's own only warns.
        Image.MAX_IMAGE_PIXELS = None
        self._max_pixels = max_pixels
        try:
            self._image = Image.open(path, formats=FORMATS)
            # A phone's JPEG may hold a gain map, and a PNG an animation: those are no pages.
            is_tiff = self._image.format == "TIFF"
            self.page_count = int(getattr(self._image, "n_frames", 1)) if is_tiff else 1
        except MemoryError:
            raise
        except Exception as error:  # Pillow lets struct.error, KeyError and the like out of damaged files.
            raise PdfOpsError(ErrorKind.CORRUPT_IMAGE_UNREADABLE, told_by("pillow", error)) from error
        self.parser = version()

    @contextmanager
    def page(self, index: int) -> Iterator[ImagePage]:
        """Open one frame.

        Raises:
            PdfOpsError: BOMB/pixels, CORRUPT/page_unreadable.
        """
        try:
            if index:
                self._image.seek(index)
            elif self.page_count > 1:
                self._image.seek(0)
        except MemoryError:
            raise
        except Exception as error:  # As above.
            raise PdfOpsError(ErrorKind.CORRUPT_PAGE_UNREADABLE, told_by("pillow", error)) from error
        width, height = self._image.size
        # Before anything else is asked: Pillow decodes a PNG to find out how it is turned.
        if width * height > 4 * self._max_pixels:
            raise PdfOpsError(
                ErrorKind.BOMB_PIXELS,
                f"the image has {width} x {height} pixels, {4 * self._max_pixels} are allowed",
            )
        yield ImagePage(self._image)

    def close(self) -> None:
        """Close the file."""
        self._image.close()


class ImagePage:
    """One frame of an image."""

    def __init__(self, image: Image.Image) -> None:
        """Wrap the frame that the image stands at."""
        self._image = image
        self._undo, self._rotation = _EXIF_TURNS.get(_orientation(image), ("", 0))
        self._dpi = _source_dpi(image)

    def geometry(self) -> Geometry:
        """Size at the source's resolution, and the rotation that EXIF declares."""
        width, height = self._image.size
        if self._rotation in (90, 270):
            width, height = height, width
        return Geometry(
            width_pt=width / self._dpi * 72, height_pt=height / self._dpi * 72, rotation=self._rotation
        )

    def text_layer(self) -> None:
        """Images hold no text."""
        return

    def picture(self, dpi: int, max_pixels: int) -> Picture:
        """The frame in gray, upright, near the wanted resolution.

        Raises:
            PdfOpsError: BOMB/pixels, CORRUPT/page_unreadable.
        """
        from PIL import Image

        width, height = self._image.size
        scale = dpi / self._dpi
        scale = 1.0 if 0.75 <= scale <= 1.1 else min(MAX_UPSCALE, scale)
        scale = min(scale, (max_pixels / (width * height)) ** 0.5, MAX_SIDE_PIXELS / max(width, height))
        if self._dpi * scale < MIN_DPI:
            raise PdfOpsError(ErrorKind.BOMB_PIXELS, f"the image has {width} x {height} pixels")
        try:
            gray = _on_white(self._image)
        except MemoryError:
            raise
        except Exception as error:  # As above.
            raise PdfOpsError(ErrorKind.CORRUPT_PAGE_UNREADABLE, told_by("pillow", error)) from error
        if self._undo:
            gray = gray.transpose(Image.Transpose[self._undo])
        return Picture(pixels=resized_gray(gray, scale), dpi=self._dpi * scale)


def _orientation(image: Image.Image) -> int:
    """What EXIF says; a broken block says nothing. Pillow itself turns a TIFF when it decodes it."""
    if image.format == "TIFF":
        return _EXIF_UPRIGHT
    try:
        return int(image.getexif().get(_EXIF_ORIENTATION, _EXIF_UPRIGHT))
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 -- as above; the pixels may be fine
        return _EXIF_UPRIGHT


def _on_white(image: Image.Image) -> Image.Image:
    """The image in gray; what is transparent shows white paper, as a viewer would."""
    import numpy as np
    from PIL import Image

    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8))
    if "A" in image.getbands() or "transparency" in image.info:
        layered = image.convert("RGBA")
        paper = Image.new("RGBA", layered.size, "white")
        return Image.alpha_composite(paper, layered).convert("L")
    return image.convert("L")


def _source_dpi(image: Image.Image) -> float:
    """The file's own resolution if it is plausible, else one that makes it a page of paper."""
    declared = image.info.get("dpi")
    if isinstance(declared, tuple) and declared:
        try:
            value = float(declared[0])
        except (TypeError, ValueError, ZeroDivisionError):
            value = 0.0
        if PLAUSIBLE_DPI[0] <= value <= PLAUSIBLE_DPI[1]:
            return value
    # The smaller of both: a long strip, such as a screenshot, is many pages high and one wide.
    by_side = min(max(image.size) / ASSUMED_LONG_SIDE_INCHES, min(image.size) / ASSUMED_SHORT_SIDE_INCHES)
    return max(MIN_DPI, by_side)
