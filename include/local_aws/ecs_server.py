"""The server process for ECS: moto's API and definitions, with tasks that really run.

Run as ``python -m local_aws.ecs_server`` by ``local_aws.running``. RunTask, StopTask, DescribeTasks and
ListTasks are answered from ``local_aws.ecs_tasks``, everything else by moto. Services are not run.
Below ``/_local_aws/`` are the controls for tests: see ``Controls``.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from moto.core.responses import ActionResult
from moto.ecs import urls
from moto.ecs.exceptions import (
    ClusterNotFoundException,
    EcsClientException,
    ECSException,
    InvalidParameterException,
)
from moto.ecs.responses import EC2ContainerServiceResponse
from moto.moto_server.werkzeug_app import MotoRequestHandler, create_backend_app
from werkzeug.exceptions import BadRequest, HTTPException, MethodNotAllowed, NotFound
from werkzeug.serving import make_server
from werkzeug.wrappers import Request, Response

from local_aws.ecs_logs import LogShipper
from local_aws.ecs_tasks import (
    CONTROL_PATH,
    DEFAULT_STOP_TIMEOUT_S,
    IMAGES_VARIABLE,
    SPOT_INTERRUPTED,
    STOPPED_BY_USER,
    SUBNET,
    ContainerSpec,
    StartError,
    Status,
    StopCode,
    Task,
    TaskRunner,
    TaskSpec,
    parse_images,
)
from local_aws.recording import Recorder, recording_wsgi_app
from local_aws.servers import HOST, end_with_parent, terminate_self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from moto.ecs.models import Cluster, TaskDefinition

NO_CAPACITY = (
    "Capacity is unavailable at this time. Please try again later or in a different availability zone"
)
MAX_TASKS_PER_CALL = 10
PAGE_SIZE = 100


@dataclass(slots=True)
class CapacityFailures:
    """How often, and in which words, a capacity provider will have nothing to give."""

    times: int
    reason: str


@dataclass(frozen=True, slots=True)
class _Idempotent:
    """What a client token stands for: the request, and the tasks that it started."""

    request: str
    tasks: tuple[Task, ...]


class Controls:
    """What tests can make this ECS do, and what it has been told to do.

    All are POST with a JSON object, and answer with one:

    - ``/_local_aws/capacity-failures`` ``{"capacity_provider": "FARGATE_SPOT", "times": 2}``: RunTask has no
      capacity that many times, with ``"reason"`` in its failures if one is given. launchType counts too.
    - ``/_local_aws/interruptions`` ``{"cluster": …, "task": …}``: a task is stopped as Spot does it.
    - ``/_local_aws/reset`` ``{}``: all tasks are killed and forgotten, and all of the above.

    GET ``/_local_aws/health`` tells that the server is there.
    """

    def __init__(self, runner: TaskRunner) -> None:
        self._runner = runner
        self._lock = threading.Lock()
        self._failures: dict[str, CapacityFailures] = {}
        self._tokens: dict[tuple[str, str], _Idempotent] = {}

    def answer(self, request: Request) -> dict[str, Any]:
        """Do what a request below ``/_local_aws/`` asks for."""
        action = request.path.removeprefix(CONTROL_PATH)
        if action == "/health":
            return {"status": "ok"}
        actions: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "/capacity-failures": self._fail_capacity,
            "/interruptions": self._interrupt,
            "/reset": self._reset,
        }
        if action not in actions:
            raise NotFound(f"known: /health, {', '.join(actions)}")
        if request.method != "POST":
            raise MethodNotAllowed(["POST"])
        try:
            return actions[action](json.loads(request.get_data() or b"{}"))
        except (KeyError, TypeError, ValueError) as error:
            raise BadRequest(f"{type(error).__name__}: {error}") from error

    def _fail_capacity(self, content: Mapping[str, Any]) -> dict[str, Any]:
        failures = CapacityFailures(int(content["times"]), str(content.get("reason") or NO_CAPACITY))
        with self._lock:
            self._failures[str(content["capacity_provider"])] = failures
        return {"times": failures.times, "reason": failures.reason}

    def _interrupt(self, content: Mapping[str, Any]) -> dict[str, Any]:
        task = self._runner.find(_last_part(content["cluster"]), content["task"])
        if task is None:
            raise NotFound(f"there is no task {content['task']!r}")
        task.stop(StopCode.SPOT_INTERRUPTION, SPOT_INTERRUPTED)
        return {"task": task.arn}

    def _reset(self, _content: Mapping[str, Any]) -> dict[str, Any]:
        self._runner.forget_all()
        with self._lock:
            self._failures.clear()
            self._tokens.clear()
        return {}

    def take_failure(self, provider: str) -> str | None:
        """The reason why a provider has no capacity now, if it has been told to have none."""
        with self._lock:
            failures = self._failures.get(provider)
            if failures is None or failures.times <= 0:
                return None
            failures.times -= 1
            return failures.reason

    def start_once(
        self, token: tuple[str, str] | None, request: str, specs: Iterable[TaskSpec]
    ) -> tuple[Task, ...]:
        """Start tasks, or find those that the same token started before.

        Raises:
            ECSException: If the token was used for another request.
        """
        with self._lock:
            known = self._tokens.get(token) if token is not None else None
            if known is not None:
                if known.request != request:
                    raise ECSException("ConflictException", "The clientToken was used for another request.")
                return known.tasks
            try:
                tasks = tuple(self._runner.start(spec) for spec in specs)
            except StartError as error:
                raise ECSException("ServerException", str(error)) from error
            if token is not None:
                self._tokens[token] = _Idempotent(request, tasks)
            return tasks

    def is_known(self, token: tuple[str, str] | None) -> bool:
        """Whether a token has started tasks."""
        with self._lock:
            return token in self._tokens


class ProcessEcs(EC2ContainerServiceResponse):
    """moto's ECS, with tasks that are processes."""

    runner: ClassVar[TaskRunner]
    controls: ClassVar[Controls]

    def run_task(self) -> ActionResult:
        """RunTask: start tasks on Fargate, or say that there is no capacity."""
        cluster = self._cluster()
        definition = self.ecs_backend.describe_task_definition(self._get_param("taskDefinition"))
        if definition.status != "ACTIVE":
            raise EcsClientException("TaskDefinition is inactive")
        count = int(self._get_param("count") or 1)
        if not 1 <= count <= MAX_TASKS_PER_CALL:
            raise InvalidParameterException(f"Count should be between 1 and {MAX_TASKS_PER_CALL}.")
        launch_type, provider = self._capacity(cluster)
        self._check_network(definition)
        spec = self._spec(cluster, definition, launch_type, provider)
        client_token = self._get_param("clientToken")
        token = (cluster.name, client_token) if client_token else None
        if not self.controls.is_known(token):
            reason = self.controls.take_failure(provider)
            if reason is not None:
                return ActionResult({"tasks": [], "failures": [{"reason": reason}]})
        fingerprint = json.dumps(
            [
                self._get_param(name)
                for name in ("taskDefinition", "overrides", "startedBy", "group", "count")
            ],
            sort_keys=True,
        )
        tasks = self.controls.start_once(token, fingerprint, [spec] * count)
        return ActionResult({"tasks": [task.describe() for task in tasks], "failures": []})

    def stop_task(self) -> ActionResult:
        """StopTask: SIGTERM now, SIGKILL after the container's stop timeout."""
        task = self.runner.find(self._cluster().name, self._get_param("task"))
        if task is None:
            raise InvalidParameterException("The referenced task was not found.")
        task.stop(StopCode.USER_INITIATED, self._get_param("reason") or STOPPED_BY_USER)
        return ActionResult({"task": task.describe()})

    def describe_tasks(self) -> ActionResult:
        """DescribeTasks, with a failure for each that is not there."""
        cluster = self._cluster()
        names = self._get_param("tasks") or []
        if not names:
            raise InvalidParameterException("Tasks cannot be empty.")
        with_tags = "TAGS" in (self._get_param("include") or [])
        found = {name: self.runner.find(cluster.name, name) for name in names}
        missing_prefix = cluster.arn.replace(":cluster/", ":task/", 1)
        return ActionResult(
            {
                "tasks": [task.describe(with_tags=with_tags) for task in found.values() if task is not None],
                "failures": [
                    {"arn": f"{missing_prefix}/{_last_part(name)}", "reason": "MISSING"}
                    for name, task in found.items()
                    if task is None
                ],
            }
        )

    def list_tasks(self) -> ActionResult:
        """ListTasks: those that should be running, unless others are asked for."""
        wanted = self._get_param("desiredStatus") or Status.RUNNING.value
        filters: list[Callable[[Task], bool]] = [lambda task: task.desired_status.value == wanted]
        started_by = self._get_param("startedBy")
        if started_by:
            filters.append(lambda task: task.spec.started_by == started_by)
        family = self._get_param("family")
        if family:
            filters.append(lambda task: task.spec.family == family)
        launch_type = self._get_param("launchType")
        if launch_type:
            filters.append(lambda task: task.spec.described.get("launchType") == launch_type)
        if self._get_param("serviceName") or self._get_param("containerInstance"):
            filters.append(lambda _task: False)
        arns = [
            task.arn
            for task in self.runner.tasks(self._cluster().name)
            if all(is_wanted(task) for is_wanted in filters)
        ]
        start = int(self._get_param("nextToken") or 0)
        end = start + int(self._get_param("maxResults") or PAGE_SIZE)
        page: dict[str, Any] = {"taskArns": arns[start:end]}
        if end < len(arns):
            page["nextToken"] = str(end)
        return ActionResult(page)

    def describe_clusters(self) -> ActionResult:
        """DescribeClusters, with the number of tasks as it is now."""
        for cluster in self.ecs_backend.clusters.values():
            statuses = [task.status for task in self.runner.tasks(cluster.name)]
            cluster.pending_tasks_count = statuses.count(Status.PROVISIONING)
            cluster.running_tasks_count = statuses.count(Status.RUNNING) + statuses.count(Status.STOPPING)
        return super().describe_clusters()

    # --- a request, checked ---

    def _cluster(self) -> Cluster:
        found, _missing = self.ecs_backend.describe_clusters([self._get_param("cluster") or "default"])
        active = [cluster for cluster in found if cluster.status == "ACTIVE"]
        if not active:
            raise ClusterNotFoundException
        return active[0]

    def _capacity(self, cluster: Cluster) -> tuple[str | None, str]:
        """Which launch type is shown, and which capacity provider it comes to."""
        launch_type = self._get_param("launchType")
        strategy = self._get_param("capacityProviderStrategy")
        if launch_type and strategy:
            raise InvalidParameterException(
                "Specifying both a launch type and capacity provider strategy is not supported. "
                "Remove one and try again."
            )
        if launch_type == "FARGATE":
            return "FARGATE", "FARGATE"
        strategy = strategy or cluster.default_capacity_provider_strategy
        if launch_type or not strategy:
            raise InvalidParameterException("No Container Instances were found in your cluster.")
        provider = max(strategy, key=lambda item: (item.get("base", 0), item.get("weight", 0)))
        name = str(provider["capacityProvider"])
        if name not in (cluster.capacity_providers or []):
            raise InvalidParameterException(
                f"The specified capacity provider {name} was not found. Specify a valid name and try again."
            )
        return None, name

    def _check_network(self, definition: TaskDefinition) -> None:
        if definition.network_mode != "awsvpc":
            return
        network = (self._get_param("networkConfiguration") or {}).get("awsvpcConfiguration")
        if not network:
            raise InvalidParameterException(
                "Network Configuration must be provided when networkMode 'awsvpc' is specified."
            )
        for subnet in network.get("subnets") or ["(none)"]:
            if subnet != SUBNET:
                raise InvalidParameterException(
                    f"Error retrieving subnet information for [{subnet}]: The subnet ID '{subnet}' does not "
                    f"exist (ErrorCode: InvalidSubnetID.NotFound); here there is only {SUBNET}"
                )

    def _spec(
        self, cluster: Cluster, definition: TaskDefinition, launch_type: str | None, provider: str
    ) -> TaskSpec:
        overrides = self._get_param("overrides") or {}
        described: dict[str, Any] = {
            "clusterArn": cluster.arn,
            "taskDefinitionArn": definition.arn,
            "group": self._get_param("group") or f"family:{definition.family}",
            "launchType": launch_type or "FARGATE",
            "capacityProviderName": None if launch_type else provider,
            "platformVersion": "1.4.0",
            "platformFamily": "Linux",
            "cpu": overrides.get("cpu") or definition.cpu,
            "memory": overrides.get("memory") or definition.memory,
            "overrides": overrides,
            "attachments": [],
            "connectivity": "CONNECTED",
            "availabilityZone": f"{self.region}a",
            "version": 1,
        }
        return TaskSpec(
            cluster=cluster.name,
            container=container_spec(definition.container_definitions, overrides),
            arn_prefix=cluster.arn.replace(":cluster/", ":task/", 1),
            family=definition.family,
            started_by=self._get_param("startedBy") or "",
            tags=tuple(self._get_param("tags") or ()),
            described=described,
        )


