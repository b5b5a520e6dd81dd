"""The listing: every object that a run saw, and what it decided about it; frozen before anything is sent.

One JSON line per object, gzipped, in shards. Written once and never edited, so that at the end
every line can be held against an outcome. Not for talking to S3.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pdf_ops.contract.layout import LayoutError, bare_etag, check_key
from pdf_ops.contract.schema import ExplainedEnum

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SHARD_LINES = 20_000
"""Lines of a full shard: so many messages are sent by one enqueue task.

That takes seconds; fewer would take less time than the task's own start.
"""


class Decision(ExplainedEnum):
    """What a run does with an object."""

    NEW = "new", "No run has read it: it is sent."
    CHANGED = "changed", "Its bytes or the settings changed since it was read: it is sent."
    FORCED = "forced", "It has been read, and the run reads everything again: it is sent."
    UNCHANGED = "unchanged", "It has been read with the same bytes and settings: nothing to do."
    EXCLUDED = "excluded", "It is left out; the reason says why."

    @property
    def is_sent(self) -> bool:
        """Whether a message is sent for it."""
        return self in (Decision.NEW, Decision.CHANGED, Decision.FORCED)


class ListingError(ValueError):
    """A line of a listing is not one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedObject:
    """One object that a run saw.

    Attributes:
        bucket: Its bucket.
        key: Its key.
        etag: Its ETag, without quotes.
        size: Its size in bytes.
        last_modified: When it was written, ISO 8601 in UTC.
        version_id: Its version, where the listing knows it.
        decision: What the run does with it.
        reason: Why it is left out.
    """

    bucket: str
    key: str
    etag: str
    size: int
    last_modified: str
    version_id: str | None = None
    decision: Decision
    reason: str | None = None

    def __post_init__(self) -> None:
        """Bring the ETag into one form, and refuse what cannot be."""
        object.__setattr__(self, "etag", bare_etag(self.etag))
        try:
            check_key(self.key)
        except LayoutError as error:
            raise ListingError(str(error)) from error
        if self.size < 0:
            raise ListingError(f"size is {self.size}")

    def to_line(self) -> str:
        """As one line, with its newline."""
        values: dict[str, Any] = {
            "bucket": self.bucket,
            "key": self.key,
            "etag": self.etag,
            "size": self.size,
            "last_modified": self.last_modified,
            "decision": self.decision.value,
        }
        if self.version_id is not None:
            values["version_id"] = self.version_id
        if self.reason is not None:
            values["reason"] = self.reason
        return json.dumps(values, ensure_ascii=True, separators=(",", ":")) + "\n"

    @classmethod
    def from_line(cls, line: str | bytes) -> ListedObject:
        """Read a line.

        Raises:
            ListingError: If it is none.
        """
        try:
            values = json.loads(line)
            return cls(**values | {"decision": _DECISIONS[values["decision"]]})
        except (ValueError, TypeError, KeyError) as error:
            raise ListingError(f"not a line of a listing: {error}") from error


_DECISIONS = {decision.value: decision for decision in Decision}


def read_lines(lines: Iterable[str | bytes]) -> Iterator[ListedObject]:
    """The objects of a shard's lines; empty lines are passed over."""
    return (ListedObject.from_line(line) for line in lines if line.strip())
