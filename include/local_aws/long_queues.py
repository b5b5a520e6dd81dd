"""Keeps ministack's queues fast when they are long.

ministack looks at every message of a queue several times for each receive and delete: with 20,000 waiting,
a batch of ten takes about 100 ms. Here the messages that nobody has received yet wait apart, and ministack
sees those in flight and a handful more. Not for FIFO queues, which are left as they are.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    QueueRecord = dict[str, Any]
    Message = dict[str, Any]

# A shorter queue is left to ministack alone.
SHORT_QUEUE = 200
_WAITING = "pdf_ops_waiting"
_VISIBLE = "ApproximateNumberOfMessages"


def install() -> None:
    """Change ministack's SQS in this process."""
    from ministack.services import sqs

    collect: Callable[[QueueRecord, int, int], list[Message]] = sqs._collect_msgs
    count: Callable[[QueueRecord], None] = sqs._refresh_counts
    purge: Callable[[dict[str, Any], str], dict[str, Any]] = sqs._HANDLERS["PurgeQueue"]

    def collect_few(queue: QueueRecord, wanted: int, visibility_timeout_s: int) -> list[Message]:
        if not queue["is_fifo"]:
            set_apart(queue, wanted, time.time())
        return collect(queue, wanted, visibility_timeout_s)

    def count_all(queue: QueueRecord) -> None:
        count(queue)
        attributes = queue["attributes"]
        attributes[_VISIBLE] = str(int(attributes[_VISIBLE]) + len(queue.get(_WAITING, ())))

    def purge_all(data: dict[str, Any], url: str) -> dict[str, Any]:
        answer = purge(data, url)
        sqs._get_q(data.get("QueueUrl", url)).pop(_WAITING, None)
        return answer

    sqs._collect_msgs = collect_few
    sqs._refresh_counts = count_all
    sqs._HANDLERS["PurgeQueue"] = purge_all


def set_apart(queue: QueueRecord, wanted: int, now: float) -> None:
    """Put fresh messages behind those that wait already, and take from their front what is wanted."""
    messages: list[Message] = queue["messages"]
    waiting: deque[Message] = queue.setdefault(_WAITING, deque())
    if waiting or len(messages) > SHORT_QUEUE:
        # Other threads append (S3's notifications): what comes after this many is left for next time.
        seen = len(messages)
        kept: list[Message] = []
        for message in messages[:seen]:
            is_fresh = not message.get("receive_count") and message.get("visible_at", now) <= now
            (waiting if is_fresh else kept).append(message)
        messages[:seen] = kept
    missing = wanted - sum(message.get("visible_at", now) <= now for message in messages)
    messages.extend(waiting.popleft() for _ in range(min(missing, len(waiting))))
