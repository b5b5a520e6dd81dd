"""Merging manifest lines against DuckDB doing the same: each document once, one file, the same figures.

``python -m benchmarks.merge`` makes the parts, runs both in turn in processes of their own, and prints clock,
CPU and peak memory. Local files on both sides, so that it is the merging that is measured and not S3.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks import measure

WORK = Path(".build/bench/merge")
LINES = 1_000_000
PART_LINES = 2_000
REPEATED = 0.02
BEGAN = datetime(2026, 3, 1, tzinfo=UTC)

DUCKDB_MERGE = """
COPY (
    SELECT * EXCLUDE (kept) FROM (
        SELECT *, row_number() OVER (
            PARTITION BY source_uri
            ORDER BY CASE status WHEN 'done' THEN 0 WHEN 'partial' THEN 1 WHEN 'skipped' THEN 2 ELSE 3 END,
                     read_at, worker_id, attempt, output_uri
        ) AS kept
        FROM read_parquet('{parts}/*.parquet')
    ) WHERE kept = 1
) TO '{manifest}' (FORMAT parquet, COMPRESSION zstd)
"""
DUCKDB_FIGURES = {
    "documents": "SELECT status, count(*) FROM '{manifest}' GROUP BY status ORDER BY status",
    "totals": "SELECT sum(source_size), sum(char_count), round(sum(cpu_ms)) FROM '{manifest}'",
    "errors": """SELECT status, error_class, error_code, count(*), (array_agg(source_uri))[1:5]
                 FROM '{manifest}' WHERE error_class IS NOT NULL GROUP BY ALL ORDER BY 4 DESC""",
    "timings": "SELECT quantile_cont(wall_ms, [0.5, 0.95]) FROM '{manifest}' WHERE wall_ms > 0",
    "minutes": "SELECT epoch_ms(read_at) // 60000, count(*) FROM '{manifest}' GROUP BY 1 ORDER BY 1",
    "slowest": "SELECT source_uri, wall_ms FROM '{manifest}' ORDER BY wall_ms DESC LIMIT 20",
}


def make_parts(folder: Path, lines: int, part_lines: int) -> None:
    """Parts as workers write them; some lines are repeated in a later part, as redelivery does."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from pdf_ops.contract.documents import DocumentRow, DocumentStatus, to_record_batch

    chance = random.Random(1)
    folder.mkdir(parents=True)
    repeated: list[DocumentRow] = []
    rows: list[DocumentRow] = []
    number = 0

    def flush() -> None:
        nonlocal rows, number
        table = pa.Table.from_batches([to_record_batch(rows)])
        pq.write_table(table, folder / f"part-{number:05d}.parquet", compression="zstd")
        rows, number = [], number + 1

    for document in range(lines):
        digest = hashlib.sha256(str(document).encode()).hexdigest()
        status = chance.choices(list(DocumentStatus), weights=[95, 2, 2, 1])[0]
        is_failed = status is DocumentStatus.FAILED
        page_count = None if is_failed else chance.randint(1, 20)
        row = DocumentRow(
            source_uri=f"s3://customer-documents/incoming/2026/03/{digest[:2]}/invoice {document:09d}.pdf",
            doc_id=None if is_failed else digest,
            source_etag=digest[32:],
            source_size=chance.randint(10_000, 5_000_000),
            media_type="application/pdf",
            status=status,
            output_uri=None if is_failed else f"s3://output/data/by_document/{digest[:2]}/{digest}.parquet",
            page_count=page_count,
            pages_written=page_count or 0,
            pages_text_layer=page_count or 0,
            char_count=1_800 * (page_count or 0),
            error_class="CORRUPT" if is_failed else None,
            error_code=chance.choice(["truncated", "no_pages"]) if is_failed else None,
            error_phase="probe" if is_failed else None,
            error_message="The file ends before its end." if is_failed else None,
            run_id="scheduled__2026-03-01T00:00:00+00:00",
            worker_id=f"worker-{document % 40:02d}",
            languages="eng",
            config_hash="0123456789abcdef",
            wall_ms=chance.lognormvariate(6, 1),
            cpu_ms=chance.lognormvariate(5.8, 1),
            read_at=BEGAN + timedelta(milliseconds=document * 12),
        )
        rows.append(row)
        if chance.random() < REPEATED:
            repeated.append(row)
        if len(rows) >= part_lines:
            rows += repeated[:50]
            del repeated[:50]
            flush()
    rows += repeated
    flush()


