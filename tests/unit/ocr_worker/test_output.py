from __future__ import annotations

import dataclasses
import json
import os
from datetime import datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.unit.ocr_worker.builders import document_row, page_row

from ocr_worker import output
from ocr_worker.output import TextFolder, open_writer
from ocr_worker.settings import OutputFormat
from pdf_ops.contract.documents import DocumentRow, DocumentStatus
from pdf_ops.contract.errors import ErrorKind, PdfOpsError
from pdf_ops.contract.pages import PageRow, page_schema
from pdf_ops.contract.schema import RowError

BOTH = pytest.mark.parametrize("kind", OutputFormat)
FULL_DISK = Path("/dev/full")
needs_full_disk = pytest.mark.skipif(
    not FULL_DISK.exists(), reason="only Linux has a disk that is always full"
)


def read(path, kind):
    if kind is OutputFormat.PARQUET:
        return pq.read_table(path).to_pylist()
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [row | {"read_at": datetime.fromisoformat(row["read_at"])} for row in rows]


def partial_of(path):
    """Where a file lies while it is written."""
    return path.with_name(f".{path.name}.{os.getpid()}.partial")


def refused(action, *arguments, **options):
    with pytest.raises(PdfOpsError) as caught:
        action(*arguments, **options)
    assert caught.value.kind is ErrorKind.TARGET_DISK
    return caught.value.detail


# Tables --------------------------------------------------------------------------------------


@BOTH
def test_rows_come_back_as_they_were_written(kind, tmp_path):
    rows = [page_row(page=number, text=f"Zahl {number} \N{GRINNING FACE}\n\f\x01") for number in (1, 2, 3)]
    writer = open_writer(tmp_path, "pages", PageRow, kind)
    for row in rows:
        writer.write(row, row.char_count)
    writer.close()
    assert read(tmp_path / f"pages.{kind}", kind) == [dataclasses.asdict(row) for row in rows]


@BOTH
def test_documents_are_written_alike(kind, tmp_path):
    rows = [document_row(), document_row(DocumentStatus.FAILED, PdfOpsError(ErrorKind.CORRUPT_TRUNCATED))]
    writer = open_writer(tmp_path, "documents", DocumentRow, kind)
    for row in rows:
        writer.write(row)
    writer.close()
    assert read(tmp_path / f"documents.{kind}", kind) == [dataclasses.asdict(row) for row in rows]


@BOTH
def test_a_file_without_rows_is_a_file_all_the_same(kind, tmp_path):
    open_writer(tmp_path, "pages", PageRow, kind).close()
    assert read(tmp_path / f"pages.{kind}", kind) == []


def test_a_parquet_file_names_its_schema(tmp_path):
    open_writer(tmp_path, "pages", PageRow, OutputFormat.PARQUET).close()
    read_schema = pq.read_schema(tmp_path / "pages.parquet")
    assert read_schema.equals(page_schema())
    assert read_schema.metadata[b"pdf_ops.schema"] == b"page"


@BOTH
def test_the_folder_is_made(kind, tmp_path):
    open_writer(tmp_path / "new" / "deeper", "pages", PageRow, kind).close()
    assert (tmp_path / "new" / "deeper" / f"pages.{kind}").is_file()


@BOTH
def test_nothing_is_at_the_final_place_before_the_file_is_whole(kind, tmp_path):
    final = tmp_path / f"pages.{kind}"
    writer = open_writer(tmp_path, "pages", PageRow, kind)
    writer.write(page_row())
    assert not final.exists()
    writer.close()
    assert [path.name for path in tmp_path.iterdir()] == [final.name]


@BOTH
def test_an_earlier_file_stays_whole_until_the_new_one_is(kind, tmp_path):
    final = tmp_path / f"pages.{kind}"
    final.write_bytes(b"earlier")
    writer = open_writer(tmp_path, "pages", PageRow, kind)
    writer.write(page_row(text="new"))
    assert final.read_bytes() == b"earlier"
    writer.close()
    assert [row["text"] for row in read(final, kind)] == ["new"]


