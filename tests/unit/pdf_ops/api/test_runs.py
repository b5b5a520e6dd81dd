"""What is said of a run before its report is written: taken from a sample of its outcomes."""

from __future__ import annotations

from typing import Any

from pdf_ops.api.runs import _statistics
from pdf_ops.contract.documents import DocumentStatus
from pdf_ops.contract.runs import Outcome


def outcome(number: int, minute: int, error: str | None = None, **more: Any) -> Outcome:
    values: dict[str, Any] = {
        "run_id": "run",
        "s3_key": f"in/{number}.pdf",
        "status": DocumentStatus.FAILED if error else DocumentStatus.DONE,
        "pages": 0 if error else 3,
        "worker_id": "worker",
        "committed_at": f"2026-01-02T12:{minute:02d}:30.5+00:00",
        "error_class": error,
        "error_code": "page" if error else None,
        "expires_at": 0,
    }
    return Outcome(**values | more)


def test_a_sample_of_every_outcome_is_counted_as_it_is():
    found = _statistics([outcome(1, 5), outcome(2, 5), outcome(3, 7, "TIMEOUT")], 3, "in-bucket")

    assert found["throughput"] == [
        {"minute": "2026-01-02T12:05+00:00", "documents": 2, "pages": 6},
        {"minute": "2026-01-02T12:07+00:00", "documents": 1, "pages": 0},
    ]
    assert found["errors"] == [
        {
            "status": "failed",
            "error_class": "TIMEOUT",
            "error_code": "page",
            "documents": 1,
            "samples": ["s3://in-bucket/in/3.pdf"],
        }
    ]


def test_a_part_of_the_outcomes_is_scaled_up_to_all_of_them():
    sample = [outcome(number, 5, "CRASH" if number % 4 == 0 else None) for number in range(100)]
    found = _statistics(sample, 20_000, "in-bucket")

    assert found["throughput"] == [{"minute": "2026-01-02T12:05+00:00", "documents": 20_000, "pages": 45_000}]
    assert [(one["documents"], len(one["samples"])) for one in found["errors"]] == [(5_000, 5)]


def test_a_document_of_another_bucket_keeps_its_uri_and_a_time_in_another_zone_is_understood():
    odd = outcome(1, 5, "CRASH", s3_key="s3://other/a.pdf", committed_at="2026-01-02T13:05:00+01:00")
    found = _statistics([odd], 1, "in-bucket")

    assert found["errors"][0]["samples"] == ["s3://other/a.pdf"]
    assert found["throughput"][0]["minute"] == "2026-01-02T12:05+00:00"


def test_a_run_without_outcomes_has_no_statistics():
    assert _statistics([], 0, "in-bucket") == {"throughput": [], "errors": []}
