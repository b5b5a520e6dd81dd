"""Tasks of the local ECS as containers, on an engine that speaks Docker's API."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.world import World

from local_aws import LocalAws
from local_aws.ecs_container import LABEL, command_prefix, has_engine
from local_aws.ecs_tasks import SUBNET, WORKER_IMAGE
from samples import documents as made

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.containers import Engine

RUN = "manual__2026-01-01T00:00:00+00:00"

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def aws(engine: Engine, image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAws]:
    folder = tmp_path_factory.mktemp("ecs")
    with engine.socket(folder) as socket:
        assert has_engine(socket)
        images = {WORKER_IMAGE: command_prefix(image, "host", socket)}
        with LocalAws(folder / "aws", port=0, ecs_port=0, images=images) as aws:
            yield aws


@pytest.fixture
def world(aws: LocalAws) -> Iterator[World]:
    with World(aws) as world:
        yield world


def run_task(aws: LocalAws, world: World, **settings: object) -> str:
    variables = world.worker_environment(**settings)
    environment = [{"name": name, "value": value} for name, value in variables.items()]
    answer = aws.client("ecs").run_task(
        cluster="pdf-ops",
        taskDefinition="pdf-ops-worker",
        launchType="FARGATE",
        networkConfiguration={"awsvpcConfiguration": {"subnets": [SUBNET]}},
        overrides={"containerOverrides": [{"name": "worker", "environment": environment}]},
    )
    return str(answer["tasks"][0]["taskArn"])


def wait_until_stopped(aws: LocalAws, task: str) -> dict[str, Any]:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        (found,) = aws.client("ecs").describe_tasks(cluster="pdf-ops", tasks=[task])["tasks"]
        if found["lastStatus"] == "STOPPED":
            return dict(found)
        time.sleep(0.5)
    raise AssertionError(aws.output_of(task))


def test_a_task_is_a_container_that_drains_the_queue(
    aws: LocalAws, world: World, engine: Engine, tmp_path: Path
) -> None:
    world.start_run(RUN, 1)
    world.order(RUN, "a.pdf", made.text_pdf(tmp_path / "a.pdf", 3).read_bytes())

    task = run_task(aws, world)
    stopped = wait_until_stopped(aws, task)

    assert stopped["containers"][0]["exitCode"] == 0, aws.output_of(task)
    assert world.outcomes(RUN) == {"a.pdf": "done"}
    assert "/scratch" in aws.output_of(task), "read by the image, whose scratch folder this is"
    assert engine.call("ps", "--all", "--quiet", f"--filter=label={LABEL}").stdout == ""


def test_a_task_that_is_stopped_stops_its_container_in_order(
    aws: LocalAws, world: World, engine: Engine
) -> None:
    task = run_task(aws, world, IDLE_S=600)
    deadline = time.monotonic() + 60
    while "worker.started" not in aws.output_of(task):
        assert time.monotonic() < deadline, aws.output_of(task)
        time.sleep(0.2)
    aws.client("ecs").stop_task(cluster="pdf-ops", task=task, reason="enough")
    stopped = wait_until_stopped(aws, task)

    assert stopped["containers"][0]["exitCode"] == 0, aws.output_of(task)
    assert stopped["stoppedReason"] == "enough"
    assert "SIGTERM" in aws.output_of(task)
    assert engine.call("ps", "--all", "--quiet", f"--filter=label={LABEL}").stdout == ""
