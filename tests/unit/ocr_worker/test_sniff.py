from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.ocr_worker.builders import STEADY

from ocr_worker.sniff import sniff
from pdf_ops.contract.errors import ErrorKind, PdfOpsError
from pdf_ops.contract.media import HEAD_BYTES, MediaType, media_type

HEADS = [
    (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3", MediaType.PDF),
    (b"\xef\xbb\xbf%PDF-1.4", MediaType.PDF),
    (b"HTTP/1.1 200 OK\r\n\r\n%PDF-1.4", MediaType.PDF),
    (b"\x00" * (HEAD_BYTES - 5) + b"%PDF-", MediaType.PDF),
    (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", MediaType.PNG),
    (b"\xff\xd8\xff\xe0\x00\x10JFIF", MediaType.JPEG),
    (b"II*\x00\x08\x00\x00\x00", MediaType.TIFF),
    (b"MM\x00*\x00\x00\x00\x08", MediaType.TIFF),
    (b"II+\x00\x08\x00\x00\x00", MediaType.TIFF),
    (b"MM\x00+\x00\x08\x00\x00", MediaType.TIFF),
]


@pytest.mark.parametrize("name", ["a.pdf", "a.png", "a.exe", "a", ""])
@pytest.mark.parametrize(("head", "found"), HEADS, ids=range(len(HEADS)))
def test_a_file_is_told_by_its_bytes_whatever_its_name(head, found, name):
    assert media_type(head, name) is found


@pytest.mark.parametrize("name", ["a.pdf", "a.txt", ""])
def test_a_file_without_bytes_is_empty_whatever_its_name(name):
    with pytest.raises(PdfOpsError) as caught:
        media_type(b"", name)
    assert caught.value.kind is ErrorKind.CORRUPT_EMPTY_FILE


@pytest.mark.parametrize("name", ["a.pdf", "A.PDF", "folder.x/a.Pdf"])
@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"<!DOCTYPE html><html>", "an HTML page"),
        (b"\r\n  <HTML lang=en>", "an HTML page"),
        (b'<?xml version="1.0"?><Error>', "an HTML page"),
        (b"PK\x03\x04", "something else"),
        (b"\x00" * HEAD_BYTES + b"%PDF-", "something else"),
        (b"%PDF", "something else"),
    ],
)
def test_a_file_named_a_pdf_that_is_none_is_corrupt_and_an_error_page_is_called_so(head, words, name):
    with pytest.raises(PdfOpsError, match=words) as caught:
        media_type(head, name)
    assert caught.value.kind is ErrorKind.CORRUPT_NOT_A_PDF


@pytest.mark.parametrize("head", [b"PK\x03\x04", b"hello", b"GIF89a", b"\x00", b"\x89PNG", b"\xff\xd8"])
@pytest.mark.parametrize("name", ["a.docx", "a", "pdf", "a.pdf.txt"])
def test_a_file_of_another_kind_is_left_out_by_policy(head, name):
    with pytest.raises(PdfOpsError) as caught:
        media_type(head, name)
    assert caught.value.kind is ErrorKind.POLICY_UNSUPPORTED_TYPE


@STEADY
@given(head=st.binary(max_size=64), name=st.text(max_size=10))
def test_any_bytes_are_a_kind_of_file_or_an_error_of_ours(head, name):
    try:
        assert media_type(head, name) in MediaType
    except PdfOpsError:
        return


def test_a_file_on_disk_is_told_by_its_first_kilobyte(tmp_path):
    path = tmp_path / "report.txt"
    path.write_bytes(b"%PDF-1.7\n" + b"x" * 10_000)
    assert sniff(path) is MediaType.PDF
    path.write_bytes(b"x" * HEAD_BYTES + b"%PDF-1.7\n")
    with pytest.raises(PdfOpsError, match="POLICY/unsupported_type"):
        sniff(path)


def test_a_fetched_file_is_called_by_the_name_it_had(tmp_path):
    path = tmp_path / "0001.part"
    path.write_bytes(b"<html>")
    with pytest.raises(PdfOpsError, match="CORRUPT/not_a_pdf"):
        sniff(path, "folder/a.pdf")
    with pytest.raises(PdfOpsError, match="POLICY/unsupported_type"):
        sniff(path)


def test_a_file_that_cannot_be_opened_is_an_unreadable_source(tmp_path):
    (tmp_path / "dangling.pdf").symlink_to(tmp_path / "nowhere")
    for path in (tmp_path, tmp_path / "missing.pdf", tmp_path / "dangling.pdf"):
        with pytest.raises(PdfOpsError) as caught:
            sniff(path)
        assert caught.value.kind is ErrorKind.SOURCE_UNREADABLE
        assert caught.value.detail
