"""A real Airflow with its UI on a local AWS, and a real browser in front of it."""

from __future__ import annotations

import contextlib
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from playwright.sync_api import BrowserContext, FrameLocator, Page, sync_playwright

from local_airflow.demo import DAG_ID

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

    from local_airflow.up import Up

WAIT_MS = 120_000
RUN_WAIT_S = 600.0
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's, as it is installed."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    assert program, "Chromium is not installed: make browser-test does it, or apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(_FLAGS))
        yield browser
        browser.close()


def log_in(context: BrowserContext, up: Up) -> Page:
    """Through Airflow's own form."""
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    page.goto(f"{up.api.url}/auth/login")
    page.fill("input[name=username]", up.api.user)
    page.fill("input[name=password]", up.api.password)
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: "login" not in url)
    return page


@dataclass(frozen=True)
class Airflow:
    """Airflow in a browser, with somebody logged in."""

    up: Up
    page: Page

    def url(self, path: str) -> str:
        return f"{self.up.api.url}{path}"

    @property
    def frame(self) -> FrameLocator:
        """Where Airflow shows our pages."""
        return self.page.frame_locator("iframe")

    def open_tab(self, run_id: str, dag_id: str = DAG_ID) -> FrameLocator:
        """The tab on a run."""
        quoted = run_id.replace("+", "%2B").replace(":", "%3A")
        self.page.goto(self.url(f"/dags/{dag_id}/runs/{quoted}/plugin/pdf_run"))
        self.frame.locator("#run").wait_for()
        return self.frame

    def open_documents(self) -> FrameLocator:
        """The page in the navigation."""
        self.page.goto(self.url("/plugin/pdf_documents"))
        self.frame.get_by_role("heading", name="Find a document").wait_for()
        return self.frame

    def open_document(self, name: str) -> FrameLocator:
        """A document, found by its name."""
        frame = self.open_documents()
        frame.get_by_label("Name").fill(name)
        frame.get_by_role("button", name="Find").click()
        frame.get_by_role("link", name=name, exact=True).click()
        frame.get_by_role("heading", name="What was read").wait_for()
        return frame

    def follow(self, frame: FrameLocator) -> list[tuple[str, str | None]]:
        """Watch the tab until the run's report is there; what it said and how far the bar was."""
        seen: list[tuple[str, str | None]] = []
        deadline = time.monotonic() + RUN_WAIT_S
        while time.monotonic() < deadline:
            headline, share, live = frame.locator("body").evaluate(
                """body => [
                    body.querySelector("[data-headline]")?.textContent ?? "",
                    body.querySelector("progress")?.getAttribute("value") ?? null,
                    body.querySelector("#run").dataset.live,
                ]"""
            )
            if not seen or seen[-1] != (headline, share):
                seen.append((headline, share))
            if live == "no":
                return seen
            self.page.wait_for_timeout(300)
        raise AssertionError(f"the run did not end: {seen}")

    def runs(self, dag_id: str = DAG_ID) -> list[dict[str, Any]]:
        """Airflow's own runs, the oldest first."""
        found = self.up.api.call("GET", f"/dags/{dag_id}/dagRuns?order_by=run_after")
        return list(found["dag_runs"])

    def wait_for_run(self, run_id: str, dag_id: str = DAG_ID) -> str:
        """Wait until Airflow itself says that a run has ended; its state."""
        deadline = time.monotonic() + RUN_WAIT_S
        while time.monotonic() < deadline:
            state = {run["dag_run_id"]: run["state"] for run in self.runs(dag_id)}.get(run_id)
            if state in ("success", "failed"):
                return str(state)
            time.sleep(1)
        raise AssertionError(f"{run_id} did not end")
