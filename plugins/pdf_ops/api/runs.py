"""What is known about a run: its counters, and its report once there is one.

Before the report, errors and throughput come from a sample of the outcomes: a document's hash is its
range key, so that the first of each partition are chosen by chance. Not for routes, nor for looks.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pdf_ops.api.models import Run, RunDetails
from pdf_ops.api.problems import ProblemError
from pdf_ops.api.services import Services
from pdf_ops.contract.layout import S3Uri
from pdf_ops.contract.runs import SHARDS, Counters, Outcome, RunRecord
from pdf_ops.cost import Prices, estimate
from pdf_ops.operators.listing import get_object
from pdf_ops.operators.report import console_url
from pdf_ops.reporting.content import build
from pdf_ops.reporting.sections import RUNNING
from pdf_ops.run_items import RunItems
from pdf_ops.run_statistics import SAMPLES

MAX_SAMPLED = 1_600
"""Outcomes that a look at a run reads at most; a run with fewer is known exactly."""
_OUTCOMES = ("done", "partial", "failed", "skipped")


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One look at a run.

    Attributes:
        run_id: The run.
        now: When it was looked at.
        record: What it sent.
        counters: What each worker counted.
        last_counted_at: When the last of them did, ISO 8601 in UTC.
        report: Its report, if it is of this run's last state.
        report_uri: Where that is.
    """

    run_id: str
    now: datetime
    record: RunRecord | None
    counters: Mapping[str, Counters]
    last_counted_at: str | None
    report: dict[str, Any] | None
    report_uri: S3Uri

    @property
    def total(self) -> Counters:
        """All workers together."""
        return sum(self.counters.values(), Counters())

    @property
    def sent(self) -> int | None:
        """How many documents were sent."""
        return self.record.documents if self.record else None

    @property
    def is_finished(self) -> bool:
        """Whether every document that was sent has an outcome."""
        return self.sent is not None and self.total.documents >= self.sent

    @property
    def documents_per_s(self) -> float | None:
        """From the record to the end or now."""
        if self.record is None or not self.total.documents:
            return None
        ended_at = self.last_counted_at if self.is_finished else None
        end = datetime.fromisoformat(ended_at) if ended_at else self.now
        seconds = (end - datetime.fromisoformat(self.record.created_at)).total_seconds()
        return round(self.total.documents / seconds, 3) if seconds > 0 else None


def look_at(services: Services, run_id: str) -> Look:
    """Look at a run's items and report.

    Raises:
        ProblemError: 404 if there is nothing.
    """
    items = _items(services, run_id)
    record, counted = items.record(), list(items.counted())
    uri = services.pipeline.layout.report_json(run_id)
    written = get_object(services.aws.client("s3"), uri)
    if record is None and not counted and written is None:
        raise ProblemError(404, "There is no such run, or it is older than 90 days.")
    last = max((moment for _, _, moment in counted if moment), default=None)
    report: dict[str, Any] | None = json.loads(written) if written else None
    if report is not None and last and _moment(report["generated_at"]) < _moment(last).replace(microsecond=0):
        report = None  # Of an earlier attempt: the run's tasks were cleared, and it counts again.
    return Look(
        run_id=run_id,
        now=datetime.now(UTC),
        record=record,
        counters={name: counters for name, counters, _ in counted},
        last_counted_at=last,
        report=report,
        report_uri=uri,
    )


def describe_run(services: Services, run_id: str) -> Run:
    """Progress, outcomes, rate, time left and cost.

    Raises:
        ProblemError: 404 if nothing is known.
    """
    return Run(**_values(look_at(services, run_id)))


