"""What a person does with the pages, in a real browser in front of a real Airflow.

In the order of a day: trigger, watch, look at documents, redrive, and then AWS is gone.
"""

from __future__ import annotations

import json
import re
import signal
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import psutil
import pytest
from playwright.sync_api import expect
from tests.support.api import KEY, Api
from tests.support.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, FrameLocator
    from tests.browser.place import Airflow

    from local_airflow.up import Up

pytestmark = pytest.mark.timeout(1_200)
# A machine under load: what is right comes, and what does not come is wrong.
expect.set_options(timeout=60_000)

# The share of pixels that differ from the first one.
_INK = """canvas => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let ink = 0;
  for (let i = 0; i < data.length; i += 4) {
    ink += data[i] !== data[0] || data[i + 1] !== data[1] || data[i + 2] !== data[2];
  }
  return ink / (data.length / 4);
}"""


def ink(frame: FrameLocator, page: int) -> float:
    canvas = frame.locator(f'canvas[data-drawn="{page}"]')
    canvas.wait_for()
    return float(canvas.evaluate(_INK))


def test_a_run_that_is_triggered_from_airflows_form_is_followed_to_its_end(airflow: Airflow):
    page = airflow.page
    page.goto(airflow.url("/dags/pdf_ocr"))
    page.get_by_role("button", name="Trigger").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Trigger").click()
    deadline = time.monotonic() + 120
    while not (runs := airflow.runs()):
        assert time.monotonic() < deadline, "the form started no run"
        page.wait_for_timeout(500)

    frame = airflow.open_tab(runs[-1]["dag_run_id"])
    seen = airflow.follow(frame)

    headlines = [headline for headline, _ in seen]
    assert headlines[-1] == "All 16 documents have an outcome; 4 failed and 1 are partial."
    assert len(headlines) > 2, seen
    shares = [float(share) for _, share in seen if share is not None]
    assert shares == sorted(shares)
    expect(frame.get_by_text("complete", exact=True)).to_be_visible()
    expect(frame.get_by_role("status").first).to_contain_text("The run has ended.")
    expect(frame.get_by_role("img", name=re.compile("documents a minute"))).to_be_visible()
    expect(frame.get_by_text("Waste: retries and duplicates")).to_be_visible()
    expect(frame.get_by_text("ENCRYPTED/password_required").first).to_be_visible()


def test_the_report_and_airflows_own_pages_are_reached_from_the_tab(airflow: Airflow, finished_run: str):
    frame = airflow.open_tab(finished_run)
    frame.get_by_role("link", name="Open the report", exact=True).click()
    expect(frame.get_by_role("heading", name="Where everything is")).to_be_visible()

    frame = airflow.open_tab(finished_run)
    frame.get_by_role("link", name="Tasks and their logs").click()
    airflow.page.wait_for_url(lambda url: "plugin" not in url)
    expect(airflow.page.get_by_role("link", name="Task Instances").first).to_be_visible()
    assert airflow.page.url.endswith(f"/dags/pdf_ocr/runs/{quote(finished_run, safe='')}")


def test_what_is_unfolded_stays_so_while_the_page_asks_again(airflow: Airflow, finished_run: str):
    frame = airflow.open_tab(finished_run)
    frame.get_by_text("Show one key").first.click()
    shown = frame.locator("details[open]").first.inner_text()
    script = "/pdf-ops/pages/static/page.js"
    frame.locator("#sections").evaluate(
        f"""async sections => {{
            sections.querySelector("td").textContent = "STALE";
            await (await import("{script}")).refresh(location.href);
        }}"""
    )

    assert frame.locator("#sections").inner_text().count("STALE") == 0
    assert frame.locator("details[open]").first.inner_text() == shown


def test_a_page_is_drawn_beside_its_text_and_can_be_turned(airflow: Airflow, finished_run: str):
    frame = airflow.open_document("mixed.pdf")
    first = ink(frame, 1)
    text = frame.locator(".page-text").inner_text()
    frame.get_by_role("link", name="Next").click()
    second = ink(frame, 2)

    assert 0.001 < first < 0.5
    assert 0.001 < second < 0.5
    assert "quick brown fox" in text
    expect(frame.get_by_text("OCR", exact=True).first).to_be_visible()
    expect(frame.locator(".chips")).to_contain_text("Confidence")
    expect(frame.locator("tr[aria-current=true] th")).to_have_text("2")


