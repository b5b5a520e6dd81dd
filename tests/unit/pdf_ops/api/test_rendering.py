"""What pages are made of: figures as people say them, and a document's page with and without pdf.js."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from starlette.requests import Request

from pdf_ops.api.models import Document, JobStatus
from pdf_ops.api.pages import rendering
from pdf_ops.api.pages.rendering import as_size, as_time_span, show_moment

if TYPE_CHECKING:
    from pathlib import Path


def document_page(kind: str) -> str:
    scope: dict[str, Any] = {
        "type": "http",
        "method": "GET",
        "path": "/airflow/pdf-ops/pages/documents/YQ",
        "root_path": "/airflow/pdf-ops",
        "query_string": b"",
        "headers": [],
        "server": ("airflow.example", 443),
        "scheme": "https",
    }
    document = Document(
        job_id="YQ", status=JobStatus.COMPLETED, filename="a", pages_done=0, pages_total=3, s3_key="a"
    )
    values = {"document": document, "tone": "good", "page": 1, "page_count": 3, "row": None, "rows": []}
    more = {"kind": kind, "history": [], "key": "a"}
    answer = rendering.render(Request(scope), None, "document.html", **values, **more)
    return bytes(answer.body).decode()


@pytest.mark.parametrize("kind", ["pdf", "tiff"])
def test_without_what_draws_documents_a_page_says_so_and_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
):
    monkeypatch.setattr(rendering, "VENDORED", tmp_path / "nothing")
    without = document_page(kind)
    (tmp_path / "nothing").touch()
    with_it = document_page(kind)

    assert ("make vendor" in without, "<canvas" in without) == (True, False)
    assert ("make vendor" in with_it, "<canvas" in with_it) == (False, True)


def test_addresses_are_below_the_place_where_airflow_is():
    page = document_page("image")

    assert 'src="/airflow/pdf-ops/v1/documents/YQ/content"' in page
    assert 'href="/airflow/pdf-ops/pages/static/pages.css"' in page


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (None, "–"),
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1_000, "1.0 kB"),
        (153_000, "153 kB"),
        (2**40, "1.1 TB"),
    ],
)
def test_sizes_are_in_the_unit_that_fits(size: int | None, shown: str):
    assert as_size(size) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(None, "–"), (4.4, "4 s"), (61, "1 min 01 s"), (3_660, "1 h 01 min"), (3 * 86_400, "3 days 0 h")],
)
def test_times_are_as_people_say_them(seconds: float | None, shown: str):
    assert as_time_span(seconds) == shown


def test_a_moment_is_readable_before_any_script_and_is_never_markup():
    assert show_moment("2026-01-02T13:05:00+01:00") == (
        '<time datetime="2026-01-02T12:05:00+00:00">2026-01-02 12:05 UTC</time>'
    )
    assert "<b>" not in show_moment("<b>")