@BOTH
def test_a_file_that_is_dropped_leaves_nothing_behind(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(output, "ROW_GROUP_ROWS", 2)
    final = tmp_path / f"pages.{kind}"
    final.write_bytes(b"earlier")
    writer = open_writer(tmp_path, "pages", PageRow, kind)
    for _ in range(5):
        writer.write(page_row())
    writer.discard()
    assert [path.name for path in tmp_path.iterdir()] == [final.name]
    assert final.read_bytes() == b"earlier"
    writer.discard()


@pytest.mark.parametrize(
    ("limit", "value", "characters", "groups"),
    [
        ("ROW_GROUP_ROWS", 3, 0, [3, 3, 1]),
        ("ROW_GROUP_CHARACTERS", 100, 50, [2, 2, 2, 1]),
        ("ROW_GROUP_CHARACTERS", 100, 1_000, [1] * 7),
    ],
)
def test_rows_are_written_in_groups_so_that_memory_does_not_grow(
    limit, value, characters, groups, tmp_path, monkeypatch
):
    monkeypatch.setattr(output, limit, value)
    writer = open_writer(tmp_path, "pages", PageRow, OutputFormat.PARQUET)
    for number in range(1, 8):
        writer.write(page_row(page=number), characters)
        assert len(writer._rows) < 3
    writer.close()
    written = pq.ParquetFile(tmp_path / "pages.parquet")
    assert [written.metadata.row_group(index).num_rows for index in range(written.num_row_groups)] == groups
    assert written.read().column("page").to_pylist() == list(range(1, 8))


def test_a_row_that_fits_no_column_is_refused_by_name_and_nothing_is_left_after_dropping(tmp_path):
    writer = open_writer(tmp_path, "pages", PageRow, OutputFormat.PARQUET)
    writer.write(page_row(text="\ud800"))
    with pytest.raises(RowError, match="column text"):
        writer.close()
    writer.discard()
    assert list(tmp_path.iterdir()) == []


# Disk errors ---------------------------------------------------------------------------------


@BOTH
def test_a_folder_that_cannot_be_made_is_a_disk_error_with_its_name(kind, tmp_path):
    (tmp_path / "file").touch()
    assert str(tmp_path / "file") in refused(open_writer, tmp_path / "file", "pages", PageRow, kind)
    below = tmp_path / "file" / "below"
    assert str(below) in refused(open_writer, below, "pages", PageRow, kind)


@BOTH
def test_a_file_that_cannot_be_opened_is_a_disk_error(kind, tmp_path):
    partial_of(tmp_path / f"pages.{kind}").mkdir()
    assert f"pages.{kind}" in refused(open_writer, tmp_path, "pages", PageRow, kind)


@BOTH
def test_a_final_place_that_is_taken_by_a_folder_is_a_disk_error(kind, tmp_path):
    final = tmp_path / f"pages.{kind}"
    final.mkdir()
    writer = open_writer(tmp_path, "pages", PageRow, kind)
    assert str(final) in refused(writer.close)
    writer.discard()
    assert list(tmp_path.iterdir()) == [final]


@needs_full_disk
@BOTH
def test_a_full_disk_is_a_disk_error_that_leaves_nothing_behind(kind, tmp_path):
    final = tmp_path / f"pages.{kind}"
    partial_of(final).symlink_to(FULL_DISK)

    def write_all():
        writer = open_writer(tmp_path, "pages", PageRow, kind)
        try:
            for number in range(1, 5_000):
                writer.write(page_row(page=number, text=f"page {number} " * 10), 100)
            writer.close()
        except PdfOpsError:
            writer.discard()
            raise

    assert "No space left on device" in refused(write_all)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_while_rows_are_written_is_a_disk_error_that_leaves_nothing_behind(
    tmp_path, monkeypatch
):
    writer = open_writer(tmp_path, "pages", PageRow, OutputFormat.PARQUET)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer._writer, "write_batch", full)
    writer.write(page_row())
    assert "No space left on device" in refused(writer.close)
    monkeypatch.setattr(writer._writer, "close", full)
    writer.discard()
    assert list(tmp_path.iterdir()) == []