def container_spec(definitions: list[dict[str, Any]], overrides: Mapping[str, Any]) -> ContainerSpec:
    """A task's one container, with the overrides applied.

    Raises:
        ECSException: If there are more containers, or an override names one that is not there.
    """
    if len(definitions) != 1:
        raise EcsClientException("The local ECS runs tasks with one container.")
    definition = definitions[0]
    override: Mapping[str, Any] = {}
    for candidate in overrides.get("containerOverrides") or []:
        if candidate.get("name") != definition["name"]:
            raise InvalidParameterException(
                f"Override for container named {candidate.get('name')} is not a container in the "
                "TaskDefinition."
            )
        override = candidate
    log_configuration = definition.get("logConfiguration") or {}
    log_options = (
        log_configuration.get("options", {}) if log_configuration.get("logDriver") == "awslogs" else {}
    )
    command = override.get("command") or definition.get("command") or ()
    entry_point = definition.get("entryPoint")
    stop_timeout_s = definition.get("stopTimeout")
    return ContainerSpec(
        name=definition["name"],
        image=definition["image"],
        entry_point=tuple(entry_point) if entry_point else None,
        command=tuple(command),
        environment=_variables(definition) | _variables(override),
        stop_timeout_s=DEFAULT_STOP_TIMEOUT_S if stop_timeout_s is None else int(stop_timeout_s),
        log_group=log_options.get("awslogs-group"),
        log_stream_prefix=log_options.get("awslogs-stream-prefix"),
    )


