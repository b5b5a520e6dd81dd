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
    from pdf_ops.contract.layout import Layout

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


def describe_run(run_id: str, *, table: str, layout: Layout, dynamodb: Any, s3: Any) -> RunStatus | None:
    """Put together what is known about a run; None if nothing is.

    Args:
        run_id: The run.
        table: The runs table.
        layout: Where its report would be.
        dynamodb: A client.
        s3: A client.
    """
    items = RunItems(table=table, run_id=run_id, client=dynamodb)
    record, counted = items.record(), list(items.counted())
    if record is None and not counted:
        return None
    total = sum((counters for _, counters, _ in counted), Counters())
    sent = record.documents if record else None
    is_finished = sent is not None and total.documents >= sent
    now = datetime.now(UTC)
    last = max((moment for _, _, moment in counted if moment), default=None)
    rate = _rate(record.created_at if record else None, last if is_finished else None, total, now)
    report = layout.report_json(run_id)
    written = ObjectStore(client=s3).read(report)
    cost = json.loads(written).get("cost") if written else None
    left = sent - total.documents if sent is not None else None
    return RunStatus(
        run_id=run_id,
        documents=sent,
        size_bytes=record.size_bytes if record else None,
        created_at=record.created_at if record else None,
        finished=total.documents,
        is_finished=is_finished,
        outcomes={name: getattr(total, name) for name in OUTCOMES},
        pages=total.pages,
        documents_per_s=rate,
        eta_s=round(max(0, left) / rate, 1) if left is not None and rate else None,
        retries=total.retries,
        workers=len(counted),
        cost=cost or estimate(Prices(), total, [], pages=total.pages, now=now),
        report_uri=str(report) if written else None,
    )


def _rate(created_at: str | None, ended_at: str | None, total: Counters, now: datetime) -> float | None:
    """Documents a second, from the record to the end or now."""
    if created_at is None or not total.documents:
        return None
    end = datetime.fromisoformat(ended_at) if ended_at else now
    seconds = (end - datetime.fromisoformat(created_at)).total_seconds()
    return round(total.documents / seconds, 3) if seconds > 0 else None
