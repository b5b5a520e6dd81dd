"""The local AWS does what the pipeline relies on AWS to do, with real processes and real signals."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import uuid
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from botocore.exceptions import ClientError

from local_aws import LocalAws, LocalAwsError
from local_aws.long_queues import SHORT_QUEUE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CLUSTER = "pdf-ops"
GROUP = "/pdf-ops/worker"
PATIENCE_S = 30.0
# A shell acts on a signal when the command that it waits for has ended: hence the short sleeps.
FOR_EVER = "while :; do sleep 0.1; done"


def wait_for(what: Callable[[], Any]) -> Any:
    """Ask again and again; returns the answer, once there is one."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if answer := what():
            return answer
        time.sleep(0.05)
    raise AssertionError(f"nothing came of it in {PATIENCE_S} s")


class Ecs:
    """Running shell scripts as tasks."""

    def __init__(self, aws: LocalAws) -> None:
        self.aws = aws
        self.client = aws.client("ecs")
        self.subnets = aws.environment()["PDF_OPS_ECS_SUBNETS"].split(",")

    def define(self, script: str, *, image: str = "shell", log_group: str = GROUP, **container: Any) -> str:
        family = f"test-{uuid.uuid4().hex[:8]}"
        log_options = {
            "awslogs-group": log_group,
            "awslogs-region": self.aws.region,
            "awslogs-stream-prefix": "tests",
        }
        self.client.register_task_definition(
            family=family,
            requiresCompatibilities=["FARGATE"],
            networkMode="awsvpc",
            cpu="256",
            memory="512",
            containerDefinitions=[
                {
                    "name": "main",
                    "image": image,
                    "command": [script],
                    "logConfiguration": {"logDriver": "awslogs", "options": log_options},
                    **container,
                }
            ],
        )
        return family

    def ask(self, definition: str, **arguments: Any) -> Any:
        if "capacityProviderStrategy" not in arguments:
            arguments.setdefault("launchType", "FARGATE")
        return self.client.run_task(
            cluster=CLUSTER,
            taskDefinition=definition,
            networkConfiguration={"awsvpcConfiguration": {"subnets": self.subnets}},
            **arguments,
        )

    def run(self, script: str, *, container: dict[str, Any] | None = None, **arguments: Any) -> str:
        """Start a script; returns the task's ARN."""
        answer = self.ask(self.define(script, **(container or {})), **arguments)
        assert answer["failures"] == []
        return str(answer["tasks"][0]["taskArn"])

    def describe(self, task: str) -> Any:
        answer = self.client.describe_tasks(cluster=CLUSTER, tasks=[task])
        assert answer["failures"] == []
        return answer["tasks"][0]

    def wait_until(self, status: str, task: str) -> Any:
        def reached() -> Any:
            found = self.describe(task)
            assert found["lastStatus"] == status or found["lastStatus"] != "STOPPED", found
            return found if found["lastStatus"] == status else None

        return wait_for(reached)

    def wait_for_output(self, text: str, task: str) -> None:
        wait_for(lambda: text in self.aws.output_of(task))

    def lines(self, task: str) -> list[str]:
        """The task's lines in CloudWatch Logs."""
        stream = f"tests/main/{task.rsplit('/', 1)[-1]}"
        events = self.aws.client("logs").get_log_events(
            logGroupName=GROUP, logStreamName=stream, startFromHead=True
        )["events"]
        return [event["message"] for event in events]


@pytest.fixture
def ecs(local_aws: LocalAws) -> Ecs:
    return Ecs(local_aws)


# --- tasks -------------------------------------------------------------------


