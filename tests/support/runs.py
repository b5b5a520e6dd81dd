"""A run as its workers leave it behind, on a moto server: listing, page files, manifest parts, items, DLQ."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import socket
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
from moto.server import ThreadedMotoServer

from pdf_ops.contract import documents, pages, runs
from pdf_ops.contract.documents import DocumentRow, DocumentStatus
from pdf_ops.contract.fingerprint import ReadingConfig
from pdf_ops.contract.layout import Layout, S3Uri
from pdf_ops.contract.listing import Decision, ListedObject
from pdf_ops.contract.messages import DocumentMessage
from pdf_ops.contract.pages import Method, MethodReason, PageRow, PageStatus
from pdf_ops.contract.runs import Counters, Outcome, RunRecord
from pdf_ops.operators.merge import MergeOperator
from pdf_ops.operators.plan_merge import PlanMergeOperator
from pdf_ops.operators.publish import PublishOperator

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

READING = ReadingConfig()
INPUT, OUTPUT, MANIFEST = "in-bucket", "out-bucket", "manifest-bucket"
RUNS_TABLE = "runs"
BEGAN = datetime(2026, 3, 1, 8, 0, tzinfo=UTC)
LAYOUT_ARGUMENTS = {
    "output_bucket": OUTPUT,
    "output_prefix": "data",
    "manifest_bucket": MANIFEST,
    "manifest_prefix": "ops",
    "runs_table": RUNS_TABLE,
    "aws_conn_id": None,
}


@contextmanager
def moto_server() -> Iterator[str]:
    """A server of its own, reached by HTTP, as the only AWS of this process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    server.start()
    environment = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "eu-west-1",
    }
    try:
        with mock.patch.dict(os.environ, environment):
            os.environ.pop("AWS_PROFILE", None)
            # moto's state belongs to the process, not to the server.
            urllib.request.urlopen(
                urllib.request.Request(f"http://127.0.0.1:{port}/moto-api/reset", method="POST"), timeout=10
            ).close()
            yield environment["AWS_ENDPOINT_URL"]
    finally:
        server.stop()


@dataclass
class FakeTaskInstance:
    """What the operators ask of a task instance."""

    run_id: str
    states: dict[str, str] = field(default_factory=dict)
    dag_id: str = "pdf_ocr"
    task_id: str = "some_task"
    log_url: str = "http://airflow.example/log"
    pushed: dict[str, Any] = field(default_factory=dict)

    def get_task_states(self, *, dag_id: str, run_ids: Sequence[str]) -> dict[str, dict[str, str]]:
        assert (dag_id, list(run_ids)) == (self.dag_id, [self.run_id])
        return {self.run_id: self.states}

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value

    def xcom_pull(self, **_: Any) -> Any:
        raise RuntimeError("nobody to ask")


