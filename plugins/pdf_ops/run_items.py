"""A run's items in the runs table, as the tasks after the fleet read them.

Read-only and page by page, so that a million outcomes are never held at once. Not for the shape of
an item: that is ``pdf_ops.contract.runs``.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from pdf_ops.contract.runs import (
    DOCUMENT_PREFIX,
    HASH_KEY,
    RANGE_KEY,
    WORKER_PREFIX,
    Counters,
    Outcome,
    RunRecord,
    run_shards,
    total_key,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


class RunItems:
    """What the runs table knows about one run.

    :param table: The runs table.
    :param run_id: The run.
    :param aws_conn_id: The Airflow connection used for AWS credentials.
    :param region_name: The AWS region, if not the connection's.
    :param client: A client that is there already, instead of the connection.
    """

    def __init__(
        self,
        *,
        table: str,
        run_id: str,
        aws_conn_id: str | None = "aws_default",
        region_name: str | None = None,
        client: Any = None,
    ) -> None:
        self.table = table
        self.run_id = run_id
        self.aws_conn_id = aws_conn_id
        self.region_name = region_name
        self._given_client = client

    @cached_property
    def client(self) -> Any:
        """DynamoDB's own client: the resource's would translate the items' types."""
        if self._given_client is not None:
            return self._given_client
        from airflow.providers.amazon.aws.hooks.base_aws import AwsBaseHook

        hook: Any = AwsBaseHook(
            aws_conn_id=self.aws_conn_id, region_name=self.region_name, client_type="dynamodb"
        )
        return hook.get_conn()

    def record(self) -> RunRecord | None:
        """The run's own item, or None if nothing was sent."""
        answer = self.client.get_item(TableName=self.table, Key=total_key(self.run_id), ConsistentRead=True)
        return RunRecord.from_item(answer["Item"]) if "Item" in answer else None

    def counters(self) -> dict[str, Counters]:
        """What each worker counted."""
        return {name: counters for name, counters, _ in self.counted()}

    def counted(self) -> Iterator[tuple[str, Counters, str | None]]:
        """What each worker counted, and when last, ISO 8601 in UTC."""
        for item in self._query(WORKER_PREFIX):
            name = item[RANGE_KEY]["S"].removeprefix(WORKER_PREFIX)
            yield name, Counters.from_item(item), item.get("updated_at", {}).get("S")

    def outcomes(self) -> Iterator[Outcome]:
        """One per document that has an outcome."""
        return (Outcome.from_item(item) for item in self._query(DOCUMENT_PREFIX))

    def sample_outcomes(self, per_shard: int) -> list[Outcome]:
        """The first outcomes of each partition, in the order of the documents' hashes: a fair sample."""
        found: list[Outcome] = []
        for shard in run_shards(self.run_id):
            page = self.client.query(**self._condition(shard, DOCUMENT_PREFIX), Limit=per_shard)
            found += map(Outcome.from_item, page["Items"])
        return found

    def _query(self, prefix: str) -> Iterator[dict[str, Any]]:
        paginator = self.client.get_paginator("query")
        for shard in run_shards(self.run_id):
            for page in paginator.paginate(**self._condition(shard, prefix), ConsistentRead=True):
                yield from page["Items"]

    def _condition(self, shard: str, prefix: str) -> dict[str, Any]:
        return {
            "TableName": self.table,
            "KeyConditionExpression": "#shard = :shard AND begins_with(#part, :prefix)",
            "ExpressionAttributeNames": {"#shard": HASH_KEY, "#part": RANGE_KEY},
            "ExpressionAttributeValues": {":shard": {"S": shard}, ":prefix": {"S": prefix}},
        }
