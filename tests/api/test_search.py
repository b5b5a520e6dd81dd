"""Search in the API: documents that a real worker has read, in an index that the real task has built."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.api.test_requests import assert_problem
from tests.support.api import Api, pipeline_settings, upload
from tests.support.search import page_rows, upload_dataset, write_rows, write_run
from tests.support.world import World

from pdf_ops.contract.layout import Layout
from pdf_ops.objects import ObjectStore
from pdf_ops.search.publishing import update_published

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx

    from local_aws import LocalAws

HOSTILE = ["*", '"', "-", "a*", "-x", "( OR )", "text:*", "\x00", "/.*/ ]", "🦄", "' OR 1=1 --", "NEAR(a b)"]


@pytest.fixture(scope="module")
def world(local_aws: LocalAws) -> Iterator[World]:
    with World(local_aws) as world:
        yield world


@pytest.fixture(scope="module")
def places(local_aws: LocalAws, world: World) -> Iterator[tuple[Layout, ObjectStore]]:
    given = pipeline_settings(world)
    layout = Layout(
        output_bucket=world.output,
        output_prefix=given["AIRFLOW__PDF_OPS__OUTPUT_S3_PREFIX"],
        manifest_bucket=world.output,
        manifest_prefix="manifests",
    )
    with pytest.MonkeyPatch.context() as patched:
        for name, value in local_aws.environment().items():
            patched.setenv(name, value)
        yield layout, ObjectStore(aws_conn_id=None)


@pytest.fixture(scope="module")
def api(local_aws: LocalAws, world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    folder = tmp_path_factory.mktemp("search")
    with Api(local_aws, world, folder, SEARCH_CACHE_DIR=folder / "cache") as api:
        yield api


@pytest.fixture(scope="module")
def document_id(api: Api, world: World, text: bytes) -> str:
    with api.client() as client:
        return str(upload(client, "Ein Brief.pdf", text).json()["job_id"])


@pytest.fixture(scope="module")
def searchable(
    api: Api, world: World, places: tuple[Layout, ObjectStore], document_id: str, tmp_path_factory
) -> str:
    """A document that was uploaded, and more of a run; the id of the first."""
    layout, store = places
    with api.client() as client:
        key = client.get(f"/v1/documents/{document_id}").json()["s3_key"]
    folder = tmp_path_factory.mktemp("dataset")
    write_run(folder, "one", {f"more/{number:02d}.pdf": ["Many red apples."] for number in range(30)})
    rows = page_rows("two", {key: ["The purchase order of May.", "Nothing <b>here</b>."]})
    ours = [replace(row, source_uri=f"s3://{world.input}/{key}") for row in rows]
    write_rows(folder / "run_date=2026-03-02" / "run-two-00000.parquet", ours)
    upload_dataset(world.s3, folder, layout.pages_dataset())
    update_published(store, layout)
    return document_id


def test_before_there_is_an_index_it_says_what_to_do(client: httpx.Client, document_id: str):
    answer = client.get("/v1/search", params={"q": "apples"})

    assert_problem(answer, 404)
    assert "pdf-ops index" in answer.json()["detail"]


def test_a_hit_names_its_document_as_all_other_routes_do(client: httpx.Client, searchable: str):
    answer = client.get("/v1/search", params={"q": '"purchase order" -draft'})

    body = answer.json()
    [hit] = body["hits"]
    assert answer.status_code == 200
    assert set(body) == {"hits", "total", "next_cursor", "index"}
    assert set(hit) == {
        "document_id",
        "s3_key",
        "filename",
        "page",
        "page_count",
        "score",
        "snippet",
    }
    assert hit["document_id"] == searchable
    assert (hit["filename"], hit["page"], hit["page_count"]) == ("Ein Brief.pdf", 1, 2)
    assert hit["snippet"] == [
        {"text": "The ", "is_hit": False},
        {"text": "purchase", "is_hit": True},
        {"text": " ", "is_hit": False},
        {"text": "order", "is_hit": True},
        {"text": " of May.", "is_hit": False},
    ]
    assert (body["total"], body["next_cursor"]) == (1, None)
    assert (body["index"]["kind"], body["index"]["rows"]) == ("embedded", 32)
    assert client.get(f"/v1/documents/{hit['document_id']}").status_code == 200


def test_all_hits_come_page_by_page_each_once(client: httpx.Client, searchable: str):
    seen, cursor = [], None
    for _ in range(5):
        given = {"q": "apples", "limit": 12} | ({"cursor": cursor} if cursor else {})
        body = client.get("/v1/search", params=given).json()
        seen += [hit["s3_key"] for hit in body["hits"]]
        cursor = body["next_cursor"]
        assert body["total"] == 30
        if cursor is None:
            break

    assert len(seen) == len(set(seen)) == 30
    assert all(key.startswith("s3://documents/more/") for key in seen)


def test_a_cursor_of_another_search_is_refused(client: httpx.Client, searchable: str):
    cursor = client.get("/v1/search", params={"q": "apples", "limit": 5}).json()["next_cursor"]

    for given in ({"q": "red", "cursor": cursor}, {"q": "apples", "cursor": "bm90aGluZw"}):
        assert_problem(client.get("/v1/search", params=given), 422)


@pytest.mark.parametrize("typed", ["", "-draft", '"not closed', "a*", "x" * 501])
def test_what_cannot_be_understood_is_refused_with_a_reason(
    client: httpx.Client, searchable: str, typed: str
):
    answer = client.get("/v1/search", params={"q": typed})

    assert_problem(answer, 422)
    assert "q" in answer.json()["detail"]


@pytest.mark.parametrize("typed", HOSTILE)
def test_hostile_syntax_is_never_our_mistake(client: httpx.Client, searchable: str, typed: str):
    assert client.get("/v1/search", params={"q": typed}).status_code in (200, 422)


def test_markup_in_a_document_is_text(client: httpx.Client, searchable: str):
    [hit] = client.get("/v1/search", params={"q": "nothing here"}).json()["hits"]

    assert "".join(piece["text"] for piece in hit["snippet"]) == "Nothing <b>here</b>."


def test_nobody_searches_without_a_key(api: Api, searchable: str):
    with api.client(None) as nobody:
        assert_problem(nobody.get("/v1/search", params={"q": "apples"}), 401)


def test_what_is_searched_for_is_not_in_the_log(client: httpx.Client, api: Api, searchable: str):
    client.get("/v1/search", params={"q": "confidentialword"})
    time.sleep(0.2)

    assert "confidentialword" not in api.log.read_text()


def test_a_new_run_can_be_found_without_a_restart(
    client: httpx.Client, searchable: str, world: World, places: tuple[Layout, ObjectStore], tmp_path: Path
):
    layout, store = places
    write_run(tmp_path, "three", {"late.pdf": ["Elderberries."]}, day=3)
    upload_dataset(world.s3, tmp_path, layout.pages_dataset())
    update_published(store, layout)

    deadline = time.monotonic() + 60
    while not client.get("/v1/search", params={"q": "elderberries"}).json()["hits"]:
        assert time.monotonic() < deadline
        time.sleep(1)
