"""List: freeze what a run sees below its prefix, and what it decides about each object.

Streamed from S3 to S3, so memory does not grow with the number of keys. Not for sending: the
listing is complete, and never changes again, before the first message leaves.
"""

from __future__ import annotations

import gzip
import json
import tempfile
import threading
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from queue import Full, Queue
from typing import TYPE_CHECKING, Any, BinaryIO

from airflow.sdk import BaseOperator

from pdf_ops.contract.errors import ErrorClass
from pdf_ops.contract.fingerprint import OcrMode, ReadingConfig, parse_languages
from pdf_ops.contract.layout import Layout, S3Uri, parse_bucket
from pdf_ops.contract.listing import SHARD_LINES, Decision, ListedObject
from pdf_ops.contract.runs import RETENTION_DAYS, RunRecord
from pdf_ops.contract.state import StateStatus, state_key
from pdf_ops.exceptions import ListingConflictError
from pdf_ops.hooks.clients import aws_client, error_code
from pdf_ops.hooks.tables import RunsTable, StateTable
from pdf_ops.settings import check_settings
from pdf_ops.window import window_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from airflow.sdk import Context

    from pdf_ops.contract.state import DocumentState
    from pdf_ops.window import Window

SUMMARY_NAME = "listing.json"
"""Beside the folder of shards, so that whatever lies in that folder is a shard."""
MAX_SHARD_LINES = 100_000
"""A shard ends here even if few of its lines are sent."""
DOUBLE_SHARDS_EVERY = 256
"""Airflow maps over 1,024 shards at most, so shards grow: 19 million documents fit."""
_MAX_SHARD_NUMBERS = 50
_TRUE = ("true", "1", "yes", "on")
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


