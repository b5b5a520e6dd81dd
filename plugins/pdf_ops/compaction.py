"""From many documents' page files to a few large ones, in constant memory.

Works on Arrow tables and local files; what is read and where results go is the operator's business.
Not for deciding which documents' pages are wanted: the run's manifest says that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pdf_ops.contract.pages import page_schema
from pdf_ops.merging import COMPRESSION

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa

FILE_BYTES = 256 * 1024 * 1024
FILE_ROWS = 1_000_000
ROW_GROUP_BYTES = 4 * 1024 * 1024
ROW_GROUP_ROWS = 100_000
LOOSE_TABLES = 24
LOOSE_ROWS = 2_000


class PageCompactor:
    """Gathers page rows of many documents into large Parquet files.

    :param folder: An existing local folder; it holds one unfinished file at a time.
    :param on_file: Called with each finished file and its number; the file is removed afterwards.
    :param on_rows: Called with the rows of each row group.
    :param file_bytes: A file of this size is finished.
    :param file_rows: So is a file of so many rows.
    :param group_bytes: A row group has about so many bytes before compression.
    """

    def __init__(
        self,
        folder: Path,
        *,
        on_file: Callable[[Path, int], None],
        on_rows: Callable[[pa.Table], None],
        file_bytes: int = FILE_BYTES,
        file_rows: int = FILE_ROWS,
        group_bytes: int = ROW_GROUP_BYTES,
    ) -> None:
        self.files = 0
        self.size_bytes = 0
        self.rows = 0
        self._folder = folder
        self._on_file = on_file
        self._on_rows = on_rows
        self._file_bytes = file_bytes
        self._file_rows = file_rows
        self._group_bytes = group_bytes
        self._schema = page_schema()
        self._loose: list[pa.Table] = []
        self._loose_rows = 0
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0
        self._pending_rows = 0
        self._open: tuple[Path, Any, Any] | None = None
        self._open_rows = 0

    def add(self, rows: pa.Table) -> None:
        """Take page rows of the page schema."""
        self._loose.append(rows)
        self._loose_rows += rows.num_rows
        if len(self._loose) >= LOOSE_TABLES or self._loose_rows >= LOOSE_ROWS:
            self._gather()
        if self._pending_bytes >= self._group_bytes or self._pending_rows >= ROW_GROUP_ROWS:
            self._write_group()

    def finish(self) -> None:
        """Write what is left and finish the last file."""
        self._gather()
        self._write_group()
        self._finish_file()

    def _gather(self) -> None:
        """Make one table of many: a table takes some 80 KB beside its data, even one of one row."""
        if self._loose_rows:
            rows = _as_one(self._loose)
            self._pending.append(rows)
            self._pending_bytes += rows.nbytes
            self._pending_rows += rows.num_rows
        self._loose, self._loose_rows = [], 0
        if len(self._pending) >= LOOSE_TABLES:
            self._pending = [_as_one(self._pending)]

    def _write_group(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not self._pending_rows:
            return
        rows = _as_one(self._pending)
        self._pending, self._pending_bytes, self._pending_rows = [], 0, 0
        self._on_rows(rows)
        begin = 0
        while begin < rows.num_rows:
            if self._open is None:
                path = self._folder / f"pages-{self.files:05d}.parquet"
                sink = pa.OSFile(str(path), "wb")
                repeating = [f.name for f in self._schema if f.name not in ("text", "char_count")]
                writer = pq.ParquetWriter(sink, self._schema, use_dictionary=repeating, **COMPRESSION)
                self._open = (path, sink, writer)
            _, sink, writer = self._open
            piece = rows.slice(begin, self._file_rows - self._open_rows)
            writer.write_table(piece, row_group_size=piece.num_rows)
            begin += piece.num_rows
            self._open_rows += piece.num_rows
            if self._open_rows >= self._file_rows or sink.tell() >= self._file_bytes:
                self._finish_file()

    def _finish_file(self) -> None:
        if self._open is None:
            return
        path, sink, writer = self._open
        writer.close()
        sink.close()
        self.size_bytes += path.stat().st_size
        self.rows += self._open_rows
        self._on_file(path, self.files)
        path.unlink()
        self._open, self._open_rows = None, 0
        self.files += 1


def _as_one(tables: list[pa.Table]) -> pa.Table:
    import pyarrow as pa

    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()
