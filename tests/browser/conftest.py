"""One Airflow and one browser for all browser tests; the first of them has the samples read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.browser.place import Airflow, chromium, log_in

from local_airflow.up import Up, airflow_up

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Error


@pytest.fixture(scope="session")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with airflow_up(tmp_path_factory.mktemp("up"), port=0) as up:
        yield up


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="session")
def airflow(up: Up, browser: Browser) -> Iterator[Airflow]:
    context = browser.new_context(viewport={"width": 1360, "height": 900}, accept_downloads=True)
    yield Airflow(up, log_in(context, up))
    context.close()


@pytest.fixture(scope="session")
def finished_run(airflow: Airflow) -> str:
    """The run that has read the samples, by its id: the first test's, or one that is started for others."""
    if not airflow.runs():
        body = {"dag_run_id": "manual__2026-01-02T03:04:05+00:00", "logical_date": None, "conf": {}}
        airflow.up.api.call("POST", "/dags/pdf_ocr/dagRuns", body)
    run_id = str(airflow.runs()[0]["dag_run_id"])
    airflow.wait_for_run(run_id)
    return run_id


@pytest.fixture(autouse=True)
def errors(airflow: Airflow) -> Iterator[list[str]]:
    """No script of ours may fail, whatever a test does, and the policy must be broken by nothing."""
    found: list[str] = []

    def note(error: Error) -> None:
        # Airflow's own scripts have errors of their own.
        if "/pdf-ops/" in (error.stack or ""):
            found.append(f"{error}\n{error.stack}")

    def note_refused(message: object) -> None:
        text = getattr(message, "text", "")
        if "Content Security Policy" in text and "/pdf-ops/" in str(getattr(message, "location", "")):
            found.append(text)

    airflow.page.on("pageerror", note)
    airflow.page.on("console", note_refused)
    yield found
    airflow.page.remove_listener("pageerror", note)
    airflow.page.remove_listener("console", note_refused)
    assert not found
