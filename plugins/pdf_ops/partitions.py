"""Rows spread over local files by the hash of one column, so that each file fits in memory.

Rows with the same key land in the same file, whatever their number; that is how merging and
reconciling stay within a small worker's memory. Not for anything that outlives a task.
"""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Any, Self
from zlib import crc32

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

MAX_PARTITIONS = 256
_BUFFERED_ROWS = 10_000
# M_ARENA_MAX, M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of malloc.h.
_MALLOC_OPTIONS = ((-8, 1), (-3, 256 * 1024), (-1, 256 * 1024))


def return_freed_memory() -> None:
    """Have what is freed go back to the system, so that a task's memory does not grow with its rows.

    Arrow takes memory from the system's allocator, which gives it back sooner than Arrow's own; Arrow
    looks when it is loaded, which in a task is after this. glibc keeps a heap per thread and, from the
    first large buffer on, large ones too: a row group's then stay. It is told not to.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # macOS and musl have none.
        for option, value in _MALLOC_OPTIONS:
            mallopt(option, value)


def partitions_for(amount: int, each: int) -> int:
    """How many partitions it takes so that each has about so much, in whatever unit."""
    return max(1, min(MAX_PARTITIONS, -(-amount // each)))


class Partitions:
    """Files below a folder; the hash of a row's key says which one it goes to.

    :param folder: An existing local folder.
    :param name: The start of the files' names.
    :param count: How many files.
    :param schema: The rows' schema, without dictionaries.
    :param key: The column that is hashed; a string.
    """

    def __init__(self, folder: Path, *, name: str, count: int, schema: pa.Schema, key: str) -> None:
        self.count = count
        self.rows = 0
        self._folder = folder
        self._name = name
        self._schema = schema
        self._key = key
        self._buffered: list[pa.Table] = []
        self._buffered_rows = 0
        self._writers: dict[int, tuple[Any, Any]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()
        for number in range(self.count):
            self._path(number).unlink(missing_ok=True)

    def add(self, table: pa.Table) -> None:
        """Take rows of the schema."""
        self._buffered.append(table)
        self._buffered_rows += table.num_rows
        self.rows += table.num_rows
        if self._buffered_rows >= _BUFFERED_ROWS:
            self._spread()

    def finish(self) -> None:
        """Write what is left; nothing may be added afterwards."""
        self._spread()
        for sink, writer in self._writers.values():
            writer.close()
            sink.close()
        self._writers.clear()

    def read(self, number: int) -> pa.Table:
        """All rows of one partition, in the order they came."""
        return self._read(number, self._schema)

    def read_keys(self, number: int) -> pa.ChunkedArray:
        """The keys of one partition; the other columns are passed over."""
        import pyarrow as pa

        return self._read(number, pa.schema([self._schema.field(self._key)]))[self._key]

    def _read(self, number: int, schema: pa.Schema) -> pa.Table:
        import pyarrow as pa

        path = self._path(number)
        if not path.exists():
            return schema.empty_table()
        options = pa.ipc.IpcReadOptions(
            included_fields=[self._schema.get_field_index(name) for name in schema.names]
        )
        with pa.OSFile(str(path)) as source, pa.ipc.open_stream(source, options=options) as reader:
            return reader.read_all()

    def _path(self, number: int) -> Path:
        return self._folder / f"{self._name}-{number:03d}.arrows"

    def _spread(self) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        if not self._buffered_rows:
            return
        table = pa.concat_tables(self._buffered).combine_chunks()
        self._buffered, self._buffered_rows = [], 0
        if self.count == 1:
            self._write(0, table)
            return
        # Arrow has no hash function to call; a checksum of each key costs 0.2 µs.
        keys = table.column(self._key).cast(pa.binary()).to_pylist()
        numbers = pa.array([crc32(key) % self.count for key in keys], pa.int16())
        del keys
        table = table.take(pc.array_sort_indices(numbers))
        sizes = {item["values"]: item["counts"] for item in pc.value_counts(numbers).to_pylist()}
        begin = 0
        for number in sorted(sizes):
            self._write(number, table.slice(begin, sizes[number]))
            begin += sizes[number]

    def _write(self, number: int, table: pa.Table) -> None:
        import pyarrow as pa

        if number not in self._writers:
            sink = pa.OSFile(str(self._path(number)), "wb")
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            self._writers[number] = (sink, pa.ipc.new_stream(sink, self._schema, options=options))
        self._writers[number][1].write_table(table)
