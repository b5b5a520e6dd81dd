"""poppler: the second renderer, through pdf2image.

One page a call, in gray. A separate program draws, in the caller's process group and below its
limits, so killing the group ends it, too.
"""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from typing import TYPE_CHECKING

from ocr_worker.engines import Picture, told_by
from ocr_worker.pictures import resized_gray
from pdf_ops.contract.errors import ErrorKind, PdfOpsError

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = "pdftoppm"


@cache
def version() -> str | None:
    """Name and version, or None where poppler is not installed."""
    program = shutil.which(PROGRAM)
    if program is None:
        return None
    shown = subprocess.run([program, "-v"], capture_output=True, text=True, check=False)
    first = (shown.stderr or shown.stdout).splitlines()[:1]
    return f"poppler {first[0].rsplit(' ', 1)[-1]}" if first else "poppler"


def render_page(path: Path, index: int, dpi: float, password: str | None) -> Picture:
    """Draw one page in gray.

    Raises:
        PdfOpsError: CORRUPT/page_unreadable.
    """
    from pdf2image import convert_from_path
    from pdf2image.exceptions import PDFInfoNotInstalledError, PDFPageCountError, PDFSyntaxError

    try:
        images = convert_from_path(
            path,
            dpi=round(dpi),
            first_page=index + 1,
            last_page=index + 1,
            grayscale=True,
            userpw=password,  # type: ignore[arg-type]
            use_cropbox=True,
        )
    except PDFInfoNotInstalledError as error:
        # Only the second renderer is missing: that costs this page, not the fleet.
        raise PdfOpsError(ErrorKind.CORRUPT_PAGE_UNREADABLE, "poppler is not installed") from error
    except (PDFPageCountError, PDFSyntaxError, OSError, ValueError) as error:
        raise PdfOpsError(ErrorKind.CORRUPT_PAGE_UNREADABLE, told_by("poppler", error)) from error
    # poppler answers a page that it cannot draw with no image, or with a single pixel.
    if len(images) != 1 or min(images[0].size) <= 1:
        raise PdfOpsError(ErrorKind.CORRUPT_PAGE_UNREADABLE, "poppler drew nothing")
    return Picture(pixels=resized_gray(images[0].convert("L"), 1.0), dpi=float(round(dpi)))
