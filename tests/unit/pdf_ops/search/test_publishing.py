"""The index in S3, on a moto server: whole at every moment, whoever publishes and whoever reads."""

from __future__ import annotations

import json
import os
import threading
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING

import boto3
import pytest
from tests.support.runs import LAYOUT_ARGUMENTS, OUTPUT, moto_server
from tests.support.search import upload_dataset, write_run

from pdf_ops.contract.layout import Layout
from pdf_ops.objects import ObjectStore
from pdf_ops.operators.index import SearchIndexError, SearchIndexOperator
from pdf_ops.search import publishing
from pdf_ops.search.fetched import FetchedIndex
from pdf_ops.search.found import NoIndexError, NotReadyError
from pdf_ops.search.publishing import Publisher, update_published
from pdf_ops.search.query import parse

if TYPE_CHECKING:
    from collections.abc import Iterator

LAYOUT = Layout(**{name: LAYOUT_ARGUMENTS[name] for name in Layout.__slots__})


class Place:
    """A dataset in S3 that a test adds runs to, and everything around it."""

    def __init__(self, folder):
        self.folder = folder
        self.s3 = boto3.client("s3")
        self.s3.create_bucket(
            Bucket=OUTPUT, CreateBucketConfiguration={"LocationConstraint": self.s3.meta.region_name}
        )
        self.store = ObjectStore(aws_conn_id=None)
        self.publisher = Publisher(self.store, LAYOUT)

    def add_run(self, run, texts, *, day=0):
        upload_dataset(
            self.s3,
            write_run(self.folder / run, run, texts, day=day).parents[1],
            LAYOUT.pages_dataset(),
        )

    def update(self, **arguments):
        return update_published(self.store, LAYOUT, **arguments)

    def fetched(self, name="cache", **arguments):
        given = {"max_bytes": 2**30, "wait_s": None, "check_every_s": 0.0} | arguments
        return FetchedIndex(self.publisher, self.folder / name, **given)

    def keys(self):
        root = LAYOUT.search_files()
        return {found.uri.key.removeprefix(root.key) for found in self.store.list(root)}


@pytest.fixture
def place(tmp_path) -> Iterator[Place]:
    with moto_server():
        yield Place(tmp_path)


def _names(place):
    """The folders of what is published."""
    return {key.partition("/")[0] for key, _ in place.publisher.read().files.values()}


def found(index, typed):
    return {hit.source_uri.rpartition("/")[2] for hit in index.search(parse(typed), limit=20).hits}


def test_what_a_run_published_can_be_found(place):
    place.add_run("one", {"a.pdf": ["red apples"]})

    built, publication = place.update()

    assert built.rows == publication.state.rows == 1
    assert found(place.fetched(), "apples") == {"a.pdf"}


def test_an_update_brings_and_fetches_only_what_is_new(place):
    place.add_run("one", {f"{number}.pdf": ["red apples"] for number in range(50)})
    _, first = place.update()
    index = place.fetched()
    assert found(index, "apples")
    place.add_run("two", {"b.pdf": ["red wine"]}, day=1)

    built, second = place.update()

    assert built.files_added == 1
    kept = set(first.files) & set(second.files)
    assert kept
    assert all(first.files[name] == second.files[name] for name in kept)
    index.search(parse("wine"), limit=1)  # the one that is there answers while the next one comes
    deadline = datetime.now(UTC) + timedelta(seconds=20)
    while found(index, "wine") != {"b.pdf"}:
        assert datetime.now(UTC) < deadline
    [folder] = [path for path in (place.folder / "cache").iterdir() if path.is_dir()]
    assert {path.name for path in folder.iterdir()} >= set(second.files)


def test_nothing_new_publishes_nothing(place):
    place.add_run("one", {"a.pdf": ["red apples"]})
    _, first = place.update()

    built, second = place.update()

    assert not built.is_changed
    assert second.etag == first.etag


def test_a_dataset_without_rows_gives_an_index_without_hits(place):
    place.update()

    assert found(place.fetched(), "apples") == set()


def test_of_two_that_publish_at_once_none_undoes_the_other(place, monkeypatch):
    place.add_run("one", {"a.pdf": ["red apples"]})
    place.update()
    place.add_run("two", {"b.pdf": ["red wine"]}, day=1)
    publish, interrupted, published = Publisher.publish, [], [*_names(place)]

    def publish_late(self, folder, base):
        if not interrupted:
            interrupted.append(True)
            place.add_run("three", {"c.pdf": ["red roses"]}, day=2)
            place.update()
        result = publish(self, folder, base)
        published.extend(_names(place))
        return result

    monkeypatch.setattr(Publisher, "publish", publish_late)
    place.update()

    assert interrupted
    assert found(place.fetched(), "red") == {"a.pdf", "b.pdf", "c.pdf"}
    # What the first try had uploaded is gone.
    found_keys = place.keys()
    assert {key.partition("/")[0] for key in found_keys} == set(published)


