"""The pictures of docs/images: `make screenshots`. Look at each before you commit it."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.browser.place import WAIT_MS, Airflow, chromium, log_in

from local_airflow.up import airflow_up

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FOLDER = Path("docs/images")
RUN = "manual__2026-01-02T03:04:05+00:00"
INVOICE = "c2FtcGxlcy9zY2Fucy9pbnZvaWNlLnBkZg"
MAX_BYTES = 250_000


@dataclass(frozen=True)
class Picture:
    """One picture of one page."""

    name: str
    path: str
    ready: str
    width: int = 1280
    height: int = 860
    theme: str = "light"
    is_in_airflow: bool = False


_QUOTED = RUN.replace("+", "%2B").replace(":", "%3A")
_OF_RUN = f"/pdf-ops/pages/runs/{_QUOTED}?dag_id=pdf_ocr"
_OF_DOCUMENT = f"/pdf-ops/pages/documents/{INVOICE}"
PICTURES = (
    Picture("run", f"/dags/pdf_ocr/runs/{_QUOTED}/plugin/pdf_run", "#tiles", 1440, 900, is_in_airflow=True),
    Picture("run-dark", _OF_RUN, "#tiles", 1280, 1000, "dark"),
    Picture("run-narrow", _OF_RUN, "#tiles", 390, 844),
    Picture("documents", "/plugin/pdf_documents", ".list", 1440, 900, is_in_airflow=True),
    Picture("documents-narrow", "/pdf-ops/pages/documents", ".list", 390, 844, "dark"),
    Picture("document", _OF_DOCUMENT, "canvas[data-drawn]", 1280, 1000),
    Picture("document-dark", _OF_DOCUMENT, "canvas[data-drawn]", 1280, 1000, "dark"),
    Picture("document-narrow", _OF_DOCUMENT, "canvas[data-drawn]", 390, 844),
)


def take(browser: Browser, airflow: Airflow, picture: Picture) -> int:
    """Take one; its size."""
    context = browser.new_context(
        viewport={"width": picture.width, "height": picture.height},
        color_scheme=picture.theme,  # type: ignore[arg-type]
        storage_state=airflow.page.context.storage_state(),
        timezone_id="UTC",
    )
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    page.goto(airflow.url(picture.path))
    place = page.frame_locator("iframe") if picture.is_in_airflow else page
    place.locator(picture.ready).first.wait_for()
    page.wait_for_timeout(2_000)
    size = save(page, picture.name)
    context.close()
    return size


def save(page: Page, name: str) -> int:
    """Write what the page looks like; its size."""
    file = FOLDER / f"{name}.png"
    page.screenshot(path=file)
    return file.stat().st_size


def take_dialog(browser: Browser, airflow: Airflow) -> int:
    """The question before a redrive."""
    airflow.page.set_viewport_size({"width": 1280, "height": 860})
    airflow.page.goto(airflow.url(_OF_RUN))
    airflow.page.get_by_role("button", name="Redrive failed documents").click()
    airflow.page.get_by_role("button", name="Redrive 4 documents").wait_for()
    return save(airflow.page, "redrive")


def main() -> None:
    """Have the samples read, and take all pictures."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        airflow_up(Path(folder), port=0) as up,
        chromium() as browser,
    ):
        airflow = Airflow(up, log_in(browser.new_context(), up))
        body = {"dag_run_id": RUN, "logical_date": None, "conf": {}}
        up.api.call("POST", "/dags/pdf_ocr/dagRuns", body)
        airflow.wait_for_run(RUN)
        sizes = {picture.name: take(browser, airflow, picture) for picture in PICTURES}
        sizes["redrive"] = take_dialog(browser, airflow)
    for name, size in sizes.items():
        print(f"{size:>9,} bytes  {FOLDER / name}.png{'  TOO LARGE' if size > MAX_BYTES else ''}")


if __name__ == "__main__":
    main()
