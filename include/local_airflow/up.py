"""A whole Airflow on this machine, with the DAG unpaused and samples to read, until Ctrl-C.

Scheduler, triggerer, api-server and dag-processor as ``airflow standalone`` starts them, on a local AWS.
Both start afresh every time: what Airflow remembers would name objects that are gone.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from local_airflow import sqlite
from local_airflow.demo import DAG_ID, PAGES, Place, load_samples
from local_airflow.environment import airflow_environment
from local_airflow.rest import AirflowApi
from local_airflow.standalone import GRACE_S
from local_airflow.uploads import doorbell_variables, tell_of_uploads
from local_aws import LocalAws, LocalAwsError
from local_aws.cli import export_lines
from local_aws.running import find_running

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import Console

FOLDER = Path(".build/up")
ENVIRONMENT_FILE = "operator.json"
START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = GRACE_S + 20.0
USER = "admin"
HOST = "127.0.0.1"
# Below those that systems hand out by themselves: one of these stays free until Airflow takes it.
_FREE_PORTS = range(10_000, 32_000)
_PARTS = ("scheduler", "triggerer", "dag_processor")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_POLL_S = 0.5
_LOG_TAIL_CHARS = 2000


class UpError(Exception):
    """Airflow did not come up, or did not stay; the message says what to look at."""


@dataclass(frozen=True, slots=True)
class Up:
    """What is up.

    Attributes:
        aws: The local AWS.
        api: Airflow's API; its URL and login are those of the UI.
        environment: The environment in which ``airflow`` commands reach it.
        log: What all parts of Airflow say.
    """

    aws: LocalAws
    api: AirflowApi
    environment: Mapping[str, str]
    log: Path
    _process: subprocess.Popen[bytes]

    def check(self) -> None:
        """Make sure that it is still up.

        Raises:
            UpError: If it is not.
        """
        if self._process.poll() is not None:
            raise UpError(f"Airflow ended by itself; the end of {self.log}:\n{_tail(self.log)}")
        if not self.aws.is_running:
            raise UpError(f"the local AWS ended by itself; its logs are in {self.aws.data}")


def run_up(console: Console, *, port: int, has_doorbell: bool = False) -> int:
    """Start everything, say where it is, and wait for Ctrl-C."""
    try:
        with _interruptible(), contextlib.ExitStack() as stack:
            with console.status("Airflow starts, which takes half a minute …"):
                up = stack.enter_context(airflow_up(FOLDER, port=port, has_doorbell=has_doorbell))
            _describe(console, up, has_doorbell=has_doorbell)
            try:
                while True:
                    up.check()
                    time.sleep(_POLL_S)
            finally:
                console.print("stopping …")
    except KeyboardInterrupt:
        console.print("Airflow and the local AWS have stopped.")
        return 0


def _describe(console: Console, up: Up, *, has_doorbell: bool) -> None:
    what = (
        "The samples are in the bucket. Upload another document, and a run reads them all."
        if has_doorbell
        else "The samples are in the bucket, and the schedule is off: press Trigger in the UI."
    )
    for line in (
        f"[green]Airflow is up:[/] {up.api.url}/dags/{DAG_ID}",
        f"  log in as [bold]{up.api.user}[/] with [bold]{up.api.password}[/]",
        *(f"  {name:<15} {up.api.url}{where}" for name, where in PAGES.items()),
        f"  REST API        {up.api.url}/pdf-ops/docs",
        f"  local AWS       {up.aws.endpoint_url} (ECS {up.aws.ecs_endpoint_url})",
        f"  Airflow's log   {up.log}",
        '  in a terminal   eval "$(.venv/bin/python -m local_airflow env)", then pdf-ops status, aws s3 ls',
        what,
        "Press Ctrl-C to stop all of it; nothing is kept.",
    ):
        console.print(line, highlight=False, soft_wrap=True)


@contextlib.contextmanager
def airflow_up(
    folder: Path, *, port: int, variables: Mapping[str, str] | None = None, has_doorbell: bool = False
) -> Iterator[Up]:
    """Airflow on a local AWS, from ``with`` to the end of the block.

    Args:
        folder: For all that both keep; emptied of what an earlier one left.
        port: Of Airflow's UI and API; 0 takes a free one.
        variables: Environment variables for Airflow that differ.
        has_doorbell: Whether documents that are uploaded start runs.

    Raises:
        UpError: If the port is in use, or Airflow does not come up.
        LocalAwsError: If the local AWS does not, or another one runs in the folder.
    """
    folder = folder.resolve()
    home, log = folder / "airflow", folder / "airflow.log"
    with contextlib.ExitStack() as stack:
        # Held until Airflow takes them, so that nothing starts when one of them is in use.
        taken = [stack.enter_context(_take_port(one)) for one in (port, 0, 0)]
        ports = [one.getsockname()[1] for one in taken]
        _refuse_a_second_one(folder)
        aws = stack.enter_context(LocalAws(folder / "aws", port=0, ecs_port=0))
        # From here on the folder is ours alone: the local AWS has locked it.
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        place = Place(aws.environment())
        load_samples(place)
        passwords = folder / "passwords.json"
        environment = {
            **airflow_environment(home, place.environment),
            **sqlite.use_in(home),
            **_server_variables(ports, passwords),
            **(doorbell_variables(aws) if has_doorbell else {}),
            **(variables or {}),
        }
        if has_doorbell:
            queue_url = environment["AIRFLOW__PDF_OPS__EVENTS_SQS_QUEUE_URL"]
            tell_of_uploads(aws, bucket=place.environment["INPUT_S3_BUCKET"], queue_url=queue_url)
        api = AirflowApi(f"http://localhost:{ports[0]}", USER, _password(passwords))
        for one in taken:
            one.close()
        place_file = folder / ENVIRONMENT_FILE
        place_file.unlink(missing_ok=True)
        place_file.touch(mode=0o600)
        place_file.write_text(json.dumps(operator_variables(environment, api)), encoding="utf-8")
        process = stack.enter_context(_standalone(environment, log))
        up = Up(aws, api, environment, log, process)
        _wait_until_up(up)
        yield up


def operator_variables(environment: Mapping[str, str], api: AirflowApi) -> dict[str, str]:
    """What ``pdf-ops`` and AWS's tools need in another terminal."""
    kept = {
        name: value
        for name, value in environment.items()
        if name.startswith(("AIRFLOW__PDF_OPS__", "AWS_")) or name == "AIRFLOW_HOME"
    }
    return kept | {
        "PDF_OPS_AIRFLOW_URL": api.url,
        "PDF_OPS_AIRFLOW_USERNAME": api.user,
        "PDF_OPS_AIRFLOW_PASSWORD": api.password,
    }


