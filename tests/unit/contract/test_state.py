"""The state table's item, and the index that documents are listed by."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from pdf_ops.contract.state import (
    LISTING_SHARDS,
    DocumentState,
    StateStatus,
    listing_shard,
    listing_shards,
    new_listing_key,
)

NOON = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)


def test_every_document_is_in_one_of_its_statuss_partitions():
    used = {listing_shard(StateStatus.DONE, f"folder/{number}.pdf") for number in range(500)}

    assert used == set(listing_shards(StateStatus.DONE))
    assert len(used) == LISTING_SHARDS


def test_documents_are_listed_in_the_order_in_which_they_were_first_seen():
    keys = [new_listing_key("z.pdf", NOON), new_listing_key("a.pdf", NOON + timedelta(milliseconds=1))]

    assert keys == sorted(keys)


def test_no_two_documents_of_one_moment_share_a_listing_key():
    assert len({new_listing_key(f"{number}.pdf", NOON) for number in range(1000)}) == 1000


def test_the_listing_key_tells_when_a_document_was_first_seen_in_utc():
    key = new_listing_key("a.pdf", NOON.astimezone(timezone(timedelta(hours=5))))
    state = DocumentState(s3_key="a.pdf", status=StateStatus.PENDING, listing_key=key)

    assert state.created_at == "2026-01-02T12:00:00.000Z"


def test_an_item_from_before_the_index_has_no_time():
    assert DocumentState(s3_key="a.pdf", status=StateStatus.DONE).created_at is None