# Text files ----------------------------------------------------------------------------------


def write_text(folder, name, *texts, keep=True):
    folder.begin(name)
    for number, text in enumerate(texts, start=1):
        folder.write(page_row(page=number, text=text))
    folder.end(keep=keep)


def test_each_document_has_a_file_with_its_pages_separated_by_form_feeds(tmp_path):
    write_text(TextFolder(tmp_path / "texts"), "a.pdf", "one\nfirst", "zwei é", "")
    content = (tmp_path / "texts" / "a.pdf.txt").read_bytes()
    assert content == "one\nfirst\n\fzwei é\n\f\n".encode()


def test_documents_of_one_name_get_files_of_their_own_also_where_case_does_not_count(tmp_path):
    folder = TextFolder(tmp_path)
    names = ["a.pdf", "a.pdf", "A.PDF", "a.pdf.2", "b.pdf", "a.pdf"]
    for number, name in enumerate(names):
        write_text(folder, name, str(number))
    files = {path.name: path.read_text().strip() for path in tmp_path.iterdir()}
    assert sorted(files.values()) == ["0", "1", "2", "3", "4", "5"]
    assert len({name.lower() for name in files}) == 6
    assert (files["a.pdf.txt"], files["b.pdf.txt"]) == ("0", "4")
    assert files["a.pdf.2.txt"] == "1"


def test_many_documents_of_one_name_are_numbered_one_by_one(tmp_path):
    folder = TextFolder(tmp_path)
    for number in range(1, 13):
        write_text(folder, "scan.pdf", str(number))
    assert (tmp_path / "scan.pdf.txt").read_text() == "1\n"
    for number in range(2, 13):
        assert (tmp_path / f"scan.pdf.{number}.txt").read_text() == f"{number}\n"


@pytest.mark.parametrize("name", ["x" * 251 + ".pdf", "漢" * 83 + ".pdf", "ü" * 120 + "1.pdf"])
def test_the_longest_name_that_a_file_may_have_does_no_harm(name, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).touch()
    folder = TextFolder(tmp_path / "texts")
    write_text(folder, name, "one")
    write_text(folder, name, "two")
    assert sorted(path.read_text() for path in (tmp_path / "texts").iterdir()) == ["one\n", "two\n"]


def test_a_name_that_is_no_valid_unicode_does_no_harm(tmp_path):
    write_text(TextFolder(tmp_path), os.fsdecode(b"caf\xe9.pdf"), "text")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["text\n"]


def test_a_text_appears_whole_or_not_at_all(tmp_path):
    folder = TextFolder(tmp_path)
    folder.begin("a.pdf")
    folder.write(page_row(text="text"))
    assert not (tmp_path / "a.pdf.txt").exists()
    folder.end(keep=True)
    assert [path.name for path in tmp_path.iterdir()] == ["a.pdf.txt"]


def test_a_text_that_is_not_kept_leaves_nothing_behind(tmp_path):
    folder = TextFolder(tmp_path)
    write_text(folder, "a.pdf", "text", keep=False)
    folder.end(keep=True)
    assert list(tmp_path.iterdir()) == []


def test_a_text_folder_that_cannot_be_made_is_a_disk_error(tmp_path):
    (tmp_path / "file").touch()
    assert str(tmp_path / "file") in refused(TextFolder, tmp_path / "file")


def test_a_text_whose_place_is_taken_by_a_folder_is_a_disk_error(tmp_path):
    (tmp_path / "a.pdf.txt").mkdir()
    folder = TextFolder(tmp_path)
    folder.begin("a.pdf")
    assert "a.pdf.txt" in refused(folder.end, keep=True)


@needs_full_disk
def test_a_text_on_a_full_disk_is_a_disk_error(tmp_path):
    partial_of(tmp_path / "a.pdf.txt").symlink_to(FULL_DISK)
    folder = TextFolder(tmp_path)

    def write_all():
        write_text(folder, "a.pdf", *["x" * 100_000] * 10)

    assert "No space left on device" in refused(write_all)
