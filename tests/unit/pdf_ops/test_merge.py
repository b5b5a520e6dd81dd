from __future__ import annotations

import random
import tracemalloc
from dataclasses import replace
from datetime import date, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.runs import BEGAN, INPUT, LAYOUT_ARGUMENTS, OUTPUT, WrittenRun, moto_server

from pdf_ops import merging
from pdf_ops.compaction import PageCompactor
from pdf_ops.contract.documents import DocumentRow, DocumentStatus, to_record_batch
from pdf_ops.contract.layout import S3Uri
from pdf_ops.contract.pages import page_schema
from pdf_ops.merge_plan import MAX_SHARDS, cut
from pdf_ops.merging import ManifestMerger, keep_best, plain_document_schema
from pdf_ops.operators.merge import MergeError, MergeOperator
from pdf_ops.operators.plan_merge import PlanMergeOperator
from pdf_ops.operators.publish import PublishOperator
from pdf_ops.partitions import Partitions
from pdf_ops.run_statistics import Histogram, RunStatistics

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DAY = date(2026, 3, 1)
STATUSES = list(DocumentStatus)


@pytest.fixture
def run() -> Iterator[WrittenRun]:
    with moto_server():
        yield WrittenRun().create()


def statistics_of(run: WrittenRun) -> dict:
    return run.json(run.layout.statistics_json(run.run_id))


def test_each_document_is_in_the_manifest_once_though_redelivery_repeated_its_line(run):
    rows = [run.document(f"{number}.pdf") for number in range(5)]
    run.put_record(5)
    run.put_part(rows[:3], worker="worker-1")
    run.put_part([rows[2], *rows[3:], rows[0]], worker="worker-2")
    run.commit(rows)

    result = run.merge()

    assert sorted(row["source_uri"] for row in run.manifest()) == [row.source_uri for row in rows]
    assert result["repeated"] == 2
    assert result["documents"] == {"done": 5, "partial": 0, "failed": 0, "skipped": 0}


def test_the_dataset_has_every_page_of_done_and_partial_documents_and_no_others(run):
    rows = [
        run.document("done.pdf", page_count=3),
        run.document("partial.pdf", DocumentStatus.PARTIAL, page_count=2),
        run.document("failed.pdf", DocumentStatus.FAILED, error=("CORRUPT", "truncated")),
        replace(
            run.document("elsewhere.pdf", DocumentStatus.SKIPPED),
            output_uri=str(run.page_file("elsewhere.pdf")),
        ),
    ]
    run.put_pages("elsewhere.pdf", 4, "worker-9", BEGAN)
    run.put_record(4)
    run.put_part(rows)
    run.commit(rows)

    result = run.merge()

    table = run.page_table()
    assert table.schema.equals(page_schema())
    assert result["page_rows"] == table.num_rows == 5
    assert set(table["source_uri"].to_pylist()) == {f"s3://{INPUT}/done.pdf", f"s3://{INPUT}/partial.pdf"}
    documents = run.table(run.layout.documents_part(DAY, run.run_id, 0))
    assert documents.num_rows == 4


def test_a_line_that_a_dying_worker_never_wrote_is_rebuilt_from_its_outcome_and_its_page_file(run):
    kept, lost, failed = (
        run.document("kept.pdf"),
        run.document("lost ü+.pdf", page_count=7),
        run.document("failed.pdf", DocumentStatus.FAILED, error=("CRASH", "poison")),
    )
    run.put_record(3)
    run.put_listing(["kept.pdf", "lost ü+.pdf", "failed.pdf"])
    run.put_part([kept])
    run.commit([kept, lost, failed])

    result = run.merge()

    rows = {row["source_uri"]: row for row in run.manifest()}
    assert result["repaired"] == 2
    assert result["page_rows"] == 9
    rebuilt = rows[lost.source_uri]
    assert (rebuilt["status"], rebuilt["page_count"], rebuilt["pages_written"]) == ("done", 7, 7)
    assert (rebuilt["doc_id"], rebuilt["pages_text_layer"], rebuilt["char_count"]) == (lost.doc_id, 7, 140)
    assert rebuilt["output_uri"] == lost.output_uri
    assert (rows[failed.source_uri]["error_class"], rows[failed.source_uri]["error_code"]) == (
        "CRASH",
        "poison",
    )


