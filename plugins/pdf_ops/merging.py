"""From many manifest parts to one manifest, in constant memory.

Works on Arrow tables and local files; what is read and where results go is the operator's business.
Not for the documents' pages: ``pdf_ops.compaction`` gathers those.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self
from zlib import crc32

from pdf_ops.contract.documents import DocumentRow, DocumentStatus, document_schema
from pdf_ops.contract.errors import ErrorKind
from pdf_ops.contract.pages import Method, PageStatus
from pdf_ops.partitions import Partitions, partitions_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    import pyarrow as pa

    from pdf_ops.contract.fingerprint import ReadingConfig
    from pdf_ops.contract.runs import Outcome

COMPRESSION = {"compression": "zstd", "compression_level": 3}
# Dictionaries of values that never repeat cost time and space.
_UNIQUE_COLUMNS = frozenset(
    (
        *("source_uri", "doc_id", "source_etag", "source_version_id", "output_uri", "source_size"),
        *("char_count", "ocr_confidence", "wall_ms", "cpu_ms", "read_at"),
    )
)
_STATUSES = (DocumentStatus.DONE, DocumentStatus.PARTIAL, DocumentStatus.SKIPPED, DocumentStatus.FAILED)
"""From best to worst: of two lines about the same document the better one counts."""

BATCH_ROWS = 4_000
PARTITION_ROWS = 5_000
COUNTED_ROWS = 1_000_000


class UnreadableRowsError(ValueError):
    """A file does not hold the rows that it should."""


def plain_document_schema() -> pa.Schema:
    """The document schema with plain strings, which are simpler to concatenate and to compare."""
    import pyarrow as pa

    return pa.schema(
        [
            pa.field(field.name, pa.string() if pa.types.is_dictionary(field.type) else field.type)
            for field in document_schema()
        ]
    )


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Bring a table to a schema: columns that it does not know are dropped, missing ones are null.

    Raises:
        UnreadableRowsError: If that cannot be done.
    """
    import pyarrow as pa

    if table.schema.equals(schema):
        return table
    columns = []
    for field in schema:
        position = table.schema.get_field_index(field.name)
        if position < 0:
            if not field.nullable:
                raise UnreadableRowsError(f"there is no column {field.name}")
            columns.append(pa.nulls(table.num_rows, field.type))
            continue
        column = table.column(position)
        try:
            columns.append(column if column.type == field.type else column.cast(field.type))
        except pa.ArrowException as error:
            raise UnreadableRowsError(f"column {field.name}: {error}") from error
    return pa.Table.from_arrays(columns, schema=schema)


