"""Who has which document, and what became of it: the worker's side of the two DynamoDB tables.

Leases are best effort; what counts is the commit, one transaction that is fenced by the lease and
counts a document once per run. Nothing here knows queues, objects or pages.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

from ocr_worker.conditional import ConditionFailedError, TransactionRefusedError, call
from pdf_ops.contract.attributes import attribute, item_of
from pdf_ops.contract.documents import DocumentStatus
from pdf_ops.contract.errors import ErrorKind, PdfOpsError
from pdf_ops.contract.runs import RETENTION_DAYS, Counters, Outcome, RunRecord, total_key, worker_key
from pdf_ops.contract.state import HASH_KEY, DocumentState, StateStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_STATES = {
    DocumentStatus.DONE: StateStatus.DONE,
    DocumentStatus.PARTIAL: StateStatus.PARTIAL,
    DocumentStatus.FAILED: StateStatus.FAILED,
    DocumentStatus.SKIPPED: StateStatus.FAILED,
}


class LeaseLostError(Exception):
    """Another worker has the document now; nothing that is done here counts any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A document that is ours for a while."""

    s3_key: str
    token: str
    etag: str
    config_hash: str
    run_id: str
    attempts: int
    unfinished: int


@dataclass(frozen=True, slots=True)
class AlreadyRead:
    """These bytes have been read with these settings, or have failed in this very run."""

    state: DocumentState


@dataclass(frozen=True, slots=True)
class HeldElsewhere:
    """Another worker has it, for so long at the most."""

    remaining_s: float


class Commit(Enum):
    """What became of a commit."""

    COUNTED = "counted"
    COUNTED_BEFORE = "counted_before"


class Ledger:
    """The two tables, as one worker uses them."""

    def __init__(
        self,
        dynamodb: Any,
        *,
        state_table: str,
        runs_table: str,
        worker_id: str,
        lease_s: float,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        """Remember where and who, and whose clock leases go by."""
        self._dynamodb = dynamodb
        self._state_table = state_table
        self._runs_table = runs_table
        self._worker_id = worker_id
        self._lease_ms = int(lease_s * 1000)
        self._now_s = now_s
        # One at a time: transactions that add to the same counters refuse each other.
        self._counting = asyncio.Lock()
        self._records: dict[str, RunRecord | None] = {}

    async def run_record(self, run_id: str) -> RunRecord | None:
        """What a run asked for; None for one that nobody wrote down."""
        if run_id not in self._records:
            answer = await self._call("get_item", TableName=self._runs_table, Key=total_key(run_id))
            item = answer.get("Item")
            if item is None:
                return None  # Not remembered: it may be written yet.
            self._records[run_id] = RunRecord.from_item(item)
        return self._records[run_id]

    async def claim(
        self,
        s3_key: str,
        *,
        etag: str,
        version_id: str | None,
        config_hash: str,
        run_id: str,
        is_forced: bool,
        is_counted_once: bool = True,
    ) -> Lease | AlreadyRead | HeldElsewhere:
        """Take a document, unless someone has it or it has been read.

        Raises:
            PdfOpsError: TARGET/dynamodb.
        """
        now_ms, token = self._now_ms(), uuid.uuid4().hex
        # A forced run reads again what other runs have read, but not what it has read itself. What a run
        # has closed, however, is closed in it for good: whatever the object is now, and however often
        # its message comes.
        ended = "#status IN (:done, :partial) AND etag = :etag AND config_hash = :config"
        if is_forced:
            ended += " AND run_id = :run"
        if is_counted_once:
            ended = f"({ended}) OR (#status IN (:done, :partial, :failed) AND run_id = :run)"
        try:
            answer = await self._call(
                "update_item",
                TableName=self._state_table,
                Key={HASH_KEY: attribute(s3_key)},
                UpdateExpression="SET #status = :processing, etag = :etag, config_hash = :config, "
                "run_id = :run, worker_id = :worker, lease_token = :token, lease_until = :until, "
                "last_updated = :updated, pages_processed = :zero"
                + (", version_id = :version" if version_id else "")
                + " REMOVE total_pages, output_uri, is_dead_letter"
                + ("" if version_id else ", version_id")
                + " ADD unfinished :one",
                ConditionExpression=f"attribute_not_exists({HASH_KEY}) OR "
                "((attribute_not_exists(lease_until) OR lease_until < :now OR lease_until > :latest) "
                f"AND NOT ({ended}))",
                ExpressionAttributeNames={"#status": "status"},
                ExpressionAttributeValues=item_of(
                    {
                        ":processing": StateStatus.PROCESSING.value,
                        ":done": StateStatus.DONE.value,
                        ":partial": StateStatus.PARTIAL.value,
                        ":failed": StateStatus.FAILED.value if is_counted_once else None,
                        ":etag": etag,
                        ":config": config_hash,
                        ":run": run_id,
                        ":worker": self._worker_id,
                        ":token": token,
                        ":until": now_ms + self._lease_ms,
                        ":now": now_ms,
                        # From a clock that is off: without this, nobody could have it for hours.
                        ":latest": now_ms + 2 * self._lease_ms,
                        ":updated": _now_iso(),
                        ":zero": 0,
                        ":one": 1,
                        ":version": version_id,
                    }
                ),
                ReturnValues="ALL_NEW",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except ConditionFailedError as refused:
            state = DocumentState.from_item(refused.item)
            if state.lease_token != token:
                is_closed = state.status is not StateStatus.PROCESSING
                if is_closed and is_counted_once and state.run_id == run_id:
                    return AlreadyRead(state)
                if state.is_read(etag, config_hash) and not is_forced:
                    return AlreadyRead(state)
                return HeldElsewhere(max(1.0, (state.lease_until - now_ms) / 1000))
            # It is ours: the answer was lost, and the same claim was sent once more.
        else:
            state = DocumentState.from_item(answer["Attributes"])
        return Lease(
            s3_key=s3_key,
            token=token,
            etag=etag,
            config_hash=config_hash,
            run_id=run_id,
            attempts=state.attempts,
            unfinished=state.unfinished,
        )

    async def extend(self, lease: Lease, *, pages_processed: int, total_pages: int | None) -> None:
        """Keep a document for longer, and say how far it is.

        Raises:
            LeaseLostError: If another worker has it.
            PdfOpsError: TARGET/dynamodb.
        """
        await self._update_held(
            lease,
            "SET lease_until = :until, pages_processed = :pages, last_updated = :updated"
            + (", total_pages = :total" if total_pages is not None else ""),
            {
                ":until": self._now_ms() + self._lease_ms,
                ":pages": pages_processed,
                ":total": total_pages,
                ":updated": _now_iso(),
            },
        )

    async def release(self, lease: Lease, error: PdfOpsError, *, wasted_ms: int) -> None:
        """Give a document back for another try; the error's class says whether this one counts.

        Raises:
            LeaseLostError: If another worker has it.
            PdfOpsError: TARGET/dynamodb.
        """
        charged = int(error.kind.counts_as_attempt)
        await self._update_held(
            lease,
            "SET lease_until = :never, last_error = :error, error_class = :class, error_code = :code, "
            # Without its token nothing that is still on its way can take the lease again.
            "last_updated = :updated, unfinished = :none REMOVE lease_token ADD attempts :charged",
            {
                ":never": 0,
                ":none": 0,
                ":error": error.last_error,
                ":class": error.kind.error_class.value,
                ":code": error.kind.code,
                ":charged": charged,
                ":updated": _now_iso(),
            },
        )
        await self._count(lease.run_id, Counters(retries=charged, wasted_ms=wasted_ms))

    async def commit(
        self,
        lease: Lease,
        *,
        status: DocumentStatus,
        counters: Counters,
        pages: int,
        total_pages: int | None,
        output_uri: str | None,
        error: PdfOpsError | None,
    ) -> Commit:
        """Close a document: outcome, state and counters in one transaction.

        Raises:
            LeaseLostError: If another worker has it, or had it and closed it.
            PdfOpsError: TARGET/dynamodb. It may have been done all the same.
        """
        outcome = self._outcome(lease.run_id, lease.s3_key, status, lease.etag, pages, error=error)
        values: dict[str, str | int | None] = {
            ":status": _STATES[status].value,
            ":pages": pages,
            ":total": total_pages,
            ":updated": _now_iso(),
            ":never": 0,
            ":none": 0,
            ":token": lease.token,
            ":output": output_uri,
            ":error": error.last_error if error is not None else None,
            ":class": error.kind.error_class.value if error is not None else None,
            ":code": error.kind.code if error is not None else None,
            ":charged": int(error is not None and error.kind.counts_as_attempt),
        }
        sets = ["#status = :status", "pages_processed = :pages", "last_updated = :updated"]
        sets += ["lease_until = :never", "unfinished = :none"]
        removes = []
        for name, placeholder in (
            ("total_pages", ":total"),
            ("output_uri", ":output"),
            ("last_error", ":error"),
            ("error_class", ":class"),
            ("error_code", ":code"),
        ):
            if values[placeholder] is None:
                removes.append(name)
            else:
                sets.append(f"{name} = {placeholder}")
        expression = f"SET {', '.join(sets)}" + (f" REMOVE {', '.join(removes)}" if removes else "")
        state = {
            "Update": {
                "TableName": self._state_table,
                "Key": {HASH_KEY: attribute(lease.s3_key)},
                "UpdateExpression": f"{expression} ADD attempts :charged",
                "ConditionExpression": "lease_token = :token AND #status = :processing",
                "ExpressionAttributeNames": {"#status": "status"},
                "ExpressionAttributeValues": item_of(values | {":processing": StateStatus.PROCESSING.value}),
            }
        }
        try:
            await self._transact([self._put_outcome(outcome), state, self._add(lease.run_id, counters)])
        except TransactionRefusedError as cancelled:
            if cancelled.reasons[1] == "ConditionalCheckFailed":
                raise LeaseLostError(lease.s3_key) from None
            if cancelled.reasons[0] == "ConditionalCheckFailed":
                # This run has counted it before, from another delivery: only the state is brought up to date.
                try:
                    await self._call("update_item", **state["Update"])
                except ConditionFailedError:
                    raise LeaseLostError(lease.s3_key) from None
                return Commit.COUNTED_BEFORE
            raise PdfOpsError(ErrorKind.TARGET_DYNAMODB, f"cancelled: {cancelled.reasons}") from None
        return Commit.COUNTED

    async def note_dead_letter(self, s3_key: str, run_id: str) -> None:
        """Note that a failure is in the dead-letter queue; without the note it is sent there again.

        Raises:
            PdfOpsError: TARGET/dynamodb.
        """
        with contextlib.suppress(ConditionFailedError):  # Another run has it by now.
            await self._call(
                "update_item",
                TableName=self._state_table,
                Key={HASH_KEY: attribute(s3_key)},
                UpdateExpression="SET is_dead_letter = :yes",
                ConditionExpression="#status = :failed AND run_id = :run",
                ExpressionAttributeNames={"#status": "status"},
                ExpressionAttributeValues=item_of(
                    {":yes": True, ":failed": StateStatus.FAILED.value, ":run": run_id}
                ),
            )

    async def commit_skipped(self, run_id: str, s3_key: str, state: DocumentState) -> Commit:
        """Count a document that another run has read as skipped in this one.

        Raises:
            PdfOpsError: TARGET/dynamodb.
        """
        outcome = self._outcome(run_id, s3_key, DocumentStatus.SKIPPED, state.etag, 0, done_by=state.run_id)
        counters = Counters.of(DocumentStatus.SKIPPED)
        try:
            await self._transact([self._put_outcome(outcome), self._add(run_id, counters)])
        except TransactionRefusedError as cancelled:
            if cancelled.reasons[0] == "ConditionalCheckFailed":
                return Commit.COUNTED_BEFORE
            raise PdfOpsError(ErrorKind.TARGET_DYNAMODB, f"cancelled: {cancelled.reasons}") from None
        return Commit.COUNTED

    def _outcome(
        self,
        run_id: str,
        s3_key: str,
        status: DocumentStatus,
        etag: str | None,
        pages: int,
        *,
        error: PdfOpsError | None = None,
        done_by: str | None = None,
    ) -> Outcome:
        return Outcome(
            run_id=run_id,
            s3_key=s3_key,
            status=status,
            etag=etag,
            pages=pages,
            worker_id=self._worker_id,
            committed_at=_now_iso(),
            done_by=done_by,
            error_class=error.kind.error_class.value if error is not None else None,
            error_code=error.kind.code if error is not None else None,
            expires_at=int(time.time()) + RETENTION_DAYS * 86_400,
        )

    def _put_outcome(self, outcome: Outcome) -> dict[str, Any]:
        return {
            "Put": {
                "TableName": self._runs_table,
                "Item": outcome.to_item(),
                "ConditionExpression": "attribute_not_exists(part)",
            }
        }

    def _add(self, run_id: str, counters: Counters) -> dict[str, Any]:
        return {"Update": self._addition(run_id, counters)}

    def _addition(self, run_id: str, counters: Counters) -> dict[str, Any]:
        counts = counters.non_zero()
        names = {f"#{name}": name for name in counts}
        adds = ", ".join(f"#{name} :{name}" for name in counts)
        values: Mapping[str, str | int] = {f":{name}": count for name, count in counts.items()}
        expires_at = int(time.time()) + RETENTION_DAYS * 86_400
        return {
            "TableName": self._runs_table,
            "Key": worker_key(run_id, self._worker_id),
            "UpdateExpression": "SET expires_at = :expires, updated_at = :updated, run_id = :run, "
            f"worker_id = :worker ADD {adds}",
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": item_of(
                {
                    **values,
                    ":expires": expires_at,
                    ":updated": _now_iso(),
                    ":run": run_id,
                    ":worker": self._worker_id,
                }
            ),
        }

    async def _count(self, run_id: str, counters: Counters) -> None:
        if counters.non_zero():
            async with self._counting:
                await self._call("update_item", **self._addition(run_id, counters))

    async def _transact(self, items: list[dict[str, Any]]) -> None:
        async with self._counting:
            await self._call("transact_write_items", TransactItems=items)

    async def _update_held(
        self, lease: Lease, expression: str, values: Mapping[str, str | int | None]
    ) -> None:
        try:
            await self._call(
                "update_item",
                TableName=self._state_table,
                Key={HASH_KEY: attribute(lease.s3_key)},
                UpdateExpression=expression,
                ConditionExpression="lease_token = :token AND #status = :processing",
                ExpressionAttributeNames={"#status": "status"},
                ExpressionAttributeValues=item_of(
                    {**values, ":token": lease.token, ":processing": StateStatus.PROCESSING.value}
                ),
            )
        except ConditionFailedError:
            raise LeaseLostError(lease.s3_key) from None

    async def _call(self, operation: str, **arguments: Any) -> Any:
        return await call(self._dynamodb, operation, **arguments)

    def _now_ms(self) -> int:
        return int(self._now_s() * 1000)


def _now_iso() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
