"""The runs table: what a run asked for, what each worker has counted, and one outcome per document.

A document's or worker's hash picks one of 16 partitions of the run, so that none runs hot. Each
worker counts in an item of its own, since one item for all would conflict. Not for talking to DynamoDB.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from pdf_ops.contract.attributes import Item, item_of, values_of
from pdf_ops.contract.documents import DocumentStatus
from pdf_ops.contract.fingerprint import OcrMode, ReadingConfig
from pdf_ops.contract.state import LISTING_HASH_KEY, LISTING_RANGE_KEY, new_listing_key

if TYPE_CHECKING:
    from collections.abc import Mapping

HASH_KEY = "run_shard"
RANGE_KEY = "part"
TTL_ATTRIBUTE = "expires_at"
SHARDS = 16
RETENTION_DAYS = 90

TOTAL_PART = "total"
RUNS_LISTING_SHARD = "runs"
"""The partition of the index that lists runs; only a run's own item is in it."""
WORKER_PREFIX = "worker#"
DOCUMENT_PREFIX = "document#"


def _shard(text: str) -> int:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[0] % SHARDS


def run_shard(run_id: str, number: int) -> str:
    """The hash key of one of a run's partitions."""
    return f"{run_id}#{number:02d}"


def run_shards(run_id: str) -> tuple[str, ...]:
    """The hash keys of all partitions of a run."""
    return tuple(run_shard(run_id, number) for number in range(SHARDS))


def total_key(run_id: str) -> Item:
    """The key of the run's own item."""
    return item_of({HASH_KEY: run_shard(run_id, 0), RANGE_KEY: TOTAL_PART})


def worker_key(run_id: str, worker_id: str) -> Item:
    """The key of a worker's counters in a run."""
    return item_of({HASH_KEY: run_shard(run_id, _shard(worker_id)), RANGE_KEY: f"{WORKER_PREFIX}{worker_id}"})


def letters_watch_key(queue_name: str) -> Item:
    """The key of what was last known about a dead-letter queue; no run's, and it stays."""
    return item_of({HASH_KEY: "watch#letters", RANGE_KEY: queue_name})


def outcome_key(run_id: str, s3_key: str) -> Item:
    """The key of a document's outcome in a run.

    A hash of the state table's key, since a range key has at most 1,024 bytes and that may be longer.
    """
    digest = hashlib.sha256(s3_key.encode("utf-8", "surrogatepass")).hexdigest()
    return item_of(
        {HASH_KEY: run_shard(run_id, _shard(s3_key)), RANGE_KEY: f"{DOCUMENT_PREFIX}{digest[:40]}"}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """The run's own item, written once before its first message is sent.

    Attributes:
        run_id: The run.
        documents: How many documents it sends.
        size_bytes: Their size together.
        reading: How they are to be read.
        is_forced: Whether documents are read again that have been read already.
        created_at: When, ISO 8601 in UTC.
        run_date: The date that the run's rows are filed under, ``YYYY-MM-DD``.
        expires_at: When the item may go, seconds since the epoch.
    """

    run_id: str
    documents: int
    size_bytes: int
    reading: ReadingConfig
    is_forced: bool
    created_at: str
    run_date: str
    expires_at: int

    def to_item(self) -> Item:
        """As the table holds it."""
        reading = {
            "ocr": self.reading.ocr.value,
            "languages": list(self.reading.languages),
            "dpi": self.reading.dpi,
            "max_page_pixels": self.reading.max_page_pixels,
            "trust_ocr_layer": self.reading.trust_ocr_layer,
        }
        return total_key(self.run_id) | item_of(
            {
                "run_id": self.run_id,
                "documents": self.documents,
                "size_bytes": self.size_bytes,
                "reading": json.dumps(reading, sort_keys=True),
                "is_forced": self.is_forced,
                "created_at": self.created_at,
                "run_date": self.run_date,
                TTL_ATTRIBUTE: self.expires_at,
                LISTING_HASH_KEY: RUNS_LISTING_SHARD,
                LISTING_RANGE_KEY: new_listing_key(self.run_id, datetime.fromisoformat(self.created_at)),
            }
        )

    @classmethod
    def from_item(cls, item: Mapping[str, Any]) -> RunRecord:
        """Read the item.

        Raises:
            ItemError: If it is none.
        """
        values: dict[str, Any] = values_of(item)
        reading = json.loads(values["reading"])
        reading.update(ocr=OcrMode(reading["ocr"]), languages=tuple(reading["languages"]))
        given = {field.name: values[field.name] for field in fields(cls) if field.name != "reading"}
        return cls(**given, reading=ReadingConfig(**reading))


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What one worker, or all of them together, did in a run."""

    done: int = 0
    partial: int = 0
    failed: int = 0
    skipped: int = 0
    pages: int = 0
    pages_ocr: int = 0
    pages_error: int = 0
    size_bytes: int = 0
    cpu_ms: int = 0
    retries: int = 0
    wasted_ms: int = 0

    @property
    def documents(self) -> int:
        """Documents with an outcome."""
        return self.done + self.partial + self.failed + self.skipped

    @classmethod
    def of(cls, status: DocumentStatus, **counts: int) -> Counters:
        """The counters of one document."""
        return cls(**{status.value: 1}, **counts)

    def __add__(self, other: Self) -> Self:
        """Both together."""
        return type(self)(
            **{field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(self)}
        )

    @classmethod
    def from_item(cls, item: Mapping[str, Any]) -> Counters:
        """Read a worker's item."""
        names = {field.name for field in fields(cls)}
        values: dict[str, Any] = values_of({name: typed for name, typed in item.items() if name in names})
        return cls(**values)

    def non_zero(self) -> dict[str, int]:
        """Those that count anything: what an ``ADD`` names."""
        return {field.name: getattr(self, field.name) for field in fields(self) if getattr(self, field.name)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one document in one run.

    Attributes:
        run_id: The run.
        s3_key: The state table's key of the document.
        status: What became of it.
        etag: The object that was read.
        pages: Page rows that were written.
        worker_id: Who committed it.
        committed_at: When, ISO 8601 in UTC.
        done_by: For a skipped document, the run that had read it.
        error_class: The error's class, if there is one.
        error_code: The error's code.
        expires_at: When the item may go, seconds since the epoch.
    """

    run_id: str
    s3_key: str
    status: DocumentStatus
    etag: str | None = None
    pages: int = 0
    worker_id: str
    committed_at: str
    done_by: str | None = None
    error_class: str | None = None
    error_code: str | None = None
    expires_at: int

    def to_item(self) -> Item:
        """As the table holds it."""
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        return outcome_key(self.run_id, self.s3_key) | item_of(values | {"status": self.status.value})

    @classmethod
    def from_item(cls, item: Mapping[str, Any]) -> Outcome:
        """Read the item."""
        known = {field.name for field in fields(cls)}
        values: dict[str, Any] = values_of({name: typed for name, typed in item.items() if name in known})
        status = next(member for member in DocumentStatus if member.value == values["status"])
        return cls(**values | {"status": status})
