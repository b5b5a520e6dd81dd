"""Real workers with an OpenSearch that has bad days: the run never notices."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.opensearch import OpenSearchDouble
from tests.support.world import World

from pdf_ops.contract.opensearch import IndexNames, file_id_of
from samples import documents as made

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RUN = "manual__2026-01-01T00:00:00+00:00"
NAMES = IndexNames("pdf-ops")

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def world(local_aws: object) -> Iterator[World]:
    with World(local_aws) as world:
        yield world


@pytest.fixture
def text(tmp_path: Path) -> bytes:
    return made.text_pdf(tmp_path / "text.pdf", 3).read_bytes()


@pytest.fixture
def search() -> Iterator[OpenSearchDouble]:
    with OpenSearchDouble() as double:
        yield double
        assert double.mistakes == []


def order(world: World, text: bytes, count: int = 3) -> None:
    world.start_run(RUN, count)
    for number in range(count):
        world.order(RUN, f"{number}.pdf", text)


def assert_the_run_is_whole(world: World, count: int = 3) -> None:
    assert world.outcomes(RUN) == {f"{number}.pdf": "done" for number in range(count)}
    assert len(world.pages()) == 3 * count
    assert len(world.manifest()) == count
    assert world.messages_left() == 0
    assert world.dead_letters() == []


def events(log: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [event for event in log if event["event"] == name]


def counted(log: list[dict[str, Any]], name: str) -> int:
    return sum(event.get(name, 0) for event in events(log, "metrics"))


def test_committed_documents_are_indexed_by_page_and_by_file(
    world: World, text: bytes, search: OpenSearchDouble
):
    order(world, text)

    log = world.work(OPENSEARCH_URL=search.url)

    assert_the_run_is_whole(world)
    files, pages = search.sources(NAMES.files), search.sources(NAMES.pages)
    uri = f"s3://{world.input}/0.pdf"
    whole = files[file_id_of(uri)]
    assert set(whole) >= {
        *("file_id", "s3_key", "file_name", "file_size", "mime_type"),
        *("extracted_text", "text_length", "last_modified", "indexed_at"),
    }
    assert (whole["s3_key"], whole["file_size"], whole["mime_type"]) == (
        "0.pdf",
        len(text),
        "application/pdf",
    )
    rows = {row["page"]: row["text"] for row in world.pages() if row["source_uri"] == uri}
    assert {page["page"]: page["text"] for page in pages.values() if page["source_uri"] == uri} == rows
    assert all(rows[number] in whole["extracted_text"] for number in rows)
    assert (len(files), len(pages)) == (3, 9)
    assert counted(log, "Indexed") == 12
    assert counted(log, "IndexDropped") == 0


def test_an_index_that_fails_loses_no_row_and_stops_no_run(world: World, text: bytes):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"  # nobody listens there
        order(world, text)

        log = world.work(OPENSEARCH_URL=url, OPENSEARCH_FLUSH_S=3)

    assert_the_run_is_whole(world)
    failed = events(log, "index.failed")
    assert sum(event["documents"] for event in failed) == 3
    assert {(event["error_class"], event["error_code"]) for event in failed} == {("TARGET", "opensearch")}
    assert all("pdf-ops reindex" in event["error"] for event in failed)
    assert counted(log, "IndexDropped") == 3


def test_an_index_that_is_slow_holds_nobody_up(world: World, text: bytes, search: OpenSearchDouble):
    search.delay_s = 30.0
    order(world, text)

    log = world.work(OPENSEARCH_URL=search.url, OPENSEARCH_FLUSH_S=1, timeout_s=60)

    assert_the_run_is_whole(world)
    acknowledged = events(log, "acknowledged")
    assert sum(event["messages"] for event in acknowledged) == 3
    assert counted(log, "IndexDropped") == 3


def test_only_what_was_put_off_is_sent_again_and_what_is_refused_is_not(
    world: World, text: bytes, search: OpenSearchDouble
):
    put_off, seen = f"{file_id_of(f's3://{world.input}/0.pdf')}-2", []
    refused = f"{file_id_of(f's3://{world.input}/1.pdf')}-1"

    def bad_item(identity: str) -> int:
        seen.append(identity)
        if identity == put_off and seen.count(identity) < 3:
            return 429
        return 400 if identity == refused else 200

    search.bad_item = bad_item
    order(world, text)

    log = world.work(OPENSEARCH_URL=search.url)

    assert_the_run_is_whole(world)
    pages = search.sources(NAMES.pages)
    assert len(pages) == 8
    assert put_off in pages
    assert refused not in pages
    assert seen.count(put_off) == 3
    assert seen.count(refused) == 1
    assert {seen.count(identity) for identity in seen} == {1, 3}
    [event] = events(log, "index.refused")
    assert event["reasons"] == ["400 mapper_parsing_exception"]
    assert (counted(log, "Indexed"), counted(log, "IndexRefused")) == (11, 1)
    assert "confidential" not in str(log)


def test_more_than_the_queue_holds_is_left_to_reindex(world: World, text: bytes, search: OpenSearchDouble):
    search.delay_s = 4.0
    order(world, text, 8)

    log = world.work(OPENSEARCH_URL=search.url, OPENSEARCH_QUEUE_DOCUMENTS=1, OPENSEARCH_FLUSH_S=1)

    assert_the_run_is_whole(world, 8)
    assert any("queue is full" in event["error"] for event in events(log, "index.failed"))
    assert counted(log, "IndexDropped") + len(search.sources(NAMES.files)) >= 8


def test_whoever_logs_in_does_not_say_the_password(world: World, text: bytes):
    with OpenSearchDouble(authorization="Basic dXNlcjpzZWNyZXQtd29yZA==") as search:
        order(world, text)

        log = world.work(
            OPENSEARCH_URL=search.url, OPENSEARCH_USERNAME="user", OPENSEARCH_PASSWORD="secret-word"
        )

        assert len(search.sources(NAMES.files)) == 3
    assert "secret-word" not in str(log)


def test_requests_to_amazons_service_are_signed(world: World, text: bytes, search: OpenSearchDouble):
    order(world, text)

    world.work(OPENSEARCH_URL=search.url, OPENSEARCH_AUTH="sigv4")

    assert len(search.sources(NAMES.files)) == 3
    for _, _, headers in search.requests:
        assert "/es/aws4_request" in headers["authorization"]
        assert "x-amz-date" in headers
