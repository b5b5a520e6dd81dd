"""The mapped task that gathers the pages of one shard of a run's documents into large files.

The files are staged: they become visible when all shards are there, and are published together. Constant
memory, and the same objects however often it runs. Not for deciding whether anything is missing.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from pdf_ops.compaction import FILE_BYTES, FILE_ROWS, PageCompactor
from pdf_ops.contract.layout import Layout, S3Uri
from pdf_ops.contract.pages import page_schema
from pdf_ops.merge_plan import FILES_PER_SHARD, MAX_NAMED, MergedShard, number_of, read_shard
from pdf_ops.merging import UnreadableRowsError, read_rows
from pdf_ops.objects import ObjectStore, Wanted
from pdf_ops.operators.run_outputs import RunOutputsOperator
from pdf_ops.partitions import return_freed_memory
from pdf_ops.run_statistics import RunStatistics

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from airflow.sdk import Context

    from pdf_ops.objects import ReadObject

# What a page's row takes besides its text, before compression.
_PAGE_BYTES = 400


class MergeError(AirflowFailException):
    """What a merging task works on is not there, or not what it should be."""


class MergeOperator(RunOutputsOperator):
    """Gather the page rows of a shard's documents into large files, and stage these for publication.

    The arguments of :class:`~pdf_ops.operators.run_outputs.RunOutputsOperator`, and:

    :param shard_uri: The shard; map over it. (templated)
    :param file_bytes: The size at which a file of the dataset is finished.
    :param file_rows: The number of rows at which a file of the dataset is finished.
    """

    template_fields: Sequence[str] = (
        *RunOutputsOperator.template_fields,
        "shard_uri",
    )
    ui_color = "#d5e8d4"

    def __init__(
        self,
        *,
        shard_uri: str,
        file_bytes: int = FILE_BYTES,
        file_rows: int = FILE_ROWS,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.shard_uri = shard_uri
        self.file_bytes = file_bytes
        self.file_rows = file_rows

    def execute(self, context: Context) -> dict[str, int]:
        """Gather, stage, and count.

        Raises:
            MergeError: If the shard is not there.
        """
        return_freed_memory()
        with tempfile.TemporaryDirectory(prefix="pdf_ops-merge-") as folder:
            return _Merge(self, self.layout, self.store, Path(folder)).run()


class _Merge:
    """One execution; the operator itself stays without state."""

    def __init__(self, operator: MergeOperator, layout: Layout, store: ObjectStore, folder: Path) -> None:
        self.operator = operator
        self.log = operator.log
        self.layout = layout
        self.store = store
        self.folder = folder
        self.run_id = operator.run_id
        self.number = number_of(S3Uri.parse(operator.shard_uri))
        self.statistics = RunStatistics()
        self.unreadable: list[dict[str, str]] = []
        self.unreadable_count = 0
        self.documents = 0
        self.expected_pages = 0
        self.files: list[tuple[int, int]] = []

    def run(self) -> dict[str, int]:
        shard = self.store.read(S3Uri.parse(self.operator.shard_uri))
        if shard is None:
            raise MergeError(f"{self.operator.shard_uri} is not there; clear plan_merge, and all after it")
        compactor = PageCompactor(
            self.folder,
            on_file=self._stage,
            on_rows=self.statistics.add_pages,
            file_bytes=self.operator.file_bytes,
            file_rows=self.operator.file_rows,
        )
        for documents in read_shard(shard):
            self._compact(documents, compactor)
        compactor.finish()
        merged = MergedShard(
            documents=self.documents,
            expected_pages=self.expected_pages,
            rows=compactor.rows,
            files=self.files,
            unreadable=self.unreadable_count,
            samples=self.unreadable,
            statistics=self.statistics.state(),
        )
        uri = self.layout.merged_shard(self.run_id, self.number)
        self.store.put(uri, merged.to_json(), "application/json")
        self.log.info(
            "Merged %d page rows of %d documents into %d files",
            compactor.rows,
            self.documents,
            compactor.files,
        )
        return {
            "documents": self.documents,
            "page_rows": compactor.rows,
            "page_files": compactor.files,
            "unreadable": self.unreadable_count,
        }

    def _compact(self, documents: list[dict[str, Any]], compactor: PageCompactor) -> None:
        schema = page_schema()
        wanted = [
            Wanted(S3Uri.parse(row["output_uri"]), row["char_count"] + _PAGE_BYTES * row["pages_written"])
            for row in documents
            if row["output_uri"] is not None
        ]
        found = self.store.read_many(wanted, self.folder, convert=lambda pages: _parse(pages, schema))
        for row in documents:
            self.documents += 1
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

    def _stage(self, path: Path, number: int) -> None:
        if number >= FILES_PER_SHARD:
            raise MergeError(
                f"a shard has more than {FILES_PER_SHARD} files; make them larger, or it smaller"
            )
        numbered = self.number * FILES_PER_SHARD + number
        uri = self.layout.staged_part(self.run_id, numbered)
        self.store.upload(path, uri)
        self.files.append((numbered, path.stat().st_size))
        self.log.info("Staged %s, %.1f MB", uri, path.stat().st_size / 1e6)


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
