"""The task that turns the manifest parts of a run's workers into one manifest, and divides the merging.

Constant memory, and the same objects however often it runs. Not for the pages: mapped tasks merge those,
a shard of the documents each.
"""

from __future__ import annotations

import json
import tempfile
from contextlib import suppress
from datetime import UTC, date, datetime
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pdf_ops.contract.documents import DocumentRow, DocumentStatus, to_record_batch
from pdf_ops.contract.layout import Layout, S3Uri, parse_bucket
from pdf_ops.contract.listing import read_lines
from pdf_ops.contract.pages import page_schema
from pdf_ops.contract.runs import Outcome
from pdf_ops.merge_plan import DOCUMENTS_PER_SHARD, MergePlan, cut, shard_bytes
from pdf_ops.merging import (
    ManifestMerger,
    ManifestWriter,
    UnreadableRowsError,
    conform,
    read_rows,
    repaired_row,
)
from pdf_ops.objects import ObjectStore, Wanted
from pdf_ops.operators.run_outputs import RunOutputsOperator
from pdf_ops.partitions import return_freed_memory
from pdf_ops.run_statistics import RunStatistics

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from airflow.sdk import Context

    from pdf_ops.contract.runs import RunRecord
    from pdf_ops.run_items import RunItems

_ROWS_AT_ONCE = 4_000


