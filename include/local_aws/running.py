"""Starts the local AWS, fills it with its resources, tells how to use it, and stops it.

What is in it lasts as long as it runs. Not for the command line: see ``local_aws.cli``.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from local_aws import enforcing
from local_aws.bootstrap import create_resources
from local_aws.ecs_tasks import CONTROL_PATH, IMAGES_VARIABLE, SUBNET, parse_images
from local_aws.recording import Call, Caller, read_calls
from local_aws.resources import RESOURCES_FILE, load_resources
from local_aws.servers import ACCOUNT, HOST, LocalAwsError, Server, bind, post

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

DEFAULT_DATA = Path(".build/local-aws")
DEFAULT_PORT = 4566
DEFAULT_ECS_PORT = 4567
DEFAULT_REGION = "us-east-1"

# Not ECS, where ministack without Docker would leave tasks running for ever: see local_aws.ecs_server.
_MINISTACK_SERVICES = (
    "s3",
    "sqs",
    "dynamodb",
    "logs",
    "secretsmanager",
    "sts",
    "iam",
    "kms",
    "ssm",
    "sns",
    "events",
    "monitoring",
)
_HEALTH_PATH = "/_ministack/health"
_RESET_PATH = "/_ministack/reset"
_STATE_FILE = "local-aws.json"
_LOCK_FILE = "lock"
_DATA_GRACE_S = 3.0
_ECS_GRACE_S = 20.0
_POOL_CONNECTIONS = 64
_PROXY_VARIABLES = ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A local AWS that runs, as the state file in its data folder describes it."""

    pid: int
    environment: Mapping[str, str]


