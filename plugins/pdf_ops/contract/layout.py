"""Where everything lives in S3: one typed function per kind of object.

Keys follow from their inputs alone, differ when the inputs differ, and are plain ASCII of at most
1,024 bytes, so that writing twice writes the same object. Not for talking to S3.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pdf_ops.contract.errors import sanitise

if TYPE_CHECKING:
    from datetime import date

MAX_KEY_BYTES = 1024
MAX_PREFIX_CHARS = 400
MAX_SEGMENT_CHARS = 200
OUTPUT_FOLDERS = ("by_document/", "staged/", "pages/", "documents/", "search/")
"""All that is written below the output prefix; whoever lists a bucket with documents leaves it out."""
MANIFEST_FOLDERS = ("runs/", "pace/")
"""All that is written below the manifest prefix."""

_SCHEME = "s3://"
# What botocore takes, minus names that no bucket can have.
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]", re.ASCII)
_PREFIX_PART = re.compile(r"[A-Za-z0-9!_.*'()=+@:,&$;-]+", re.ASCII)
_PLAIN = re.compile(r"[A-Za-z0-9_-]", re.ASCII)
# A dot always starts an escape, so that a segment never holds ".."; "~" and "%" are on S3's list of
# characters to avoid.
_SEGMENT = re.compile(r"(?:[A-Za-z0-9_-]|\.[0-9A-F]{2})*", re.ASCII)
_HASH_MARK = ".x"


class LayoutError(ValueError):
    """A bucket, key, prefix or identifier that cannot be used in S3."""


@dataclass(frozen=True, slots=True)
class S3Uri:
    """An object, or a prefix whose key ends with a slash."""

    bucket: str
    key: str

    def __post_init__(self) -> None:
        """Refuse what S3 would refuse."""
        _check_bucket(self.bucket)
        check_key(self.key)

    @classmethod
    def parse(cls, uri: str) -> S3Uri:
        """Read ``s3://bucket/key``.

        Raises:
            LayoutError: If it is not that.
        """
        bucket, slash, key = uri.removeprefix(_SCHEME).partition("/")
        if not uri.startswith(_SCHEME) or not slash:
            raise LayoutError(f"{sanitise(uri, 100)!r} is not an S3 URI; accepted: s3://bucket/key")
        return cls(bucket, key)

    def __str__(self) -> str:
        """Write it as ``s3://bucket/key``."""
        return f"{_SCHEME}{self.bucket}/{self.key}"


def parse_bucket(name: str) -> str:
    """Read a bucket's name, given as ``bucket``, ``s3://bucket`` or ``s3://bucket/``.

    Raises:
        LayoutError: If it is none of these, e.g. has a key.
    """
    bucket = name.removeprefix(_SCHEME).removesuffix("/")
    _check_bucket(bucket)
    return bucket


def _check_bucket(bucket: str) -> None:
    if not _BUCKET.fullmatch(bucket) or ".." in bucket:
        raise LayoutError(
            f"{sanitise(bucket, 100)!r} is not a bucket; accepted: my-bucket or s3://my-bucket/"
        )


def check_key(key: str) -> None:
    """Refuse a key that S3 could not hold.

    Raises:
        LayoutError: If it is empty, longer than 1,024 bytes in UTF-8, or not valid Unicode.
    """
    try:
        size_bytes = len(key.encode("utf-8"))
    except UnicodeEncodeError:
        raise LayoutError("the key is not valid Unicode; S3 keys are UTF-8") from None
    if not 1 <= size_bytes <= MAX_KEY_BYTES:
        raise LayoutError(f"the key has {size_bytes} bytes; accepted: 1 to {MAX_KEY_BYTES} bytes of UTF-8")


def bare_etag(etag: str) -> str:
    """Give an ETag without its quotes: S3's API sends them, its events do not."""
    return etag.strip('"')


