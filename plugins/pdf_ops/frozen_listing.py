"""A frozen listing in S3: its shards, and the summary that makes it final. Not for deciding what is in it."""

from __future__ import annotations

import gzip
import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO

from pdf_ops.contract.layout import Layout, S3Uri
from pdf_ops.contract.listing import SHARD_LINES, ListedObject
from pdf_ops.exceptions import ListingConflictError
from pdf_ops.hooks.clients import error_code

if TYPE_CHECKING:
    from pathlib import Path

SUMMARY_NAME = "listing.json"
"""Beside the folder of shards, so that whatever lies in that folder is a shard."""
MAX_SHARD_LINES = 100_000
"""A shard ends here even if few of its lines are sent."""
DOUBLE_SHARDS_EVERY = 256
"""Airflow maps over 1,024 shards at most, so shards grow: 19 million documents fit."""
_MAX_SHARD_NUMBERS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingSummary:
    """What a frozen listing holds; the object that makes it final.

    Attributes:
        run_id: The run.
        source: What was listed, ``s3://bucket/prefix``.
        window: Which changes were looked at, in words.
        listing_prefix: Where the shards are.
        shards: The shards with something to send.
        all_shards: All shards.
        documents: How many objects are sent, or would be in a dry run.
        size_bytes: Their size together.
        counts: Objects per decision.
        reasons: Excluded objects per reason.
        is_dry_run: Whether nothing is sent.
        is_forced: Whether what was read already is sent again.
        config_hash: How documents are to be read.
        created_at: When it was frozen, ISO 8601 in UTC.
        run_date: The date that the run's rows are filed under.
    """

    run_id: str
    source: str
    window: str
    listing_prefix: str
    shards: list[str] = field(default_factory=list)
    all_shards: list[str] = field(default_factory=list)
    documents: int = 0
    size_bytes: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    is_dry_run: bool = False
    is_forced: bool = False
    config_hash: str = ""
    created_at: str = ""
    run_date: str = ""

    def to_json(self) -> str:
        """As the object holds it."""
        return json.dumps(asdict(self), indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> ListingSummary:
        """Read the object."""
        return cls(**json.loads(text))


class ShardWriter:
    """Writes lines to shards: gzipped to a temporary file, uploaded when full, written once.

    :param client: S3.
    :param layout: Where shards go.
    :param run_id: The run.
    :param folder: For the temporary file.
    """

    def __init__(self, *, client: Any, layout: Layout, run_id: str, folder: Path) -> None:
        self.client, self.layout, self.run_id = client, layout, run_id
        self.path = folder / "shard.jsonl.gz"
        self.next_number = 0
        self.sent_shards: list[str] = []
        self.all_shards: list[str] = []
        self._file: BinaryIO | None = None
        self._gzip: gzip.GzipFile | None = None
        self._lines = self._sent = 0

    def write(self, listed: ListedObject) -> None:
        """Add an object."""
        if self._gzip is None:
            self._file = self.path.open("wb")
            # No time and no name inside: the same lines make the same bytes.
            self._gzip = gzip.GzipFile(filename="", mode="wb", fileobj=self._file, compresslevel=5, mtime=0)
        self._gzip.write(listed.to_line().encode("ascii"))
        self._lines += 1
        self._sent += listed.decision.is_sent
        full = SHARD_LINES << (len(self.sent_shards) // DOUBLE_SHARDS_EVERY)
        if self._sent >= full or self._lines >= max(MAX_SHARD_LINES, full):
            self.finish()

    def finish(self) -> None:
        """Upload what is left."""
        if self._gzip is None or self._file is None:
            return
        self._gzip.close()
        self._file.close()
        uri = str(self._upload())
        self.all_shards.append(uri)
        if self._sent:
            self.sent_shards.append(uri)
        self._gzip = self._file = None
        self._lines = self._sent = 0

    def _upload(self) -> S3Uri:
        """Upload under the next number that is free: one may be another try's, who may still live."""
        for _ in range(_MAX_SHARD_NUMBERS):
            uri = self.layout.listing_shard(self.run_id, self.next_number)
            self.next_number += 1
            if put_once(self.client, uri, self.path.read_bytes(), "application/gzip"):
                return uri
        raise ListingConflictError(
            f"{self.layout.listing_prefix(self.run_id)}: another try of this task is writing shards; "
            "wait until it has ended, then clear this task"
        )


def summary_of(layout: Layout, run_id: str) -> S3Uri:
    """Where the summary of a run's listing is."""
    prefix = layout.run_prefix(run_id)
    return S3Uri(prefix.bucket, prefix.key + SUMMARY_NAME)


def put_once(client: Any, uri: S3Uri, body: bytes, content_type: str) -> bool:
    """Write an object unless it exists; False when it does."""
    from botocore.exceptions import ClientError

    for attempt in range(5):
        try:
            client.put_object(
                Bucket=uri.bucket, Key=uri.key, Body=body, ContentType=content_type, IfNoneMatch="*"
            )
        except ClientError as error:
            if error_code(error) in ("PreconditionFailed", "412"):
                return False
            # Two writers at once: S3 asks to try again, and then one of them finds it written.
            if error_code(error) in ("ConditionalRequestConflict", "409") and attempt < 4:
                continue
            raise
        return True
    return False


def remove_others(client: Any, layout: Layout, summary: ListingSummary) -> None:
    """Remove the shards of tries that did not get as far as a summary."""
    prefix = layout.listing_prefix(summary.run_id)
    ours = {S3Uri.parse(uri).key for uri in summary.all_shards}
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=prefix.bucket, Prefix=prefix.key):
        for entry in page.get("Contents", []):
            if entry["Key"] not in ours:
                client.delete_object(Bucket=prefix.bucket, Key=entry["Key"])
