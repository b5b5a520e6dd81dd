"""Items of the two tables, and lines of a listing: what is written comes back, and keys fit their limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdf_ops.contract.attributes import ItemError, item_of, values_of
from pdf_ops.contract.documents import DocumentStatus
from pdf_ops.contract.fingerprint import OcrMode, ReadingConfig
from pdf_ops.contract.listing import Decision, ListedObject, ListingError, read_lines
from pdf_ops.contract.runs import (
    SHARDS,
    Counters,
    Outcome,
    RunRecord,
    outcome_key,
    run_shards,
    total_key,
    worker_key,
)
from pdf_ops.contract.state import DocumentState, StateStatus, state_key

KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200)


@given(
    st.dictionaries(st.from_regex(r"[a-z_]{1,20}", fullmatch=True), st.text() | st.integers() | st.booleans())
)
def test_values_come_back_from_an_item(values: dict[str, str | int | bool]) -> None:
    assert values_of(item_of(values)) == values


def test_what_is_none_is_left_out_of_an_item() -> None:
    assert item_of({"a": None, "b": 1}) == {"b": {"N": "1"}}


def test_a_type_that_is_never_written_is_refused() -> None:
    with pytest.raises(ItemError, match="odd"):
        values_of({"odd": {"L": []}})


@given(KEYS)
def test_a_documents_outcome_has_one_key_within_dynamodbs_limits(key: str) -> None:
    first, second = outcome_key("run", key), outcome_key("run", key)

    assert first == second
    assert first["run_shard"]["S"] in run_shards("run")
    assert len(first["part"]["S"].encode()) <= 1024
    assert first != outcome_key("run", key + "x")
    assert first != outcome_key("other", key)


def test_workers_and_documents_are_spread_over_all_partitions() -> None:
    shards = {worker_key("run", f"worker-{number}")["run_shard"]["S"] for number in range(500)}

    assert shards == set(run_shards("run"))
    assert len(shards) == SHARDS
    assert total_key("run")["run_shard"]["S"] == "run#00"


def test_a_run_record_comes_back_with_its_settings() -> None:
    record = RunRecord(
        run_id="manual__2026-01-01",
        documents=12,
        size_bytes=34,
        reading=ReadingConfig(ocr=OcrMode.FORCE, languages=("deu", "eng"), dpi=150, trust_ocr_layer=True),
        is_forced=True,
        created_at="2026-01-01T00:00:00+00:00",
        run_date="2026-01-01",
        expires_at=99,
    )

    assert RunRecord.from_item(record.to_item()) == record


@pytest.mark.parametrize("status", list(DocumentStatus))
def test_an_outcome_comes_back(status: DocumentStatus) -> None:
    outcome = Outcome(
        run_id="run",
        s3_key="a/ü.pdf",
        status=status,
        pages=3,
        worker_id="w",
        committed_at="2026-01-01T00:00:00+00:00",
        expires_at=99,
    )

    assert Outcome.from_item(outcome.to_item()) == outcome


def test_counters_add_up_and_ignore_what_else_is_in_an_item() -> None:
    one = Counters.of(DocumentStatus.DONE, pages=3)
    item = item_of({**one.non_zero(), "worker_id": "w"})

    total = Counters.from_item(item) + Counters.of(DocumentStatus.FAILED) + Counters(retries=2)

    assert (total.documents, total.done, total.failed, total.pages, total.retries) == (2, 1, 1, 3, 2)
    assert Counters().non_zero() == {}


def test_a_state_is_read_only_with_the_same_bytes_and_settings() -> None:
    item = item_of(
        {"s3_key": "a.pdf", "status": "done", "etag": "e", "config_hash": "c", "somebody_elses": "x"}
    )

    state = DocumentState.from_item(item)

    assert state.status is StateStatus.DONE
    assert state.is_read("e", "c")
    assert not state.is_read("other", "c")
    assert not state.is_read("e", "other")
    failed = DocumentState(s3_key="a.pdf", status=StateStatus.FAILED, etag="e", config_hash="c")
    assert not failed.is_read("e", "c")


def test_documents_of_another_bucket_have_keys_of_their_own() -> None:
    assert state_key("inbox", "a.pdf", "inbox") == "a.pdf"
    assert state_key("archive", "a.pdf", "inbox") == "s3://archive/a.pdf"


@given(KEYS, st.sampled_from(list(Decision)), st.integers(0, 2**50))
def test_a_listed_object_comes_back_from_its_line(key: str, decision: Decision, size: int) -> None:
    listed = ListedObject(
        bucket="b", key=key, etag='"abc"', size=size, last_modified="2026-01-01T00:00:00Z", decision=decision
    )

    line = listed.to_line()

    assert line.isascii()
    assert line.count("\n") == 1
    assert list(read_lines([line, "\n"])) == [listed]
    assert listed.etag == "abc"


@pytest.mark.parametrize("line", ["", "{}", "[]", "nonsense", '{"key": 1}', '{"decision": "maybe"}'])
def test_a_line_that_is_none_is_refused(line: str) -> None:
    with pytest.raises(ListingError):
        ListedObject.from_line(line)


def test_only_new_changed_and_forced_objects_are_sent() -> None:
    assert [decision.value for decision in Decision if decision.is_sent] == ["new", "changed", "forced"]
