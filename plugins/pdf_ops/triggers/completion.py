"""Waiting for a run to end: one look at its counters at a time, and the verdict.

Also closes documents that no worker lived to close, from the dead-letter queue, so that every run
ends. Not for judging rows: merge and reconcile do.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from pdf_ops.contract.documents import DocumentStatus
from pdf_ops.contract.errors import ErrorKind, PdfOpsError
from pdf_ops.contract.messages import DocumentMessage, MessageError, parse_message
from pdf_ops.contract.state import StateStatus, state_key
from pdf_ops.hooks.clients import aws_client, error_code, is_permanent
from pdf_ops.hooks.ecs import fleet_tasks
from pdf_ops.hooks.tables import RunsTable, StateTable, control_outcome, utc_now

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pdf_ops.contract.runs import Counters, RunRecord

SUCCESS = "success"
_RATE_POLLS = 20
_DLQ_BATCH = 10
_DLQ_MESSAGES_A_LOOK = 2_000
_DLQ_VISIBILITY_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchConfig:
    """What a watch is told; plain values, since it travels to the triggerer.

    Attributes:
        run_id: The run.
        runs_table: The table with its counters.
        state_table: The table with the documents' states.
        dlq_url: The dead-letter queue; nothing is closed from it when empty.
        input_bucket: The bucket whose documents the state table knows by key alone.
        failure_threshold: Share of failed documents that ends the run.
        failure_minimum: Failed documents before that share counts.
        stall_timeout_s: Seconds without a finished document after which the run is stalled.
        cluster: The cluster of its workers; not looked at when empty.
        fleet_timeout_s: The same when no worker of the run is up any more.
        aws_conn_id: The Airflow connection.
        region_name: The region, if not the connection's own.
    """

    run_id: str
    runs_table: str
    state_table: str = ""
    dlq_url: str = ""
    input_bucket: str = ""
    failure_threshold: float = 0.5
    failure_minimum: int = 20
    stall_timeout_s: float = 3_600.0
    cluster: str = ""
    fleet_timeout_s: float = 600.0
    aws_conn_id: str | None = "aws_default"
    region_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How the waiting ended.

    Attributes:
        status: ``success``, or the name of the exception that the sensor raises.
        message: For a person.
        documents: Documents that the run sent.
        counters: What became of them.
    """

    status: str
    message: str
    documents: int = 0
    counters: dict[str, int] = field(default_factory=dict)

    def to_event(self) -> dict[str, Any]:
        """As the trigger's event."""
        return asdict(self)


@dataclass(slots=True)
class _Memory:
    """What a watch remembers between two looks."""

    last_count: int = -1
    progress_at: float = 0.0
    history: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_RATE_POLLS))
    closed: set[str] = field(default_factory=set)


