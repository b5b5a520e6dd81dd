"""The pipeline run by a real Airflow against the local AWS, and all that a run leaves behind."""

from __future__ import annotations

import io
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import uuid
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
from tests.support.world import World

from local_airflow.environment import REPOSITORY, airflow_environment
from pdf_ops.contract.layout import Layout, S3Uri

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.slack import SlackEndpoint

DAG_ID = "pdf_ocr"
VENVS = {"3.3.1": ".venv", "3.2.1": ".venv-3.2.1"}
RUN_TIMEOUT_S = 600.0
# Airflow 3.2 makes its API anew for each task, which takes seconds; 3.3 keeps it by itself.
KEEP_API = """
import functools
from airflow.sdk.execution_time import supervisor
if not hasattr(supervisor.in_process_api_server, "cache_info"):
    supervisor.in_process_api_server = functools.cache(supervisor.in_process_api_server)
"""
DAGS_TEST = """
import sys
from airflow.__main__ import main
sys.argv[:1] = ["airflow", "dags", "test"]
main()
"""
# `airflow dags test` gives every run a logical date; a run that REST or an asset started has none.
WITHOUT_LOGICAL_DATE = """
import json, sys
from airflow.utils.cli import get_bagged_dag
dag = get_bagged_dag(bundle_names=None, dag_id=sys.argv[1])
run = dag.test(logical_date=None, run_conf=json.loads(sys.argv[2]))
sys.exit("DagRun failed" if run.state == "failed" else 0)
"""


class Install:
    """A virtual environment with Airflow, and a migrated database of its version to start from."""

    def __init__(self, airflow: str, folder: Path) -> None:
        self.airflow = airflow
        self._folder = folder
        self._lock = threading.Lock()

    @classmethod
    def ours(cls, folder: Path) -> Install:
        """The one that runs the tests."""
        return cls(version("apache-airflow"), folder)

    @classmethod
    def other(cls, folder: Path) -> Install:
        """The other version that we support."""
        [airflow] = set(VENVS) - {version("apache-airflow")}
        return cls(airflow, folder)

    @property
    def is_ours(self) -> bool:
        return self.airflow == version("apache-airflow")

    @cached_property
    def bin(self) -> Path:
        """Where its programs are; made when it is not there, as on a fresh machine."""
        if self.is_ours:
            return Path(sys.executable).parent
        venv = VENVS[self.airflow]
        folder = REPOSITORY / venv / "bin"
        if not (folder / "airflow").exists():
            lock = f"locks/airflow-{self.airflow}.txt"
            subprocess.run(
                [REPOSITORY / "scripts" / "setup.sh", "venv", venv, lock, "--project"],
                check=True,
                timeout=600,
            )
        return folder

    @property
    def cwd(self) -> Path:
        """Where its programs run."""
        return REPOSITORY

    def variables(self) -> dict[str, str]:
        """What a run's environment has besides the usual."""
        return {}

    def dags_test(self, *arguments: str) -> list[Any]:
        """The command line of `airflow dags test`."""
        if self.airflow.startswith("3.2."):
            return self.python(DAGS_TEST, *arguments)
        return [self.bin / "airflow", "dags", "test", *arguments]

    def python(self, script: str, *arguments: str) -> list[Any]:
        """The command line of a script that runs DAGs."""
        return [self.bin / "python", "-c", KEEP_API + script, *arguments]

    def home(self) -> Path:
        """A new home folder for Airflow; its database is a copy, since migrating one takes its time."""
        with self._lock:
            template = self._folder / f"airflow-{self.airflow}"
            if not template.exists():
                making = self._new_home()
                environment = {**os.environ, **home_variables(making), **self.variables()}
                run_program([self.bin / "airflow", "db", "migrate"], environment, cwd=self.cwd)
                making.rename(template)
        home = self._new_home()
        shutil.copy(template / "airflow.db", home)
        return home

    def _new_home(self) -> Path:
        home = self._folder / f"home-{uuid.uuid4().hex[:8]}"
        home.mkdir(parents=True)
        return home


def home_variables(home: Path) -> dict[str, str]:
    return {"AIRFLOW_HOME": str(home), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}


def run_program(command: list[Any], environment: Mapping[str, str], cwd: Path = REPOSITORY) -> str:
    """Run a program that must succeed; returns what it printed."""
    code, output = try_program(command, environment, cwd)
    assert code == 0, output[-5_000:]
    return output


