"""The task that turns what the workers of a run wrote into one manifest and a compacted dataset.

Constant memory, and the same objects however often it runs. Not for deciding whether anything is
missing: that is the reconciliation's.
"""

from __future__ import annotations

import json
import re
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pdf_ops.contract.documents import DocumentRow, DocumentStatus, to_record_batch
from pdf_ops.contract.layout import Layout, S3Uri, encode_segment, parse_bucket
from pdf_ops.contract.listing import read_lines
from pdf_ops.contract.pages import page_schema
from pdf_ops.contract.runs import Outcome
from pdf_ops.merging import (
    ManifestMerger,
    ManifestWriter,
    PageCompactor,
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
    from pdf_ops.objects import ReadObject
    from pdf_ops.run_items import RunItems

MAX_NAMED = 20
# What a page's row takes besides its text, before compression.
_PAGE_BYTES = 400
# As Python objects, documents take twenty times what they take in a table.
_DOCUMENTS_AT_ONCE = 1_000


class MergeManifestsOperator(RunOutputsOperator):
    """Merge what the workers of a run wrote: one manifest line per document, and large page files.

    Lines that redelivery repeated are dropped, and lines that a dying worker never wrote are rebuilt
    from the runs table. A retry writes the same objects and removes what a longer attempt left.

    The arguments of :class:`~pdf_ops.operators.run_outputs.RunOutputsOperator`, and:

    :param input_bucket: The usual input bucket, whose documents the runs table knows by key alone;
        taken from the listing if not given. (templated)
    :param file_bytes: The size at which a file of the dataset is finished.
    :param file_rows: The number of rows at which a file of the dataset is finished.
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
        file_bytes: int = 256 * 1024 * 1024,
        file_rows: int = 1_000_000,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.input_bucket = input_bucket
        self.file_bytes = file_bytes
        self.file_rows = file_rows

    def execute(self, context: Context) -> dict[str, Any]:
        """Merge, upload, and say where everything is."""
        return_freed_memory()
        with tempfile.TemporaryDirectory(prefix="pdf_ops-merge-") as folder:
            return _Merge(self, self.layout, self.store, self.items, Path(folder)).run(context)


class _Merge:
    """One execution; the operator itself stays without state."""

    def __init__(
        self,
        operator: MergeManifestsOperator,
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
        self.unreadable: list[dict[str, str]] = []
        self.unreadable_count = 0
        self.expected_pages = 0

    def run(self, context: Context) -> dict[str, Any]:
        # What an earlier attempt concluded is no longer true from here on.
        self.store.remove(
            [
                self.layout.statistics_json(self.run_id),
                self.layout.reconciliation_json(self.run_id),
                self.layout.discrepancies(self.run_id),
            ]
        )
        record = self.items.record()
        run_date = date.fromisoformat(record.run_date) if record else _date_of(context)
        merger = ManifestMerger(self.folder)
        self._add_parts(merger)
        compactor = PageCompactor(
            self.folder,
            on_file=lambda path, number: self._upload_pages(path, run_date, number),
            on_rows=self.statistics.add_pages,
            file_bytes=self.operator.file_bytes,
            file_rows=self.operator.file_rows,
        )
        manifest = self.folder / "manifest.parquet"
        with ManifestWriter(manifest) as writer:
            for rows in chain(merger.tables(), self._rebuilt(merger, record)):
                writer.write(rows)
                self.statistics.add_documents(rows)
                for begin in range(0, rows.num_rows, _DOCUMENTS_AT_ONCE):
                    self._compact(rows.slice(begin, _DOCUMENTS_AT_ONCE), compactor)
        compactor.finish()
        self.store.upload(manifest, self.layout.run_manifest(self.run_id))
        documents = sum(self.statistics.documents.values())
        if documents:
            self.store.upload(manifest, self.layout.documents_part(run_date, self.run_id, 0))
        self._remove_leftovers(run_date, pages_files=compactor.files, documents_files=min(1, documents))
        return self._conclude(merger, compactor, run_date)

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

    def _compact(self, rows: pa.Table, compactor: PageCompactor) -> None:
        """Append the page rows of those documents that this run itself read."""
        import pyarrow as pa
        import pyarrow.compute as pc

        read_here = pc.and_(
            pc.is_in(rows["status"], pa.array([DocumentStatus.DONE.value, DocumentStatus.PARTIAL.value])),
            pc.equal(rows["run_id"], self.run_id),
        )
        names = ["source_uri", "output_uri", "pages_written", "char_count"]
        documents = rows.select(names).filter(pc.fill_null(read_here, False)).to_pylist()
        schema = page_schema()
        wanted = [
            Wanted(S3Uri.parse(row["output_uri"]), row["char_count"] + _PAGE_BYTES * row["pages_written"])
            for row in documents
            if row["output_uri"] is not None
        ]
        found = self.store.read_many(wanted, self.folder, convert=lambda pages: _parse(pages, schema))
        for row in documents:
            self.expected_pages += row["pages_written"]
            if row["output_uri"] is None:
                self._note_unreadable(row, "the manifest does not say where its pages are")
                continue
            pages = next(found)
            written = 0
            try:
                for table in pages.tables(schema):
                    compactor.add(table)
                    written += table.num_rows
            except UnreadableRowsError as error:
                self._note_unreadable(row, str(error))
            else:
                if written != row["pages_written"]:
                    self._note_unreadable(row, f"{written} page rows instead of {row['pages_written']}")
            if pages.path is not None:
                pages.path.unlink()

    def _note_unreadable(self, row: dict[str, Any], reason: str) -> None:
        self.unreadable_count += 1
        self.log.error("%s: %s", row["source_uri"], reason)
        if len(self.unreadable) < MAX_NAMED:
            self.unreadable.append({"source_uri": row["source_uri"], "reason": reason})

    def _upload_pages(self, path: Path, run_date: date, number: int) -> None:
        uri = self.layout.pages_part(run_date, self.run_id, number)
        self.store.upload(path, uri)
        self.log.info("Wrote %s, %.1f MB", uri, path.stat().st_size / 1e6)

    def _remove_leftovers(self, run_date: date, *, pages_files: int, documents_files: int) -> None:
        stale = [
            uri
            for make, kept in (
                (self.layout.pages_part, pages_files),
                (self.layout.documents_part, documents_files),
            )
            for number, uri in dataset_files(self.store, make(run_date, self.run_id, 0), self.run_id)
            if number >= kept
        ]
        if stale:
            self.log.info("Removing %d files that an earlier attempt left", len(stale))
            self.store.remove(stale)

    def _conclude(self, merger: ManifestMerger, compactor: PageCompactor, run_date: date) -> dict[str, Any]:
        statistics = self.statistics.as_json()
        statistics |= {
            "run_id": self.run_id,
            "run_date": run_date.isoformat(),
            "merged_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "manifest": {
                "lines": merger.lines,
                "repeated": merger.repeated,
                "repaired": merger.repaired,
            },
            "unreadable": {"documents": self.unreadable_count, "samples": self.unreadable},
        }
        statistics["pages"] |= {
            "expected": self.expected_pages,
            "files": compactor.files,
            "size_bytes": compactor.size_bytes,
        }
        uri = self.layout.statistics_json(self.run_id)
        self.store.put(uri, json.dumps(statistics, indent=1).encode(), "application/json")
        result = {
            "manifest_uri": str(self.layout.run_manifest(self.run_id)),
            "statistics_uri": str(uri),
            "pages_uri": str(self.layout.pages_dataset()),
            "documents_uri": str(self.layout.documents_dataset()),
            "run_date": run_date.isoformat(),
            "documents": statistics["documents"],
            "page_rows": compactor.rows,
            "page_files": compactor.files,
            "repeated": merger.repeated,
            "repaired": merger.repaired,
            "unreadable": self.unreadable_count,
        }
        self.log.info(
            "Merged %d documents (%d repeated lines dropped, %d rebuilt) and %d page rows into %d files",
            sum(self.statistics.documents.values()),
            merger.repeated,
            merger.repaired,
            compactor.rows,
            compactor.files,
        )
        return result


@dataclass(frozen=True, slots=True)
class _Pages:
    """A document's page file: parsed, or on disk because it is large, or not to be had."""

    parsed: pa.Table | None = None
    path: Path | None = None
    problem: str = ""

    def tables(self, schema: pa.Schema) -> Iterator[pa.Table]:
        """Its rows.

        Raises:
            UnreadableRowsError: If it has none that can be read.
        """
        if self.parsed is not None:
            return iter([self.parsed])
        if self.path is not None:
            return read_rows(self.path, schema)
        raise UnreadableRowsError(self.problem)


def _parse(pages: ReadObject, schema: pa.Schema) -> _Pages:
    if pages.path is not None:
        return _Pages(path=pages.path)
    if pages.data is None:
        return _Pages(problem="its page file is not there")
    try:
        return _Pages(parsed=next(read_rows(pages.data, schema)))
    except UnreadableRowsError as error:
        return _Pages(problem=str(error))


def dataset_files(store: ObjectStore, first: S3Uri, run_id: str) -> Iterator[tuple[int, S3Uri]]:
    """The files of one run in a dataset with their numbers, given where the first one is or would be."""
    stem = first.key.rpartition("/")[0] + f"/run-{encode_segment(run_id)}-"
    # Another run's id may go on where this one ends, so the whole name must fit.
    name = re.compile(re.escape(stem) + r"(\d{5,})\.parquet", re.ASCII)
    for found in store.list(S3Uri(first.bucket, stem)):
        match = name.fullmatch(found.uri.key)
        if match:
            yield int(match[1]), found.uri


def _source_uri(outcome: Outcome, bucket: str | None) -> str:
    if outcome.s3_key.startswith("s3://") or bucket is None:
        return outcome.s3_key
    return str(S3Uri(bucket, outcome.s3_key))


def _date_of(context: Context) -> date:
    dag_run: Any = context.get("dag_run")
    moment = getattr(dag_run, "logical_date", None) or getattr(dag_run, "run_after", None)
    return moment.date() if isinstance(moment, datetime) else datetime.now(UTC).date()
