"""What earlier releases wrote still reads, and what a later one may add is passed over.

The files below tests/fixtures/ were written by a worker with the schema versions in their folder's
name; `python -m tests.support.old_data` writes the folder of a new version. KIND-before-COLUMN.parquet is
what a release without that column would have written.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.old_data import FIXTURES, RUN_ID, folder_of

from pdf_ops.compaction import PageCompactor
from pdf_ops.contract.documents import (
    DOCUMENT_SCHEMA_VERSION,
    DocumentRow,
    DocumentStatus,
    document_schema,
)
from pdf_ops.contract.fingerprint import OcrMode
from pdf_ops.contract.listing import read_lines
from pdf_ops.contract.messages import parse_message
from pdf_ops.contract.pages import PAGE_SCHEMA_VERSION, Method, MethodReason, PageRow, PageStatus, page_schema
from pdf_ops.contract.runs import Counters, Outcome, RunRecord
from pdf_ops.contract.state import DocumentState
from pdf_ops.merging import ManifestMerger, ManifestWriter, UnreadableRowsError, read_rows

FOLDERS = sorted(FIXTURES.glob("pages-*-documents-*"))
STATUSES = {"broken.pdf": "failed", "half.pdf": "partial", "text.pdf": "done"}

pytestmark = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


def rows_of(path, schema):
    return [row for table in read_rows(path, schema) for row in table.to_pylist()]


def lines_of(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def name_of(uri: str) -> str:
    return uri.rsplit("/", 1)[-1]


def test_the_present_schemas_have_files_too(folder):
    assert folder_of(PAGE_SCHEMA_VERSION, DOCUMENT_SCHEMA_VERSION) in FOLDERS


def test_page_rows_still_read(folder):
    rows = {}
    for path in folder.glob("pages-?.parquet"):
        for values in rows_of(path, page_schema()):
            row = PageRow(
                **values
                | {
                    "method": next(member for member in Method if member == values["method"]),
                    "method_reason": next(m for m in MethodReason if m == values["method_reason"]),
                    "status": next(member for member in PageStatus if member == values["status"]),
                }
            )
            rows[name_of(row.source_uri), row.page] = row

    assert set(rows) == {("half.pdf", 1), ("half.pdf", 2), ("text.pdf", 1)}
    text, bad = rows["text.pdf", 1], rows["half.pdf", 2]
    assert (text.method, text.status, text.char_count) == (Method.TEXT_LAYER, PageStatus.OK, len(text.text))
    assert text.text.startswith("The quick brown fox")
    assert (bad.status, bad.error_class, bad.error_code) == (PageStatus.ERROR, "BOMB", "pixels")
    assert {row.run_id for row in rows.values()} == {RUN_ID}


def test_manifests_still_read(folder):
    [path] = folder.glob("documents-?.parquet")
    rows = [
        DocumentRow(**values | {"status": next(m for m in DocumentStatus if m == values["status"])})
        for values in rows_of(path, document_schema())
    ]

    assert {name_of(row.source_uri): row.status.value for row in rows} == STATUSES
    assert {name_of(row.source_uri): row.page_count for row in rows} == {
        "broken.pdf": None,
        "half.pdf": 2,
        "text.pdf": 1,
    }


def test_rows_that_lack_a_newer_column_read_as_null(folder):
    for path in folder.glob("*-before-*.parquet"):
        kind, column = path.stem.split("-before-")
        assert column not in pq.read_schema(path).names
        for row in rows_of(path, page_schema() if kind == "pages" else document_schema()):
            assert row[column] is None
            assert row["run_id"] == RUN_ID


def test_old_files_merge_into_the_present_schemas(folder, tmp_path):
    merger = ManifestMerger(tmp_path)
    for path in folder.glob("documents-*.parquet"):
        merger.add(path)
    with ManifestWriter(tmp_path / "manifest.parquet") as writer:
        for table in merger.tables():
            writer.write(table)
    merged = pq.read_table(tmp_path / "manifest.parquet")
    written = []
    compactor = PageCompactor(
        tmp_path, on_file=lambda path, _: written.append(pq.read_table(path)), on_rows=lambda _: None
    )
    for path in folder.glob("pages-*.parquet"):
        for table in read_rows(path, page_schema()):
            compactor.add(table)
    compactor.finish()

    assert merged.schema.equals(document_schema())
    found = zip(merged["source_uri"].to_pylist(), merged["status"].to_pylist(), strict=True)
    assert {name_of(uri): status for uri, status in found} == STATUSES
    [pages] = written
    assert pages.schema.equals(page_schema())
    assert pages.num_rows == sum(pq.read_metadata(path).num_rows for path in folder.glob("pages-*.parquet"))


def test_listings_and_messages_still_read(folder):
    listed = list(read_lines((folder / "listing.jsonl").read_bytes().splitlines()))
    messages = [
        message
        for line in (folder / "messages.jsonl").read_text(encoding="utf-8").splitlines()
        for message in parse_message(line)
    ]

    assert {line.key for line in listed} == set(STATUSES)
    assert all(line.decision.is_sent for line in listed)
    assert [(message.key, message.etag, message.size) for message in messages] == [
        (line.key, line.etag, line.size) for line in listed
    ]
    assert {message.run_id for message in messages} == {RUN_ID}


def test_items_of_both_tables_still_read(folder):
    runs = {item["part"]["S"]: item for item in lines_of(folder / "runs.jsonl")}
    record = RunRecord.from_item(runs["total"])
    outcomes = [Outcome.from_item(item) for part, item in runs.items() if part.startswith("document#")]
    states = [DocumentState.from_item(item) for item in lines_of(folder / "state.jsonl")]

    assert (record.run_id, record.documents, record.reading.ocr) == (RUN_ID, len(STATUSES), OcrMode.AUTO)
    assert {outcome.s3_key: outcome.status.value for outcome in outcomes} == STATUSES
    assert {state.s3_key: state.status.value for state in states} == STATUSES
    counted = Counters.from_item(runs["worker#fixture"])
    assert (counted.done, counted.partial, counted.failed, counted.pages) == (1, 1, 1, 3)


def test_what_a_later_release_adds_is_passed_over(folder, tmp_path):
    """So that for a while workers and control plane may be of different releases."""
    [path] = folder.glob("documents-?.parquet")
    table = pq.read_table(path)
    pq.write_table(table.append_column("later", pa.array(["x"] * len(table))), tmp_path / "later.parquet")
    later = {"later": {"S": "x"}}
    items = lines_of(folder / "runs.jsonl")
    [total] = [item for item in items if item["part"]["S"] == "total"]
    outcome = next(item for item in items if item["part"]["S"].startswith("document#"))
    [state, *_] = lines_of(folder / "state.jsonl")
    [message, *_] = lines_of(folder / "messages.jsonl")

    assert rows_of(tmp_path / "later.parquet", document_schema()) == rows_of(path, document_schema())
    assert RunRecord.from_item(total | later) == RunRecord.from_item(total)
    assert Outcome.from_item(outcome | later) == Outcome.from_item(outcome)
    assert DocumentState.from_item(state | later) == DocumentState.from_item(state)
    assert parse_message(json.dumps(message | {"later": "x"})) == parse_message(json.dumps(message))


def test_a_run_that_asks_for_a_way_of_reading_that_is_not_known_is_refused(folder):
    """Rows that pass over such a setting would be wrong, and nobody would see it."""
    [total] = [item for item in lines_of(folder / "runs.jsonl") if item["part"]["S"] == "total"]
    reading = json.loads(total["reading"]["S"]) | {"later": True}

    with pytest.raises(TypeError, match="later"):
        RunRecord.from_item(total | {"reading": {"S": json.dumps(reading)}})


def test_a_file_that_lacks_a_column_that_must_be_there_is_refused(folder, tmp_path):
    [path] = folder.glob("documents-?.parquet")
    pq.write_table(pq.read_table(path).drop_columns(["source_uri"]), tmp_path / "bad.parquet")

    with pytest.raises(UnreadableRowsError, match="source_uri"):
        rows_of(tmp_path / "bad.parquet", document_schema())
