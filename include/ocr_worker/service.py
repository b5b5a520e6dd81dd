"""``ocr-worker run``: receive, claim, fetch, extract, write, commit, manifest, acknowledge.

The order of the steps lives here. A crash between any two of them is repaired by redelivery, since
each can be done twice: outputs have the same keys, and the commit counts once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
import tempfile
import time
import uuid
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ocr_worker.aws import aws_errors, open_clients
from ocr_worker.events import METRICS_INTERVAL_S, Events, Metrics
from ocr_worker.fetch import ObjectIdentity, fetch_object, identify_object
from ocr_worker.ledger import AlreadyRead, Commit, HeldElsewhere, Lease, LeaseLostError, Ledger
from ocr_worker.manifest import Manifest
from ocr_worker.output import ParquetWriter
from ocr_worker.pages import PagePool
from ocr_worker.queueing import LONG_POLL_S, Queue
from ocr_worker.rows import DocumentTally, Provenance, Source
from ocr_worker.sniff import sniff
from pdf_ops.contract.documents import DocumentRow, DocumentStatus
from pdf_ops.contract.errors import ErrorClass, ErrorKind, PdfOpsError
from pdf_ops.contract.messages import MessageError, parse_message
from pdf_ops.contract.pages import PageRow
from pdf_ops.contract.runs import Counters
from pdf_ops.contract.state import state_key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ocr_worker.aws import Clients
    from ocr_worker.queueing import Message
    from ocr_worker.settings import ServiceSettings
    from pdf_ops.contract.fingerprint import ReadingConfig
    from pdf_ops.contract.layout import S3Uri
    from pdf_ops.contract.messages import DocumentMessage
    from pdf_ops.contract.state import DocumentState

UNSCHEDULED_RUN = "unscheduled"
"""The run of documents that come by event or by hand, and not from a listing."""

MAX_CHANGES = 3
RECEIVE_PAUSE_S = 5.0
LOOK_AGAIN_S = 20.0
BACK_MARGIN_S = 5.0
# What is left of the stop timeout for giving back what could not be finished, and for the last manifest.
STOP_RESERVE_S = 15.0


class _PutOffError(Exception):
    """The message is to come back after a while."""

    def __init__(self, seconds: float, reason: str) -> None:
        super().__init__(seconds, reason)
        self.seconds = seconds
        self.reason = reason


@dataclass(slots=True, eq=False)
class _Job:
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
class _Order:
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


class Service:
    """One worker, from its first message to its last."""

    def __init__(
        self, settings: ServiceSettings, clients: Clients, pool: PagePool, scratch: Path, events: Events
    ) -> None:
        """Put the parts together."""
        self._settings = settings
        self._worker_id = settings.worker_id or make_worker_id()
        self._clients = clients
        self._pool = pool
        self._scratch = scratch
        self._events = events
        self._metrics = Metrics()
        self._layout = settings.layout
        self._input_bucket = settings.input_bucket
        self._queue = Queue(
            clients.sqs,
            url=settings.queue_url,
            dlq_url=settings.dlq_url,
            visibility_s=settings.visibility_s,
        )
        self._ledger = Ledger(
            clients.dynamodb,
            state_table=settings.state_table,
            runs_table=settings.runs_table,
            worker_id=self._worker_id,
            lease_s=settings.lease_s,
        )
        self._manifest = Manifest(clients.s3, self._queue, self._layout, self._worker_id, events)
        self._budget = _Budget(settings.prefetch_mb * 2**20)
        self._jobs: set[_Job] = set()
        self._job_ended = asyncio.Event()
        self._stopping = asyncio.Event()
        self._stop_reason = ""
        self._is_cancelling = False
        self._back_by = 0.0
        self._receiving: asyncio.Future[list[Message]] | None = None

    def stop(self, reason: str) -> None:
        """Take no more messages, finish or give back what is in hand, and end."""
        if not self._stopping.is_set():
            self._stop_reason = reason
            self._stopping.set()

    # The loops -------------------------------------------------------------------------------

    async def run(self, *, is_forever: bool) -> PdfOpsError | None:
        """Work until told to stop or, unless for ever, until the queue is empty for a while.

        Returns the error that made going on pointless, if there is one.
        """
        self._events.emit("worker.started", settings=repr(self._settings))
        helpers = [
            asyncio.create_task(self._keep_holding()),
            asyncio.create_task(self._manifest.keep_flushing()),
            asyncio.create_task(self._keep_measuring()),
        ]
        try:
            await self._receive(is_forever=is_forever)
            await self._finish_jobs()
            await self._give_back_received()
        finally:
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
            await self._last_flush()
            self._events.emit_metrics(self._metrics)
            self._events.emit("worker.stopped", reason=self._stop_reason)
        return self._pool.fatal

    async def _receive(self, *, is_forever: bool) -> None:
        most = self._settings.processes + self._settings.prefetch_documents
        last_seen = time.monotonic()
        while not self._stopping.is_set():
            if self._pool.fatal is not None:
                self.stop(str(self._pool.fatal))
                return
            room = most - len(self._jobs)
            if room <= 0:
                self._job_ended.clear()
                await self._first_of(self._job_ended.wait())
                continue
            idle_left_s = self._settings.idle_s - (time.monotonic() - last_seen)
            # Not longer than the worker may idle: else it would notice late that all is done.
            patience_s = LONG_POLL_S if is_forever else self._settings.idle_s if self._jobs else idle_left_s
            wait_s = max(0, min(LONG_POLL_S, round(patience_s)))
            self._receiving = asyncio.ensure_future(self._queue.receive(room, wait_s))
            try:
                messages = await self._first_of(self._receiving)
            except aws_errors() as error:
                self._events.emit("receive.failed", level="warning", error=str(error))
                await self._first_of(asyncio.sleep(RECEIVE_PAUSE_S))
                continue
            if messages is None:
                return  # It is to stop; what still comes is given back.
            self._receiving = None
            for message in messages:
                self._metrics.lag(int(time.time() * 1000) - message.sent_ms)
                job = _Job(message)
                job.task = asyncio.create_task(self._handle(job))
                self._jobs.add(job)
            if messages or self._jobs:
                last_seen = time.monotonic()
            elif not is_forever and time.monotonic() >= max(last_seen + self._settings.idle_s, self._back_by):
                self.stop("idle")

    async def _first_of(self, awaitable: Any) -> Any:
        """What is awaited, or None as soon as the worker is to stop."""
        wanted = asyncio.ensure_future(awaitable)
        stopping = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait({wanted, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        return wanted.result() if wanted.done() else None

    async def _give_back_received(self) -> None:
        """Wait for the last receive and put back what it brings.

        Hanging up on it would not do: SQS may still hand it a message, which then is hidden for long.
        """
        if self._receiving is None:
            return
        try:
            async with asyncio.timeout(LONG_POLL_S + 2):
                for message in await self._receiving:
                    await self._queue.put_off(message, 0)
        except aws_errors() as error:
            self._events.emit("receive.failed", level="warning", error=str(error))

    async def _finish_jobs(self) -> None:
        """Let what is being read end within the limit, then give the rest back."""
        for grace_s in (max(1.0, self._settings.stop_timeout_s - STOP_RESERVE_S), STOP_RESERVE_S / 2):
            tasks = [job.task for job in self._jobs if job.task is not None]
            if not tasks:
                return
            await asyncio.wait(tasks, timeout=grace_s)
            self._is_cancelling = True
            self._pool.cancel()
        for job in self._jobs:
            if job.task is not None:
                job.task.cancel()

    async def _last_flush(self) -> None:
        try:
            async with asyncio.timeout(STOP_RESERVE_S):
                await self._manifest.flush()
        except (PdfOpsError, TimeoutError) as error:
            # The messages come back, and another worker repeats the lines.
            self._events.emit("manifest.failed", level="error", error=str(error))

    async def _keep_holding(self) -> None:
        """The heartbeat: leases and messages stay ours while the work goes on."""
        interval_s = min(self._settings.lease_s, self._settings.visibility_s) / 3
        while True:
            await asyncio.sleep(interval_s)
            jobs = [job for job in self._jobs if not job.has_lost_lease]
            messages = [job.message for job in jobs] + self._manifest.unflushed
            try:
                await self._queue.hold(messages)
            except aws_errors() as error:
                self._events.emit("heartbeat.failed", level="warning", error=str(error))
            await asyncio.gather(*(self._extend(job) for job in jobs if job.lease is not None))

    async def _extend(self, job: _Job) -> None:
        lease = job.lease
        if lease is None:
            return
        try:
            await self._ledger.extend(lease, pages_processed=job.pages_processed, total_pages=job.total_pages)
        except LeaseLostError:
            if job.lease is lease:  # Else it was given up meanwhile.
                job.has_lost_lease = True
                self._events.emit("lease.lost", level="warning", s3_key=lease.s3_key, run_id=lease.run_id)
                if job.task is not None:
                    job.task.cancel()
        except PdfOpsError as error:
            self._events.emit("heartbeat.failed", level="warning", s3_key=lease.s3_key, error=str(error))

    async def _keep_measuring(self) -> None:
        while True:
            await asyncio.sleep(METRICS_INTERVAL_S)
            self._events.emit_metrics(self._metrics)

    # One message -----------------------------------------------------------------------------

    async def _handle(self, job: _Job) -> None:
        message = job.message
        try:
            await self._read_message(job)
        except _PutOffError as later:
            self._events.emit("message.put_off", seconds=round(later.seconds, 1), reason=later.reason)
            # Who puts a message off stays for it: the rest of the fleet may have gone home.
            self._back_by = max(self._back_by, time.monotonic() + later.seconds + BACK_MARGIN_S)
            with contextlib.suppress(*aws_errors()):
                await self._queue.put_off(message, later.seconds)
        except LeaseLostError:
            pass  # Whoever has it now closes it.
        except asyncio.CancelledError:
            if not job.has_lost_lease:
                raise
        except PdfOpsError as error:  # DynamoDB or S3 cannot be reached: the message comes back by itself.
            self._events.emit("message.failed", level="error", error=str(error))
        except aws_errors() as error:
            self._events.emit("message.failed", level="error", error=str(error))
        else:
            self._manifest.add_message(message)
        finally:
            self._jobs.discard(job)
            self._job_ended.set()

    async def _read_message(self, job: _Job) -> None:
        try:
            documents = parse_message(job.message.body)
        except MessageError as error:
            self._events.emit("message.invalid", level="error", error=str(error))
            await self._queue.bury(job.message.body, error, None, None)
            return
        for document in documents:
            await self._read_document(job, await self._order(document))
            job.lease = None

    async def _order(self, document: DocumentMessage) -> _Order:
        uri = document.source_uri(self._input_bucket)
        run_id, reading, is_forced = UNSCHEDULED_RUN, self._settings.reading, False
        if document.run_id is not None:
            run_id = document.run_id
            record = await self._ledger.run_record(run_id)
            if record is not None:
                reading, is_forced = record.reading, record.is_forced
        key = state_key(uri.bucket, uri.key, self._layout_bucket)
        return _Order(
            message=document, uri=uri, s3_key=key, run_id=run_id, reading=reading, is_forced=is_forced
        )

    @property
    def _layout_bucket(self) -> str:
        return self._input_bucket.removeprefix("s3://").rstrip("/")

    # One document ----------------------------------------------------------------------------

    async def _read_document(self, job: _Job, order: _Order) -> None:
        for change in range(MAX_CHANGES):
            self._check_stopping()
            identity, missing = await self._identify(order, is_changed=change > 0)
            lease = await self._claim(order, identity)
            if lease is None:
                return
            job.lease = lease
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
                    continue
                await self._fail(job, order, lease, error)
            return

    def _check_stopping(self) -> None:
        if self._stopping.is_set():
            raise _PutOffError(0.0, "the worker is stopping")

    async def _identify(
        self, order: _Order, *, is_changed: bool
    ) -> tuple[ObjectIdentity, PdfOpsError | None]:
        """Which object is meant: the message's word if it gives one, else S3's."""
        told = order.message
        if told.etag is not None and told.size is not None and not is_changed:
            return (
                ObjectIdentity(uri=order.uri, etag=told.etag, size=told.size, version_id=told.version_id),
                None,
            )
        try:
            return await identify_object(self._clients.s3, order.uri, told.version_id), None
        except PdfOpsError as error:
            # It is claimed all the same, so that tries are counted and the run hears of it.
            return ObjectIdentity(uri=order.uri, etag=told.etag or "none", size=0), error

    async def _claim(self, order: _Order, identity: ObjectIdentity) -> Lease | None:
        """The lease; None if there is nothing left to do."""
        claimed = await self._ledger.claim(
            order.s3_key,
            etag=identity.etag,
            version_id=identity.version_id,
            config_hash=order.reading.config_hash,
            run_id=order.run_id,
            is_forced=order.is_forced,
            is_counted_once=order.run_id != UNSCHEDULED_RUN,
        )
        if isinstance(claimed, HeldElsewhere):
            seconds = min(claimed.remaining_s, LOOK_AGAIN_S) + random.uniform(0, 2)  # noqa: S311
            raise _PutOffError(seconds, "another worker has it")
        if isinstance(claimed, AlreadyRead):
            await self._already_read(order, claimed.state)
            return None
        self._events.emit(
            "document.claimed", s3_key=order.s3_key, run_id=order.run_id, attempts=claimed.attempts
        )
        return claimed

    async def _already_read(self, order: _Order, state: DocumentState) -> None:
        """This run's own work, delivered again: repeat its line. Another run's: skipped in this one."""
        is_ours = state.run_id == order.run_id
        if not is_ours:
            commit = await self._ledger.commit_skipped(order.run_id, order.s3_key, state)
            if commit is Commit.COUNTED_BEFORE:
                return
        status = DocumentStatus.SKIPPED
        if is_ours:
            status = next(member for member in DocumentStatus if member.value == state.status.value)
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

    async def _extract_and_commit(
        self, job: _Job, order: _Order, lease: Lease, identity: ObjectIdentity
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
                doc_id = await fetch_object(self._clients.s3, identity, fetched)
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
            if self._is_cancelling:
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
        finally:
            fetched.unlink(missing_ok=True)
            written.unlink(missing_ok=True)
        await self._commit(job, order, lease, replace(row, output_uri=str(output)), _error_of(row))

    async def _write_rows(self, job: _Job, stream: Any, tally: DocumentTally, path: Path) -> None:
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
        except BaseException:
            writer.discard()
            raise

    async def _upload(self, path: Path, uri: S3Uri) -> None:
        try:
            body = await asyncio.to_thread(path.read_bytes)
            await self._clients.s3.put_object(Bucket=uri.bucket, Key=uri.key, Body=body)
        except aws_errors() as error:
            raise PdfOpsError(ErrorKind.TARGET_S3_PUT, f"{uri}: {error}") from error

    async def _commit(
        self, job: _Job, order: _Order, lease: Lease, row: DocumentRow, error: PdfOpsError | None
    ) -> None:
        counters = Counters.of(
            row.status,
            pages=row.pages_written,
            pages_ocr=row.pages_ocr,
            pages_error=row.pages_error,
            size_bytes=row.source_size or 0,
            cpu_ms=round(row.cpu_ms),
        )
        await self._ledger.commit(
            lease,
            status=row.status,
            counters=counters,
            pages=row.pages_written,
            total_pages=row.page_count,
            output_uri=row.output_uri,
            error=error,
        )
        job.lease = None
        if row.status is DocumentStatus.FAILED and error is not None:
            await self._queue.bury(job.message.body, error, order.run_id, order.s3_key)
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

    async def _fail(self, job: _Job, order: _Order, lease: Lease, error: PdfOpsError) -> None:
        """Another try if that can help, else the end."""
        kind = error.kind
        if kind.error_class is ErrorClass.LOST or self._pool.fatal is not None:
            await self._ledger.release(lease, PdfOpsError(ErrorKind.LOST_CANCELLED), wasted_ms=job.spent_ms)
            job.lease = None
            raise _PutOffError(0.0, str(error))
        # An event can arrive before its object: that is waited for, too.
        can_help = kind.retryable or kind is ErrorKind.SOURCE_NOT_FOUND
        if can_help and lease.attempts + 1 < self._settings.max_retries:
            await self._ledger.release(lease, error, wasted_ms=job.spent_ms)
            job.lease = None
            delay_s = min(self._settings.backoff_cap_s, self._settings.backoff_base_s * 2**lease.attempts)
            raise _PutOffError(delay_s * random.uniform(0.8, 1.2), str(error))  # noqa: S311
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


def make_worker_id() -> str:
    """A name that no other worker has, and that a person can find in ECS."""
    host = os.environ.get("HOSTNAME") or socket.gethostname()
    return f"{host}-{uuid.uuid4().hex[:8]}"


async def serve(settings: ServiceSettings, *, is_forever: bool) -> PdfOpsError | None:
    """Run a worker with everything that it needs; SIGTERM and SIGINT end it in order."""
    worker_id = settings.worker_id or make_worker_id()
    settings = replace(settings, worker_id=worker_id)
    events = Events(worker_id)
    loop = asyncio.get_running_loop()
    with tempfile.TemporaryDirectory(prefix="ocr-worker-", dir=settings.scratch_dir) as folder:
        async with (
            open_clients(settings.region) as clients,
            events.shipped_to(clients.logs, settings.log_group),
            PagePool(settings.pool(Path(folder))) as pool,
        ):
            service = Service(settings, clients, pool, Path(folder), events)
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, service.stop, signal.Signals(number).name)
            return await service.run(is_forever=is_forever)
