"""A look into the dead-letter queue: which of a run's documents are there, and why.

Messages are looked at and put back, never deleted: sending them round again is a person's decision.
Not for closing documents: the completion sensor does that.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pdf_ops.contract.errors import ErrorKind
from pdf_ops.contract.messages import MessageError, parse_message

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_MESSAGES = 2_000
MAX_SECONDS = 30.0
VISIBILITY_TIMEOUT_S = 60
SAMPLES = 5
_EMPTY_RECEIVES = 3
_UNSAID = "no class"


@dataclass(slots=True)
class LetterGroup:
    """Messages of a run that failed in the same way."""

    label: str
    messages: int = 0
    samples: list[str] = field(default_factory=list)
    message: str | None = None


@dataclass(slots=True)
class Triage:
    """What is in the dead-letter queue.

    Attributes:
        in_queue: How many messages SQS says there are, of all runs.
        looked_at: How many were looked at.
        of_this_run: How many of those are this run's.
        is_complete: Whether the queue was seen to its end.
        groups: This run's messages by class and code, the largest group first.
    """

    in_queue: int = 0
    looked_at: int = 0
    of_this_run: int = 0
    is_complete: bool = True
    groups: list[LetterGroup] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """For the report."""
        return {
            "in_queue": self.in_queue,
            "looked_at": self.looked_at,
            "of_this_run": self.of_this_run,
            "is_complete": self.is_complete,
            "groups": [
                {
                    "label": group.label,
                    "messages": group.messages,
                    "samples": group.samples,
                    "message": group.message,
                    "what_to_do": _what_to_do(group.label),
                }
                for group in self.groups
            ],
        }


def triage(
    client: Any, queue_url: str, run_id: str, *, max_messages: int = MAX_MESSAGES, max_s: float = MAX_SECONDS
) -> Triage:
    """Look at the messages of a dead-letter queue, at most so many and for so long.

    Args:
        client: An SQS client.
        queue_url: The queue.
        run_id: The run whose messages are grouped.
        max_messages: Stop after so many.
        max_s: Stop after so many seconds.
    """
    answer = client.get_queue_attributes(
        QueueUrl=queue_url,
        AttributeNames=["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"],
    )
    found = Triage(in_queue=sum(int(count) for count in answer.get("Attributes", {}).values()))
    receipts: dict[str, str] = {}
    groups: dict[str, LetterGroup] = {}
    deadline = time.monotonic() + max_s
    empty = 0
    try:
        while empty < _EMPTY_RECEIVES:
            if len(receipts) >= max_messages or time.monotonic() > deadline:
                found.is_complete = False
                break
            received = client.receive_message(
                QueueUrl=queue_url,
                MaxNumberOfMessages=10,
                WaitTimeSeconds=0,
                VisibilityTimeout=VISIBILITY_TIMEOUT_S,
                MessageAttributeNames=["All"],
            ).get("Messages", [])
            fresh = [message for message in received if message["MessageId"] not in receipts]
            empty = 0 if fresh else empty + 1
            for message in received:
                receipts[message["MessageId"]] = message["ReceiptHandle"]
            for message in fresh:
                _sort_in(message, run_id, groups)
    finally:
        _put_back(client, queue_url, list(receipts.values()))
    found.looked_at = len(receipts)
    found.in_queue = max(found.in_queue, found.looked_at)
    found.groups = sorted(groups.values(), key=lambda group: (-group.messages, group.label))
    found.of_this_run = sum(group.messages for group in found.groups)
    return found


def _sort_in(message: Mapping[str, Any], run_id: str, groups: dict[str, LetterGroup]) -> None:
    attributes = {
        name: value.get("StringValue") for name, value in message.get("MessageAttributes", {}).items()
    }
    key, body_run = str(message.get("Body", ""))[:200], None
    try:
        document = parse_message(message.get("Body", ""))[0]
    except (MessageError, IndexError):
        pass
    else:
        key = f"s3://{document.bucket}/{document.key}" if document.bucket else document.key
        body_run = document.run_id
    if (attributes.get("run_id") or body_run) != run_id:
        return
    error_class = attributes.get("error_class")
    label = f"{error_class}/{attributes.get('error_code')}" if error_class else _UNSAID
    group = groups.setdefault(label, LetterGroup(label, message=attributes.get("error_message")))
    group.messages += 1
    if len(group.samples) < SAMPLES:
        group.samples.append(key)


def _put_back(client: Any, queue_url: str, receipts: list[str]) -> None:
    """Make the messages visible again at once, for whoever redrives them."""
    for begin in range(0, len(receipts), 10):
        client.change_message_visibility_batch(
            QueueUrl=queue_url,
            Entries=[
                {"Id": str(number), "ReceiptHandle": receipt, "VisibilityTimeout": 0}
                for number, receipt in enumerate(receipts[begin : begin + 10])
            ],
        )


def _what_to_do(label: str) -> str:
    try:
        return ErrorKind.parse(label).what_to_do
    except ValueError:
        return "Its worker died without a word: read the worker's log, then redrive it once."