def test_a_task_runs_to_its_exit_code_and_its_lines_are_in_cloudwatch_logs(ecs: Ecs) -> None:
    task = ecs.run("echo one; echo two >&2; echo; printf three; exit 7", startedBy="me", group="a-group")

    stopped = ecs.wait_until("STOPPED", task)

    assert stopped["desiredStatus"] == "STOPPED"
    assert stopped["stopCode"] == "EssentialContainerExited"
    assert stopped["stoppedReason"] == "Essential container in task exited"
    assert (stopped["startedBy"], stopped["group"]) == ("me", "a-group")
    (container,) = stopped["containers"]
    assert (container["name"], container["lastStatus"], container["exitCode"]) == ("main", "STOPPED", 7)
    assert ecs.lines(task) == ["one", "two", "three"]
    assert ecs.aws.output_of(task) == "one\ntwo\n\nthree"
    assert stopped["createdAt"] <= stopped["startedAt"] <= stopped["stoppedAt"]


def test_lines_arrive_in_cloudwatch_logs_while_the_task_runs(ecs: Ecs) -> None:
    task = ecs.run(f"echo early; {FOR_EVER}")

    wait_for(lambda: ecs.describe(task)["lastStatus"] == "RUNNING" and ecs.lines(task) == ["early"])

    running = ecs.describe(task)
    assert running["lastStatus"] == "RUNNING"
    assert "exitCode" not in running["containers"][0]
    assert "stopCode" not in running
    ecs.client.stop_task(cluster=CLUSTER, task=task)
    ecs.wait_until("STOPPED", task)


def test_overrides_replace_the_command_and_add_to_the_environment(ecs: Ecs) -> None:
    definition = ecs.define(
        "exit 1", environment=[{"name": "A", "value": "defined"}, {"name": "B", "value": "defined"}]
    )
    override = {"name": "main", "command": ["env"], "environment": [{"name": "B", "value": "overridden"}]}

    task = ecs.ask(definition, overrides={"containerOverrides": [override]})["tasks"][0]["taskArn"]

    assert ecs.wait_until("STOPPED", task)["containers"][0]["exitCode"] == 0
    environment = dict(line.split("=", 1) for line in ecs.lines(task))
    assert (environment["A"], environment["B"]) == ("defined", "overridden")
    offered = ecs.aws.environment()
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_ECS", "AWS_REGION"):
        assert environment[name] == offered[name]
    assert environment["AWS_ACCESS_KEY_ID"] == "worker"
    # Nothing else that happens to be set where the local AWS was started.
    assert "PYTEST_VERSION" in os.environ
    assert "PYTEST_VERSION" not in environment
    assert "ECS_CONTAINER_METADATA_URI_V4" not in environment


def test_an_override_for_a_container_that_is_not_there_is_refused(ecs: Ecs) -> None:
    override = {"name": "other", "command": ["true"]}

    with pytest.raises(ClientError, match="named other is not a container"):
        ecs.run("true", overrides={"containerOverrides": [override]})


def test_a_stopped_task_gets_sigterm_and_may_finish_its_work(ecs: Ecs) -> None:
    task = ecs.run(f"trap 'echo finishing; exit 5' TERM; echo ready; {FOR_EVER}")
    ecs.wait_for_output("ready", task)

    answer = ecs.client.stop_task(cluster=CLUSTER, task=task, reason="the run was cancelled")["task"]

    assert answer["desiredStatus"] == "STOPPED"
    stopped = ecs.wait_until("STOPPED", task)
    assert stopped["stopCode"] == "UserInitiated"
    assert stopped["stoppedReason"] == "the run was cancelled"
    assert stopped["containers"][0]["exitCode"] == 5
    assert ecs.lines(task) == ["ready", "finishing"]
    # Once more does no harm, and changes nothing.
    again = ecs.client.stop_task(cluster=CLUSTER, task=task, reason="too late")["task"]
    assert (again["lastStatus"], again["stoppedReason"]) == ("STOPPED", "the run was cancelled")


