"""A whole Airflow on this machine, with the DAG unpaused and samples to read, until Ctrl-C.

Scheduler, triggerer, api-server and dag-processor as ``airflow standalone`` starts them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from local_airflow.demo import DAG_ID, Place, load_samples
from local_airflow.environment import airflow_environment, airflow_program, migrate_database
from local_aws import LocalAws

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

FOLDER = Path(".build/up")
START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 30.0
USER = "admin"


class UpError(Exception):
    """Airflow did not come up; the message says what to look at."""


def run_up(console: Console, *, port: int) -> int:
    """Start everything, say where it is, and wait for Ctrl-C."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    home, log = (FOLDER / "airflow").resolve(), FOLDER / "airflow.log"
    with LocalAws((FOLDER / "aws").resolve(), port=0, ecs_port=0) as aws:
        place = Place(aws.environment())
        load_samples(place)
        environment = airflow_environment(home, place.environment) | {
            "AIRFLOW__API__PORT": str(port),
            "AIRFLOW__API__BASE_URL": f"http://localhost:{port}",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://localhost:{port}/execution/",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
            "AIRFLOW__PDF_OPS__SCHEDULE": "none",
        }
        with console.status("Airflow starts, which takes half a minute …"):
            migrate_database(environment, log)
            airflow = _start(environment, log)
            try:
                _wait_until_up(airflow, port, log)
            except UpError:
                _stop(airflow)
                raise
        password = json.loads((home / "simple_auth_manager_passwords.json.generated").read_text())[USER]
        console.print(f"[green]Airflow is up:[/] http://localhost:{port}/dags/{DAG_ID}", highlight=False)
        console.print(f"  log in as [bold]{USER}[/] with [bold]{password}[/]", highlight=False)
        console.print(f"  local AWS       {aws.endpoint_url} (ECS {aws.ecs_endpoint_url})", highlight=False)
        console.print(f"  Airflow's log   {log}", highlight=False)
        console.print("Press Ctrl-C to stop all of it.")
        try:
            airflow.wait()
        except KeyboardInterrupt:
            console.print("stopping …")
        finally:
            _stop(airflow)
    return 0


def _start(environment: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as file:
        return subprocess.Popen(
            [airflow_program(), "standalone"],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )


def _wait_until_up(airflow: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and airflow.poll() is None:
        try:
            with urllib.request.urlopen(
                f"http://localhost:{port}/api/v2/monitor/health", timeout=5
            ) as answer:
                health = json.load(answer)
            parts = ("scheduler", "triggerer", "dag_processor")
            if all(health.get(part, {}).get("status") == "healthy" for part in parts):
                return
        except (OSError, ValueError, urllib.error.URLError):
            pass
        time.sleep(1)
    raise UpError(
        f"Airflow did not come up on port {port}; see {log}, or take another one: make up PORT=8081"
    )


def _stop(airflow: subprocess.Popen[bytes]) -> None:
    """End Airflow with all its processes."""
    for number, grace_s in ((signal.SIGINT, STOP_TIMEOUT_S), (signal.SIGKILL, 5.0)):
        try:
            os.killpg(airflow.pid, number)
            airflow.wait(grace_s)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
