"""The state table and the runs table, as the control plane reads and writes them.

Their items are the contract's. Not for claiming or leasing a document: only workers do.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pdf_ops.contract import runs, state
from pdf_ops.contract.attributes import ItemError, attribute, item_of
from pdf_ops.contract.state import DocumentState, StateStatus
from pdf_ops.hooks.clients import aws_client, cancellation_codes, error_code

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pdf_ops.contract.attributes import Item
    from pdf_ops.contract.documents import DocumentStatus
    from pdf_ops.contract.errors import PdfOpsError
    from pdf_ops.contract.runs import Counters, Outcome, RunRecord

BATCH_GET_KEYS = 100
CONTROL_WORKER = "control"
"""The worker id under which the control plane itself counts."""

_MAX_BATCH_GETS = 10
_STATE_FIELDS = ("s3_key", "status", "etag", "config_hash", "error_class", "error_code", "run_id")


class TableBusyError(Exception):
    """A table left keys unread through all tries."""


class StateTable:
    """What is known about documents across all runs.

    :param table: The table's name.
    :param aws_conn_id: The Airflow connection.
    :param region_name: The region, if not the connection's own.
    :param connections: How many calls go out at once.
    :param client: A client that is there already, instead of the connection.
    """

    def __init__(
        self,
        table: str,
        *,
        aws_conn_id: str | None = "aws_default",
        region_name: str | None = None,
        connections: int = 10,
        client: Any = None,
    ) -> None:
        self.table = table
        self.client = client or aws_client(
            "dynamodb", aws_conn_id=aws_conn_id, region_name=region_name, connections=connections
        )

    def get_many(
        self, s3_keys: Sequence[str], names: Sequence[str] = _STATE_FIELDS
    ) -> dict[str, DocumentState]:
        """The states of those documents that have one, with these attributes.

        Raises:
            TableBusyError: If the table leaves keys unread again and again.
        """
        found: dict[str, DocumentState] = {}
        for start in range(0, len(s3_keys), BATCH_GET_KEYS):
            for item in self._get_batch(s3_keys[start : start + BATCH_GET_KEYS], names):
                try:
                    known = DocumentState.from_item(item)
                except (ItemError, KeyError, TypeError, ValueError):
                    continue  # not an item of ours: the document is read as if it were new
                found[known.s3_key] = known
        return found

    def _get_batch(self, s3_keys: Sequence[str], wanted: Sequence[str]) -> Iterator[Item]:
        names = {f"#{position}": name for position, name in enumerate(wanted)}
        request: dict[str, Any] = {
            self.table: {
                "Keys": [{state.HASH_KEY: attribute(key)} for key in dict.fromkeys(s3_keys)],
                "ProjectionExpression": ",".join(names),
                "ExpressionAttributeNames": names,
                "ConsistentRead": True,
            }
        }
        for attempt in range(_MAX_BATCH_GETS):
            answer = self.client.batch_get_item(RequestItems=request)
            yield from answer["Responses"].get(self.table, [])
            request = answer.get("UnprocessedKeys") or {}
            if not request:
                return
            time.sleep(min(0.05 * 2**attempt, 5.0))
        raise TableBusyError(f"the table {self.table} left keys unread; raise its capacity, then try again")


class RunsTable:
    """What runs asked for, and what became of it.

    :param table: The table's name.
    :param aws_conn_id: The Airflow connection.
    :param region_name: The region, if not the connection's own.
    """

    def __init__(
        self, table: str, *, aws_conn_id: str | None = "aws_default", region_name: str | None = None
    ) -> None:
        self.table = table
        self.client = aws_client("dynamodb", aws_conn_id=aws_conn_id, region_name=region_name)

    def put_record(self, record: RunRecord) -> bool:
        """Write the run's record; False when there is one already, which then stays."""
        from botocore.exceptions import ClientError

        try:
            self.client.put_item(
                TableName=self.table,
                Item=record.to_item(),
                ConditionExpression=f"attribute_not_exists({runs.HASH_KEY})",
            )
        except ClientError as error:
            if error_code(error) == "ConditionalCheckFailedException":
                return False
            raise
        return True

    def get_record(self, run_id: str) -> RunRecord | None:
        """The run's record, if it has been written."""
        answer = self.client.get_item(TableName=self.table, Key=runs.total_key(run_id), ConsistentRead=True)
        return runs.RunRecord.from_item(answer["Item"]) if "Item" in answer else None

    def get_outcome(self, run_id: str, s3_key: str) -> Outcome | None:
        """What became of a document in a run."""
        key = runs.outcome_key(run_id, s3_key)
        answer = self.client.get_item(TableName=self.table, Key=key, ConsistentRead=True)
        return runs.Outcome.from_item(answer["Item"]) if "Item" in answer else None

    def counters(self, run_id: str) -> Counters:
        """All workers' counters together."""
        total = runs.Counters()
        for shard in runs.run_shards(run_id):
            query: dict[str, Any] = {
                "TableName": self.table,
                "KeyConditionExpression": "#hash = :hash AND begins_with(#range, :prefix)",
                "ExpressionAttributeNames": {"#hash": runs.HASH_KEY, "#range": runs.RANGE_KEY},
                "ExpressionAttributeValues": {
                    ":hash": attribute(shard),
                    ":prefix": attribute(runs.WORKER_PREFIX),
                },
                "ConsistentRead": True,
            }
            for page in self.client.get_paginator("query").paginate(**query):
                for item in page["Items"]:
                    total += runs.Counters.from_item(item)
        return total

    def close_document(
        self, outcome: Outcome, *, state_table: str, error: PdfOpsError, version_id: str | None, now: datetime
    ) -> bool:
        """Commit a failure that no worker lived to commit; False when that is not ours to do (now).

        One transaction, as workers commit: the outcome if there is none, the document's state unless
        these bytes have been read or somebody holds the lease, and the counters of the control plane.
        """
        from botocore.exceptions import ClientError

        kind = error.kind
        state_update = {
            "Update": {
                "TableName": state_table,
                "Key": {state.HASH_KEY: attribute(outcome.s3_key)},
                "UpdateExpression": (
                    "SET #status = :failed, last_error = :error, error_class = :class, error_code = :code, "
                    "last_updated = :now, run_id = :run, lease_until = :zero, listing_shard = :shard, "
                    "listing_key = if_not_exists(listing_key, :listing)"
                    + (", etag = :etag" if outcome.etag else "")
                    + (", version_id = :version" if version_id else "")
                ),
                "ConditionExpression": (
                    "(attribute_not_exists(lease_until) OR lease_until < :now_ms) AND NOT "
                    "(#status IN (:done, :partial)" + (" AND etag = :etag)" if outcome.etag else ")")
                ),
                "ExpressionAttributeNames": {"#status": "status"},
                "ExpressionAttributeValues": item_of(
                    {
                        ":failed": StateStatus.FAILED.value,
                        ":done": StateStatus.DONE.value,
                        ":partial": StateStatus.PARTIAL.value,
                        ":error": error.last_error,
                        ":class": kind.error_class.value,
                        ":code": kind.code,
                        ":now": now.isoformat(),
                        ":now_ms": int(now.timestamp() * 1000),
                        ":run": outcome.run_id,
                        ":zero": 0,
                        ":etag": outcome.etag,
                        ":version": version_id or None,
                        ":shard": state.listing_shard(StateStatus.FAILED, outcome.s3_key),
                        ":listing": state.new_listing_key(outcome.s3_key, now),
                    }
                ),
            }
        }
        try:
            self.client.transact_write_items(
                TransactItems=[self._outcome_put(outcome), state_update, self._count(outcome)]
            )
        except ClientError as failure:
            if error_code(failure) == "TransactionCanceledException" and "ConditionalCheckFailed" in (
                cancellation_codes(failure)
            ):
                return False
            raise
        return True

    def put_outcome(self, outcome: Outcome) -> bool:
        """Commit an outcome that leaves the document's state alone; False when there is one already."""
        from botocore.exceptions import ClientError

        try:
            self.client.transact_write_items(TransactItems=[self._outcome_put(outcome), self._count(outcome)])
        except ClientError as failure:
            if error_code(failure) == "TransactionCanceledException" and "ConditionalCheckFailed" in (
                cancellation_codes(failure)
            ):
                return False
            raise
        return True

    def _outcome_put(self, outcome: Outcome) -> dict[str, Any]:
        return {
            "Put": {
                "TableName": self.table,
                "Item": outcome.to_item(),
                "ConditionExpression": f"attribute_not_exists({runs.HASH_KEY})",
            }
        }

    def _count(self, outcome: Outcome) -> dict[str, Any]:
        return {
            "Update": {
                "TableName": self.table,
                "Key": runs.worker_key(outcome.run_id, outcome.worker_id),
                "UpdateExpression": "ADD #status :one SET expires_at = :expires",
                "ExpressionAttributeNames": {"#status": outcome.status.value},
                "ExpressionAttributeValues": {
                    ":one": attribute(1),
                    ":expires": attribute(outcome.expires_at),
                },
            }
        }


def control_outcome(
    *,
    run_id: str,
    s3_key: str,
    status: DocumentStatus,
    etag: str | None,
    now: datetime,
    error: PdfOpsError | None = None,
    done_by: str | None = None,
) -> Outcome:
    """An outcome in the name of the control plane."""
    return runs.Outcome(
        run_id=run_id,
        s3_key=s3_key,
        status=status,
        etag=etag,
        worker_id=CONTROL_WORKER,
        committed_at=now.isoformat(),
        done_by=done_by,
        error_class=error.kind.error_class.value if error else None,
        error_code=error.kind.code if error else None,
        expires_at=int(now.timestamp()) + runs.RETENTION_DAYS * 86_400,
    )


def utc_now() -> datetime:
    """Now."""
    return datetime.now(UTC)