def test_a_task_that_ignores_sigterm_is_killed_after_its_stop_timeout_with_all_it_started(ecs: Ecs) -> None:
    # The first sleep is in the task's process group, the second in a session of its own.
    elsewhere = "import os, time; os.setsid(); print('own', os.getpid(), flush=True); time.sleep(300)"
    script = (
        "trap '' TERM; sleep 300 & echo group $!; "
        f"{shlex.quote(sys.executable)} -c {shlex.quote(elsewhere)} & sleep 300; {FOR_EVER}"
    )
    task = ecs.run(script, container={"stopTimeout": 1})
    ecs.wait_for_output("own", task)
    started = [int(line.split()[1]) for line in ecs.aws.output_of(task).splitlines()]

    ecs.client.stop_task(cluster=CLUSTER, task=task)

    stopped = ecs.wait_until("STOPPED", task)
    assert stopped["stopCode"] == "UserInitiated"
    assert stopped["containers"][0]["exitCode"] == 128 + signal.SIGKILL
    assert len(started) == 2
    wait_for(lambda: not any(map(psutil.pid_exists, started)))


def test_what_a_task_leaves_behind_ends_with_it(ecs: Ecs) -> None:
    task = ecs.run("sleep 300 & echo $!; exit 0")

    assert ecs.wait_until("STOPPED", task)["containers"][0]["exitCode"] == 0
    left = int(ecs.aws.output_of(task))
    wait_for(lambda: not psutil.pid_exists(left))


@pytest.mark.parametrize(
    ("container", "reason"),
    [
        ({"image": "nobody-built-this:latest"}, "CannotPullContainerError"),
        ({"entryPoint": ["/nonexistent/program"]}, "CannotStartContainerError"),
        ({"log_group": "/nobody/created/this"}, "ResourceInitializationError"),
    ],
)
def test_a_container_that_cannot_start_has_a_reason_and_no_exit_code(
    ecs: Ecs, container: dict[str, Any], reason: str
) -> None:
    stopped = ecs.wait_until("STOPPED", ecs.run("true", container=container))

    assert stopped["stopCode"] == "TaskFailedToStart"
    assert stopped["stoppedReason"].startswith(reason)
    assert "exitCode" not in stopped["containers"][0]
    assert stopped["containers"][0]["reason"].startswith(reason)


def test_the_worker_image_runs_the_worker(ecs: Ecs) -> None:
    override = {"name": "worker", "command": ["--version"]}

    task = ecs.ask("pdf-ops-worker", overrides={"containerOverrides": [override]})["tasks"][0]["taskArn"]

    assert ecs.wait_until("STOPPED", task)["containers"][0]["exitCode"] == 0
    assert ecs.aws.output_of(task).startswith("ocr-worker ")
    stream = f"pdf-ops/worker/{task.rsplit('/', 1)[-1]}"
    assert ecs.aws.client("logs").get_log_events(logGroupName=GROUP, logStreamName=stream)["events"]


def test_the_same_client_token_returns_the_same_task(ecs: Ecs) -> None:
    definition = ecs.define(FOR_EVER)
    token = uuid.uuid4().hex

    first = ecs.ask(definition, clientToken=token, startedBy=token)["tasks"]
    second = ecs.ask(definition, clientToken=token, startedBy=token)["tasks"]
    other = ecs.ask(definition, clientToken=uuid.uuid4().hex, startedBy=token)["tasks"]

    assert [task["taskArn"] for task in first] == [task["taskArn"] for task in second]
    assert first[0]["taskArn"] != other[0]["taskArn"]
    assert len(ecs.client.list_tasks(cluster=CLUSTER, startedBy=token)["taskArns"]) == 2
    with pytest.raises(ClientError) as caught:
        ecs.ask(definition, clientToken=token, startedBy="someone else")
    assert caught.value.response["Error"]["Code"] == "ConflictException"
    for task in (*first, *other):
        ecs.client.stop_task(cluster=CLUSTER, task=task["taskArn"])


def test_tasks_are_listed_by_who_started_them_and_by_what_should_become_of_them(ecs: Ecs) -> None:
    mine, theirs = uuid.uuid4().hex, uuid.uuid4().hex
    running, over = ecs.run(FOR_EVER, startedBy=mine), ecs.run("true", startedBy=mine)
    foreign = ecs.run(FOR_EVER, startedBy=theirs)
    ecs.wait_until("STOPPED", over)

    def listed(**filters: str) -> list[str]:
        return list(ecs.client.list_tasks(cluster=CLUSTER, **filters)["taskArns"])

    assert listed(startedBy=mine) == [running]
    assert listed(startedBy=mine, desiredStatus="STOPPED") == [over]
    assert listed(startedBy=theirs) == [foreign]
    assert {running, foreign} <= set(listed())
    assert over not in listed()
    with pytest.raises(ClientError, match="Cluster not found"):
        ecs.client.list_tasks(cluster="pdf")
    for task in (running, foreign):
        ecs.client.stop_task(cluster=CLUSTER, task=task)


