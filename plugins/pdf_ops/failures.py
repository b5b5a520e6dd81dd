"""Documents that failed, and what to do about each: of one run, or as they are known now.

Not for the dead letters themselves: that is ``pdf_ops.dead_letters``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pdf_ops.contract.attributes import attribute
from pdf_ops.contract.documents import DocumentStatus
from pdf_ops.contract.state import (
    HASH_KEY,
    LISTING_HASH_KEY,
    LISTING_INDEX,
    StateStatus,
    listing_shards,
)
from pdf_ops.dead_letters import what_to_do

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pdf_ops.hooks.tables import StateTable
    from pdf_ops.run_items import RunItems

_STATE_FIELDS = ("s3_key", "status", "error_class", "error_code", "last_error", "run_id", "last_updated")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A document that failed.

    Attributes:
        s3_key: The document, as the state table knows it.
        error: Class and code, such as ``CORRUPT/truncated``; empty if nobody said.
        message: What went wrong, in words, if it is still known.
        what_to_do: What helps.
        run_id: The run that it failed in.
    """

    s3_key: str
    error: str
    message: str | None
    what_to_do: str
    run_id: str | None


@dataclass(slots=True)
class Failures:
    """What was found.

    Attributes:
        documents: The first of them.
        by_error: How many per class and code, of all that were counted.
        is_complete: Whether these are all.
    """

    documents: list[Failure] = field(default_factory=list)
    by_error: Counter[str] = field(default_factory=Counter)
    is_complete: bool = True


def failed_in_run(items: RunItems, states: StateTable, *, error_class: str | None, limit: int) -> Failures:
    """The documents that failed in a run, all of them counted and so many named."""
    found = Failures()
    keys: list[tuple[str, str]] = []
    for outcome in items.outcomes():
        if outcome.status is not DocumentStatus.FAILED or error_class not in (None, outcome.error_class):
            continue
        label = _label(outcome.error_class, outcome.error_code)
        found.by_error[label] += 1
        if len(keys) < limit:
            keys.append((outcome.s3_key, label))
        else:
            found.is_complete = False
    known = states.get_many([key for key, _ in keys], _STATE_FIELDS)
    for key, label in keys:
        state = known.get(key)
        # What another run has said since is about that run.
        message = state.last_error if state is not None and state.run_id == items.run_id else None
        found.documents.append(_failure(key, label, message, items.run_id))
    return found


def failed_now(states: StateTable, *, error_class: str | None, limit: int) -> Failures:
    """The documents whose last word is a failure, so many of them."""
    found = Failures()
    keys: list[str] = []
    for entry in _failed_entries(states):
        if error_class is not None and entry.get("error_class", {}).get("S") != error_class:
            continue
        if len(keys) == limit:
            found.is_complete = False
            break
        keys.append(entry[HASH_KEY]["S"])
    known = states.get_many(keys, _STATE_FIELDS)
    for key in keys:
        state = known.get(key)
        if state is None or state.status is not StateStatus.FAILED:
            continue  # The index is a moment behind the table.
        label = _label(state.error_class, state.error_code)
        found.by_error[label] += 1
        found.documents.append(_failure(key, label, state.last_error, state.run_id))
    return found


def _failed_entries(states: StateTable) -> Iterator[dict[str, Any]]:
    paginator = states.client.get_paginator("query")
    for shard in listing_shards(StateStatus.FAILED):
        pages = paginator.paginate(
            TableName=states.table,
            IndexName=LISTING_INDEX,
            KeyConditionExpression="#shard = :shard",
            ExpressionAttributeNames={"#shard": LISTING_HASH_KEY},
            ExpressionAttributeValues={":shard": attribute(shard)},
            ScanIndexForward=False,
        )
        for page in pages:
            yield from page["Items"]


def _label(error_class: str | None, code: str | None) -> str:
    return f"{error_class}/{code}" if error_class else ""


def _failure(key: str, error: str, message: str | None, run_id: str | None) -> Failure:
    return Failure(s3_key=key, error=error, message=message, what_to_do=what_to_do(error), run_id=run_id)
