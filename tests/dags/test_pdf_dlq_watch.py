"""The DAG file of the watch over dead letters."""

from __future__ import annotations

from pathlib import Path

from tests.dags.test_pdf_ocr import PARSE, run

FILE = str(Path(__file__).resolve().parents[2] / "dags" / "pdf_dlq_watch.py")


def test_it_runs_by_itself_only_where_somebody_would_hear_of_it():
    silent = run(PARSE, FILE)
    heard = run(PARSE, FILE, AIRFLOW__PDF_OPS__SLACK_CONN_ID="slack")
    switched_off = run(
        PARSE, FILE, AIRFLOW__PDF_OPS__SLACK_CONN_ID="slack", AIRFLOW__PDF_OPS__DLQ_WATCH_SCHEDULE="none"
    )

    assert [one["timetable"] for one in (silent, heard, switched_off)] == [
        "NullTimetable",
        "CronDataIntervalTimetable",
        "NullTimetable",
    ]
    assert list(heard["tasks"]) == ["watch"]
    assert heard["catchup"] is False
    assert "`watch`" in heard["doc"]


def test_parsing_it_loads_nothing_heavy_and_takes_less_than_half_a_second():
    parsed = run(PARSE, FILE)
    heavy = ("fastapi", "pyarrow", "pandas", "numpy", "aiobotocore", "httpx")

    assert [name for name in parsed["imported"] if name.split(".")[0] in heavy or "pdf_ops.api" in name] == []
    assert parsed["elapsed"] < 0.5