def test_a_task_that_is_not_there_is_missing(ecs: Ecs) -> None:
    answer = ecs.client.describe_tasks(cluster=CLUSTER, tasks=["0" * 32])

    assert answer["tasks"] == []
    assert [failure["reason"] for failure in answer["failures"]] == ["MISSING"]
    with pytest.raises(ClientError, match="referenced task was not found"):
        ecs.client.stop_task(cluster=CLUSTER, task="0" * 32)


def test_tags_are_shown_when_they_are_asked_for(ecs: Ecs) -> None:
    task = ecs.run("true", tags=[{"key": "run", "value": "42"}])

    shown = ecs.client.describe_tasks(cluster=CLUSTER, tasks=[task], include=["TAGS"])["tasks"][0]

    assert shown["tags"] == [{"key": "run", "value": "42"}]
    assert not ecs.describe(task).get("tags")


def test_a_capacity_provider_without_capacity_fails_as_often_as_it_was_told_to(ecs: Ecs) -> None:
    definition = ecs.define("true")
    spot = [{"capacityProvider": "FARGATE_SPOT", "weight": 1}]
    token = uuid.uuid4().hex
    ecs.aws.fail_capacity("FARGATE_SPOT", times=2)

    refused = [
        ecs.ask(definition, capacityProviderStrategy=spot, clientToken=token),
        ecs.ask(definition, capacityProviderStrategy=spot, clientToken=token),
    ]
    on_demand = ecs.ask(definition, capacityProviderStrategy=[{"capacityProvider": "FARGATE"}])
    at_last = ecs.ask(definition, capacityProviderStrategy=spot, clientToken=token)

    for answer in refused:
        assert answer["tasks"] == []
        assert answer["failures"][0]["reason"].startswith("Capacity is unavailable at this time")
    assert on_demand["tasks"][0]["capacityProviderName"] == "FARGATE"
    assert at_last["failures"] == []
    assert at_last["tasks"][0]["capacityProviderName"] == "FARGATE_SPOT"
    ecs.wait_until("STOPPED", at_last["tasks"][0]["taskArn"])


def test_an_interrupted_task_says_that_spot_took_it(ecs: Ecs) -> None:
    task = ecs.run(f"echo ready; {FOR_EVER}")
    ecs.wait_for_output("ready", task)

    ecs.aws.interrupt(task)

    stopped = ecs.wait_until("STOPPED", task)
    assert stopped["stopCode"] == "SpotInterruption"
    assert stopped["stoppedReason"] == "Your Spot Task was interrupted."
    assert stopped["containers"][0]["exitCode"] == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"launchType": "EC2"}, "No Container Instances"),
        ({"capacityProviderStrategy": [{"capacityProvider": "NONE"}]}, "NONE was not found"),
        ({"launchType": "FARGATE", "capacityProviderStrategy": [{"capacityProvider": "FARGATE"}]}, "both"),
    ],
)
def test_a_task_that_fargate_would_not_take_is_refused(
    ecs: Ecs, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ClientError, match=message):
        ecs.ask("pdf-ops-worker", **arguments)


def test_a_task_without_a_network_is_refused(ecs: Ecs) -> None:
    with pytest.raises(ClientError, match="Network Configuration must be provided"):
        ecs.client.run_task(cluster=CLUSTER, taskDefinition="pdf-ops-worker", launchType="FARGATE")


# --- queues ------------------------------------------------------------------