def describe_details(services: Services, run_id: str) -> tuple[RunDetails, dict[str, Any]]:
    """All of it, and the report that it is taken from: the written one, or one of this moment.

    Raises:
        ProblemError: 404 if nothing is known.
    """
    look = look_at(services, run_id)
    sampled = None
    report = look.report
    if report is None:
        sample = _items(services, run_id).sample_outcomes(MAX_SAMPLED // SHARDS)
        report = _report_of_now(services, look, sample)
        sampled = len(sample) if len(sample) < look.total.documents else None
    names = ("state", "headline", "failed_ratio", "failed_tasks", "errors", "page_errors", "throughput")
    details = RunDetails(
        **_values(look),
        **{name: report[name] for name in (*names, "stages", "slowest", "reconciliation")},
        is_live=look.report is None,
        sampled_documents=sampled,
        page_methods=report["pages"]["methods"],
        fleet=report["fleet"]["workers"],
        containers=report["fleet"]["tasks"],
        report_console_url=console_url(services.pipeline.layout.report_html(run_id)) if look.report else None,
        log_group=services.pipeline.log_group_name or None,
    )
    return details, report


def read_report(services: Services, run_id: str) -> bytes:
    """The report as a page.

    Raises:
        ProblemError: 404 if there is none.
    """
    page = get_object(services.aws.client("s3"), services.pipeline.layout.report_html(run_id))
    if page is None:
        raise ProblemError(404, "There is no report of such a run, or not yet.")
    return page


def _items(services: Services, run_id: str) -> RunItems:
    return RunItems(
        table=services.pipeline.dynamo_runs_table_name,
        run_id=run_id,
        client=services.aws.client("dynamodb"),
    )


def _values(look: Look) -> dict[str, Any]:
    total, rate = look.total, look.documents_per_s
    left = look.sent - total.documents if look.sent is not None else None
    return {
        "run_id": look.run_id,
        "documents": look.sent,
        "size_bytes": look.record.size_bytes if look.record else None,
        "created_at": look.record.created_at if look.record else None,
        "finished": total.documents,
        "is_finished": look.is_finished,
        "outcomes": {name: getattr(total, name) for name in _OUTCOMES},
        "pages": total.pages,
        "documents_per_s": rate,
        "eta_s": round(max(0, left) / rate, 1) if left is not None and rate else None,
        "retries": total.retries,
        "workers": len(look.counters),
        "cost": look.report["cost"]
        if look.report
        else estimate(Prices(), total, [], pages=total.pages, now=look.now),
        "report_uri": str(look.report_uri) if look.report else None,
    }


def _report_of_now(services: Services, look: Look, sample: Sequence[Outcome]) -> dict[str, Any]:
    """The report as it would be if the run ended now, as far as the runs table knows."""
    layout = services.pipeline.layout
    report = build(
        run_id=look.run_id,
        dag_id=None,
        now=look.now,
        record=look.record,
        counters=look.counters,
        listing={},
        statistics=_statistics(sample, look.total.documents, services.pipeline.input_s3_bucket),
        reconciliation={},
        dead_letters=None,
        tasks=[],
        failed_tasks=[],
        failure="",
        failure_threshold=None,
        prices=Prices(),
        links={
            "manifest": str(layout.run_manifest(look.run_id)),
            "pages": str(layout.pages_dataset()),
            "documents": str(layout.documents_dataset()),
        },
    )
    finished, sent = report["finished"], report["sent"]
    if sent == 0 and look.record is not None:
        headline = "Nothing to read: no object is new or changed."
    elif look.is_finished:
        headline = f"All {sent:,} documents have an outcome; what they gave is being put together."
    elif look.record is None:
        headline = f"{finished:,} documents have an outcome."
    else:
        headline = f"{finished:,} of {sent:,} documents have an outcome."
    return report | {"state": RUNNING, "headline": headline}


def _statistics(sample: Sequence[Outcome], finished: int, default_bucket: str) -> dict[str, Any]:
    """What merging will measure exactly, as far as outcomes tell; scaled up if they are a sample."""
    scale = max(1.0, finished / len(sample)) if sample else 1.0
    minutes: dict[str, Counter[str]] = {"documents": Counter(), "pages": Counter()}
    errors: Counter[tuple[str, str, str]] = Counter()
    samples: dict[tuple[str, str, str], list[str]] = {}
    for outcome in sample:
        minute = _moment(outcome.committed_at).isoformat(timespec="minutes")
        minutes["documents"][minute] += 1
        minutes["pages"][minute] += outcome.pages
        if outcome.error_class:
            key = (outcome.status.value, outcome.error_class, outcome.error_code or "")
            errors[key] += 1
            if len(samples.setdefault(key, [])) < SAMPLES:
                is_uri = outcome.s3_key.startswith("s3://")
                samples[key].append(outcome.s3_key if is_uri else str(S3Uri(default_bucket, outcome.s3_key)))
    return {
        "throughput": [
            {
                "minute": minute,
                "documents": round(minutes["documents"][minute] * scale),
                "pages": round(minutes["pages"][minute] * scale),
            }
            for minute in sorted(minutes["documents"])
        ],
        "errors": [
            {
                "status": status,
                "error_class": error_class,
                "error_code": code,
                "documents": round(count * scale),
                "samples": samples[status, error_class, code],
            }
            for (status, error_class, code), count in errors.most_common()
        ],
    }


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
