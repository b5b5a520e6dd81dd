"""One storm: a run of the pipeline on a world in which everything goes wrong that can, and its verdict.

The seed decides what happens and in which order; when it happens depends on the machine.
"""

from __future__ import annotations

import random
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any

from tests.chaos import corpus
from tests.chaos.plan import BETWEEN_STEPS, Action, StepFault, WorkerPlan
from tests.chaos.proxy import Call, Trouble
from tests.chaos.scene import Scene

from ocr_worker.faults import Step
from pdf_ops.exceptions import EnqueueError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.chaos.control import Control
    from tests.chaos.fleet import Fleet
    from tests.chaos.verdict import Verdict
    from tests.support.world import World

    from local_aws import LocalAws

FLEET_SIZE = 3
STEP_FAULTS = 9
DISK_BYTES = 400_000
# A storm that does not end is as bad as one that loses something.
STALL_S = 90.0
MOST_S = 900.0
LOOK_INTERVAL_S = 1.0
MOST_WASTED = 1.0
SQUALL_S = 2.0
SQUALL_SHARE = 0.25
_SQUALLS = (
    Trouble.THROTTLED,
    Trouble.ERROR_500,
    Trouble.ERROR_503,
    Trouble.RESET,
    Trouble.HANGS,
    Trouble.ANSWER_LOST,
    Trouble.ANSWER_CUT,
    Trouble.CONFLICT,
)
_WRITES = ("TransactWriteItems", "UpdateItem")


@dataclass
class Timeline:
    """What happened when, for a person."""

    began: float = field(default_factory=time.monotonic)
    lines: list[tuple[float, str]] = field(default_factory=list)

    def note(self, what: str) -> None:
        self.lines.append((time.monotonic() - self.began, what))

    def __str__(self) -> str:
        return "\n".join(f"  {at:6.1f} s  {what}" for at, what in self.lines)