def test_a_manifest_part_that_cannot_be_read_is_rebuilt_too(run):
    rows = [run.document("a.pdf"), run.document("b.pdf")]
    run.put_record(2)
    run.put_listing(["a.pdf", "b.pdf"])
    run.put_part(rows[:1])
    broken = run.layout.manifest_part(run.run_id, "worker-2", 0)
    run.s3.put_object(Bucket=broken.bucket, Key=broken.key, Body=b"half a fi")
    run.commit(rows)

    result = run.merge()

    assert (result["repaired"], result["documents"]["done"], result["page_rows"]) == (1, 2, 4)


def test_a_retry_writes_the_same_objects_and_removes_what_a_longer_attempt_left(run):
    rows = [run.document(f"{number}.pdf", page_count=10) for number in range(4)]
    run.put_record(4)
    run.put_part(rows)
    run.commit(rows)
    neighbour = run.layout.pages_part(DAY, run.run_id + "-00001", 3)
    run.s3.put_object(Bucket=OUTPUT, Key=neighbour.key, Body=b"another run's")

    run.merge(file_rows=15)
    longer = run.keys(OUTPUT, "data/pages/")
    first = run.merge()
    manifest = run.s3.get_object(
        Bucket=run.layout.run_manifest(run.run_id).bucket, Key=run.layout.run_manifest(run.run_id).key
    )
    shorter = run.keys(OUTPUT, "data/pages/")
    second = run.merge()
    again = run.s3.get_object(
        Bucket=run.layout.run_manifest(run.run_id).bucket, Key=run.layout.run_manifest(run.run_id).key
    )

    assert len(longer) == 3 + 1
    assert sorted(shorter) == sorted([run.layout.pages_part(DAY, run.run_id, 0).key, neighbour.key])
    assert first == second
    assert manifest["Body"].read() == again["Body"].read()
    assert run.keys(OUTPUT, "data/pages/") == shorter


def test_files_end_at_the_number_of_rows_that_is_asked_for(run):
    rows = [run.document(f"{number}.pdf", page_count=10) for number in range(3)]
    run.put_record(3)
    run.put_part(rows)
    run.commit(rows)

    result = run.merge(file_rows=12)

    sizes = [
        run.table(run.layout.pages_part(DAY, run.run_id, number)).num_rows
        for number in range(result["page_files"])
    ]
    assert sizes == [12, 12, 6]


def test_a_page_file_that_is_gone_or_broken_is_named_and_does_not_stop_the_others(run):
    rows = [
        run.document("here.pdf"),
        run.document("gone.pdf", pages_file=False),
        run.document("broken.pdf"),
        run.document("short.pdf", page_count=3),
    ]
    run.put_pages("short.pdf", 2, "worker-1", BEGAN)
    run.s3.put_object(Bucket=OUTPUT, Key=run.page_file("broken.pdf").key, Body=b"PAR1 no, it is not")
    run.put_record(4)
    run.put_part(rows)
    run.commit(rows)

    result = run.merge()

    assert result["unreadable"] == 3
    named = {item["source_uri"].rpartition("/")[2] for item in statistics_of(run)["unreadable"]["samples"]}
    assert named == {"gone.pdf", "broken.pdf", "short.pdf"}
    assert "here.pdf" in {uri.rpartition("/")[2] for uri in run.page_table()["source_uri"].to_pylist()}


def test_a_run_without_documents_has_an_empty_manifest_and_no_dataset_files(run):
    result = run.merge()

    assert run.manifest() == []
    assert result["page_files"] == 0
    assert run.keys(OUTPUT) == []


def test_the_statistics_say_how_the_run_went(run):
    rows = [
        run.document("a.pdf", page_count=1, minute=0),
        run.document("slow.pdf", page_count=9, minute=2),
        run.document("bad.pdf", DocumentStatus.FAILED, error=("CORRUPT", "truncated"), minute=2),
    ]
    run.put_record(3)
    run.put_part(rows)
    run.commit(rows)

    run.merge()

    found = statistics_of(run)
    assert found["documents"] == {"done": 2, "partial": 0, "failed": 1, "skipped": 0}
    assert found["pages"]["methods"] == {"text_layer": 10}
    assert found["throughput"] == [
        {"minute": "2026-03-01T08:00+00:00", "documents": 1, "pages": 1},
        {"minute": "2026-03-01T08:02+00:00", "documents": 2, "pages": 9},
    ]
    assert found["slowest"][0]["source_uri"].endswith("slow.pdf")
    assert found["stages"]["text_ms"]["p50_ms"] == pytest.approx(4.0, rel=0.03)
    assert found["stages"]["ocr_ms"]["count"] == 0
    assert found["errors"] == [
        {
            "status": "failed",
            "error_class": "CORRUPT",
            "error_code": "truncated",
            "documents": 1,
            "samples": [f"s3://{INPUT}/bad.pdf"],
        }
    ]


