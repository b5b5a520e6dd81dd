"""The tasks of the local ECS: each is a real process, from its start to its exit code.

A task runs the one container of its definition, without limits on CPU and memory and without a file system
of its own. Not for the API that asks for tasks: see ``local_aws.ecs_server``.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import psutil

from local_aws.ecs_logs import MAX_LINE_BYTES, LogShipper, LogStream, LogStreamError
from local_aws.recording import Caller
from local_aws.servers import PASSED_ENVIRONMENT, kill_all

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

# The only subnet that there is; RunTask refuses others, as it does in AWS.
SUBNET = "subnet-00000000000000001"
# Below it, the server takes orders that AWS has no API for.
CONTROL_PATH = "/_local_aws"
# An image is a name for the beginning of a command line; the container's command is the rest.
WORKER_IMAGE = "pdf-ops-worker"
DEFAULT_IMAGES: Mapping[str, Sequence[str]] = {WORKER_IMAGE: (sys.executable, "-m", "ocr_worker")}
IMAGES_VARIABLE = "LOCAL_AWS_IMAGES"
# What a container gets from ECS in AWS, if not under these names.
AWS_VARIABLES = (
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_ECS",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_DEFAULT_REGION",
    "AWS_REGION",
    "AWS_EC2_METADATA_DISABLED",
)
DEFAULT_STOP_TIMEOUT_S = 30
# At the end of the local AWS nobody waits for a task as long as ECS would.
LAST_GRACE_S = 5.0
_DRAIN_S = 5.0

ESSENTIAL_CONTAINER_EXITED = "Essential container in task exited"
STOPPED_BY_USER = "Task stopped by user"
SPOT_INTERRUPTED = "Your Spot Task was interrupted."


class Status(StrEnum):
    """How far a task or container is, in ECS's words; the states in between are left out."""

    PROVISIONING = "PROVISIONING"
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"


class StopCode(StrEnum):
    """Why a task stopped."""

    ESSENTIAL_CONTAINER_EXITED = "EssentialContainerExited"
    USER_INITIATED = "UserInitiated"
    FAILED_TO_START = "TaskFailedToStart"
    SPOT_INTERRUPTION = "SpotInterruption"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """What to run: a container's definition with the overrides applied."""

    name: str
    image: str
    entry_point: tuple[str, ...] | None
    command: tuple[str, ...]
    environment: Mapping[str, str]
    stop_timeout_s: int
    log_group: str | None
    log_stream_prefix: str | None

    def log_stream(self, task_id: str) -> LogStream | None:
        """Where its lines go, or nowhere but to a file."""
        if self.log_group is None:
            return None
        parts = (self.log_stream_prefix, self.name, task_id)
        return LogStream(self.log_group, "/".join(part for part in parts if part))


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """One task as RunTask asked for it.

    Attributes:
        cluster: The cluster's name.
        container: What to run.
        arn_prefix: The ARN up to the task's id.
        family: That of the task definition.
        started_by: Who asked, to find it again; empty if not said.
        tags: Shown when they are asked for.
        described: What the API shows of it besides, as it is.
    """

    cluster: str
    container: ContainerSpec
    arn_prefix: str
    family: str
    started_by: str
    tags: tuple[Mapping[str, str], ...]
    described: Mapping[str, Any]


@dataclass(slots=True)
class _State:
    """What changes in a task's life; only touched with the task's lock."""

    status: Status = Status.PROVISIONING
    desired: Status = Status.RUNNING
    stop_code: StopCode | None = None
    stopped_reason: str | None = None
    container_reason: str | None = None
    exit_code: int | None = None
    times: dict[str, datetime] = field(default_factory=dict)


class StartError(Exception):
    """A container cannot be started; the message is what ECS would say."""


