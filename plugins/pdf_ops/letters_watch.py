"""Whether the dead-letter queue has grown by more than runs report: one count, and a look only if it has.

Runs report their own dead letters. What grows besides comes from workers that run by themselves, or from
messages whose workers die without a word, and nobody would hear of it. Not for telling: see notifications.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pdf_ops.contract.attributes import item_of, values_of
from pdf_ops.contract.runs import Counters, letters_watch_key
from pdf_ops.dead_letters import count_letters, peek
from pdf_ops.objects import ObjectStore
from pdf_ops.run_items import RunItems
from pdf_ops.run_status import recent_runs

if TYPE_CHECKING:
    from pdf_ops.contract.layout import Layout

WORST = 3
RUNS = 20
"""So many runs may go on, or end, between two looks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What the last look knew.

    Attributes:
        letters: How many letters there were.
        at: When, ISO 8601 in UTC.
        by_run: How many of them recent runs report.
    """

    letters: int
    at: str
    by_run: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Letters that have come since the last look.

    Attributes:
        letters: How many there are now.
        explained: How many of the new ones runs report.
        unexplained: How many nobody does.
        by_error: The worst classes and codes, of those that were looked at.
        looked_at: How many were looked at.
    """

    letters: int
    explained: int
    unexplained: int
    by_error: list[tuple[str, int]]
    looked_at: int


class LettersWatch:
    """One dead-letter queue, and what is remembered about it.

    :param queue_url: The queue.
    :param runs_table: Where it is remembered, beside the runs.
    :param layout: Where runs report.
    :param sqs: A client.
    :param dynamodb: A client.
    :param s3: A client.
    """

    def __init__(
        self, *, queue_url: str, runs_table: str, layout: Layout, sqs: Any, dynamodb: Any, s3: Any
    ) -> None:
        self.queue_url, self.runs_table, self.layout = queue_url, runs_table, layout
        self.sqs, self.dynamodb, self.store = sqs, dynamodb, ObjectStore(client=s3)
        self._key = letters_watch_key(queue_url.rpartition("/")[2])
        self._next: Memory | None = None

    def look(self) -> Growth | None:
        """Count, and find out more only if there are more; None if nobody need be told.

        What is found is remembered by ``remember``, so that a growth that could not be told is found again.
        """
        before, letters = self._remembered(), count_letters(self.sqs, self.queue_url)
        if before is not None and letters == before.letters:
            return None
        by_run = self._by_run()
        self._next = Memory(letters=letters, at=datetime.now(UTC).isoformat(), by_run=by_run)
        if before is None or letters < before.letters:
            return None
        more = letters - before.letters
        explained = sum(max(0, count - before.by_run.get(run, 0)) for run, count in by_run.items())
        if explained >= more:
            return None
        return self._growth(before, letters, explained, more - explained)

    def remember(self) -> None:
        """Remember what the look found, if it found anything new."""
        if self._next is None:
            return
        values: dict[str, int | str | bool | None] = {
            "letters": self._next.letters,
            "at": self._next.at,
            "by_run": json.dumps(self._next.by_run, sort_keys=True),
        }
        self.dynamodb.put_item(TableName=self.runs_table, Item=self._key | item_of(values))
        self._next = None

    def _remembered(self) -> Memory | None:
        answer = self.dynamodb.get_item(TableName=self.runs_table, Key=self._key, ConsistentRead=True)
        if "Item" not in answer:
            return None
        values: dict[str, Any] = values_of(answer["Item"])
        return Memory(letters=values["letters"], at=values["at"], by_run=json.loads(values["by_run"]))

    def _by_run(self) -> dict[str, int]:
        """The dead letters of recent runs: as they report, or, while they go on, as their workers count."""
        found = {}
        for run in recent_runs(self.dynamodb, self.runs_table, limit=RUNS)[0]:
            written = self.store.read(self.layout.report_json(run.run_id))
            letters = json.loads(written).get("dead_letters") if written else None
            if letters is not None and letters["is_complete"]:
                count = int(letters["of_this_run"])
            else:
                items = RunItems(table=self.runs_table, run_id=run.run_id, client=self.dynamodb)
                count = sum(items.counters().values(), Counters()).failed
            if count:
                found[run.run_id] = count
        return found

    def _growth(self, before: Memory, letters: int, explained: int, unexplained: int) -> Growth:
        seen = peek(self.sqs, self.queue_url)
        since_ms = datetime.fromisoformat(before.at).timestamp() * 1000
        # What a crash loop leaves keeps the time when it was first sent.
        fresh = [letter for letter in seen if letter.sent_ms >= since_ms or not letter.error_class] or seen
        errors = Counter(letter.label for letter in fresh)
        return Growth(
            letters=letters,
            explained=explained,
            unexplained=unexplained,
            by_error=errors.most_common(WORST),
            looked_at=len(fresh),
        )