def print_environment(folder: Path = FOLDER) -> int:
    """Print the variables of the one that is up, as a shell takes them.

    Raises:
        LocalAwsError: If none is.
    """
    find_running(folder.resolve() / "aws")
    found = json.loads((folder.resolve() / ENVIRONMENT_FILE).read_text(encoding="utf-8"))
    print(export_lines(found))
    return 0


def _refuse_a_second_one(folder: Path) -> None:
    with contextlib.suppress(LocalAwsError):
        raise UpError(f"it is up already, as process {find_running(folder / 'aws').pid}: stop that one first")


def _take_port(port: int) -> socket.socket:
    """Bind a port, or a free one for 0, and hold it."""
    candidates = [port] if port else random.sample(_FREE_PORTS, 50)
    why = ""
    for candidate in candidates:
        taken = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind((HOST, candidate))
            taken.listen()  # Two sockets may bind one port, but not listen on it.
        except (OSError, OverflowError) as error:
            taken.close()
            is_in_use = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
            why = "is in use" if is_in_use else f"cannot be taken ({error})"
        else:
            return taken
    raise UpError(f"port {port} {why}: stop what uses it, or take another one: make up PORT=8081")


def _server_variables(ports: list[int], passwords: Path) -> dict[str, str]:
    """What a server needs beyond what a single ``airflow`` command does."""
    port, worker_log_port, trigger_log_port = map(str, ports)
    return {
        "AIRFLOW__API__HOST": HOST,
        "AIRFLOW__API__PORT": port,
        "AIRFLOW__API__BASE_URL": f"http://localhost:{port}",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://{HOST}:{port}/execution/",
        # Fixed ports unless given: the second Airflow on a machine would have no logs.
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": worker_log_port,
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": trigger_log_port,
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_urlsafe(64),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        # One process each. SQLite takes one writer at a time, and what takes long is deferred.
        "AIRFLOW__CORE__PARALLELISM": "8",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        # The DAG keeps its schedule, which backfills need, but no run starts by itself.
        "AIRFLOW__SCHEDULER__USE_JOB_SCHEDULE": "False",
    }


def _password(file: Path) -> str:
    """The password, the same one every time."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return str(json.loads(file.read_text(encoding="utf-8"))[USER])
    password = secrets.token_urlsafe(12)
    file.unlink(missing_ok=True)
    file.touch(mode=0o600)
    file.write_text(json.dumps({USER: password}), encoding="utf-8")
    return password


@contextlib.contextmanager
def _standalone(environment: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "local_airflow.standalone", str(os.getpid())],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()


def _wait_until_up(up: Up) -> None:
    """Wait until all parts run and the DAG is known."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        up.check()
        with contextlib.suppress(OSError, ValueError):
            if _is_up(up.api):
                return
        time.sleep(_POLL_S)
    raise UpError(
        f"Airflow did not come up in {START_TIMEOUT_S:.0f} s; the end of {up.log}:\n{_tail(up.log)}"
    )


def _is_up(api: AirflowApi) -> bool:
    health = api.health()
    if any(health[part]["status"] != "healthy" for part in _PARTS):
        return False
    broken = api.call("GET", "/importErrors")["import_errors"]
    if broken:
        raise UpError(f"a DAG file cannot be imported:\n{broken[0]['stack_trace']}")
    return any(dag["dag_id"] == DAG_ID for dag in api.call("GET", "/dags?limit=100")["dags"])


def _tail(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")[-_LOG_TAIL_CHARS:].strip()


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """The first signal that asks us to end raises KeyboardInterrupt; later ones must not disturb the end."""

    def interrupt(*_: object) -> None:
        for number in _SIGNALS:
            signal.signal(number, lambda *_: None)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
