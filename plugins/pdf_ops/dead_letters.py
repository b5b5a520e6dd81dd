"""A look into the dead-letter queue: which of a run's documents are there, and why.

Messages are looked at and put back; only a redrive deletes those that it has sent round again. Not for
closing documents: the completion sensor does that.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from pdf_ops.contract.errors import ErrorKind
from pdf_ops.contract.messages import MessageError, parse_message

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pdf_ops.contract.messages import DocumentMessage

MAX_MESSAGES = 2_000
MAX_SECONDS = 30.0
VISIBILITY_TIMEOUT_S = 60
SAMPLES = 5
_EMPTY_RECEIVES = 3
_LETTERS_PER_S = 50
"""Slower than SQS gives them out by ten, also from another region."""
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
                    "what_to_do": what_to_do(group.label),
                }
                for group in self.groups
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """One message of a dead-letter queue, with what its worker said about it.

    Attributes:
        receipt: For deleting it.
        body: The message.
        sent_ms: When it was sent, milliseconds since the epoch.
        run_id: The run that it failed in, if known.
        s3_key: The document, as the state table knows it, if its worker said so.
        error_class: What went wrong; None if its worker died without a word.
        error_code: What exactly.
        error_message: In words.
        documents: The documents that the message names; none if it cannot be read.
    """

    receipt: str
    body: str
    sent_ms: int
    run_id: str | None
    s3_key: str | None
    error_class: str | None
    error_code: str | None
    error_message: str | None
    documents: tuple[DocumentMessage, ...]

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> Letter:
        """Read a received message."""
        said = {
            name: value.get("StringValue") for name, value in message.get("MessageAttributes", {}).items()
        }
        body = str(message.get("Body", ""))
        try:
            documents = parse_message(body)
        except MessageError:
            documents = ()
        return cls(
            receipt=message["ReceiptHandle"],
            body=body,
            sent_ms=int(message.get("Attributes", {}).get("SentTimestamp", 0)),
            run_id=said.get("run_id") or (documents[0].run_id if documents else None),
            s3_key=said.get("s3_key"),
            error_class=said.get("error_class"),
            error_code=said.get("error_code"),
            error_message=said.get("error_message"),
            documents=documents,
        )

    @property
    def label(self) -> str:
        """Class and code, as people read them."""
        return f"{self.error_class}/{self.error_code}" if self.error_class else _UNSAID


class LetterReader:
    """Goes through a dead-letter queue once, and puts back what nobody deletes.

    :param client: An SQS client.
    :param queue_url: The queue.
    :param max_messages: Stop after so many.
    :param max_s: Stop after so many seconds.
    """

    def __init__(self, client: Any, queue_url: str, *, max_messages: int, max_s: float) -> None:
        self.client, self.queue_url = client, queue_url
        self.max_messages, self.max_s = max_messages, max_s
        self.looked_at = 0
        self.is_complete = True
        """Whether the queue was seen to its end."""
        self._kept: dict[str, str] = {}

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """Make the messages visible again at once, for whoever comes next."""
        _put_back(self.client, self.queue_url, list(self._kept.values()))

    def batches(self) -> Iterator[list[Letter]]:
        """The messages that have not been seen yet, as they are received."""
        deadline = time.monotonic() + self.max_s
        # None may come back before the queue is seen to its end. No longer than that: what a killed
        # process has in hand is hidden for as long.
        expected_s = count_letters(self.client, self.queue_url) / _LETTERS_PER_S
        hidden_s = round(VISIBILITY_TIMEOUT_S + min(self.max_s, expected_s))
        seen: set[str] = set()
        empty = 0
        while empty < _EMPTY_RECEIVES:
            if len(seen) >= self.max_messages or time.monotonic() > deadline:
                self.is_complete = False
                return
            received = self.client.receive_message(
                QueueUrl=self.queue_url,
                MaxNumberOfMessages=10,
                WaitTimeSeconds=0,
                VisibilityTimeout=hidden_s,
                MessageAttributeNames=["All"],
                MessageSystemAttributeNames=["SentTimestamp"],
            ).get("Messages", [])
            fresh = [message for message in received if message["MessageId"] not in seen]
            empty = 0 if fresh else empty + 1
            for message in received:
                seen.add(message["MessageId"])
                self._kept[message["MessageId"]] = message["ReceiptHandle"]
            self.looked_at = len(seen)
            if fresh:
                yield [Letter.of(message) for message in fresh]

    def delete(self, letters: Sequence[Letter]) -> int:
        """Delete messages, at most ten; gives how many are gone."""
        if not letters:
            return 0
        answer = self.client.delete_message_batch(
            QueueUrl=self.queue_url,
            Entries=[{"Id": str(at), "ReceiptHandle": one.receipt} for at, one in enumerate(letters)],
        )
        gone = {letters[int(entry["Id"])].receipt for entry in answer.get("Successful", [])}
        self._kept = {name: receipt for name, receipt in self._kept.items() if receipt not in gone}
        return len(gone)


def count_letters(client: Any, queue_url: str) -> int:
    """How many messages SQS says there are, also those that somebody is looking at."""
    answer = client.get_queue_attributes(
        QueueUrl=queue_url,
        AttributeNames=["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"],
    )
    return sum(int(count) for count in answer.get("Attributes", {}).values())


def peek(client: Any, queue_url: str, *, calls: int = 10) -> list[Letter]:
    """A sample of the messages, hidden from nobody, not even for a moment.

    With no visibility timeout a received message is there at once for whoever comes next. It counts as
    a receive, which means nothing in a queue that has no redrive policy of its own.
    """
    found: dict[str, Letter] = {}
    for _ in range(calls):
        received = client.receive_message(
            QueueUrl=queue_url,
            MaxNumberOfMessages=10,
            WaitTimeSeconds=0,
            VisibilityTimeout=0,
            MessageAttributeNames=["All"],
            MessageSystemAttributeNames=["SentTimestamp"],
        ).get("Messages", [])
        for message in received:
            found[message["MessageId"]] = Letter.of(message)
    return list(found.values())


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
    found = Triage(in_queue=count_letters(client, queue_url))
    groups: dict[str, LetterGroup] = {}
    with LetterReader(client, queue_url, max_messages=max_messages, max_s=max_s) as reader:
        for batch in reader.batches():
            for letter in batch:
                if letter.run_id == run_id:
                    _sort_in(letter, groups)
    found.looked_at, found.is_complete = reader.looked_at, reader.is_complete
    found.in_queue = max(found.in_queue, found.looked_at)
    found.groups = sorted(groups.values(), key=lambda group: (-group.messages, group.label))
    found.of_this_run = sum(group.messages for group in found.groups)
    return found


def _sort_in(letter: Letter, groups: dict[str, LetterGroup]) -> None:
    key = letter.body[:200]
    if letter.documents:
        document = letter.documents[0]
        key = f"s3://{document.bucket}/{document.key}" if document.bucket else document.key
    group = groups.setdefault(letter.label, LetterGroup(letter.label, message=letter.error_message))
    group.messages += 1
    if len(group.samples) < SAMPLES:
        group.samples.append(key)


def _put_back(client: Any, queue_url: str, receipts: list[str]) -> None:
    for begin in range(0, len(receipts), 10):
        client.change_message_visibility_batch(
            QueueUrl=queue_url,
            Entries=[
                {"Id": str(number), "ReceiptHandle": receipt, "VisibilityTimeout": 0}
                for number, receipt in enumerate(receipts[begin : begin + 10])
            ],
        )


def what_to_do(label: str) -> str:
    """What helps against an error, by its class and code."""
    try:
        return ErrorKind.parse(label).what_to_do
    except ValueError:
        return "Its worker died without a word: read the worker's log, then redrive it once."