class LocalAws:
    """A local AWS, from ``with`` to the end of the block.

    Args:
        data: A folder for logs, what tasks print, and the state file that ``python -m local_aws env`` reads.
        port: Where S3, SQS, DynamoDB, CloudWatch Logs and Secrets Manager are; 0 takes a free one.
        ecs_port: Where ECS is; 0 takes a free one.
        region: The region that it takes itself for.
        host: What clients call this machine; with another name than this machine's own, others can reach it.
        images: What image names run besides the worker's: the beginning of a command line each, to which the
            container's command is added. ``LOCAL_AWS_IMAGES`` does the same.
        resources: The file of resources.
        is_recorded: Whether ``calls`` tells what was called, by whom.
        is_enforced: Whether callers may do only what IAM policies allow, which is nothing at first: see
            ``local_aws.enforcing``.

    Raises:
        LocalAwsError: If a port is in use, another one runs in the data folder, or a server does not start.
    """

    def __init__(
        self,
        data: Path = DEFAULT_DATA,
        *,
        port: int = DEFAULT_PORT,
        ecs_port: int = DEFAULT_ECS_PORT,
        region: str = DEFAULT_REGION,
        host: str = HOST,
        images: Mapping[str, Sequence[str]] | None = None,
        resources: Path = RESOURCES_FILE,
        is_recorded: bool = False,
        is_enforced: bool = False,
    ) -> None:
        self.data = data.resolve()
        self.region = region
        self.host = host
        self.resources = load_resources(resources)
        self._ports = (port, ecs_port)
        self._images = images or {}
        self._is_recorded = is_recorded
        self._is_enforced = is_enforced
        self._servers: list[Server] = []
        self._cleanup = contextlib.ExitStack()
        self._clients: dict[str, Any] = {}
        self._clients_lock = threading.Lock()
        self._settings: dict[str, str] = {}
        self.endpoint_url = ""
        self.ecs_endpoint_url = ""

    def __enter__(self) -> Self:
        """Start it."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._clients.clear)
            self._start(stack)
            self._cleanup = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it, with all tasks."""
        self._cleanup.close()

    def _start(self, stack: contextlib.ExitStack) -> None:
        self.data.mkdir(parents=True, exist_ok=True)
        _lock(self.data, stack)
        port = stack.enter_context(bind(self._ports[0], "--port", self.host))
        ecs_port = stack.enter_context(bind(self._ports[1], "--ecs-port", self.host))
        self.endpoint_url = f"http://{self.host}:{port.getsockname()[1]}"
        self.ecs_endpoint_url = f"http://{self.host}:{ecs_port.getsockname()[1]}"
        images = dict(parse_images(os.environ.get(IMAGES_VARIABLE))) | dict(self._images)

        calls = ["--calls", str(self._calls_file)] if self._is_recorded else []
        self._calls_file.unlink(missing_ok=True)

        data = Server("ministack", self.data / "ministack.log")
        stack.callback(data.stop, _DATA_GRACE_S)
        data.start(
            "local_aws.data_server",
            port,
            [*calls, "--enforce"] if self._is_enforced else calls,
            {
                **_ministack_environment(self.host, port.getsockname()[1], self.region),
                **(enforcing.ENVIRONMENT if self._is_enforced else {}),
            },
        )
        ecs = Server("the local ECS", self.data / "ecs.log")
        stack.callback(ecs.stop, _ECS_GRACE_S)  # Before the data services: tasks use them to the last.
        ecs.start(
            "local_aws.ecs_server",
            ecs_port,
            ["--tasks", str(self.data / "tasks"), *calls],
            {
                **self._connection(Caller.EXECUTION),
                "MOTO_ACCOUNT_ID": ACCOUNT,
                IMAGES_VARIABLE: json.dumps({name: list(prefix) for name, prefix in images.items()}),
            },
        )
        data.wait_until_ready(self.endpoint_url + _HEALTH_PATH)
        ecs.wait_until_ready(f"{self.ecs_endpoint_url}{CONTROL_PATH}/health")
        self._servers = [data, ecs]
        self.bootstrap()
        state_file = self.data / _STATE_FILE
        stack.callback(state_file.unlink, missing_ok=True)
        state_file.write_text(json.dumps({"pid": os.getpid(), "environment": self.environment()}, indent=2))

    # --- using it ---

    def bootstrap(self) -> None:
        """Create the resources; what is there already stays."""
        if self._is_enforced:
            enforcing.create_callers(self.client("iam"))
        self._settings = create_resources(self.resources, self.client, self.region)

    def environment(self) -> dict[str, str]:
        """The environment variables with which a program uses it, the worker's settings among them."""
        group = self.resources.log_groups[self.resources.task_definition.container.log_group]
        return {
            **self._connection(Caller.CONTROL_PLANE),
            **self._settings,
            "PDF_OPS_LOG_GROUP_NAME": group.name,
            "PDF_OPS_ECS_CLUSTER": self.resources.cluster.name,
            "PDF_OPS_ECS_TASK_DEFINITION": self.resources.task_definition.family,
            "PDF_OPS_ECS_SUBNETS": SUBNET,
            **_without_proxy(self.host),
        }

    def client(self, service: str) -> Any:
        """A boto3 client; always the same one for a service."""
        with self._clients_lock:
            if service not in self._clients:
                self._clients[service] = self._connect(service)
            return self._clients[service]

    @property
    def is_running(self) -> bool:
        """Whether both servers are there."""
        return bool(self._servers) and all(server.is_running for server in self._servers)

    def output_of(self, task: str) -> str:
        """What the process of a task, given by ARN or id, has printed so far."""
        file = self.data / "tasks" / f"{task.rsplit('/', 1)[-1]}.log"
        return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""

    @property
    def _calls_file(self) -> Path:
        return self.data / "calls.jsonl"

    def calls(self) -> set[Call]:
        """What has been called so far, if that is recorded."""
        return read_calls(self._calls_file)

    # --- making it do what AWS does only at times ---

    def fail_capacity(self, capacity_provider: str, times: int, reason: str | None = None) -> None:
        """Have the next RunTask calls for a capacity provider find no capacity."""
        order = {"capacity_provider": capacity_provider, "times": times, "reason": reason}
        self._control("capacity-failures", order)

    def interrupt(self, task: str) -> None:
        """Stop a task of our cluster as Spot does when it wants its machine back."""
        self._control("interruptions", {"cluster": self.resources.cluster.name, "task": task})

    def reset(self) -> None:
        """Kill all tasks, forget everything, and create the resources anew."""
        self._control("reset", {})
        post(self.endpoint_url + _RESET_PATH)
        self.bootstrap()

    def _control(self, action: str, order: Mapping[str, Any]) -> None:
        post(f"{self.ecs_endpoint_url}{CONTROL_PATH}/{action}", json.dumps(order).encode("utf-8"))

    # --- connecting ---

    def _connection(self, caller: Caller) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_ENDPOINT_URL_ECS": self.ecs_endpoint_url,
            "AWS_ACCESS_KEY_ID": caller.value,
            "AWS_SECRET_ACCESS_KEY": enforcing.SECRET,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_REGION": self.region,
            # Nobody asks the network who we are.
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def _connect(self, service: str) -> Any:
        import boto3
        import botocore.session
        from botocore.config import Config

        # Nothing from a person's own environment: no profile, no configuration file.
        hidden = {"profile": (None, None, None, None), "config_file": (None, None, os.devnull, None)}
        session = boto3.session.Session(
            botocore_session=botocore.session.Session(session_vars=hidden),
            aws_access_key_id=Caller.ADMINISTRATOR.value,
            aws_secret_access_key=enforcing.SECRET,
            region_name=self.region,
        )
        return session.client(
            service,
            endpoint_url=self.ecs_endpoint_url if service == "ecs" else self.endpoint_url,
            config=Config(proxies={}, max_pool_connections=_POOL_CONNECTIONS),
        )