def test_a_message_that_is_received_too_often_lands_in_the_dead_letter_queue(local_aws: LocalAws) -> None:
    sqs, environment = local_aws.client("sqs"), local_aws.environment()
    queue, dead_letters = environment["SQS_QUEUE_URL"], environment["DLQ_SQS_QUEUE_URL"]
    attributes = {"attempt": {"DataType": "String", "StringValue": "1"}}
    sqs.send_message(QueueUrl=queue, MessageBody="poison", MessageAttributes=attributes)

    def receive(url: str) -> list[Any]:
        answer = sqs.receive_message(
            QueueUrl=url, VisibilityTimeout=0, WaitTimeSeconds=0, MessageAttributeNames=["All"]
        )
        return list(answer.get("Messages", []))

    for _ in range(local_aws.resources.queues["documents"].max_receive_count or 0):
        assert [message["Body"] for message in receive(queue)] == ["poison"]

    assert receive(queue) == []
    (dead,) = receive(dead_letters)
    assert dead["Body"] == "poison"
    assert dead["MessageAttributes"]["attempt"]["StringValue"] == "1"
    sqs.purge_queue(QueueUrl=dead_letters)


def test_a_long_queue_loses_nothing_and_counts_what_waits(local_aws: LocalAws) -> None:
    """Our change to ministack's queues: what waits apart is still there, in order, for everyone."""
    sqs = local_aws.client("sqs")
    queue = sqs.create_queue(QueueName=f"long-{uuid.uuid4().hex}")["QueueUrl"]
    bodies = [str(number) for number in range(3 * SHORT_QUEUE)]

    def count() -> tuple[int, int]:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=names)["Attributes"]
        return int(found[names[0]]), int(found[names[1]])

    def send(batch: list[str]) -> None:
        for start in range(0, len(batch), 10):
            entries = [{"Id": body, "MessageBody": body} for body in batch[start : start + 10]]
            assert not sqs.send_message_batch(QueueUrl=queue, Entries=entries).get("Failed")

    def receive(visibility_timeout_s: int = 300) -> list[Any]:
        answer = sqs.receive_message(
            QueueUrl=queue, MaxNumberOfMessages=10, VisibilityTimeout=visibility_timeout_s
        )
        return list(answer.get("Messages", []))

    send(bodies[: 2 * SHORT_QUEUE])
    returned = receive()
    assert count() == (2 * SHORT_QUEUE - 10, 10)
    send(bodies[2 * SHORT_QUEUE :])  # ... which come last, behind those that wait
    for message in returned:
        sqs.change_message_visibility(
            QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
        )
    seen: list[str] = []
    while messages := receive():
        seen += [message["Body"] for message in messages]
        entries = [
            {"Id": str(index), "ReceiptHandle": message["ReceiptHandle"]}
            for index, message in enumerate(messages)
        ]
        assert not sqs.delete_message_batch(QueueUrl=queue, Entries=entries).get("Failed")

    assert seen == bodies
    assert count() == (0, 0)
    send(bodies)
    assert len(receive()) == 10
    sqs.purge_queue(QueueUrl=queue)
    assert count() == (0, 0)
    assert receive() == []


# --- resources ---------------------------------------------------------------


