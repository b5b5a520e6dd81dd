"""Page datasets with text of a test's choosing, in a folder or in S3."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from pdf_ops.contract.pages import Method, MethodReason, PageRow, PageStatus, to_record_batch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pdf_ops.contract.layout import S3Uri

BUCKET = "documents"
DAY = datetime(2026, 3, 1, tzinfo=UTC)


def page_rows(run: str, texts: Mapping[str, Sequence[str]], *, day: int = 0) -> list[PageRow]:
    """A row per page; keys are keys of the input bucket."""
    return [
        PageRow(
            doc_id=hashlib.sha256(key.encode()).hexdigest(),
            source_uri=f"s3://{BUCKET}/{key}",
            source_size=100,
            page=number,
            page_count=len(pages),
            text=text,
            char_count=len(text),
            method=Method.TEXT_LAYER,
            method_reason=MethodReason.GOOD_TEXT_LAYER,
            status=PageStatus.OK,
            run_id=run,
            languages="eng",
            config_hash="c",
            read_at=DAY + timedelta(days=day),
        )
        for key, pages in texts.items()
        for number, text in enumerate(pages, 1)
    ]


def write_rows(path: Path, rows: Sequence[PageRow]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_batches([to_record_batch(list(rows))]), path)
    return path


def write_run(
    dataset: Path, run: str, texts: Mapping[str, Sequence[str]], *, day: int = 0, number: int = 0
) -> Path:
    """A file of a run, named as `merge` names it."""
    name = f"run_date={(DAY + timedelta(days=day)).date()}/run-{run}-{number:05d}.parquet"
    return write_rows(dataset / name, page_rows(run, texts, day=day))


def upload_dataset(client: Any, dataset: Path, root: S3Uri) -> None:
    for path in sorted(dataset.rglob("*.parquet")):
        client.upload_file(str(path), root.bucket, root.key + path.relative_to(dataset).as_posix())
