"""The pages of documents: find one, and see it beside its text."""

from __future__ import annotations

import mimetypes
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Request, Response

from pdf_ops.api.dependencies import DocumentId, Reader, ServicesDep
from pdf_ops.api.document_routes import Sort, get_document_runs, get_pages, list_documents
from pdf_ops.api.ids import source_of
from pdf_ops.api.models import Document, JobStatus, Pages, document_of
from pdf_ops.api.pages.answering import PageRoute
from pdf_ops.api.pages.rendering import PREFIX, render
from pdf_ops.api.problems import ProblemError
from pdf_ops.api.services import Services
from pdf_ops.contract.errors import ErrorClass
from pdf_ops.contract.media import MediaType

Choice = TypeVar("Choice", bound=StrEnum)

PAGES_SHOWN = 20
"""Pages in the list below the text."""
_BROWSER_SHOWS: dict[str, str] = {
    MediaType.PDF: "pdf",
    MediaType.PNG: "image",
    MediaType.JPEG: "image",
    MediaType.TIFF: "tiff",
}
_TONES = {
    JobStatus.PENDING: "neutral",
    JobStatus.PROCESSING: "active",
    JobStatus.COMPLETED: "good",
    JobStatus.PARTIAL: "warn",
    JobStatus.FAILED: "bad",
}
Text = Annotated[str, Query(max_length=500)]
router = APIRouter(prefix=f"{PREFIX}/documents", include_in_schema=False, route_class=PageRoute)


@router.get("")
async def show_documents(
    *,
    request: Request,
    services: ServicesDep,
    client: Reader,
    filename: Annotated[str, Query(max_length=200)] = "",
    status: Text = "",
    error_class: Text = "",
    date_from: Text = "",
    date_to: Text = "",
    sort: Text = "",
    cursor: Text = "",
) -> Response:
    """A form that the browser fills in the address with: empty fields ask for nothing."""
    last = _day(date_to, "date_to")
    asked: dict[str, Any] = {
        "filename": filename.strip() or None,
        "status": _choose(JobStatus, status, "status"),
        "error_class": _choose(ErrorClass, error_class, "error_class"),
        "date_from": _day(date_from, "date_from"),
        "date_to": last + timedelta(days=1) if last else None,
        "sort": _choose(Sort, sort, "sort") or Sort.NEWEST,
    }
    found = await list_documents(
        services=services,
        client=client,
        limit=25,
        offset=0,
        cursor=cursor or None,
        content_type=None,
        **asked,
    )
    given = {
        "filename": filename,
        "status": status,
        "error_class": error_class,
        "date_from": date_from,
        "date_to": date_to,
        "sort": sort,
    }
    return render(
        request,
        services,
        "documents.html",
        documents=found.documents,
        next_cursor=found.next_cursor,
        is_first=not cursor,
        given=given,
        query={name: value for name, value in given.items() if value},
        statuses=list(JobStatus),
        error_classes=list(ErrorClass),
        tones=_TONES,
    )


@router.get("/{document_id}")
async def show_document(
    request: Request,
    services: ServicesDep,
    client: Reader,
    document_id: DocumentId,
    page: Annotated[int, Query(ge=1, le=10_000_000)] = 1,
) -> Response:
    """One page of it as a picture and as text, and all that is known about it."""
    state = await services.documents.get(document_id)
    document = document_of(state)
    read = await _read_pages(services, client, document, page)
    # A link to a page that is not there shows the last one.
    shown = min(page, read.page_count) if read else page
    history = await get_document_runs(document_id, services, client)
    # A guess for a document that nobody has opened; the browser finds out.
    media = document.content_type or mimetypes.guess_type(document.filename)[0] or ""
    return render(
        request,
        services,
        "document.html",
        document=document,
        tone=_TONES[document.status],
        page=shown,
        page_count=read.page_count if read else document.pages_total,
        row=next((row for row in read.pages if row.page == shown), None) if read else None,
        rows=read.pages if read else [],
        kind=_BROWSER_SHOWS.get(media, "unknown"),
        history=history.runs,
        # A redrive looks for keys, whatever their bucket.
        key=source_of(state.s3_key, services.pipeline.input_s3_bucket).key,
    )


async def _read_pages(services: Services, client: Any, document: Document, page: int) -> Pages | None:
    """The rows around a page; None where there are none (yet)."""
    if document.output_uri is None:
        return None
    first = (page - 1) // PAGES_SHOWN * PAGES_SHOWN + 1
    answer = await get_pages(document.job_id, services, client, first=first, last=first + PAGES_SHOWN - 1)
    read = Pages.model_validate_json(bytes(answer.body))
    if not read.pages and read.page_count:
        return await _read_pages(services, client, document, read.page_count)
    return read


def _choose(kind: type[Choice], text: str, field: str) -> Choice | None:
    if not text:
        return None
    try:
        return kind(text)
    except ValueError:
        raise ProblemError(422, f"{field}: accepts {', '.join(kind)}") from None


def _day(text: str, field: str) -> datetime | None:
    if not text:
        return None
    try:
        day = date.fromisoformat(text)
        return datetime(day.year, day.month, day.day, tzinfo=UTC)
    except ValueError:
        raise ProblemError(422, f"{field}: a day such as 2026-01-31") from None
