from __future__ import annotations

import dataclasses
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.ocr_worker.builders import STEADY, error_page, good_page

from ocr_worker.protocol import PageAnswer
from ocr_worker.reading import Reading
from ocr_worker.rows import DocumentTally, Provenance, Source
from pdf_ops.contract import documents, pages
from pdf_ops.contract.documents import DocumentStatus
from pdf_ops.contract.errors import CountedAs, ErrorKind, PdfOpsError, Phase
from pdf_ops.contract.fingerprint import ReadingConfig
from pdf_ops.contract.pages import Method, MethodReason, PageStatus

SOURCE = Source(
    uri="s3://in/a.pdf", size=123, doc_id="ab" * 32, etag="e1", version_id="v1", media_type="application/pdf"
)
CONFIG = ReadingConfig(languages=("eng", "deu"))
PROVENANCE = Provenance(reading=CONFIG, run_id="run", worker_id="worker", attempt=3)


def tally_of(*answers, page_count=None, source=SOURCE):
    tally = DocumentTally(source=source, provenance=PROVENANCE, open_ms=4.5)
    rows = [tally.page_row(answer, page_count or len(answers)) for answer in answers]
    tally.page_count = page_count or len(answers)
    return tally, rows


def ocr_page(index, confidence):
    return good_page(
        index, "read", method=Method.OCR, reason=MethodReason.NO_TEXT_LAYER, ocr_confidence=confidence
    )


def test_a_row_holds_everything_that_was_read_and_who_read_it():
    values = {
        "text": "abc",
        "method": Method.OCR,
        "reason": MethodReason.NO_TEXT_LAYER,
        "layer_chars": 1,
        "layer_bad_ratio": 0.1,
        "layer_word_ratio": 0.2,
        "layer_invisible_ratio": 0.3,
        "layer_hidden_ratio": 0.2,
        "image_coverage": 0.4,
        "ocr_confidence": 80.0,
        "ocr_confidence_low": 70.0,
        "ocr_words": 2,
        "ocr_attempts": 3,
        "width_pt": 595.0,
        "height_pt": 842.0,
        "rotation_declared": 90,
        "rotation_detected": 180,
        "dpi": 200.0,
        "parser": "pdfium 1",
        "ocr_engine": "tesseract 5",
        "text_ms": 1.0,
        "render_ms": 2.0,
        "prepare_ms": 3.0,
        "ocr_ms": 4.0,
    }
    assert set(values) == {field.name for field in dataclasses.fields(Reading)}
    before = datetime.now(UTC)
    _, (row,) = tally_of(PageAnswer(0, Reading(**values), None, 11.0, 9.0), page_count=7)
    assert before <= row.read_at <= datetime.now(UTC)
    written = dataclasses.asdict(row)
    values["method_reason"] = values.pop("reason")
    assert {name: written[name] for name in values} == values
    assert {name: value for name, value in written.items() if name not in values} == {
        "doc_id": "ab" * 32,
        "source_uri": "s3://in/a.pdf",
        "source_etag": "e1",
        "source_version_id": "v1",
        "source_size": 123,
        "page": 1,
        "page_count": 7,
        "char_count": 3,
        "status": PageStatus.OK,
        "error_class": None,
        "error_code": None,
        "error_message": None,
        "run_id": "run",
        "worker_id": "worker",
        "attempt": 3,
        "languages": "eng+deu",
        "config_hash": CONFIG.config_hash,
        "schema_version": pages.PAGE_SCHEMA_VERSION,
        "open_ms": 4.5,
        "total_ms": 11.0,
        "cpu_ms": 9.0,
        "read_at": row.read_at,
    }


def test_pages_are_numbered_from_one_and_only_the_first_pays_for_opening():
    _, rows = tally_of(good_page(0), good_page(1), error_page(2))
    assert [row.page for row in rows] == [1, 2, 3]
    assert [row.open_ms for row in rows] == [4.5, 0.0, 0.0]


def test_a_page_that_could_not_be_read_has_a_row_that_says_why():
    _, (row,) = tally_of(error_page(0, ErrorKind.OOM_PAGE, "ended by SIGKILL"))
    assert row.status is PageStatus.ERROR
    assert (row.error_class, row.error_code) == ("OOM", "page")
    assert row.error_message == str(PdfOpsError(ErrorKind.OOM_PAGE, "ended by SIGKILL"))
    assert (row.text, row.char_count) == ("", 0)
    assert (row.method, row.method_reason) == (Method.NONE, MethodReason.NOT_READ)


