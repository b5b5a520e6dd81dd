"""The protocol, searched: every interleaving of two workers and two deliveries of one document.

The worker's own ledger decides each step, on tables that evaluate its own expressions. Workers crash,
leases run out, messages come back, answers get lost and the object changes, at any time and any number
of times; what must hold is checked in every state that can be reached.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.tables import Tables, run

from ocr_worker.ledger import AlreadyRead, Commit, HeldElsewhere, Lease, LeaseLostError, Ledger
from pdf_ops.contract.documents import DocumentStatus
from pdf_ops.contract.errors import ErrorKind, PdfOpsError
from pdf_ops.contract.runs import Counters
from pdf_ops.contract.state import DocumentState, StateStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KEY, RUN, CONFIG = "a.pdf", "run", "config"
NOW_S, LEASE_S = 1_000_000.0, 100.0
STATE = ("state", KEY)
ETAGS = ("before", "after")
# The rest of the state grows without end, or says when, and decides nothing.
COMPARED = {"status", "etag", "run_id", "lease_until", "is_dead_letter"}
DONE, FAILED = DocumentStatus.DONE, DocumentStatus.FAILED


@dataclass(frozen=True, slots=True)
class Worker:
    """Where a worker is: its step, the message in hand, its lease, and what it made of the document."""

    step: str = "idle"
    message: int = 0
    lease: Lease | None = None
    status: DocumentStatus | None = None


@dataclass(frozen=True, slots=True)
class Message:
    is_visible: bool = True
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class World:
    """Everything that outlives a step."""

    items: dict[tuple[str, ...], dict[str, Any]] = field(default_factory=dict)
    workers: tuple[Worker, Worker] = (Worker(), Worker())
    messages: tuple[Message, Message] = (Message(), Message())
    lines: frozenset[DocumentStatus] = frozenset()
    has_letter: bool = False
    has_changed: bool = False


class Protocol:
    """What can happen in a world, as the worker's own code has it."""

    def __init__(self, rewrite: Callable[[str], str] = lambda condition: condition) -> None:
        self._rewrite = rewrite

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        yield from self._of_the_world(world)
        for number in (0, 1):
            worker = world.workers[number]
            if worker.step != "idle":
                yield f"{number} crashes", _with(world, number, Worker())
            yield from getattr(self, f"_from_{worker.step}")(world, number, worker)

    def _of_the_world(self, world: World) -> Iterator[tuple[str, World]]:
        for number, message in enumerate(world.messages):
            if not message.is_visible and not message.is_deleted:
                yield f"message {number} comes back", _showing(world, number)
        if not world.has_changed:
            yield "the object changes", replace(world, has_changed=True)
        state = state_of(world)
        if state is not None and state.lease_until > NOW_S * 1000:
            state_item = world.items[STATE] | {"lease_until": {"N": "1"}}
            yield "the lease runs out", replace(world, items=world.items | {STATE: state_item})

    # A worker's steps ------------------------------------------------------------------------

    def _from_idle(self, world: World, number: int, _: Worker) -> Iterator[tuple[str, World]]:
        for place, message in enumerate(world.messages):
            if message.is_visible and not message.is_deleted:
                hidden = _message(world, place, replace(message, is_visible=False))
                yield f"{number} receives {place}", _with(hidden, number, Worker("received", place))

    def _from_received(self, world: World, number: int, worker: Worker) -> Iterator[tuple[str, World]]:
        # The message tells the object as it was listed.
        yield f"{number} claims", self._claim(world, number, worker, ETAGS[0])

    def _claim(self, world: World, number: int, worker: Worker, etag: str) -> World:
        claimed, after = self._ask(
            world,
            lambda ledger: ledger.claim(
                KEY, etag=etag, size=1, version_id=None, config_hash=CONFIG, run_id=RUN, is_forced=False
            ),
            number,
        )
        if isinstance(claimed, HeldElsewhere):
            return _give_back(after, number)
        if isinstance(claimed, AlreadyRead):
            status = DocumentStatus(claimed.state.status.value)
            is_letter_due = status is FAILED and not claimed.state.is_dead_letter
            step = "to_bury" if is_letter_due else "noted"
            return _with(after, number, replace(worker, step=step, status=status, lease=None))
        return _with(after, number, replace(worker, step="claimed", lease=claimed))

    def _from_claimed(self, world: World, number: int, worker: Worker) -> Iterator[tuple[str, World]]:
        yield from self._beats(world, number, worker)
        assert worker.lease is not None
        if world.has_changed and worker.lease.etag == ETAGS[0]:
            lost, after = self._ask(
                world,
                lambda ledger: _release(ledger, worker.lease, ErrorKind.SOURCE_CHANGED_DURING_READ),
                number,
            )
            changed = _give_back(after, number) if lost else self._claim(after, number, worker, ETAGS[1])
            yield f"{number} finds it changed", changed
            return
        for status in (DONE, FAILED):
            yield (
                f"{number} reads: {status.value}",
                _with(world, number, replace(worker, step="read", status=status)),
            )
        _, after = self._ask(
            world, lambda ledger: _release(ledger, worker.lease, ErrorKind.SOURCE_UNAVAILABLE), number
        )
        yield f"{number} puts off", _give_back(after, number)

    def _beats(self, world: World, number: int, worker: Worker) -> Iterator[tuple[str, World]]:
        lost, after = self._ask(
            world, lambda ledger: ledger.extend(worker.lease, pages_processed=0, total_pages=None), number
        )
        yield f"{number} beats", _give_back(after, number) if lost else after

    def _from_read(self, world: World, number: int, worker: Worker) -> Iterator[tuple[str, World]]:
        yield from self._beats(world, number, worker)
        status = worker.status
        assert status is not None
        error = PdfOpsError(ErrorKind.CORRUPT_UNREADABLE) if status is FAILED else None
        commit, after = self._ask(
            world,
            lambda ledger: ledger.commit(
                worker.lease,
                status=status,
                counters=Counters.of(status),
                pages=0,
                total_pages=None,
                output_uri=None,
                content_type=None,
                error=error,
            ),
            number,
        )
        if commit is Commit.COUNTED:
            step = "to_bury" if status is FAILED else "noted"
            after = _with(after, number, replace(worker, step=step, lease=None))
        elif commit is Commit.COUNTED_BEFORE:
            after = _with(after, number, replace(worker, step="noted", lease=None, status=None))
        else:
            after = _give_back(after, number)
        yield f"{number} commits", after
        # The same, but the answer does not come: it gives the document back, as far as that can be done.
        yield f"{number} commits and is not answered", _give_back(after, number)

    def _from_to_bury(self, world: World, number: int, worker: Worker) -> Iterator[tuple[str, World]]:
        buried = replace(world, has_letter=True)
        yield f"{number} buries", _with(buried, number, replace(worker, step="buried"))

    def _from_buried(self, world: World, number: int, worker: Worker) -> Iterator[tuple[str, World]]:
        _, after = self._ask(world, lambda ledger: ledger.note_dead_letter(KEY, RUN), number)
        yield f"{number} notes the letter", _with(after, number, replace(worker, step="noted"))

    def _from_noted(self, world: World, number: int, worker: Worker) -> Iterator[tuple[str, World]]:
        lines = world.lines | ({worker.status} if worker.status is not None else set())
        written = replace(world, lines=frozenset(lines))
        yield f"{number} writes the manifest", _with(written, number, replace(worker, step="written"))

    def _from_written(self, world: World, number: int, worker: Worker) -> Iterator[tuple[str, World]]:
        deleted = _message(world, worker.message, Message(is_visible=False, is_deleted=True))
        yield f"{number} deletes {worker.message}", _with(deleted, number, Worker())

    def _ask(self, world: World, call: Callable[[Ledger], Any], number: int) -> tuple[Any, World]:
        """Have the real ledger do something; a lost lease is an answer, too."""
        tables = Tables(self._rewrite)
        tables.items = dict(world.items)
        ledger = Ledger(
            tables,
            state_table="state",
            runs_table="runs",
            worker_id=f"worker-{number}",
            lease_s=LEASE_S,
            now_s=lambda: NOW_S,
        )
        try:
            answer = run(call(ledger))
        except LeaseLostError as lost:
            answer = lost
        return answer, replace(world, items=tables.items)


