"""The state table: one item per document, what is known about it across all runs.

Its hash key and first attributes are those that users of the table know; the rest is ours. Not for
talking to DynamoDB.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pdf_ops.contract.attributes import values_of
from pdf_ops.contract.layout import S3Uri

if TYPE_CHECKING:
    from collections.abc import Mapping

HASH_KEY = "s3_key"


class StateStatus(StrEnum):
    """Where a document stands."""

    PROCESSING = "processing"
    DONE = "done"
    PARTIAL = "partial"
    FAILED = "failed"


def state_key(bucket: str, key: str, default_bucket: str) -> str:
    """The item's hash key: the key alone in the usual bucket, the whole URI in any other."""
    return key if bucket == default_bucket else str(S3Uri(bucket, key))


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
