"""Jobs: where a document stands, and its events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent

from pdf_ops.api.dependencies import DocumentId, Reader, ServicesDep
from pdf_ops.api.models import JOB_STATUS, Job, job_values
from pdf_ops.api.problems import responses
from pdf_ops.contract.state import DocumentState

MAX_EVENTS_S = 3_600.0
router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


async def _state(job_id: DocumentId, services: ServicesDep, client: Reader) -> DocumentState:
    """A dependency, so that a job that is not there is 404 before anything is sent."""
    return await services.documents.get(job_id)


State = Annotated[DocumentState, Depends(_state)]


@router.get("/{job_id}", summary="Where a job stands", response_model=Job, responses=responses(404))
async def get_job(state: State) -> Response:
    """At most `PDF_OPS_STATUS_CACHE_S` behind what workers do."""
    # As it is: validating what we have just made would be most of the work.
    return Response(json.dumps(job_values(state)), media_type="application/json")


@router.get(
    "/{job_id}/events",
    summary="A job's events, as they happen",
    response_class=EventSourceResponse,
    responses=responses(404),
)
async def get_job_events(
    job_id: DocumentId, state: State, services: ServicesDep
) -> AsyncIterator[ServerSentEvent]:
    """Server-sent events: `status` with the job whenever it changes, and `end` after the last one."""
    shown = None
    for _ in range(round(MAX_EVENTS_S / services.settings.events_interval_s)):
        values = job_values(state)
        if values != shown:
            shown = values
            yield ServerSentEvent(event="status", data=values)
        if JOB_STATUS[state.status].is_final:
            yield ServerSentEvent(event="end", data={"status": values["status"]})
            return
        await asyncio.sleep(services.settings.events_interval_s)
        state = await services.documents.get(job_id)
