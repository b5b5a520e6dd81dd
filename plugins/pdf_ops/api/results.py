"""A document's rows, read from its Parquet file in S3: only the row groups and bytes that are asked for.

Rows are what workers wrote; nothing here opens a document.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from pdf_ops.contract.layout import S3Uri

_COLUMNS = (
    "page",
    "text",
    "method",
    "method_reason",
    "ocr_confidence",
    "status",
    "error_class",
    "error_code",
    "error_message",
)


class RangedFile(io.RawIOBase):
    """An object in S3 as a file that can be read anywhere; each read is one request.

    :param client: S3.
    :param uri: The object.
    """

    def __init__(self, client: Any, uri: S3Uri) -> None:
        self._client, self._uri = client, uri
        self._size: int = client.head_object(Bucket=uri.bucket, Key=uri.key)["ContentLength"]
        self._position = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Where the next read begins."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go there."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        end = self._size if size < 0 else min(self._size, self._position + size)
        if end <= self._position:
            return b""
        answer = self._client.get_object(
            Bucket=self._uri.bucket, Key=self._uri.key, Range=f"bytes={self._position}-{end - 1}"
        )
        with answer["Body"] as body:
            data: bytes = body.read()
        self._position += len(data)
        return data


def read_pages(client: Any, uri: S3Uri, first: int, last: int) -> tuple[int, list[dict[str, Any]]]:
    """How many pages a document has, and the rows of some of them, in order."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(RangedFile(client, uri)) as file:
        rows: list[dict[str, Any]] = []
        for group in _groups(file, first, last):
            found = file.read_row_group(group, columns=list(_COLUMNS)).to_pylist()
            rows += (row for row in found if first <= row["page"] <= last)
        return file.metadata.num_rows, sorted(rows, key=lambda row: row["page"])


def read_text(client: Any, uri: S3Uri) -> Iterator[bytes]:
    """The text of all pages, a form feed between two, a row group at a time."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(RangedFile(client, uri)) as file:
        is_first = True
        for group in range(file.num_row_groups):
            for text in file.read_row_group(group, columns=["text"])["text"].to_pylist():
                yield (b"" if is_first else b"\f") + text.encode("utf-8", "replace")
                is_first = False


def _groups(file: Any, first: int, last: int) -> Iterator[int]:
    """The row groups that may hold pages of a range, by the file's own statistics."""
    column = file.schema_arrow.names.index("page")
    for number in range(file.num_row_groups):
        statistics = file.metadata.row_group(number).column(column).statistics
        if (
            statistics is None
            or not statistics.has_min_max
            or (statistics.min <= last and statistics.max >= first)
        ):
            yield number
