"""Pages of documents, from the tables' index: never a scan, and page 1,000 costs what page 1 does.

Documents lie in a few partitions per status, each in order of time; a page is merged from their fronts.
Filters that the index cannot answer look at a bounded number of entries per request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pdf_ops.api.aws import Aws
from pdf_ops.contract.attributes import attribute
from pdf_ops.contract.state import (
    LISTING_HASH_KEY,
    LISTING_INDEX,
    LISTING_RANGE_KEY,
    StateStatus,
    listing_shards,
)

MAX_EXAMINED = 12_000
MAX_OFFSET = 10_000
_FIRST, _LAST = "0", "~"
_MAX_FETCH = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What a listing is to hold.

    Attributes:
        limit: Documents on a page.
        offset: Matching documents to pass over first.
        after: The listing key that the page before ended with.
        is_descending: Whether the newest come first.
        statuses: Only these; all when empty.
        filename: Only names that hold it, whatever the case.
        content_type: Only this kind.
        error_class: Only with this class of error.
        date_from: Only first seen from then on.
        date_to: Only first seen before then.
    """

    limit: int
    offset: int = 0
    after: str | None = None
    is_descending: bool = True
    statuses: tuple[StateStatus, ...] = ()
    filename: str | None = None
    content_type: str | None = None
    error_class: str | None = None
    date_from: datetime | None = None
    date_to: datetime | None = None

    @property
    def bounds(self) -> tuple[str, str]:
        """The listing keys between which the page lies."""
        low = _moment(self.date_from) if self.date_from else _FIRST
        # A key of that very moment goes on with "#", so it lies behind.
        high = _moment(self.date_to) if self.date_to else _LAST
        if self.after is not None:
            low, high = (low, min(high, self.after)) if self.is_descending else (max(low, self.after), high)
        return low, high

    def is_match(self, entry: dict[str, Any]) -> bool:
        """Whether an entry of the index is wanted."""
        if self.content_type and _text(entry, "content_type") != self.content_type:
            return False
        if self.error_class and _text(entry, "error_class") != self.error_class:
            return False
        if self.filename:
            name = _text(entry, "filename") or (_text(entry, "s3_key") or "").rpartition("/")[2]
            return self.filename.casefold() in name.casefold()
        return True


@dataclass(frozen=True, slots=True)
class Listed:
    """A page.

    Attributes:
        keys: The documents' keys, in the listing's order.
        next_after: The listing key after which the next page begins; None at the end.
        examined: How many entries of the index were looked at.
        skip: Matching documents that the next page has still to pass over.
    """

    keys: list[str]
    next_after: str | None
    examined: int
    skip: int = 0


def _moment(moment: datetime) -> str:
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return aware.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text(entry: dict[str, Any], name: str) -> str | None:
    value: str | None = entry.get(name, {}).get("S")
    return value


class _Partition:
    """The front of one of the index's partitions."""

    def __init__(self, aws: Aws, table: str, shard: str, query: Query) -> None:
        self._aws, self._table, self._shard, self._query = aws, table, shard, query
        self._start_key: dict[str, Any] | None = None
        self.buffer: deque[dict[str, Any]] = deque()
        self.is_exhausted = False

    async def fill(self, count: int) -> None:
        """Fetch entries until there is one or no more."""
        while not self.buffer and not self.is_exhausted:
            page = await self._aws.run(self._fetch, count)
            self.buffer.extend(
                item for item in page["Items"] if item[LISTING_RANGE_KEY]["S"] != self._query.after
            )
            self._start_key = page.get("LastEvaluatedKey")
            self.is_exhausted = self._start_key is None

    def _fetch(self, count: int) -> dict[str, Any]:
        low, high = self._query.bounds
        more = {"ExclusiveStartKey": self._start_key} if self._start_key else {}
        found: dict[str, Any] = self._aws.client("dynamodb").query(
            TableName=self._table,
            IndexName=LISTING_INDEX,
            KeyConditionExpression="#shard = :shard AND #key BETWEEN :low AND :high",
            ExpressionAttributeNames={"#shard": LISTING_HASH_KEY, "#key": LISTING_RANGE_KEY},
            ExpressionAttributeValues={
                ":shard": attribute(self._shard),
                ":low": attribute(low),
                ":high": attribute(high),
            },
            ScanIndexForward=not self._query.is_descending,
            Limit=count,
            **more,
        )
        return found


async def list_documents(aws: Aws, table: str, query: Query) -> Listed:
    """One page of documents."""
    shards = [shard for status in query.statuses or tuple(StateStatus) for shard in listing_shards(status)]
    return await _merge(aws, table, shards, query, "s3_key")


async def _merge(aws: Aws, table: str, shards: list[str], query: Query, name: str) -> Listed:
    low, high = query.bounds
    if low > high:
        return Listed([], None, 0)
    partitions = [_Partition(aws, table, shard, query) for shard in shards]
    # An even share of what is passed over comes from each partition, and a whole page may come from one.
    fetch = min(_MAX_FETCH, query.limit + 1 + query.offset // len(shards))
    choose = max if query.is_descending else min
    keys: list[str] = []
    passed_over = examined = 0
    last: str | None = None
    while True:
        await asyncio.gather(*(one.fill(fetch) for one in partitions if not one.buffer))
        waiting = [one for one in partitions if one.buffer]
        if not waiting:
            return Listed(keys, None, examined)
        if len(keys) == query.limit or examined == MAX_EXAMINED:
            return Listed(keys, last, examined, query.offset - passed_over)
        front = choose(waiting, key=lambda one: one.buffer[0][LISTING_RANGE_KEY]["S"])
        entry = front.buffer.popleft()
        last = entry[LISTING_RANGE_KEY]["S"]
        examined += 1
        if not query.is_match(entry):
            continue
        if passed_over < query.offset:
            passed_over += 1
        else:
            keys.append(entry[name]["S"])
