"""Enqueue: one message per document that a listing's shard says to send.

May run twice, which costs duplicate messages and nothing else. Not for deciding what to send.
"""

from __future__ import annotations

import gzip
import io
import random
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from pdf_ops.contract.layout import S3Uri
from pdf_ops.contract.listing import read_lines
from pdf_ops.contract.messages import DocumentMessage
from pdf_ops.exceptions import EnqueueError
from pdf_ops.hooks.clients import aws_client, is_permanent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from concurrent.futures import Future

    from airflow.sdk import Context

    from pdf_ops.contract.listing import ListedObject

BATCH_MESSAGES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSender:
    """Sends messages in batches of ten, and those that the queue refused again.

    Attributes:
        client: SQS.
        queue_url: The queue.
        max_attempts: How often a message is tried.
        backoff_s: The first wait before a message is tried again; it doubles, with jitter.
    """

    client: Any
    queue_url: str
    max_attempts: int = 8
    backoff_s: float = 0.2

    def send(self, messages: Sequence[DocumentMessage]) -> int:
        """Send at most ten messages.

        Raises:
            EnqueueError: Naming the documents whose message the queue never took.
        """
        left = list(messages)
        reason = ""
        for attempt in range(self.max_attempts):
            if attempt:
                time.sleep(min(self.backoff_s * 2 ** (attempt - 1), 20.0) * random.uniform(0.5, 1.5))  # noqa: S311
            left, reason, can_help = self._send_once(left)
            if not left:
                return len(messages)
            if not can_help:
                break
        raise EnqueueError(reason, [message.key for message in left], len(left))

    def _send_once(self, messages: list[DocumentMessage]) -> tuple[list[DocumentMessage], str, bool]:
        """Send once; gives those that were refused, why, and whether trying again can help."""
        from botocore.exceptions import BotoCoreError, ClientError

        entries = [
            {"Id": str(position), "MessageBody": message.to_json()}
            for position, message in enumerate(messages)
        ]
        try:
            answer = self.client.send_message_batch(QueueUrl=self.queue_url, Entries=entries)
        except (ClientError, BotoCoreError) as error:
            return messages, str(error), not is_permanent(error)
        failed = answer.get("Failed", [])
        if not failed:
            return [], "", True
        # One that is our own fault is refused again, but the others of the batch need not be.
        return (
            [messages[int(entry["Id"])] for entry in failed],
            "; ".join(sorted({f"{entry['Code']}: {entry.get('Message', '')}" for entry in failed})),
            not all(entry.get("SenderFault") for entry in failed),
        )


class PdfEnqueueOperator(BaseOperator):
    """Send a message for each document of a listing's shard that is to be read; give their number.

    :param shard_uri: The shard; map over it.
    :param queue_url: The workers' queue.
    :param run_id: The run.
    :param batches_in_flight: How many batches are sent at once.
    :param aws_conn_id: The Airflow connection used for AWS credentials.
    :param region_name: The AWS region, if not the connection's own.
    """

    template_fields: Sequence[str] = (
        "shard_uri",
        "queue_url",
        "run_id",
        "batches_in_flight",
        "aws_conn_id",
        "region_name",
    )
    ui_color = "#dbe9f6"

    def __init__(
        self,
        *,
        shard_uri: str,
        queue_url: str,
        run_id: str = "{{ run_id }}",
        batches_in_flight: int | str = 8,
        aws_conn_id: str | None = "aws_default",
        region_name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.shard_uri = shard_uri
        self.queue_url = queue_url
        self.run_id = run_id
        self.batches_in_flight = batches_in_flight
        self.aws_conn_id = aws_conn_id
        self.region_name = region_name

    def execute(self, context: Context) -> int:
        """Send the shard's messages."""
        in_flight = int(self.batches_in_flight)
        uri = S3Uri.parse(self.shard_uri)
        shard = uri.key.rpartition("/")[2].partition(".")[0]
        client = aws_client("s3", aws_conn_id=self.aws_conn_id, region_name=self.region_name)
        # Whole, since a shard has about a megabyte: S3 would hang up on a slow reader.
        packed = client.get_object(Bucket=uri.bucket, Key=uri.key)["Body"].read()
        sender = BatchSender(
            client=aws_client(
                "sqs", aws_conn_id=self.aws_conn_id, region_name=self.region_name, connections=in_flight
            ),
            queue_url=self.queue_url,
        )
        started = time.monotonic()
        with gzip.open(io.BytesIO(packed)) as lines:
            messages = messages_of(read_lines(lines), run_id=self.run_id, shard=shard)
            sent = send_all(sender, messages, in_flight)
        elapsed_s = max(time.monotonic() - started, 1e-6)
        self.log.info(
            "%s: %s messages sent in %.1f s, %s a second",
            shard,
            f"{sent:,}",
            elapsed_s,
            f"{sent / elapsed_s:,.0f}",
        )
        return sent


def messages_of(listed: Iterable[ListedObject], *, run_id: str, shard: str) -> Iterator[DocumentMessage]:
    """The messages of those objects that are to be read."""
    return (
        DocumentMessage(
            bucket=found.bucket,
            key=found.key,
            version_id=found.version_id,
            etag=found.etag or None,
            size=found.size,
            run_id=run_id,
            shard=shard,
        )
        for found in listed
        if found.decision.is_sent
    )


def send_all(sender: BatchSender, messages: Iterable[DocumentMessage], in_flight: int) -> int:
    """Send messages with a bounded number of batches on the way; give how many there were.

    Raises:
        EnqueueError: Naming documents whose message the queue never took. The others are sent all the
            same, so that a second try of the task adds as few duplicates as can be.
    """
    sent = 0
    lost: list[EnqueueError] = []
    ahead: deque[Future[int]] = deque()

    def collect() -> int:
        try:
            return ahead.popleft().result()
        except EnqueueError as error:
            lost.append(error)
            return 0

    with ThreadPoolExecutor(in_flight, thread_name_prefix="send") as pool:
        for batch in batches(messages, BATCH_MESSAGES):
            if len(ahead) >= 2 * in_flight:
                sent += collect()
            if len(lost) > in_flight:
                break
            ahead.append(pool.submit(sender.send, batch))
        while ahead:
            sent += collect()
    if lost:
        keys = [key for error in lost for key in error.keys]
        raise EnqueueError(lost[0].reason, keys, sum(error.count for error in lost))
    return sent


def batches(messages: Iterable[DocumentMessage], size: int) -> Iterator[list[DocumentMessage]]:
    """Cut into lists of a size; ``itertools.batched`` is new in Python 3.12."""
    batch: list[DocumentMessage] = []
    for message in messages:
        batch.append(message)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
