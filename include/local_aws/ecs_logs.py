"""What tasks print, line by line, into CloudWatch Logs: in batches, at most one a second and stream.

Not for the copy in a file, which ``local_aws.ecs_tasks`` writes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

SHIP_INTERVAL_S = 1.0
# The limits of PutLogEvents: events and bytes in a batch, and the bytes that each event counts on top.
MAX_BATCH_EVENTS = 10_000
MAX_BATCH_BYTES = 1_048_576
EVENT_OVERHEAD_BYTES = 26
MAX_LINE_BYTES = 262_144 - EVENT_OVERHEAD_BYTES
# While CloudWatch Logs does not answer, so many lines of a stream are kept.
MAX_PENDING_EVENTS = 100_000

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogStream:
    """Where a container's lines go."""

    group: str
    name: str


class LogStreamError(Exception):
    """The stream cannot be created."""


class LogShipper:
    """Collects lines from every task, and sends them from one thread.

    Args:
        connect: Gives a boto3 client for CloudWatch Logs; called when the first stream is opened.
    """

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect
        self._client: Any = None
        self._pending: dict[LogStream, list[dict[str, Any]]] = defaultdict(list)
        self._lock = threading.Lock()  # of the pending lines
        self._sending = threading.Lock()  # so that a stream's batches stay in order

    def open(self, stream: LogStream) -> None:
        """Create the stream.

        Raises:
            LogStreamError: If that cannot be done, e.g. because there is no such group.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        with self._sending:
            if self._client is None:
                self._client = self._connect()
                threading.Thread(target=self._ship, name="log-shipper", daemon=True).start()
        try:
            self._client.create_log_stream(logGroupName=stream.group, logStreamName=stream.name)
        except (BotoCoreError, ClientError) as error:
            raise LogStreamError(str(error)) from error

    def append(self, stream: LogStream, line: str) -> None:
        """Take a line; an empty one is left out, as CloudWatch Logs would refuse it."""
        if line:
            event = {"timestamp": time.time_ns() // 1_000_000, "message": line}
            with self._lock:
                self._pending[stream].append(event)

    def flush(self, stream: LogStream) -> None:
        """Send what there is of a stream; what cannot be sent is kept for later."""
        from botocore.exceptions import BotoCoreError, ClientError

        with self._sending:
            with self._lock:
                events = self._pending.pop(stream, [])
            while events:
                count = batch_length(events)
                try:
                    self._client.put_log_events(
                        logGroupName=stream.group, logStreamName=stream.name, logEvents=events[:count]
                    )
                except (BotoCoreError, ClientError) as error:
                    log.warning("log stream %s: %s", stream.name, error)
                    with self._lock:
                        self._pending[stream] = (events + self._pending[stream])[-MAX_PENDING_EVENTS:]
                    return
                events = events[count:]

    def _ship(self) -> None:
        while True:
            time.sleep(SHIP_INTERVAL_S)
            with self._lock:
                streams = list(self._pending)
            for stream in streams:
                self.flush(stream)


def batch_length(events: list[dict[str, Any]]) -> int:
    """How many of the events, from the first on, fit into one PutLogEvents."""
    size_bytes = 0
    for count, event in enumerate(events[:MAX_BATCH_EVENTS]):
        size_bytes += len(event["message"].encode("utf-8")) + EVENT_OVERHEAD_BYTES
        if size_bytes > MAX_BATCH_BYTES:
            return count
    return min(len(events), MAX_BATCH_EVENTS)
