"""Runs: how they go and went. From the runs table alone, so that they show without Airflow, too."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.responses import HTMLResponse

from pdf_ops.api.dependencies import Reader, ServicesDep
from pdf_ops.api.ids import Cursor
from pdf_ops.api.models import Run, RunDetails, RunEntry, RunPage
from pdf_ops.api.problems import responses
from pdf_ops.api.runs import describe, describe_details, read_report
from pdf_ops.run_status import recent_runs

REPORT_POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'"
_SORT = "runs"
router = APIRouter(prefix="/v1/runs", tags=["runs"])


@router.get("", summary="List runs, the newest first", responses=responses())
async def list_runs(
    services: ServicesDep,
    client: Reader,
    limit: Annotated[int, Query(ge=1, le=100)] = 10,
    cursor: Annotated[str | None, Query(max_length=500)] = None,
) -> RunPage:
    """Those of the last 90 days."""
    table, dynamodb = services.pipeline.dynamo_runs_table_name, services.aws.client("dynamodb")
    given = Cursor.parse(cursor, _SORT).after if cursor else None
    found, after = await services.aws.run(recent_runs, dynamodb, table, limit=limit, after=given)
    runs = [RunEntry.model_validate(asdict(entry)) for entry in found]
    return RunPage(runs=runs, next_cursor=str(Cursor(after, _SORT)) if after else None)


RunId = Annotated[str, Path(min_length=1, max_length=250, examples=["scheduled__2026-01-02T02:00:00+00:00"])]


@router.get("/{run_id}", summary="How a run goes, or went", responses=responses(404))
async def get_run(services: ServicesDep, client: Reader, run_id: RunId) -> Run:
    """Progress, outcomes, rate, time left and cost."""
    return await services.aws.run(describe, services, run_id)


@router.get("/{run_id}/details", summary="All that is known about a run", responses=responses(404))
async def get_run_details(services: ServicesDep, client: Reader, run_id: RunId) -> RunDetails:
    """Errors with samples and what to do, throughput, stages and fleet: live, then from the report."""
    details, _ = await services.aws.run(describe_details, services, run_id)
    return details


@router.get(
    "/{run_id}/report",
    summary="A run's report as a page",
    response_class=HTMLResponse,
    responses=responses(404),
)
async def get_report(services: ServicesDep, client: Reader, run_id: RunId) -> HTMLResponse:
    """As the run wrote it: without scripts, and without anything from elsewhere."""
    page = await services.aws.run(read_report, services, run_id)
    # Whoever may write to the bucket must not get to run scripts in Airflow's name.
    return HTMLResponse(page, headers={"Content-Security-Policy": REPORT_POLICY})
