from __future__ import annotations

import io
import json
import sys

import pytest
from tests.unit.ocr_worker.builders import document_row, page_row

from ocr_worker import console
from ocr_worker.console import (
    BarReporter,
    JsonReporter,
    PlainReporter,
    choose_reporter,
    closing_table,
    format_duration,
)
from ocr_worker.summary import Summary
from pdf_ops.contract.documents import DocumentStatus
from pdf_ops.contract.errors import ErrorKind, PdfOpsError
from pdf_ops.contract.pages import Method, MethodReason, PageStatus

TRUNCATED = PdfOpsError(ErrorKind.CORRUPT_TRUNCATED, "the end of the file is missing")


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test winds."""

    class Clock:
        now = 1_000.0

        def monotonic(self):
            return self.now

    stopped = Clock()
    monkeypatch.setattr(console, "time", stopped)
    return stopped


def a_run():
    summary = Summary(documents_total=4)
    summary.add_document(document_row())
    summary.add_document(document_row(DocumentStatus.FAILED, TRUNCATED))
    summary.add_document(document_row(DocumentStatus.FAILED, TRUNCATED))
    summary.add_document(document_row(DocumentStatus.SKIPPED, PdfOpsError(ErrorKind.POLICY_TOO_LARGE)))
    for _ in range(1_200):
        summary.add_page(page_row(text="abc", text_ms=1.0, total_ms=2.0))
    summary.add_page(page_row(text="abc", method=Method.OCR, ocr_ms=800.0, total_ms=1_000.0))
    summary.add_page(
        page_row(method=Method.NONE, method_reason=MethodReason.NOT_READ, status=PageStatus.ERROR)
    )
    summary.wall_s, summary.cpu_s = 60.1, 120.2
    summary.peak_main_bytes, summary.peak_page_process_bytes = 51_000_000, 203_000_000
    return summary


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0.0 s"),
        (0.84, "0.8 s"),
        (9.94, "9.9 s"),
        (10, "10 s"),
        (42.4, "42 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (200, "3 min 20 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h 0 min"),
        (7_500, "2 h 5 min"),
        (100_000, "27 h 46 min"),
    ],
)
def test_durations_are_shown_as_people_say_them(seconds, shown):
    assert format_duration(seconds) == shown


def test_the_closing_table_says_what_became_of_documents_and_pages():
    lines = [line.split() for line in closing_table(a_run()).splitlines()]
    for expected in (
        ["documents", "4"],
        ["done", "1"],
        ["partial", "0"],
        ["failed", "2"],
        ["skipped", "1"],
        ["pages", "1,202"],
        ["text_layer", "1,200"],
        ["ocr", "1"],
        ["error", "1"],
    ):
        assert expected in lines


def test_the_closing_table_names_each_error_with_what_to_do_the_most_frequent_first():
    table = closing_table(a_run())
    truncated, too_large = ErrorKind.CORRUPT_TRUNCATED, ErrorKind.POLICY_TOO_LARGE
    (first,) = [line for line in table.splitlines() if line.startswith(truncated.label)]
    (second,) = [line for line in table.splitlines() if line.startswith(too_large.label)]
    assert first.split()[1] == "2"
    assert first.endswith(truncated.what_to_do)
    assert second.endswith(too_large.what_to_do)
    assert table.index(first) < table.index(second)


def test_the_closing_table_shows_timings_only_of_stages_that_there_were():
    table = closing_table(a_run())
    stages = [line.split() for line in table.splitlines()]
    assert ["milliseconds", "pages", "p50", "p95"] in stages
    assert [
        line[:2] for line in stages if line and line[0] in ("text", "ocr", "total", "render", "open")
    ] == [
        ["ocr", "1"],
        ["text", "1,200"],
        ["ocr", "1"],
        ["total", "1,202"],
    ]


def test_the_closing_table_ends_with_time_rate_and_memory():
    assert closing_table(a_run()).splitlines()[-1] == (
        "1 min 0 s, 20.0 pages/s (10.0 per CPU second); peak memory 51 MB and 203 MB per page process"
    )


def test_numbers_stand_below_each_other_to_the_right():
    lines = closing_table(a_run()).splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("pages"))
    block = lines[start : start + 6]
    assert len({len(line) for line in block}) == 1
    assert not any(line.endswith(" ") for line in lines)


def test_the_closing_table_of_a_run_without_anything_has_no_errors_and_no_timings():
    table = closing_table(Summary(documents_total=0))
    assert "errors" not in table
    assert "milliseconds" not in table
    assert table.splitlines()[-1].startswith("0.0 s, 0.0 pages/s")


def test_plain_lines_name_each_document_that_was_not_read_whole_and_no_other(clock):
    stream = io.StringIO()
    with PlainReporter(stream) as reporter:
        summary = a_run()
        reporter.document(summary, document_row())
        reporter.document(summary, document_row(DocumentStatus.FAILED, TRUNCATED))
        reporter.page(summary, page_row())
    assert stream.getvalue() == f"failed: file:///in/a.pdf: {TRUNCATED}\n"


def test_plain_lines_say_every_ten_seconds_how_far_it_is(clock):
    stream = io.StringIO()
    with PlainReporter(stream) as reporter:
        summary = a_run()
        for second in (1, 9.9, 10, 11, 19.9, 20.1):
            clock.now = 1_000 + second
            reporter.page(summary, page_row())
    assert stream.getvalue().splitlines() == [
        "4/4 documents, 1202 pages, 120.2 pages/s, 2 failed",
        "4/4 documents, 1202 pages, 59.8 pages/s, 2 failed",
    ]


def test_json_lines_hold_one_object_per_document_and_the_summary_last():
    stream = io.StringIO()
    summary = a_run()
    with JsonReporter(stream) as reporter:
        reporter.page(summary, page_row())
        reporter.document(
            summary,
            document_row(source_uri="file:///ü.pdf", page_count=7, pages_ocr=2, wall_ms=12.3456),
        )
        reporter.document(summary, document_row(DocumentStatus.FAILED, TRUNCATED))
        reporter.finished(summary)
    first, second, last = (json.loads(line) for line in stream.getvalue().splitlines())
    assert first == {
        "event": "document",
        "source_uri": "file:///ü.pdf",
        "status": "done",
        "page_count": 7,
        "pages_ocr": 2,
        "pages_error": 0,
        "error_class": None,
        "error_code": None,
        "error_message": None,
        "wall_ms": 12.3,
        "documents_done": 4,
        "documents_total": 4,
    }
    assert (second["status"], second["error_class"], second["error_code"]) == (
        "failed",
        "CORRUPT",
        "truncated",
    )
    assert second["error_message"] == str(TRUNCATED)
    assert last == {"event": "finished", **summary.as_json()}


def test_a_message_with_line_breaks_in_a_file_name_stays_on_its_line():
    stream = io.StringIO()
    error = PdfOpsError(ErrorKind.CORRUPT_UNREADABLE, "forged\nfailed: other.pdf\x1b[2J")
    PlainReporter(stream).document(Summary(documents_total=1), document_row(DocumentStatus.FAILED, error))
    JsonReporter(stream).document(Summary(documents_total=1), document_row(DocumentStatus.FAILED, error))
    assert len(stream.getvalue().splitlines()) == 2
    assert "\x1b" not in stream.getvalue()


def test_the_bar_names_a_document_that_was_not_read_whole_as_it_is(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    summary = a_run()
    with BarReporter() as reporter:
        reporter.page(summary, page_row())
        row = document_row(DocumentStatus.FAILED, TRUNCATED, source_uri="file:///[bold]a.pdf")
        reporter.document(summary, row)
    shown = "".join(stream.getvalue().split())
    assert "failed:file:///[bold]a.pdf:CORRUPT/truncated:" in shown


def test_the_reporter_suits_where_the_output_goes(monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert isinstance(choose_reporter(as_json=False), PlainReporter)
    assert isinstance(choose_reporter(as_json=True), JsonReporter)
    monkeypatch.setattr(sys, "stderr", terminal)
    assert isinstance(choose_reporter(as_json=False), BarReporter)
    assert isinstance(choose_reporter(as_json=True), JsonReporter)
