"""``ocr-worker run``: takes messages, holds on to them while they are worked on, and ends in order.

What is done with a document is in ``document_work``; here are the loops around it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import tempfile
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ocr_worker.aws import aws_errors, open_clients
from ocr_worker.document_work import (
    LOOK_AGAIN_S,
    UNSCHEDULED_RUN,
    DocumentWork,
    Job,
    Order,
    PutOffError,
)
from ocr_worker.events import METRICS_INTERVAL_S, Events, Metrics
from ocr_worker.faults import NO_FAULTS, Step
from ocr_worker.isolation.sandbox import check, try_out
from ocr_worker.ledger import LeaseLostError, Ledger
from ocr_worker.manifest import Manifest
from ocr_worker.pages import PagePool
from ocr_worker.queueing import LONG_POLL_S, Queue
from ocr_worker.search_sink import STOPPED_FLUSH_S, open_sink
from pdf_ops.contract.errors import ErrorKind, PdfOpsError
from pdf_ops.contract.layout import parse_bucket
from pdf_ops.contract.messages import MessageError, parse_message
from pdf_ops.contract.state import state_key

if TYPE_CHECKING:
    from ocr_worker.aws import Clients
    from ocr_worker.faults import Faults
    from ocr_worker.queueing import Message
    from ocr_worker.search_sink import SearchSink
    from ocr_worker.settings import ServiceSettings
    from pdf_ops.contract.messages import DocumentMessage

RECEIVE_PAUSE_S = 5.0
BACK_MARGIN_S = 5.0
# What is left of the stop timeout for giving back what could not be finished, and for the last manifest.
STOP_RESERVE_S = 15.0


class Service:
    """One worker, from its first message to its last."""

    def __init__(
        self,
        settings: ServiceSettings,
        clients: Clients,
        pool: PagePool,
        scratch: Path,
        events: Events,
        *,
        sink: SearchSink | None = None,
        metrics: Metrics | None = None,
        faults: Faults = NO_FAULTS,
    ) -> None:
        """Put the parts together."""
        self._settings = settings
        self._worker_id = settings.worker_id or make_worker_id()
        self._pool = pool
        self._events = events
        self._faults = faults
        self._metrics = metrics or Metrics()
        self._sink = sink
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
            now_s=faults.now_s,
        )
        self._manifest = Manifest(
            clients.s3, self._queue, settings.layout, self._worker_id, events, faults=faults
        )
        self._jobs: set[Job] = set()
        self._job_ended = asyncio.Event()
        self._stopping = asyncio.Event()
        self._stop_reason = ""
        self._work = DocumentWork(
            settings,
            worker_id=self._worker_id,
            s3=clients.s3,
            pool=pool,
            ledger=self._ledger,
            queue=self._queue,
            manifest=self._manifest,
            scratch=scratch,
            events=events,
            metrics=self._metrics,
            is_stopping=self._stopping.is_set,
            sink=sink,
            faults=faults,
        )
        self._back_by = 0.0
        self._crash: BaseException | None = None
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
        helpers = [
            asyncio.create_task(self._keep_holding()),
            asyncio.create_task(self._manifest.keep_flushing()),
            asyncio.create_task(self._keep_measuring()),
        ]
        for helper in helpers:
            helper.add_done_callback(self._helper_ended)
        try:
            await self._receive(is_forever=is_forever)
            await self._finish_jobs()
            await self._give_back_received()
        finally:
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
            await self._last_flush()
            # After everything else: nobody waits for it but the end.
            if self._sink is not None:
                most_s = self._settings.opensearch_flush_s
                is_idle = self._stop_reason == "idle"
                await self._sink.close(most_s if is_idle else min(STOPPED_FLUSH_S, most_s))
            self._events.emit_metrics(self._metrics)
            self._events.emit("worker.stopped", reason=self._stop_reason)
        if self._crash is not None:
            raise self._crash
        return self._pool.fatal

    def _helper_ended(self, helper: asyncio.Task[None]) -> None:
        """Without a heartbeat or a manifest the worker is of no use, and would go quiet."""
        if not helper.cancelled() and (error := helper.exception()) is not None:
            self._crashed(error)

    def _crashed(self, error: BaseException) -> None:
        self._events.emit("worker.crashed", level="critical", error=f"{type(error).__name__}: {error}")
        self._crash = self._crash or error
        self.stop("crashed")

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
            wait_s = max(1, min(LONG_POLL_S, round(patience_s)))
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
                job = Job(message)
                job.task = asyncio.create_task(self._handle(job))
                self._jobs.add(job)
            if messages or self._jobs:
                last_seen = time.monotonic()
            elif not is_forever and await self._is_all_done(last_seen):
                self.stop("idle")

    async def _is_all_done(self, last_seen: float) -> bool:
        """Whether there is nothing to wait for.

        What a worker has in hand comes back if it dies, and then somebody has to be there. After a whole
        visibility timeout without a message, those that are hidden are with workers that live.
        """
        now = time.monotonic()
        if now < max(last_seen + self._settings.idle_s, self._back_by):
            return False
        if now >= last_seen + self._settings.visibility_s + BACK_MARGIN_S:
            return True
        try:
            return not await self._queue.has_messages()
        except aws_errors() as error:
            self._events.emit("receive.failed", level="warning", error=str(error))
            return False

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
            self._work.is_cancelling = True
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
            # At the same time, so that a queue that does not answer costs no lease.
            await asyncio.gather(
                self._hold(messages), *(self._extend(job) for job in jobs if job.lease is not None)
            )

    async def _hold(self, messages: list[Message]) -> None:
        try:
            await self._queue.hold(messages)
        except aws_errors() as error:
            self._events.emit("heartbeat.failed", level="warning", error=str(error))

    async def _extend(self, job: Job) -> None:
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

    async def _handle(self, job: Job) -> None:
        message = job.message
        try:
            await self._read_message(job)
        except PutOffError as later:
            self._events.emit("message.put_off", seconds=round(later.seconds, 1), reason=later.reason)
            await self._put_off(message, later.seconds)
        except LeaseLostError:
            await self._come_back(message)
        except asyncio.CancelledError:
            if not job.has_lost_lease:
                raise
            await self._come_back(message)
        except Exception as error:  # noqa: BLE001 -- raised again when the worker has ended in order
            if isinstance(error, (PdfOpsError, *aws_errors())):  # Tables, queue or output are out of reach.
                self._events.emit("message.failed", level="error", error=str(error))
                await self._let_go(job)
                await self._put_off(message, self._settings.lease_s)
                return
            # A mistake of ours: it ends the worker with an error, instead of a run that goes quiet.
            self._crashed(error)
        else:
            self._manifest.add_message(message)
        finally:
            self._jobs.discard(job)
            self._job_ended.set()

    async def _come_back(self, message: Message) -> None:
        """Whoever has the document now closes it; this message of it is deleted when that is done."""
        seconds = min(LOOK_AGAIN_S, self._settings.lease_s)
        self._events.emit("message.put_off", seconds=seconds, reason="another worker has taken it over")
        await self._put_off(message, seconds)

    async def _let_go(self, job: Job) -> None:
        """Give up a lease if that can be done: a worker that lives on must not look like one that died."""
        if job.lease is not None:
            lease, job.lease = job.lease, None
            with contextlib.suppress(PdfOpsError, LeaseLostError):
                await self._ledger.release(
                    lease, PdfOpsError(ErrorKind.LOST_CANCELLED), wasted_ms=job.spent_ms
                )

    async def _put_off(self, message: Message, seconds: float) -> None:
        """Have a message come back, and stay for it: the rest of the fleet may have gone home."""
        self._back_by = max(self._back_by, time.monotonic() + seconds + BACK_MARGIN_S)
        with contextlib.suppress(*aws_errors()):
            await self._queue.put_off(message, seconds)

    async def _read_message(self, job: Job) -> None:
        await self._faults.at(Step.RECEIVE, job.message.body)
        try:
            documents = parse_message(job.message.body)
        except MessageError as error:
            self._events.emit("message.invalid", level="error", error=str(error))
            await self._queue.bury(job.message.body, error, None, None)
            return
        for document in documents:
            await self._work.read(job, await self._order(document))
            job.lease = None

    async def _order(self, document: DocumentMessage) -> Order:
        uri = document.source_uri(self._input_bucket)
        run_id, reading, is_forced = UNSCHEDULED_RUN, self._settings.reading, False
        if document.run_id is not None:
            run_id = document.run_id
            record = await self._ledger.run_record(run_id)
            if record is not None:
                reading, is_forced = record.reading, record.is_forced
        key = state_key(uri.bucket, uri.key, parse_bucket(self._input_bucket))
        return Order(
            message=document, uri=uri, s3_key=key, run_id=run_id, reading=reading, is_forced=is_forced
        )


def make_worker_id() -> str:
    """A name that no other worker has, and that a person can find in ECS."""
    host = os.environ.get("HOSTNAME") or socket.gethostname()
    return f"{host}-{uuid.uuid4().hex[:8]}"


async def serve(
    settings: ServiceSettings, *, is_forever: bool, faults: Faults = NO_FAULTS
) -> PdfOpsError | None:
    """Run a worker with everything that it needs; SIGTERM and SIGINT end it in order."""
    worker_id = settings.worker_id or make_worker_id()
    settings = replace(settings, worker_id=worker_id)
    events = Events(worker_id)
    loop = asyncio.get_running_loop()
    # From here on: what is told while the page processes start is not lost, nor are files left behind.
    told: list[str] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.append, signal.Signals(number).name)
    isolation = await asyncio.to_thread(try_out, settings.sandbox, settings.scratch_dir)
    events.emit(
        "worker.started",
        level="warning" if isolation.missing else "info",
        settings=repr(settings),
        isolation=isolation.in_force,
        isolation_missing=isolation.problem or None,
    )
    check(isolation, settings.sandbox)
    with tempfile.TemporaryDirectory(prefix="ocr-worker-", dir=settings.scratch_dir) as folder:
        async with (
            open_clients(settings.region) as clients,
            events.shipped_to(clients.logs, settings.log_group),
            PagePool(settings.pool(Path(folder))) as pool,
        ):
            metrics = Metrics()
            sink = await open_sink(settings, events, metrics)
            service = Service(
                settings, clients, pool, Path(folder), events, sink=sink, metrics=metrics, faults=faults
            )
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, service.stop, signal.Signals(number).name)
            if told:
                service.stop(told[0])
            return await service.run(is_forever=is_forever)