def test_the_operators_arguments_are_templated():
    for operator in (
        PlanMergeOperator(task_id="plan_merge", **LAYOUT_ARGUMENTS),
        MergeOperator(task_id="merge", shard_uri="s3://bucket/shard-00000.parquet", **LAYOUT_ARGUMENTS),
        PublishOperator(task_id="publish", **LAYOUT_ARGUMENTS),
    ):
        assert operator.run_id == "{{ run_id }}"
        assert set(operator.template_fields) >= {
            "output_bucket",
            "output_prefix",
            "manifest_bucket",
            "manifest_prefix",
            "runs_table",
            "run_id",
        }
    assert "input_bucket" in PlanMergeOperator.template_fields
    assert "shard_uri" in MergeOperator.template_fields


# --- several shards ------------------------------------------------------------


def written(run: WrittenRun, count: int = 6) -> list[DocumentRow]:
    """A run of some documents, one page the first, two the second, and so on."""
    rows = [run.document(f"{number}.pdf", page_count=number + 1, minute=number) for number in range(count)]
    rows.append(run.document("failed.pdf", DocumentStatus.FAILED, error=("CORRUPT", "truncated")))
    run.put_record(len(rows))
    run.put_part(rows)
    run.commit(rows)
    return rows


def everything_published(run: WrittenRun) -> dict[str, bytes]:
    return {
        key: run.s3.get_object(Bucket=OUTPUT, Key=key)["Body"].read()
        for dataset in ("pages", "documents")
        for key in run.keys(OUTPUT, f"data/{dataset}/")
    }


def test_several_shards_give_the_same_rows_and_the_same_figures_as_one(run):
    rows = written(run)

    one = run.merge()
    pages, figures = run.page_table(), statistics_of(run)
    several = run.merge(documents_per_shard=2)
    again, figures_again = run.page_table(), statistics_of(run)

    assert (one["page_files"], several["page_files"]) == (1, 4)
    assert one | {"page_files": 4} == several
    assert again.sort_by([("source_uri", "ascending"), ("page", "ascending")]).equals(
        pages.sort_by([("source_uri", "ascending"), ("page", "ascending")])
    )
    assert len(run.manifest()) == len(rows)
    for found in (figures, figures_again):
        del found["merged_at"], found["pages"]["files"], found["pages"]["size_bytes"]
    assert figures == figures_again


def test_nothing_of_a_run_is_published_before_all_its_shards_are_merged(run):
    written(run)
    first, *others = run.plan_merge(documents_per_shard=2)
    run.merge_shard(first)

    with pytest.raises(MergeError, match=r"3 of 4 shards are not merged \(1, 2, 3\); clear merge"):
        run.publish()
    assert everything_published(run) == {}

    for shard in others:
        run.merge_shard(shard)
    assert everything_published(run) == {}
    run.publish()
    assert len(everything_published(run)) == 4 + 1


def test_a_published_run_stays_whole_while_it_is_merged_again(run):
    written(run)
    run.merge(documents_per_shard=2)
    before = everything_published(run)

    shards = run.plan_merge(documents_per_shard=3)
    assert everything_published(run) == before
    for shard in shards:
        run.merge_shard(shard)
        assert everything_published(run) == before
    run.publish()

    assert len(everything_published(run)) == len(shards) + 1 < len(before)
    assert run.page_table().num_rows == sum(range(1, 7))


def test_any_of_the_tasks_may_be_run_again_after_the_last_one(run):
    written(run)
    shards = run.plan_merge(documents_per_shard=2)
    for shard in shards:
        run.merge_shard(shard)
    result = run.publish()
    before = everything_published(run)

    assert run.publish() == result
    run.merge_shard(shards[1])
    assert run.publish() == result

    assert everything_published(run) == before
    assert run.keys(OUTPUT, "data/staged/") == []


def test_rows_that_are_neither_staged_nor_published_are_missed(run):
    written(run)
    run.merge(documents_per_shard=2)
    gone = run.layout.pages_part(DAY, run.run_id, 1_000)
    run.s3.delete_object(Bucket=gone.bucket, Key=gone.key)

    with pytest.raises(MergeError, match="1 files are neither staged nor published; clear merge"):
        run.publish()


