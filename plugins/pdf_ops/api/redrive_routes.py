"""Redrive: count what would go round again, or start the run that does it."""

from __future__ import annotations

from datetime import UTC, datetime

from fastapi import APIRouter, Response

from pdf_ops.airflow_api import REDRIVE, AirflowApiError
from pdf_ops.api.dependencies import Redriver, ServicesDep
from pdf_ops.api.models import RedriveAnswer, RedriveRequest
from pdf_ops.api.problems import ProblemError, responses
from pdf_ops.api.services import Services
from pdf_ops.contract.errors import ErrorClass
from pdf_ops.redrive import Criteria, Selection, new_run_id, select

MAX_COUNT_S = 15.0
router = APIRouter(prefix="/v1/redrive", tags=["redrive"])


@router.post(
    "",
    summary="Send documents round again",
    responses=responses(400, 502) | {202: {"model": RedriveAnswer, "description": "A run was started."}},
)
async def redrive(
    wanted: RedriveRequest, services: ServicesDep, client: Redriver, response: Response
) -> RedriveAnswer:
    """A dry run counts; otherwise a run of `pdf_redrive` is started."""
    if wanted.error_class and wanted.error_class not in set(ErrorClass):
        raise ProblemError(422, f"error_class: accepts {', '.join(ErrorClass)}")
    if wanted.is_dry_run:
        found = await services.aws.run(_count, services, wanted)
        return RedriveAnswer(
            is_dry_run=True,
            documents=len(found.sources),
            by_error=dict(found.by_error.most_common()),
            is_complete=found.is_complete,
        )
    run_id = new_run_id(datetime.now(UTC))
    conf = wanted.model_dump(exclude={"is_dry_run"}, exclude_none=True)
    # The same names as the DAG's params; a run that was asked for by name is no dry run.
    try:
        await services.doorbell.start(REDRIVE, run_id, conf | {"dry_run": False}, client)
    except AirflowApiError as error:
        raise ProblemError(502, f"No run was started. {error}") from None
    response.status_code = 202
    return RedriveAnswer(is_dry_run=False, run_id=run_id)


def _count(services: Services, wanted: RedriveRequest) -> Selection:
    criteria = Criteria(
        run_id=wanted.run_id,
        error_class=wanted.error_class,
        prefix=wanted.prefix,
        confidence_below=wanted.confidence_below,
    )
    return select(
        criteria,
        services.pipeline,
        sqs=services.aws.client("sqs"),
        s3=services.aws.client("s3"),
        limit=wanted.limit,
        max_s=MAX_COUNT_S,
    )
