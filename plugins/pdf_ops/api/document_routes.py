"""Documents: upload, list, and what was read of one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import iterate_in_threadpool

from pdf_ops.api import listing
from pdf_ops.api.dependencies import DocumentId, Reader, ServicesDep, Uploader
from pdf_ops.api.forms import FIELD, FormFile
from pdf_ops.api.history import find_runs
from pdf_ops.api.ids import Cursor, encode, source_of
from pdf_ops.api.models import (
    JOB_STATUS,
    STATE_STATUS,
    Document,
    DocumentPage,
    DocumentRuns,
    Download,
    JobStatus,
    Pages,
    Upload,
    document_of,
    filename_of,
)
from pdf_ops.api.problems import ProblemError, responses
from pdf_ops.api.results import read_pages, read_text
from pdf_ops.api.services import Services
from pdf_ops.contract.errors import ErrorClass
from pdf_ops.contract.layout import S3Uri
from pdf_ops.contract.media import MediaType
from pdf_ops.contract.state import DocumentState
from pdf_ops.hooks.clients import error_code

MAX_PAGES = 100
_CHUNK_BYTES = 256 * 1024
_MISSING = ("404", "NoSuchKey", "NoSuchBucket", "NotFound")
router = APIRouter(prefix="/v1/documents", tags=["documents"])


class Sort(StrEnum):
    """The order of a listing."""

    OLDEST = "created_at_asc"
    NEWEST = "created_at_desc"


@router.post(
    "/upload-document",
    status_code=202,
    summary="Upload a document and have it read",
    responses=responses(400, 409, 413, 415),
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "multipart/form-data": {
                    "schema": {
                        "type": "object",
                        "required": [FIELD],
                        "properties": {
                            FIELD: {
                                "type": "string",
                                "format": "binary",
                                "description": "A PDF, PNG, JPEG or TIFF.",
                            }
                        },
                    }
                }
            },
        }
    },
)
async def upload_document(
    request: Request,
    services: ServicesDep,
    client: Uploader,
    idempotency_key: Annotated[
        str | None,
        Header(
            min_length=1,
            max_length=200,
            pattern="^[ -~]+$",
            description="The same key again gives the same job.",
        ),
    ] = None,
) -> Upload:
    """Streamed to the input bucket. The same content, or the same `Idempotency-Key`, gives the same job."""
    length = request.headers.get("content-length", "")
    form = FormFile(request.headers.get("content-type", ""), request.stream())
    taken = await services.uploads.take(
        client, form, int(length) if length.isdecimal() else None, idempotency_key
    )
    state = taken.state
    return Upload(
        job_id=encode(state.s3_key),
        status=JOB_STATUS[state.status],
        filename=filename_of(state),
        content_type=state.content_type or "application/octet-stream",
        size_bytes=state.size_bytes or 0,
        is_new=taken.is_new,
        is_doorbell_rung=taken.is_rung,
        run_id=state.run_id,
    )


@router.get("/list-document", summary="List documents", responses=responses())
async def list_documents(
    *,
    services: ServicesDep,
    client: Reader,
    limit: Annotated[int, Query(ge=1, le=100)] = 10,
    offset: Annotated[
        int, Query(ge=0, le=listing.MAX_OFFSET, description="Each costs; deep pages take the cursor.")
    ] = 0,
    cursor: Annotated[
        str | None, Query(max_length=500, description="`next_cursor` of the page before.")
    ] = None,
    filename: Annotated[str | None, Query(min_length=1, max_length=200, description="A part of it.")] = None,
    content_type: MediaType | None = None,
    status: JobStatus | None = None,
    error_class: ErrorClass | None = None,
    date_from: Annotated[datetime | None, Query(description="First seen from then on.")] = None,
    date_to: Annotated[datetime | None, Query(description="First seen before then.")] = None,
    sort: Sort = Sort.NEWEST,
) -> DocumentPage:
    """From an index: a page costs the same wherever it is. Follow `next_cursor` until it is null."""
    begins = Cursor.parse(cursor, sort.value) if cursor else None
    if begins is not None and offset:
        raise ProblemError(422, "offset: a cursor knows where its page begins; give one of the two.")
    query = listing.Query(
        limit=limit,
        offset=begins.skip if begins else offset,
        after=begins.after if begins else None,
        is_descending=sort is Sort.NEWEST,
        statuses=(STATE_STATUS[status],) if status else (),
        filename=filename,
        content_type=content_type.value if content_type else None,
        error_class=error_class.value if error_class else None,
        date_from=date_from,
        date_to=date_to,
    )
    found = await listing.list_documents(services.aws, services.pipeline.dynamo_table_name, query)
    states = await services.documents.read(found.keys) if found.keys else {}
    # The table and not the index has the last word: what has moved on meanwhile is not shown as it was.
    documents = [
        document_of(states[key])
        for key in found.keys
        if key in states and (status is None or JOB_STATUS[states[key].status] is status)
    ]
    next_cursor = Cursor(found.next_after, sort.value, found.skip) if found.next_after else None
    return DocumentPage(documents=documents, next_cursor=str(next_cursor) if next_cursor else None)


@router.get("/{document_id}", summary="What is known about a document", responses=responses(404))
async def get_document(document_id: DocumentId, services: ServicesDep, client: Reader) -> Document:
    """State, pages, error and where its rows are."""
    return document_of(await services.documents.get(document_id))


def _rows_of(state: DocumentState) -> S3Uri:
    """Where a document's rows are.

    Raises:
        ProblemError: 409 if there are none.
    """
    if state.output_uri is None:
        raise ProblemError(
            409, f"The document has no rows: it is {JOB_STATUS[state.status]}.", job_id=encode(state.s3_key)
        )
    return S3Uri.parse(state.output_uri)


@router.get(
    "/{document_id}/pages",
    summary="Pages of a document, as they were read",
    response_model=Pages,
    responses=responses(404, 409),
)
async def get_pages(
    document_id: DocumentId,
    services: ServicesDep,
    client: Reader,
    first: Annotated[int, Query(alias="from", ge=1, le=10_000_000)] = 1,
    last: Annotated[
        int | None, Query(alias="to", ge=1, le=10_000_000, description="20 pages unless given.")
    ] = None,
) -> Response:
    """Text, method, confidence and error of each page; at most 100 at once."""
    end = last if last is not None else first + 19
    if end < first or end - first >= MAX_PAGES:
        raise ProblemError(422, f"from, to: take 1 to {MAX_PAGES} pages, the first one first.")
    state = await services.documents.get(document_id)
    uri = _rows_of(state)

    async def load() -> tuple[str, bytes] | None:
        count, rows = await services.aws.run(read_pages, services.aws.client("s3"), uri, first, end)
        body = {"document_id": document_id, "page_count": count, "pages": rows}
        return "", json.dumps(body).encode()

    # Rows follow from content and settings, which name their file: they never change.
    body = await services.results.get(f"pages:{uri}:{first}-{end}", load)
    return Response(body, media_type="application/json")


@router.get(
    "/{document_id}/text",
    summary="The text of a document",
    response_class=StreamingResponse,
    responses=responses(404, 409)
    | {200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "The text."}},
)
async def get_text(document_id: DocumentId, services: ServicesDep, client: Reader) -> StreamingResponse:
    """Plain text, a form feed between two pages."""
    uri = _rows_of(await services.documents.get(document_id))
    chunks = read_text(services.aws.client("s3"), uri)
    first = await services.aws.run(next, chunks, b"")

    async def stream() -> AsyncIterator[bytes]:
        yield first
        async for chunk in iterate_in_threadpool(chunks):
            yield chunk

    return StreamingResponse(stream(), media_type="text/plain; charset=utf-8")


@router.get("/{document_id}/runs", summary="The runs that a document was in", responses=responses(404))
async def get_document_runs(document_id: DocumentId, services: ServicesDep, client: Reader) -> DocumentRuns:
    """As far as the newest 100 runs of the last 90 days know."""
    state = await services.documents.get(document_id)
    return DocumentRuns(runs=await find_runs(services, state.s3_key, last_run_id=state.run_id))


@router.get("/{document_id}/download", summary="A URL to fetch a document from", responses=responses(404))
async def get_download(document_id: DocumentId, services: ServicesDep, client: Reader) -> Download:
    """Works for a few minutes, without any login, and always as a download."""
    state = await services.documents.get(document_id)
    source = source_of(state.s3_key, services.pipeline.input_s3_bucket)
    url = await services.aws.run(
        services.aws.client("s3").generate_presigned_url,
        "get_object",
        Params={
            "Bucket": source.bucket,
            "Key": source.key,
            "ResponseContentDisposition": _disposition("attachment", state),
        },
        ExpiresIn=services.settings.download_url_s,
    )
    return Download(url=url, expires_in_s=services.settings.download_url_s)


@router.get(
    "/{document_id}/content",
    summary="A document's bytes",
    response_class=StreamingResponse,
    responses=responses(404, 416)
    | {
        status: {
            "content": {
                kind: {"schema": {"type": "string", "format": "binary"}}
                for kind in (*MediaType, "application/octet-stream")
            },
            "description": description,
        }
        for status, description in ((200, "All of them."), (206, "Some of them."))
    },
)
async def get_content(
    document_id: DocumentId,
    services: ServicesDep,
    client: Reader,
    byte_range: Annotated[
        str | None,
        Header(
            alias="Range",
            max_length=100,
            pattern=r"^bytes=([0-9]+-[0-9]*|-[0-9]+)$",
            examples=["bytes=0-1023"],
        ),
    ] = None,
) -> StreamingResponse:
    """Streamed, whole or one `Range`."""
    state = await services.documents.get(document_id)
    answer = await services.aws.run(_open, services, state, byte_range)
    media = state.content_type if state.content_type in {one.value for one in MediaType} else None
    headers = {
        "Accept-Ranges": "bytes",
        "Content-Length": str(answer["ContentLength"]),
        "ETag": answer["ETag"],
        "Content-Disposition": _disposition("inline" if media else "attachment", state),
    }
    if "ContentRange" in answer and byte_range:
        headers["Content-Range"] = answer["ContentRange"]
    return StreamingResponse(
        iterate_in_threadpool(_chunks(answer["Body"])),
        206 if "Content-Range" in headers else 200,
        headers,
        media or "application/octet-stream",
    )


def _open(services: Services, state: DocumentState, byte_range: str | None) -> dict[str, Any]:
    from botocore.exceptions import ClientError

    source = source_of(state.s3_key, services.pipeline.input_s3_bucket)
    wanted: dict[Literal["Range"], str] = {"Range": byte_range} if byte_range else {}
    try:
        answer: dict[str, Any] = services.aws.client("s3").get_object(
            Bucket=source.bucket, Key=source.key, **wanted
        )
    except ClientError as error:
        if error_code(error) in ("InvalidRange", "416"):
            raise ProblemError(416, "The document has no such bytes.") from None
        if error_code(error) in _MISSING:
            raise ProblemError(404, "The document is known, but its object is gone.") from None
        raise
    return answer


def _chunks(body: Any) -> Iterator[bytes]:
    with body:
        yield from body.iter_chunks(_CHUNK_BYTES)


def _disposition(kind: str, state: DocumentState) -> str:
    return f"{kind}; filename*=UTF-8''{quote(filename_of(state), safe='')}"
