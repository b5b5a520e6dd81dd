"""Lines become batches that CloudWatch Logs takes, and none is lost while it does not answer."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import EndpointConnectionError

from local_aws.ecs_logs import (
    EVENT_OVERHEAD_BYTES,
    MAX_BATCH_BYTES,
    MAX_BATCH_EVENTS,
    LogShipper,
    LogStream,
    batch_length,
)

STREAM = LogStream("/group", "stream")


def test_a_batch_holds_as_many_events_and_bytes_as_are_allowed() -> None:
    small = [{"message": "x"}] * (MAX_BATCH_EVENTS + 1)
    # Two bytes each in UTF-8: two of these fill a batch exactly.
    half = [{"message": "ü" * (MAX_BATCH_BYTES // 4 - EVENT_OVERHEAD_BYTES // 2)}] * 3

    assert batch_length(small) == MAX_BATCH_EVENTS
    assert batch_length(small[:5]) == 5
    assert batch_length(half) == 2


class Logs:
    """CloudWatch Logs that can be away."""

    def __init__(self) -> None:
        self.is_away = False
        self.messages: list[str] = []

    def create_log_stream(self, **_arguments: Any) -> None: ...

    def put_log_events(self, *, logEvents: list[dict[str, Any]], **_arguments: Any) -> None:  # noqa: N803
        if self.is_away:
            raise EndpointConnectionError(endpoint_url="http://away")
        self.messages += [event["message"] for event in logEvents]


def test_lines_that_could_not_be_sent_are_sent_later_and_in_order() -> None:
    logs = Logs()
    shipper = LogShipper(lambda: logs)
    shipper.open(STREAM)
    logs.is_away = True
    shipper.append(STREAM, "one")
    shipper.flush(STREAM)
    shipper.append(STREAM, "")
    shipper.append(STREAM, "two")
    assert logs.messages == []

    logs.is_away = False
    shipper.flush(STREAM)

    assert logs.messages == ["one", "two"]
