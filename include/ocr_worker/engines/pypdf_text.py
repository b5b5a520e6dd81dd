"""pypdf: the second parser, for what pdfium cannot open or read.

Slower and stricter about loops than pdfium, so it only gets the files that pdfium refused. Its
pages are drawn by poppler.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from ocr_worker.engines import Geometry, Picture, TextLayer, told_by
from ocr_worker.engines.poppler import render_page
from ocr_worker.pictures import capped_dpi
from pdf_ops.contract.errors import ErrorKind, PdfOpsError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@cache
def version() -> str:
    """Name and version, as rows carry it."""
    import pypdf

    return f"pypdf {pypdf.__version__}"


def _as_ours(error: BaseException, kind: ErrorKind) -> PdfOpsError:
    """Turn whatever pypdf raised into one of our kinds."""
    from pypdf.errors import LimitReachedError

    if isinstance(error, PdfOpsError):
        return error
    if isinstance(error, RecursionError):
        return PdfOpsError(ErrorKind.BOMB_RECURSION, "pypdf: nested too deeply")
    if isinstance(error, LimitReachedError):
        is_loop = "loop" in str(error)
        kind = ErrorKind.BOMB_RECURSION if is_loop else ErrorKind.BOMB_DECOMPRESSION
    return PdfOpsError(kind, told_by("pypdf", error))


class PypdfDocument:
    """A PDF opened by pypdf."""

    def __init__(self, path: Path, password: str | None) -> None:
        """Open the file and count its pages.

        Raises:
            PdfOpsError: ENCRYPTED/…, BOMB/… or CORRUPT/unreadable.
        """
        import logging

        import pypdf
        from pypdf import PasswordType

        logging.getLogger("pypdf").setLevel(logging.CRITICAL)
        self._path = path
        self._password = password
        try:
            self._pdf = pypdf.PdfReader(path, strict=False)
            passwords = ["", password] if password else [""]
            if self._pdf.is_encrypted and all(
                self._pdf.decrypt(word) == PasswordType.NOT_DECRYPTED for word in passwords
            ):
                raise PdfOpsError(
                    ErrorKind.ENCRYPTED_PASSWORD_WRONG if password else ErrorKind.ENCRYPTED_PASSWORD_REQUIRED
                )
            self.page_count = len(self._pdf.pages)
        except MemoryError:
            raise
        except Exception as error:  # pypdf lets KeyError, TypeError and the like out of damaged files.
            raise _as_ours(error, ErrorKind.CORRUPT_UNREADABLE) from error
        self.parser = version()

    @contextmanager
    def page(self, index: int) -> Iterator[PypdfPage]:
        """Open one page.

        Raises:
            PdfOpsError: CORRUPT/page_unreadable.
        """
        try:
            page = self._pdf.pages[index]
        except MemoryError:
            raise
        except Exception as error:  # As above.
            raise _as_ours(error, ErrorKind.CORRUPT_PAGE_UNREADABLE) from error
        yield PypdfPage(page, index, self._path, self._password)

    def close(self) -> None:
        """Close the file."""
        self._pdf.close()


class PypdfPage:
    """One page: text by pypdf, picture by poppler."""

    def __init__(self, page: Any, index: int, path: Path, password: str | None) -> None:
        """Wrap an open page."""
        self._page = page
        self._index = index
        self._path = path
        self._password = password

    def geometry(self) -> Geometry:
        """Size as shown, and the declared rotation.

        Raises:
            PdfOpsError: CORRUPT/page_unreadable.
        """
        try:
            rotation = round(int(self._page.rotation or 0) / 90) * 90 % 360
            box = self._page.cropbox
            size = (abs(float(box.width)), abs(float(box.height)))
        except MemoryError:
            raise
        except Exception as error:  # As above.
            raise _as_ours(error, ErrorKind.CORRUPT_PAGE_UNREADABLE) from error
        width, height = size[::-1] if rotation in (90, 270) else size
        return Geometry(width_pt=width, height_pt=height, rotation=rotation)

    def text_layer(self) -> TextLayer:
        """The text, without figures about its glyphs.

        Raises:
            PdfOpsError: CORRUPT/page_unreadable or BOMB/….
        """
        try:
            return TextLayer(text=self._page.extract_text())
        except MemoryError:
            raise
        except Exception as error:  # As above.
            raise _as_ours(error, ErrorKind.CORRUPT_PAGE_UNREADABLE) from error

    def check_contents(self) -> None:
        """Make sure that the page's contents can be unpacked, so that an empty page is one.

        Raises:
            PdfOpsError: CORRUPT/page_unreadable or BOMB/….
        """
        try:
            contents = self._page.get_contents()
            if contents is not None:
                contents.get_data()
        except MemoryError:
            raise
        except Exception as error:  # As above.
            raise _as_ours(error, ErrorKind.CORRUPT_PAGE_UNREADABLE) from error

    def picture(self, dpi: int, max_pixels: int) -> Picture:
        """The page in gray, drawn by poppler.

        Raises:
            PdfOpsError: BOMB/pixels, CORRUPT/page_unreadable.
        """
        size = self.geometry()
        capped = capped_dpi(size.width_pt, size.height_pt, dpi, max_pixels)
        return render_page(self._path, self._index, capped, self._password)
