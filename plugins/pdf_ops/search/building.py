"""Builds the embedded index from the page dataset, and adds to one: only files that are new or changed.

A document that was read again replaces its older rows; the same file twice changes nothing. Works on a
local folder; not for bringing it anywhere.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pdf_ops.search.embedded import (
    STATE,
    IndexState,
    engine,
    engine_version,
    entry,
    open_index,
    term,
)
from pdf_ops.search.found import NoIndexError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pdf_ops.contract.layout import S3Uri
    from pdf_ops.objects import ObjectStore

COLUMNS = ("source_uri", "run_id", "read_at", "page", "page_count", "text")
BATCH_ROWS = 500
# tantivy writes a segment when so much has come together.
_HEAP_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class DatasetFile:
    """A file of the dataset.

    Attributes:
        name: Its name below the dataset, with slashes; runs of later days sort after earlier ones.
        tag: Another one when the file has changed.
        size_bytes: How large it is.
    """

    name: str
    tag: str
    size_bytes: int


class Dataset(Protocol):
    """The page dataset, wherever it is."""

    def files(self) -> list[DatasetFile]:
        """Its files, in the order of their names."""

    def local(self, file: DatasetFile, folder: Path) -> Path:
        """A file's rows on this machine; what is brought here is written below the folder."""


