"""Runs: how they go and went. From the runs table alone, so that they show without Airflow, too."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Path, Query

from pdf_ops.api.dependencies import Reader, ServicesDep
from pdf_ops.api.ids import Cursor
from pdf_ops.api.models import Run, RunEntry, RunPage
from pdf_ops.api.problems import ProblemError, responses
from pdf_ops.api.services import Services
from pdf_ops.run_status import RunStatus, describe_run, recent_runs

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


@router.get("/{run_id}", summary="How a run goes, or went", responses=responses(404))
async def get_run(
    services: ServicesDep,
    client: Reader,
    run_id: Annotated[
        str, Path(min_length=1, max_length=250, examples=["scheduled__2026-01-02T02:00:00+00:00"])
    ],
) -> Run:
    """Progress, outcomes, rate, time left and cost."""
    status = await services.aws.run(_describe, services, run_id)
    if status is None:
        raise ProblemError(404, "There is no such run, or it is older than 90 days.")
    return Run.model_validate(asdict(status))


def _describe(services: Services, run_id: str) -> RunStatus | None:
    return describe_run(
        run_id,
        table=services.pipeline.dynamo_runs_table_name,
        layout=services.pipeline.layout,
        dynamodb=services.aws.client("dynamodb"),
        s3=services.aws.client("s3"),
    )
