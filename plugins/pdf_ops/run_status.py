"""Runs, from the runs table alone: which there are, and how one goes or went.

The REST API and the command line show the same. Not for judging a run: its report and gate do.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pdf_ops.contract.attributes import attribute, values_of
from pdf_ops.contract.runs import RUNS_LISTING_SHARD, Counters
from pdf_ops.contract.state import LISTING_HASH_KEY, LISTING_INDEX, LISTING_RANGE_KEY
from pdf_ops.cost import Prices, estimate
from pdf_ops.objects import ObjectStore
from pdf_ops.run_items import RunItems

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pdf_ops.contract.layout import Layout, S3Uri
    from pdf_ops.contract.runs import RunRecord

OUTCOMES = ("done", "partial", "failed", "skipped")
_LAST = "~"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEntry:
    """A run in a list.

    Attributes:
        run_id: The run.
        documents: How many it sent.
        size_bytes: Their size together.
        created_at: When it began to send, ISO 8601 in UTC.
    """

    run_id: str
    documents: int | None
    size_bytes: int | None
    created_at: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """How a run goes, or went.

    Attributes:
        run_id: The run.
        documents: How many it sent; None if there is no record of that.
        size_bytes: Their size together.
        created_at: When it began to send, ISO 8601 in UTC.
        finished: Documents with an outcome.
        is_finished: Whether all have one.
        outcomes: How many of each.
        pages: Page rows.
        documents_per_s: From the record to the end, or until now.
        eta_s: Seconds until all have an outcome at that rate.
        retries: Tries that were made again.
        workers: How many have counted.
        cost: As in the report; an estimate while there is none.
        report_uri: The report, once it is written.
    """

    run_id: str
    documents: int | None
    size_bytes: int | None
    created_at: str | None
    finished: int
    is_finished: bool
    outcomes: dict[str, int]
    pages: int
    documents_per_s: float | None
    eta_s: float | None
    retries: int
    workers: int
    cost: dict[str, Any]
    report_uri: str | None


def recent_runs(
    client: Any, table: str, *, limit: int, after: str | None = None
) -> tuple[list[RunEntry], str | None]:
    """One page of runs, the newest first, and after what the next one begins; None at the end.

    Args:
        client: DynamoDB.
        table: The runs table.
        limit: Runs on a page.
        after: What the page before ended with.
    """
    answer = client.query(
        TableName=table,
        IndexName=LISTING_INDEX,
        KeyConditionExpression="#shard = :shard AND #key < :after",
        ExpressionAttributeNames={"#shard": LISTING_HASH_KEY, "#key": LISTING_RANGE_KEY},
        ExpressionAttributeValues={
            ":shard": attribute(RUNS_LISTING_SHARD),
            ":after": attribute(after or _LAST),
        },
        ScanIndexForward=False,
        Limit=limit + 1,
    )
    items = answer["Items"]
    entries = []
    for item in items[:limit]:
        values: dict[str, Any] = values_of(item)
        given: dict[str, Any] = {name: values.get(name) for name in RunEntry.__dataclass_fields__}
        entries.append(RunEntry(**given))
    return entries, items[limit - 1][LISTING_RANGE_KEY]["S"] if len(items) > limit else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One look at a run.

    Attributes:
        run_id: The run.
        now: When it was looked at.
        record: What it sent.
        counters: What each worker counted.
        last_counted_at: When the last of them did, ISO 8601 in UTC.
        report: Its report, if it is of this run's last state.
        report_uri: Where that is.
    """

    run_id: str
    now: datetime
    record: RunRecord | None
    counters: Mapping[str, Counters]
    last_counted_at: str | None
    report: dict[str, Any] | None
    report_uri: S3Uri

    @property
    def total(self) -> Counters:
        """All workers together."""
        return sum(self.counters.values(), Counters())

    @property
    def sent(self) -> int | None:
        """How many documents were sent."""
        return self.record.documents if self.record else None

    @property
    def is_finished(self) -> bool:
        """Whether every document that was sent has an outcome."""
        return self.sent is not None and self.total.documents >= self.sent

    @property
    def documents_per_s(self) -> float | None:
        """From the record to the end or now."""
        if self.record is None or not self.total.documents:
            return None
        ended_at = self.last_counted_at if self.is_finished else None
        end = datetime.fromisoformat(ended_at) if ended_at else self.now
        seconds = (end - datetime.fromisoformat(self.record.created_at)).total_seconds()
        return round(self.total.documents / seconds, 3) if seconds > 0 else None

    @property
    def status(self) -> RunStatus:
        """The figures of it."""
        total, sent, rate = self.total, self.sent, self.documents_per_s
        left = sent - total.documents if sent is not None else None
        estimated = estimate(Prices(), total, [], pages=total.pages, now=self.now)
        return RunStatus(
            run_id=self.run_id,
            documents=sent,
            size_bytes=self.record.size_bytes if self.record else None,
            created_at=self.record.created_at if self.record else None,
            finished=total.documents,
            is_finished=self.is_finished,
            outcomes={name: getattr(total, name) for name in OUTCOMES},
            pages=total.pages,
            documents_per_s=rate,
            eta_s=round(max(0, left) / rate, 1) if left is not None and rate else None,
            retries=total.retries,
            workers=len(self.counters),
            cost=(self.report or {}).get("cost") or estimated,
            report_uri=str(self.report_uri) if self.report else None,
        )


def look_at(run_id: str, *, table: str, layout: Layout, dynamodb: Any, s3: Any) -> Look | None:
    """Look at a run's items and report; None if there is nothing.

    Args:
        run_id: The run.
        table: The runs table.
        layout: Where its report would be.
        dynamodb: A client.
        s3: A client.
    """
    items = RunItems(table=table, run_id=run_id, client=dynamodb)
    record, counted = items.record(), list(items.counted())
    written = ObjectStore(client=s3).read(layout.report_json(run_id))
    if record is None and not counted and written is None:
        return None
    last = max((moment for _, _, moment in counted if moment), default=None)
    report: dict[str, Any] | None = json.loads(written) if written else None
    if report is not None and last and is_outdated(report, last):
        report = None
    return Look(
        run_id=run_id,
        now=datetime.now(UTC),
        record=record,
        counters={name: counters for name, counters, _ in counted},
        last_counted_at=last,
        report=report,
        report_uri=layout.report_json(run_id),
    )


def is_outdated(report: Mapping[str, Any], last_counted_at: str) -> bool:
    """Whether a report is of an earlier attempt: the run's tasks were cleared, and it counts again."""
    made_at = report.get("generated_at")
    return made_at is not None and moment_of(made_at) < moment_of(last_counted_at).replace(microsecond=0)


def moment_of(text: str) -> datetime:
    """A moment as items and reports have it; UTC unless it says otherwise."""
    moment = datetime.fromisoformat(text)
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
