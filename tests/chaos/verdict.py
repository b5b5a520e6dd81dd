"""The accounts after a run, taken from what is stored and from nobody's word.

Each check adds the problems that it finds; a run without one has lost nothing and doubled nothing.
"""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from pdf_ops.contract.documents import DocumentStatus
from pdf_ops.contract.messages import parse_message
from pdf_ops.contract.state import StateStatus
from pdf_ops.hooks.tables import CONTROL_WORKER

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.chaos.control import Control
    from tests.chaos.corpus import Document
    from tests.chaos.fleet import Fleet
    from tests.support.world import World

    from pdf_ops.contract.layout import S3Uri
    from pdf_ops.contract.runs import Outcome
    from pdf_ops.contract.state import DocumentState

MAX_NAMED = 5
# What a status of the state table is in the run's accounts; a skipped document is no success.
_STATES = {
    DocumentStatus.DONE: StateStatus.DONE,
    DocumentStatus.PARTIAL: StateStatus.PARTIAL,
    DocumentStatus.FAILED: StateStatus.FAILED,
    DocumentStatus.SKIPPED: StateStatus.FAILED,
}


@dataclass
class Verdict:
    """What was found."""

    problems: list[str] = field(default_factory=list)
    equation: str = ""
    page_rows: int = 0
    pages_read: int = 0
    pages_wasted: int = 0
    lines_repeated: int = 0
    lines_rebuilt: int = 0

    @property
    def is_good(self) -> bool:
        return not self.problems

    def note(self, problem: str, about: Iterable[object]) -> None:
        """Add a problem if it is about anything."""
        named = sorted(map(str, about))
        if named:
            more = f" and {len(named) - MAX_NAMED} more" if len(named) > MAX_NAMED else ""
            self.problems.append(f"{problem}: {', '.join(named[:MAX_NAMED])}{more}")


class Accounts:
    """All that a run has left, read once."""

    def __init__(self, world: World, control: Control) -> None:
        self._world = world
        self._control = control
        run_id = control.run_id
        root = f"s3://{world.input}/"
        self.manifest = [
            row | {"key": row["source_uri"].removeprefix(root)}
            for row in self._table(control.layout.run_manifest(run_id))
        ]
        self.pages = [
            (row["source_uri"].removeprefix(root), row["page"])
            for row in self._dataset(control.layout.pages_dataset())
        ]
        self.outcomes: dict[str, Outcome] = world.outcome_items(run_id)
        self.states: dict[str, DocumentState] = world.states()
        self.counters = world.counters(run_id)
        self.letters = world.dead_letters()

    def _table(self, uri: S3Uri) -> list[dict[str, Any]]:
        body = self._world.s3.get_object(Bucket=uri.bucket, Key=uri.key)["Body"].read()
        return list(pq.ParquetFile(io.BytesIO(body)).read().to_pylist())

    def _dataset(self, root: S3Uri) -> list[dict[str, Any]]:
        found = self._world.s3.list_objects_v2(Bucket=root.bucket, Prefix=f"{root.key.rstrip('/')}/")
        rows: list[dict[str, Any]] = []
        for item in found.get("Contents", []):
            rows += self._table(type(root)(root.bucket, item["Key"]))
        return [row for row in rows if row["run_id"] == self._control.run_id]


def judge(
    accounts: Accounts,
    documents: Sequence[Document],
    *,
    reconciliation: dict[str, Any],
    merged: dict[str, Any],
    fleet: Fleet,
    messages_left: int,
    lines_removed: int,
    most_wasted: float,
) -> Verdict:
    """Hold everything against everything.

    Args:
        accounts: What the run has left.
        documents: What went in.
        reconciliation: What the run itself concluded.
        merged: What the merge said.
        fleet: The workers, all ended.
        messages_left: Messages still in the queue.
        lines_removed: Manifest lines that the test itself took away.
        most_wasted: Pages that may be read in vain, as a share of those of the dataset.
    """
    verdict = Verdict(
        equation=str(reconciliation.get("equation", "not reconciled")),
        page_rows=len(accounts.pages),
        lines_repeated=merged.get("repeated", 0),
        lines_rebuilt=merged.get("repaired", 0),
    )
    _check_every_key_once(verdict, accounts, documents)
    _check_pages(verdict, accounts)
    _check_tables(verdict, accounts)
    _check_dead_letters(verdict, accounts)
    _check_expectations(verdict, accounts, documents)
    _check_fleet(verdict, accounts, fleet, most_wasted)
    if not reconciliation.get("is_reconciled"):
        verdict.problems.append(f"the run's own reconciliation says: {verdict.equation}")
    if messages_left:
        verdict.problems.append(f"{messages_left} messages are still in the queue")
    if verdict.lines_rebuilt > lines_removed:
        verdict.problems.append(
            f"{verdict.lines_rebuilt} manifest lines had to be rebuilt, {lines_removed} were taken away"
        )
    return verdict