def try_program(
    command: list[Any], environment: Mapping[str, str], cwd: Path = REPOSITORY
) -> tuple[int, str]:
    ran = subprocess.run(
        command,
        cwd=cwd,
        env=dict(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    return ran.returncode, ran.stdout


class Pipeline(World):
    """A world of its own for runs of the pipeline: what one of them reads, the next finds read."""

    def __init__(self, aws: Any, install: Install, slack: SlackEndpoint, **settings: str) -> None:
        super().__init__(aws)
        self._install = install
        self._slack = slack
        self.layout = Layout(
            output_bucket=self.output,
            output_prefix="data",
            manifest_bucket=self.output,
            manifest_prefix="manifests",
        )
        self.settings = {
            "INPUT_S3_BUCKET": self.input,
            "OUTPUT_S3_BUCKET": self.output,
            "OUTPUT_S3_PREFIX": self.layout.output_prefix,
            "MANIFEST_S3_BUCKET": self.output,
            "MANIFEST_S3_KEY": self.layout.manifest_prefix,
            "SQS_QUEUE_URL": self.queue,
            "DLQ_SQS_QUEUE_URL": self.dlq,
            "DYNAMO_TABLE_NAME": self.state_table,
            "DYNAMO_RUNS_TABLE_NAME": self.runs_table,
            "POLL_INTERVAL_S": "1",
            "CAPACITY": "on_demand",
            "SLACK_CONN_ID": "slack_test",
            **settings,
        }
        self.define_worker(IDLE_S="1", MAX_WORKERS="1")

    def define_worker(self, *, image: str = "", command: tuple[str, ...] = (), **variables: str) -> None:
        """Have runs start a worker that differs from the deployed one."""
        ecs = self._aws.client("ecs")
        definition = ecs.describe_task_definition(taskDefinition=self._aws.resources.task_definition.family)[
            "taskDefinition"
        ]
        [container] = definition["containerDefinitions"]
        given = {entry["name"]: entry["value"] for entry in container["environment"]} | variables
        container["environment"] = [{"name": name, "value": value} for name, value in given.items()]
        container["image"] = image or container["image"]
        container["command"] = list(command) or container["command"]
        kept = ("requiresCompatibilities", "networkMode", "cpu", "memory", "containerDefinitions")
        ecs.register_task_definition(family=self.task_family, **{name: definition[name] for name in kept})
        self.settings["ECS_TASK_DEFINITION"] = self.task_family

    @property
    def task_family(self) -> str:
        return f"{self.input}-worker"

    def run(self, *, dag_id: str = DAG_ID, has_logical_date: bool = True, **conf: Any) -> Run:
        """Run a DAG to its end, in a home of its own."""
        home, channel = self._install.home(), uuid.uuid4().hex
        programs = self._install.bin
        environment = airflow_environment(home, self._aws.environment(), **self.settings)
        environment |= {
            "AIRFLOW_CONN_SLACK_TEST": self._slack.connection(channel),
            "PATH": f"{programs}{os.pathsep}{environment['PATH']}",
            **self._install.variables(),
        }
        if has_logical_date:
            command = self._install.dags_test(dag_id, "--conf", json.dumps(conf))
        else:
            command = self._install.python(WITHOUT_LOGICAL_DATE, dag_id, json.dumps(conf))
        code, output = try_program(command, environment, self._install.cwd)
        (home / "output.log").write_text(output, encoding="utf-8")
        return Run(self, home, code, output, self._slack, channel)


@dataclass(frozen=True)
class Run:
    """A run that has ended."""

    world: Pipeline
    home: Path
    exit_code: int
    output: str
    _slack: SlackEndpoint
    _channel: str

    def _ask(self, query: str) -> list[sqlite3.Row]:
        with closing(sqlite3.connect(self.home / "airflow.db")) as database:
            database.row_factory = sqlite3.Row
            return database.execute(query).fetchall()

    @cached_property
    def row(self) -> sqlite3.Row:
        """The run as Airflow's database has it."""
        found = self._ask("SELECT * FROM dag_run")
        assert len(found) == 1, self.output[-5_000:]
        return found[0]

    @property
    def run_id(self) -> str:
        return str(self.row["run_id"])

    @cached_property
    def tasks(self) -> dict[str, str]:
        """The state of each task; of a mapped one, that of all its instances."""
        found: dict[str, set[str]] = {}
        for task in self._ask("SELECT task_id, state FROM task_instance"):
            found.setdefault(task["task_id"], set()).add(task["state"])
        return {task_id: "/".join(sorted(states)) for task_id, states in found.items()}

    @property
    def asset_events(self) -> list[dict[str, Any]]:
        """What was said about the dataset to those who follow it."""
        return [json.loads(event["extra"]) for event in self._ask("SELECT extra FROM asset_event")]

    @property
    def slack_messages(self) -> list[str]:
        return self._slack.texts(self._channel)

    # In S3 -----------------------------------------------------------------------------------

    def _read(self, uri: S3Uri) -> bytes:
        body: bytes = self.world.s3.get_object(Bucket=uri.bucket, Key=uri.key)["Body"].read()
        return body

    @cached_property
    def report(self) -> dict[str, Any]:
        return dict(json.loads(self._read(self.world.layout.report_json(self.run_id))))

    @property
    def report_page(self) -> str:
        return self._read(self.world.layout.report_html(self.run_id)).decode("utf-8")

    @cached_property
    def reconciliation(self) -> dict[str, Any]:
        return dict(json.loads(self._read(self.world.layout.reconciliation_json(self.run_id))))

    @property
    def documents(self) -> dict[str, dict[str, Any]]:
        """This run's rows of the documents table, by key."""
        root = f"s3://{self.world.input}/"
        rows = self._rows(self.world.layout.documents_dataset())
        return {row["source_uri"].removeprefix(root): row for row in rows}

    @property
    def pages(self) -> list[tuple[str, int, str]]:
        """This run's rows of the dataset: key, page and what became of it."""
        root = f"s3://{self.world.input}/"
        rows = self._rows(self.world.layout.pages_dataset())
        return sorted((row["source_uri"].removeprefix(root), row["page"], row["status"]) for row in rows)

    def _rows(self, root: S3Uri) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for item in self.world.s3.list_objects_v2(Bucket=root.bucket, Prefix=root.key).get("Contents", []):
            body = self._read(S3Uri(root.bucket, item["Key"]))
            rows += pq.read_table(io.BytesIO(body)).to_pylist()
        return [row for row in rows if row["run_id"] == self.run_id]