def _variables(container: Mapping[str, Any]) -> dict[str, str]:
    return {item["name"]: item["value"] for item in container.get("environment") or []}


def _last_part(name: str) -> str:
    return name.rsplit("/", 1)[-1]


def connect_to_logs() -> Any:
    """A client for CloudWatch Logs, by this process's environment."""
    import boto3
    from botocore.config import Config

    patience = Config(connect_timeout=2, read_timeout=10, retries={"total_max_attempts": 3}, proxies={})
    return boto3.session.Session().client("logs", config=patience)


def main() -> None:
    """Serve until a signal comes or the parent is gone; then stop every task."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--tasks", type=Path, required=True)
    parser.add_argument("--calls", type=Path)
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("werkzeug").setLevel(logging.WARNING)

    images = parse_images(os.environ.get(IMAGES_VARIABLE))
    runner = TaskRunner(options.tasks, images, LogShipper(connect_to_logs))
    controls = Controls(runner)
    ProcessEcs.runner = runner
    ProcessEcs.controls = controls
    urls.url_paths["{0}/$"] = ProcessEcs.dispatch
    moto_app: WSGIApplication = create_backend_app("ecs")
    if options.calls:
        moto_app = recording_wsgi_app(moto_app, Recorder(options.calls))

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if not environ["PATH_INFO"].startswith(f"{CONTROL_PATH}/"):
            return moto_app(environ, start_response)
        try:
            answer = controls.answer(Request(environ))
        except HTTPException as error:
            return error(environ, start_response)
        return Response(json.dumps(answer), content_type="application/json")(environ, start_response)

    server = make_server(HOST, 0, app, threaded=True, request_handler=MotoRequestHandler, fd=options.socket)
    # From a thread: shutdown() waits for the loop below, which runs in the thread that takes the signal.
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, lambda *_: threading.Thread(target=server.shutdown).start())
    end_with_parent(options.parent, terminate_self)
    try:
        server.serve_forever()
    finally:
        runner.close()


if __name__ == "__main__":
    main()
