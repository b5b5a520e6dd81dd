"""What is known about a run: its counters, and its report once there is one.

Before the report, errors and throughput come from a sample of the outcomes: a document's hash is its
range key, so that the first of each partition are chosen by chance. Not for routes, nor for looks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pdf_ops.api.models import Run, RunDetails
from pdf_ops.api.problems import ProblemError
from pdf_ops.api.services import Services
from pdf_ops.contract.layout import S3Uri
from pdf_ops.contract.runs import SHARDS, Outcome
from pdf_ops.cost import Prices
from pdf_ops.objects import ObjectStore
from pdf_ops.operators.report import console_url
from pdf_ops.reporting.content import build
from pdf_ops.reporting.sections import RUNNING
from pdf_ops.run_items import RunItems
from pdf_ops.run_statistics import SAMPLES
from pdf_ops.run_status import Look, look_at, moment_of

MAX_SAMPLED = 1_600
"""Outcomes that a look at a run reads at most; a run with fewer is known exactly."""


def describe(services: Services, run_id: str) -> Run:
    """Progress, outcomes, rate, time left and cost.

    Raises:
        ProblemError: 404 if nothing is known.
    """
    return Run.model_validate(asdict(_look_at(services, run_id).status))


def describe_details(services: Services, run_id: str) -> tuple[RunDetails, dict[str, Any]]:
    """All of it, and the report that it is taken from: the written one, or one of this moment.

    Raises:
        ProblemError: 404 if nothing is known.
    """
    look = _look_at(services, run_id)
    sampled = None
    report = look.report
    if report is None:
        sample = _items(services, run_id).sample_outcomes(MAX_SAMPLED // SHARDS)
        report = _report_of_now(services, look, sample)
        sampled = len(sample) if len(sample) < look.total.documents else None
    names = ("state", "headline", "failed_ratio", "failed_tasks", "errors", "page_errors", "throughput")
    details = RunDetails(
        **asdict(look.status),
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
    page = ObjectStore(client=services.aws.client("s3")).read(services.pipeline.layout.report_html(run_id))
    if page is None:
        raise ProblemError(404, "There is no report of such a run, or not yet.")
    return page


def _items(services: Services, run_id: str) -> RunItems:
    return RunItems(
        table=services.pipeline.dynamo_runs_table_name,
        run_id=run_id,
        client=services.aws.client("dynamodb"),
    )


def _look_at(services: Services, run_id: str) -> Look:
    look = look_at(
        run_id,
        table=services.pipeline.dynamo_runs_table_name,
        layout=services.pipeline.layout,
        dynamodb=services.aws.client("dynamodb"),
        s3=services.aws.client("s3"),
    )
    if look is None:
        raise ProblemError(404, "There is no such run, or it is older than 90 days.")
    return look


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
        minute = moment_of(outcome.committed_at).isoformat(timespec="minutes")
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
