"""A real AWS over HTTP for each test: moto's server, empty, with the pipeline's resources."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import boto3
import pytest
import requests
from moto.server import ThreadedMotoServer

from pdf_ops.contract import runs, state

if TYPE_CHECKING:
    from collections.abc import Iterator

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AIRFLOW_CONN_AWS_DEFAULT": "aws://",
}


@pytest.fixture(scope="session")
def control_plane_moto() -> Iterator[str]:
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@dataclass
class Aws:
    endpoint: str
    queue_url: str = ""
    dlq_url: str = ""
    input: str = "documents"
    output: str = "rows"
    state_table: str = "state"
    runs_table: str = "runs"
    subnet: str = ""

    def client(self, service: str) -> Any:
        return boto3.client(service, endpoint_url=self.endpoint, region_name="us-east-1")

    def put(self, *keys: str, body: bytes = b"%PDF-1.7 ", bucket: str | None = None) -> None:
        client = self.client("s3")
        for key in keys:
            client.put_object(Bucket=bucket or self.input, Key=key, Body=body)

    @property
    def places(self) -> dict[str, str]:
        return {
            "output_bucket": self.output,
            "output_prefix": "data",
            "manifest_bucket": self.output,
            "manifest_prefix": "manifests",
            "runs_table": self.runs_table,
        }


@pytest.fixture
def aws(control_plane_moto: str, monkeypatch: pytest.MonkeyPatch) -> Aws:
    requests.post(f"{control_plane_moto}/moto-api/reset", timeout=10)
    for name, value in (ENVIRONMENT | {"AWS_ENDPOINT_URL": control_plane_moto}).items():
        monkeypatch.setenv(name, value)
    for name in list(os.environ):
        if name.startswith("AWS_ENDPOINT_URL_"):
            monkeypatch.delenv(name)
    found = Aws(control_plane_moto)
    s3, sqs, dynamodb = found.client("s3"), found.client("sqs"), found.client("dynamodb")
    s3.create_bucket(Bucket=found.input)
    s3.create_bucket(Bucket=found.output)
    found.queue_url = sqs.create_queue(QueueName="documents")["QueueUrl"]
    found.dlq_url = sqs.create_queue(QueueName="dead")["QueueUrl"]
    for table, keys in (
        (found.state_table, [(state.HASH_KEY, "HASH")]),
        (found.runs_table, [(runs.HASH_KEY, "HASH"), (runs.RANGE_KEY, "RANGE")]),
    ):
        dynamodb.create_table(
            TableName=table,
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in keys],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name, _ in keys],
        )
    return found


@pytest.fixture
def cluster(aws: Aws) -> Any:
    """ECS with the cluster ``fleet`` and the task definition ``worker``."""
    ecs = aws.client("ecs")
    ecs.create_cluster(clusterName="fleet")
    ecs.register_task_definition(
        family="worker",
        cpu="1024",
        memory="2048",
        networkMode="awsvpc",
        containerDefinitions=[{"name": "worker", "image": "worker", "cpu": 256, "memory": 512}],
        requiresCompatibilities=["FARGATE"],
    )
    aws.subnet = aws.client("ec2").describe_subnets()["Subnets"][0]["SubnetId"]
    return ecs


class TaskInstance:
    """As much of a task instance as an operator uses."""

    def __init__(self, try_number: int = 1) -> None:
        self.try_number = try_number
        self.pushed: dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value


@pytest.fixture
def context() -> dict[str, Any]:
    """The context of a run without a logical date, started after everything that a test uploads."""
    return {
        "ti": TaskInstance(),
        "dag_run": SimpleNamespace(
            run_type="manual",
            run_after=datetime(2100, 1, 1, tzinfo=UTC),
            data_interval_start=None,
            data_interval_end=None,
        ),
    }
