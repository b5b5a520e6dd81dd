from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import pikepdf
import pytest

from ocr_worker.engines.pdfium import PdfiumDocument

if TYPE_CHECKING:
    from pathlib import Path

BLANK = b"q Q\n"
FAKE = (
    b"\r\n4 0 obj\r\n<</Contents 5 0 R /Type/Page>>\r\nendobj\r\n"
    b"5 0 obj\r\n<</Length 0>>stream\r\n\r\nendstream"
)


def document(path: Path, contents: bytes, *, filters: str | None = None) -> PdfiumDocument:
    with pikepdf.new() as pdf:
        page = pdf.add_blank_page()
        stream = pikepdf.Stream(pdf, contents)
        if filters is not None:
            stream = pikepdf.Stream(pdf, contents, Filter=pikepdf.Name(filters))
        page.Contents = stream
        pdf.save(path, compress_streams=False, stream_decode_level=pikepdf.StreamDecodeLevel.none)
    return PdfiumDocument(path, None)


@pytest.mark.parametrize(("contents", "filters"), [(BLANK, None), (zlib.compress(BLANK), "/FlateDecode")])
def test_an_empty_page_is_told_without_the_second_parser(
    tmp_path: Path, contents: bytes, filters: str | None
) -> None:
    assert document(tmp_path / "a.pdf", contents, filters=filters).has_unpacked(0)


@pytest.mark.parametrize(
    ("contents", "filters"),
    [
        (b"no deflated bytes", "/FlateDecode"),
        (zlib.compress(b"0 0 m " * 1000)[:-30], "/FlateDecode"),
        (zlib.compress(b" " * 10_000_000), "/FlateDecode"),
        (BLANK, "/NoSuchDecode"),
        (b"00>", "/ASCIIHexDecode"),
    ],
)
def test_a_page_that_may_not_be_empty_is_left_to_the_second_parser(
    tmp_path: Path, contents: bytes, filters: str
) -> None:
    assert not document(tmp_path / "a.pdf", contents, filters=filters).has_unpacked(0)


def test_a_document_cannot_pretend_that_a_page_was_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "a.pdf"
    with pikepdf.new() as pdf:
        page = pdf.add_blank_page()
        page.Contents = pikepdf.Stream(pdf, BLANK, Filter=pikepdf.Name("/NoSuchDecode"))
        # Copied as it is, since nobody can unpack it.
        page["/AAA"] = pikepdf.Stream(pdf, FAKE, Filter=pikepdf.Name("/NoSuchDecode"))
        pdf.save(path, compress_streams=False, stream_decode_level=pikepdf.StreamDecodeLevel.none)
    assert not PdfiumDocument(path, None).has_unpacked(0)