class Weather:
    """What the proxy does to the workers' calls: squalls of one trouble each, with calm in between."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = random.Random(rng.random())
        self._lock = Lock()
        self._began = time.monotonic()
        self.struck = 0
        self.is_over = False
        self._squalls = list(_SQUALLS)
        rng.shuffle(self._squalls)

    def decide(self, call: Call) -> Trouble | None:
        with self._lock:
            if self.is_over or call.service == "other":
                return None
            number, place = divmod(time.monotonic() - self._began, 2 * SQUALL_S)
            is_calm = place < SQUALL_S or number >= len(self._squalls)
            if is_calm or self._rng.random() > SQUALL_SHARE:
                return None
            trouble = self._squalls[int(number)]
            if trouble is Trouble.CONFLICT and call.operation not in _WRITES:
                return None
            if trouble is Trouble.ANSWER_CUT and not call.operation.startswith("GET"):
                return None
            self.struck += 1
            return trouble


class Refusals:
    """Lets so many calls of a kind pass, and refuses the next ones: a task dies half way."""

    def __init__(self) -> None:
        self._wanted, self._left = "", -1

    def after(self, operation: str, passing: int) -> None:
        self._wanted, self._left = operation, passing

    def never(self) -> None:
        self._left = -1

    def decide(self, call: Call) -> Trouble | None:
        if self._left < 0 or not call.operation.startswith(self._wanted):
            return None
        if self._left == 0:
            return Trouble.DENIED
        self._left -= 1
        return None


@dataclass
class Storm:
    """All that a storm needs, and what it finds."""

    aws: LocalAws
    seed: int
    documents: int
    folder: Path
    step_faults: int = STEP_FAULTS
    timeline: Timeline = field(default_factory=Timeline)
    workers: int = 0
    faults_struck: int = 0
    calls_struck: int = 0
    most_receives: int = 0

    def run(self) -> Verdict:
        rng = random.Random(self.seed)
        self.folder.mkdir(parents=True, exist_ok=True)
        documents = corpus.make_documents(rng, self.documents, self.folder)
        with Scene(self.aws, self.folder, documents, name=str(self.seed)) as scene:
            refusals = Refusals()
            scene.control_aws.decide = refusals.decide
            self._enqueue(scene.control, refusals, rng)
            weather = Weather(rng)
            scene.workers_aws.decide = weather.decide
            self._read(scene, rng)
            weather.is_over = True
            scene.fleet.stop()
            self.workers = len(scene.fleet.workers)
            self.timeline.note("the fleet has ended")
            self.calls_struck = weather.struck
            self.most_receives = scene.workers_aws.most_receives
            self.faults_struck = sum(
                event.get("event") == "chaos.fault"
                for worker in scene.fleet.workers
                for event in worker.events()
            )
            return self._conclude(scene, refusals)

    def _enqueue(self, control: Control, refusals: Refusals, rng: random.Random) -> None:
        sent = control.list()
        self.timeline.note(f"{sent} documents listed")
        refusals.after("SendMessageBatch", rng.randint(1, max(1, sent // 20)))
        with self._is_to_fail("enqueue", EnqueueError):
            control.enqueue()
        refusals.never()
        for again in ("retried", "once more, so that every message is there twice"):
            self.timeline.note(f"enqueue {again}: {control.enqueue()} messages")

    @contextmanager
    def _is_to_fail(self, task: str, *expected: type[Exception]) -> Iterator[None]:
        try:
            yield
        except (*expected,) as error:
            self.timeline.note(f"{task} died half way: {type(error).__name__}")
        else:
            raise AssertionError(f"{task} was to die half way and did not")

    def _read(self, scene: Scene, rng: random.Random) -> None:
        """Keep a fleet up until every document has an outcome and no message is left."""
        world, control, fleet = scene.world, scene.control, scene.fleet
        plans = self._plans(rng)
        happenings = self._happenings(fleet, rng)
        began = time.monotonic()
        last_look, last_progress, counted = 0.0, began, -1
        is_counted = False
        while True:
            for worker in fleet.clear_away():
                self.timeline.note(f"{worker.name} ended ({_how(worker.process.returncode)})")
            now = time.monotonic()
            if now - last_look > LOOK_INTERVAL_S:
                last_look = now
                ended = control.watch.look()
                is_counted = ended is not None and ended.status == "success"
                if ended is not None and not is_counted:
                    raise AssertionError(ended.message)
                finished = world.counters(control.run_id).documents
                if finished > counted:
                    counted, last_progress = finished, now
                is_up = len(fleet.living) >= FLEET_SIZE
                if happenings and is_up and finished >= happenings[0][0] * self.documents:
                    happenings.pop(0)[1]()
                left = world.messages_left()
                if is_counted and not left and not happenings:
                    self.timeline.note("every document has an outcome, and the queue is empty")
                    return
                if now - last_progress > STALL_S or now - began > MOST_S:
                    self.timeline.note(f"it does not end: {left} messages left")
                    return
            while len(fleet.living) < FLEET_SIZE:
                plan = plans.pop(0) if plans else self._plan()
                worker = fleet.start(plan)
                self.timeline.note(f"{worker.name} started" + _told(plan))
            time.sleep(0.2)

    def _plan(self, *faults: StepFault, skew_s: float = 0.0) -> WorkerPlan:
        """A worker's plan; the victims are with every worker, whoever gets them."""
        always = (
            StepFault(action=Action.KILL, step=Step.FETCH, about=corpus.POISON),
            StepFault(action=Action.OVERWRITE, step=Step.CLAIM, about=corpus.OVERWRITTEN),
            StepFault(action=Action.DELETE, step=Step.CLAIM, about=corpus.DELETED),
        )
        replacement = str(self.folder / "text-3.pdf")
        return WorkerPlan(faults=(*always, *faults), skew_s=skew_s, overwrite_with=replacement)

    def _plans(self, rng: random.Random) -> list[WorkerPlan]:
        """One fault between two steps for each of the first workers; six seeds in a row have all of them."""
        every = [(action, step) for action in BETWEEN_STEPS for step in Step]
        random.Random(0).shuffle(every)
        first = self.seed * self.step_faults
        chosen = [every[(first + number) % len(every)] for number in range(self.step_faults)]
        return [
            self._plan(StepFault(action=action, step=step, nth=_nth(rng, step))) for action, step in chosen
        ]

    def _happenings(self, fleet: Fleet, rng: random.Random) -> list[tuple[float, Any]]:
        """What befalls the fleet, by the share of documents that have an outcome."""

        def spot() -> None:
            chosen = fleet.living[: max(1, len(fleet.living) // 2)]
            for worker in chosen:
                worker.notify_spot()
            self.timeline.note(f"Spot wants back {', '.join(worker.name for worker in chosen)}")

        def blackout() -> None:
            for worker in fleet.living:
                worker.kill()
            self.timeline.note("the whole fleet is killed")

        def clock(skew_s: float) -> None:
            worker = fleet.start(self._plan(skew_s=skew_s))
            self.timeline.note(f"{worker.name} started, its clock {skew_s:+.0f} s off")

        def small_disk() -> None:
            worker = fleet.start(self._plan(), disk_bytes=DISK_BYTES)
            kind = "a disk of" if worker.is_mounted else "files of at most"
            self.timeline.note(f"{worker.name} started, with {kind} {DISK_BYTES} bytes")

        found = [spot, blackout, lambda: clock(3600.0), lambda: clock(-3600.0), small_disk]
        rng.shuffle(found)
        shares = sorted(rng.uniform(0.05, 0.85) for _ in found)
        return list(zip(shares, found, strict=True))

    def _conclude(self, scene: Scene, refusals: Refusals) -> Verdict:
        """Merge, publish and report, each of which dies half way first."""
        removed = self._lose_manifest_parts(scene.world, scene.control)
        for step in (scene.control.plan_merge, scene.control.merge, scene.control.publish):
            refusals.after("PUT", 1)
            with self._is_to_fail(step.__name__, *_client_errors()):
                step()
            refusals.never()
            step()
        verdict = scene.conclude(most_wasted=MOST_WASTED, lines_removed=removed)
        self.timeline.note("plan_merge, merge and publish retried, and all again; reconciled")
        refusals.after("PUT", 1)
        with self._is_to_fail("report", *_client_errors()):
            scene.control.report()
        refusals.never()
        scene.control.report()
        self.timeline.note("report retried")
        return verdict

    def _lose_manifest_parts(self, world: World, control: Control) -> int:
        """Remove every part that names one of the documents; gives how many have no line then."""
        prefix = control.layout.manifest_parts_prefix(control.run_id)
        listed = world.s3.list_objects_v2(Bucket=prefix.bucket, Prefix=prefix.key).get("Contents", [])
        parts = {item["Key"]: {row["source_uri"] for row in world.rows_of(item["Key"])} for item in listed}
        victim = min(min(names) for names in parts.values() if names)
        lost = [key for key, names in parts.items() if victim in names]
        for key in lost:
            world.s3.delete_object(Bucket=prefix.bucket, Key=key)
        kept: set[str] = set().union(*(names for key, names in parts.items() if key not in lost))
        gone = set().union(*(parts[key] for key in lost)) - kept
        self.timeline.note(f"{len(lost)} manifest parts are lost, and with them {len(gone)} documents' lines")
        return len(gone)


def _nth(rng: random.Random, step: Step) -> int:
    """Manifest and acknowledgement are done for many documents at once, so they come seldom."""
    return 1 if step in (Step.MANIFEST, Step.ACK) else rng.randint(1, 8)


def _client_errors() -> tuple[type[Exception], ...]:
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError

    return (ClientError, BotoCoreError, Boto3Error)


def _how(code: int) -> str:
    return {0: "in order", -9: "killed", 1: "with an error"}.get(code, f"exit code {code}")


def _told(plan: WorkerPlan) -> str:
    own = [str(fault) for fault in plan.faults if fault.about is None]
    return f": {', '.join(own)}" if own else ""
