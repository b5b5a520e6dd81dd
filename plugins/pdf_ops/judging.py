"""What a run decides about each object of a bucket. Not for finding them, nor for writing it down."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Any

from pdf_ops.bucket_pages import raw_pages
from pdf_ops.contract.errors import ErrorClass
from pdf_ops.contract.layout import MANIFEST_FOLDERS, OUTPUT_FOLDERS, Layout
from pdf_ops.contract.listing import Decision, ListedObject
from pdf_ops.contract.state import StateStatus, state_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pdf_ops.contract.state import DocumentState
    from pdf_ops.window import Window

_ARCHIVED = ("GLACIER", "DEEP_ARCHIVE")

# Failures that the document's own bytes cause: the same bytes would fail again.
_DOCUMENTS_OWN = frozenset(
    {
        ErrorClass.POLICY,
        ErrorClass.ENCRYPTED,
        ErrorClass.CORRUPT,
        ErrorClass.BOMB,
        ErrorClass.TIMEOUT,
        ErrorClass.OOM,
        ErrorClass.CRASH,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Decides about objects, a page at a time.

    Attributes:
        bucket: The bucket that is listed.
        window: Which changes are looked at.
        config_hash: How documents are to be read.
        is_forced: Whether what was read already is sent again.
        suffixes: The endings of keys that are sent, in lower case; all when empty.
        own_prefixes: Where the pipeline itself writes in this bucket.
        states: Finds what is known about documents, by the state table's keys.
    """

    bucket: str
    window: Window
    config_hash: str
    is_forced: bool
    suffixes: tuple[str, ...]
    own_prefixes: tuple[str, ...]
    states: Callable[[Sequence[str]], dict[str, DocumentState]]

    def decide(self, page: Sequence[dict[str, Any]]) -> list[ListedObject]:
        """Decide about a page of ``ListObjectsV2``."""
        reasons = [self._why_excluded(entry) for entry in page]
        candidates = [
            state_key(self.bucket, entry["Key"], self.bucket)
            for entry, reason in zip(page, reasons, strict=True)
            if reason is None
        ]
        states = self.states(candidates) if candidates else {}
        return [self._decide_one(entry, reason, states) for entry, reason in zip(page, reasons, strict=True)]

    def _why_excluded(self, entry: dict[str, Any]) -> str | None:
        key = entry["Key"]
        if key.endswith("/") and entry["Size"] == 0:
            return "a folder marker"
        if key.startswith(self.own_prefixes):
            return "written by the pipeline itself"
        if self.suffixes and not key.lower().endswith(self.suffixes):
            return f"does not end with {' or '.join(self.suffixes)}"
        if entry.get("StorageClass") in _ARCHIVED and not entry.get("RestoreStatus", {}).get(
            "RestoreExpiryDate"
        ):
            return f"archived in {entry['StorageClass']}: restore it first"
        return self.window.why_outside(entry["LastModified"])

    def _decide_one(
        self, entry: dict[str, Any], reason: str | None, states: dict[str, DocumentState]
    ) -> ListedObject:
        etag = entry["ETag"].strip('"')
        decision = Decision.EXCLUDED
        if reason is None:
            decision, reason = self._compare(states.get(entry["Key"]), etag)
        return ListedObject(
            bucket=self.bucket,
            key=entry["Key"],
            etag=etag,
            size=entry["Size"],
            last_modified=entry["LastModified"].astimezone(UTC).isoformat(),
            decision=decision,
            reason=reason,
        )

    def _compare(self, known: DocumentState | None, etag: str) -> tuple[Decision, str | None]:
        """Decide by what is known about the document."""
        if known is None:
            return Decision.NEW, None
        if known.is_read(etag, self.config_hash):
            return (Decision.FORCED if self.is_forced else Decision.UNCHANGED), None
        is_same = known.etag == etag and known.config_hash in (None, self.config_hash)
        if known.status is StateStatus.FAILED and is_same:
            if self.is_forced:
                return Decision.FORCED, None
            if known.error_class in _DOCUMENTS_OWN:
                return Decision.EXCLUDED, f"failed before with {known.error_class}/{known.error_code}"
        is_underway = known.status in (StateStatus.PENDING, StateStatus.PROCESSING)
        has_been_read = not is_underway and known.etag is not None
        return (Decision.CHANGED if has_been_read and not is_same else Decision.NEW), None


def own_prefixes(layout: Layout, bucket: str, prefix: str) -> tuple[str, ...]:
    """Where the pipeline itself writes in the bucket that it lists.

    All below the output and manifest prefixes; only its own folders there if documents are, too.
    """
    found = []
    for own_bucket, own_prefix, folders in (
        (layout.output_bucket, layout.output_prefix, OUTPUT_FOLDERS),
        (layout.manifest_bucket, layout.manifest_prefix, MANIFEST_FOLDERS),
    ):
        if own_bucket == bucket:
            is_shared = not own_prefix or prefix.startswith(own_prefix)
            found += [own_prefix + folder for folder in folders] if is_shared else [own_prefix]
    return tuple(dict.fromkeys(found))


def judged_pages(
    client: Any, bucket: str, prefix: str, judge: Judge, threads: int
) -> Iterator[list[ListedObject]]:
    """Judge a listing's pages in parallel, a bounded number of them ahead."""
    ahead: deque[Any] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="judge") as pool:
        for page in raw_pages(client, bucket, prefix, threads):
            ahead.append(pool.submit(judge.decide, page))
            if len(ahead) > 2 * threads:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
