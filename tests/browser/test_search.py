"""The search box on the index that a real run has made."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

if TYPE_CHECKING:
    from tests.browser.place import Airflow

pytestmark = pytest.mark.timeout(1_200)
# The API looks for a newer index every half minute.
WAIT_S = 120


def test_words_of_a_run_are_found_and_lead_to_their_page(airflow: Airflow, finished_run: str):
    frame = airflow.open_documents()
    frame.get_by_label("Words in the text").fill("quick brown fox accounts")
    deadline = time.monotonic() + WAIT_S
    while not frame.locator("#hits li").count():
        assert time.monotonic() < deadline, frame.locator(".search").inner_text()
        frame.get_by_role("button", name="Search").click()
        airflow.page.wait_for_timeout(3_000)

    found = {words.lower() for words in frame.locator("#hits mark").all_inner_texts()}
    assert {"quick", "brown", "fox", "accounts"} & set(" ".join(found).split())
    expect(frame.locator("#search-status")).to_contain_text(re.compile("pages? ha(s|ve) it"))
    frame.locator("#hits a").first.click()
    expect(frame.locator(".page-text")).to_contain_text("Accounts")


def test_a_query_that_cannot_be_understood_says_why(airflow: Airflow, finished_run: str):
    frame = airflow.open_documents()
    frame.get_by_label("Words in the text").fill("-only -without")
    frame.get_by_role("button", name="Search").click()

    expect(frame.locator("#search-problem")).not_to_be_empty(timeout=60_000)
    assert frame.locator("#hits li").count() == 0
