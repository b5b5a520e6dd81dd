"""What the API answers, with examples. Not for how it is found out."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import BaseModel, Field

from pdf_ops.api.ids import encode
from pdf_ops.contract.errors import ErrorKind
from pdf_ops.contract.state import DocumentState, StateStatus
from pdf_ops.search.found import IndexKind

_ID = "dXBsb2Fkcy9hLnBkZg"
_TIME = "2026-01-02T12:00:00.000Z"


class JobStatus(StrEnum):
    """Where a job stands."""

    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    PARTIAL = "partial"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        """Whether nothing more happens by itself."""
        return self in (JobStatus.COMPLETED, JobStatus.PARTIAL, JobStatus.FAILED)


JOB_STATUS = {
    StateStatus.PENDING: JobStatus.PENDING,
    StateStatus.PROCESSING: JobStatus.PROCESSING,
    StateStatus.DONE: JobStatus.COMPLETED,
    StateStatus.PARTIAL: JobStatus.PARTIAL,
    StateStatus.FAILED: JobStatus.FAILED,
}
STATE_STATUS = {job: state for state, job in JOB_STATUS.items()}


class DocumentError(BaseModel):
    """What went wrong last with a document."""

    error_class: str = Field(examples=["ENCRYPTED"])
    code: str = Field(examples=["password_required"])
    message: str = Field(examples=["The document opens only with a password."])
    what_to_do: str = Field(examples=["Decrypt it with qpdf and upload the result."])


class Job(BaseModel):
    """A document's way through the pipeline."""

    job_id: str = Field(examples=[_ID], description="Also the document's id.")
    status: JobStatus
    filename: str = Field(examples=["letter.pdf"])
    pages_done: int = Field(examples=[3])
    pages_total: int | None = Field(examples=[12], description="Unknown until the document is open.")
    error: DocumentError | None = None
    run_id: str | None = Field(default=None, examples=["upload__2026-01-02T12:00:00Z"])
    created_at: str | None = Field(default=None, examples=[_TIME])
    updated_at: str | None = Field(default=None, examples=[_TIME])


class Document(Job):
    """What is known about a document."""

    s3_key: str = Field(examples=["uploads/a.pdf"])
    content_type: str | None = Field(default=None, examples=["application/pdf"])
    size_bytes: int | None = Field(default=None, examples=[48_213])
    etag: str | None = None
    attempts: int = 0
    output_uri: str | None = Field(default=None, description="Where its page rows are.")


class DocumentPage(BaseModel):
    """A page of a listing of documents."""

    documents: list[Document]
    next_cursor: str | None = Field(
        description="Where the next page begins; null at the end. With filters a page may hold fewer "
        "documents than asked for, and none, and still not be the last."
    )


class Upload(BaseModel):
    """An upload that was taken."""

    job_id: str = Field(examples=[_ID])
    status: JobStatus
    filename: str = Field(examples=["letter.pdf"])
    content_type: str = Field(examples=["application/pdf"])
    size_bytes: int = Field(examples=[48_213])
    is_new: bool = Field(description="False if the same content, or the same request, came before.")
    is_doorbell_rung: bool = Field(
        description="Whether a run was started for it. If not, the next run that there is reads it."
    )
    run_id: str | None = Field(default=None, examples=["upload__2026-01-02T12:00:00Z"])


class Page(BaseModel):
    """One page's text, and how it was read."""

    page: int = Field(examples=[1])
    text: str = Field(examples=["Dear Sir or Madam, …"])
    method: str = Field(examples=["text_layer"])
    method_reason: str | None = None
    ocr_confidence: float | None = None
    status: str = Field(examples=["ok"])
    error_class: str | None = None
    error_code: str | None = None
    error_message: str | None = None


class Pages(BaseModel):
    """Some pages of a document."""

    document_id: str = Field(examples=[_ID])
    page_count: int = Field(examples=[12])
    pages: list[Page]


class DocumentRun(BaseModel):
    """What became of a document in one run."""

    run_id: str = Field(examples=["scheduled__2026-01-02T02:00:00+00:00"])
    status: str = Field(examples=["done"])
    pages: int = Field(examples=[12])
    finished_at: str = Field(examples=[_TIME])
    worker_id: str
    error: str | None = Field(default=None, examples=["TIMEOUT/document"])
    done_by: str | None = Field(default=None, description="The run that had read it, if it was skipped.")