def merge_ours(parts: Path, manifest: Path) -> dict[str, object]:
    """What the operator does, without S3."""
    from pdf_ops.merging import ManifestMerger, ManifestWriter
    from pdf_ops.run_statistics import RunStatistics

    statistics = RunStatistics()
    with tempfile.TemporaryDirectory(dir=manifest.parent) as folder, ManifestWriter(manifest) as writer:
        merger = ManifestMerger(Path(folder))
        for part in sorted(parts.glob("*.parquet")):
            merger.add(part)
        for rows in merger.tables():
            writer.write(rows)
            statistics.add_documents(rows)
    return statistics.as_json()


def merge_duckdb(parts: Path, manifest: Path) -> dict[str, object]:
    """The same by DuckDB, with all its threads and as much memory as it likes."""
    import duckdb

    duckdb.execute(DUCKDB_MERGE.format(parts=parts, manifest=manifest))
    return {
        name: duckdb.execute(query.format(manifest=manifest)).fetchall()
        for name, query in DUCKDB_FIGURES.items()
    }


def main() -> int:
    """Measure, print a table, and fail if the ratio is above the limit."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.merge", description=__doc__)
    parser.add_argument("--one", choices=["ours", "duckdb"], help="run one of them here and now")
    parser.add_argument("--lines", type=int, default=LINES)
    parser.add_argument("--part-lines", type=int, default=PART_LINES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--duckdb-python", type=Path, default=Path(".venv-bench/bin/python"))
    parser.add_argument("--max-ratio", type=float, default=2.0, help="of clock time, ours to DuckDB's")
    options = parser.parse_args()
    parts = WORK / f"parts-{options.lines}-{options.part_lines}"
    if options.one:
        merge = merge_ours if options.one == "ours" else merge_duckdb
        figures = merge(parts, WORK / f"{options.one}.parquet")
        (WORK / f"{options.one}.json").write_text(json.dumps(figures, default=str))
        return 0
    return _compare(options)


def compare(
    *, lines: int, part_lines: int, rounds: int, duckdb_python: Path
) -> dict[str, list[measure.Usage]]:
    """Run both in turn, several times, each in a process of its own."""
    from benchmarks import measure

    parts = WORK / f"parts-{lines}-{part_lines}"
    if not parts.exists():
        WORK.mkdir(parents=True, exist_ok=True)
        print(f"writing {lines} lines", file=sys.stderr)
        unfinished = WORK / "unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        make_parts(unfinished, lines, part_lines)
        unfinished.rename(parts)
    same = ["--lines", str(lines), "--part-lines", str(part_lines)]
    contenders = {
        "ours": [sys.executable, "-m", "benchmarks.merge", "--one", "ours", *same],
        "duckdb": [str(duckdb_python), str(Path(__file__)), "--one", "duckdb", *same],
    }
    usages: dict[str, list[measure.Usage]] = {name: [] for name in contenders}
    for number in range(rounds):
        for name, command in contenders.items():
            print(f"  merge: {name} ({number + 1}/{rounds})", file=sys.stderr)
            usages[name].append(measure.run(command))
    return usages


def _compare(options: argparse.Namespace) -> int:
    usages = compare(
        lines=options.lines,
        part_lines=options.part_lines,
        rounds=options.rounds,
        duckdb_python=options.duckdb_python,
    )
    print("| | wall s | CPU s | peak MB |\n|---|---|---|---|")
    for name, found in usages.items():
        wall, cpu, peak = (
            median(getattr(usage, figure) for usage in found)
            for figure in ("wall_s", "cpu_s", "peak_rss_bytes")
        )
        print(f"| {name} | {wall:.2f} | {cpu:.2f} | {peak / 1e6:.0f} |")
    ratio = median(usage.wall_s for usage in usages["ours"]) / median(
        usage.wall_s for usage in usages["duckdb"]
    )
    print(f"\nours / DuckDB: {ratio:.2f} (limit {options.max_ratio})")
    return 0 if ratio <= options.max_ratio else 1


if __name__ == "__main__":
    raise SystemExit(main())
