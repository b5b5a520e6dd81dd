"""What a file is, by its first bytes and never by its name.

Not a parser: it compares one kilobyte, so that whoever has credentials may do it.
"""

from __future__ import annotations

from enum import StrEnum

from pdf_ops.contract.errors import ErrorKind, PdfOpsError

HEAD_BYTES = 1024  # Readers accept a PDF header anywhere in the first kilobyte.


class MediaType(StrEnum):
    """The kinds of files that are read."""

    PDF = "application/pdf"
    PNG = "image/png"
    JPEG = "image/jpeg"
    TIFF = "image/tiff"


_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", MediaType.PNG),
    (b"\xff\xd8\xff", MediaType.JPEG),
    (b"II*\x00", MediaType.TIFF),
    (b"MM\x00*", MediaType.TIFF),
    (b"II+\x00", MediaType.TIFF),
    (b"MM\x00+", MediaType.TIFF),
)
_NAMED_PDF = (".pdf", ".fdf")
_HTML = (b"<!doctype html", b"<html", b"<head", b"<body", b"<?xml")


def media_type(head: bytes, name: str) -> MediaType:
    """Tell what a file is from its first bytes; the name only sharpens the error.

    Raises:
        PdfOpsError: CORRUPT/empty_file, CORRUPT/not_a_pdf or POLICY/unsupported_type.
    """
    for magic, found in _MAGIC:
        if head.startswith(magic):
            return found
    if b"%PDF-" in head[:HEAD_BYTES]:
        return MediaType.PDF
    if not head:
        raise PdfOpsError(ErrorKind.CORRUPT_EMPTY_FILE)
    if name.lower().endswith(_NAMED_PDF):
        looks_like = "an HTML page" if head.lstrip().lower().startswith(_HTML) else "something else"
        raise PdfOpsError(ErrorKind.CORRUPT_NOT_A_PDF, f"named as a PDF, but its bytes are {looks_like}")
    raise PdfOpsError(ErrorKind.POLICY_UNSUPPORTED_TYPE, "the bytes are no PDF, PNG, JPEG or TIFF")