async def _release(ledger: Ledger, lease: Lease | None, kind: ErrorKind) -> None:
    assert lease is not None
    await ledger.release(lease, PdfOpsError(kind), wasted_ms=0)


def _with(world: World, number: int, worker: Worker) -> World:
    first, second = world.workers
    return replace(world, workers=(worker, second) if number == 0 else (first, worker))


def _message(world: World, number: int, message: Message) -> World:
    first, second = world.messages
    return replace(world, messages=(message, second) if number == 0 else (first, message))


def _showing(world: World, number: int) -> World:
    message = world.messages[number]
    return world if message.is_deleted else _message(world, number, replace(message, is_visible=True))


def _give_back(world: World, number: int) -> World:
    return _with(_showing(world, world.workers[number].message), number, Worker())


def state_of(world: World) -> DocumentState | None:
    item = world.items.get(STATE)
    return DocumentState.from_item(item) if item is not None else None


def _parts(world: World, prefix: str) -> list[dict[str, Any]]:
    return [item for place, item in world.items.items() if place[-1].startswith(prefix)]


def outcome_of(world: World) -> DocumentStatus | None:
    return next((DocumentStatus(item["status"]["S"]) for item in _parts(world, "document#")), None)


def times_counted(world: World) -> int:
    return sum(Counters.from_item(item).documents for item in _parts(world, "worker#"))