def test_images_are_shown_also_those_that_no_browser_shows_and_downloads_leave_the_frame(
    airflow: Airflow, finished_run: str, tmp_path: Path
):
    frame = airflow.open_document("photo.png")
    width = frame.locator("#picture img").evaluate(
        "async image => (await image.decode(), image.naturalWidth)"
    )
    frame = airflow.open_document("fax.tiff")
    drawn = [ink(frame, 1)]
    for page in (2, 3):
        frame.get_by_role("link", name="Next").click()
        drawn.append(ink(frame, page))
    with airflow.page.expect_download() as download:
        frame.get_by_role("link", name="Download").click()
    file = tmp_path / "fax.tiff"
    download.value.save_as(file)

    assert width > 100
    # The second page is blank.
    assert [0.001 < one < 0.5 for one in drawn] == [True, False, True]
    assert download.value.suggested_filename == "fax.tiff"
    assert file.read_bytes()[:4] in (b"II*\x00", b"MM\x00*")


def test_a_document_that_nobody_could_read_says_why_and_what_to_do(airflow: Airflow, finished_run: str):
    frame = airflow.open_document("encrypted.pdf")

    expect(frame.locator("#picture")).to_contain_text("opens only with a password")
    expect(frame.locator(".notice")).to_contain_text("qpdf --decrypt")


def test_everything_is_reached_with_the_keyboard(airflow: Airflow, finished_run: str):
    frame = airflow.open_documents()
    page = airflow.page
    page.locator("iframe").focus()
    focused = """() => {
        const one = document.activeElement;
        return one === document.body ? "" : one.textContent.trim() + " " + one.id;
    }"""

    def tab_to(name: str, *, most: int = 40) -> None:
        for _ in range(most):
            page.keyboard.press("Tab")
            if name in frame.locator("body").evaluate(focused):
                outline = frame.locator(":focus").evaluate("one => getComputedStyle(one).outlineStyle")
                assert outline != "none", f"{name} does not show that it has the focus"
                return
        raise AssertionError(f"{name} cannot be reached with the keyboard")

    tab_to("Skip to the content")
    tab_to("filename")
    page.keyboard.type("letter.pdf")
    page.keyboard.press("Enter")
    frame.get_by_role("link", name="Clear").wait_for()
    tab_to("letter.pdf")
    page.keyboard.press("Enter")
    frame.get_by_role("heading", name="What was read on page 1").wait_for()
    tab_to("Next")
    page.keyboard.press("Enter")
    frame.get_by_role("heading", name="What was read on page 2").wait_for()
    assert ink(frame, 2) > 0.001


def test_the_colours_are_the_systems_unless_a_person_chose_in_airflow(
    airflow: Airflow, browser: Browser, finished_run: str
):
    colour = "() => getComputedStyle(document.body).backgroundColor"
    seen = {}
    state: Any = airflow.page.context.storage_state()
    for system, chosen in (("light", None), ("dark", None), ("light", "dark"), ("dark", "light")):
        context = browser.new_context(color_scheme=system, storage_state=state)  # type: ignore[arg-type]
        page = context.new_page()
        page.goto(airflow.url("/pdf-ops/pages/runs"))
        value = "removeItem('theme')" if chosen is None else f"setItem('theme', '{chosen}')"
        page.evaluate(f"() => localStorage.{value}")
        page.reload()
        seen[system, chosen] = page.evaluate(colour)
        context.close()

    light, dark = "rgb(246, 247, 249)", "rgb(16, 21, 27)"
    assert list(seen.values()) == [light, dark, dark, light]


@pytest.mark.parametrize("width", [360, 1360])
def test_no_page_is_wider_than_the_window(airflow: Airflow, browser: Browser, finished_run: str, width: int):
    context = browser.new_context(
        viewport={"width": width, "height": 800}, storage_state=airflow.page.context.storage_state()
    )
    page = context.new_page()
    wide = {}
    run = finished_run.replace("+", "%2B")
    for path in (
        "documents",
        "runs",
        f"runs/{run}?dag_id=pdf_ocr",
        "documents/c2FtcGxlcy9jb250cmFjdHMvbWl4ZWQucGRm",
    ):
        page.goto(airflow.url(f"/pdf-ops/pages/{path}"))
        wide[path] = page.evaluate("() => document.documentElement.scrollWidth")
    context.close()

    assert max(wide.values()) <= width, wide


# --- the search: another process builds the index, here is what the page makes of an answer ------------


def search(airflow: Airflow, status: int, answer: dict[str, Any]) -> FrameLocator:
    kind = "application/json" if status == 200 else "application/problem+json"
    airflow.page.route(
        "**/v1/search?*",
        lambda route: route.fulfill(status=status, content_type=kind, body=json.dumps(answer)),
    )
    try:
        frame = airflow.open_documents()
        frame.get_by_label("Words in the text").fill("brown fox")
        frame.get_by_role("button", name="Search").click()
        frame.locator(
            "#search-status:not(:empty):not(:text('Searching')), #search-problem:not(:empty)"
        ).first.wait_for()
    finally:
        airflow.page.unroute("**/v1/search?*")
    return frame


