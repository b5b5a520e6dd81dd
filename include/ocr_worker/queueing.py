"""The worker's side of SQS: receive, hold, put off, delete, and hand to the dead-letter queue.

Batches of ten wherever SQS has them. Not for deciding what a message means.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ocr_worker.aws import aws_errors
from pdf_ops.contract.errors import cut_utf8

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pdf_ops.contract.errors import PdfOpsError

BATCH = 10
LONG_POLL_S = 20
MAX_VISIBILITY_S = 43_200
MAX_ATTRIBUTE_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One delivery of a message."""

    message_id: str
    receipt: str
    body: str
    receive_count: int
    sent_ms: int


class Queue:
    """A queue and its dead-letter queue."""

    def __init__(self, sqs: Any, *, url: str, dlq_url: str | None, visibility_s: int) -> None:
        """Remember where."""
        self._sqs = sqs
        self._url = url
        self._dlq_url = dlq_url
        self._visibility_s = visibility_s

    async def receive(self, most: int, wait_s: int = LONG_POLL_S) -> list[Message]:
        """Wait for messages; up to ten come at once."""
        answer = await self._sqs.receive_message(
            QueueUrl=self._url,
            MaxNumberOfMessages=min(BATCH, most),
            WaitTimeSeconds=wait_s,
            VisibilityTimeout=self._visibility_s,
            MessageSystemAttributeNames=["ApproximateReceiveCount", "SentTimestamp"],
        )
        return [
            Message(
                message_id=message["MessageId"],
                receipt=message["ReceiptHandle"],
                body=message["Body"],
                receive_count=int(message.get("Attributes", {}).get("ApproximateReceiveCount", 1)),
                sent_ms=int(message.get("Attributes", {}).get("SentTimestamp", 0)),
            )
            for message in answer.get("Messages", [])
        ]

    async def has_messages(self) -> bool:
        """Whether there are messages, also such as somebody has in hand; about, as SQS counts them."""
        names = [
            "ApproximateNumberOfMessages",
            "ApproximateNumberOfMessagesNotVisible",
            "ApproximateNumberOfMessagesDelayed",
        ]
        answer = await self._sqs.get_queue_attributes(QueueUrl=self._url, AttributeNames=names)
        return any(int(answer["Attributes"].get(name, 0)) for name in names)

    async def hold(self, messages: Sequence[Message]) -> None:
        """Keep messages from other workers for another while. One that is gone is no harm."""
        await self._change([(message, self._visibility_s) for message in messages])

    async def put_off(self, message: Message, seconds: float) -> None:
        """Let a message come back after a while, at once if that is 0."""
        await self._change([(message, min(MAX_VISIBILITY_S, round(seconds)))])

    async def _change(self, changes: Sequence[tuple[Message, int]]) -> None:
        for batch in _batches(changes):
            await self._sqs.change_message_visibility_batch(
                QueueUrl=self._url,
                Entries=[
                    {"Id": str(number), "ReceiptHandle": message.receipt, "VisibilityTimeout": seconds}
                    for number, (message, seconds) in enumerate(batch)
                ],
            )

    async def delete(self, messages: Sequence[Message]) -> list[Message]:
        """Delete messages; returns those that could not be, to be tried again."""
        left: list[Message] = []
        for batch in _batches(messages):
            try:
                answer = await self._sqs.delete_message_batch(
                    QueueUrl=self._url,
                    Entries=[
                        {"Id": str(number), "ReceiptHandle": message.receipt}
                        for number, message in enumerate(batch)
                    ],
                )
            except aws_errors():
                left += batch
                continue
            left += [
                batch[int(failed["Id"])]
                for failed in answer.get("Failed", [])
                if not failed.get("SenderFault", False)
            ]
        return left

    async def bury(self, body: str, error: PdfOpsError, run_id: str | None, s3_key: str | None) -> None:
        """Send a message to the dead-letter queue with what is wrong, for people and for the triage."""
        if self._dlq_url is None:
            return
        attributes = {
            "error_class": error.kind.error_class.value,
            "error_code": error.kind.code,
            "error_message": cut_utf8(str(error), MAX_ATTRIBUTE_BYTES),
            "run_id": run_id,
            "s3_key": cut_utf8(s3_key, MAX_ATTRIBUTE_BYTES) if s3_key is not None else None,
        }
        await self._sqs.send_message(
            QueueUrl=self._dlq_url,
            MessageBody=body,
            MessageAttributes={
                name: {"DataType": "String", "StringValue": value}
                for name, value in attributes.items()
                if value
            },
        )


def _batches(items: Sequence[Any]) -> list[Sequence[Any]]:
    return [items[start : start + BATCH] for start in range(0, len(items), BATCH)]
