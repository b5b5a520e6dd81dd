"""What the roles may do is what the programs do: real runs on a local AWS that records every call.

It also refuses what the policies do not allow, but in ECS, whose calls are only held against them. What
Terraform makes the policies from is ``include/permissions.json``.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from tests.e2e.test_doorbell import LISTEN
from tests.support.api import Api, upload
from tests.support.permissions import Permission, give, load_permissions, names_of
from tests.support.pipeline import Install, Pipeline, run_program, try_program
from tests.support.slack import SlackEndpoint

from local_airflow.environment import airflow_environment
from local_aws import LocalAws
from local_aws.ecs_tasks import SUBNET, WORKER_IMAGE
from local_aws.recording import Call, Caller
from pdf_ops.hooks.ecs import started_by_of
from samples.documents import text_pdf

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.timeout(1800), pytest.mark.xdist_group("permissions")]

# A worker that is killed again and again, in short: its message reaches the dead letters without a word.
LOSE_MESSAGES = """
import boto3, os
sqs = boto3.client("sqs")
queue, dead_letters = os.environ["SQS_QUEUE_URL"], os.environ["DLQ_SQS_QUEUE_URL"]
for message in sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10)["Messages"]:
    sqs.send_message(QueueUrl=dead_letters, MessageBody=message["Body"])
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
"""
STOP_FLEET = """
import sys
from pdf_ops.operators.fleet import StopFleetOperator
stopped = StopFleetOperator(task_id="stop", cluster=sys.argv[1], run_id=sys.argv[2]).execute({})
sys.exit(stopped != 1)
"""


@dataclass(frozen=True)
class Proof:
    """What was called, and what is allowed on the same resources."""

    calls: list[Call]
    permissions: list[Permission]

    def is_called(self, permission: Permission) -> bool:
        return any(permission.allows(call.caller, call.action, call.resource) for call in self.calls)

    def is_allowed(self, call: Call) -> bool:
        return any(one.allows(call.caller, call.action, call.resource) for one in self.permissions)


def read_documents(world: Pipeline, text: bytes) -> None:
    """Whole runs of the DAG: one that reads, one whose workers say nothing."""
    world.put("a.pdf", text)
    world.put("bad.pdf", b"<html>503</html>")
    run = world.run()
    assert run.exit_code == 0, run.output[-5_000:]
    world.put("lost.pdf", text)
    command = f"{sys.executable} - <<'END'\n{LOSE_MESSAGES}END"
    world.define_worker(image="shell", command=(command,))
    run = world.run()
    assert world.outcomes(run.run_id) == {"lost.pdf": "failed"}, run.output[-5_000:]


def serve_messages(world: Pipeline, text: bytes) -> None:
    """Workers alone: an object that never comes, and a version that is asked for."""
    world.s3.put_bucket_versioning(Bucket=world.input, VersioningConfiguration={"Status": "Enabled"})
    stored = world.s3.put_object(Bucket=world.input, Key="versions.pdf", Body=text)
    world.send({"v": 1, "s3_key": "versions.pdf", "bucket": world.input, "version_id": stored["VersionId"]})
    world.send({"s3_key": "never.pdf"})
    world.work(MAX_RETRIES=2, OUTPUT_S3_PREFIX=world.layout.output_prefix)


def redrive_and_watch(world: Pipeline) -> None:
    """The DAGs that look after dead letters."""
    for dag_id, conf in (
        ("pdf_redrive", {"error_class": "CORRUPT", "dry_run": False, "failure_threshold": 1.0}),
        ("pdf_dlq_watch", {}),
        ("pdf_redrive", {"error_class": "CORRUPT"}),
    ):
        run = world.run(dag_id=dag_id, **conf)
        assert run.exit_code == 0, run.output[-5_000:]
    world.sqs.send_message(QueueUrl=world.dlq, MessageBody='{"s3_key": "unreported.pdf"}')
    assert world.run(dag_id="pdf_dlq_watch").slack_messages


def use_the_command_line(aws: LocalAws, world: Pipeline, install: Install) -> None:
    """An operator with the control plane's role."""
    queue = aws.client("sqs").get_queue_url(QueueName=aws.resources.queues["events"].name)["QueueUrl"]
    settings = world.settings | {"EVENTS_SQS_QUEUE_URL": queue}
    environment = airflow_environment(install.home(), aws.environment(), **settings)
    for command in ("status", "failed", "report", "cost", "redrive --dry-run", "doctor"):
        program = [install.bin / "python", "-m", "pdf_ops.cli", *command.split()]
        code, output = try_program(program, environment)
        assert code == 0 or command == "doctor", output


