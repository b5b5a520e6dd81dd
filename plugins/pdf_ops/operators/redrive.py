"""Redrive: list what goes round again, and remove its dead letters once it has been sent.

In this order, so that a kill at any moment loses nothing: listed, sent, and only then deleted. A letter
that is sent twice is read once. Not for choosing: that is ``pdf_ops.redrive``.
"""

from __future__ import annotations

import gzip
import io
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from pdf_ops.contract.layout import Layout, S3Uri, parse_bucket
from pdf_ops.contract.listing import Decision, ListedObject, read_lines
from pdf_ops.contract.state import state_key
from pdf_ops.dead_letters import LetterReader
from pdf_ops.frozen_listing import ListingSummary, ShardWriter, summary_of
from pdf_ops.hooks.clients import aws_client, error_code
from pdf_ops.hooks.tables import StateTable
from pdf_ops.objects import ObjectStore
from pdf_ops.operators.listing import PdfListOperator
from pdf_ops.redrive import MAX_LETTERS, MAX_SECONDS, Criteria, documents_of, select_letters, select_results

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow.sdk import Context

    from pdf_ops.contract.fingerprint import ReadingConfig
    from pdf_ops.contract.state import DocumentState
    from pdf_ops.redrive import Selection
    from pdf_ops.window import Window

_HEADS_AT_ONCE = 16
_MISSING = ("404", "NoSuchKey", "NotFound")


