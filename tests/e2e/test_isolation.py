"""A page may do its worst to the process that reads it: that costs the page, not the run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.support import engines
from tests.support.worker import REPOSITORY, extract_with

from samples import documents as made

if TYPE_CHECKING:
    from pathlib import Path

SHORT = {"page_timeout_s": 4.0, "memory_limit_mb": 512}


@pytest.fixture(autouse=True)
def tests_can_be_imported_by_page_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))


@pytest.fixture
def marked(tmp_path: Path) -> Path:
    """Five pages, the third of which the faulty engines fail on."""
    images = [made.scan() for _ in range(5)]
    images[2] = made.scan(size=made.MARKED_PIXELS)
    return made.scan_pdf(tmp_path / "marked.pdf", images)


@pytest.mark.parametrize(
    ("engine", "error"),
    [
        (engines.Hanging, "TIMEOUT/page"),
        (engines.Spinning, "TIMEOUT/page"),
        (engines.Aborting, "CRASH/page"),
        (engines.Exiting, "CRASH/page"),
        (engines.EatingMemory, "OOM/page"),
        (engines.KilledByTheSystem, "OOM/page"),
        (engines.Raising, "CRASH/page"),
        (engines.Lying, "ENGINE/bad_answer"),
    ],
)
def test_an_engine_that_fails_on_a_page_costs_that_page_only(
    tmp_path: Path, marked: Path, engine: type, error: str
) -> None:
    """Each fault is met twice, as the page is tried once more alone; then it is an error row."""
    result = extract_with(marked, tmp_path / "out", recognizer=engine, **SHORT)

    assert result.page_errors == [None, None, error, None, None]
    assert [row["page"] for row in result.pages] == [1, 2, 3, 4, 5]
    assert result.outcomes == {"marked.pdf": f"partial {error}"}
    assert all(row["text"] == "read well enough" for row in result.pages if row["error_class"] is None)


def test_a_signal_that_has_no_name_costs_the_page_only(tmp_path: Path, marked: Path) -> None:
    result = extract_with(marked, tmp_path / "out", recognizer=engines.KilledByRealTimeSignal)

    assert result.page_errors == [None, None, "CRASH/page", None, None]


def test_one_document_that_blames_the_engine_does_not_stop_the_run(tmp_path: Path, marked: Path) -> None:
    good = made.scan_pdf(tmp_path / "z.pdf", [made.scan()])

    result = extract_with([marked, good], tmp_path / "out", recognizer=engines.Blaming)

    assert result.stopped_by is None
    assert result.outcomes["z.pdf"] == "done"
    assert len(result.pages) == 6


def test_time_that_a_document_waits_for_others_is_not_held_against_it(tmp_path: Path) -> None:
    """A long text document fills its buffer behind slow scans, and is read on when they are done."""
    slow = [made.scan_pdf(tmp_path / f"{number}.pdf", [made.scan()] * 4) for number in range(6)]
    long = made.text_pdf(tmp_path / "long.pdf", 1_500)
    inputs = [slow[0], long, *slow[1:]]

    result = extract_with(
        inputs, tmp_path / "out", recognizer=engines.SlowlyReading, processes=1, document_timeout_s=4.0
    )

    assert set(result.outcomes.values()) == {"done"}


def test_a_document_whose_every_page_fails_is_failed_and_the_next_is_read(tmp_path: Path) -> None:
    bad = made.scan_pdf(tmp_path / "a.pdf", [made.scan(size=made.MARKED_PIXELS)] * 2)
    good = made.scan_pdf(tmp_path / "b.pdf", [made.scan()])

    result = extract_with([bad, good], tmp_path / "out", recognizer=engines.Aborting)

    assert result.outcomes == {"a.pdf": "failed CRASH/page", "b.pdf": "done"}
    assert len(result.pages) == 3


def test_a_parser_that_crashes_is_left_out_the_second_time(tmp_path: Path) -> None:
    result = extract_with(
        made.text_pdf(tmp_path / "a.pdf", 3), tmp_path / "out", parser=engines.CrashingParser
    )

    assert result.outcomes == {"a.pdf": "done"}
    assert all(row["parser"].startswith("pypdf") for row in result.pages)
    assert made.share_read(result.text) == 1.0


def test_a_parser_that_hangs_is_left_out_the_second_time(tmp_path: Path) -> None:
    path = made.text_pdf(tmp_path / "a.pdf", 3)

    result = extract_with(path, tmp_path / "out", parser=engines.HangingParser, **SHORT)

    assert result.outcomes == {"a.pdf": "done"}


def test_a_page_that_is_not_there_is_an_error_row(tmp_path: Path) -> None:
    result = extract_with(made.text_pdf(tmp_path / "a.pdf", 2), tmp_path / "out", parser=engines.LyingParser)

    assert result.page_errors == [None, None, "CORRUPT/page_unreadable"]


def test_nothing_that_a_killed_page_process_started_outlives_it(tmp_path: Path, marked: Path) -> None:
    result = extract_with(marked, tmp_path / "out", recognizer=engines.HangingWithChild, **SHORT)

    assert result.page_errors[2] == "TIMEOUT/page"
    assert not [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if "599.25" in (process.info["cmdline"] or [])
    ]


def test_a_page_process_sees_no_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = {
        "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "do-not-tell",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/v2/do-not-tell",
        "OCR_PASSWORD": "do-not-tell",
        "SOME_TOKEN": "do-not-tell",
    }
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)

    path = made.scan_pdf(tmp_path / "a.pdf", [made.scan()])
    result = extract_with(path, tmp_path / "out", recognizer=engines.Reporting)

    assert "pid=" in result.text
    assert "do-not-tell" not in result.text
    assert not any(name in result.text for name in secrets)
    assert "OMP_THREAD_LIMIT=1" in result.text


def test_page_processes_are_replaced_after_so_many_documents(tmp_path: Path) -> None:
    paths = [made.scan_pdf(tmp_path / f"{number}.pdf", [made.scan()]) for number in range(6)]

    result = extract_with(
        paths, tmp_path / "out", recognizer=engines.Reporting, processes=1, max_docs_per_process=2
    )

    processes = [re.findall(r"pid=(\d+)", row["text"])[0] for row in result.pages]
    assert processes[0] == processes[1] != processes[2] == processes[3] != processes[4] == processes[5]


def test_a_document_that_takes_too_long_keeps_the_pages_read_until_then(tmp_path: Path) -> None:
    path = made.scan_pdf(tmp_path / "a.pdf", [made.scan()] * 40)

    result = extract_with(
        path, tmp_path / "out", recognizer=engines.SlowlyReading, processes=1, document_timeout_s=4.0
    )

    assert result.outcomes == {"a.pdf": "partial TIMEOUT/document"}
    assert len(result.pages) == 40
    assert result.page_errors[0] is None
    assert result.page_errors[-1] == "TIMEOUT/document"


def test_an_engine_that_can_read_nothing_stops_the_run(tmp_path: Path) -> None:
    paths = [made.scan_pdf(tmp_path / f"{number}.pdf", [made.scan()]) for number in range(30)]

    result = extract_with(paths, tmp_path / "out", recognizer=engines.Misconfigured)

    assert result.stopped_by is not None
    assert result.stopped_by.kind.label == "ENGINE/misconfigured"
    assert len(result.documents) == 30
    assert {row["error_code"] for row in result.documents} == {"misconfigured"}


def test_memory_that_a_page_process_cannot_start_with_stops_the_run(tmp_path: Path) -> None:
    result = extract_with(made.text_pdf(tmp_path / "a.pdf"), tmp_path / "out", memory_limit_mb=1)

    assert result.stopped_by is not None
    assert "no page process starts" in result.stopped_by.detail
    assert result.outcomes == {"a.pdf": "failed ENGINE/misconfigured"}