class RunWatch:
    """Looks at a run's counters and says when it is over.

    :param config: What to look at, and when to give up.
    :param log: Where progress is told.
    """

    def __init__(self, config: WatchConfig, log: Any = None) -> None:
        self.config = config
        self.log = log or logging.getLogger(__name__)
        self.record: RunRecord | None = None
        self._memory = _Memory()
        self._runs: RunsTable | None = None
        self._states: StateTable | None = None
        self._queue: Any = None
        self._ecs: Any = None

    def connect(self) -> None:
        """Make the clients: the only step that asks Airflow for anything."""
        config = self.config
        self._runs = RunsTable(
            config.runs_table, aws_conn_id=config.aws_conn_id, region_name=config.region_name
        )
        if config.dlq_url and config.state_table:
            self._states = StateTable(
                config.state_table, aws_conn_id=config.aws_conn_id, region_name=config.region_name
            )
            self._queue = aws_client("sqs", aws_conn_id=config.aws_conn_id, region_name=config.region_name)
        if config.cluster:
            self._ecs = aws_client("ecs", aws_conn_id=config.aws_conn_id, region_name=config.region_name)

    def look(self) -> Verdict | None:
        """Look once; None while the run goes on.

        An error of AWS that can pass is logged, and the next look tries again: what does not pass ends
        as a stalled run.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return self._look()
        except (ClientError, BotoCoreError) as error:
            if is_permanent(error):
                return Verdict(
                    status="PermanentAwsError",
                    message=f"AWS refuses ({error_code(error) or type(error).__name__}): {error}. "
                    "Check the names in the settings and the role of the Airflow environment.",
                )
            self.log.warning("AWS did not answer, trying again: %s", error)
            return self._stalled(time.monotonic())

    def _look(self) -> Verdict | None:
        if self._runs is None:
            self.connect()
        runs = self._runs
        assert runs is not None  # noqa: S101 -- connect has made it
        if self.record is None:
            self.record = runs.get_record(self.config.run_id)
            if self.record is None:
                return Verdict(
                    status="RunNotFoundError",
                    message=f"the table {self.config.runs_table} has no record of the run "
                    f"{self.config.run_id}; run the list task first",
                )
        counters = runs.counters(self.config.run_id)
        verdict = self._judge(counters, self.record)
        if verdict is None and self._is_quiet(counters) and self._close_dead(self.record):
            counters = runs.counters(self.config.run_id)
            verdict = self._judge(counters, self.record)
        self._tell(counters, self.record)
        return verdict or self._stalled(time.monotonic(), counters)

    def _is_quiet(self, counters: Counters) -> bool:
        """Whether nothing was finished since the last look: then the dead letters are worth one."""
        return counters.documents <= self._memory.last_count or self._memory.last_count < 0

    def _judge(self, counters: Counters, record: RunRecord) -> Verdict | None:
        """Whether the counters alone end the run."""
        finished, total, failed = counters.documents, record.documents, counters.failed
        details: dict[str, Any] = {"documents": total, "counters": asdict(counters)}
        is_over = total and failed / total > self.config.failure_threshold
        if is_over and failed >= min(self.config.failure_minimum, total):
            return Verdict(
                status="FailureThresholdError",
                message=f"{failed:,} of {total:,} documents failed, more than the allowed "
                f"{self.config.failure_threshold:.0%}; the report has them by error class",
                **details,
            )
        if finished >= total:
            return Verdict(status=SUCCESS, message=f"all {total:,} documents have an outcome", **details)
        return None

    def _stalled(self, now: float, counters: Counters | None = None) -> Verdict | None:
        memory = self._memory
        if memory.progress_at == 0.0 or (counters is not None and counters.documents > memory.last_count):
            memory.progress_at = now
        if counters is not None:
            memory.last_count = max(memory.last_count, counters.documents)
        quiet_s = now - memory.progress_at
        if quiet_s >= self.config.stall_timeout_s:
            advice = "Look at the workers' logs and at the queue"
        elif quiet_s >= self.config.fleet_timeout_s and self._is_fleet_gone():
            advice = "No worker of the run is up any more: look at the fleet's tasks and their workers' logs"
        else:
            return None
        total = self.record.documents if self.record else 0
        return Verdict(
            status="RunStalledError",
            message=f"no document was finished for {quiet_s:,.0f} s, with {memory.last_count:,} of {total:,} "
            f"done. {advice}; clear the fleet and this task to go on.",
            documents=total,
            counters=asdict(counters) if counters else {},
        )

    def _is_fleet_gone(self) -> bool:
        """Whether ECS has no worker of this run; one of another run that reads for it shows as progress."""
        return self._ecs is not None and not any(
            fleet_tasks(self._ecs, self.config.cluster, self.config.run_id)
        )

    def _tell(self, counters: Counters, record: RunRecord) -> None:
        """Say how far the run is, how fast, and when it will be done."""
        now = time.monotonic()
        history = self._memory.history
        history.append((now, counters.documents))
        elapsed_s = now - history[0][0]
        rate = (counters.documents - history[0][1]) / elapsed_s if elapsed_s > 0 else 0.0
        left = max(0, record.documents - counters.documents)
        eta = f"{describe_duration(left / rate)} left" if rate > 0 else "no estimate yet"
        self.log.info(
            "%s of %s documents (%.1f%%): %s done, %s partial, %s failed, %s skipped; %s pages; "
            "%.1f documents a second, %s",
            f"{counters.documents:,}",
            f"{record.documents:,}",
            100 * counters.documents / max(1, record.documents),
            f"{counters.done:,}",
            f"{counters.partial:,}",
            f"{counters.failed:,}",
            f"{counters.skipped:,}",
            f"{counters.pages:,}",
            rate,
            eta if left else "complete",
        )

    def _close_dead(self, record: RunRecord) -> int:
        """Close this run's documents whose message lies in the dead-letter queue without a worker's word.

        Messages stay where they are, for triage and redrive, and are visible again at once.
        """
        if self._queue is None:
            return 0
        closed, seen = 0, 0
        handles: list[str] = []
        while seen < _DLQ_MESSAGES_A_LOOK:
            answer = self._queue.receive_message(
                QueueUrl=self.config.dlq_url,
                MaxNumberOfMessages=_DLQ_BATCH,
                VisibilityTimeout=_DLQ_VISIBILITY_S,
                WaitTimeSeconds=0,
                MessageAttributeNames=["All"],
            )
            messages = answer.get("Messages", [])
            if not messages:
                break
            seen += len(messages)
            for message in messages:
                handles.append(message["ReceiptHandle"])
                closed += sum(self._close(document, record) for document in self._unspoken(message))
        else:
            # There are more than one look takes. These stay hidden for a minute, so that the next look
            # finds others.
            return closed
        for start in range(0, len(handles), _DLQ_BATCH):
            self._queue.change_message_visibility_batch(
                QueueUrl=self.config.dlq_url,
                Entries=[
                    {"Id": str(number), "ReceiptHandle": handle, "VisibilityTimeout": 0}
                    for number, handle in enumerate(handles[start : start + _DLQ_BATCH])
                ],
            )
        return closed

    def _unspoken(self, message: dict[str, Any]) -> list[DocumentMessage]:
        """This run's documents in a message that no worker has said anything about."""
        if "error_class" in message.get("MessageAttributes", {}):
            return []
        try:
            documents = parse_message(message["Body"])
        except MessageError:
            return []
        return [document for document in documents if document.run_id == self.config.run_id]

    def _close(self, document: DocumentMessage, record: RunRecord) -> bool:
        runs, states = self._runs, self._states
        assert runs is not None  # noqa: S101 -- connect has made them
        assert states is not None  # noqa: S101
        key = state_key(document.bucket or self.config.input_bucket, document.key, self.config.input_bucket)
        if key in self._memory.closed:
            return False
        now = utc_now()
        error = PdfOpsError(
            ErrorKind.CRASH_POISON, "the message reached the dead-letter queue without a worker's word"
        )
        outcome = control_outcome(
            run_id=self.config.run_id,
            s3_key=key,
            status=DocumentStatus.FAILED,
            etag=document.etag,
            now=now,
            error=error,
        )
        is_closed = runs.close_document(
            outcome,
            state_table=self.config.state_table,
            error=error,
            version_id=document.version_id,
            now=now,
        )
        if not is_closed:
            if runs.get_outcome(self.config.run_id, key) is not None:
                self._memory.closed.add(key)
                return False
            known = states.get_many([key]).get(key)
            if known is None or known.status not in (StateStatus.DONE, StateStatus.PARTIAL):
                return False  # a worker holds the lease: its word may still come
            if known.is_read(document.etag, record.reading.config_hash):
                outcome = control_outcome(
                    run_id=self.config.run_id,
                    s3_key=key,
                    status=DocumentStatus.SKIPPED,
                    etag=document.etag,
                    now=now,
                    done_by=known.run_id,
                )
            is_closed = runs.put_outcome(outcome)
        self._memory.closed.add(key)
        if is_closed:
            self.log.warning("closed as %s: %s (%s)", outcome.status.value, key, error.kind.label)
        return is_closed


def describe_duration(seconds: float) -> str:
    """A duration as people say it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5_400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.1f} h"


class RunCompletionTrigger(BaseTrigger):
    """Look at a run's counters until it is over.

    :param config: The values of a ``WatchConfig``.
    :param poll_interval_s: Seconds between two looks.
    """

    def __init__(self, config: dict[str, Any], poll_interval_s: float = 30.0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.config = config
        self.poll_interval_s = poll_interval_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """As the database keeps it."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {"config": self.config, "poll_interval_s": self.poll_interval_s},
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look, sleep, look; one event at the end.

        Each look runs in a thread: it is the same code that the sensor runs without a triggerer, and a
        dozen short calls in half a minute are no load.
        """
        from asgiref.sync import sync_to_async

        watch = RunWatch(WatchConfig(**self.config), self.log)
        # The connection comes from Airflow, which only answers threads that asgiref started.
        await sync_to_async(watch.connect)()
        while True:
            verdict = await asyncio.to_thread(watch.look)
            if verdict is not None:
                yield TriggerEvent(verdict.to_event())  # type: ignore[no-untyped-call]
                return
            await asyncio.sleep(self.poll_interval_s)
