from __future__ import annotations

import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest
from airflow.sdk import DAG, BaseOperator, TriggerRule
from tests.support.runs import INPUT, LAYOUT_ARGUMENTS, READING, WrittenRun, moto_server

from pdf_ops.contract.documents import DocumentStatus
from pdf_ops.contract.errors import ErrorKind
from pdf_ops.contract.listing import Decision
from pdf_ops.contract.runs import Counters
from pdf_ops.cost import Prices, PricesError, estimate
from pdf_ops.dead_letters import triage
from pdf_ops.operators.reconcile import ReconcileOperator, ReconciliationError
from pdf_ops.operators.report import ReportOperator
from pdf_ops.reporting.page import render

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
VOID = {"meta", "rect", "line", "polyline", "polygon", "br"}


@pytest.fixture
def run() -> Iterator[WrittenRun]:
    with moto_server():
        yield WrittenRun().create()


def write(run: WrittenRun, rows: list, *, letters: int = 0) -> None:
    run.put_listing([row.source_uri.removeprefix(f"s3://{INPUT}/") for row in rows])
    run.put_record(len(rows))
    run.put_part(rows)
    run.commit(rows)
    for number in range(letters):
        run.put_letter(f"bad-{number}.pdf", ("CORRUPT", "truncated"))


def merge_and_reconcile(run: WrittenRun) -> None:
    run.merge()
    ReconcileOperator(task_id="reconcile", run_id=run.run_id, **LAYOUT_ARGUMENTS).execute(run.context())


def report(run: WrittenRun, *, states: dict[str, str] | None = None, **arguments) -> tuple[dict, dict, str]:
    """What the task returns, the JSON file, and the HTML file."""
    with DAG("pdf_ocr", schedule=None):
        fleet = BaseOperator(task_id="fleet")
        operator = ReportOperator(
            task_id="report",
            **LAYOUT_ARGUMENTS | {"run_id": run.run_id, "dlq_url": run.dlq_url} | arguments,
        )
        fleet >> operator
    result = operator.execute(run.context(**states or {}))
    uri = run.layout.report_html(run.run_id)
    answer = run.s3.get_object(Bucket=uri.bucket, Key=uri.key)
    assert answer["ContentType"] == "text/html; charset=utf-8"
    html = answer["Body"].read().decode()
    check_html(html)
    return result, run.json(run.layout.report_json(run.run_id)), html


