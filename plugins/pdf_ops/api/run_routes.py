"""Runs: how they go and went. From the runs table alone, so that they show without Airflow, too."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query

from pdf_ops.api import listing
from pdf_ops.api.dependencies import Reader, ServicesDep
from pdf_ops.api.ids import Cursor
from pdf_ops.api.models import Run, RunEntry, RunPage
from pdf_ops.api.problems import ProblemError, responses
from pdf_ops.api.services import Services
from pdf_ops.contract.attributes import values_of
from pdf_ops.contract.runs import RUNS_LISTING_SHARD, Counters
from pdf_ops.cost import Prices, estimate
from pdf_ops.operators.listing import get_object
from pdf_ops.run_items import RunItems

_SORT = "runs"
_OUTCOMES = ("done", "partial", "failed", "skipped")
router = APIRouter(prefix="/v1/runs", tags=["runs"])


@router.get("", summary="List runs, the newest first", responses=responses())
async def list_runs(
    services: ServicesDep,
    client: Reader,
    limit: Annotated[int, Query(ge=1, le=100)] = 10,
    cursor: Annotated[str | None, Query(max_length=500)] = None,
) -> RunPage:
    """Those of the last 90 days."""
    query = listing.Query(limit=limit, after=Cursor.parse(cursor, _SORT).after if cursor else None)
    found, after = await listing.list_runs(
        services.aws, services.pipeline.dynamo_runs_table_name, RUNS_LISTING_SHARD, query
    )
    runs = []
    for item in found:
        values: dict[str, Any] = values_of(item)
        runs.append(RunEntry.model_validate({name: values.get(name) for name in RunEntry.model_fields}))
    return RunPage(runs=runs, next_cursor=str(Cursor(after, _SORT)) if after else None)


@router.get("/{run_id}", summary="How a run goes, or went", responses=responses(404))
async def get_run(
    services: ServicesDep,
    client: Reader,
    run_id: Annotated[
        str, Path(min_length=1, max_length=250, examples=["scheduled__2026-01-02T02:00:00+00:00"])
    ],
) -> Run:
    """Progress, outcomes, rate, time left and cost."""
    return await services.aws.run(describe_run, services, run_id)


def describe_run(services: Services, run_id: str) -> Run:
    """Put together what is known about a run.

    Raises:
        ProblemError: 404 if nothing is.
    """
    items = RunItems(
        table=services.pipeline.dynamo_runs_table_name,
        run_id=run_id,
        client=services.aws.client("dynamodb"),
    )
    record, counted = items.record(), list(items.counted())
    if record is None and not counted:
        raise ProblemError(404, "There is no such run, or it is older than 90 days.")
    total = sum((counters for _, counters, _ in counted), Counters())
    sent = record.documents if record else None
    is_finished = sent is not None and total.documents >= sent
    now = datetime.now(UTC)
    last = max((moment for _, _, moment in counted if moment), default=None)
    rate = _rate(record.created_at if record else None, last if is_finished else None, total, now)
    report = services.pipeline.layout.report_json(run_id)
    written = get_object(services.aws.client("s3"), report)
    cost = json.loads(written).get("cost") if written else None
    left = sent - total.documents if sent is not None else None
    return Run(
        run_id=run_id,
        documents=sent,
        size_bytes=record.size_bytes if record else None,
        created_at=record.created_at if record else None,
        finished=total.documents,
        is_finished=is_finished,
        outcomes={name: getattr(total, name) for name in _OUTCOMES},
        pages=total.pages,
        documents_per_s=rate,
        eta_s=round(max(0, left) / rate, 1) if left is not None and rate else None,
        retries=total.retries,
        workers=len(counted),
        cost=cost or estimate(Prices(), total, [], pages=total.pages, now=now),
        report_uri=str(report) if written else None,
    )


def _rate(created_at: str | None, ended_at: str | None, total: Counters, now: datetime) -> float | None:
    """Documents a second, from the record to the end or now."""
    if created_at is None or not total.documents:
        return None
    end = datetime.fromisoformat(ended_at) if ended_at else now
    seconds = (end - datetime.fromisoformat(created_at)).total_seconds()
    return round(total.documents / seconds, 3) if seconds > 0 else None
