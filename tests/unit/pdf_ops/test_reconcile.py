from __future__ import annotations

import gzip
import json
import pickle
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.runs import INPUT, LAYOUT_ARGUMENTS, WrittenRun, listed, moto_server

from pdf_ops.contract.documents import DocumentStatus
from pdf_ops.contract.layout import S3Uri
from pdf_ops.contract.listing import Decision
from pdf_ops.operators import reconcile as module
from pdf_ops.operators.reconcile import ReconcileOperator, ReconciliationError

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def run() -> Iterator[WrittenRun]:
    with moto_server():
        yield WrittenRun().create()


@pytest.fixture(scope="module")
def shared_run() -> Iterator[WrittenRun]:
    with moto_server():
        yield WrittenRun().create()


def merge(run: WrittenRun) -> None:
    run.merge()


def reconcile(run: WrittenRun, **arguments) -> dict:
    operator = ReconcileOperator(task_id="reconcile", run_id=run.run_id, **LAYOUT_ARGUMENTS | arguments)
    return operator.execute(run.context())


def discrepancies(run: WrittenRun) -> list[dict]:
    uri = run.layout.discrepancies(run.run_id)
    body = run.s3.get_object(Bucket=uri.bucket, Key=uri.key)["Body"].read()
    return [json.loads(line) for line in gzip.decompress(body).splitlines()]


def test_a_run_whose_documents_all_have_one_outcome_reconciles(run):
    odd = "a folder/ü 😀+%20&.pdf"
    rows = [
        run.document("ok.pdf", page_count=3),
        run.document(odd, page_count=2),
        run.document("partial.pdf", DocumentStatus.PARTIAL),
        run.document("failed.pdf", DocumentStatus.FAILED, error=("CORRUPT", "truncated")),
        run.document("skipped.pdf", DocumentStatus.SKIPPED),
    ]
    run.put_listing(["ok.pdf", odd, "partial.pdf", "ok.pdf"], shard=0)
    run.put_listing(["failed.pdf", "skipped.pdf"], Decision.CHANGED, shard=1)
    run.put_listing(["old.pdf"], Decision.UNCHANGED, shard=2)
    run.put_listing(["folder/"], Decision.EXCLUDED, shard=3)
    run.put_shard(4, [])
    run.put_record(5)
    run.put_part(rows)
    run.commit(rows)
    merge(run)

    counts = reconcile(run)

    assert counts["equation"] == "6 listed = 2 ok + 1 partial + 1 failed + 1 skipped + 1 duplicate"
    assert counts["is_reconciled"]
    assert counts["page_rows"] == counts["pages_expected"] == 7
    assert counts["decisions"] == {"new": 4, "changed": 2, "unchanged": 1, "excluded": 1}
    assert run.json(run.layout.reconciliation_json(run.run_id))["is_reconciled"]


def test_missing_and_unexpected_documents_fail_the_task_and_are_all_written_down(run):
    rows = [run.document("here.pdf"), run.document("stranger.pdf")]
    missing = [f"missing-{number:02d}.pdf" for number in range(30)]
    run.put_listing(["here.pdf", *missing])
    run.put_record(31)
    run.put_part(rows)
    run.commit(rows)
    merge(run)

    with pytest.raises(ReconciliationError) as caught:
        reconcile(run)

    error = caught.value
    assert "31 listed ≠ 1 ok" in str(error)
    assert "30 missing, 1 unexpected" in str(error)
    assert len(error.samples) == 20
    assert str(run.layout.discrepancies(run.run_id)) in str(error)
    named = {(line["problem"], line["source_uri"]) for line in discrepancies(run)}
    assert named == {("unexpected", f"s3://{INPUT}/stranger.pdf")} | {
        ("missing", f"s3://{INPUT}/{key}") for key in missing
    }
    assert not run.json(run.layout.reconciliation_json(run.run_id))["is_reconciled"]
    restored = pickle.loads(pickle.dumps(error))
    assert str(restored) == str(error)
    assert restored.counts == error.counts