class RedriveListOperator(PdfListOperator):
    """Freeze a listing of documents that go round again, as ``PdfListOperator`` does with a prefix.

    Dead letters that match, or documents that were read with too little confidence. What has been read
    meanwhile is left out, and so is what is not in S3 any more. Nothing is sent, and every letter stays.

    :param dlq_url: The dead-letter queue. (templated)
    :param source_run_id: Only documents of this run; of all when empty. (templated)
    :param error_class: Only those that failed with it; with any when empty. (templated)
    :param confidence_below: Instead of letters, documents that were read with less; letters when empty.
        (templated)
    """

    template_fields: Sequence[str] = (
        *PdfListOperator.template_fields,
        "dlq_url",
        "source_run_id",
        "error_class",
        "confidence_below",
    )

    def __init__(
        self,
        *,
        dlq_url: str,
        source_run_id: str = "",
        error_class: str = "",
        confidence_below: float | str = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.dlq_url = dlq_url
        self.source_run_id = source_run_id
        self.error_class = error_class
        self.confidence_below = confidence_below

    def _list(
        self, client: Any, layout: Layout, reading: ReadingConfig, window: Window, run_after: datetime
    ) -> ListingSummary:
        bucket, limit = parse_bucket(self.bucket), int(self.limit or MAX_LETTERS)
        criteria = Criteria(
            run_id=self.source_run_id or None,
            error_class=self.error_class or None,
            prefix=self.prefix or None,
            confidence_below=float(self.confidence_below) if self.confidence_below != "" else None,
        )
        is_forced = criteria.confidence_below is not None
        found = self._select(client, layout, criteria, bucket, limit)
        counts: Counter[str] = Counter()
        reasons: Counter[str] = Counter()
        size_bytes = 0
        with tempfile.TemporaryDirectory(prefix="pdf_ops-redrive-") as folder:
            writer = ShardWriter(client=client, layout=layout, run_id=self.run_id, folder=Path(folder))
            for listed in self._decide(client, found, reading, bucket, is_forced=is_forced):
                counts[listed.decision.value] += 1
                reasons.update([listed.reason] if listed.reason else [])
                size_bytes += listed.size if listed.decision.is_sent else 0
                writer.write(listed)
            writer.finish()
        for label, count in found.by_error.most_common():
            self.log.info("%s: %s documents", label, f"{count:,}")
        if found.unreadable:
            self.log.warning("%d letters name no document and stay where they are", found.unreadable)
        if not found.is_complete:
            self.log.info("there is more than was asked for, or than there was time for: run it again")
        return ListingSummary(
            run_id=self.run_id,
            source="low confidence" if is_forced else "dead letters",
            window=", ".join(f"{error} {count:,}" for error, count in found.by_error.most_common(10))
            or "none",
            listing_prefix=str(layout.listing_prefix(self.run_id)),
            shards=writer.sent_shards,
            all_shards=writer.all_shards,
            documents=sum(counts[decision.value] for decision in Decision if decision.is_sent),
            size_bytes=size_bytes,
            counts={decision.value: counts[decision.value] for decision in Decision},
            reasons=dict(reasons.most_common(50)),
            is_dry_run=str(self.is_dry_run).strip().lower() == "true",
            is_forced=is_forced,
            config_hash=reading.config_hash,
            created_at=datetime.now(UTC).isoformat(),
            run_date=run_after.astimezone(UTC).date().isoformat(),
        )

    def _select(self, client: Any, layout: Layout, criteria: Criteria, bucket: str, limit: int) -> Selection:
        if criteria.confidence_below is not None:
            return select_results(ObjectStore(client=client), layout, criteria, limit=limit)
        sqs = aws_client("sqs", aws_conn_id=self.aws_conn_id, region_name=self.region_name)
        return select_letters(sqs, self.dlq_url, criteria, default_bucket=bucket, limit=limit)

    def _decide(
        self, client: Any, found: Selection, reading: ReadingConfig, bucket: str, *, is_forced: bool
    ) -> Iterator[ListedObject]:
        sources = list(found.sources)
        table = StateTable(self.state_table, aws_conn_id=self.aws_conn_id, region_name=self.region_name)
        states = table.get_many([state_key(one.bucket, one.key, bucket) for one in sources])

        def decide(source: S3Uri) -> ListedObject:
            known = states.get(state_key(source.bucket, source.key, bucket))
            return _listed(client, source, known, reading.config_hash, is_forced=is_forced)

        with ThreadPoolExecutor(_HEADS_AT_ONCE, thread_name_prefix="head") as pool:
            yield from pool.map(decide, sources)


def _listed(
    client: Any, source: S3Uri, known: DocumentState | None, config_hash: str, *, is_forced: bool
) -> ListedObject:
    """Decide about a document as it is in S3 now."""
    from botocore.exceptions import ClientError

    try:
        head = client.head_object(Bucket=source.bucket, Key=source.key)
    except ClientError as error:
        if error_code(error) not in _MISSING:
            raise
        return ListedObject(
            bucket=source.bucket,
            key=source.key,
            etag="",
            size=0,
            last_modified="",
            decision=Decision.EXCLUDED,
            reason="is not in S3 any more",
        )
    etag = head["ETag"].strip('"')
    is_read = known is not None and known.is_read(etag, config_hash)
    # A letter of what another run has read since is stale: it is removed with the others.
    decision = Decision.FORCED if is_forced else Decision.UNCHANGED if is_read else Decision.NEW
    return ListedObject(
        bucket=source.bucket,
        key=source.key,
        etag=etag,
        size=head["ContentLength"],
        last_modified=head["LastModified"].astimezone(UTC).isoformat(),
        version_id=head.get("VersionId"),
        decision=decision,
    )


class ClearLettersOperator(BaseOperator):
    """Delete the dead letters of documents that this run has sent round again, or that were read meanwhile.

    Runs after the messages were sent. Letters that came later, and those of this very run, stay. May run
    twice. Returns how many were deleted.

    :param dlq_url: The dead-letter queue. (templated)
    :param input_bucket: The bucket of messages that name none. (templated)
    :param output_bucket: As for the listing. (templated)
    :param output_prefix: As for the listing. (templated)
    :param manifest_bucket: As for the listing. (templated)
    :param manifest_prefix: As for the listing. (templated)
    :param run_id: The run. (templated)
    :param aws_conn_id: The Airflow connection used for AWS credentials.
    :param region_name: The AWS region, if not the connection's own.
    """

    template_fields: Sequence[str] = (
        "dlq_url",
        "input_bucket",
        "output_bucket",
        "output_prefix",
        "manifest_bucket",
        "manifest_prefix",
        "run_id",
    )
    ui_color = "#dbe9f6"

    def __init__(
        self,
        *,
        dlq_url: str,
        input_bucket: str,
        output_bucket: str,
        output_prefix: str = "",
        manifest_bucket: str = "",
        manifest_prefix: str = "",
        run_id: str = "{{ run_id }}",
        aws_conn_id: str | None = "aws_default",
        region_name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.dlq_url = dlq_url
        self.input_bucket = input_bucket
        self.output_bucket = output_bucket
        self.output_prefix = output_prefix
        self.manifest_bucket = manifest_bucket
        self.manifest_prefix = manifest_prefix
        self.run_id = run_id
        self.aws_conn_id = aws_conn_id
        self.region_name = region_name

    def execute(self, context: Context) -> int:
        """Delete them."""
        layout = Layout(
            output_bucket=self.output_bucket,
            output_prefix=self.output_prefix,
            manifest_bucket=self.manifest_bucket or self.output_bucket,
            manifest_prefix=self.manifest_prefix,
        )
        s3 = aws_client("s3", aws_conn_id=self.aws_conn_id, region_name=self.region_name)
        frozen = ObjectStore(client=s3).read(summary_of(layout, self.run_id))
        if frozen is None:
            return 0
        summary = ListingSummary.from_json(frozen)
        if summary.is_forced:
            self.log.info("these documents were not dead letters: nothing to delete")
            return 0
        before_ms = datetime.fromisoformat(summary.created_at).timestamp() * 1000
        settled = set(self._settled(s3, summary))
        sqs = aws_client("sqs", aws_conn_id=self.aws_conn_id, region_name=self.region_name)
        deleted = 0
        with LetterReader(sqs, self.dlq_url, max_messages=MAX_LETTERS, max_s=MAX_SECONDS) as reader:
            for batch in reader.batches():
                deleted += reader.delete(
                    [
                        letter
                        for letter in batch
                        if letter.run_id != self.run_id
                        and letter.sent_ms <= before_ms
                        and (sources := list(documents_of(letter, parse_bucket(self.input_bucket))))
                        and all(source in settled for source in sources)
                    ]
                )
        self.log.info("%s letters deleted; their documents were sent round again", f"{deleted:,}")
        return deleted

    @staticmethod
    def _settled(client: Any, summary: ListingSummary) -> Iterator[S3Uri]:
        """The documents of the listing that are sent or need not be."""
        for shard in map(S3Uri.parse, summary.all_shards):
            packed = client.get_object(Bucket=shard.bucket, Key=shard.key)["Body"].read()
            with gzip.open(io.BytesIO(packed)) as lines:
                for listed in read_lines(lines):
                    if listed.decision.is_sent or listed.decision is Decision.UNCHANGED:
                        yield S3Uri(listed.bucket, listed.key)
