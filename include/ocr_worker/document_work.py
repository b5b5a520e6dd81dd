"""One document, from its claim to its commit: the steps and their order, and what follows from each error.

A crash between any two steps is repaired by redelivery, since each can be done twice: outputs have
the same keys, and the commit counts once. Not for messages: whose turn it is, is decided elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
import uuid
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ocr_worker.aws import aws_errors
from ocr_worker.company import Company
from ocr_worker.faults import NO_FAULTS, Step
from ocr_worker.fetch import ObjectIdentity, fetch_object, identify_object
from ocr_worker.ledger import AlreadyRead, Commit, HeldElsewhere, Lease
from ocr_worker.output import ParquetWriter
from ocr_worker.rows import DocumentTally, Provenance, Source
from ocr_worker.sniff import sniff
from pdf_ops.contract.documents import DocumentRow, DocumentStatus
from pdf_ops.contract.errors import CountedAs, ErrorClass, ErrorKind, PdfOpsError
from pdf_ops.contract.pages import PageRow
from pdf_ops.contract.runs import Counters
from pdf_ops.contract.state import StateStatus

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from ocr_worker.events import Events, Metrics
    from ocr_worker.faults import Faults
    from ocr_worker.ledger import Ledger
    from ocr_worker.manifest import Manifest
    from ocr_worker.pages import PagePool
    from ocr_worker.queueing import Message, Queue
    from ocr_worker.search_sink import SearchSink
    from ocr_worker.settings import ServiceSettings
    from pdf_ops.contract.fingerprint import ReadingConfig
    from pdf_ops.contract.layout import S3Uri
    from pdf_ops.contract.messages import DocumentMessage
    from pdf_ops.contract.state import DocumentState

UNSCHEDULED_RUN = "unscheduled"
"""The run of documents that come by event or by hand, and not from a listing."""

MAX_CHANGES = 3
LOOK_AGAIN_S = 20.0
MAX_DOUBLED = 12
# A message that comes this often may be what its last workers died of.
SUSPECT_FROM_RECEIVE = 3


class PutOffError(Exception):
    """The message is to come back after a while."""

    def __init__(self, seconds: float, reason: str) -> None:
        """Say after how long, and why."""
        super().__init__(seconds, reason)
        self.seconds = seconds
        self.reason = reason


@dataclass(slots=True, eq=False)
class Job:
    """A message in hand."""

    message: Message
    task: asyncio.Task[None] | None = None
    lease: Lease | None = None
    pages_processed: int = 0
    total_pages: int | None = None
    has_lost_lease: bool = False
    began: float = field(default_factory=time.monotonic)

    @property
    def spent_ms(self) -> int:
        """Time since the message was taken."""
        return int((time.monotonic() - self.began) * 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One document to read, with what its run says about it."""

    message: DocumentMessage
    uri: S3Uri
    s3_key: str
    run_id: str
    reading: ReadingConfig
    is_forced: bool


