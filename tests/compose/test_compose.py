"""What docker-compose.yaml starts, used as a person uses it."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import boto3
import httpx
import pytest
from tests.support.compose import resolve, wait_until_healthy

from local_airflow.demo import DAG_ID
from local_airflow.rest import AirflowApi
from local_airflow.up import USER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.support.compose import Stack

pytestmark = pytest.mark.timeout(900)

RUN_TIMEOUT_S = 600.0


@pytest.fixture
def api(stack: Stack, variables: Mapping[str, str]) -> AirflowApi:
    wait_until_healthy(stack, "api-server")
    url = f"http://localhost:{variables['AIRFLOW_PORT']}"
    return AirflowApi(url, USER, variables["AIRFLOW_ADMIN_PASSWORD"])


def client(service: str, variables: Mapping[str, str]) -> Any:
    return boto3.client(
        service,
        endpoint_url=f"http://localhost:{variables['LOCAL_AWS_PORT']}",
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )


def test_every_service_is_healthy_by_its_own_check(stack: Stack, compose: Sequence[str]) -> None:
    services = resolve(compose)
    checked = [name for name, one in services.items() if "profiles" not in one and "healthcheck" in one]

    for name in checked:
        wait_until_healthy(stack, name)

    assert {"postgres", "redis", "local-aws", "api-server", "celery-worker"} <= set(checked)


def test_the_rest_api_is_served_and_reaches_what_it_needs(
    api: AirflowApi, variables: Mapping[str, str]
) -> None:
    url = f"http://localhost:{variables['AIRFLOW_PORT']}/pdf-ops/ready"

    assert httpx.get(url, timeout=60, trust_env=False).json()["status"] == "ok"


def test_a_triggered_run_reads_the_samples(
    stack: Stack, api: AirflowApi, variables: Mapping[str, str]
) -> None:
    for service in ("scheduler", "dag-processor", "triggerer", "celery-worker"):
        wait_until_healthy(stack, service)
    deadline = time.monotonic() + RUN_TIMEOUT_S
    while not any(dag["dag_id"] == DAG_ID for dag in api.call("GET", "/dags?limit=100")["dags"]):
        assert time.monotonic() < deadline, api.call("GET", "/importErrors")
        time.sleep(2)
    run = api.call("POST", f"/dags/{DAG_ID}/dagRuns", {"logical_date": None, "conf": {}})
    path = f"/dags/{DAG_ID}/dagRuns/{run['dag_run_id']}"
    while (state := api.call("GET", path)["state"]) not in ("success", "failed"):
        assert time.monotonic() < deadline, api.call("GET", f"{path}/taskInstances")
        time.sleep(3)

    assert state == "success", api.call("GET", f"{path}/taskInstances")
    s3 = client("s3", variables)
    keys = [item["Key"] for item in s3.list_objects_v2(Bucket="pdf-ops-manifest")["Contents"]]
    (report,) = [key for key in keys if key.endswith("report.json")]
    found = json.loads(s3.get_object(Bucket="pdf-ops-manifest", Key=report)["Body"].read())
    assert found["sent"] == 16
    # Logs of tasks that ran elsewhere are in the volume that the api-server shares.
    log = api.call("GET", f"{path}/taskInstances/gate/logs/1")
    assert log["content"]


def test_the_worker_of_the_profile_reads_what_is_sent_and_ends_in_order(
    stack: Stack, variables: Mapping[str, str]
) -> None:
    wait_until_healthy(stack, "local-aws")
    sqs, s3 = client("sqs", variables), client("s3", variables)
    s3.copy_object(
        Bucket="pdf-ops-input", Key="sent.pdf", CopySource="pdf-ops-input/samples/contracts/letter.pdf"
    )
    queue = sqs.get_queue_url(QueueName="pdf-ops-documents")["QueueUrl"]
    sqs.send_message(QueueUrl=queue, MessageBody=json.dumps({"s3_key": "sent.pdf"}))
    stack.start("worker")
    deadline = time.monotonic() + 60
    state = {}
    while state.get("status", {}).get("S") != "done":
        assert time.monotonic() < deadline, stack.logs("worker")
        time.sleep(1)
        key = {"s3_key": {"S": "sent.pdf"}}
        state = client("dynamodb", variables).get_item(TableName="pdf-ops-state", Key=key).get("Item", {})

    assert stack.stop("worker") == 0
