"""How the merging of a run is divided into shards, and what the tasks that do it tell each other.

The plan is written by the first of them and never edited; each shard's result is a file of its own. Not
for what is in the rows.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from pdf_ops.contract.layout import S3Uri

DOCUMENTS_PER_SHARD = 10_000
MAX_SHARDS = 1_000
"""Airflow maps a task over at most 1,024 things, ``[core] max_map_length``."""
FILES_PER_SHARD = 1_000
"""A shard's files are numbered from this times its own number, so that no shard waits for another's."""
MAX_NAMED = 20
# To open a document's file costs as much as to copy so many of its pages.
_PAGES_PER_DOCUMENT = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class _Json:
    """A dataclass that is a JSON object; keys that it does not know are left out."""

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in json.loads(data).items() if name in known})


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePlan(_Json):
    """What the run's manifest says, and how many shards its documents' pages are merged in.

    Attributes:
        run_date: The date that the run's rows are filed under, ``YYYY-MM-DD``.
        shard_documents: How many documents each shard has.
        lines: Manifest lines that workers wrote.
        repeated: Lines that were left out, since redelivery had repeated them.
        repaired: Lines that were rebuilt.
        statistics: What was counted of the documents.
    """

    run_date: str
    shard_documents: list[int]
    lines: int
    repeated: int
    repaired: int
    statistics: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedShard(_Json):
    """What became of one shard.

    Attributes:
        documents: How many documents it has.
        expected_pages: How many rows these should have.
        rows: How many they have.
        files: The staged files, number and bytes of each.
        unreadable: Documents whose rows are not all there.
        samples: Some of them, with the reason.
        statistics: What was counted of the pages.
    """

    documents: int
    expected_pages: int
    rows: int
    files: list[tuple[int, int]]
    unreadable: int
    samples: list[dict[str, str]]
    statistics: dict[str, Any]


def number_of(shard: S3Uri) -> int:
    """A shard's number, which its key ends in."""
    return int(shard.key.rpartition("-")[2].removesuffix(".parquet"))


def cut(
    tables: Iterable[pa.Table], *, documents: int, pages: int, documents_per_shard: int
) -> Iterator[pa.Table]:
    """Cut documents into shards of about the same work, in the order that they come in; at least one.

    Args:
        tables: The documents: where they are, where their pages are, and how many.
        documents: How many documents there are.
        pages: How many pages these have together.
        documents_per_shard: How many documents without pages a shard has at the most, unless that gives
            more than ``MAX_SHARDS``.
    """
    import pyarrow as pa

    total = max(1.0, documents + pages / _PAGES_PER_DOCUMENT)
    count = max(1, min(MAX_SHARDS, math.ceil(total / documents_per_shard)))
    schema = shard_schema()
    current, done = 0, 0.0
    pending = [schema.empty_table()]
    for table in tables:
        numbers = []
        for written in table["pages_written"].to_pylist():
            numbers.append(min(count - 1, int(done * count / total)))
            done += 1 + written / _PAGES_PER_DOCUMENT
        for number, begin, end in _ranges(numbers):
            while current < number:
                yield pa.concat_tables(pending)
                current, pending = current + 1, [schema.empty_table()]
            pending.append(table.slice(begin, end - begin).select(schema.names).cast(schema))
    while current < count:
        yield pa.concat_tables(pending)
        current, pending = current + 1, [schema.empty_table()]


def _ranges(numbers: list[int]) -> Iterator[tuple[int, int, int]]:
    """The stretches of equal numbers: number, begin, end."""
    begin = 0
    for position in range(1, len(numbers) + 1):
        if position == len(numbers) or numbers[position] != numbers[begin]:
            yield numbers[begin], begin, position
            begin = position


def shard_schema() -> pa.Schema:
    """What a shard says about a document: where its pages are, and how much that is."""
    import pyarrow as pa

    return pa.schema(
        [
            ("source_uri", pa.string()),
            ("output_uri", pa.string()),
            ("pages_written", pa.int32()),
            ("char_count", pa.int64()),
        ]
    )


def shard_bytes(documents: pa.Table) -> bytes:
    """A shard as the Parquet file that it is kept in."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(documents, sink, compression="zstd")
    return bytes(sink.getvalue())


def read_shard(data: bytes) -> Iterator[list[dict[str, Any]]]:
    """A shard's documents, some at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(pa.BufferReader(data)) as file:
        # As Python objects, documents take twenty times what they take in a table.
        for batch in file.iter_batches(1_000, use_threads=False):
            yield batch.to_pylist()