class _Budget:
    """Bytes that may be in hand at once; a larger document waits until it is alone."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0
        self._changed = asyncio.Condition()

    @contextlib.asynccontextmanager
    async def take(self, size: int) -> AsyncIterator[None]:
        async with self._changed:
            await self._changed.wait_for(lambda: self._taken == 0 or self._taken + size <= self._most)
            self._taken += size
        try:
            yield
        finally:
            async with self._changed:
                self._taken -= size
                self._changed.notify_all()


class DocumentWork:
    """How one worker reads documents."""

    def __init__(
        self,
        settings: ServiceSettings,
        *,
        worker_id: str,
        s3: Any,
        pool: PagePool,
        ledger: Ledger,
        queue: Queue,
        manifest: Manifest,
        scratch: Path,
        events: Events,
        metrics: Metrics,
        is_stopping: Callable[[], bool],
        sink: SearchSink | None = None,
        faults: Faults = NO_FAULTS,
    ) -> None:
        """Take what it works with."""
        self._settings = settings
        self._worker_id = worker_id
        self._s3 = s3
        self._pool = pool
        self._ledger = ledger
        self._queue = queue
        self._manifest = manifest
        self._scratch = scratch
        self._events = events
        self._metrics = metrics
        self._is_stopping = is_stopping
        self._sink = sink
        self._faults = faults
        self._company = Company()
        self._layout = settings.layout
        self._budget = _Budget(settings.prefetch_mb * 2**20)
        self.is_cancelling = False

    async def read(self, job: Job, order: Order) -> None:
        """Read one document to its end, or give it back.

        Raises:
            PutOffError: If its message is to come back.
            LeaseLostError: If another worker has it.
            PdfOpsError: If the tables or the output cannot be reached.
        """
        suspect_from = min(SUSPECT_FROM_RECEIVE, self._settings.max_unfinished)
        async with self._company.join(is_alone=job.message.receive_count >= suspect_from):
            await self._read(job, order)

    async def _read(self, job: Job, order: Order) -> None:
        for change in range(MAX_CHANGES):
            if self._is_stopping():
                raise PutOffError(0.0, "the worker is stopping")
            identity, missing = await self._identify(order, is_changed=change > 0)
            lease = await self._claim(job, order, identity)
            if lease is None:
                return
            job.lease, job.pages_processed, job.total_pages = lease, 0, None
            await self._faults.at(Step.CLAIM, order.s3_key)
            try:
                if missing is not None:
                    raise missing
                if lease.unfinished > self._settings.max_unfinished:
                    raise PdfOpsError(
                        ErrorKind.CRASH_POISON, f"{lease.unfinished - 1} workers ended with it in hand"
                    )
                await self._extract_and_commit(job, order, lease, identity)
            except PdfOpsError as error:
                if error.kind is ErrorKind.SOURCE_CHANGED_DURING_READ and change < MAX_CHANGES - 1:
                    self._events.emit("document.changed", s3_key=order.s3_key, run_id=order.run_id)
                    await self._ledger.release(lease, error, wasted_ms=job.spent_ms)
                    job.lease = None
                    continue
                await self._fail(job, order, lease, error)
            return

    async def _identify(self, order: Order, *, is_changed: bool) -> tuple[ObjectIdentity, PdfOpsError | None]:
        """Which object is meant: the message's word if it gives one, else S3's."""
        told = order.message
        if told.etag is not None and told.size is not None and not is_changed:
            return (
                ObjectIdentity(uri=order.uri, etag=told.etag, size=told.size, version_id=told.version_id),
                None,
            )
        try:
            return await identify_object(self._s3, order.uri, told.version_id), None
        except PdfOpsError as error:
            # It is claimed all the same, so that tries are counted and the run hears of it.
            return ObjectIdentity(uri=order.uri, etag=told.etag or "none", size=0), error

    async def _claim(self, job: Job, order: Order, identity: ObjectIdentity) -> Lease | None:
        """The lease; None if there is nothing left to do."""
        claimed = await self._ledger.claim(
            order.s3_key,
            etag=identity.etag,
            size=identity.size,
            version_id=identity.version_id,
            config_hash=order.reading.config_hash,
            run_id=order.run_id,
            is_forced=order.is_forced,
            is_counted_once=order.run_id != UNSCHEDULED_RUN,
        )
        if isinstance(claimed, HeldElsewhere):
            # Less and less often: the queue gives up on a message that comes too many times. But never for
            # longer than a visibility timeout, which is what others wait for before they go home.
            doubled = 2 ** max(0, min(job.message.receive_count, MAX_DOUBLED) - 2)
            seconds = min(self._settings.visibility_s, min(claimed.remaining_s, LOOK_AGAIN_S) * doubled)
            raise PutOffError(seconds + random.uniform(0, 2), "another worker has it")  # noqa: S311
        if isinstance(claimed, AlreadyRead):
            await self._already_read(job, order, claimed.state)
            return None
        self._events.emit(
            "document.claimed", s3_key=order.s3_key, run_id=order.run_id, attempts=claimed.attempts
        )
        return claimed

    async def _already_read(self, job: Job, order: Order, state: DocumentState) -> None:
        """This run's own work, delivered again: repeat its line. Another run's: skipped in this one."""
        is_ours = state.run_id == order.run_id
        if not is_ours:
            commit = await self._ledger.commit_skipped(order.run_id, order.s3_key, state)
            if commit is Commit.COUNTED_BEFORE:
                return
        status = DocumentStatus.SKIPPED
        if is_ours:
            status = await self._closed_as(job, order, state)
        row = DocumentRow(
            source_uri=str(order.uri),
            source_etag=state.etag,
            source_version_id=state.version_id,
            source_size=order.message.size,
            status=status,
            output_uri=state.output_uri,
            page_count=state.total_pages,
            pages_written=state.pages_processed,
            error_class=state.error_class,
            error_code=state.error_code,
            error_message=state.last_error,
            run_id=order.run_id,
            worker_id=self._worker_id,
            attempt=max(1, state.attempts),
            languages=order.reading.languages_label,
            config_hash=order.reading.config_hash,
            read_at=datetime.now(UTC),
        )
        self._manifest.add_row(order.run_id, row)
        self._events.emit(
            "document.repeated" if is_ours else "document.skipped", s3_key=order.s3_key, run_id=order.run_id
        )

    async def _closed_as(self, job: Job, order: Order, state: DocumentState) -> DocumentStatus:
        """What this run has counted a document as; the state table does not tell skipped from failed."""
        if state.status is not StateStatus.FAILED:
            return next(member for member in DocumentStatus if member.value == state.status.value)
        kind = ErrorKind.of(state.error_class or "", state.error_code or "")
        if kind.counted_as is CountedAs.SKIPPED:
            return DocumentStatus.SKIPPED
        if not state.is_dead_letter:  # Its worker ended between the commit and the dead letter.
            await self._bury(job, order, PdfOpsError(kind))
        return DocumentStatus.FAILED

    async def _extract_and_commit(
        self, job: Job, order: Order, lease: Lease, identity: ObjectIdentity
    ) -> None:
        if identity.size > self._settings.max_megabytes * 2**20:
            raise PdfOpsError(
                ErrorKind.POLICY_TOO_LARGE,
                f"{identity.size / 2**20:.0f} MiB, {self._settings.max_megabytes} are allowed",
            )
        name = uuid.uuid4().hex
        fetched, written = self._scratch / f"{name}.in", self._scratch / f"{name}.parquet"
        try:
            async with self._budget.take(identity.size):
                doc_id = await fetch_object(self._s3, identity, fetched)
                await self._faults.at(Step.FETCH, order.s3_key)
                media_type = sniff(fetched, name=order.uri.key)
                source = Source(
                    uri=str(order.uri),
                    size=identity.size,
                    doc_id=doc_id,
                    etag=identity.etag,
                    version_id=identity.version_id,
                    media_type=media_type.value,
                )
                provenance = Provenance(
                    reading=order.reading,
                    run_id=order.run_id,
                    worker_id=self._worker_id,
                    attempt=lease.attempts + 1,
                )
                tally = DocumentTally(source=source, provenance=provenance)
                stream = await self._pool.read(fetched, media_type, self._settings.password, order.reading)
                await self._write_rows(job, stream, tally, written)
            await self._faults.at(Step.EXTRACT, order.s3_key)
            if self.is_cancelling:
                raise PdfOpsError(ErrorKind.LOST_CANCELLED)
            if stream.error is not None:
                raise stream.error
            row = tally.document_row(None, stream.wall_ms)
            output = self._layout.document_pages(
                bucket=order.uri.bucket,
                key=order.uri.key,
                etag=identity.etag,
                config_hash=order.reading.config_hash,
            )
            await self._upload(written, output)
            await self._faults.at(Step.WRITE, order.s3_key)
            fetched.unlink(missing_ok=True)
            row = replace(row, output_uri=str(output))
            await self._commit(job, order, lease, row, _error_of(row))
            if self._sink is not None:
                self._sink.add(row, written)
        finally:
            fetched.unlink(missing_ok=True)
            written.unlink(missing_ok=True)

    async def _write_rows(self, job: Job, stream: Any, tally: DocumentTally, path: Path) -> None:
        writer = ParquetWriter(path, PageRow, is_part=True)
        try:
            async for answer in stream.pages():
                tally.open_ms = stream.open_ms
                row = tally.page_row(answer, stream.page_count or 0)
                writer.write(row, row.char_count)
                job.pages_processed, job.total_pages = job.pages_processed + 1, stream.page_count
                self._metrics.page(row)
            tally.page_count = stream.page_count
            writer.close()
        except BaseException:  # Also when the task is cancelled: the file must not stay.
            writer.discard()
            raise

    async def _upload(self, path: Path, uri: S3Uri) -> None:
        try:
            body = await asyncio.to_thread(path.read_bytes)
            await self._s3.put_object(Bucket=uri.bucket, Key=uri.key, Body=body)
        except aws_errors() as error:
            raise PdfOpsError(ErrorKind.TARGET_S3_PUT, f"{uri}: {error}") from error

    async def _commit(
        self, job: Job, order: Order, lease: Lease, row: DocumentRow, error: PdfOpsError | None
    ) -> None:
        counters = Counters.of(
            row.status,
            pages=row.pages_written,
            pages_ocr=row.pages_ocr,
            pages_error=row.pages_error,
            size_bytes=row.source_size or 0,
            cpu_ms=round(row.cpu_ms),
        )
        commit = await self._ledger.commit(
            lease,
            status=row.status,
            counters=counters,
            pages=row.pages_written,
            total_pages=row.page_count,
            output_uri=row.output_uri,
            content_type=row.media_type,
            error=error,
        )
        job.lease = None
        await self._faults.at(Step.COMMIT, order.s3_key)
        if commit is Commit.COUNTED_BEFORE:
            # The run has its outcome, and a line and a letter about that one.
            self._events.emit("document.repeated", s3_key=order.s3_key, run_id=order.run_id)
            return
        if row.status is DocumentStatus.FAILED and error is not None:
            await self._bury(job, order, error)
        self._manifest.add_row(order.run_id, row)
        self._metrics.document(row)
        self._events.emit(
            f"document.{row.status.value}",
            level="info" if error is None else "warning",
            s3_key=order.s3_key,
            run_id=order.run_id,
            pages=row.pages_written,
            pages_ocr=row.pages_ocr,
            spent_ms=job.spent_ms,
            error_class=row.error_class,
            error_code=row.error_code,
            error=row.error_message,
        )

    async def _bury(self, job: Job, order: Order, error: PdfOpsError) -> None:
        """Send a failure to the dead letters; a crash before the note sends it twice, never not at all."""
        await self._queue.bury(job.message.body, error, order.run_id, order.s3_key)
        await self._ledger.note_dead_letter(order.s3_key, order.run_id)

    async def _fail(self, job: Job, order: Order, lease: Lease, error: PdfOpsError) -> None:
        """Another try if that can help, else the end."""
        kind = error.kind
        if kind.error_class is ErrorClass.LOST or self._pool.fatal is not None:
            await self._ledger.release(lease, PdfOpsError(ErrorKind.LOST_CANCELLED), wasted_ms=job.spent_ms)
            job.lease = None
            raise PutOffError(0.0, str(error))
        # An event can arrive before its object: that is waited for, too.
        can_help = kind.retryable or kind is ErrorKind.SOURCE_NOT_FOUND
        if can_help and lease.attempts + 1 < self._settings.max_retries:
            await self._ledger.release(lease, error, wasted_ms=job.spent_ms)
            job.lease = None
            delay_s = min(self._settings.backoff_cap_s, self._settings.backoff_base_s * 2**lease.attempts)
            raise PutOffError(delay_s * random.uniform(0.8, 1.2), str(error))  # noqa: S311
        source = Source(
            uri=str(order.uri), size=order.message.size, etag=lease.etag, version_id=order.message.version_id
        )
        provenance = Provenance(
            reading=order.reading, run_id=order.run_id, worker_id=self._worker_id, attempt=lease.attempts + 1
        )
        row = DocumentTally(source=source, provenance=provenance).document_row(error, job.spent_ms)
        await self._commit(job, order, lease, row, error)


def _error_of(row: DocumentRow) -> PdfOpsError | None:
    """The error that a partial or failed row tells of."""
    if row.error_class is None or row.error_code is None:
        return None
    return PdfOpsError(ErrorKind.of(row.error_class, row.error_code), f"{row.pages_error} pages")