def check_html(html: str) -> None:
    """Every element is closed, nothing is loaded from elsewhere, and the browser would not let it be."""

    class Checker(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.open: list[str] = []
            self.policy = ""

        def handle_starttag(self, tag: str, attrs: list) -> None:
            assert tag not in ("script", "link", "img", "iframe"), tag
            names = {name for name, _ in attrs}
            assert not {"src", "href"} & names
            assert not any(name.startswith("on") for name in names)
            if ("http-equiv", "Content-Security-Policy") in attrs:
                self.policy = dict(attrs)["content"]
            if tag not in VOID:
                self.open.append(tag)

        def handle_endtag(self, tag: str) -> None:
            if tag not in VOID:
                assert self.open.pop() == tag

    checker = Checker()
    checker.feed(html)
    assert checker.open == []
    assert checker.policy.startswith("default-src 'none';")
    assert "script-src" not in checker.policy
    assert "url(" not in html
    assert "@import" not in html


def test_the_report_says_what_happened_and_what_to_do(run):
    rows = [
        run.document("good.pdf", page_count=3),
        run.document("partial.pdf", DocumentStatus.PARTIAL, error=("TIMEOUT", "page"), minute=3),
        *(
            run.document(f"bad-{number}.pdf", DocumentStatus.FAILED, error=("CORRUPT", "truncated"))
            for number in range(2)
        ),
    ]
    write(run, rows, letters=2)
    merge_and_reconcile(run)

    result, document, html = report(run, failure_threshold="0.75")

    assert result["outcomes"] == {"ok": 1, "partial": 1, "failed": 2, "skipped": 0}
    assert (result["state"], result["is_over_threshold"]) == ("complete", False)
    assert result["worst_errors"][0] == {"label": "CORRUPT/truncated", "documents": 2}
    assert result["dead_letters"] == 2
    assert document["reconciliation"]["is_reconciled"]
    error = document["errors"][0]
    assert error["what_to_do"] == ErrorKind.CORRUPT_TRUNCATED.what_to_do
    assert error["samples"] == [f"s3://{INPUT}/bad-0.pdf", f"s3://{INPUT}/bad-1.pdf"]
    assert document["dead_letters"]["groups"][0]["label"] == "CORRUPT/truncated"
    assert document["slowest"][0]["source_uri"].endswith("good.pdf")
    assert document["fleet"]["workers"][0]["worker_id"] == "worker-1"
    for text in ("Reconciliation", "Waste: retries and duplicates", "Throughput", "good.pdf", "Text layer"):
        assert text in html
    assert "light-dark(" in html
    assert result["report_html_uri"] == str(run.layout.report_html(run.run_id))


def test_a_whole_run_leaves_its_pace_for_the_next_fleet(run):
    write(run, [run.document("good.pdf")])
    merge_and_reconcile(run)
    container = {"started_at": "2026-03-01T08:00:00+00:00", "stopped_at": "2026-03-01T08:20:00+00:00"}

    report(run, fleet=[container])

    pace = run.json(run.layout.pace_json(READING.config_hash))
    assert (pace["run_id"], pace["documents"], pace["worker_s"]) == (run.run_id, 1, 1_200)


def test_a_run_that_found_nothing_to_read_says_so(run):
    run.put_listing(["old.pdf"], Decision.UNCHANGED)

    result, document, html = report(run, listing={"decisions": {"unchanged": 1}})

    assert result["state"] == "empty"
    assert document["headline"] == "Nothing to read: 1 objects were listed, and none is new or changed."
    assert document["headline"] in html


def test_a_dry_run_says_what_it_would_read(run):
    listing = {"is_dry_run": True, "documents": 1200, "counts": {"new": 1200}}

    result, _, html = report(run, listing=listing)

    assert (result["state"], result["headline"]) == (
        "dry_run",
        "Dry run: 1,200 documents would be read; nothing was sent.",
    )
    assert "1,200 new" in html


def test_a_run_whose_fleet_failed_has_a_report_from_the_workers_counters(run):
    rows = [run.document("one.pdf"), run.document("two.pdf")]
    write(run, rows)
    run.put_record(5)

    result, document, html = report(run, states={"fleet": "failed"})

    assert (result["state"], result["failed_tasks"]) == ("incomplete", ["fleet"])
    assert document["headline"] == "3 of 5 documents have no outcome."
    assert (document["outcomes"]["ok"], document["is_merged"], document["reconciliation"]) == (2, False, None)
    assert "Failed tasks" in html
    assert "It did not run" in html


def test_why_the_wait_failed_is_in_the_headline(run):
    run.put_record(5)

    result, _, html = report(run, states={"fleet": "failed"}, failure="no document was finished for 9 s.")

    assert result["headline"] == (
        "The run failed in fleet before a document was read. No document was finished for 9 s."
    )
    assert result["failure"] == "no document was finished for 9 s."
    assert "No document was finished" in html


def test_a_run_that_does_not_add_up_shows_the_documents(run):
    write(run, [run.document("one.pdf")])
    run.put_listing(["one.pdf", "lost.pdf"])
    with pytest.raises(ReconciliationError):
        merge_and_reconcile(run)

    result, _, html = report(run, states={"fleet": "success"})

    assert result["state"] == "incomplete"
    assert "does not hold" in html
    assert "lost.pdf" in html


def test_nothing_from_a_bucket_can_become_markup(run):
    key = "<script>alert('x')</script>&amp;.pdf"
    write(
        run,
        [run.document(key, DocumentStatus.FAILED, error=("CORRUPT", "truncated")), run.document(key + "2")],
    )
    merge_and_reconcile(run)

    _, _, html = report(run)

    assert "<script" not in html
    assert "&lt;script&gt;" in html


def test_nothing_from_an_error_can_become_markup(run):
    image = "<img src=x onerror=alert(1)>"
    write(run, [run.document("one.pdf")])
    merge_and_reconcile(run)

    _, _, html = report(run, states={"fleet": "failed"}, failure=f"{image}.")

    assert "<img" not in html
    assert "&lt;img" in html


def test_an_error_of_a_newer_worker_does_not_break_the_report(run):
    write(run, [run.document("new.pdf", DocumentStatus.FAILED, error=("NOVEL", "thing"))])
    merge_and_reconcile(run)

    _, document, html = report(run)

    assert document["errors"][0]["label"] == "NOVEL/thing"
    assert "NOVEL/thing" in html


def test_a_queue_that_cannot_be_read_does_not_cost_the_report(run):
    write(run, [run.document("one.pdf")])

    _, document, _ = report(run, dlq_url=run.dlq_url + "-gone")

    assert document["dead_letters"] is None


def test_the_report_runs_whatever_happened_before_it():
    operator = ReportOperator(task_id="report", **LAYOUT_ARGUMENTS)

    assert operator.trigger_rule == TriggerRule.ALL_DONE


# --- the dead-letter queue -----------------------------------------------------


def test_triage_counts_only_this_runs_messages_and_leaves_all_of_them_there(run):
    for number in range(12):
        run.put_letter(f"bad-{number}.pdf", ("CORRUPT", "truncated"))
    run.put_letter("crash.pdf", None)
    run.put_letter("other.pdf", ("CORRUPT", "truncated"), run_id="another run")
    run.sqs.send_message(QueueUrl=run.dlq_url, MessageBody="not even JSON")

    found = triage(run.sqs, run.dlq_url, run.run_id)

    assert (found.looked_at, found.of_this_run, found.is_complete) == (15, 13, True)
    assert [(group.label, group.messages) for group in found.groups] == [
        ("CORRUPT/truncated", 12),
        ("no class", 1),
    ]
    assert len(found.groups[0].samples) == 5
    visible = run.sqs.get_queue_attributes(
        QueueUrl=run.dlq_url, AttributeNames=["ApproximateNumberOfMessages"]
    )["Attributes"]["ApproximateNumberOfMessages"]
    assert visible == "15"


def test_triage_of_a_long_queue_stops_and_says_so(run):
    for number in range(30):
        run.put_letter(f"bad-{number}.pdf", ("CORRUPT", "truncated"))

    found = triage(run.sqs, run.dlq_url, run.run_id, max_messages=10)

    assert not found.is_complete
    assert found.looked_at < 30
    assert found.in_queue == 30


# --- the cost -------------------------------------------------------------------

TASK = {
    "started_at": "2026-03-01T08:00:00+00:00",
    "stopped_at": "2026-03-01T09:00:00+00:00",
    "cpu": "2048",
    "memory": "4096",
    "capacity": "FARGATE",
}


def test_cost_comes_from_the_containers_runtimes_where_they_are_known():
    counters = Counters(cpu_ms=3_600_000, wasted_ms=1_800_000)

    cost = estimate(Prices(), counters, [TASK], pages=1_000, now=NOW)

    hourly = 2 * 0.04048 + 4 * 0.004445
    assert cost["basis"] == "tasks"
    assert cost["total"] == pytest.approx(hourly)
    assert cost["waste"] == pytest.approx(hourly / 4)
    assert cost["reading"] + cost["waste"] + cost["idle"] == pytest.approx(cost["total"], abs=1e-5)
    assert cost["per_million_pages"] == pytest.approx(hourly * 1000, abs=0.01)


def test_spot_is_cheaper_a_running_task_counts_until_now_and_a_short_one_for_a_minute():
    spot = TASK | {"capacity": "FARGATE_SPOT", "stopped_at": None}
    short = TASK | {"stopped_at": "2026-03-01T08:00:01+00:00"}
    never = TASK | {"started_at": None}

    def cost(task):
        return estimate(Prices(), Counters(), [task], pages=0, now=NOW)["total"]

    assert cost(spot) == pytest.approx(0.3 * cost(TASK), rel=1e-3)
    assert cost(short) == pytest.approx(cost(TASK) / 60, rel=1e-3)
    assert cost(never) == 0


def test_without_runtimes_cost_comes_from_cpu_time_and_says_so():
    cost = estimate(Prices(), Counters(cpu_ms=3_600_000), [], pages=10, now=NOW)

    assert cost["basis"] == "cpu_time"
    assert cost["total"] == pytest.approx(0.04048 + 2 * 0.004445)
    assert cost["idle"] == 0


def test_more_cpu_than_was_paid_for_never_makes_the_parts_exceed_the_total():
    cost = estimate(Prices(), Counters(cpu_ms=9_000_000, wasted_ms=9_000_000), [TASK], pages=1, now=NOW)

    assert cost["reading"] + cost["waste"] == pytest.approx(cost["total"], abs=1e-5)


@pytest.mark.parametrize("given", [{"cpu_hour": 1}, {"vcpu_hour": "cheap"}, {"vcpu_hour": -1}])
def test_prices_that_cannot_be_used_are_refused_with_the_names_that_can(given):
    with pytest.raises(PricesError, match="accepted: vcpu_hour, gb_hour"):
        Prices.of(given)


# --- the page -------------------------------------------------------------------


def test_a_long_run_is_drawn_with_a_bounded_number_of_points(run):
    write(run, [run.document("one.pdf")])
    merge_and_reconcile(run)
    _, document, _ = report(run)
    document["throughput"] = [
        {"minute": f"2026-03-{1 + day:02d}T{hour:02d}:{minute:02d}+00:00", "documents": 5, "pages": 20}
        for day in range(3)
        for hour in range(24)
        for minute in range(60)
    ]

    html = render(document)

    check_html(html)
    curves = re.findall(r'<polyline class="curve" points="([^"]*)"', html)
    assert len(curves) == 2
    assert all(len(curve.split()) <= 120 for curve in curves)
    assert "03 Mar 23:59 UTC" in html
