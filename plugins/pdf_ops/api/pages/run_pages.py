"""The pages of runs: the list of them, and the tab that Airflow shows on a DAG run."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from markupsafe import Markup

from pdf_ops.airflow_api import PIPELINE, REDRIVE
from pdf_ops.api.dependencies import Reader, ServicesDep
from pdf_ops.api.models import RunDetails
from pdf_ops.api.pages.answering import PageRoute
from pdf_ops.api.pages.rendering import PREFIX, render
from pdf_ops.api.problems import ProblemError
from pdf_ops.api.run_routes import list_runs
from pdf_ops.api.runs import describe_details
from pdf_ops.reporting import sections
from pdf_ops.reporting.page import STATES

_STATES = {**STATES, sections.RUNNING: ("active", "running")}
_SECTIONS = {
    "failed-tasks": sections.show_failed_tasks,
    "throughput": sections.show_throughput,
    "outcomes": sections.show_outcomes,
    "errors": sections.show_errors,
    "dead-letters": sections.show_dead_letters,
    "stages": sections.show_stages,
    "fleet": sections.show_fleet,
    "cost": sections.show_cost,
    "slowest": sections.show_slowest,
    "links": sections.show_links,
}
router = APIRouter(prefix=f"{PREFIX}/runs", include_in_schema=False, route_class=PageRoute)


@router.get("")
async def show_runs(
    request: Request,
    services: ServicesDep,
    client: Reader,
    cursor: Annotated[str | None, Query(max_length=500)] = None,
) -> Response:
    """The newest runs."""
    found = await list_runs(services, client, limit=25, cursor=cursor)
    return render(request, services, "runs.html", runs=found.runs, next_cursor=found.next_cursor)


@router.get("/{run_id:path}")
async def show_run(
    request: Request,
    services: ServicesDep,
    client: Reader,
    run_id: Annotated[str, Path(min_length=1, max_length=250)],
    dag_id: Annotated[str | None, Query(max_length=250)] = None,
) -> Response:
    """How a run goes, or went; the browser asks again while it goes on."""
    values: dict[str, Any] = {"run_id": run_id, "dag_id": dag_id or PIPELINE, "run": None}
    if dag_id not in (None, PIPELINE, REDRIVE):
        return render(request, services, "run_of_another_dag.html", **values)
    try:
        run, report = await services.aws.run(describe_details, services, run_id)
    except ProblemError as error:
        if error.status != 404:
            raise
        # The tab is there before the first task of the run has ended.
        return render(request, services, "run.html", **values)
    return render(request, services, "run.html", **values | _shown(run, report))


def _shown(run: RunDetails, report: dict[str, Any]) -> dict[str, Any]:
    tone, label = _STATES[run.state]
    drawn = {name: draw(report) for name, draw in _SECTIONS.items()}
    return {
        "run": run,
        "tone": tone,
        "label": label,
        "share": run.finished / run.documents if run.documents else None,
        "tiles": Markup(sections.show_tiles(report)),  # noqa: S704 -- sections escape what they are given
        "sections": {name: Markup(html) for name, html in drawn.items() if html},  # noqa: S704
        "is_redrivable": any(error.status == "failed" for error in run.errors),
        "run_date": report["run_date"],
    }