def signature(world: World) -> Any:
    """The world as far as it matters, with tokens named by who holds them."""
    state = world.items.get(STATE, {})
    held = state.get("lease_token")
    known = tuple(sorted((name, *value.values()) for name, value in state.items() if name in COMPARED))
    workers = tuple(
        (
            worker.step,
            worker.message,
            worker.status,
            worker.lease and (worker.lease.etag, {"S": worker.lease.token} == held),
        )
        for worker in world.workers
    )
    rest = (world.messages, world.lines, world.has_letter, world.has_changed)
    return known, held is not None, outcome_of(world), times_counted(world), workers, rest


def problem_of(world: World) -> str | None:
    """What is wrong with a world, if anything."""
    state, outcome, times = state_of(world), outcome_of(world), times_counted(world)
    if times != (outcome is not None):
        return f"counted {times} times"
    is_closed = state is not None and state.status is not StateStatus.PROCESSING
    if is_closed != (outcome is not None):
        return "closed without an outcome, or open with one"
    if state is not None and outcome is not None and state.status.value != outcome.value:
        return f"{state.status.value} in the state table, {outcome.value} in the run"
    if world.lines - {outcome}:
        return "a line in the manifest that is not the outcome"
    if any(message.is_deleted for message in world.messages):
        if outcome is None or outcome not in world.lines:
            return "a message is deleted, and there is no line"
        if outcome is FAILED and not world.has_letter:
            return "a message is deleted, and there is no dead letter"
    return None


@dataclass(frozen=True, slots=True)
class Search:
    """What a search has found."""

    states: int
    problem: str | None = None
    stuck: int = 0


def search(protocol: Protocol) -> Search:
    """Go everywhere; stop at the first problem, and tell how it came about."""
    start = World()
    came_from: dict[Any, tuple[Any, str]] = {signature(start): (None, "")}
    leads_to: dict[Any, set[Any]] = {}
    ends: set[Any] = set()
    waiting = deque([start])
    while waiting:
        world = waiting.popleft()
        here = signature(world)
        before = outcome_of(world)
        if all(message.is_deleted for message in world.messages):
            ends.add(here)
        for name, after in protocol.steps(world):
            there = signature(after)
            leads_to.setdefault(there, set()).add(here)
            if there in came_from:
                continue
            came_from[there] = (here, name)
            problem = problem_of(after)
            if before is not None and outcome_of(after) is not before:
                problem = "an outcome has changed"
            if problem is not None:
                return Search(len(came_from), f"{problem}: {' → '.join(_path(came_from, there))}")
            waiting.append(after)
    # Whatever has happened, it can still end well.
    good, todo = set(ends), list(ends)
    while todo:
        for earlier in leads_to.get(todo.pop(), set()) - good:
            good.add(earlier)
            todo.append(earlier)
    return Search(len(came_from), stuck=len(came_from) - len(good))


def _path(came_from: dict[Any, tuple[Any, str]], there: Any) -> list[str]:
    path = []
    while came_from[there][0] is not None:
        there, name = came_from[there][0], came_from[there][1]
        path.append(name)
    return path[::-1]


def test_no_interleaving_of_two_workers_and_two_deliveries_loses_or_doubles() -> None:
    found = search(Protocol())

    assert found.problem is None
    assert found.stuck == 0
    assert found.states > 1_000


HELD = "lease_token = :token AND #status = :processing"


@pytest.mark.parametrize(
    ("condition", "broken"),
    [
        pytest.param(HELD, "attribute_exists(s3_key)", id="the fence"),
        pytest.param(
            "OR (#status IN (:done, :partial, :failed) AND run_id = :run)", "", id="what a run has closed"
        ),
    ],
)
def test_the_search_finds_a_condition_that_is_missing(condition: str, broken: str) -> None:
    found = search(Protocol(lambda text: text.replace(condition, broken)))

    assert found.problem is not None