def read_rows(source: bytes | Path, schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows of a Parquet file in tables of bounded size.

    Raises:
        UnreadableRowsError: If it is not a Parquet file, or not one of these rows.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if isinstance(source, bytes):
            with pq.ParquetFile(pa.BufferReader(source)) as file:
                yield conform(file.read(use_threads=False), schema)
        else:
            with pq.ParquetFile(str(source)) as file:
                for number in range(file.num_row_groups):
                    yield conform(file.read_row_group(number, use_threads=False), schema)
    except (pa.ArrowException, OSError) as error:
        raise UnreadableRowsError(f"not a readable Parquet file: {error}") from error


class ManifestMerger:
    """Collects document rows and gives each document once.

    A first look reads only the documents' names and keeps 4 bytes of each. Lines whose bytes are
    unique go straight through; only those that may be repeated are spread over partitions and
    compared. So repetition costs what it has to, and memory does not depend on it.

    :param folder: An existing local folder for temporary files.
    """

    def __init__(self, folder: Path) -> None:
        self.schema = plain_document_schema()
        self.lines = 0
        self.documents = 0
        self.repeated = 0
        self.repaired = 0
        self._folder = folder
        self._parts: list[Path] = []
        self._checksums: list[pa.Array] = []

    def add(self, part: Path) -> None:
        """Take a manifest part: a local Parquet file that stays where it is until the end.

        Raises:
            UnreadableRowsError: If it is none.
        """
        import pyarrow as pa

        # All or nothing: checksums must stay in step with the rows.
        checksums = [
            pa.array(map(crc32, names.cast(pa.binary()).to_pylist()), pa.uint32())
            for names in _read_names(part)
        ]
        self._checksums += checksums
        self.lines += sum(map(len, checksums))
        self._parts.append(part)

    def tables(self) -> Iterator[pa.Table]:
        """The documents, each once, in tables of bounded size."""
        import pyarrow as pa
        import pyarrow.compute as pc

        checksums = pa.chunked_array(self._checksums, pa.uint32())
        self._checksums = []
        suspects = _repeated_values(checksums)
        count = partitions_for(len(suspects), PARTITION_ROWS)
        begin = 0
        with Partitions(
            self._folder, name="suspects", count=count, schema=self.schema, key="source_uri"
        ) as partitions:
            for rows in _ahead(self._batches()):
                if len(suspects):
                    is_suspect = pc.is_in(checksums.slice(begin, rows.num_rows), suspects)
                    partitions.add(rows.filter(is_suspect))
                    unique = rows.filter(pc.invert(is_suspect))
                else:
                    unique = rows
                begin += rows.num_rows
                self.documents += unique.num_rows
                if unique.num_rows:
                    yield unique
            partitions.finish()
            for number in range(count):
                lines = partitions.read(number)
                kept = keep_best(lines)
                self.documents += kept.num_rows
                self.repeated += lines.num_rows - kept.num_rows
                if kept.num_rows:
                    yield kept

    def lost(self, expected: Iterable[tuple[str, str]]) -> Iterator[list[str]]:
        """What was expected and has no line: pairs of a document's name and anything about it.

        Gives the second of each pair, some at a time. Slow, and seldom needed.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        have_schema = pa.schema([("source_uri", pa.string())])
        want_schema = have_schema.append(pa.field("about", pa.string()))
        count = partitions_for(self.lines, PARTITION_ROWS)
        with (
            Partitions(self._folder, name="have", count=count, schema=have_schema, key="source_uri") as have,
            Partitions(self._folder, name="want", count=count, schema=want_schema, key="source_uri") as want,
        ):
            for part in self._parts:
                for names in _read_names(part):
                    have.add(pa.table([names], schema=have_schema))
            have.finish()
            for pairs in _batched(expected, 5_000):
                want.add(pa.table(list(zip(*pairs, strict=True)), schema=want_schema))
            want.finish()
            for number in range(count):
                wanted = want.read(number)
                missing = wanted.filter(pc.invert(pc.is_in(wanted["source_uri"], have.read_keys(number))))
                about = missing["about"].to_pylist()
                self.repaired += len(about)
                self.documents += len(about)
                for begin in range(0, len(about), 500):
                    yield about[begin : begin + 500]

    def _batches(self) -> Iterator[pa.Table]:
        """All lines in the order of the parts, in tables of about ``BATCH_ROWS``."""
        import pyarrow as pa

        pending: list[pa.Table] = []
        rows = 0
        for part in self._parts:
            for table in read_rows(part, self.schema):
                pending.append(table)
                rows += table.num_rows
                if rows >= BATCH_ROWS:
                    yield pa.concat_tables(pending)
                    pending, rows = [], 0
        if rows:
            yield pa.concat_tables(pending)


def _read_names(part: Path) -> Iterator[pa.Array]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(str(part)) as file:
            for batch in file.iter_batches(BATCH_ROWS, columns=["source_uri"], use_threads=False):
                yield batch.column(0)
    except (pa.ArrowException, OSError) as error:
        raise UnreadableRowsError(f"not a readable Parquet file: {error}") from error


def _repeated_values(values: pa.ChunkedArray) -> pa.Array:
    """The values that are there more than once; a range at a time, since counting takes memory."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ranges = max(1, -(-len(values) // COUNTED_ROWS))
    width = -(-(2**32) // ranges)
    found = []
    for number in range(ranges):
        some = values
        if ranges > 1:
            low, high = pa.scalar(number * width, pa.int64()), pa.scalar((number + 1) * width, pa.int64())
            wide = values.cast(pa.int64())
            some = values.filter(pc.and_(pc.greater_equal(wide, low), pc.less(wide, high)))
        counts = pc.value_counts(some)
        found.append(counts.field("values").filter(pc.greater(counts.field("counts"), 1)))
    return pa.concat_arrays(found)


def _ahead(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The same tables; the next one is read while this one is worked on."""
    with ThreadPoolExecutor(1, thread_name_prefix="read-ahead") as pool:
        following = pool.submit(next, tables, None)
        while (table := following.result()) is not None:
            following = pool.submit(next, tables, None)
            yield table


def _batched(items: Iterable[tuple[str, str]], size: int) -> Iterator[list[tuple[str, str]]]:
    batch: list[tuple[str, str]] = []
    for item in items:
        batch.append(item)
        if len(batch) >= size:
            yield batch
            batch = []
    if batch:
        yield batch


def keep_best(lines: pa.Table) -> pa.Table:
    """Each document once; of several lines the best, and of equals the earliest.

    The choice depends on the lines alone, not on their order.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if pc.count_distinct(lines["source_uri"]).as_py() == lines.num_rows:
        return lines
    keys = lines.select(["source_uri", "read_at", "worker_id", "attempt", "output_uri"])
    keys = keys.append_column(
        "rank", pc.index_in(lines["status"], pa.array(map(str, _STATUSES), pa.string()))
    )
    order = pc.sort_indices(
        keys,
        sort_keys=[
            (name, "ascending")
            for name in ("source_uri", "rank", "read_at", "worker_id", "attempt", "output_uri")
        ],
    )
    uris = keys["source_uri"].take(order).combine_chunks()
    is_first = pa.concat_arrays([pa.array([True]), pc.not_equal(uris.slice(1), uris.slice(0, len(uris) - 1))])
    kept = order.filter(is_first)
    # In the order that they came in, as where nothing was repeated.
    return lines.take(kept.take(pc.array_sort_indices(kept)))


class ManifestWriter:
    """Writes document rows to one local Parquet file."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.schema = document_schema()
        self._statuses = pa.array([status.value for status in DocumentStatus], pa.string())
        repeating = [field.name for field in self.schema if field.name not in _UNIQUE_COLUMNS]
        self._writer = pq.ParquetWriter(str(path), self.schema, use_dictionary=repeating, **COMPRESSION)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def write(self, rows: pa.Table) -> None:
        """Append rows whose statuses are plain strings."""
        import pyarrow as pa
        import pyarrow.compute as pc

        numbers = pc.index_in(rows["status"].combine_chunks(), self._statuses).cast(pa.int16())
        status = pa.DictionaryArray.from_arrays(numbers, self._statuses)
        columns = [status if field.name == "status" else rows[field.name] for field in self.schema]
        self._writer.write_table(pa.Table.from_arrays(columns, schema=self.schema))


def repaired_row(
    outcome: Outcome,
    *,
    source_uri: str,
    reading: ReadingConfig,
    output_uri: str | None,
    pages: pa.Table | None,
) -> DocumentRow:
    """Rebuild the line of a document whose manifest part was lost.

    Args:
        outcome: What the runs table says.
        source_uri: The document.
        reading: How the run reads.
        output_uri: Where its page rows are, if it has any.
        pages: Its page rows; what the outcome does not say comes from them.
    """
    error_message = None
    if outcome.error_class is not None:
        try:
            kind = ErrorKind.of(outcome.error_class, outcome.error_code or "")
            error_message = f"{kind.meaning} {kind.what_to_do}"
        except ValueError:
            error_message = f"{outcome.error_class}/{outcome.error_code}"
    measured = {} if pages is None or not pages.num_rows else _measure(pages)
    return DocumentRow(
        source_uri=source_uri,
        source_etag=outcome.etag,
        status=outcome.status,
        output_uri=output_uri,
        error_class=outcome.error_class,
        error_code=outcome.error_code,
        error_message=error_message,
        run_id=outcome.run_id,
        worker_id=outcome.worker_id,
        languages=reading.languages_label,
        config_hash=reading.config_hash,
        read_at=_moment(outcome.committed_at),
        **{"pages_written": outcome.pages} | measured,
    )


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _measure(pages: pa.Table) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    methods = pages["method"].cast(pa.string())
    is_ok = pc.equal(pages["status"].cast(pa.string()), PageStatus.OK.value)

    def ok_pages(method: Method) -> int:
        return int(pc.sum(pc.and_(is_ok, pc.equal(methods, method.value))).as_py() or 0)

    first = pages.slice(0, 1).to_pylist()[0]
    return {
        "doc_id": first["doc_id"],
        "source_version_id": first["source_version_id"],
        "source_size": first["source_size"],
        "page_count": first["page_count"],
        "attempt": first["attempt"],
        "pages_written": pages.num_rows,
        "pages_text_layer": ok_pages(Method.TEXT_LAYER),
        "pages_ocr": ok_pages(Method.OCR),
        "pages_empty": ok_pages(Method.EMPTY),
        "pages_none": ok_pages(Method.NONE),
        "pages_error": pages.num_rows - int(pc.sum(is_ok).as_py() or 0),
        "char_count": int(pc.sum(pages["char_count"]).as_py() or 0),
        "ocr_confidence": pc.mean(pages["ocr_confidence"]).as_py(),
        "cpu_ms": float(pc.sum(pages["cpu_ms"]).as_py() or 0.0),
    }
