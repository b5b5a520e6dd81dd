"""The state table: one item per document, what is known about it across all runs.

Its hash key and first attributes are those that users of the table know; the rest is ours. Not for
talking to DynamoDB.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pdf_ops.contract.attributes import values_of
from pdf_ops.contract.layout import S3Uri

if TYPE_CHECKING:
    from collections.abc import Mapping

HASH_KEY = "s3_key"

LISTING_INDEX = "listing"
LISTING_HASH_KEY = "listing_shard"
LISTING_RANGE_KEY = "listing_key"
LISTING_SHARDS = 8
"""Partitions of the index per status, so that a fleet's commits do not make one of them hot."""


class StateStatus(StrEnum):
    """Where a document stands."""

    PENDING = "pending"
    PROCESSING = "processing"
    DONE = "done"
    PARTIAL = "partial"
    FAILED = "failed"


def state_key(bucket: str, key: str, default_bucket: str) -> str:
    """The item's hash key: the key alone in the usual bucket, the whole URI in any other."""
    return key if bucket == default_bucket else str(S3Uri(bucket, key))


def listing_shard(status: StateStatus, s3_key: str) -> str:
    """The index's partition of a document; every write that changes the status writes it too."""
    digest = hashlib.sha256(s3_key.encode("utf-8", "surrogatepass")).digest()
    return f"{status.value}#{digest[0] % LISTING_SHARDS}"


def listing_shards(status: StateStatus) -> tuple[str, ...]:
    """All partitions of the index with documents of a status."""
    return tuple(f"{status.value}#{number}" for number in range(LISTING_SHARDS))


def new_listing_key(s3_key: str, created_at: datetime) -> str:
    """The index's sort key of a document that is first seen now; it is written once.

    By time, with a hash of the key behind it, so that no two documents share one and a page of a
    listing can begin after any of them.
    """
    moment = created_at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    digest = hashlib.sha256(s3_key.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{moment}#{digest[:16]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentState:
    """One item of the state table.

    Attributes:
        s3_key: The hash key.
        status: Where the document stands.
        pages_processed: Pages read so far; moves while the document is being read.
        total_pages: How many pages it has, once it is open.
        attempts: Tries that were charged to the document.
        last_updated: When the item last changed, ISO 8601 in UTC.
        last_error: What went wrong last, at most 1 KB.
        etag: The object that this is about.
        version_id: Its version, in a versioned bucket.
        config_hash: How it was read.
        run_id: The run that read it last.
        worker_id: The worker that has or had it.
        lease_token: Whoever holds the lease knows it; the fence of every later write.
        lease_until: When the lease ends, milliseconds since the epoch; 0 when nobody has it.
        unfinished: How often a worker took it and never came back.
        output_uri: Where its page rows are.
        error_class: The class of the last error.
        error_code: The code of the last error.
        is_dead_letter: Whether this failure has been sent to the dead-letter queue.
        listing_key: The index's sort key; it begins with the time when the document was first seen.
        size_bytes: The object's size.
        content_type: What its bytes are, once somebody has looked.
        filename: Its name where the key does not tell: that of an upload.
    """

    s3_key: str
    status: StateStatus
    pages_processed: int = 0
    total_pages: int | None = None
    attempts: int = 0
    last_updated: str | None = None
    last_error: str | None = None
    etag: str | None = None
    version_id: str | None = None
    config_hash: str | None = None
    run_id: str | None = None
    worker_id: str | None = None
    lease_token: str | None = None
    lease_until: int = 0
    unfinished: int = 0
    output_uri: str | None = None
    error_class: str | None = None
    error_code: str | None = None
    is_dead_letter: bool = False
    listing_key: str | None = None
    size_bytes: int | None = None
    content_type: str | None = None
    filename: str | None = None

    @property
    def created_at(self) -> str | None:
        """When the document was first seen, ISO 8601 in UTC."""
        return self.listing_key.partition("#")[0] if self.listing_key else None

    @classmethod
    def from_item(cls, item: Mapping[str, Any]) -> DocumentState:
        """Read an item; attributes that are not ours are left alone.

        Raises:
            ItemError: If an attribute has a type that we never write.
            ValueError: If the status is none of ours.
        """
        known = {name: typed for name, typed in item.items() if name in cls.__dataclass_fields__}
        values: dict[str, Any] = values_of(known)
        return cls(**values | {"status": StateStatus(values["status"])})

    def is_read(self, etag: str | None, config_hash: str) -> bool:
        """Whether these bytes have been read in this way: then there is nothing to do."""
        return (
            self.status in (StateStatus.DONE, StateStatus.PARTIAL)
            and self.etag == etag
            and self.config_hash == config_hash
        )