class WrittenRun:
    """Writes what workers write, document by document."""

    def __init__(self, run_id: str = "manual__2026-03-01T08:00:00+00:00") -> None:
        self.run_id = run_id
        self.layout = Layout(
            output_bucket=OUTPUT, output_prefix="data", manifest_bucket=MANIFEST, manifest_prefix="ops"
        )
        self.s3 = boto3.client("s3")
        self.dynamodb = boto3.client("dynamodb")
        self.sqs = boto3.client("sqs")

    def create(self) -> WrittenRun:
        where = {"LocationConstraint": "eu-west-1"}
        for bucket in (INPUT, OUTPUT, MANIFEST):
            self.s3.create_bucket(Bucket=bucket, CreateBucketConfiguration=where)
        self.dynamodb.create_table(
            TableName=RUNS_TABLE,
            KeySchema=[
                {"AttributeName": runs.HASH_KEY, "KeyType": "HASH"},
                {"AttributeName": runs.RANGE_KEY, "KeyType": "RANGE"},
            ],
            AttributeDefinitions=[
                {"AttributeName": runs.HASH_KEY, "AttributeType": "S"},
                {"AttributeName": runs.RANGE_KEY, "AttributeType": "S"},
            ],
            BillingMode="PAY_PER_REQUEST",
        )
        self.dlq_url = self.sqs.create_queue(QueueName="dlq")["QueueUrl"]
        return self

    def context(self, **states: str) -> dict[str, Any]:
        ti = FakeTaskInstance(self.run_id, states)
        return {"ti": ti, "run_id": self.run_id, "dag": SimpleNamespace(dag_id="pdf_ocr")}

    def put_record(self, count: int, run_date: str = "2026-03-01") -> None:
        record = RunRecord(
            run_id=self.run_id,
            documents=count,
            size_bytes=1000 * count,
            reading=READING,
            is_forced=False,
            created_at=BEGAN.isoformat(),
            run_date=run_date,
            expires_at=2_000_000_000,
        )
        self.dynamodb.put_item(TableName=RUNS_TABLE, Item=record.to_item())

    def put_listing(self, keys: Sequence[str], decision: Decision = Decision.NEW, shard: int = 0) -> None:
        self.put_shard(shard, [listed(key, decision) for key in keys])

    def put_shard(self, shard: int, lines: Sequence[ListedObject]) -> None:
        uri = self.layout.listing_shard(self.run_id, shard)
        body = gzip.compress("".join(line.to_line() for line in lines).encode())
        self.s3.put_object(Bucket=uri.bucket, Key=uri.key, Body=body)

    def document(
        self,
        key: str,
        status: DocumentStatus = DocumentStatus.DONE,
        *,
        page_count: int = 2,
        worker: str = "worker-1",
        error: tuple[str, str] | None = None,
        minute: int = 0,
        pages_file: bool = True,
    ) -> DocumentRow:
        """Write a document's page file, and give its manifest line."""
        has_pages = status in (DocumentStatus.DONE, DocumentStatus.PARTIAL)
        uri = self.page_file(key)
        read_at = BEGAN + timedelta(minutes=minute)
        if has_pages and pages_file:
            self.put_pages(key, page_count, worker, read_at)
        return DocumentRow(
            source_uri=str(S3Uri(INPUT, key)),
            doc_id=hashlib.sha256(key.encode()).hexdigest(),
            source_etag=etag(key),
            source_size=1000,
            media_type="application/pdf",
            status=status,
            output_uri=str(uri) if has_pages else None,
            page_count=page_count if has_pages else None,
            pages_written=page_count if has_pages else 0,
            pages_text_layer=page_count if has_pages else 0,
            char_count=20 * page_count if has_pages else 0,
            error_class=error[0] if error else None,
            error_code=error[1] if error else None,
            error_phase="probe" if error else None,
            error_message="Something happened." if error else None,
            run_id=self.run_id,
            worker_id=worker,
            languages=READING.languages_label,
            config_hash=READING.config_hash,
            wall_ms=100.0 * page_count,
            cpu_ms=80.0 * page_count,
            read_at=read_at,
        )

    def page_file(self, key: str) -> S3Uri:
        return self.layout.document_pages(
            bucket=INPUT, key=key, etag=etag(key), config_hash=READING.config_hash
        )

    def put_pages(self, key: str, page_count: int, worker: str, read_at: datetime) -> None:
        rows = [
            PageRow(
                doc_id=hashlib.sha256(key.encode()).hexdigest(),
                source_uri=str(S3Uri(INPUT, key)),
                source_etag=etag(key),
                source_size=1000,
                page=number,
                page_count=page_count,
                text="the text of one page",
                char_count=20,
                method=Method.TEXT_LAYER,
                method_reason=MethodReason.GOOD_TEXT_LAYER,
                status=PageStatus.OK,
                run_id=self.run_id,
                worker_id=worker,
                languages=READING.languages_label,
                config_hash=READING.config_hash,
                open_ms=1.0,
                text_ms=4.0,
                total_ms=5.0 + number,
                cpu_ms=5.0,
                read_at=read_at,
            )
            for number in range(1, page_count + 1)
        ]
        self._put_parquet(self.page_file(key), pages.to_record_batch(rows))

    def put_part(self, rows: Sequence[DocumentRow], *, worker: str = "worker-1", number: int = 0) -> None:
        self._put_parquet(
            self.layout.manifest_part(self.run_id, worker, number), documents.to_record_batch(rows)
        )

    def commit(self, rows: Sequence[DocumentRow], *, worker: str = "worker-1") -> None:
        """The outcome items and the worker's counters, as one commit per document leaves them."""
        total = Counters()
        for row in rows:
            outcome = Outcome(
                run_id=self.run_id,
                s3_key=S3Uri.parse(row.source_uri).key,
                status=row.status,
                etag=row.source_etag,
                pages=row.pages_written,
                worker_id=worker,
                committed_at=row.read_at.isoformat(),
                error_class=row.error_class,
                error_code=row.error_code,
                expires_at=2_000_000_000,
            )
            self.dynamodb.put_item(TableName=RUNS_TABLE, Item=outcome.to_item())
            total += Counters.of(
                row.status, pages=row.pages_written, size_bytes=row.source_size or 0, cpu_ms=int(row.cpu_ms)
            )
        total = replace(total, retries=1, wasted_ms=50)
        item = runs.worker_key(self.run_id, worker)
        item |= {name: {"N": str(value)} for name, value in total.non_zero().items()}
        self.dynamodb.put_item(TableName=RUNS_TABLE, Item=item)

    def put_letter(self, key: str, error: tuple[str, str] | None, run_id: str | None = None) -> None:
        attributes = {"run_id": run_id or self.run_id}
        if error:
            attributes |= {"error_class": error[0], "error_code": error[1], "error_message": "It broke."}
        body = DocumentMessage(bucket=INPUT, key=key, run_id=run_id or self.run_id).to_json()
        self.sqs.send_message(
            QueueUrl=self.dlq_url,
            MessageBody=body,
            MessageAttributes={
                name: {"DataType": "String", "StringValue": value} for name, value in attributes.items()
            },
        )

    # --- what the tasks that merge a run do -----------------------------------

    def plan_merge(self, **arguments: Any) -> list[str]:
        operator = PlanMergeOperator(
            task_id="plan_merge", run_id=self.run_id, **LAYOUT_ARGUMENTS, **arguments
        )
        return operator.execute(self.context())

    def merge_shard(self, shard_uri: str, **arguments: Any) -> dict[str, int]:
        operator = MergeOperator(
            task_id="merge", shard_uri=shard_uri, run_id=self.run_id, **LAYOUT_ARGUMENTS, **arguments
        )
        return operator.execute(self.context())

    def publish(self) -> dict[str, Any]:
        return PublishOperator(task_id="publish", run_id=self.run_id, **LAYOUT_ARGUMENTS).execute(
            self.context()
        )

    def merge(self, *, documents_per_shard: int = 10_000, **arguments: Any) -> dict[str, Any]:
        """One after another; further arguments are those of each shard's task."""
        for shard_uri in self.plan_merge(documents_per_shard=documents_per_shard):
            self.merge_shard(shard_uri, **arguments)
        return self.publish()

    # --- reading back ---------------------------------------------------------

    def manifest(self) -> list[dict[str, Any]]:
        return self.table(self.layout.run_manifest(self.run_id)).to_pylist()

    def page_table(self, run_date: date = date(2026, 3, 1)) -> pa.Table:
        prefix = self.layout.pages_part(run_date, self.run_id, 0).key.rpartition("/")[0]
        return pa.concat_tables(self.table(S3Uri(OUTPUT, key)) for key in self.keys(OUTPUT, prefix))

    def table(self, uri: S3Uri) -> pa.Table:
        body = self.s3.get_object(Bucket=uri.bucket, Key=uri.key)["Body"].read()
        return pq.ParquetFile(pa.BufferReader(body)).read()

    def json(self, uri: S3Uri) -> dict[str, Any]:
        return json.loads(self.s3.get_object(Bucket=uri.bucket, Key=uri.key)["Body"].read())

    def keys(self, bucket: str, prefix: str = "") -> list[str]:
        answer = self.s3.list_objects_v2(Bucket=bucket, Prefix=prefix)
        return [item["Key"] for item in answer.get("Contents", [])]

    def _put_parquet(self, uri: S3Uri, batch: pa.RecordBatch) -> None:
        sink = pa.BufferOutputStream()
        with pq.ParquetWriter(sink, batch.schema, compression="zstd") as writer:
            writer.write_batch(batch)
        self.s3.put_object(Bucket=uri.bucket, Key=uri.key, Body=sink.getvalue().to_pybytes())


def etag(key: str) -> str:
    return hashlib.md5(key.encode(), usedforsecurity=False).hexdigest()


def listed(key: str, decision: Decision = Decision.NEW) -> ListedObject:
    return ListedObject(
        bucket=INPUT,
        key=key,
        etag=etag(key),
        size=1000,
        last_modified=BEGAN.isoformat(),
        decision=decision,
        reason="a folder" if decision is Decision.EXCLUDED else None,
    )