def test_a_page_that_is_not_in_the_dataset_fails_the_task(run):
    rows = [run.document("ok.pdf"), run.document("gone.pdf", page_count=5, pages_file=False)]
    run.put_listing(["ok.pdf", "gone.pdf"])
    run.put_record(2)
    run.put_part(rows)
    run.commit(rows)
    merge(run)

    with pytest.raises(ReconciliationError, match=r"page rows: 2 of 7.*gone\.pdf"):
        reconcile(run)


def test_a_document_with_fewer_rows_than_pages_fails_the_task(run):
    row = replace(run.document("short.pdf", page_count=2), page_count=3)
    run.put_listing(["short.pdf"])
    run.put_record(1)
    run.put_part([row])
    run.commit([row])
    merge(run)

    with pytest.raises(ReconciliationError, match=r"page rows: 2 of 3.*short\.pdf \(pages_differ\)"):
        reconcile(run)


def test_a_run_without_documents_reconciles(run):
    run.put_listing(["old.pdf"], Decision.UNCHANGED)
    merge(run)

    counts = reconcile(run)

    assert (counts["listed"], counts["page_rows"], counts["is_reconciled"]) == (0, 0, True)


def test_the_outlet_asset_carries_the_counts(run):
    from airflow.sdk import Asset

    asset = Asset("pages")
    row = run.document("ok.pdf")
    run.put_listing(["ok.pdf"])
    run.put_record(1)
    run.put_part([row])
    run.commit([row])
    merge(run)
    event = type("Event", (), {"extra": {}})()
    operator = ReconcileOperator(task_id="reconcile", run_id=run.run_id, outlets=[asset], **LAYOUT_ARGUMENTS)

    operator.execute(run.context() | {"outlet_events": {asset: event}})

    assert event.extra["ok"] == 1
    assert event.extra["run_id"] == run.run_id


KEYS = st.sampled_from([f"{letter}/{number}.pdf" for letter in "ab" for number in range(4)])
OUTCOMES = {"done": "ok", "partial": "partial", "failed": "failed", "skipped": "skipped"}


@given(
    sent=st.lists(KEYS, max_size=12),
    left_out=st.lists(KEYS, max_size=4),
    manifest=st.dictionaries(KEYS, st.sampled_from(list(DocumentStatus)), max_size=8),
    partitions=st.integers(1, 5),
)
@settings(deadline=None, max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_adds_up_passes_and_what_does_not_is_named_exactly(
    shared_run, monkeypatch, sent, left_out, manifest, partitions
):
    run = shared_run
    run.run_id = f"run-{len(run.keys('manifest-bucket'))}"
    monkeypatch.setattr(module, "partitions_for", lambda *_: partitions)
    half = len(sent) // 2
    run.put_shard(0, [listed(key) for key in sent[:half]])
    run.put_shard(
        1, [listed(key) for key in sent[half:]] + [listed(key, Decision.UNCHANGED) for key in left_out]
    )
    run.put_record(len(sent))
    if manifest:
        run.put_part([run.document(key, status) for key, status in manifest.items()])
    merge(run)
    missing = set(sent) - set(manifest)
    unexpected = set(manifest) - set(sent)

    try:
        counts, samples = reconcile(run), []
    except ReconciliationError as error:
        counts, samples = error.counts, discrepancies(run)

    expected = Counter(OUTCOMES[manifest[key].value] for key in set(sent) & set(manifest))
    assert {name: counts[name] for name in OUTCOMES.values()} == {
        name: expected[name] for name in OUTCOMES.values()
    }
    assert counts["listed"] == len(sent)
    assert counts["duplicate"] == len(sent) - len(set(sent))
    assert {(item["problem"], S3Uri.parse(item["source_uri"]).key) for item in samples} == {
        *(("missing", key) for key in missing),
        *(("unexpected", key) for key in unexpected),
    }