def encode_segment(identifier: str) -> str:
    """Make a run or worker id a safe part of a key.

    Letters, digits, ``_`` and ``-`` stay; any other byte becomes a dot and two hex digits, so that
    ``manual__2026-01-01T00:00:00+00:00`` stays readable. Very long ids end in a hash instead.

    Raises:
        LayoutError: If the id is empty.
    """
    if not identifier:
        raise LayoutError("a run or worker id must not be empty")
    # surrogatepass: different ids must stay different even when they are not valid Unicode.
    encoded = "".join(
        chr(byte) if _PLAIN.match(chr(byte)) else f".{byte:02X}"
        for byte in identifier.encode("utf-8", "surrogatepass")
    )
    if len(encoded) <= MAX_SEGMENT_CHARS:
        return encoded
    digest = hashlib.sha256(identifier.encode("utf-8", "surrogatepass")).hexdigest()
    kept = MAX_SEGMENT_CHARS - len(_HASH_MARK) - len(digest)
    return encoded[:kept].rstrip(".") + _HASH_MARK + digest


def decode_segment(segment: str) -> str:
    """Undo ``encode_segment``.

    Raises:
        LayoutError: If it is not an encoded id, or one so long that only its hash was kept.
    """
    if not segment or not _SEGMENT.fullmatch(segment):
        why = "a shortened id" if _HASH_MARK in segment else "not an encoded id"
        raise LayoutError(f"{sanitise(segment, 100)!r} cannot be decoded: it is {why}")
    plain = re.sub(r"\.([0-9A-F]{2})", lambda match: chr(int(match[1], 16)), segment)
    try:
        return plain.encode("latin-1").decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise LayoutError(f"{sanitise(segment, 100)!r} cannot be decoded: it is not an encoded id") from None


def clean_prefix(prefix: str) -> str:
    """Bring a prefix into one form: empty, or with a slash at its end only.

    Raises:
        LayoutError: If it cannot be used.
    """
    trimmed = prefix.strip("/")
    if not trimmed:
        return ""
    parts = trimmed.split("/")
    if len(trimmed) > MAX_PREFIX_CHARS or not all(
        _PREFIX_PART.fullmatch(part) and ".." not in part and part != "." for part in parts
    ):
        raise LayoutError(
            f"{sanitise(prefix, 100)!r} is not a usable prefix; accepted: at most {MAX_PREFIX_CHARS} plain "
            "ASCII characters such as data/pdf_ops, without .. and without empty parts"
        )
    return f"{trimmed}/"


