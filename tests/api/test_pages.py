"""The pages without a browser: who gets in, what they show, and that nothing from a document is markup."""

from __future__ import annotations

import re
import time
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tests.support.api import KEY, READ_KEY, Api, free_port, upload

from pdf_ops.api.access import KEY_COOKIE
from pdf_ops.api.ids import encode
from pdf_ops.contract.attributes import item_of
from pdf_ops.contract.state import StateStatus, listing_shard, new_listing_key
from pdf_ops.hooks.tables import utc_now
from samples import documents as made

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.world import World

    from local_aws import LocalAws

RUN = "scheduled__2026-01-02T02:00:00+00:00"
EVIL = "<img src=x onerror=alert(1)>\"'&amp;<script>alert(2)</script>"
PAGE = {"X-PDF-Ops-Page": "1"}


@pytest.fixture(scope="module")
def browser(api: Api) -> Iterator[httpx.Client]:
    """Somebody who has logged in with a form, as a browser would."""
    with api.client(None) as client:
        answer = client.post("/pages/login", data={"key": KEY, "next": "/pages/runs"})
        assert (answer.status_code, answer.headers["location"]) == (303, "/pages/runs")
        yield client


@pytest.fixture(scope="module")
def read(api: Api, world: World, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A run that is half done: one document read, one failed, one still to come; keys and their ids."""
    folder = tmp_path_factory.mktemp("documents")
    world.start_run(RUN, 3)
    good, bad = f"in/{EVIL}.pdf", "in/bad.pdf"
    world.order(RUN, good, made.text_pdf(folder / "text.pdf", 3).read_bytes())
    world.order(RUN, bad, b"%PDF-1.7 and then nothing")
    world.work()
    time.sleep(0.2)
    return {"good": encode(good), "bad": encode(bad)}


class Tags(HTMLParser):
    """Every tag of a page with its attributes, as a browser would see them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def assert_harmless(page: str) -> None:
    """Nothing of EVIL is markup, and nothing is inline that the policy would have to allow."""
    for tag, attributes in Tags(page).found:
        assert attributes.get("src") != "x", (tag, attributes)
        assert tag != "script" or attributes.get("src"), "a script that is inline"
        assert "style" not in attributes, (tag, attributes)
        assert not [name for name in attributes if name.startswith("on")], (tag, attributes)


# --- who gets in -------------------------------------------------------------------------------


def test_a_page_without_a_key_asks_for_one_and_leads_back(api: Api):
    with api.client(None) as client:
        answer = client.get("/pages/documents?status=failed")

    assert answer.status_code == 401
    assert 'type="password"' in answer.text
    assert 'value="/pages/documents?status=failed"' in answer.text


def test_a_key_goes_into_a_cookie_that_no_script_and_no_other_site_gets(api: Api):
    with api.client(None) as client:
        answer = client.post("/pages/login", data={"key": f" {READ_KEY}\n", "next": "/pages/runs"})
        cookie = answer.headers["set-cookie"]
        inside = client.get("/pages/runs").status_code
        over_tls = client.post(
            "/pages/login", data={"key": READ_KEY}, headers={"X-Forwarded-Proto": "https"}
        ).headers["set-cookie"]
        out = client.post("/pages/logout")
        after = client.get("/pages/runs").status_code

    assert cookie.startswith(f"{KEY_COOKIE}={READ_KEY};")
    assert {"HttpOnly", "SameSite=strict"} <= set(cookie.split("; "))
    assert "Secure" in over_tls.split("; ")
    assert (inside, out.status_code, after) == (200, 303, 401)


def test_a_wrong_key_is_told_and_sets_no_cookie(api: Api):
    with api.client(None) as client:
        answer = client.post("/pages/login", data={"key": "pdfops_wrong"})

    assert (answer.status_code, "set-cookie" in answer.headers) == (401, False)
    assert "not known here" in answer.text


@pytest.mark.parametrize(
    "target", ["https://evil.example/", "//evil.example/pages/", "/pages/\\evil.example", "/docs", ""]
)
def test_a_login_leads_to_our_own_pages_only(api: Api, target: str):
    with api.client(None) as client:
        answer = client.post("/pages/login", data={"key": KEY, "next": target})

    assert answer.headers["location"] == "/pages/documents"


def test_another_site_can_neither_log_somebody_in_nor_use_their_cookie(api: Api, browser: httpx.Client):
    foreign = {"Sec-Fetch-Site": "cross-site"}
    login = browser.post("/pages/login", data={"key": KEY}, headers=foreign)
    plain = browser.post("/v1/redrive", json={})
    posted = browser.post("/v1/redrive", json={}, headers=PAGE | foreign)
    sibling = browser.post("/v1/redrive", json={}, headers=PAGE | {"Sec-Fetch-Site": "same-site"})
    ours = browser.post("/v1/redrive", json={}, headers=PAGE | {"Sec-Fetch-Site": "same-origin"})
    with api.client() as program:
        by_key = program.post("/v1/redrive", json={})

    assert [one.status_code for one in (login, plain, posted, sibling)] == [403] * 4
    assert "X-PDF-Ops-Page" in plain.json()["detail"]
    assert (ours.status_code, by_key.status_code) == (200, 200)


def test_a_cookie_without_the_scope_cannot_redrive(api: Api):
    with api.client(None) as client:
        client.post("/pages/login", data={"key": READ_KEY})
        answer = client.post("/v1/redrive", json={}, headers=PAGE)

    assert (answer.status_code, "redrive" in answer.json()["detail"]) == (403, True)


# --- what they show ----------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["runs", "documents", f"runs/{RUN}", "documents/nothing-there", "runs/x/y"])
def test_every_page_tells_the_browser_to_run_and_load_only_what_is_ours(
    browser: httpx.Client, read: dict[str, str], path: str
):
    answer = browser.get(f"/pages/{path}")
    policy = answer.headers["content-security-policy"]

    assert "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'" in policy
    assert "unsafe-inline" not in policy
    assert "frame-ancestors 'self'" in policy
    assert answer.headers["cache-control"] == "no-store"
    assert_harmless(answer.text)
    for name in set(re.findall(r'(?:src|href)="(/pages/(?:static/|report)[^"]*)"', answer.text)):
        assert browser.get(name).status_code == 200, name


def test_a_run_shows_its_progress_errors_and_what_to_do(browser: httpx.Client, read: dict[str, str]):
    page = browser.get(f"/pages/runs/{RUN.replace('+', '%2B')}?dag_id=pdf_ocr").text

    assert "2 of 3 documents have an outcome." in page
    assert 'value="0.6667"' in page
    assert 'data-live="yes"' in page
    assert "CORRUPT/" in page
    assert "s3://" in page
    assert "Waste: retries and duplicates" in page
    assert "Redrive failed documents" in page
    assert_harmless(page)


def test_the_api_tells_of_a_run_what_its_page_shows(browser: httpx.Client, read: dict[str, str]):
    found = browser.get(f"/v1/runs/{RUN.replace('+', '%2B')}/details").json()
    report = browser.get(f"/v1/runs/{RUN.replace('+', '%2B')}/report")
    runs = browser.get(f"/v1/documents/{read['bad']}/runs").json()["runs"]
    [error] = found["errors"]

    assert (found["state"], found["is_live"], found["sampled_documents"]) == ("running", True, None)
    assert (error["error_class"], error["documents"], error["status"]) == ("CORRUPT", 1, "failed")
    assert error["samples"][0].endswith("/in/bad.pdf")
    assert error["what_to_do"]
    assert sum(one["documents"] for one in found["throughput"]) == 2
    assert sum(one["pages"] for one in found["fleet"]) == 3
    assert report.status_code == 404
    assert [(one["run_id"], one["status"], one["error"]) for one in runs] == [(RUN, "failed", error["label"])]


def test_a_run_that_has_sent_nothing_yet_is_followed_all_the_same(browser: httpx.Client):
    answer = browser.get("/pages/runs/manual__2026-01-01T00:00:00%2B00:00?dag_id=pdf_ocr")

    assert answer.status_code == 200
    assert "Nothing has been sent yet." in answer.text
    assert 'data-live="yes"' in answer.text


def test_the_tab_on_a_run_of_another_dag_says_so(browser: httpx.Client):
    page = browser.get(f"/pages/runs/x?dag_id={httpx.QueryParams(a=EVIL)['a']}").text

    assert "No PDF run" in page
    assert_harmless(page)


def test_runs_are_listed_and_lead_to_their_pages(browser: httpx.Client, read: dict[str, str]):
    page = browser.get("/pages/runs").text

    assert 'href="/pages/runs/scheduled__2026-01-02T02%3A00%3A00%2B00%3A00"' in page


def test_a_document_shows_its_text_how_it_was_read_and_its_runs(browser: httpx.Client, read: dict[str, str]):
    page = browser.get(f"/pages/documents/{read['good']}?page=2").text

    assert "on page 2" in page
    assert "text layer" in page
    assert f'data-content="/v1/documents/{read["good"]}/content"' in page
    assert 'data-kind="pdf"' in page
    assert f">{RUN}</a>" in page
    assert "Redrive this document" not in page
    assert_harmless(page)


def test_a_link_to_a_page_that_is_not_there_shows_the_last_one(browser: httpx.Client, read: dict[str, str]):
    assert "on page 3" in browser.get(f"/pages/documents/{read['good']}?page=999").text


def test_a_failed_document_says_why_and_can_be_redriven(browser: httpx.Client, read: dict[str, str]):
    page = browser.get(f"/pages/documents/{read['bad']}").text

    assert "CORRUPT/" in page
    assert "Redrive this document" in page
    assert "Nothing has been read of this document" in page


def test_documents_are_found_by_name_status_class_and_day(browser: httpx.Client, read: dict[str, str]):
    today = utc_now().date().isoformat()
    every = {"filename": "", "status": "", "error_class": "", "date_from": "", "date_to": "", "sort": ""}
    found = {
        "all": browser.get("/pages/documents", params=every).text,
        "failed": browser.get("/pages/documents", params={"status": "failed"}).text,
        "class": browser.get("/pages/documents", params={"error_class": "CORRUPT"}).text,
        "name": browser.get("/pages/documents", params={"filename": "BAD"}).text,
        "today": browser.get("/pages/documents", params={"date_from": today, "date_to": today}).text,
        "before": browser.get("/pages/documents", params={"date_to": "2020-01-01"}).text,
    }
    good, bad = f"/pages/documents/{read['good']}", f"/pages/documents/{read['bad']}"

    assert {name for name, page in found.items() if f'"{good}"' in page} == {"all", "today"}
    assert {name for name, page in found.items() if f'"{bad}"' in page} == {
        "all",
        "failed",
        "class",
        "name",
        "today",
    }
    assert_harmless(found["all"])


@pytest.mark.parametrize(
    "query", ["status=nope", "date_from=2026-13-01", "cursor=%FF", f"filename={'a' * 201}"]
)
def test_a_wrong_question_is_answered_with_a_page_that_says_what_is_wrong(browser: httpx.Client, query: str):
    answer = browser.get(f"/pages/documents?{query}")

    assert answer.status_code == 422
    assert "data-problem" in answer.text
    assert query.partition("=")[0] in answer.text
    assert_harmless(answer.text)


def test_hostile_names_texts_and_errors_are_shown_as_they_are(browser: httpx.Client, world: World):
    key = f"evil/{EVIL}/{EVIL}.png"
    item = {
        "s3_key": key,
        "status": "failed",
        "listing_shard": listing_shard(StateStatus.FAILED, key),
        "listing_key": new_listing_key(key, utc_now()),
        "last_error": EVIL,
        "error_class": EVIL,
        "error_code": EVIL,
        "filename": EVIL,
        "etag": EVIL,
        "run_id": EVIL,
    }
    world.dynamodb.put_item(TableName=world.state_table, Item=item_of(item))
    try:
        pages = [
            browser.get(f"/pages/documents/{encode(key)}").text,
            browser.get("/pages/documents?filename=onerror").text,
            browser.get(f"/pages/runs/{EVIL}").text,
        ]
    finally:
        world.dynamodb.delete_item(TableName=world.state_table, Key={"s3_key": {"S": key}})

    for page in pages:
        assert "&lt;img src=x" in page
        assert_harmless(page)


# --- when something is missing ------------------------------------------------------------------


def test_when_aws_is_out_of_reach_a_page_says_so_and_what_to_do(
    local_aws: LocalAws, world: World, tmp_path: Path
):
    environment = local_aws.environment() | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{free_port()}"}
    nowhere: Any = SimpleNamespace(environment=lambda: environment)
    with Api(nowhere, world, tmp_path) as api, api.client() as client:
        began = time.monotonic()
        answers = [client.get(f"/pages/{path}") for path in ("documents", f"runs/{RUN}", "documents/YQ")]
        problem = client.get("/v1/runs").json()
        took_s = time.monotonic() - began

    for answer in answers:
        assert answer.status_code == 503
        assert "AWS cannot be reached" in answer.text
        assert "AWS_ENDPOINT_URL" in answer.text
        assert "Traceback" not in answer.text
    assert "AWS cannot be reached" in problem["detail"]
    assert took_s < 4 * 20


def test_downloads_work_for_every_caller_of_the_local_aws(api: Api, browser: httpx.Client):
    with api.client() as client:
        taken = upload(client, "a.png", b"\x89PNG\r\n\x1a\n" + b"0" * 100).json()
    url = browser.get(f"/v1/documents/{taken['job_id']}/download").json()["url"]
    fetched = httpx.get(url, trust_env=False)

    assert "X-Amz-Credential=control_plane" in url
    assert (fetched.status_code, len(fetched.content)) == (200, 108)
