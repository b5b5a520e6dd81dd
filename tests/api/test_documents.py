"""Documents that a real worker has read: their status, pages, text and bytes, and lists of them."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tests.api.test_requests import assert_problem
from tests.support.api import upload

from pdf_ops.api.ids import encode
from pdf_ops.contract.attributes import item_of
from pdf_ops.contract.state import StateStatus, listing_shard, new_listing_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.api import Api
    from tests.support.world import World

LIST = "/v1/documents/list-document"
START = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def read(api: Api, world: World, text: bytes) -> dict[str, str]:
    """Two documents that a worker has read, one well and one not at all: their ids."""
    with api.client() as client:
        good = upload(client, "Ein Brief.pdf", text).json()["job_id"]
        bad = upload(client, "bad.pdf", b"%PDF-1.7 and then nothing").json()["job_id"]
    world.work()
    time.sleep(0.2)
    return {"good": good, "bad": bad}


def test_a_job_is_completed_with_its_pages_once_a_worker_has_read_it(
    client: httpx.Client, read: dict[str, str]
):
    job = client.get(f"/v1/jobs/{read['good']}").json()

    assert (job["status"], job["pages_done"], job["pages_total"]) == ("completed", 3, 3)
    assert (job["filename"], job["error"]) == ("Ein Brief.pdf", None)


def test_a_job_that_failed_says_why_and_what_to_do(client: httpx.Client, read: dict[str, str]):
    job = client.get(f"/v1/jobs/{read['bad']}").json()

    assert (job["status"], job["error"]["error_class"]) == ("failed", "CORRUPT")
    assert job["error"]["what_to_do"]
    assert job["error"]["message"]


def test_pages_come_with_text_method_and_confidence(client: httpx.Client, read: dict[str, str]):
    answer = client.get(f"/v1/documents/{read['good']}/pages?from=2&to=3").json()

    assert (answer["page_count"], [page["page"] for page in answer["pages"]]) == (3, [2, 3])
    assert all(page["text"] and page["method"] == "text_layer" for page in answer["pages"])


def test_pages_behind_the_last_are_an_empty_list(client: httpx.Client, read: dict[str, str]):
    assert client.get(f"/v1/documents/{read['good']}/pages?from=50").json()["pages"] == []


def test_the_text_is_that_of_all_pages(client: httpx.Client, read: dict[str, str]):
    pages = client.get(f"/v1/documents/{read['good']}/pages").json()["pages"]

    answer = client.get(f"/v1/documents/{read['good']}/text")

    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.text.split("\f") == [page["text"] for page in pages]


def test_what_was_not_read_has_no_text_which_is_409(client: httpx.Client, read: dict[str, str]):
    assert_problem(client.get(f"/v1/documents/{read['bad']}/text"), 409)
    assert_problem(client.get(f"/v1/documents/{read['bad']}/pages"), 409)


def test_the_bytes_come_whole_and_in_ranges(client: httpx.Client, read: dict[str, str], text: bytes):
    path = f"/v1/documents/{read['good']}/content"

    whole, some = client.get(path), client.get(path, headers={"Range": "bytes=10-19"})
    tail = client.get(path, headers={"Range": "bytes=-5"})

    assert (whole.status_code, whole.content) == (200, text)
    assert whole.headers["content-type"] == "application/pdf"
    assert "Ein%20Brief.pdf" in whole.headers["content-disposition"]
    assert (some.status_code, some.content) == (206, text[10:20])
    assert some.headers["content-range"] == f"bytes 10-19/{len(text)}"
    assert (tail.status_code, tail.content) == (206, text[-5:])
    assert_problem(client.get(path, headers={"Range": f"bytes={len(text)}-"}), 416)
    assert_problem(client.get(path, headers={"Range": "lines=1-2"}), 422)


def test_a_download_url_works_without_a_key(client: httpx.Client, read: dict[str, str], text: bytes):
    answer = client.get(f"/v1/documents/{read['good']}/download").json()

    fetched = httpx.get(answer["url"], trust_env=False)
    assert (fetched.status_code, fetched.content) == (200, text)
    assert answer["expires_in_s"] == 300


def test_events_tell_of_every_change_and_end_with_the_job(api: Api, world: World, text: bytes):
    with api.client() as client:
        job_id = upload(client, "followed.pdf", text + b"\n% another one").json()["job_id"]
        events = []
        with client.stream("GET", f"/v1/jobs/{job_id}/events") as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            lines = stream.iter_lines()
            first = next_event(lines)
            worker = world.start_worker()
            events = [first, *iter(lambda: next_event(lines), None)]
            worker.communicate(timeout=60)

    names = [name for name, _ in events]
    statuses = [data["status"] for name, data in events if name == "status"]
    assert names[-1] == "end"
    assert (statuses[0], statuses[-1]) == ("pending", "completed")


def next_event(lines: Iterator[str]) -> tuple[str, Any] | None:
    event: dict[str, str] = {}
    for line in lines:
        if not line and event:
            return event["event"], json.loads(event["data"])
        name, found, value = line.partition(": ")
        if found and name:
            event[name] = value
    return None


# --- listing -------------------------------------------------------------------


@pytest.fixture(scope="module")
def many(world: World) -> list[str]:
    """60 documents, the oldest first, as workers would have left them; their keys."""
    keys = []
    statuses = list(StateStatus)
    for number in range(60):
        key, status = f"many/{number:03d}.pdf", statuses[number % len(statuses)]
        item = {
            "s3_key": key,
            "status": status.value,
            "listing_shard": listing_shard(status, key),
            "listing_key": new_listing_key(key, START + timedelta(minutes=number // 2)),
            "content_type": "image/png" if number % 3 == 0 else "application/pdf",
            "error_class": "TIMEOUT" if status is StateStatus.FAILED else None,
            "error_code": "page" if status is StateStatus.FAILED else None,
        }
        world.dynamodb.put_item(TableName=world.state_table, Item=item_of(item))
        keys.append(key)
    return sorted(keys, key=lambda key: new_listing_key(key, START + timedelta(minutes=int(key[5:8]) // 2)))


def listed(client: httpx.Client, **parameters: Any) -> tuple[list[str], str | None]:
    answer = client.get(LIST, params={"date_to": "2021-01-01T00:00:00Z", **parameters})
    assert answer.status_code == 200, answer.text
    return [document["s3_key"] for document in answer.json()["documents"]], answer.json()["next_cursor"]


@pytest.mark.parametrize("sort", ["created_at_asc", "created_at_desc"])
def test_pages_by_cursor_hold_every_document_once_and_in_order(
    client: httpx.Client, many: list[str], sort: str
):
    seen: list[str] = []
    cursor: str | None = None
    for _ in range(20):
        page, cursor = listed(client, limit=7, sort=sort, **({"cursor": cursor} if cursor else {}))
        seen += page
        if cursor is None:
            break

    assert seen == (many if sort.endswith("asc") else many[::-1])


def test_an_offset_gives_the_same_pages(client: httpx.Client, many: list[str]):
    assert listed(client, offset=13, limit=7, sort="created_at_asc")[0] == many[13:20]
    assert listed(client, offset=60)[0] == []


def test_ten_documents_are_on_a_page_and_the_newest_come_first(client: httpx.Client, many: list[str]):
    page, cursor = listed(client)

    assert page == many[::-1][:10]
    assert cursor


@pytest.mark.parametrize(
    ("parameters", "is_wanted"),
    [
        ({"status": "failed"}, lambda number: number % 5 == 4),
        ({"status": "completed"}, lambda number: number % 5 == 2),
        ({"error_class": "TIMEOUT"}, lambda number: number % 5 == 4),
        ({"error_class": "CRASH"}, lambda _: False),
        ({"content_type": "image/png"}, lambda number: number % 3 == 0),
        ({"filename": "1.PDF"}, lambda number: number % 10 == 1),
        ({"filename": "many"}, lambda _: False),
        ({"date_from": "2020-01-01T00:10:00Z"}, lambda number: number >= 20),
        ({"date_to": "2020-01-01T00:10:00Z"}, lambda number: number < 20),
        ({"date_from": "2020-01-01T00:10:00Z", "date_to": "2020-01-01T00:05:00Z"}, lambda _: False),
        ({"status": "failed", "content_type": "image/png"}, lambda number: number % 15 == 9),
    ],
)
def test_a_filter_gives_what_it_names_and_nothing_else(
    client: httpx.Client, many: list[str], parameters: dict[str, str], is_wanted: Any
):
    page, cursor = listed(client, limit=100, sort="created_at_asc", **parameters)

    assert page == [key for key in many if is_wanted(int(key[5:8]))]
    assert cursor is None


def test_a_cursor_of_the_other_order_or_with_an_offset_is_422(client: httpx.Client, many: list[str]):
    _, cursor = listed(client, limit=5)

    assert_problem(client.get(LIST, params={"cursor": cursor, "sort": "created_at_asc"}), 422)
    assert_problem(client.get(LIST, params={"cursor": cursor, "offset": 1}), 422)


def test_a_document_in_another_bucket_is_known_by_its_whole_uri(client: httpx.Client, world: World):
    key = f"s3://{world.output}/elsewhere.pdf"
    world.s3.put_object(Bucket=world.output, Key="elsewhere.pdf", Body=b"%PDF-elsewhere")
    item = item_of({"s3_key": key, "status": "pending"})
    world.dynamodb.put_item(TableName=world.state_table, Item=item)

    assert client.get(f"/v1/documents/{encode(key)}/content").content == b"%PDF-elsewhere"
    assert client.get(f"/v1/documents/{encode(key)}").json()["filename"] == "elsewhere.pdf"


def test_an_object_that_is_gone_is_404_though_its_document_is_known(client: httpx.Client, many: list[str]):
    assert_problem(client.get(f"/v1/documents/{encode(many[0])}/content"), 404)


# --- runs ----------------------------------------------------------------------


def test_a_run_shows_its_progress_outcomes_rate_and_cost(client: httpx.Client, world: World, text: bytes):
    world.start_run("run-a", 3)
    world.order("run-a", "run-a/1.pdf", text)
    world.order("run-a", "run-a/2.pdf", b"no pdf")
    world.work()

    run = client.get("/v1/runs/run-a").json()

    assert (run["documents"], run["finished"], run["is_finished"]) == (3, 2, False)
    assert run["outcomes"] == {"done": 1, "partial": 0, "failed": 1, "skipped": 0}
    assert run["documents_per_s"] > 0
    assert run["eta_s"] > 0
    assert (run["pages"], run["workers"]) == (3, 1)
    assert (run["cost"]["basis"], run["cost"]["tasks"]) == ("cpu_time", 0)


def test_runs_are_listed_the_newest_first_page_by_page(client: httpx.Client, world: World):
    names = [f"listed-{number}" for number in range(5)]
    for name in names:
        world.start_run(name, 1)
        time.sleep(0.01)

    seen: list[str] = []
    cursor: str | None = None
    while True:
        answer = client.get("/v1/runs", params={"limit": 2} | ({"cursor": cursor} if cursor else {})).json()
        seen += [run["run_id"] for run in answer["runs"]]
        cursor = answer["next_cursor"]
        if cursor is None:
            break

    assert [name for name in seen if name in names] == names[::-1]
