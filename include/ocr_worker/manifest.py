"""The last two steps of a document: its line in the run's manifest, then its message deleted.

In this order and in batches: a message is deleted only when the line is in S3, so that a crash in
between is repaired by redelivery. Not for deciding outcomes.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from ocr_worker.aws import aws_errors
from ocr_worker.faults import NO_FAULTS, Step
from ocr_worker.output import COMPRESSION, COMPRESSION_LEVEL
from pdf_ops.contract.documents import DocumentRow
from pdf_ops.contract.errors import ErrorKind, PdfOpsError
from pdf_ops.contract.schema import arrow_schema, record_batch

if TYPE_CHECKING:
    from ocr_worker.events import Events
    from ocr_worker.faults import Faults
    from ocr_worker.queueing import Message, Queue
    from pdf_ops.contract.layout import Layout

FLUSH_DOCUMENTS = 500
FLUSH_INTERVAL_S = 5.0
RETRY_PAUSE_S = 2.0


class Manifest:
    """Collects what is committed; writes manifest parts and deletes messages behind them."""

    def __init__(
        self,
        s3: Any,
        queue: Queue,
        layout: Layout,
        worker_id: str,
        events: Events,
        *,
        faults: Faults = NO_FAULTS,
    ) -> None:
        """Remember where."""
        self._s3 = s3
        self._queue = queue
        self._layout = layout
        self._worker_id = worker_id
        self._events = events
        self._faults = faults
        self._rows: dict[str, list[DocumentRow]] = {}
        self._messages: list[Message] = []
        self._parts: dict[str, int] = {}
        self._flushing = asyncio.Lock()
        self._is_due = asyncio.Event()

    @property
    def unflushed(self) -> list[Message]:
        """Messages of committed documents that are not deleted yet."""
        return self._messages

    def add_row(self, run_id: str, row: DocumentRow) -> None:
        """Note a committed document for its run's manifest."""
        self._rows.setdefault(run_id, []).append(row)

    def add_message(self, message: Message) -> None:
        """Note a message whose documents all are noted."""
        self._messages.append(message)
        if len(self._messages) >= FLUSH_DOCUMENTS:
            self._is_due.set()

    async def keep_flushing(self) -> None:
        """Flush every few seconds, or earlier when there is much, until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_due.wait(), FLUSH_INTERVAL_S)
            self._is_due.clear()
            try:
                await self.flush()
            except PdfOpsError as error:
                self._events.emit("manifest.failed", level="warning", error=str(error))
                await asyncio.sleep(RETRY_PAUSE_S)

    async def flush(self) -> None:
        """Write the parts, then delete the messages.

        Raises:
            PdfOpsError: TARGET/s3_put. Nothing is forgotten then.
        """
        async with self._flushing:
            # In this order: a message that is noted has all its rows noted.
            messages, rows = list(self._messages), self._rows
            self._rows = {}
            try:
                for run_id in list(rows):
                    await self._write_part(run_id, rows[run_id])
                    del rows[run_id]
            finally:
                for run_id, left in rows.items():
                    self._rows.setdefault(run_id, [])[:0] = left
            if messages:
                await self._faults.at(Step.MANIFEST, "")
            kept = await self._queue.delete(messages)
            self._messages = kept + self._messages[len(messages) :]
            if messages:
                self._events.emit("acknowledged", messages=len(messages) - len(kept))
                await self._faults.at(Step.ACK, "")

    async def _write_part(self, run_id: str, rows: list[DocumentRow]) -> None:
        number = self._parts.get(run_id, 0)
        uri = self._layout.manifest_part(run_id, self._worker_id, number)
        body = await asyncio.to_thread(_as_parquet, rows)
        try:
            await self._s3.put_object(Bucket=uri.bucket, Key=uri.key, Body=body)
        except aws_errors() as error:
            raise PdfOpsError(ErrorKind.TARGET_S3_PUT, f"{uri}: {error}") from error
        self._parts[run_id] = number + 1


def _as_parquet(rows: list[DocumentRow]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink, arrow_schema(DocumentRow), compression=COMPRESSION, compression_level=COMPRESSION_LEVEL
    ) as writer:
        writer.write_batch(record_batch(DocumentRow, rows))
    return bytes(sink.getvalue())
