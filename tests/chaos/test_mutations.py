"""The accounts notice what they are there for: each guard of the protocol, and the same run without it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.chaos import mutation
from tests.chaos.corpus import OK, Document
from tests.chaos.plan import Action, StepFault, WorkerPlan
from tests.chaos.proxy import Call, Trouble
from tests.chaos.scene import Scene

from ocr_worker.faults import Step
from samples import documents as made

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.chaos.mutation import Mutation
    from tests.chaos.verdict import Verdict

    from local_aws import LocalAws

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def make_scene(local_aws: LocalAws, tmp_path: Path) -> Callable[..., Scene]:
    def make(broken: Mutation | None, *extra: Document, **settings: object) -> Scene:
        sources = broken.apply(tmp_path / "broken") if broken is not None else ()
        body = made.text_pdf(tmp_path / "text.pdf", 3).read_bytes()
        documents = [Document(key="a.pdf", body=body, pages=3, expected=OK), *extra]
        return Scene(local_aws, tmp_path / "fleet", documents, sources=sources, **settings)

    return make


def pausing(action: Action, step: Step, until: Path) -> WorkerPlan:
    return WorkerPlan(faults=(StepFault(action=action, step=step),), pause_until=str(until))


# A worker whose clock is behind loses its document without noticing, and then cannot read it: it has
# other limits. Its heart beats too seldom to be told.


def fail_late(scene: Scene, go_on: Path) -> Verdict:
    plan = replace(pausing(Action.SLOW, Step.CLAIM, go_on), skew_s=-3600.0)
    with scene:
        scene.send(times=2)
        behind = scene.fleet.start(plan, VISIBILITY_S=300, LEASE_S=300, OCR_MAX_PAGES=2)
        scene.wait_for(behind, "chaos.fault")
        other = scene.fleet.start(WorkerPlan())
        scene.wait_for(other, "document.done")
        go_on.touch()
        scene.wait_for(behind, "message.put_off", "document.repeated")
        # The message of the one that was late would only be deleted, in a while.
        scene.fleet.stop()
        scene.world.sqs.purge_queue(QueueUrl=scene.world.queue)
        return scene.conclude(most_wasted=1.0)


def test_a_late_failure_does_not_replace_a_success(make_scene, tmp_path):
    assert fail_late(make_scene(None, PREFETCH_DOCUMENTS=0), tmp_path / "go").problems == []


def test_without_the_fence_a_late_failure_is_found_out(make_scene, tmp_path):
    verdict = fail_late(make_scene(mutation.WITHOUT_FENCE, PREFETCH_DOCUMENTS=0), tmp_path / "go")

    assert any("state table" in problem for problem in verdict.problems), verdict


# A worker is killed when it has just deleted its messages.


def die_after_ack(scene: Scene) -> Verdict:
    with scene:
        scene.send()
        scene.fleet.start(WorkerPlan(faults=(StepFault(action=Action.KILL, step=Step.ACK),)))
        scene.drain()
        return scene.conclude(most_wasted=0.0)


def test_a_message_is_deleted_only_when_its_line_is_in_the_manifest(make_scene):
    assert die_after_ack(make_scene(None)).problems == []


def test_messages_deleted_before_the_manifest_are_found_out(make_scene):
    verdict = die_after_ack(make_scene(mutation.DELETE_BEFORE_MANIFEST))

    assert any("had to be rebuilt" in problem for problem in verdict.problems), verdict


# A worker is slow, but its heart beats; another has a message of the same document.


def be_slow(scene: Scene, go_on: Path) -> Verdict:
    with scene:
        scene.send(times=2)
        slow = scene.fleet.start(pausing(Action.SLOW, Step.EXTRACT, go_on))
        scene.wait_for(slow, "chaos.fault")
        # With room for one document it has taken one message of two.
        other = scene.fleet.start(WorkerPlan())
        scene.wait_for(other, "message.put_off", "document.done")
        go_on.touch()
        scene.drain()
        return scene.conclude(most_wasted=0.0)


def test_a_document_that_a_slow_worker_has_is_not_read_by_another(make_scene, tmp_path):
    assert be_slow(make_scene(None, PREFETCH_DOCUMENTS=0), tmp_path / "go").problems == []


def test_without_the_lease_check_double_work_is_found_out(make_scene, tmp_path):
    verdict = be_slow(make_scene(mutation.WITHOUT_LEASE_CHECK, PREFETCH_DOCUMENTS=0), tmp_path / "go")

    assert any("in vain" in problem for problem in verdict.problems), verdict


# A worker is killed while the answer to its commit is on the way.


def die_in_commit(scene: Scene) -> Verdict:
    seen = []

    def decide(call: Call) -> Trouble | None:
        seen.append(call.operation)
        is_first = call.operation == "TransactWriteItems" and seen.count(call.operation) == 1
        return Trouble.CALLER_KILLED if is_first else None

    with scene:
        scene.workers_aws.decide = decide
        scene.send()
        scene.fleet.start(WorkerPlan())
        scene.drain()
        return scene.conclude(most_wasted=0.0)


def test_a_commit_whose_worker_dies_counts_as_a_whole(make_scene):
    assert die_in_commit(make_scene(None)).problems == []


def test_a_counter_outside_the_transaction_is_found_out(make_scene):
    verdict = die_in_commit(make_scene(mutation.COUNTER_APART))

    assert any("the counters say 0 done" in problem for problem in verdict.problems), verdict


# One document's bytes are cut off on the way, once; another never was one.


def cut_off(scene: Scene) -> Verdict:
    seen = []

    def decide(call: Call) -> Trouble | None:
        seen.append(call.operation)
        is_first = call.operation.endswith("/a.pdf") and seen.count(call.operation) == 1
        return Trouble.ANSWER_CUT if is_first else None

    with scene:
        scene.workers_aws.decide = decide
        scene.send()
        scene.fleet.start(WorkerPlan())
        scene.drain()
        return scene.conclude(most_wasted=0.0)


NEVER_ONE = Document(key="b.pdf", body=b"<html>", pages=0, expected=("failed CORRUPT/not_a_pdf",))


def test_what_can_pass_is_tried_again_and_what_cannot_is_not(make_scene):
    assert cut_off(make_scene(None, NEVER_ONE)).problems == []


def test_a_wrong_judgement_of_what_can_pass_is_found_out(make_scene):
    verdict = cut_off(make_scene(mutation.RETRIES_REVERSED, NEVER_ONE))

    assert any("not what it should be: a.pdf" in problem for problem in verdict.problems), verdict