def test_a_plan_that_is_made_again_forgets_what_was_merged_by_the_one_before(run):
    written(run)
    for shard in run.plan_merge(documents_per_shard=2):
        run.merge_shard(shard)
    run.plan_merge(documents_per_shard=3)

    assert run.keys(OUTPUT, "data/staged/") == []
    with pytest.raises(MergeError, match="3 of 3 shards are not merged"):
        run.publish()


def test_a_shard_that_is_not_there_says_what_to_clear(run):
    written(run)
    [shard] = run.plan_merge()
    run.s3.delete_object(Bucket=S3Uri.parse(shard).bucket, Key=S3Uri.parse(shard).key)

    with pytest.raises(MergeError, match="clear plan_merge"):
        run.merge_shard(shard)
    with pytest.raises(MergeError, match="1 of 1 shards are not merged"):
        run.publish()


@given(
    pages=st.lists(st.integers(0, 30) | st.integers(0, 100_000), max_size=60),
    per_shard=st.integers(1, 20),
    rows_each=st.integers(1, 25),
)
@settings(deadline=None)
def test_each_document_is_in_one_shard_and_the_shards_are_about_the_same_work(pages, per_shard, rows_each):
    table = pa.table(
        {
            "source_uri": [str(number) for number in range(len(pages))],
            "output_uri": ["s3://b/k"] * len(pages),
            "pages_written": pa.array(pages, pa.int32()),
            "char_count": pa.array([0] * len(pages), pa.int64()),
            "status": ["done"] * len(pages),
        }
    )
    tables = [table.slice(begin, rows_each) for begin in range(0, len(pages), rows_each)]

    shards = list(cut(tables, documents=len(pages), pages=sum(pages), documents_per_shard=per_shard))

    assert 1 <= len(shards) <= MAX_SHARDS
    assert [uri for shard in shards for uri in shard["source_uri"].to_pylist()] == [
        str(number) for number in range(len(pages))
    ]
    works = [[1 + count / 50 for count in shard["pages_written"].to_pylist()] for shard in shards]
    # A shard goes over its share by less than its last document.
    for work in works:
        share = max(per_shard, sum(map(sum, works)) / len(shards))
        assert sum(work) - (work[-1] if work else 0) < share + 1e-6


# --- without AWS ---------------------------------------------------------------


def row(key: str, status: DocumentStatus, second: int, worker: str) -> DocumentRow:
    return DocumentRow(
        source_uri=str(S3Uri(INPUT, key)),
        status=status,
        run_id="r",
        worker_id=worker,
        languages="eng",
        config_hash="0" * 16,
        read_at=BEGAN + timedelta(seconds=second),
    )


LINES = st.lists(
    st.builds(
        row,
        st.sampled_from(["a.pdf", "b.pdf", "c d.pdf", "ü.pdf", "x/y+z.pdf"]) | st.text("ab", min_size=1),
        st.sampled_from(STATUSES),
        st.integers(0, 3),
        st.sampled_from(["w1", "w2"]),
    ),
    max_size=40,
)
RANK = {
    status: rank
    for rank, status in enumerate(
        (DocumentStatus.DONE, DocumentStatus.PARTIAL, DocumentStatus.SKIPPED, DocumentStatus.FAILED)
    )
}


def as_table(rows: list[DocumentRow]) -> pa.Table:
    return pa.Table.from_batches([to_record_batch(rows)])


def as_part(path: Path, rows: list[DocumentRow]) -> Path:
    pq.write_table(as_table(rows), path)
    return path


@given(lines=LINES, cuts=st.integers(1, 5), rows_each=st.integers(1, 7), seed=st.integers(0, 9))
@settings(deadline=None)
def test_merging_keeps_each_document_once_and_its_best_line_however_the_parts_are_cut(
    tmp_path_factory, lines, cuts, rows_each, seed
):
    folder = tmp_path_factory.mktemp("merge")
    best = {}
    for line in lines:
        order = (RANK[line.status], line.read_at, line.worker_id)
        if line.source_uri not in best or order < best[line.source_uri][0]:
            best[line.source_uri] = (order, line)
    shuffled = lines[:]
    random.Random(seed).shuffle(shuffled)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "PARTITION_ROWS", rows_each)
        patch.setattr(merging, "COUNTED_ROWS", rows_each)
        patch.setattr(merging, "BATCH_ROWS", rows_each)
        merger = ManifestMerger(folder)
        for begin in range(0, len(shuffled), cuts):
            merger.add(as_part(folder / f"{begin}.parquet", shuffled[begin : begin + cuts]))
        merged = [row for table in merger.tables() for row in table.to_pylist()]

    assert {row["source_uri"]: (row["status"], row["read_at"], row["worker_id"]) for row in merged} == {
        uri: (line.status.value, line.read_at, line.worker_id) for uri, (_, line) in best.items()
    }
    assert len(merged) == merger.documents == len(best)
    assert merger.repeated == len(lines) - len(best)
    assert merger.lines == len(lines)
    assert {path.suffix for path in folder.iterdir()} <= {".parquet"}