def test_an_answer_with_neither_reading_nor_error_is_an_error_row():
    _, (row,) = tally_of(PageAnswer(0, None, None, 0.0, 0.0))
    assert (row.error_class, row.error_code) == ("ENGINE", "bad_answer")


def test_a_document_is_done_when_every_page_was_read():
    tally, _ = tally_of(
        good_page(0, "12345"), ocr_page(1, 80.0), ocr_page(2, 91.0), good_page(3, "", method=Method.EMPTY)
    )
    row = tally.document_row(None, 77.0)
    assert row.status is DocumentStatus.DONE
    assert (row.page_count, row.pages_written) == (4, 4)
    assert (row.pages_text_layer, row.pages_ocr, row.pages_empty, row.pages_none) == (1, 2, 1, 0)
    assert row.pages_error == 0
    assert row.char_count == 13
    assert row.ocr_confidence == 85.5
    assert (row.wall_ms, row.cpu_ms) == (77.0, 4.0)
    assert (row.error_class, row.error_code, row.error_phase, row.error_message) == (None,) * 4
    assert (row.source_uri, row.doc_id, row.media_type) == ("s3://in/a.pdf", "ab" * 32, "application/pdf")
    assert (row.run_id, row.worker_id, row.attempt) == ("run", "worker", 3)
    assert (row.languages, row.config_hash) == ("eng+deu", CONFIG.config_hash)


def test_a_page_without_text_is_read_all_the_same():
    tally, _ = tally_of(good_page(0, "", method=Method.NONE, reason=MethodReason.NO_TEXT_FOUND))
    row = tally.document_row(None, 1.0)
    assert (row.status, row.pages_none) == (DocumentStatus.DONE, 1)


def test_a_document_without_ocr_has_no_confidence():
    tally, _ = tally_of(good_page(0))
    assert tally.document_row(None, 1.0).ocr_confidence is None


def test_a_document_is_partial_with_one_page_read_and_one_not_and_names_the_first_error():
    tally, _ = tally_of(good_page(0), error_page(1, ErrorKind.CRASH_PAGE), error_page(2, ErrorKind.OOM_PAGE))
    row = tally.document_row(None, 1.0)
    assert row.status is DocumentStatus.PARTIAL
    assert (row.pages_written, row.pages_error) == (3, 2)
    assert (row.error_class, row.error_code, row.error_phase) == ("CRASH", "page", Phase.EXTRACT.value)
    assert row.error_message.startswith("CRASH/page: ")


def test_a_document_has_failed_when_no_page_was_read():
    tally, _ = tally_of(error_page(0, ErrorKind.TIMEOUT_PAGE), error_page(1, ErrorKind.CRASH_PAGE))
    row = tally.document_row(None, 1.0)
    assert (row.status, row.error_code) == (DocumentStatus.FAILED, "page")
    assert (row.pages_written, row.pages_error) == (2, 2)


@pytest.mark.parametrize("kind", ErrorKind, ids=lambda kind: kind.label)
def test_a_document_that_was_not_opened_has_failed_or_was_skipped_as_its_error_says(kind):
    tally = DocumentTally(source=Source(uri="file:///a.pdf"), provenance=PROVENANCE)
    row = tally.document_row(PdfOpsError(kind, "detail"), 1.0)
    skipped = kind.counted_as is CountedAs.SKIPPED
    assert row.status is (DocumentStatus.SKIPPED if skipped else DocumentStatus.FAILED)
    assert (row.error_class, row.error_code) == (kind.error_class, kind.code)
    assert (row.page_count, row.pages_written) == (None, 0)
    assert documents.to_record_batch([row]).num_rows == 1


@STEADY
@given(st.lists(st.none() | st.sampled_from(Method), max_size=30))
def test_the_counts_of_a_document_add_up_and_its_rows_can_be_written(methods):
    answers = [
        error_page(index) if method is None else good_page(index, "text", method=method)
        for index, method in enumerate(methods)
    ]
    tally, rows = tally_of(*answers)
    row = tally.document_row(None, 1.0)
    read = row.pages_text_layer + row.pages_ocr + row.pages_empty + row.pages_none
    assert read + row.pages_error == row.pages_written == len(rows)
    assert row.char_count == sum(page.char_count for page in rows)
    assert (row.status is DocumentStatus.DONE) == (row.pages_error == 0)
    assert (row.status is DocumentStatus.PARTIAL) == (row.pages_error > 0 and read > 0)
    assert (row.error_class is None) == (row.pages_error == 0)
    pages.to_record_batch(rows)
    documents.to_record_batch([row])
