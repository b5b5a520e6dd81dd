"""What a run's report says, put together from whatever of the run there is.

A run that failed half-way has a report too: what is not known is left out and said. Not for looks:
``pdf_ops.reporting.page`` shows it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pdf_ops.contract.errors import ErrorKind
from pdf_ops.cost import Prices, estimate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from pdf_ops.contract.runs import Counters, RunRecord

WORST_ERRORS = 3
REPORT_VERSION = 1
_OUTCOME_NAMES = {"done": "ok", "partial": "partial", "failed": "failed", "skipped": "skipped"}


def build(
    *,
    run_id: str,
    dag_id: str | None,
    now: datetime,
    record: RunRecord | None,
    counters: Mapping[str, Counters],
    listing: Mapping[str, Any],
    statistics: Mapping[str, Any],
    reconciliation: Mapping[str, Any],
    dead_letters: Mapping[str, Any] | None,
    tasks: Sequence[Mapping[str, Any]],
    failed_tasks: Sequence[str],
    failure: str,
    failure_threshold: float | None,
    prices: Prices,
    links: Mapping[str, str],
) -> dict[str, Any]:
    """Put the report together.

    Args:
        run_id: The run.
        dag_id: Its DAG.
        now: When the report is made.
        record: What the run sent, if it came that far.
        counters: What each worker counted.
        listing: Objects by decision.
        statistics: What merging measured; empty if it did not run.
        reconciliation: What reconciling found; empty if it did not run.
        dead_letters: What is in the dead-letter queue; None if nobody looked.
        tasks: The fleet's containers, if known.
        failed_tasks: The tasks of the run that failed.
        failure: Why the waiting for documents failed; empty if it did not, or did not say.
        failure_threshold: The share of failed documents that the run may have.
        prices: What Fargate costs.
        links: Where things are.
    """
    total = _sum(counters.values())
    outcomes = _outcomes(total, statistics)
    sent = reconciliation.get("listed", record.documents if record else 0)
    finished = sum(outcomes.values())
    pages = statistics.get("pages", {}).get("rows", total.pages)
    ratio = outcomes["failed"] / finished if finished else 0.0
    is_over = failure_threshold is not None and ratio > failure_threshold
    errors = [_explain(item) for item in statistics.get("errors", ())]
    report = {
        "version": REPORT_VERSION,
        "run_id": run_id,
        "dag_id": dag_id,
        "run_date": record.run_date if record else statistics.get("run_date"),
        "started_at": record.created_at if record else None,
        "generated_at": now.isoformat(timespec="seconds"),
        "listed": _decisions(listing, reconciliation),
        "is_dry_run": bool(listing.get("is_dry_run")),
        "would_send": int(listing.get("documents") or 0),
        "sent": sent,
        "finished": finished,
        "outcomes": outcomes,
        "failed_ratio": round(ratio, 6),
        "failure_threshold": failure_threshold,
        "is_over_threshold": is_over,
        "failed_tasks": list(failed_tasks),
        "failure": failure,
        "reconciliation": dict(reconciliation) or None,
        "pages": {
            "rows": pages,
            "ocr": total.pages_ocr,
            "errors": total.pages_error,
            "methods": statistics.get("pages", {}).get("methods", {}),
            "files": statistics.get("pages", {}).get("files"),
            "size_bytes": statistics.get("pages", {}).get("size_bytes"),
        },
        "size_bytes": statistics.get("size_bytes", total.size_bytes),
        "manifest": statistics.get("manifest"),
        "errors": errors,
        "worst_errors": [
            {"label": item["label"], "documents": item["documents"]} for item in errors[:WORST_ERRORS]
        ],
        "page_errors": [_explain(item) for item in statistics.get("page_errors", ())],
        "dead_letters": None if dead_letters is None else dict(dead_letters),
        "throughput": list(statistics.get("throughput", ())),
        "stages": statistics.get("stages", {}),
        "document_ms": statistics.get("document_ms"),
        "slowest": list(statistics.get("slowest", ())),
        "fleet": {
            "workers": [
                {"worker_id": name, **_worker(one)}
                for name, one in sorted(counters.items(), key=lambda item: -item[1].documents)
            ],
            "tasks": [_plain(task) for task in tasks],
        },
        "retries": total.retries,
        "cost": estimate(prices, total, tasks, pages=pages, now=now),
        "links": dict(links),
        "is_merged": bool(statistics),
    }
    report["state"], report["headline"] = _headline(report)
    if failure and not is_over:
        report["headline"] += f" {failure[0].upper()}{failure[1:]}"
    return report


def _sum(counters: Any) -> Counters:
    from pdf_ops.contract.runs import Counters

    total = Counters()
    for one in counters:
        total += one
    return total


def _outcomes(total: Counters, statistics: Mapping[str, Any]) -> dict[str, int]:
    documents = statistics.get("documents") or {
        name: getattr(total, name) for name in ("done", "partial", "failed", "skipped")
    }
    return {shown: int(documents.get(name, 0)) for name, shown in _OUTCOME_NAMES.items()}


def _decisions(listing: Mapping[str, Any], reconciliation: Mapping[str, Any]) -> dict[str, int]:
    given = listing.get("decisions") or listing.get("counts") or reconciliation.get("decisions") or {}
    return {str(name): int(count) for name, count in given.items() if isinstance(count, int)}


def _worker(counters: Counters) -> dict[str, int]:
    names = ("done", "partial", "failed", "skipped", "pages", "cpu_ms", "retries", "wasted_ms")
    return {name: getattr(counters, name) for name in names}


def _plain(task: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value if isinstance(value, int | float | str | None) else str(value)
        for name, value in task.items()
    }


def _explain(item: Mapping[str, Any]) -> dict[str, Any]:
    label = f"{item['error_class']}/{item['error_code']}"
    try:
        kind = ErrorKind.parse(label)
    except ValueError:
        meaning, what_to_do = "This version does not know this error.", "Read the worker's log."
    else:
        meaning, what_to_do = kind.meaning, kind.what_to_do
    return {**item, "label": label, "meaning": meaning, "what_to_do": what_to_do}


def _headline(report: Mapping[str, Any]) -> tuple[str, str]:
    """One word for programs, one sentence for people."""
    outcomes, sent = report["outcomes"], report["sent"]
    reconciliation = report["reconciliation"]
    if report["failed_tasks"] and not report["finished"]:
        state = "failed", f"The run failed in {', '.join(report['failed_tasks'])} before a document was read."
    elif report["is_dry_run"]:
        state = "dry_run", f"Dry run: {report['would_send']:,} documents would be read; nothing was sent."
    elif not sent and not report["finished"]:
        seen = sum(report["listed"].values())
        state = "empty", f"Nothing to read: {seen:,} objects were listed, and none is new or changed."
    elif report["finished"] < sent:
        state = "incomplete", f"{sent - report['finished']:,} of {sent:,} documents have no outcome."
    elif reconciliation is not None and not reconciliation.get("is_reconciled"):
        state = "unreconciled", "The outcomes do not add up to the listing; see the reconciliation."
    elif report["is_over_threshold"]:
        state = (
            "over_threshold",
            f"{outcomes['failed']:,} of {report['finished']:,} documents failed, more than the run allows.",
        )
    elif report["failed_tasks"]:
        state = "failed", f"Every document has an outcome, but {', '.join(report['failed_tasks'])} failed."
    elif reconciliation is None:
        state = "unreconciled", "Every document has an outcome; the reconciliation did not run."
    elif outcomes["failed"] or outcomes["partial"]:
        state = (
            "complete",
            (
                f"All {report['finished']:,} documents have an outcome; "
                f"{outcomes['failed']:,} failed and {outcomes['partial']:,} are partial."
            ),
        )
    else:
        state = "complete", f"All {report['finished']:,} documents have an outcome, and none failed."
    return state


def summarise(report: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a report that fit into a message and into XCom."""
    names = ("state", "headline", "sent", "outcomes", "failed_ratio", "failure_threshold")
    return {
        "report_html_uri": report["links"]["report_html"],
        "report_json_uri": report["links"]["report_json"],
        "report_console_url": report["links"]["report_console"],
        **{name: report[name] for name in (*names, "is_over_threshold", "worst_errors", "failed_tasks")},
        "failure": report.get("failure", ""),
        "page_rows": report["pages"]["rows"],
        "dead_letters": (report["dead_letters"] or {}).get("of_this_run", 0),
        "cost": {name: report["cost"][name] for name in ("currency", "basis", "total", "waste")},
    }