def _numbered(number: int) -> str:
    if number < 0:
        raise LayoutError(f"a part's number must not be negative, and is {number}")
    return f"{number:05d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The objects of all runs, below an output and a manifest prefix.

    Buckets may be given with or without ``s3://``, prefixes with or without slashes around.
    """

    output_bucket: str
    output_prefix: str
    manifest_bucket: str
    manifest_prefix: str

    def __post_init__(self) -> None:
        """Bring buckets and prefixes into one form, and refuse what cannot be used."""
        object.__setattr__(self, "output_bucket", parse_bucket(self.output_bucket))
        object.__setattr__(self, "output_prefix", clean_prefix(self.output_prefix))
        object.__setattr__(self, "manifest_bucket", parse_bucket(self.manifest_bucket))
        object.__setattr__(self, "manifest_prefix", clean_prefix(self.manifest_prefix))

    def run_prefix(self, run_id: str) -> S3Uri:
        """Everything that one run writes besides its rows."""
        return S3Uri(self.manifest_bucket, f"{self.manifest_prefix}runs/run-{encode_segment(run_id)}/")

    def listing_prefix(self, run_id: str) -> S3Uri:
        """All shards of a run's listing."""
        return self._in_run(run_id, "listing/")

    def listing_shard(self, run_id: str, number: int) -> S3Uri:
        """One shard of a run's frozen listing."""
        return self._in_run(run_id, f"listing/shard-{_numbered(number)}.jsonl.gz")

    def manifest_parts_prefix(self, run_id: str) -> S3Uri:
        """All workers' parts of a run's manifest."""
        return self._in_run(run_id, "parts/")

    def manifest_part(self, run_id: str, worker_id: str, number: int) -> S3Uri:
        """One worker's part of a run's manifest: document rows."""
        worker = encode_segment(worker_id)
        return self._in_run(run_id, f"parts/worker-{worker}/part-{_numbered(number)}.parquet")

    def run_manifest(self, run_id: str) -> S3Uri:
        """The run's merged manifest: one document row per document."""
        return self._in_run(run_id, "manifest.parquet")

    def merge_prefix(self, run_id: str) -> S3Uri:
        """What the tasks that merge a run tell each other."""
        return self._in_run(run_id, "merge/")

    def merge_plan(self, run_id: str) -> S3Uri:
        """How the merging of a run is divided."""
        return self._in_run(run_id, "merge/plan.json")

    def merge_shard(self, run_id: str, number: int) -> S3Uri:
        """The documents of one shard of the merging."""
        return self._in_run(run_id, f"merge/shard-{_numbered(number)}.parquet")

    def merged_shard(self, run_id: str, number: int) -> S3Uri:
        """What became of one shard: its staged files, and its figures."""
        return self._in_run(run_id, f"merge/shard-{_numbered(number)}.json")

    def statistics_json(self, run_id: str) -> S3Uri:
        """What merging the run measured: timings, throughput, errors; the report's source."""
        return self._in_run(run_id, "statistics.json")

    def reconciliation_json(self, run_id: str) -> S3Uri:
        """Whether every listed document has exactly one outcome, in figures."""
        return self._in_run(run_id, "reconciliation.json")

    def discrepancies(self, run_id: str) -> S3Uri:
        """Every document that the reconciliation missed or did not expect, one JSON line each."""
        return self._in_run(run_id, "discrepancies.jsonl.gz")

    def report_json(self, run_id: str) -> S3Uri:
        """The run's report for programs."""
        return self._in_run(run_id, "report.json")

    def report_html(self, run_id: str) -> S3Uri:
        """The run's report for people."""
        return self._in_run(run_id, "report.html")

    def pace_json(self, config_hash: str) -> S3Uri:
        """How fast workers were in the last run that read this way; the next fleet is sized by it."""
        return S3Uri(self.manifest_bucket, f"{self.manifest_prefix}pace/{encode_segment(config_hash)}.json")

    def document_pages(self, *, bucket: str, key: str, etag: str, config_hash: str) -> S3Uri:
        """The page rows of one document, as one worker writes them.

        The two hex digits spread the files over S3's partitions.
        """
        identity = json.dumps([bucket, key, bare_etag(etag), config_hash], ensure_ascii=True)
        digest = hashlib.sha256(identity.encode("ascii")).hexdigest()
        name = f"{self.output_prefix}by_document/{digest[:2]}/{digest}.parquet"
        return S3Uri(self.output_bucket, name)

    def pages_dataset(self) -> S3Uri:
        """The root of the compacted page dataset."""
        return S3Uri(self.output_bucket, f"{self.output_prefix}pages/")

    def pages_part(self, run_date: date, run_id: str, number: int) -> S3Uri:
        """One file of the compacted page dataset."""
        return self._in_dataset("pages", run_date, run_id, number)

    def staged_prefix(self, run_id: str) -> S3Uri:
        """A run's files of the page dataset that are not published yet."""
        return S3Uri(self.output_bucket, f"{self.output_prefix}staged/run-{encode_segment(run_id)}/")

    def staged_part(self, run_id: str, number: int) -> S3Uri:
        """One file of the page dataset before it is published."""
        prefix = self.staged_prefix(run_id)
        return S3Uri(prefix.bucket, f"{prefix.key}pages-{_numbered(number)}.parquet")

    def documents_dataset(self) -> S3Uri:
        """The root of the documents dataset."""
        return S3Uri(self.output_bucket, f"{self.output_prefix}documents/")

    def documents_part(self, run_date: date, run_id: str, number: int) -> S3Uri:
        """One file of the documents dataset."""
        return self._in_dataset("documents", run_date, run_id, number)

    def search_index(self) -> S3Uri:
        """What the published search index consists of; replaced as a whole."""
        return S3Uri(self.output_bucket, f"{self.output_prefix}search/index.json")

    def search_files(self) -> S3Uri:
        """The files of the published search index, none of which ever changes."""
        return S3Uri(self.output_bucket, f"{self.output_prefix}search/files/")

    def _in_run(self, run_id: str, name: str) -> S3Uri:
        return S3Uri(self.manifest_bucket, self.run_prefix(run_id).key + name)

    def _in_dataset(self, dataset: str, run_date: date, run_id: str, number: int) -> S3Uri:
        # Readers skip files that start with "_" or ".", hence the plain start of the name.
        name = f"run-{encode_segment(run_id)}-{_numbered(number)}.parquet"
        # Not isoformat: a datetime is a date too, and its isoformat has the time.
        day = f"{run_date.year:04d}-{run_date.month:02d}-{run_date.day:02d}"
        return S3Uri(self.output_bucket, f"{self.output_prefix}{dataset}/run_date={day}/{name}")