def test_older_files_are_removed_after_a_day_and_those_in_use_are_not(place, monkeypatch):
    place.add_run("one", {"a.pdf": ["red apples"]})
    _, first = place.update()
    place.add_run("two", {"a.pdf": ["green apples"]}, day=1)
    _, second = place.update(is_rebuild=True)
    assert {key for key, _ in first.files.values()} <= place.keys()
    monkeypatch.setattr(publishing, "_KEPT", timedelta(0))
    place.add_run("three", {"c.pdf": ["red roses"]}, day=2)

    _, third = place.update()

    kept = {key for one in (second, third) for key, _ in one.files.values()}
    assert place.keys() == kept
    assert found(place.fetched(), "apples") == {"a.pdf"}


def test_an_index_that_cannot_be_read_is_built_anew(place):
    place.add_run("one", {"a.pdf": ["red apples"]})
    place.update()
    uri = LAYOUT.search_index()
    place.s3.put_object(Bucket=uri.bucket, Key=uri.key, Body=b'{"files": {"../../x": ["x", 1]}, "small": {}}')
    with pytest.raises(NoIndexError, match="outside the index"):
        found(place.fetched(), "apples")
    place.s3.put_object(Bucket=uri.bucket, Key=uri.key, Body=b"{}")
    with pytest.raises(NoIndexError, match="--rebuild"):
        found(place.fetched(), "apples")

    place.update()

    assert found(place.fetched(), "apples") == {"a.pdf"}


def test_before_the_first_one_it_says_how_to_get_one(place):
    with pytest.raises(NoIndexError, match="`pdf-ops index`"):
        found(place.fetched(), "apples")


def test_an_index_that_is_too_large_is_not_fetched(place):
    place.add_run("one", {"a.pdf": ["red apples"]})
    place.update()

    with pytest.raises(NoIndexError, match="PDF_OPS_SEARCH_CACHE_MB"):
        found(place.fetched(max_bytes=100), "apples")

    assert not [path for path in (place.folder / "cache").glob("*/*") if path.is_file()]


def test_who_does_not_wait_is_told_to_come_back(place, monkeypatch):
    place.add_run("one", {"a.pdf": ["red apples"]})
    place.update()
    go_on, fetch = threading.Event(), Publisher.fetch

    def fetch_slowly(self, *arguments, **more):
        go_on.wait(20)
        fetch(self, *arguments, **more)

    monkeypatch.setattr(Publisher, "fetch", fetch_slowly)
    index = place.fetched(wait_s=0.01)
    with pytest.raises(NotReadyError):
        found(index, "apples")
    go_on.set()
    index._wait_s = 20
    assert found(index, "apples") == {"a.pdf"}


def test_an_index_that_is_here_answers_also_when_s3_does_not(place):
    place.add_run("one", {"a.pdf": ["red apples"]})
    place.update()
    index = place.fetched()
    assert found(index, "apples") == {"a.pdf"}
    uri = LAYOUT.search_index()
    place.s3.delete_object(Bucket=uri.bucket, Key=uri.key)

    assert found(index, "apples") == {"a.pdf"}


def test_two_processes_share_what_was_fetched(place, monkeypatch):
    place.add_run("one", {"a.pdf": ["red apples"]})
    place.update()
    assert found(place.fetched(), "apples") == {"a.pdf"}
    monkeypatch.setattr(Publisher, "fetch", lambda *_, **__: pytest.fail("fetched a second time"))

    assert found(place.fetched(), "apples") == {"a.pdf"}


def test_a_cache_that_belongs_to_somebody_else_is_not_used(place, monkeypatch):
    place.add_run("one", {"a.pdf": ["red apples"]})
    place.update()
    monkeypatch.setattr(os, "getuid", lambda: 12345)

    with pytest.raises(NoIndexError, match="somebody else"):
        found(place.fetched(), "apples")


def test_the_task_says_what_it_did_and_what_is_published(place):
    place.add_run("one", {"a.pdf": ["red apples"]})

    result = SearchIndexOperator(task_id="index", **LAYOUT_ARGUMENTS).execute({})

    assert result["rows"] == result["rows_added"] == 1
    assert result["size_bytes"] > 0
    json.dumps(result)


def test_the_task_fails_for_good_when_there_is_no_room(place, monkeypatch):
    place.add_run("one", {"a.pdf": ["red apples"]})
    place.update()
    place.add_run("two", {"b.pdf": ["red wine"]}, day=1)
    monkeypatch.setattr(publishing.shutil, "disk_usage", lambda _: SimpleNamespace(free=10))

    with pytest.raises(SearchIndexError, match="OpenSearch"):
        SearchIndexOperator(task_id="index", **LAYOUT_ARGUMENTS).execute({})
