"""What a file on disk is, by its first bytes and never by its name.

Not a parser: it reads one kilobyte, so the main process may do it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pdf_ops.contract.errors import ErrorKind, PdfOpsError
from pdf_ops.contract.media import HEAD_BYTES, MediaType, media_type

if TYPE_CHECKING:
    from pathlib import Path


def sniff(path: Path, name: str | None = None) -> MediaType:
    """Tell what a file on disk is.

    Raises:
        PdfOpsError: As ``media_type``, and SOURCE/unreadable if the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        raise PdfOpsError(ErrorKind.SOURCE_UNREADABLE, error.strerror or "cannot be opened") from error
    return media_type(head, name if name is not None else path.name)