class PdfListOperator(BaseOperator):
    """List the objects below a prefix, decide about each, and freeze the result in S3.

    The value that it returns is the list of shards with something to send, for the enqueue task to
    be mapped over; empty when there is nothing to do or in a dry run, and then everything after it
    is skipped. The XCom ``summary`` holds counts and URIs. A second try finds the frozen listing and
    returns it.

    :param bucket: The bucket with the documents.
    :param prefix: Only objects below it are listed.
    :param output_bucket: Where rows are written; the pipeline's own objects are left out.
    :param output_prefix: The prefix of the rows.
    :param manifest_bucket: Where the listing is written; the output bucket when empty.
    :param manifest_prefix: The prefix of the listing.
    :param state_table: The table that knows which documents have been read.
    :param runs_table: The table that gets the run's record.
    :param run_id: The run.
    :param window_start: Only objects that changed from then on, ISO 8601; open when empty.
    :param window_end: Only objects that changed before then; see ``pdf_ops.window``.
    :param lookback_days: How far the default window looks back; 0 is without limit.
    :param languages: The OCR languages, such as ``eng+deu``.
    :param ocr_mode: When OCR is used.
    :param dpi: Resolution that pages are drawn at.
    :param max_page_pixels: Largest picture of a page.
    :param trust_ocr_layer: Whether an earlier OCR's text is taken.
    :param is_forced: Whether what has been read already is sent again.
    :param limit: Most documents to send; all when empty or 0.
    :param is_dry_run: Whether to stop after the listing.
    :param suffixes: Endings of the keys to send, with commas; all when empty.
    :param is_first: Whether this is the run's first task, which checks all settings.
    :param threads: How many prefixes are listed, and pages judged, at once.
    :param aws_conn_id: The Airflow connection used for AWS credentials.
    :param region_name: The AWS region, if not the connection's own.
    """

    template_fields: Sequence[str] = (
        "bucket",
        "prefix",
        "output_bucket",
        "output_prefix",
        "manifest_bucket",
        "manifest_prefix",
        "state_table",
        "runs_table",
        "run_id",
        "window_start",
        "window_end",
        "lookback_days",
        "languages",
        "ocr_mode",
        "dpi",
        "max_page_pixels",
        "trust_ocr_layer",
        "is_forced",
        "limit",
        "is_dry_run",
        "suffixes",
        "threads",
        "aws_conn_id",
        "region_name",
    )
    ui_color = "#dbe9f6"

    def __init__(
        self,
        *,
        bucket: str,
        prefix: str = "",
        output_bucket: str,
        output_prefix: str = "",
        manifest_bucket: str = "",
        manifest_prefix: str = "",
        state_table: str,
        runs_table: str,
        run_id: str = "{{ run_id }}",
        window_start: str = "",
        window_end: str = "",
        lookback_days: int | str = 0,
        languages: str = "eng",
        ocr_mode: str = OcrMode.AUTO.value,
        dpi: int | str = ReadingConfig().dpi,
        max_page_pixels: int | str = ReadingConfig().max_page_pixels,
        trust_ocr_layer: bool | str = False,
        is_forced: bool | str = False,
        limit: int | str | None = None,
        is_dry_run: bool | str = False,
        suffixes: str = "",
        threads: int | str = 8,
        is_first: bool = False,
        aws_conn_id: str | None = "aws_default",
        region_name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.bucket = bucket
        self.prefix = prefix
        self.output_bucket = output_bucket
        self.output_prefix = output_prefix
        self.manifest_bucket = manifest_bucket
        self.manifest_prefix = manifest_prefix
        self.state_table = state_table
        self.runs_table = runs_table
        self.run_id = run_id
        self.window_start = window_start
        self.window_end = window_end
        self.lookback_days = lookback_days
        self.languages = languages
        self.ocr_mode = ocr_mode
        self.dpi = dpi
        self.max_page_pixels = max_page_pixels
        self.trust_ocr_layer = trust_ocr_layer
        self.is_forced = is_forced
        self.limit = limit
        self.is_dry_run = is_dry_run
        self.suffixes = suffixes
        self.threads = threads
        self.is_first = is_first
        self.aws_conn_id = aws_conn_id
        self.region_name = region_name

    def execute(self, context: Context) -> list[str]:
        """List, freeze, and record the run; or find that an earlier try has done so."""
        # Whoever reports a failed listing asks for it too, and Airflow takes a missing XCom for an error.
        context["ti"].xcom_push(key="summary", value={})
        if self.is_first:
            check_settings()
        layout = Layout(
            output_bucket=self.output_bucket,
            output_prefix=self.output_prefix,
            manifest_bucket=self.manifest_bucket or self.output_bucket,
            manifest_prefix=self.manifest_prefix,
        )
        reading = ReadingConfig(
            ocr=OcrMode(self.ocr_mode),
            languages=parse_languages(self.languages),
            dpi=int(self.dpi),
            max_page_pixels=int(self.max_page_pixels),
            trust_ocr_layer=_is_true(self.trust_ocr_layer),
        )
        threads = int(self.threads)
        client = aws_client(
            "s3", aws_conn_id=self.aws_conn_id, region_name=self.region_name, connections=threads + 2
        )
        summary_uri = summary_of(layout, self.run_id)
        frozen = get_object(client, summary_uri)
        if frozen is not None:
            self.log.info("the listing was frozen by an earlier try: %s", summary_uri)
            summary = ListingSummary.from_json(frozen)
        else:
            window = window_of(
                context,
                window_start=self.window_start,
                window_end=self.window_end,
                lookback_days=int(self.lookback_days or 0),
            )
            summary = self._list(client, layout, reading, window, context["dag_run"].run_after)
            if not put_once(client, summary_uri, summary.to_json().encode(), "application/json"):
                # Another try was faster; what it has frozen counts.
                summary = ListingSummary.from_json(get_object(client, summary_uri) or b"{}")
            _remove_others(client, layout, summary)
        self._record(summary, reading)
        self._say(summary)
        context["ti"].xcom_push(key="summary", value=asdict(summary))
        return [] if summary.is_dry_run else summary.shards

    def _list(
        self, client: Any, layout: Layout, reading: ReadingConfig, window: Window, run_after: datetime
    ) -> ListingSummary:
        bucket, threads = parse_bucket(self.bucket), int(self.threads)
        prefix = self.prefix.lstrip("/")
        source = f"s3://{bucket}/{prefix}"
        limit = int(self.limit) if self.limit else 0
        self.log.info("listing %s, changed from %s, read as %s", source, window, reading.config_hash)
        state = StateTable(
            self.state_table,
            aws_conn_id=self.aws_conn_id,
            region_name=self.region_name,
            connections=threads + 2,
        )
        judge = Judge(
            bucket=bucket,
            window=window,
            config_hash=reading.config_hash,
            is_forced=_is_true(self.is_forced),
            suffixes=tuple(part.strip().lower() for part in self.suffixes.split(",") if part.strip()),
            own_prefixes=own_prefixes(layout, bucket, prefix),
            states=state.get_many,
        )
        counts: Counter[str] = Counter()
        reasons: Counter[str] = Counter()
        sent = size_bytes = seen = 0
        with tempfile.TemporaryDirectory(prefix="pdf_ops-listing-") as folder:
            writer = ShardWriter(client=client, layout=layout, run_id=self.run_id, folder=Path(folder))
            for page in judged_pages(client, bucket, prefix, judge, threads):
                for found in page:
                    listed = found
                    if listed.decision.is_sent:
                        if limit and sent >= limit:
                            listed = _over_limit(listed, limit)
                        else:
                            sent += 1
                            size_bytes += listed.size
                    counts[listed.decision.value] += 1
                    if listed.reason is not None:
                        reasons[listed.reason] += 1
                    writer.write(listed)
                if (seen + len(page)) // 100_000 > seen // 100_000:
                    self.log.info("%s keys so far, %s to send", f"{seen + len(page):,}", f"{sent:,}")
                seen += len(page)
            writer.finish()
        return ListingSummary(
            run_id=self.run_id,
            source=source,
            window=str(window),
            listing_prefix=str(layout.listing_prefix(self.run_id)),
            shards=writer.sent_shards,
            all_shards=writer.all_shards,
            documents=sent,
            size_bytes=size_bytes,
            counts={decision.value: counts[decision.value] for decision in Decision},
            reasons=dict(reasons.most_common(50)),
            is_dry_run=_is_true(self.is_dry_run),
            is_forced=_is_true(self.is_forced),
            config_hash=reading.config_hash,
            created_at=datetime.now(UTC).isoformat(),
            run_date=run_after.astimezone(UTC).date().isoformat(),
        )

    def _record(self, summary: ListingSummary, reading: ReadingConfig) -> None:
        """Write the run's record, from the frozen listing alone, so that it may be done twice."""
        created = datetime.fromisoformat(summary.created_at)
        record = RunRecord(
            run_id=summary.run_id,
            documents=0 if summary.is_dry_run else summary.documents,
            size_bytes=0 if summary.is_dry_run else summary.size_bytes,
            reading=reading,
            is_forced=summary.is_forced,
            created_at=summary.created_at,
            run_date=summary.run_date,
            expires_at=int(created.timestamp()) + RETENTION_DAYS * 86_400,
        )
        RunsTable(self.runs_table, aws_conn_id=self.aws_conn_id, region_name=self.region_name).put_record(
            record
        )

    def _say(self, summary: ListingSummary) -> None:
        total = sum(summary.counts.values())
        self.log.info(
            "%s: %s objects listed; %s",
            summary.source,
            f"{total:,}",
            ", ".join(f"{count:,} {decision}" for decision, count in summary.counts.items()),
        )
        for reason, count in summary.reasons.items():
            self.log.info("excluded: %s, %s", f"{count:,}", reason)
        what = f"{summary.documents:,} documents, {summary.size_bytes / 1e6:,.1f} MB"
        if summary.is_dry_run:
            self.log.info("dry run: %s would be sent; nothing is. See %s", what, summary.listing_prefix)
        elif not summary.documents:
            self.log.info("nothing to do: every object is read or left out. The rest of the run is skipped.")
        else:
            self.log.info("to send: %s in %d shards", what, len(summary.shards))


def _is_true(value: bool | str) -> bool:
    """Read a template's answer."""
    return value if isinstance(value, bool) else value.strip().lower() in _TRUE


def _over_limit(listed: ListedObject, limit: int) -> ListedObject:
    return ListedObject(
        bucket=listed.bucket,
        key=listed.key,
        etag=listed.etag,
        size=listed.size,
        last_modified=listed.last_modified,
        version_id=listed.version_id,
        decision=Decision.EXCLUDED,
        reason=f"over the limit of {limit}",
    )


def summary_of(layout: Layout, run_id: str) -> S3Uri:
    """Where the summary of a run's listing is."""
    prefix = layout.run_prefix(run_id)
    return S3Uri(prefix.bucket, prefix.key + SUMMARY_NAME)


def own_prefixes(layout: Layout, bucket: str, prefix: str) -> tuple[str, ...]:
    """Where the pipeline itself writes in the bucket that it lists.

    All below the output and manifest prefixes; only its own folders there if documents are, too.
    """
    found = []
    for own_bucket, own_prefix, folders in (
        (layout.output_bucket, layout.output_prefix, ("by_document/", "pages/", "documents/")),
        (layout.manifest_bucket, layout.manifest_prefix, ("runs/",)),
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


def raw_pages(client: Any, bucket: str, prefix: str, threads: int) -> Iterator[list[dict[str, Any]]]:
    """The pages of ``ListObjectsV2``, from several prefixes at once where the keys have folders."""
    folders, contents = folders_of(client, bucket, prefix)
    if contents:
        yield contents
    listers = _Listers(client, bucket, folders)
    count = min(threads, len(folders))
    try:
        for number in range(count):
            threading.Thread(target=listers.run, name=f"list-{number}", daemon=True).start()
        while count:
            page = listers.pages.get()
            if isinstance(page, Exception):
                raise page
            if page is None:
                count -= 1
            else:
                yield page
    finally:
        listers.stop.set()


class _Listers:
    """What the listing threads share: folders to list, and a few pages ahead of their reader."""

    def __init__(self, client: Any, bucket: str, folders: Sequence[str]) -> None:
        self.client, self.bucket = client, bucket
        self.folders = deque(folders)
        self.pages: Queue[list[dict[str, Any]] | Exception | None] = Queue(maxsize=8)
        self.stop = threading.Event()

    def run(self) -> None:
        """List folders until there is none left, and say so; or say what went wrong."""
        try:
            while not self.stop.is_set():
                try:
                    folder = self.folders.popleft()
                except IndexError:
                    break
                self._list(folder)
        except Exception as error:  # noqa: BLE001 -- it is raised again where the pages are read
            self._put(error)
        else:
            self._put(None)

    def _list(self, folder: str) -> None:
        pages = self.client.get_paginator("list_objects_v2").paginate(
            Bucket=self.bucket, Prefix=folder, OptionalObjectAttributes=["RestoreStatus"]
        )
        for page in pages:
            if self.stop.is_set():
                return
            if page.get("Contents"):
                self._put(page["Contents"])

    def _put(self, page: list[dict[str, Any]] | Exception | None) -> None:
        while not self.stop.is_set():
            try:
                self.pages.put(page, timeout=0.5)
            except Full:
                continue
            return


def folders_of(client: Any, bucket: str, prefix: str) -> tuple[list[str], list[dict[str, Any]]]:
    """The folders below a prefix that can be listed side by side, and the objects beside them.

    One level down, and further while there is but one folder. Where one page does not hold them all,
    the prefix is listed as a whole: a million folders with a document each would be a million calls.
    """
    while True:
        page = client.list_objects_v2(
            Bucket=bucket, Prefix=prefix, Delimiter="/", OptionalObjectAttributes=["RestoreStatus"]
        )
        folders = [found["Prefix"] for found in page.get("CommonPrefixes", [])]
        contents = page.get("Contents", [])
        if page.get("IsTruncated") or not folders:
            return ([prefix], []) if page.get("IsTruncated") else ([], contents)
        if len(folders) > 1 or contents:
            return folders, contents
        prefix = folders[0]


def get_object(client: Any, uri: S3Uri) -> bytes | None:
    """A small object; None if it is not there."""
    from botocore.exceptions import ClientError

    try:
        body: bytes = client.get_object(Bucket=uri.bucket, Key=uri.key)["Body"].read()
    except ClientError as error:
        if error_code(error) in ("NoSuchKey", "404"):
            return None
        raise
    return body


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


def _remove_others(client: Any, layout: Layout, summary: ListingSummary) -> None:
    """Remove the shards of tries that did not get as far as a summary."""
    prefix = layout.listing_prefix(summary.run_id)
    ours = {S3Uri.parse(uri).key for uri in summary.all_shards}
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=prefix.bucket, Prefix=prefix.key):
        for entry in page.get("Contents", []):
            if entry["Key"] not in ours:
                client.delete_object(Bucket=prefix.bucket, Key=entry["Key"])
