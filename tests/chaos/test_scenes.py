"""Single faults, each in the place where it once lost something."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.chaos.corpus import MAX_PAGES, OK, Document
from tests.chaos.plan import Action, StepFault, WorkerPlan
from tests.chaos.scene import Scene

from ocr_worker.faults import Step
from samples import documents as made

if TYPE_CHECKING:
    from pathlib import Path

    from local_aws import LocalAws

pytestmark = pytest.mark.timeout(180)


def text(folder: Path, *keys: str) -> list[Document]:
    body = made.text_pdf(folder / "text.pdf", 1).read_bytes()
    return [Document(key=key, body=body, pages=1, expected=OK) for key in keys]


def dying(step: Step, about: str | None = None) -> WorkerPlan:
    return WorkerPlan(faults=(StepFault(action=Action.KILL, step=step, about=about),))


def test_a_failure_whose_worker_dies_before_the_dead_letter_gets_one_all_the_same(
    local_aws: LocalAws, tmp_path: Path
) -> None:
    bad = Document(key="bad.pdf", body=b"<html>", pages=0, expected=("failed CORRUPT/not_a_pdf",))
    with Scene(local_aws, tmp_path / "fleet", [bad]) as scene:
        scene.send()
        scene.fleet.start(dying(Step.COMMIT))
        scene.drain()

        assert scene.conclude(most_wasted=0.0).problems == []
        assert len(scene.fleet.workers) == 2


def test_what_is_skipped_stays_so_when_its_worker_dies_before_the_manifest(
    local_aws: LocalAws, tmp_path: Path
) -> None:
    body = made.text_pdf(tmp_path / "long.pdf", MAX_PAGES + 1).read_bytes()
    long = Document(key="long.pdf", body=body, pages=0, expected=("skipped POLICY/too_many_pages",))
    with Scene(local_aws, tmp_path / "fleet", [long]) as scene:
        scene.send()
        scene.fleet.start(dying(Step.COMMIT))
        scene.drain()

        assert scene.conclude(most_wasted=0.0).problems == []


def test_a_worker_stays_for_what_another_that_died_had_in_hand(local_aws: LocalAws, tmp_path: Path) -> None:
    documents = text(tmp_path, "a.pdf")
    with Scene(local_aws, tmp_path / "fleet", documents, VISIBILITY_S=10, LEASE_S=10, IDLE_S=1) as scene:
        scene.send()
        first = scene.fleet.start(dying(Step.CLAIM))
        second = scene.fleet.start(WorkerPlan(faults=(StepFault(action=Action.KILL, step=Step.ACK, nth=99),)))
        first.process.wait(60)
        second.process.wait(90)

        assert second.process.returncode == 0
        assert scene.conclude(most_wasted=0.0).problems == []
        assert len(scene.fleet.workers) == 2


def test_a_document_that_kills_its_workers_does_not_take_its_neighbours_along(
    local_aws: LocalAws, tmp_path: Path
) -> None:
    poison = Document(key="poison.pdf", body=b"%PDF-1.7", pages=0, expected=("failed CRASH/poison",))
    documents = [poison, *text(tmp_path, "a.pdf", "b.pdf", "c.pdf")]
    with Scene(local_aws, tmp_path / "fleet", documents, MAX_UNFINISHED=2) as scene:
        scene.send()
        for _ in range(4):
            worker = scene.fleet.start(
                WorkerPlan(
                    faults=(
                        # All of them are claimed when the poison strikes.
                        StepFault(action=Action.SLOW, step=Step.CLAIM, about=".pdf"),
                        StepFault(action=Action.KILL, step=Step.FETCH, about="poison.pdf"),
                    ),
                    pause_s=0.5,
                )
            )
            worker.process.wait(60)
            if worker.process.returncode == 0:
                break
        scene.drain()

        assert scene.conclude(most_wasted=1.0).problems == []


def test_a_worker_that_cannot_acknowledge_ends_with_an_error_instead_of_going_quiet(
    local_aws: LocalAws, tmp_path: Path
) -> None:
    with Scene(local_aws, tmp_path / "fleet", text(tmp_path, "a.pdf")) as scene:
        scene.send()
        worker = scene.fleet.start(WorkerPlan(faults=(StepFault(action=Action.BUG, step=Step.MANIFEST),)))
        assert worker.process.wait(60) == 1
        scene.drain()

        assert scene.conclude(most_wasted=0.0).problems == []