def test_the_resources_are_as_the_file_defines_them(local_aws: LocalAws) -> None:
    environment = local_aws.environment()
    s3, sqs, dynamodb = (local_aws.client(name) for name in ("s3", "sqs", "dynamodb"))

    for name in ("INPUT_S3_BUCKET", "OUTPUT_S3_BUCKET", "MANIFEST_S3_BUCKET"):
        assert s3.get_bucket_versioning(Bucket=environment[name])["Status"] == "Enabled"
    queue = sqs.get_queue_attributes(QueueUrl=environment["SQS_QUEUE_URL"], AttributeNames=["All"])
    assert queue["Attributes"]["VisibilityTimeout"] == "300"
    assert queue["Attributes"]["ReceiveMessageWaitTimeSeconds"] == "20"
    assert queue["Attributes"]["MessageRetentionPeriod"] == "345600"
    assert json.loads(queue["Attributes"]["RedrivePolicy"])["maxReceiveCount"] == 10
    dead_letters = sqs.get_queue_attributes(
        QueueUrl=environment["DLQ_SQS_QUEUE_URL"], AttributeNames=["MessageRetentionPeriod"]
    )
    assert dead_letters["Attributes"]["MessageRetentionPeriod"] == "1209600"
    runs = dynamodb.describe_table(TableName=environment["DYNAMO_RUNS_TABLE_NAME"])["Table"]
    assert [key["AttributeName"] for key in runs["KeySchema"]] == ["run_shard", "part"]
    ttl = dynamodb.describe_time_to_live(TableName=environment["DYNAMO_RUNS_TABLE_NAME"])
    assert ttl["TimeToLiveDescription"] == {"TimeToLiveStatus": "ENABLED", "AttributeName": "expires_at"}
    worker = local_aws.client("ecs").describe_task_definition(
        taskDefinition=environment["PDF_OPS_ECS_TASK_DEFINITION"]
    )["taskDefinition"]
    (container,) = worker["containerDefinitions"]
    assert container["stopTimeout"] == 120
    given = {item["name"]: item["value"] for item in container["environment"]}
    assert given == {name: environment[name] for name in given}
    assert {"INPUT_S3_PREFIX", "MANIFEST_S3_KEY", "DLQ_SQS_QUEUE_URL", "DYNAMO_TABLE_NAME"} <= set(given)


def test_creating_the_resources_twice_is_harmless(local_aws: LocalAws) -> None:
    before, bucket = local_aws.environment(), local_aws.environment()["MANIFEST_S3_BUCKET"]
    local_aws.client("s3").put_object(Bucket=bucket, Key="kept", Body=b"kept")

    local_aws.bootstrap()

    assert local_aws.environment() == before
    assert local_aws.client("s3").get_object(Bucket=bucket, Key="kept")["Body"].read() == b"kept"
    revisions = local_aws.client("ecs").list_task_definitions(familyPrefix="pdf-ops-worker")
    assert len(revisions["taskDefinitionArns"]) == 1


# --- starting and stopping ---------------------------------------------------


def pids_of(aws: LocalAws) -> list[int]:
    """Processes that have to do with it, found by the data folder in their arguments or as their own."""
    return [
        process.pid
        for process in psutil.process_iter(["cwd", "cmdline"])
        if process.pid != os.getpid() and str(aws.data) in str(process.info)
    ]


def test_nothing_is_left_after_the_end_and_a_reset_forgets_everything(tmp_path: Path) -> None:
    with LocalAws(tmp_path, port=0, ecs_port=0, images={"shell": ["/bin/sh", "-c"]}) as aws:
        ecs = Ecs(aws)
        forgotten = ecs.run(f"trap '' TERM; echo ready; {FOR_EVER}")
        ecs.wait_for_output("ready", forgotten)
        aws.client("s3").put_object(Bucket="pdf-ops-input", Key="forgotten", Body=b"")

        aws.reset()

        assert ecs.client.describe_tasks(cluster=CLUSTER, tasks=[forgotten])["tasks"] == []
        assert "Contents" not in aws.client("s3").list_objects_v2(Bucket="pdf-ops-input")
        task = ecs.run(f"sleep 300 & trap 'echo stopping; exit' TERM; echo ready; {FOR_EVER}")
        ecs.wait_for_output("ready", task)
        assert len(pids_of(aws)) >= 4
        port = int(aws.endpoint_url.rsplit(":", 1)[1])

    assert pids_of(aws) == []
    assert "stopping" in aws.output_of(task)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_tasks_end_with_it_even_when_the_server_that_started_them_was_killed(tmp_path: Path) -> None:
    with LocalAws(tmp_path, port=0, ecs_port=0, images={"shell": ["/bin/sh", "-c"]}) as aws:
        ecs = Ecs(aws)
        task = ecs.run(f"echo $$; {FOR_EVER}")
        ecs.wait_for_output("\n", task)
        shell = int(aws.output_of(task))
        server = psutil.Process(shell).ppid()

        os.kill(server, signal.SIGKILL)

        wait_for(lambda: not aws.is_running)
        assert psutil.pid_exists(shell)

    wait_for(lambda: pids_of(aws) == [])
    assert not psutil.pid_exists(shell)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")
