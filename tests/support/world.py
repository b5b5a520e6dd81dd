"""A worker's world on the local AWS, fresh for each test: buckets, queues, tables, and real workers."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

import pyarrow.parquet as pq

from local_aws.bootstrap import create_table
from local_aws.recording import Caller
from local_aws.resources import load_resources
from pdf_ops.contract.fingerprint import ReadingConfig
from pdf_ops.contract.messages import DocumentMessage
from pdf_ops.contract.runs import Counters, Outcome, RunRecord, run_shards
from pdf_ops.contract.state import LISTING_INDEX, DocumentState, StateStatus, listing_shards

if TYPE_CHECKING:
    from collections.abc import Mapping

WAIT_S = 60.0


class World:
    """One input bucket, one output bucket, a queue with its DLQ, and the two tables."""

    def __init__(self, aws: Any) -> None:
        self.s3, self.sqs, self.dynamodb = aws.client("s3"), aws.client("sqs"), aws.client("dynamodb")
        self._aws = aws
        name = f"t-{uuid.uuid4().hex[:12]}"
        self.input, self.output = f"{name}-in", f"{name}-out"
        self.state_table, self.runs_table = f"{name}-state", f"{name}-runs"
        for bucket in (self.input, self.output):
            self.s3.create_bucket(Bucket=bucket)
        self.dlq = self.sqs.create_queue(QueueName=f"{name}-dlq")["QueueUrl"]
        found = self.sqs.get_queue_attributes(QueueUrl=self.dlq, AttributeNames=["QueueArn"])
        resources = load_resources()
        redrive = {
            "deadLetterTargetArn": found["Attributes"]["QueueArn"],
            "maxReceiveCount": resources.queues["documents"].max_receive_count,
        }
        self.queue = self.sqs.create_queue(QueueName=name, Attributes={"RedrivePolicy": json.dumps(redrive)})[
            "QueueUrl"
        ]
        for table, own in (("state", self.state_table), ("runs", self.runs_table)):
            create_table(replace(resources.tables[table], name=own), self.dynamodb)
        self._workers: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            if worker.poll() is None:
                worker.kill()
                worker.wait()
            if worker.stdout is not None:
                worker.stdout.close()

    # Putting in ------------------------------------------------------------------------------

    def put(self, key: str, body: bytes) -> str:
        """Store an object; returns its ETag."""
        return str(self.s3.put_object(Bucket=self.input, Key=key, Body=body)["ETag"]).strip('"')

    def send(self, body: str | Mapping[str, Any]) -> None:
        text = body if isinstance(body, str) else json.dumps(body)
        self.sqs.send_message(QueueUrl=self.queue, MessageBody=text)

    def order(self, run_id: str, key: str, body: bytes) -> DocumentMessage:
        """Store an object and send the message that our own enqueue would."""
        message = DocumentMessage(
            bucket=self.input, key=key, etag=self.put(key, body), size=len(body), run_id=run_id
        )
        self.send(message.to_json())
        return message

    def start_run(
        self, run_id: str, documents: int, *, is_forced: bool = False, reading: ReadingConfig | None = None
    ) -> None:
        record = RunRecord(
            run_id=run_id,
            documents=documents,
            size_bytes=0,
            reading=reading or ReadingConfig(),
            is_forced=is_forced,
            created_at=datetime.now(UTC).isoformat(),
            run_date="2026-01-01",
            expires_at=int(time.time()) + 86_400,
        )
        self.dynamodb.put_item(TableName=self.runs_table, Item=record.to_item())

    # Working ---------------------------------------------------------------------------------

    def worker_environment(self, **settings: object) -> dict[str, str]:
        """What a worker needs to know of this world, wherever it runs."""
        return {
            **self._aws.environment(),
            "INPUT_S3_BUCKET": self.input,
            "OUTPUT_S3_BUCKET": f"s3://{self.output}/",
            "MANIFEST_S3_BUCKET": self.output,
            "MANIFEST_S3_KEY": "manifests",
            "OUTPUT_S3_PREFIX": "pages",
            "SQS_QUEUE_URL": self.queue,
            "DLQ_SQS_QUEUE_URL": self.dlq,
            "DYNAMO_TABLE_NAME": self.state_table,
            "DYNAMO_RUNS_TABLE_NAME": self.runs_table,
            "AWS_ACCESS_KEY_ID": Caller.WORKER.value,
            "IDLE_S": "2",
            "BACKOFF_BASE_S": "1",
            "MAX_WORKERS": "1",
            **{name: str(value) for name, value in settings.items()},
        }

    def start_worker(self, *flags: str, **settings: object) -> subprocess.Popen[str]:
        worker = subprocess.Popen(
            [sys.executable, "-m", "ocr_worker", "run", *flags],
            env=os.environ | self.worker_environment(**settings),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._workers.append(worker)
        return worker

    def work(self, *, timeout_s: float = 120, **settings: object) -> list[dict[str, Any]]:
        """Run a worker until the queue is empty; returns its log."""
        worker = self.start_worker(**settings)
        output, _ = worker.communicate(timeout=timeout_s)
        assert worker.returncode == 0, output
        return [json.loads(line) for line in output.splitlines()]

    def wait_for_event(self, worker: subprocess.Popen[str], event: str) -> dict[str, Any]:
        """Read a worker's log until something happens."""
        assert worker.stdout is not None
        for line in worker.stdout:
            found: dict[str, Any] = json.loads(line)
            if found.get("event") == event:
                return found
        raise AssertionError(f"the worker ended without {event}")

    @staticmethod
    def kill(worker: subprocess.Popen[str]) -> None:
        """As a machine that goes away: no word, and its page processes with it."""
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()

    # Looking ---------------------------------------------------------------------------------

    def state(self, key: str) -> DocumentState | None:
        found = self.dynamodb.get_item(TableName=self.state_table, Key={"s3_key": {"S": key}}).get("Item")
        return DocumentState.from_item(found) if found is not None else None

    def listed(self, status: StateStatus) -> dict[str, str]:
        """The documents that the index has under a status, with their listing keys."""
        found = {}
        for shard in listing_shards(status):
            for item in self.dynamodb.query(
                TableName=self.state_table,
                IndexName=LISTING_INDEX,
                KeyConditionExpression="listing_shard = :shard",
                ExpressionAttributeValues={":shard": {"S": shard}},
            )["Items"]:
                found[item["s3_key"]["S"]] = item["listing_key"]["S"]
        return found

    def _items(self, run_id: str, prefix: str) -> list[dict[str, Any]]:
        pages = self.dynamodb.get_paginator("query")
        return [
            item
            for shard in run_shards(run_id)
            for page in pages.paginate(
                TableName=self.runs_table,
                KeyConditionExpression="run_shard = :shard AND begins_with(part, :prefix)",
                ExpressionAttributeValues={":shard": {"S": shard}, ":prefix": {"S": prefix}},
            )
            for item in page["Items"]
        ]

    def counters(self, run_id: str) -> Counters:
        found = (Counters.from_item(item) for item in self._items(run_id, "worker#"))
        return sum(found, Counters())

    def outcome_items(self, run_id: str) -> dict[str, Outcome]:
        found = [Outcome.from_item(item) for item in self._items(run_id, "document#")]
        return {outcome.s3_key: outcome for outcome in found}

    def outcomes(self, run_id: str) -> dict[str, str]:
        return {key: outcome.status.value for key, outcome in self.outcome_items(run_id).items()}

    def states(self) -> dict[str, DocumentState]:
        pages = self.dynamodb.get_paginator("scan").paginate(TableName=self.state_table)
        found = [DocumentState.from_item(item) for page in pages for item in page["Items"]]
        return {state.s3_key: state for state in found}

    def rows_of(self, key: str) -> list[dict[str, Any]]:
        """The rows of a Parquet file in the output bucket."""
        body = self.s3.get_object(Bucket=self.output, Key=key)["Body"].read()
        return list(pq.read_table(io.BytesIO(body)).to_pylist())

    def _tables(self, prefix: str) -> list[dict[str, Any]]:
        listed = self.s3.list_objects_v2(Bucket=self.output, Prefix=prefix).get("Contents", [])
        return [row for key in sorted(item["Key"] for item in listed) for row in self.rows_of(key)]

    def pages(self) -> list[dict[str, Any]]:
        return self._tables("pages/by_document/")

    def manifest(self) -> list[dict[str, Any]]:
        return self._tables("manifests/runs/")

    def dead_letters(self) -> list[dict[str, str]]:
        """What is on the DLQ: attributes and body."""
        found: list[dict[str, str]] = []
        while True:
            answer = self.sqs.receive_message(
                QueueUrl=self.dlq, MaxNumberOfMessages=10, MessageAttributeNames=["All"], VisibilityTimeout=60
            )
            messages = answer.get("Messages", [])
            if not messages:
                return found
            for message in messages:
                attributes = message.get("MessageAttributes", {})
                found.append(
                    {"body": message["Body"]}
                    | {name: value["StringValue"] for name, value in attributes.items()}
                )

    def messages_left(self) -> int:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.sqs.get_queue_attributes(QueueUrl=self.queue, AttributeNames=names)["Attributes"]
        return sum(int(found[name]) for name in names)
