"""The redrive's DAG file: it parses anywhere, costs little, and deletes letters last."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.dags.test_pdf_ocr import PARSE, run

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def parsed():
    return run(PARSE, str(REPOSITORY / "dags" / "pdf_redrive.py"))


def test_it_is_a_dry_run_unless_told_otherwise(parsed):
    assert parsed["params"]["dry_run"]["value"] is True
    assert parsed["params"]["approval"]["value"] is False


def test_it_never_runs_by_itself(parsed):
    assert parsed["timetable"] == "NullTimetable"


def test_nothing_is_sent_without_approval_and_letters_go_after_sending(parsed):
    tasks = parsed["tasks"]

    assert "approve" in tasks["enqueue"]["upstream"]
    assert tasks["clear_letters"]["upstream"] == ["enqueue"]
    assert "clear_letters" in tasks["fleet"]["upstream"]


def test_it_ends_with_a_report_and_a_gate_that_fails_the_run(parsed):
    tasks = parsed["tasks"]

    assert tasks["gate"]["upstream"] == ["report"]
    assert tasks["gate"]["fails_run"]
    assert tasks["report"]["trigger_rule"] == "all_done"


def test_parsing_it_loads_neither_the_api_nor_what_reads_documents(parsed):
    heavy = ("fastapi", "uvicorn", "throttled", "redis", "pyarrow", "pypdf", "pdf_ops.api")

    assert [name for name in parsed["imported"] if name.split(".")[0] in heavy or "pdf_ops.api" in name] == []
