"""The environment in which Airflow runs our DAGs against a local AWS: its home, our folders, our settings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

REPOSITORY = Path(__file__).resolve().parents[2]

# The local AWS names them as the worker knows them; Airflow takes them as its configuration.
_SETTINGS = {
    "INPUT_S3_BUCKET": "INPUT_S3_BUCKET",
    "OUTPUT_S3_BUCKET": "OUTPUT_S3_BUCKET",
    "OUTPUT_S3_PREFIX": "OUTPUT_S3_PREFIX",
    "MANIFEST_S3_BUCKET": "MANIFEST_S3_BUCKET",
    "MANIFEST_S3_KEY": "MANIFEST_S3_KEY",
    "SQS_QUEUE_URL": "SQS_QUEUE_URL",
    "DLQ_SQS_QUEUE_URL": "DLQ_SQS_QUEUE_URL",
    "DYNAMO_TABLE_NAME": "DYNAMO_TABLE_NAME",
    "DYNAMO_RUNS_TABLE_NAME": "DYNAMO_RUNS_TABLE_NAME",
    "LOG_GROUP_NAME": "PDF_OPS_LOG_GROUP_NAME",
    "ECS_CLUSTER": "PDF_OPS_ECS_CLUSTER",
    "ECS_TASK_DEFINITION": "PDF_OPS_ECS_TASK_DEFINITION",
    "ECS_SUBNETS": "PDF_OPS_ECS_SUBNETS",
}
# Nothing to be patient for on one machine.
_PACE = {"POLL_INTERVAL_S": "2", "STALL_TIMEOUT_S": "600"}


class MigrationError(Exception):
    """Airflow's database could not be made; the message is the end of what it said."""


def airflow_environment(home: Path, aws: Mapping[str, str], **settings: str) -> dict[str, str]:
    """Everything that ``airflow`` needs, on top of our own environment.

    Args:
        home: Airflow's home folder.
        aws: The environment of a local AWS.
        settings: Settings of the section ``pdf_ops`` that differ.
    """
    given = {f"AIRFLOW__PDF_OPS__{name}": aws[theirs] for name, theirs in _SETTINGS.items() if theirs in aws}
    paced = {f"AIRFLOW__PDF_OPS__{name}": value for name, value in (_PACE | settings).items()}
    return {
        **_ours(),
        **aws,
        **given,
        **paced,
        # What a person's own AWS files say is not for this AWS; the connection has nothing to add.
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AIRFLOW_CONN_AWS_DEFAULT": "aws://",
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(REPOSITORY / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(REPOSITORY / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
    }


def _ours() -> dict[str, str]:
    """Our own environment, without what a person set for another Airflow or another AWS."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith("AIRFLOW__PDF_OPS__") or not name.startswith(("AIRFLOW__", "AWS_"))
    }


def migrate_database(environment: Mapping[str, str], log: Path) -> None:
    """Make Airflow's database, or bring it up to date.

    Raises:
        MigrationError: If Airflow could not.
    """
    with log.open("ab") as file:
        ran = subprocess.run(
            [airflow_program(), "db", "migrate"], env=dict(environment), stdout=file, stderr=file, check=False
        )
    if ran.returncode != 0:
        raise MigrationError(log.read_text(encoding="utf-8", errors="replace")[-2000:])


def airflow_program() -> str:
    """The ``airflow`` of this virtual environment."""
    return str(Path(sys.executable).with_name("airflow"))