@pytest.mark.parametrize(("host", "is_reached"), [("127.0.0.1", False), ("localhost", True)])
def test_only_one_that_goes_by_a_name_is_reached_from_elsewhere(
    tmp_path: Path, host: str, is_reached: bool
) -> None:
    with LocalAws(tmp_path, port=0, ecs_port=0, host=host) as aws:
        given = aws.environment()
        for url in (aws.endpoint_url, aws.ecs_endpoint_url):
            with socket.socket() as caller:
                code = caller.connect_ex(("127.0.0.2", int(url.rpartition(":")[2])))
            assert (code == 0) is is_reached

    assert given["AWS_ENDPOINT_URL"].startswith(f"http://{host}:")
    assert given["AWS_ENDPOINT_URL_ECS"].startswith(f"http://{host}:")
    assert given["SQS_QUEUE_URL"].startswith(f"{given['AWS_ENDPOINT_URL']}/")


def test_a_port_in_use_is_named_with_the_way_out(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        with (
            pytest.raises(LocalAwsError, match=f"port {port} is in use.*--port"),
            LocalAws(tmp_path, port=port, ecs_port=0),
        ):
            pass
        with (
            pytest.raises(LocalAwsError, match=f"port {port} is in use.*--ecs-port"),
            LocalAws(tmp_path, port=0, ecs_port=port),
        ):
            pass


def test_a_data_folder_has_one_local_aws_at_a_time(local_aws: LocalAws) -> None:
    with (
        pytest.raises(LocalAwsError, match="another local AWS runs in"),
        LocalAws(local_aws.data, port=0, ecs_port=0),
    ):
        pass


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "local_aws", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(("end", "exit_code"), [(signal.SIGINT, 0), (signal.SIGKILL, -signal.SIGKILL)])
def test_the_command_tells_how_to_use_it_and_ends_with_all_that_it_started(
    tmp_path: Path, end: signal.Signals, exit_code: int
) -> None:
    """Also when it is killed and cannot clean up: its servers see to it."""
    aws = LocalAws(tmp_path)  # never started: what it knows of the folder is enough
    command = [
        sys.executable,
        "-m",
        "local_aws",
        "up",
        "--port",
        "0",
        "--ecs-port",
        "0",
        "--data",
        str(tmp_path),
    ]
    environment = os.environ | {"LOCAL_AWS_IMAGES": json.dumps({"shell": ["/bin/sh", "-c"]})}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as up:
        assert up.stdout is not None
        printed: list[str] = []
        while not printed or not printed[-1].startswith("export PDF_OPS_ECS_SUBNETS="):
            printed.append(up.stdout.readline())
            assert printed[-1], "it ended by itself"

        told = run_command("env", "--data", str(tmp_path))
        assert told.returncode == 0
        assert told.stdout == "".join(line for line in printed if line.startswith("export "))
        variables = dict(word.split("=", 1) for word in shlex.split(told.stdout) if word != "export")
        aws.endpoint_url = variables["AWS_ENDPOINT_URL"]
        aws.ecs_endpoint_url = variables["AWS_ENDPOINT_URL_ECS"]
        ecs = Ecs(aws)
        task = ecs.run(f"echo ready; {FOR_EVER}")
        ecs.wait_for_output("ready", task)

        up.send_signal(end)

        assert up.wait(PATIENCE_S) == exit_code
    wait_for(lambda: pids_of(aws) == [])
    over = run_command("env", "--data", str(tmp_path))
    assert over.returncode == 1
    assert "no local AWS runs in" in over.stderr
    assert "make local-aws" in over.stderr


def test_the_command_says_which_port_is_in_use(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])

        result = run_command("up", "--port", port, "--ecs-port", "0", "--data", str(tmp_path))

    assert result.returncode == 1
    assert f"port {port} is in use" in result.stderr
    assert "Traceback" not in result.stderr