class DocumentRuns(BaseModel):
    """The runs that a document was in, the newest first."""

    runs: list[DocumentRun]


class Download(BaseModel):
    """Where a document can be fetched for a short while."""

    url: str
    expires_in_s: int = Field(examples=[300])


class RunEntry(BaseModel):
    """A run in a listing."""

    run_id: str = Field(examples=["scheduled__2026-01-02T02:00:00+00:00"])
    documents: int | None = Field(examples=[20_000], description="How many it sent; null if it keeps none.")
    size_bytes: int | None = Field(examples=[1_234_567])
    created_at: str | None = Field(examples=[_TIME])


class RunPage(BaseModel):
    """A page of a listing of runs, the newest first."""

    runs: list[RunEntry]
    next_cursor: str | None


class Run(RunEntry):
    """How a run goes, or went."""

    finished: int = Field(examples=[12_000], description="Documents with an outcome.")
    is_finished: bool
    outcomes: dict[str, int] = Field(examples=[{"done": 11_000, "partial": 500, "failed": 500, "skipped": 0}])
    pages: int = Field(examples=[98_000])
    documents_per_s: float | None = Field(examples=[14.2])
    eta_s: float | None = Field(examples=[563.0])
    retries: int = 0
    workers: int = Field(examples=[4])
    cost: dict[str, Any] = Field(description="As in the run's report; an estimate while it runs.")
    report_uri: str | None = Field(default=None, description="The run's report, once it is written.")


class ErrorCount(BaseModel):
    """How often documents ended in one error, and what to do."""

    label: str = Field(examples=["ENCRYPTED/password_required"])
    error_class: str = Field(examples=["ENCRYPTED"])
    error_code: str = Field(examples=["password_required"])
    status: str = Field(examples=["failed"], description="What became of the documents.")
    documents: int = Field(examples=[42])
    meaning: str = Field(examples=["The document opens only with a password."])
    what_to_do: str = Field(examples=["Decrypt it with qpdf and upload the result."])
    samples: list[str] = Field(examples=[["s3://in/uploads/a.pdf"]], description="Some of them.")


class PageErrorCount(BaseModel):
    """How often pages have one error, and what to do."""

    label: str = Field(examples=["TIMEOUT/page"])
    pages: int = Field(examples=[7])
    meaning: str
    what_to_do: str


class MinuteCount(BaseModel):
    """What was done in one minute."""

    minute: str = Field(examples=["2026-01-02T12:00+00:00"])
    documents: int = Field(examples=[840])
    pages: int = Field(examples=[6_900])


class StageTiming(BaseModel):
    """How long one stage took a page, where a page needed it."""

    count: int = Field(examples=[98_000])
    p50_ms: float = Field(examples=[0.4])
    p95_ms: float = Field(examples=[260.0])
    total_ms: int = Field(examples=[2_900_000])


class WorkerCount(BaseModel):
    """What one worker did in a run."""

    worker_id: str
    done: int
    partial: int
    failed: int
    skipped: int
    pages: int
    cpu_ms: int
    retries: int
    wasted_ms: int


class RunDetails(Run):
    """All that is known about a run."""

    state: str = Field(examples=["running"], description="`running`, or as in the report.")
    headline: str = Field(examples=["12,000 of 20,000 documents have an outcome."])
    is_live: bool = Field(description="False once the report is written: then nothing changes any more.")
    sampled_documents: int | None = Field(
        default=None,
        description="Errors and throughput are estimated from so many outcomes; null if from all of them.",
    )
    failed_ratio: float
    failed_tasks: list[str]
    errors: list[ErrorCount]
    page_errors: list[PageErrorCount] = Field(description="Once the report is written.")
    throughput: list[MinuteCount]
    stages: dict[str, StageTiming] = Field(description="Once the report is written.")
    slowest: list[dict[str, Any]] = Field(description="Once the report is written.")
    page_methods: dict[str, int] = Field(examples=[{"text_layer": 90_000, "ocr": 8_000}])
    reconciliation: dict[str, Any] | None = None
    fleet: list[WorkerCount]
    containers: list[dict[str, Any]] = Field(description="The fleet as ECS knows it, from the report.")
    report_console_url: str | None = Field(default=None, description="The report in the AWS console.")
    log_group: str | None = Field(default=None, description="Where the workers' logs are.")