@given(lines=LINES, known=st.sets(st.sampled_from(["a.pdf", "b.pdf", "new.pdf"])))
@settings(deadline=None)
def test_exactly_the_documents_without_a_line_are_repaired(tmp_path_factory, lines, known):
    folder = tmp_path_factory.mktemp("merge")
    have = {line.source_uri for line in lines}
    expected = {str(S3Uri(INPUT, key)) for key in known}

    merger = ManifestMerger(folder)
    merger.add(as_part(folder / "part.parquet", lines))
    merged = [row["source_uri"] for table in merger.tables() for row in table.to_pylist()]
    lost = [about for some in merger.lost((uri, uri) for uri in sorted(expected)) for about in some]

    assert sorted(merged) == sorted(have)
    assert sorted(lost) == sorted(expected - have)
    assert merger.repaired == len(expected - have)


def test_a_line_order_does_not_decide_which_of_two_equal_lines_is_kept():
    lines = [row("a.pdf", DocumentStatus.DONE, 0, worker) for worker in ("w2", "w1")]
    plain = plain_document_schema()

    kept = [keep_best(as_table(order).cast(plain)).to_pylist() for order in (lines, lines[::-1])]

    assert kept[0] == kept[1]
    assert kept[0][0]["worker_id"] == "w1"


def test_rows_of_one_key_share_a_partition_and_no_row_is_lost(tmp_path: Path):
    schema = pa.schema([("key", pa.string()), ("number", pa.int64())])
    keys = [f"key-{number % 977}" for number in range(90_000)]
    with Partitions(tmp_path, name="p", count=16, schema=schema, key="key") as partitions:
        for begin in range(0, len(keys), 7_000):
            piece = keys[begin : begin + 7_000]
            partitions.add(pa.table([piece, list(range(begin, begin + len(piece)))], schema=schema))
        partitions.finish()
        read = [partitions.read(number) for number in range(16)]

    assert sorted(number for table in read for number in table["number"].to_pylist()) == list(range(90_000))
    owners = [set(table["key"].to_pylist()) for table in read]
    assert sum(map(len, owners)) == len(set().union(*owners)) == 977
    assert max(table.num_rows for table in read) < 3 * 90_000 / 16


def test_compacting_holds_one_row_group_at_a_time(tmp_path: Path):
    table = pa.table(
        {
            field.name: pa.nulls(200, field.type)
            if field.nullable
            else pa.array(["x" * 2_000] * 200)
            if field.name == "text"
            else pa.array(["ok"] * 200).dictionary_encode().cast(field.type)
            if pa.types.is_dictionary(field.type)
            else pa.array([0] * 200, pa.int64()).cast(field.type)
            if not pa.types.is_string(field.type)
            else pa.array(["s"] * 200)
            for field in page_schema()
        },
        schema=page_schema(),
    )
    files: list[int] = []
    before = pa.total_allocated_bytes()
    highest = 0
    compactor = PageCompactor(
        tmp_path,
        on_file=lambda path, _: files.append(path.stat().st_size),
        on_rows=RunStatistics().add_pages,
        file_rows=20_000,
        group_bytes=4 * 1024 * 1024,
    )
    tracemalloc.start()
    for _ in range(400):
        compactor.add(table)
        highest = max(highest, pa.total_allocated_bytes() - before)
    compactor.finish()
    _, python_peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert compactor.rows == 80_000
    assert len(files) == compactor.files == 4
    assert highest < 24 * 1024 * 1024  # 160 MB went through
    assert python_peak < 16 * 1024 * 1024
    assert list(tmp_path.iterdir()) == []


@given(values=st.lists(st.floats(0.01, 1e6), min_size=1, max_size=200), share=st.sampled_from([0.5, 0.95]))
@settings(deadline=None)
def test_a_quantile_is_within_three_per_cent_of_the_exact_one(values, share):
    histogram = Histogram()
    histogram.add(pa.array(values, pa.float64()))

    ordered = sorted(values)
    position = next(i for i in range(len(ordered)) if i + 1 >= share * len(ordered))
    assert histogram.quantile(share) == pytest.approx(ordered[position], rel=0.03)
