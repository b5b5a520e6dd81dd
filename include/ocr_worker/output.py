"""Where rows go: Parquet or JSON lines, and text files for people; each file appears whole or not at all.

Rows are buffered up to a row group and then written, so memory does not grow with their number.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from ocr_worker.settings import OutputFormat
from pdf_ops.contract.errors import ErrorKind, PdfOpsError, cut_utf8
from pdf_ops.contract.schema import Row, arrow_schema, columns, record_batch

if TYPE_CHECKING:
    from pathlib import Path

    from pdf_ops.contract.pages import PageRow

COMPRESSION = "zstd"
COMPRESSION_LEVEL = 3
ROW_GROUP_ROWS = 2_000
# A file name has at most 255 bytes, ours with what is put around it while it is written.
MAX_NAME_BYTES = 200
ROW_GROUP_CHARACTERS = 4_000_000

RowT = TypeVar("RowT", bound=Row)
RowT_contra = TypeVar("RowT_contra", bound=Row, contravariant=True)


def load_parquet() -> None:
    """Import pyarrow without numpy, for a process that is the worker's alone.

    pyarrow imports numpy where it finds it. It needs it for nothing that is done here, and it takes as long
    as the rest of a worker's start. What imports numpy later finds it, and pyarrow goes on without.
    """
    if "pyarrow" in sys.modules or "numpy" in sys.modules:
        return
    modules: dict[str, Any] = sys.modules
    modules["numpy"] = None  # How Python marks what is not to be found.
    try:
        import pyarrow.parquet  # noqa: F401
    finally:
        del modules["numpy"]


class TableWriter(Protocol[RowT_contra]):
    """Takes rows; ``close`` makes the file appear, ``discard`` leaves nothing behind."""

    def write(self, row: RowT_contra, characters: int = 0) -> None:
        """Take a row."""

    def close(self) -> None:
        """Finish the file and put it in place."""

    def discard(self) -> None:
        """Drop the file."""


class _AtomicFile:
    """A file that is written beside its place and moved there when it is whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.partial = path.with_name(f".{path.name}.{os.getpid()}.partial")

    def commit(self, *, is_durable: bool = True) -> None:
        with _disk_errors(self._path):
            if is_durable:
                descriptor = os.open(self.partial, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
            self.partial.replace(self._path)

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            self.partial.unlink(missing_ok=True)


class ParquetWriter(Generic[RowT]):
    """Rows of one class as a Parquet file."""

    def __init__(self, path: Path, row_class: type[RowT], *, is_part: bool = False) -> None:
        """Open the file.

        Args:
            path: Where it goes.
            row_class: What its rows are.
            is_part: It holds one document and will be merged: without dictionaries and statistics,
                which for a page or two are most of the file and of the time.

        Raises:
            PdfOpsError: TARGET/disk.
        """
        import pyarrow.parquet as pq

        self._row_class = row_class
        self._is_part = is_part
        self._file = _AtomicFile(path)
        self._rows: list[RowT] = []
        self._characters = 0
        try:
            with _disk_errors(path):
                self._writer: Any = pq.ParquetWriter(
                    self._file.partial,
                    arrow_schema(row_class),
                    compression=COMPRESSION,
                    compression_level=COMPRESSION_LEVEL,
                    use_dictionary=not is_part,
                    write_statistics=not is_part,
                )
        except PdfOpsError:
            self._file.discard()  # It writes a few bytes at once, which a full disk may refuse.
            raise

    def write(self, row: RowT, characters: int = 0) -> None:
        """Take a row; ``characters`` is how much text is in it."""
        self._rows.append(row)
        self._characters += characters
        if len(self._rows) >= ROW_GROUP_ROWS or self._characters >= ROW_GROUP_CHARACTERS:
            self._flush()

    def close(self) -> None:
        """Finish the file and put it in place."""
        self._flush()
        with _disk_errors(self._file.partial):
            self._writer.close()
        self._file.commit(is_durable=not self._is_part)  # A part is uploaded and removed at once.

    def discard(self) -> None:
        """Drop the file."""
        with contextlib.suppress(OSError):
            self._writer.close()
        self._file.discard()

    def _flush(self) -> None:
        if self._rows:
            batch = record_batch(self._row_class, self._rows)
            with _disk_errors(self._file.partial):
                self._writer.write_batch(batch, row_group_size=len(self._rows))
            self._rows, self._characters = [], 0


class JsonLinesWriter(Generic[RowT]):
    """Rows of one class as JSON, one a line."""

    def __init__(self, path: Path, row_class: type[RowT]) -> None:
        """Open the file.

        Raises:
            PdfOpsError: TARGET/disk.
        """
        self._names = [column.name for column in columns(row_class)]
        self._values = attrgetter(*self._names)
        self._file = _AtomicFile(path)
        with _disk_errors(path):
            self._lines = self._file.partial.open("w", encoding="utf-8")

    def write(self, row: RowT, characters: int = 0) -> None:
        """Take a row."""
        del characters
        values = dict(zip(self._names, self._values(row), strict=True))
        with _disk_errors(self._file.partial):
            self._lines.write(json.dumps(values, ensure_ascii=False, default=_iso) + "\n")

    def close(self) -> None:
        """Finish the file and put it in place."""
        with _disk_errors(self._file.partial):
            self._lines.close()
        self._file.commit()

    def discard(self) -> None:
        """Drop the file."""
        with contextlib.suppress(OSError):
            self._lines.close()
        self._file.discard()


class TextFolder:
    """Each document's text as a file of its own, pages separated by form feeds."""

    def __init__(self, folder: Path) -> None:
        """Make the folder.

        Raises:
            PdfOpsError: TARGET/disk.
        """
        self._folder = folder
        self._taken: dict[str, int] = {}
        self._file: _AtomicFile | None = None
        self._text: Any = None
        with _disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)

    def begin(self, name: str) -> None:
        """Start a document's file; two documents of one name get two files."""
        short = cut_utf8(name, MAX_NAME_BYTES)
        unique, number = short, self._taken.get(short.lower(), 1)
        while unique.lower() in self._taken:
            number += 1
            unique = f"{short}.{number}"
        self._taken[short.lower()] = number
        self._taken.setdefault(unique.lower(), 1)
        self._file = _AtomicFile(self._folder / f"{unique}.txt")
        with _disk_errors(self._folder):
            self._text = self._file.partial.open("w", encoding="utf-8", newline="\n")

    def write(self, row: PageRow) -> None:
        """Add a page."""
        with _disk_errors(self._folder):
            self._text.write(("\f" if row.page > 1 else "") + row.text + "\n")

    def end(self, *, keep: bool) -> None:
        """Finish the document's file."""
        if self._file is None:
            return
        with _disk_errors(self._folder):
            self._text.close()
        if keep:
            self._file.commit()
        else:
            self._file.discard()
        self._file = None


def open_writer(folder: Path, name: str, row_class: type[RowT], kind: OutputFormat) -> TableWriter[RowT]:
    """Open ``pages.parquet``, ``documents.jsonl`` or the like in a folder, which is made if needed.

    Raises:
        PdfOpsError: TARGET/disk.
    """
    with _disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    writer: type[Any] = ParquetWriter if kind is OutputFormat.PARQUET else JsonLinesWriter
    opened: TableWriter[RowT] = writer(folder / f"{name}.{kind.value}", row_class)
    return opened


class _disk_errors:  # noqa: N801 -- reads as a phrase: with _disk_errors(path)
    """Turns what the operating system says about a path into TARGET/disk."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            reason = error.strerror or str(error)
            raise PdfOpsError(ErrorKind.TARGET_DISK, f"{self._path}: {reason}") from error


def _iso(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"no JSON for {type(value).__name__}")