def test_hits_are_shown_with_their_words_marked_and_are_never_markup(airflow: Airflow, finished_run: str):
    evil = "<img src=x onerror=alert(1)>"
    hit = {
        "document_id": "c2FtcGxlcy9jb250cmFjdHMvbWl4ZWQucGRm",
        "s3_key": f"in/{evil}",
        "filename": evil,
        "page": 2,
        "page_count": 3,
        "score": 1.5,
        "snippet": [
            {"text": f"the quick {evil} ", "is_hit": False},
            {"text": "brown fox", "is_hit": True},
            {"text": " jumps", "is_hit": False},
        ],
    }
    index = {"kind": "embedded", "built_at": "2026-01-02T12:00:00Z", "rows": 79}
    frame = search(airflow, 200, {"hits": [hit], "total": 1, "next_cursor": None, "index": index})

    expect(frame.locator("#hits mark")).to_have_text("brown fox")
    expect(frame.locator("#hits")).to_contain_text(evil)
    assert frame.locator("#hits img").count() == 0
    expect(frame.locator("#search-status")).to_contain_text("1 page has it.")
    frame.locator("#hits a").click()
    expect(frame.get_by_role("heading", name="What was read on page 2")).to_be_visible()


def test_a_search_without_an_index_says_what_the_api_says(airflow: Airflow):
    detail = "There is no index yet: run `pdf-ops index`."
    frame = search(airflow, 503, {"status": 503, "title": "Service Unavailable", "detail": detail})

    expect(frame.locator("#search-problem")).to_have_text(detail)


# --- without Airflow ------------------------------------------------------------------------------------


def test_by_itself_people_log_in_with_a_key_and_out_again(up: Up, browser: Browser, tmp_path: Path):
    context = browser.new_context()
    page = context.new_page()
    with World(up.aws) as world, Api(up.aws, world, tmp_path) as api:
        page.goto(f"{api.url}/pages/runs")
        page.get_by_label("API key").fill("wrong")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert").last).to_contain_text("not known here")
        page.get_by_label("API key").fill(KEY)
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Runs")).to_be_visible()
        seen_by_scripts = page.evaluate("() => document.cookie")
        [cookie] = context.cookies()
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_label("API key")).to_be_visible()
    left = context.cookies()
    context.close()

    assert (seen_by_scripts, cookie["httpOnly"], cookie["sameSite"], left) == ("", True, "Strict", [])


# --- redrive --------------------------------------------------------------------------------------------


def test_a_redrive_shows_the_count_first_and_then_starts_a_run(airflow: Airflow, finished_run: str):
    frame = airflow.open_tab(finished_run)
    before = len(airflow.runs("pdf_redrive"))
    frame.get_by_role("button", name="Redrive failed documents").click()
    dialog = frame.get_by_role("dialog")
    expect(dialog).to_contain_text("4 documents would be sent round again.")
    dialog.get_by_label("Which of this run's").select_option("ENCRYPTED")
    expect(dialog).to_contain_text("1 document would be sent round again.")
    assert len(airflow.runs("pdf_redrive")) == before
    dialog.get_by_role("button", name="Redrive 1 document").click()
    dialog.get_by_role("link", name="Watch it").click()
    frame.get_by_role("heading", name="redrive__").wait_for()
    airflow.follow(frame)
    [run] = airflow.runs("pdf_redrive")

    assert airflow.wait_for_run(run["dag_run_id"], "pdf_redrive") in ("success", "failed")
    expect(frame.locator("[data-headline]")).to_contain_text("1")
    assert run["conf"]["error_class"] == "ENCRYPTED"


# --- AWS is gone: the last test, since Airflow's tasks need it ------------------------------------------


@contextmanager
def frozen(airflow: Airflow) -> Iterator[None]:
    """A local AWS that takes calls and never answers, as behind a firewall."""
    servers = []
    for one in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            servers += [one] if "local_aws.data_server" in one.cmdline() else []
    [server] = servers
    server.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.send_signal(signal.SIGCONT)


def test_when_aws_does_not_answer_the_pages_say_so_and_come_back(airflow: Airflow, finished_run: str):
    page = airflow.page
    frame = airflow.open_documents()
    with frozen(airflow):
        began = time.monotonic()
        frame.get_by_role("button", name="Find").click()
        expect(frame.get_by_role("heading", name="Out of reach")).to_be_visible(timeout=60_000)
        took_s = time.monotonic() - began
        expect(frame.locator("[data-problem]")).to_contain_text("AWS")
        expect(frame.locator("[data-problem]")).to_contain_text("Check the web server's way to it")
    frame.get_by_role("link", name="Try again").click()
    expect(frame.get_by_role("heading", name="Find a document")).to_be_visible()

    assert took_s < 45
    assert page.locator("iframe").count() == 1