class Task:
    """One task, with a thread that starts its process and waits for it."""

    def __init__(
        self, spec: TaskSpec, folder: Path, images: Mapping[str, Sequence[str]], logs: LogShipper
    ) -> None:
        self.spec = spec
        self.id = uuid.uuid4().hex
        self._folder = folder / self.id
        self._images = images
        self._logs = logs
        self._stream = spec.container.log_stream(self.id)
        self._lock = threading.Lock()
        self._state = _State(times={"createdAt": datetime.now(UTC)})
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = threading.Event()

    @property
    def arn(self) -> str:
        """Its name in AWS."""
        return f"{self.spec.arn_prefix}/{self.id}"

    @property
    def desired_status(self) -> Status:
        """Whether it should run or stop."""
        with self._lock:
            return self._state.desired

    @property
    def status(self) -> Status:
        """How far it is."""
        with self._lock:
            return self._state.status

    # --- its life ---

    def start(self) -> None:
        """Start it, without waiting."""
        threading.Thread(target=self._live, name=f"task-{self.id}", daemon=True).start()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it has stopped; tells whether it has."""
        return self._ended.wait(timeout_s)

    def stop(self, code: StopCode, reason: str, timeout_s: float | None = None) -> None:
        """Send SIGTERM, and SIGKILL after the stop timeout (or the given one), without waiting."""
        with self._lock:
            if self._state.desired is not Status.STOPPED:
                self._state.desired = Status.STOPPED
                self._state.stop_code = code
                self._state.stopped_reason = reason
                self._state.times["stoppingAt"] = datetime.now(UTC)
            elif timeout_s is None:
                return  # It has been told, and is being watched.
            process = self._process
            if process is None or self._state.status is Status.STOPPED:
                return  # Before its start: it will see that it is not wanted any more.
            self._state.status = Status.STOPPING
        process.terminate()  # ECS signals the container's first process only.
        limit_s = self.spec.container.stop_timeout_s if timeout_s is None else timeout_s
        threading.Thread(target=self._kill_after, args=(process, limit_s), daemon=True).start()

    def _kill_after(self, process: subprocess.Popen[bytes], limit_s: float) -> None:
        if not self._ended.wait(limit_s) and process.poll() is None:
            descendants: list[psutil.Process] = []
            with contextlib.suppress(psutil.NoSuchProcess):
                # Those in groups of their own too: a container's end is the end of all that is in it.
                descendants = psutil.Process(process.pid).children(recursive=True)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            kill_all(descendants)

    def _live(self) -> None:
        try:
            process = self._spawn()
        except StartError as error:
            self._finish(StopCode.FAILED_TO_START, str(error), container_reason=str(error))
            return
        if process is None:
            self._finish(StopCode.USER_INITIATED, STOPPED_BY_USER)
            return
        pump = threading.Thread(target=self._pump, args=(process,), name=f"output-{self.id}", daemon=True)
        pump.start()
        code = process.wait()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # What the container's first process left behind.
        pump.join(_DRAIN_S)
        if self._stream is not None:
            self._logs.flush(self._stream)
        # As a shell and Docker count: a signal's number on top of 128.
        exit_code = 128 - code if code < 0 else code
        self._finish(StopCode.ESSENTIAL_CONTAINER_EXITED, ESSENTIAL_CONTAINER_EXITED, exit_code=exit_code)

    def _spawn(self) -> subprocess.Popen[bytes] | None:
        """Start the process, or nothing if the task was stopped meanwhile."""
        container = self.spec.container
        command = self._command()
        if self._stream is not None:
            try:
                self._logs.open(self._stream)
            except LogStreamError as error:
                raise StartError(
                    f"ResourceInitializationError: failed to validate logger args: {error}"
                ) from error
        passed = (*PASSED_ENVIRONMENT, *AWS_VARIABLES)
        environment = {name: os.environ[name] for name in passed if name in os.environ}
        # As in AWS, the container has a role of its own, not that of ECS, which starts it.
        environment["AWS_ACCESS_KEY_ID"] = Caller.WORKER.value
        environment |= {"HOME": str(self._folder)} | dict(container.environment)
        with self._lock:
            if self._state.desired is Status.STOPPED:
                return None
            try:
                self._folder.mkdir(parents=True)
                # A group of its own, but the server's session: at its end, that is how what is left is found.
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    cwd=self._folder,
                    process_group=0,
                )
            except OSError as error:
                raise StartError(f"CannotStartContainerError: {error}") from error
            self._state.status = Status.RUNNING
            self._state.times["startedAt"] = datetime.now(UTC)
            return self._process

    def _command(self) -> list[str]:
        container = self.spec.container
        prefix: Sequence[str] | None = container.entry_point
        if prefix is None:
            prefix = self._images.get(_bare_image(container.image))
        if prefix is None:
            raise StartError(
                f"CannotPullContainerError: there is no image {container.image!r} here; known: "
                f"{', '.join(sorted(self._images))} (LOCAL_AWS_IMAGES adds more)"
            )
        return [*prefix, *container.command]

    def _pump(self, process: subprocess.Popen[bytes]) -> None:
        output = process.stdout
        if output is None:
            return
        with output, self.output_file.open("ab", buffering=0) as file:
            while line := output.readline(MAX_LINE_BYTES):
                file.write(line)
                if self._stream is not None:
                    self._logs.append(self._stream, line.decode("utf-8", "replace").rstrip("\r\n"))

    def _finish(
        self,
        code: StopCode,
        reason: str,
        *,
        exit_code: int | None = None,
        container_reason: str | None = None,
    ) -> None:
        with self._lock:
            state = self._state
            state.status = state.desired = Status.STOPPED
            state.stop_code = state.stop_code or code  # Who stopped it is the better answer.
            state.stopped_reason = state.stopped_reason or reason
            state.exit_code = exit_code
            state.container_reason = container_reason
            now = datetime.now(UTC)
            state.times.setdefault("stoppingAt", now)
            state.times["executionStoppedAt"] = state.times["stoppedAt"] = now
        self._ended.set()

    # --- what others see of it ---

    @property
    def output_file(self) -> Path:
        """All that its process printed."""
        return self._folder.with_suffix(".log")

    def describe(self, *, with_tags: bool = True) -> dict[str, Any]:
        """The task as DescribeTasks shows it."""
        with self._lock:
            state = self._state
            shown: dict[str, Any] = {
                **self.spec.described,
                "taskArn": self.arn,
                "lastStatus": state.status.value,
                "desiredStatus": state.desired.value,
                "startedBy": self.spec.started_by or None,
                "stopCode": state.stop_code.value if state.stop_code else None,
                "stoppedReason": state.stopped_reason,
                "containers": [self._describe_container(state)],
                "tags": [dict(tag) for tag in self.spec.tags] if with_tags else None,
                **state.times,
            }
        return {name: value for name, value in shown.items() if value is not None}

    def _describe_container(self, state: _State) -> dict[str, Any]:
        container = self.spec.container
        status = Status.PENDING if state.status is Status.PROVISIONING else state.status
        if status is Status.STOPPING:
            status = Status.RUNNING
        shown: dict[str, Any] = {
            "containerArn": f"{self.arn.replace(':task/', ':container/', 1)}/{self.id}",
            "taskArn": self.arn,
            "name": container.name,
            "image": container.image,
            "lastStatus": status.value,
            "exitCode": state.exit_code,
            "reason": state.container_reason,
            "runtimeId": self.id,
            "networkBindings": [],
            "networkInterfaces": [],
            "healthStatus": "UNKNOWN",
        }
        return {name: value for name, value in shown.items() if value is not None}


class TaskRunner:
    """Every task of this local ECS, running or stopped.

    Args:
        folder: Where tasks have their working folders and their output.
        images: What an image's name runs.
        logs: Where their lines go.
    """

    def __init__(self, folder: Path, images: Mapping[str, Sequence[str]], logs: LogShipper) -> None:
        self._folder = folder
        self._images = images
        self._logs = logs
        self._lock = threading.Lock()
        self._tasks: dict[str, Task] = {}
        self._is_closed = False

    def start(self, spec: TaskSpec) -> Task:
        """Start a task."""
        task = Task(spec, self._folder, self._images, self._logs)
        with self._lock:
            if self._is_closed:
                raise StartError("the local AWS is stopping")
            self._tasks[task.id] = task
        task.start()
        return task

    def find(self, cluster: str, name: str) -> Task | None:
        """The task by its ARN or id, if the cluster has it."""
        with self._lock:
            task = self._tasks.get(name.rsplit("/", 1)[-1])
        return task if task is not None and task.spec.cluster == cluster else None

    def tasks(self, cluster: str | None = None) -> list[Task]:
        """The tasks of a cluster, or all, in the order of their start."""
        with self._lock:
            return [task for task in self._tasks.values() if cluster in (None, task.spec.cluster)]

    def stop_all(self, grace_s: float = LAST_GRACE_S) -> None:
        """Stop every task, and wait until they have."""
        running = [task for task in self.tasks() if task.status is not Status.STOPPED]
        for task in running:
            task.stop(StopCode.USER_INITIATED, "the local AWS stops", grace_s)
        for task in running:
            task.wait(grace_s + 2 * _DRAIN_S)

    def forget_all(self) -> None:
        """Stop every task at once, and forget that there were any."""
        self.stop_all(grace_s=0)
        with self._lock:
            self._tasks.clear()

    def close(self) -> None:
        """Start no more, and stop every task."""
        with self._lock:
            self._is_closed = True
        self.stop_all()


def parse_images(text: str | None) -> dict[str, tuple[str, ...]]:
    """Read ``LOCAL_AWS_IMAGES``, a JSON object of image names and beginnings of command lines.

    What it says goes on top of the worker's own image.

    Raises:
        ValueError: If it is not that.
    """
    content = json.loads(text) if text else {}
    if not isinstance(content, dict) or not all(
        isinstance(prefix, list) and prefix and all(isinstance(part, str) for part in prefix)
        for prefix in content.values()
    ):
        raise ValueError(
            f'{IMAGES_VARIABLE} must be JSON such as {{"shell": ["/bin/sh", "-c"]}}, and is {text!r}'
        )
    return {name: tuple(prefix) for name, prefix in {**DEFAULT_IMAGES, **content}.items()}


def _bare_image(image: str) -> str:
    """An image's name without registry, tag and digest."""
    return image.rsplit("/", 1)[-1].partition("@")[0].partition(":")[0]