def _check_every_key_once(verdict: Verdict, accounts: Accounts, documents: Sequence[Document]) -> None:
    keys = {document.key for document in documents}
    times = Counter(row["key"] for row in accounts.manifest)
    verdict.note("without a line in the manifest", keys - set(times))
    verdict.note("with several lines in the manifest", (key for key, count in times.items() if count > 1))
    verdict.note("in the manifest and never sent", set(times) - keys)
    verdict.note("without an outcome", keys - set(accounts.outcomes))
    differing = [
        f"{row['key']} ({row['status']}, {accounts.outcomes[row['key']].status.value})"
        for row in accounts.manifest
        if row["key"] in accounts.outcomes and accounts.outcomes[row["key"]].status.value != row["status"]
    ]
    verdict.note("with another status in the manifest than in the outcomes", differing)


def _check_pages(verdict: Verdict, accounts: Accounts) -> None:
    times = Counter(accounts.pages)
    verdict.note("pages that are there twice", (page for page, count in times.items() if count > 1))
    rows = Counter(key for key, _ in accounts.pages)
    wanted = {
        row["key"]: row["page_count"] for row in accounts.manifest if row["status"] in ("done", "partial")
    }
    verdict.note(
        "with another number of rows than pages",
        (f"{key} ({rows[key]}, {count})" for key, count in wanted.items() if rows[key] != count),
    )
    verdict.note("with rows and without being read", set(rows) - set(wanted))


def _check_tables(verdict: Verdict, accounts: Accounts) -> None:
    outcomes = Counter(outcome.status for outcome in accounts.outcomes.values())
    for status in DocumentStatus:
        counted = getattr(accounts.counters, status.value)
        if counted != outcomes[status]:
            verdict.problems.append(
                f"the counters say {counted} {status.value}, the outcomes {outcomes[status]}"
            )
    pages = sum(outcome.pages for outcome in accounts.outcomes.values())
    if accounts.counters.pages != pages or pages != len(accounts.pages):
        verdict.problems.append(
            f"pages: {accounts.counters.pages} by the counters, {pages} by the outcomes, "
            f"{len(accounts.pages)} in the dataset"
        )
    differing = [
        f"{key} ({accounts.states[key].status.value if key in accounts.states else 'nothing'}, "
        f"{outcome.status.value})"
        for key, outcome in accounts.outcomes.items()
        if key not in accounts.states or accounts.states[key].status is not _STATES[outcome.status]
    ]
    verdict.note("with another status in the state table than in the outcomes", differing)
    held = [key for key, state in accounts.states.items() if state.lease_until > 0]
    verdict.note("still leased", held)


def _check_dead_letters(verdict: Verdict, accounts: Accounts) -> None:
    said: dict[str, set[str]] = {}
    for letter in accounts.letters:
        label = f"{letter['error_class']}/{letter['error_code']}" if "error_class" in letter else "no word"
        for document in parse_message(letter["body"]):
            said.setdefault(document.key, set()).add(label)
    for key, outcome in accounts.outcomes.items():
        if outcome.status is not DocumentStatus.FAILED:
            continue
        # Of those that the queue gave up on, the letter itself says nothing.
        by_control = outcome.worker_id == CONTROL_WORKER
        wanted = "no word" if by_control else f"{outcome.error_class}/{outcome.error_code}"
        if wanted not in said.get(key, set()):
            verdict.note("failed and not in the dead letters as such", [f"{key} ({wanted})"])
    wrong = [
        f"{key} ({', '.join(sorted(labels))})"
        for key, labels in said.items()
        if key not in accounts.outcomes or accounts.outcomes[key].status is not DocumentStatus.FAILED
    ]
    verdict.note("in the dead letters without having failed", wrong)


def _check_expectations(verdict: Verdict, accounts: Accounts, documents: Sequence[Document]) -> None:
    """A document fails for reasons of its own only."""
    for document in documents:
        outcome = accounts.outcomes.get(document.key)
        if outcome is None:
            continue
        error = f" {outcome.error_class}/{outcome.error_code}" if outcome.error_class else ""
        became = f"{outcome.status.value}{error}"
        if became not in document.expected:
            expected = " or ".join(document.expected)
            verdict.note("not what it should be", [f"{document.key} ({became}, not {expected})"])


def _check_fleet(verdict: Verdict, accounts: Accounts, fleet: Fleet, most_wasted: float) -> None:
    verdict.note("processes that outlived the fleet", fleet.orphans())
    for worker in fleet.workers:
        verdict.note(f"files that {worker.name} left", worker.leftovers)
    pages = {row["key"]: row["page_count"] or 0 for row in accounts.manifest}
    extracted = Counter(
        event["s3_key"]
        for worker in fleet.workers
        for event in worker.events()
        if event.get("event") == "chaos.extracted"
    )
    verdict.pages_read = sum(times * pages.get(key, 0) for key, times in extracted.items())
    verdict.pages_wasted = verdict.pages_read - len(accounts.pages)
    if verdict.pages_wasted > most_wasted * max(1, len(accounts.pages)):
        verdict.problems.append(
            f"{verdict.pages_wasted} pages were read in vain, more than {most_wasted:.0%} of those there are"
        )