class RedriveRequest(BaseModel):
    """Which documents go round again; all that is given must hold."""

    model_config = {
        "extra": "forbid",
        "json_schema_extra": {"examples": [{"error_class": "TIMEOUT", "is_dry_run": True}]},
    }

    run_id: str | None = Field(default=None, min_length=1, max_length=250)
    error_class: str | None = Field(default=None, max_length=20, pattern="^[A-Z]+$", examples=["TIMEOUT"])
    prefix: str | None = Field(default=None, min_length=1, max_length=1_024)
    confidence_below: float | None = Field(
        default=None, ge=0, le=100, description="Documents that were read, but not well enough."
    )
    limit: int = Field(default=10_000, ge=1, le=100_000, description="So many at most.")
    is_dry_run: bool = Field(default=True, description="Count only.")


class RedriveAnswer(BaseModel):
    """What a redrive would do, or which run does it."""

    is_dry_run: bool
    documents: int | None = Field(default=None, examples=[42], description="How many match.")
    by_error: dict[str, int] | None = Field(default=None, examples=[{"TIMEOUT/page": 42}])
    is_complete: bool | None = Field(
        default=None, description="False if there was more to look at than a request has time for."
    )
    run_id: str | None = Field(default=None, description="The run of pdf_redrive that was started.")


class Health(BaseModel):
    """Whether the API is there, or ready."""

    status: str = Field(examples=["ok"])
    checks: dict[str, str] = Field(default_factory=dict, examples=[{"tables": "ok", "queue": "ok"}])


class SnippetPiece(BaseModel):
    """A part of a snippet."""

    text: str = Field(examples=["the purchase order of May"])
    is_hit: bool = Field(description="Whether it is one of the words.")


class SearchHit(BaseModel):
    """A page that was found."""

    document_id: str = Field(examples=[_ID])
    s3_key: str = Field(examples=["uploads/a.pdf"])
    filename: str = Field(examples=["a.pdf"])
    page: int = Field(examples=[3])
    page_count: int = Field(examples=[12])
    score: float = Field(examples=[7.25], description="Only good for comparing hits of one search.")
    snippet: list[SnippetPiece]


class SearchIndexInfo(BaseModel):
    """What answered."""

    kind: IndexKind
    built_at: str = Field(examples=[_TIME])
    rows: int = Field(examples=[250_000], description="Pages in the index.")


class SearchPage(BaseModel):
    """A page of hits."""

    hits: list[SearchHit]
    total: int | None = Field(examples=[132], description="Unknown where counting would cost too much.")
    next_cursor: str | None = Field(description="Null at the end.")
    index: SearchIndexInfo


def filename_of(state: DocumentState) -> str:
    """A document's name: the upload's, or the end of its key."""
    return state.filename or state.s3_key.rstrip("/").rpartition("/")[2] or state.s3_key


def error_of(state: DocumentState) -> DocumentError | None:
    """What went wrong last, if anything."""
    if state.error_class is None:
        return None
    code = state.error_code or ""
    try:
        what_to_do = ErrorKind.of(state.error_class, code).what_to_do
    except ValueError:
        what_to_do = "Read the worker's log."
    return DocumentError(
        error_class=state.error_class, code=code, message=state.last_error or "", what_to_do=what_to_do
    )


def job_values(state: DocumentState) -> dict[str, Any]:
    """A job's fields."""
    error = error_of(state)
    return {
        "job_id": encode(state.s3_key),
        "status": JOB_STATUS[state.status].value,
        "filename": filename_of(state),
        "pages_done": state.pages_processed,
        "pages_total": state.total_pages,
        "error": error.model_dump() if error else None,
        "run_id": state.run_id,
        "created_at": state.created_at,
        "updated_at": state.last_updated,
    }


def document_of(state: DocumentState) -> Document:
    """A document's fields."""
    return Document(
        **job_values(state),
        s3_key=state.s3_key,
        content_type=state.content_type,
        size_bytes=state.size_bytes,
        etag=state.etag,
        attempts=state.attempts,
        output_uri=state.output_uri,
    )
