from __future__ import annotations

import json
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.unit.ocr_worker.builders import STEADY, document_row, page_row

from ocr_worker.pages import ProcessUsage
from ocr_worker.summary import STAGES, Histogram, Summary
from pdf_ops.contract.documents import DocumentStatus
from pdf_ops.contract.errors import ErrorKind, PdfOpsError
from pdf_ops.contract.pages import Method, MethodReason, PageStatus


def histogram_of(durations):
    histogram = Histogram()
    for duration in durations:
        histogram.add(duration)
    return histogram


@STEADY
@given(
    durations=st.lists(st.floats(1e-3, 1e9), min_size=1, max_size=200),
    share=st.floats(0, 1) | st.sampled_from([0.5, 0.95, 1.0]),
)
@example(durations=[0.9999, 1.0, 1.0001], share=0.5)
@example(durations=[1.049999], share=0.5)
@example(durations=[0.953], share=0.5)
def test_a_percentile_is_within_six_per_cent_of_the_true_one(durations, share):
    rank = max(1, math.ceil(share * len(durations)))
    true = sorted(durations)[rank - 1]
    assert histogram_of(durations).percentile(share) == pytest.approx(true, rel=0.06)


def test_without_durations_percentiles_are_zero():
    assert Histogram().percentile(0.5) == 0.0
    assert Histogram().count == 0


@pytest.mark.parametrize("duration", [0.0, 1e-9, -1.0])
def test_no_time_at_all_counts_as_next_to_none(duration):
    histogram = histogram_of([duration])
    assert histogram.count == 1
    assert histogram.percentile(0.5) == pytest.approx(1e-3, rel=0.06)


def test_a_histogram_does_not_grow_with_the_number_of_durations():
    histogram = histogram_of([1 + (number % 1000) / 10 for number in range(20_000)])
    assert histogram.count == 20_000
    assert histogram.total_ms == pytest.approx(sum(1 + (number % 1000) / 10 for number in range(20_000)))
    assert len(histogram._steps) < 100


def test_pages_are_counted_by_where_their_text_comes_from():
    summary = Summary(documents_total=1)
    for method, times in ((Method.TEXT_LAYER, 3), (Method.OCR, 2), (Method.EMPTY, 1)):
        for _ in range(times):
            summary.add_page(page_row(text="abc", method=method))
    error = page_row(
        method=Method.NONE, method_reason=MethodReason.NOT_READ, status=PageStatus.ERROR, error_class="CRASH"
    )
    summary.add_page(error)
    shown = summary.as_json()["pages"]
    assert shown == {"total": 7, "error": 1, "text_layer": 3, "ocr": 2, "empty": 1, "none": 0}
    assert summary.characters == 18
    assert sum(shown.values()) - shown["total"] == shown["total"]


def test_a_stage_that_a_page_did_not_go_through_is_not_counted_for_it():
    summary = Summary(documents_total=1)
    summary.add_page(page_row(open_ms=3.0, text_ms=1.0, total_ms=5.0))
    summary.add_page(page_row(text_ms=1.0, render_ms=10.0, prepare_ms=2.0, ocr_ms=900.0, total_ms=915.0))
    counts = {name: stage.count for name, stage in summary.stages.items()}
    assert counts == {"open": 1, "text": 2, "render": 1, "prepare": 1, "ocr": 1, "total": 2}
    assert tuple(counts) == STAGES
    assert summary.stages["total"].total_ms == 920.0


def test_documents_are_counted_by_outcome_and_errors_by_kind_with_the_first_sample():
    summary = Summary(documents_total=6)
    truncated = PdfOpsError(ErrorKind.CORRUPT_TRUNCATED)
    summary.add_document(document_row())
    summary.add_document(document_row(DocumentStatus.FAILED, truncated, source_uri="file:///first.pdf"))
    summary.add_document(document_row(DocumentStatus.FAILED, truncated, source_uri="file:///second.pdf"))
    summary.add_document(document_row(DocumentStatus.PARTIAL, PdfOpsError(ErrorKind.CRASH_PAGE)))
    summary.add_document(document_row(DocumentStatus.SKIPPED, PdfOpsError(ErrorKind.POLICY_TOO_LARGE)))
    assert summary.documents_done == 5
    assert summary.documents_failed == 3
    shown = summary.as_json()
    assert shown["documents"] == {"total": 6, "done": 1, "partial": 1, "failed": 2, "skipped": 1}
    assert shown["errors"] == {
        "CORRUPT/truncated": {"documents": 2, "sample": "file:///first.pdf"},
        "CRASH/page": {"documents": 1, "sample": "file:///in/a.pdf"},
        "POLICY/too_large": {"documents": 1, "sample": "file:///in/a.pdf"},
    }
    assert next(iter(shown["errors"])) == "CORRUPT/truncated"


def test_the_end_of_a_run_adds_what_the_page_processes_used():
    summary = Summary(documents_total=0, pages=10)
    summary.finish(ProcessUsage(started=3, killed=1, cpu_s=1000.0, peak_rss_bytes=12_345), 4.0)
    shown = summary.as_json()
    assert shown["wall_s"] == 4.0
    assert shown["cpu_s"] > 1000.0
    assert shown["pages_per_s"] == 2.5
    assert shown["peak_page_process_bytes"] == 12_345
    assert shown["peak_main_bytes"] > 10**6
    assert shown["processes_started"] == 3


def test_a_run_without_documents_can_be_shown():
    shown = Summary(documents_total=0).as_json()
    assert json.loads(json.dumps(shown)) == shown
    assert shown["pages_per_s"] == 0.0
    assert shown["stages_ms"]["ocr"] == {"pages": 0, "total": 0.0, "p50": 0.0, "p95": 0.0}