class LocalDataset:
    """A dataset in a folder, or a single file such as ``ocr-worker extract`` writes.

    :param path: The folder, or the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def files(self) -> list[DatasetFile]:
        """See ``Dataset``."""
        if self.path.is_file():
            return [self._file(self.path, self.path.name)]
        found = [path for path in self.path.rglob("*.parquet") if path.name != "documents.parquet"]
        return sorted(
            (self._file(path, path.relative_to(self.path).as_posix()) for path in found),
            key=lambda file: file.name,
        )

    @staticmethod
    def _file(path: Path, name: str) -> DatasetFile:
        facts = path.stat()
        return DatasetFile(name, f"{facts.st_size}-{facts.st_mtime_ns}", facts.st_size)

    def local(self, file: DatasetFile, folder: Path) -> Path:
        """See ``Dataset``."""
        return self.path if self.path.is_file() else self.path / file.name


class S3Dataset:
    """The dataset that runs publish.

    :param store: S3.
    :param root: Where it is.
    """

    def __init__(self, store: ObjectStore, root: S3Uri) -> None:
        self._store, self._root = store, root

    def files(self) -> list[DatasetFile]:
        """See ``Dataset``."""
        return [
            DatasetFile(found.uri.key.removeprefix(self._root.key), found.etag, found.size_bytes)
            for found in self._store.list(self._root)
            if found.uri.key.endswith(".parquet")
        ]

    def local(self, file: DatasetFile, folder: Path) -> Path:
        """See ``Dataset``."""
        path = folder / "rows.parquet"
        self._store.download(type(self._root)(self._root.bucket, self._root.key + file.name), path)
        return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far it is."""

    files_done: int
    files: int
    bytes_done: int
    bytes: int
    rows: int
    elapsed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What was done.

    Attributes:
        rows: How many pages are in the index now.
        rows_added: How many of them are new.
        documents_replaced: How many documents had older rows.
        files_added: How many files were taken.
        files_removed: How many files are not in the dataset any more, or have changed.
        elapsed_s: How long it took.
    """

    rows: int
    rows_added: int
    documents_replaced: int
    files_added: int
    files_removed: int
    elapsed_s: float

    @property
    def is_changed(self) -> bool:
        """Whether there is anything to publish."""
        return bool(self.files_added or self.files_removed)


def known_state(folder: Path) -> IndexState | None:
    """What the index in a folder holds; None if there is none that can be added to."""
    try:
        state = IndexState.from_json((folder / STATE).read_bytes())
    except (OSError, NoIndexError):
        return None
    return state if state.is_current else None


def update(
    folder: Path,
    dataset: Dataset,
    *,
    is_rebuild: bool = False,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> Built:
    """Bring the index in a folder up to date with a dataset.

    Args:
        folder: The index, or an empty folder, or none yet.
        dataset: The rows.
        is_rebuild: Begin with an empty index.
        on_progress: Told after each file and each few thousand rows.
    """
    engine()
    state = None if is_rebuild else known_state(folder)
    if state is None:
        _empty(folder)
    return _Update(folder, dataset, state, on_progress).run()


def _empty(folder: Path) -> None:
    """Remove an index, and nothing else: somebody may have named the wrong folder.

    Raises:
        NoIndexError: If the folder holds something else.
    """
    folder.mkdir(parents=True, exist_ok=True)
    content = list(folder.iterdir())
    if content and not any(path.name in (STATE, "meta.json") for path in content):
        raise NoIndexError(f"{folder} holds something else: name an empty folder for the index")
    # Its state first: without it, whatever is left is built anew.
    (folder / STATE).unlink(missing_ok=True)
    for path in content:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


class _Update:
    """One update; the index is whole after each file."""

    def __init__(
        self,
        folder: Path,
        dataset: Dataset,
        state: IndexState | None,
        on_progress: Callable[[Progress], None],
    ) -> None:
        self._folder, self._dataset, self._on_progress = folder, dataset, on_progress
        self._files = dict(state.files) if state else {}
        self._index = open_index(folder)
        self._writer: Any = None
        self._began = time.monotonic()
        self._rows = self._replaced = self._bytes = self._taken = 0
        self._total = (0, 0)

    def run(self) -> Built:
        found = {file.name: file for file in self._dataset.files()}
        gone = [name for name, tag in self._files.items() if name not in found or found[name].tag != tag]
        new = [file for file in found.values() if file.name not in self._files or file.name in gone]
        self._total = len(new), sum(file.size_bytes for file in new)
        if new or gone or not (self._folder / STATE).exists():
            self._writer = self._index.writer(_HEAP_BYTES, 1)
            for name in gone:
                self._writer.delete_documents_by_term("file", name)
                del self._files[name]
            self._keep()
            with tempfile.TemporaryDirectory(prefix="pdf_ops-index-") as temporary:
                for file in new:
                    self._take(file, Path(temporary))
            self._writer.wait_merging_threads()
            self._index.reload()
        return Built(
            rows=self._index.searcher().num_docs,
            rows_added=self._rows,
            documents_replaced=self._replaced,
            files_added=len(new),
            files_removed=len(gone),
            elapsed_s=time.monotonic() - self._began,
        )

    def _take(self, file: DatasetFile, temporary: Path) -> None:
        # What a broken attempt at this very file has left.
        self._writer.delete_documents_by_term("file", file.name)
        searcher = self._index.searcher()
        current, is_wanted = None, False
        for row in rows_of(self._dataset.local(file, temporary)):
            if row["source_uri"] != current:
                current = row["source_uri"]
                is_wanted = searcher.num_docs == 0 or self._makes_room(searcher, row)
            if is_wanted:
                self._writer.add_document(entry(file.name, row))
                self._rows += 1
                if self._rows % 5_000 == 0:
                    self._tell()
        self._files[file.name] = file.tag
        self._keep()
        self._taken += 1
        self._bytes += file.size_bytes
        self._tell()

    def _makes_room(self, searcher: Any, row: dict[str, Any]) -> bool:
        """Remove a document's older rows; false if those that are there are newer."""
        make, occur = engine().Query, engine().Occur
        # Not this run's own rows: a long document may begin in one file and end in the next.
        others = make.boolean_query(
            [
                (occur.Must, term("source", row["source_uri"])),
                (occur.MustNot, term("run", row["run_id"] or "")),
            ]
        )
        found = searcher.search(others, 1, count=False).hits
        if not found:
            return True
        if searcher.doc(found[0][1]).get_first("read_at") > row["read_at"]:
            return False
        self._writer.delete_documents_by_query(others)
        self._replaced += 1
        return True

    def _keep(self) -> None:
        """Have all that was added so far in the index; its state comes last."""
        self._writer.commit()
        self._index.reload()
        state = IndexState(
            built_at=datetime.now(UTC).isoformat(timespec="seconds"),
            rows=self._index.searcher().num_docs,
            files=self._files,
            engine=engine_version(),
        )
        path = self._folder / f"{STATE}.new"
        path.write_bytes(state.to_json())
        path.replace(self._folder / STATE)

    def _tell(self) -> None:
        self._on_progress(
            Progress(
                files_done=self._taken,
                files=self._total[0],
                bytes_done=self._bytes,
                bytes=self._total[1],
                rows=self._rows,
                elapsed_s=time.monotonic() - self._began,
            )
        )


def rows_of(
    path: Path, columns: Sequence[str] = COLUMNS, *, has_moments: bool = False
) -> Iterator[dict[str, Any]]:
    """A file's rows with some columns, a few at a time.

    Args:
        path: The file.
        columns: Which ones.
        has_moments: Have times as such, and not in milliseconds.

    Raises:
        NoIndexError: If it does not hold page rows.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            missing = [name for name in columns if name not in file.schema_arrow.names]
            if missing:
                raise NoIndexError(f"{path.name} does not hold page rows: it lacks {', '.join(missing)}")
            for batch in file.iter_batches(BATCH_ROWS, columns=list(columns), use_threads=False):
                if not has_moments:
                    moments = batch.schema.get_field_index("read_at")
                    whole = batch.column(moments).cast(pa.int64())
                    batch = batch.set_column(moments, "read_at", whole)  # noqa: PLW2901
                yield from batch.to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise NoIndexError(f"{path.name} is not a readable Parquet file: {error}") from error
