"""Waiting for S3's events on a queue of their own: many in a burst become one event of Airflow's.

What was told is deleted afterwards, so a triggerer that dies in between tells it twice and not never.
Neither matters much: a run reads what its listing finds, and not what events name.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from pdf_ops.contract.messages import MessageError, parse_message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

_LONGEST_S = 60.0
"""Events may never end: after so long a run is started all the same."""
_MOST_MESSAGES = 10_000
_LONG_POLL_S = 20
_BATCH = 10
# Longer than a burst is gathered for, so that nothing comes back meanwhile.
_VISIBILITY_S = 180
_PAUSE_S = 30.0
log = logging.getLogger(__name__)


@dataclass(slots=True)
class Burst:
    """Events that came close together.

    Attributes:
        receipts: Of the messages, for deleting them; by their ids, as one may come twice.
        documents: How many documents they name; none for S3's test event and the like.
        strays: Messages that are no events.
    """

    receipts: dict[str, str] = field(default_factory=dict)
    documents: int = 0
    strays: int = 0

    def add(self, message: Mapping[str, Any]) -> None:
        """Take a received message in."""
        is_new = message["MessageId"] not in self.receipts
        self.receipts[message["MessageId"]] = message["ReceiptHandle"]
        if not is_new:
            return
        try:
            self.documents += len(parse_message(str(message.get("Body", ""))))
        except MessageError as error:
            self.strays += 1
            log.warning("a message on the queue of events is none, and is deleted: %s", error)


class NewDocumentsTrigger(BaseEventTrigger):
    """Wait for events about new documents; one event for all that come within a few seconds.

    :param queue_url: The queue of events; nobody else may receive from it.
    :param quiet_s: Seconds without another event after which it is told.
    :param aws_conn_id: The Airflow connection used for AWS credentials.
    :param region_name: The AWS region, if not the connection's own.
    """

    def __init__(
        self,
        *,
        queue_url: str,
        quiet_s: float = 10.0,
        aws_conn_id: str | None = "aws_default",
        region_name: str | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.queue_url = queue_url
        self.quiet_s = quiet_s
        self.aws_conn_id = aws_conn_id
        self.region_name = region_name

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """For the triggerer."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "queue_url": self.queue_url,
                "quiet_s": self.quiet_s,
                "aws_conn_id": self.aws_conn_id,
                "region_name": self.region_name,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Gather, tell, delete, for ever. What goes wrong is logged, and tried again after a pause."""
        from airflow.providers.amazon.aws.hooks.sqs import SqsHook
        from botocore.exceptions import BotoCoreError, ClientError

        hook: Any = SqsHook(aws_conn_id=self.aws_conn_id, region_name=self.region_name)
        while True:
            try:
                async with await hook.get_async_conn() as client:
                    while True:
                        burst = await self._gather(client)
                        if burst.documents:
                            # Counts only: keys do not belong into Airflow's database.
                            payload = {"documents": burst.documents, "messages": len(burst.receipts)}
                            yield TriggerEvent(payload)  # type: ignore[no-untyped-call]
                        await self._delete(client, list(burst.receipts.values()))
            except (BotoCoreError, ClientError, OSError) as error:
                self.log.warning("the queue of events cannot be read; trying again: %s", error)
                await asyncio.sleep(_PAUSE_S)

    async def _gather(self, client: Any) -> Burst:
        """Wait for a message, and then for what comes with it."""
        burst = Burst()
        first = last = time.monotonic()
        while True:
            wait_s = _LONG_POLL_S if not burst.receipts else min(_LONG_POLL_S, max(1, round(self.quiet_s)))
            answer = await client.receive_message(
                QueueUrl=self.queue_url,
                MaxNumberOfMessages=_BATCH,
                WaitTimeSeconds=wait_s,
                VisibilityTimeout=_VISIBILITY_S,
            )
            now = time.monotonic()
            if messages := answer.get("Messages", []):
                first, last = (first, now) if burst.receipts else (now, now)
                for message in messages:
                    burst.add(message)
            is_over = now - last >= self.quiet_s or now - first >= _LONGEST_S
            if burst.receipts and (is_over or len(burst.receipts) >= _MOST_MESSAGES):
                return burst

    async def _delete(self, client: Any, receipts: list[str]) -> None:
        for begin in range(0, len(receipts), _BATCH):
            await client.delete_message_batch(
                QueueUrl=self.queue_url,
                Entries=[
                    {"Id": str(number), "ReceiptHandle": receipt}
                    for number, receipt in enumerate(receipts[begin : begin + _BATCH])
                ],
            )
