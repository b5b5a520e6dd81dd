"""The task that says how a run went: one JSON file for programs, one HTML file for people.

Runs whatever happened before it. Not for deciding whether the run succeeded: the gate does.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

from airflow.sdk import TriggerRule

from pdf_ops.contract.runs import Counters
from pdf_ops.cost import Prices
from pdf_ops.dead_letters import triage
from pdf_ops.operators.gate import failed_tasks, upstream_of
from pdf_ops.operators.run_outputs import RunOutputsOperator
from pdf_ops.pace import Pace
from pdf_ops.reporting.content import build, summarise
from pdf_ops.reporting.page import render

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from pdf_ops.contract.layout import S3Uri
    from pdf_ops.objects import ObjectStore


class ReportOperator(RunOutputsOperator):
    """Write the run's report to S3: outcomes, errors and what to do, throughput, timings, fleet, cost.

    Takes what there is: a run that failed half-way, or that found nothing to read, has a report too.

    The arguments of :class:`~pdf_ops.operators.run_outputs.RunOutputsOperator`, and:

    :param listing: What the listing task returned. (templated)
    :param failure: Why the waiting for documents failed, if it did. (templated)
    :param dlq_url: The dead-letter queue; its messages are looked at and put back. (templated)
    :param failure_threshold: The share of failed documents, 0 to 1, that the run may have. (templated)
    :param prices: US dollars an hour, see :class:`pdf_ops.cost.Prices`. (templated)
    :param fleet: The fleet's containers, ``{started_at, stopped_at, cpu, memory, capacity}`` each; without
        them the cost is computed from the workers' CPU time. (templated)
    :param optional: Tasks that may fail without failing the run.
    """

    template_fields: Sequence[str] = (
        *RunOutputsOperator.template_fields,
        "listing",
        "failure",
        "dlq_url",
        "failure_threshold",
        "prices",
        "fleet",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {
        "listing": "json",
        "prices": "json",
        "fleet": "json",
    }
    ui_color = "#dae8fc"

    def __init__(
        self,
        *,
        listing: Any = None,
        failure: str = "",
        dlq_url: str | None = None,
        failure_threshold: float | str | None = None,
        prices: Mapping[str, Any] | None = None,
        fleet: Any = None,
        optional: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("trigger_rule", TriggerRule.ALL_DONE)
        super().__init__(**kwargs)
        self.listing = listing
        self.failure = failure
        self.dlq_url = dlq_url
        self.failure_threshold = failure_threshold
        self.prices = prices
        self.fleet = fleet
        self.optional = frozenset(optional)

    def execute(self, context: Context) -> dict[str, Any]:
        """Collect, write both files, and say where they are."""
        layout, store, items = self.layout, self.store, self.items
        ti: Any = context["ti"]
        now, record, counters = datetime.now(UTC), items.record(), items.counters()
        report = build(
            run_id=self.run_id,
            dag_id=getattr(ti, "dag_id", None),
            now=now,
            record=record,
            counters=counters,
            listing=self.listing if isinstance(self.listing, dict) else {},
            statistics=_read_json(store, layout.statistics_json(self.run_id)),
            reconciliation=_read_json(store, layout.reconciliation_json(self.run_id)),
            dead_letters=self._dead_letters(),
            tasks=_containers(self.fleet),
            failed_tasks=failed_tasks(context, upstream_of(self) - self.optional),
            failure=self.failure,
            failure_threshold=_number(self.failure_threshold),
            prices=Prices.of(self.prices),
            links={
                "report_html": str(layout.report_html(self.run_id)),
                "report_json": str(layout.report_json(self.run_id)),
                "report_console": console_url(layout.report_html(self.run_id)),
                "manifest": str(layout.run_manifest(self.run_id)),
                "pages": str(layout.pages_dataset()),
                "documents": str(layout.documents_dataset()),
            },
        )
        store.put(layout.report_json(self.run_id), json.dumps(report, indent=1).encode(), "application/json")
        store.put(layout.report_html(self.run_id), render(report).encode(), "text/html; charset=utf-8")
        if record is not None and report["state"] == "complete":
            pace = Pace.of_run(self.run_id, sum(counters.values(), Counters()), _containers(self.fleet), now)
            if pace is not None:
                uri = layout.pace_json(record.reading.config_hash)
                store.put(uri, pace.to_json(), "application/json")
        self.log.info("%s", report["headline"])
        self.log.info("Report: %s (%s)", report["links"]["report_html"], report["links"]["report_console"])
        return summarise(report)

    def _dead_letters(self) -> dict[str, Any] | None:
        """Triage is a service: that the queue cannot be read must not cost the report."""
        if not self.dlq_url:
            return None
        from airflow.providers.amazon.aws.hooks.sqs import SqsHook
        from botocore.exceptions import BotoCoreError, ClientError

        hook: Any = SqsHook(aws_conn_id=self.aws_conn_id, region_name=self.region_name)
        try:
            return triage(hook.get_conn(), self.dlq_url, self.run_id).as_json()
        except (BotoCoreError, ClientError) as error:
            self.log.warning("The dead-letter queue could not be read: %s", error)
            return None


def console_url(uri: S3Uri) -> str:
    """Where a person with access to the bucket can open an object in a browser."""
    return f"https://console.aws.amazon.com/s3/object/{uri.bucket}?prefix={quote(uri.key, safe='')}"


def _read_json(store: ObjectStore, uri: S3Uri) -> dict[str, Any]:
    data = store.read(uri)
    return {} if data is None else dict(json.loads(data))


def _number(given: float | str | None) -> float | None:
    return None if given in (None, "", "None") else float(str(given))


def _containers(fleet: Any) -> list[dict[str, Any]]:
    """The containers out of what one fleet task, or all instances of a mapped one, returned."""
    if isinstance(fleet, dict):
        nested = fleet.get("tasks")
        return _containers(nested) if nested is not None else [fleet]
    if fleet is None or isinstance(fleet, str):
        return []
    return [container for entry in fleet for container in _containers(entry)]