class PlanMergeOperator(RunOutputsOperator):
    """Write the run's manifest, one line per document, and divide its documents; give the shards' URIs.

    Lines that redelivery repeated are dropped, and lines that a dying worker never wrote are rebuilt
    from the runs table. A retry starts afresh: what an earlier attempt staged is removed.

    The arguments of :class:`~pdf_ops.operators.run_outputs.RunOutputsOperator`, and:

    :param input_bucket: The usual input bucket, whose documents the runs table knows by key alone;
        taken from the listing if not given. (templated)
    :param documents_per_shard: How many documents one merging task takes; fifty pages count as one more.
    """

    template_fields: Sequence[str] = (
        *RunOutputsOperator.template_fields,
        "input_bucket",
    )
    ui_color = "#d5e8d4"

    def __init__(
        self,
        *,
        input_bucket: str | None = None,
        documents_per_shard: int = DOCUMENTS_PER_SHARD,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.input_bucket = input_bucket
        self.documents_per_shard = documents_per_shard

    def execute(self, context: Context) -> list[str]:
        """Merge the manifest, upload it and the shards, and name these."""
        return_freed_memory()
        with tempfile.TemporaryDirectory(prefix="pdf_ops-plan_merge-") as folder:
            return _Planning(self, self.layout, self.store, self.items, Path(folder)).run(context)


class _Planning:
    """One execution; the operator itself stays without state."""

    def __init__(
        self,
        operator: PlanMergeOperator,
        layout: Layout,
        store: ObjectStore,
        items: RunItems,
        folder: Path,
    ) -> None:
        self.operator = operator
        self.log = operator.log
        self.layout = layout
        self.store = store
        self.items = items
        self.folder = folder
        self.run_id = operator.run_id
        self.statistics = RunStatistics()
        self.read_here = 0
        self.pages = 0

    def run(self, context: Context) -> list[str]:
        self._forget_earlier_attempts()
        record = self.items.record()
        run_date = date.fromisoformat(record.run_date) if record else _date_of(context)
        merger = ManifestMerger(self.folder)
        self._add_parts(merger)
        manifest = self.folder / "manifest.parquet"
        with ManifestWriter(manifest) as writer:
            for rows in chain(merger.tables(), self._rebuilt(merger, record)):
                writer.write(rows)
                self.statistics.add_documents(rows)
                self._count(rows)
        self.store.upload(manifest, self.layout.run_manifest(self.run_id))
        sizes = self._write_shards(manifest)
        plan = MergePlan(
            run_date=run_date.isoformat(),
            shard_documents=sizes,
            lines=merger.lines,
            repeated=merger.repeated,
            repaired=merger.repaired,
            statistics=self.statistics.state(),
        )
        self.store.put(self.layout.merge_plan(self.run_id), plan.to_json(), "application/json")
        self.log.info(
            "%d documents (%d repeated lines dropped, %d rebuilt); the pages of %d are merged in %d shards",
            merger.documents,
            merger.repeated,
            merger.repaired,
            self.read_here,
            len(sizes),
        )
        return [str(self.layout.merge_shard(self.run_id, number)) for number in range(len(sizes))]

    def _forget_earlier_attempts(self) -> None:
        """What one concluded is no longer true from here on, and what it staged may be of other shards."""
        self.store.remove(
            [
                self.layout.statistics_json(self.run_id),
                self.layout.reconciliation_json(self.run_id),
                self.layout.discrepancies(self.run_id),
            ]
        )
        for prefix in (self.layout.merge_prefix(self.run_id), self.layout.staged_prefix(self.run_id)):
            self.store.remove(found.uri for found in self.store.list(prefix))

    def _add_parts(self, merger: ManifestMerger) -> None:
        """Bring the parts here: they are read twice, and are small beside the pages."""
        folder = self.folder / "parts"
        folder.mkdir()
        found = self.store.list(self.layout.manifest_parts_prefix(self.run_id))
        wanted = (Wanted(part.uri, part.size_bytes) for part in found)
        for number, part in enumerate(
            self.store.read_many(wanted, self.folder, convert=lambda part: part, parallel=8)
        ):
            path = folder / f"part-{number:06d}.parquet"
            if part.path is not None:
                part.path.rename(path)
            elif part.data is not None:
                path.write_bytes(part.data)
            else:
                continue
            try:
                merger.add(path)
            except UnreadableRowsError as error:
                # Its documents have outcomes, from which their lines are rebuilt.
                self.log.error("%s: %s", part.uri, error)  # noqa: TRY400 -- there is nothing in the trace
        self.log.info("Merging %d manifest lines of run %s", merger.lines, self.run_id)

    def _rebuilt(self, merger: ManifestMerger, record: RunRecord | None) -> Iterator[pa.Table]:
        """The lines that were lost; all outcomes are read only when the counters say that one is."""
        import pyarrow as pa

        if record is None:
            return
        counted = sum(counters.documents for counters in self.items.counters().values())
        if counted == merger.documents:
            return
        self.log.warning(
            "The workers counted %d documents and their manifests name %d: reading every outcome",
            counted,
            merger.documents,
        )
        expected = (
            (_source_uri(outcome, self.usual_bucket), json.dumps(outcome.to_item()))
            for outcome in self.items.outcomes()
        )
        for lost in merger.lost(expected):
            rows = [self._repair(Outcome.from_item(json.loads(item)), record) for item in lost]
            self.log.warning("Rebuilt %d manifest lines from the runs table", len(rows))
            yield conform(pa.Table.from_batches([to_record_batch(rows)]), merger.schema)

    @cached_property
    def usual_bucket(self) -> str | None:
        """The bucket whose documents the runs table knows by their key alone."""
        import gzip

        if self.operator.input_bucket:
            return parse_bucket(self.operator.input_bucket)

        for shard in self.store.list(self.layout.listing_prefix(self.run_id)):
            data = self.store.read(shard.uri) or b""
            for listed in read_lines(gzip.decompress(data).splitlines()):
                return listed.bucket
        return None

    def _repair(self, outcome: Outcome, record: RunRecord) -> DocumentRow:
        import pyarrow as pa

        source_uri = _source_uri(outcome, self.usual_bucket)
        output, pages = None, None
        if outcome.status in (DocumentStatus.DONE, DocumentStatus.PARTIAL) and outcome.etag is not None:
            source = S3Uri.parse(source_uri)
            output = self.layout.document_pages(
                bucket=source.bucket,
                key=source.key,
                etag=outcome.etag,
                config_hash=record.reading.config_hash,
            )
            data = self.store.read(output)
            if data is not None:
                with suppress(UnreadableRowsError):  # compacting will say so
                    pages = pa.concat_tables(read_rows(data, page_schema()))
        return repaired_row(
            outcome,
            source_uri=source_uri,
            reading=record.reading,
            output_uri=None if output is None else str(output),
            pages=pages,
        )

    def _count(self, rows: pa.Table) -> None:
        import pyarrow.compute as pc

        documents = _read_here(rows, self.run_id)
        self.read_here += documents.num_rows
        self.pages += pc.sum(documents["pages_written"]).as_py() or 0

    def _write_shards(self, manifest: Path) -> list[int]:
        """Upload the shards; gives how many documents each has."""
        shards = cut(
            (_read_here(rows, self.run_id) for rows in _lines(manifest)),
            documents=self.read_here,
            pages=self.pages,
            documents_per_shard=self.operator.documents_per_shard,
        )
        sizes = []
        for number, shard in enumerate(shards):
            uri = self.layout.merge_shard(self.run_id, number)
            self.store.put(uri, shard_bytes(shard), "application/vnd.apache.parquet")
            sizes.append(shard.num_rows)
        return sizes


def _lines(manifest: Path) -> Iterator[pa.Table]:
    """What the shards need of the manifest's lines."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = ["source_uri", "output_uri", "pages_written", "char_count", "status", "run_id"]
    with pq.ParquetFile(str(manifest)) as file:
        for batch in file.iter_batches(_ROWS_AT_ONCE, columns=names, use_threads=False):
            yield pa.Table.from_batches([batch])


def _read_here(rows: pa.Table, run_id: str) -> pa.Table:
    """The documents that have pages which this run itself read."""
    import pyarrow as pa
    import pyarrow.compute as pc

    status = rows["status"].cast(pa.string())
    has_pages = pc.is_in(status, pa.array([DocumentStatus.DONE.value, DocumentStatus.PARTIAL.value]))
    return rows.filter(pc.fill_null(pc.and_(has_pages, pc.equal(rows["run_id"], run_id)), False))


def _source_uri(outcome: Outcome, bucket: str | None) -> str:
    if outcome.s3_key.startswith("s3://") or bucket is None:
        return outcome.s3_key
    return str(S3Uri(bucket, outcome.s3_key))


def _date_of(context: Context) -> date:
    dag_run: Any = context.get("dag_run")
    moment = getattr(dag_run, "logical_date", None) or getattr(dag_run, "run_after", None)
    return moment.date() if isinstance(moment, datetime) else datetime.now(UTC).date()
