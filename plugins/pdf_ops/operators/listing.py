"""List: freeze what a run sees below its prefix, and what it decides about each object.

Streamed from S3 to S3, so memory does not grow with the number of keys. Not for sending: the
listing is complete, and never changes again, before the first message leaves.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from pdf_ops.contract.fingerprint import OcrMode, ReadingConfig, parse_languages
from pdf_ops.contract.layout import Layout, parse_bucket
from pdf_ops.contract.listing import Decision, ListedObject
from pdf_ops.contract.runs import RETENTION_DAYS, RunRecord
from pdf_ops.frozen_listing import ListingSummary, ShardWriter, put_once, remove_others, summary_of
from pdf_ops.hooks.clients import aws_client
from pdf_ops.hooks.tables import RunsTable, StateTable
from pdf_ops.judging import Judge, judged_pages, own_prefixes
from pdf_ops.objects import ObjectStore
from pdf_ops.settings import check_settings
from pdf_ops.window import window_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from pdf_ops.window import Window

_TRUE = ("true", "1", "yes", "on")


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
        frozen = ObjectStore(client=client).read(summary_uri)
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
                summary = ListingSummary.from_json(ObjectStore(client=client).read(summary_uri) or b"{}")
            remove_others(client, layout, summary)
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
