"""Attacks of every class, and real broken files beside them: each ends in its class, within the limits."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import psutil
import pytest
from tests.hostile.ends import ENDS, READ
from tests.hostile.pdf_bytes import SENTENCE
from tests.support.worker import OCR_WORKER, REPOSITORY, rows_in
from tests.support.world import World

from pdf_ops.contract.documents import DocumentStatus
from samples import documents as made

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.worker import Result

    from local_aws import LocalAws

BAD = REPOSITORY.parent / "shared" / "corpus" / "bad"
PAGE_TIMEOUT_S = 6.0
MEMORY_LIMIT_MB = 768
MAIN_LIMIT_MB = 400
LOOK_INTERVAL_S = 0.2
LIMITS = {"OCR_PAGE_TIMEOUT_S": PAGE_TIMEOUT_S, "OCR_MEMORY_LIMIT_MB": MEMORY_LIMIT_MB}
RUN = "manual__2026-01-01T00:00:00+00:00"
# What is more than its own words by design, or shows no sentence.
SAYS_SOMETHING_ELSE = {"glyph_loop", "deep_strings", "giant_cmap", "broken_jpeg", "jpeg_and_pdf"}

pytestmark = [pytest.mark.timeout(900), pytest.mark.xdist_group("hostile")]


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """One run over all of them, with a good document at the end."""
    folder = tmp_path_factory.mktemp("attacked")
    (folder / "documents").mkdir()
    for attack in ENDS:
        (folder / "documents" / attack.__name__).write_bytes(attack())
    made.text_pdf(folder / "documents" / "zz-good.pdf")
    # A process starts with the peak of the one that started it: a shell's is small, this one's is not.
    command = ["/bin/sh", "-c", '"$@"; exit $?', "sh", *OCR_WORKER, "extract", folder / "documents", "--json"]
    ran = subprocess.run(
        [*command, "--out", folder / "out"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {name: str(value) for name, value in LIMITS.items()},
    )
    return replace(rows_in(folder / "out"), exit_code=ran.returncode, output=ran.stdout, errors=ran.stderr)


@pytest.mark.parametrize("attack", ENDS, ids=lambda attack: attack.__name__)
def test_each_attack_ends_in_its_class(attacked: Result, attack: object) -> None:
    name = attack.__name__
    status, _, error = attacked.outcomes[name].partition(" ")

    assert (error or status) in ENDS[attack]
    assert status == ("failed" if error else "done")
    document = next(row for row in attacked.documents if row["source_uri"].endswith(f"/{name}"))
    rows = [row for row in attacked.pages if row["source_uri"].endswith(f"/{name}")]
    assert len(rows) == (document["page_count"] or 0)
    # Opened once, tried once more alone; each may take a page's time, and the machine is shared.
    assert document["wall_ms"] < 3 * (PAGE_TIMEOUT_S + 5) * 1000


def test_what_a_reader_may_ignore_does_not_keep_it_from_the_text(attacked: Result) -> None:
    """Scripts, actions, loops beside the page, second natures: the page's sentence is read all the same."""
    read = [row for row in attacked.pages if row["method"] == "text_layer"]

    names = {row["source_uri"].rsplit("/", 1)[1] for row in read} - SAYS_SOMETHING_ELSE - {"zz-good.pdf"}
    assert len(names) > 15
    for row in read:
        if row["source_uri"].rsplit("/", 1)[1] in names:
            assert row["text"] == SENTENCE.decode()


def test_attacks_stay_within_the_memory_limit_and_the_next_document_is_read(attacked: Result) -> None:
    summary = json.loads(attacked.output.splitlines()[-1])

    assert summary["peak_page_process_bytes"] <= MEMORY_LIMIT_MB * 2**20
    assert summary["peak_main_bytes"] < MAIN_LIMIT_MB * 2**20
    assert attacked.outcomes["zz-good.pdf"] == "done"


class PeakMemory:
    """The most memory that a worker has had, and that any process has which it started, from outside.

    What the kernel keeps of an ended process begins with the peak of the one that started it: here, this one.
    """

    def __init__(self, pid: int) -> None:
        self._worker = psutil.Process(pid)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="peak-memory", daemon=True)
        self.main_bytes = self.page_process_bytes = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_INTERVAL_S):
            with contextlib.suppress(psutil.Error):
                self.main_bytes = max(self.main_bytes, self._worker.memory_info().rss)
                for process in self._worker.children(recursive=True):
                    self.page_process_bytes = max(self.page_process_bytes, process.memory_info().rss)


def test_one_worker_reads_every_attack_and_broken_file_and_is_never_restarted(
    local_aws: LocalAws, tmp_path: Path
) -> None:
    bad = {path.name: path.read_bytes() for path in sorted(BAD.glob("*"))} if BAD.is_dir() else {}
    documents = bad | {f"attack/{attack.__name__}": attack() for attack in ENDS}
    documents["zz-good.pdf"] = made.text_pdf(tmp_path / "good.pdf").read_bytes()
    with World(local_aws) as world:
        world.start_run(RUN, len(documents))
        for key, body in documents.items():
            world.order(RUN, key, body)

        worker = world.start_worker(MAX_WORKERS=2, OCR_MODE="off", **LIMITS)
        with PeakMemory(worker.pid) as peak:
            output, _ = worker.communicate(timeout=800)
        assert worker.returncode == 0, output
        log = [json.loads(line) for line in output.splitlines()]

        outcomes = world.outcome_items(RUN)
        assert set(outcomes) == set(documents)
        for key, outcome in outcomes.items():
            assert outcome.status is DocumentStatus.DONE or outcome.error_class, key
        assert outcomes["zz-good.pdf"].status is DocumentStatus.DONE
        counted = world.counters(RUN)
        assert counted.done + counted.partial + counted.failed + counted.skipped == len(documents)
        letters = world.dead_letters()
        assert len(letters) == counted.failed
        assert all(letter["error_class"] for letter in letters)
        assert world.messages_left() == 0
    assert [line["event"] for line in log].count("worker.started") == 1
    assert [line["event"] for line in log][-1] == "worker.stopped"
    assert not [line for line in log if line["event"] == "worker.crashed"]
    assert 0 < peak.main_bytes < MAIN_LIMIT_MB * 2**20
    assert 0 < peak.page_process_bytes <= MEMORY_LIMIT_MB * 2**20


def test_what_ends_as_read_is_more_than_half_of_the_attacks() -> None:
    """Else the table above would have become a list of excuses."""
    assert sum(ends == READ for ends in ENDS.values()) > len(ENDS) / 2