def hear_of_documents(aws: LocalAws, install: Install) -> None:
    """The trigger of the doorbell."""
    queue = aws.client("sqs").get_queue_url(QueueName=aws.resources.queues["events"].name)["QueueUrl"]
    aws.client("sqs").send_message(QueueUrl=queue, MessageBody='{"s3_key": "new.pdf"}')
    settings = {"EVENTS_SQS_QUEUE_URL": queue}
    environment = airflow_environment(install.home(), aws.environment(), **settings)
    told = run_program([install.bin / "python", "-c", LISTEN, queue, "1", "40", "live"], environment)
    assert '"documents": 1' in told


def stop_a_worker(aws: LocalAws, world: Pipeline, install: Install) -> None:
    """A person marks a run failed: its teardown stops what still runs."""
    world.define_worker(image="shell", command=("sleep 300",))
    cluster = aws.resources.cluster.name
    aws.client("ecs").run_task(
        cluster=cluster,
        taskDefinition=world.task_family,
        launchType="FARGATE",
        startedBy=started_by_of("stopped"),
        networkConfiguration={"awsvpcConfiguration": {"subnets": [SUBNET]}},
    )
    environment = airflow_environment(install.home(), aws.environment())
    run_program(install.python(STOP_FLEET, cluster, "stopped"), environment)


def serve_requests(aws: LocalAws, world: Pipeline, folder: Path, text: bytes) -> None:
    """The REST API with Airflow's role, as the api-server has it: each kind of request that it takes."""
    with (
        Api(aws, world, folder, MAX_UPLOAD_MB=17) as api,
        api.client() as client,
    ):
        job = upload(client, "a.pdf", text + b"% by the API", **{"Idempotency-Key": "1"}).json()["job_id"]
        assert upload(client, "large.pdf", text + bytes(9 * 2**20)).status_code == 202
        # Too large by less than a form may have around its file: known when most of it is stored.
        too_large = upload(client, "larger.pdf", text + bytes(17 * 2**20), **{"Idempotency-Key": "2"})
        assert too_large.status_code == 413
        world.work(OUTPUT_S3_PREFIX=world.layout.output_prefix)
        [run_id] = {run["run_id"] for run in client.get("/v1/runs", params={"limit": 1}).json()["runs"]}
        for path in (
            f"jobs/{job}",
            *(f"documents/{job}{part}" for part in ("", "/pages", "/text", "/content", "/download", "/runs")),
            "documents/list-document",
            *(f"runs/{run_id}{part}" for part in ("", "/details", "/report")),
        ):
            assert client.get(f"/v1/{path}").status_code == 200, path
        assert client.post("/v1/redrive", json={"error_class": "CORRUPT"}).status_code == 200
        assert client.get("/ready").status_code == 200


@pytest.fixture(scope="module")
def proof(tmp_path_factory: pytest.TempPathFactory) -> Proof:
    folder = tmp_path_factory.mktemp("permissions")
    text = text_pdf(folder / "text.pdf").read_bytes()
    install = Install.ours(folder)
    images = {"shell": ["/bin/sh", "-c"]}
    with (
        LocalAws(
            folder / "aws", port=0, ecs_port=0, images=images, is_recorded=True, is_enforced=True
        ) as aws,
        SlackEndpoint() as slack,
        Pipeline(aws, install, slack) as world,
    ):
        permissions = load_permissions(names_of(aws, world))
        give(aws.client("iam"), permissions)
        read_documents(world, text)
        world.define_worker(image=WORKER_IMAGE, command=("run",), IDLE_S="1", MAX_WORKERS="1")
        redrive_and_watch(world)
        serve_requests(aws, world, folder, text)
        use_the_command_line(aws, world, install)
        hear_of_documents(aws, install)
        serve_messages(world, text)
        stop_a_worker(aws, world, install)
        calls = [call for call in sorted(aws.calls()) if call.caller != Caller.ADMINISTRATOR]
        return Proof(calls, permissions)


def test_every_role_is_seen_at_work(proof: Proof) -> None:
    assert {call.caller for call in proof.calls} == {one.role for one in proof.permissions} - {"mwaa"}


def test_all_that_the_programs_call_is_allowed(proof: Proof) -> None:
    assert [call for call in proof.calls if not proof.is_allowed(call)] == []


def test_all_that_is_allowed_is_called_or_has_its_reason(proof: Proof) -> None:
    idle = [str(one) for one in proof.permissions if one.unproved is None and not proof.is_called(one)]

    assert idle == []


def test_no_reason_is_given_for_what_is_called_after_all(proof: Proof) -> None:
    assert [str(one) for one in proof.permissions if one.unproved and proof.is_called(one)] == []