def find_running(data: Path) -> Running:
    """The local AWS that runs in a data folder.

    Raises:
        LocalAwsError: If none does.
    """
    try:
        content = json.loads((data / _STATE_FILE).read_text(encoding="utf-8"))
        running = Running(pid=content["pid"], environment=content["environment"])
        os.kill(running.pid, 0)
    except (OSError, ValueError, KeyError):
        raise LocalAwsError(
            f"no local AWS runs in {data}: start one with `make local-aws`, or name its folder with --data"
        ) from None
    return running


def _ministack_environment(host: str, port: int, region: str) -> dict[str, str]:
    return {
        "MINISTACK_HOST": host,
        "GATEWAY_PORT": str(port),
        "MINISTACK_REGION": region,
        "MINISTACK_ACCOUNT_ID": ACCOUNT,
        "SERVICES": ",".join(_MINISTACK_SERVICES),
        "LOG_LEVEL": "WARNING",
        # It would listen on more ports, and remove Docker containers that it takes for its own.
        "IOT_MTLS_ENABLED": "0",
        "SFTP_ENABLED": "0",
        "DOCKER_HOST": "unix:///nonexistent",
    }


def _lock(data: Path, stack: contextlib.ExitStack) -> None:
    """Make sure that the folder is ours alone; the system lets go of it whatever happens to us."""
    file = stack.enter_context((data / _LOCK_FILE).open("w"))
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise LocalAwsError(
            f"another local AWS runs in {data}: stop it, or choose another folder with --data"
        ) from None


def _without_proxy(host: str) -> dict[str, str]:
    """Where a proxy is set for HTTP, the variables that keep it away from this machine's own addresses."""
    if not any(os.environ.get(name) for name in _PROXY_VARIABLES):
        return {}
    hosts = [*filter(None, os.environ.get("NO_PROXY", os.environ.get("no_proxy", "")).split(","))]
    value = ",".join(dict.fromkeys([*hosts, host, HOST, "localhost"]))
    return {"NO_PROXY": value, "no_proxy": value}
