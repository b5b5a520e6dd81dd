"""docker-compose.yaml against what it must agree with: .env.example, the resources, the version."""

from __future__ import annotations

import re
import subprocess
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.fernet import Fernet

from local_airflow.environment import airflow_environment
from local_aws.bootstrap import worker_settings
from local_aws.ecs_tasks import SUBNET
from local_aws.resources import load_resources

REPOSITORY = Path(__file__).resolve().parents[2]
TEXT = (REPOSITORY / "docker-compose.yaml").read_text(encoding="utf-8")
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(TEXT)["services"]
ENDPOINT = "http://local-aws:4566"


def variables_in(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if line and not line.startswith("#"))


EXAMPLE = variables_in((REPOSITORY / ".env.example").read_text(encoding="utf-8"))


def local_aws_settings() -> dict[str, str]:
    resources = load_resources()
    urls = {key: f"{ENDPOINT}/000000000000/{queue.name}" for key, queue in resources.queues.items()}
    return worker_settings(resources, urls, "us-east-1")


def test_the_example_names_every_variable_of_the_file_and_no_other() -> None:
    used = dict(re.findall(r"\$\{(\w+):([-?][^}]*)\}", TEXT))

    assert set(re.findall(r"\$\{(\w+)", TEXT)) == set(used) == set(EXAMPLE)
    for name, value in EXAMPLE.items():
        # What has no value in the example is a secret, and has none in the file either.
        assert used[name] == (f"-{value}" if value else "?run make compose-env"), name


def test_every_variable_of_the_example_is_explained() -> None:
    lines = (REPOSITORY / ".env.example").read_text(encoding="utf-8").splitlines()

    for before, line in pairwise(lines):
        assert line.startswith("#") or not line or before.startswith("# "), line


def test_each_person_gets_secrets_of_their_own_and_keeps_them(tmp_path: Path) -> None:
    files = [tmp_path / "mine", tmp_path / "yours"]
    for file in [*files, files[0]]:
        before = file.read_text(encoding="utf-8") if file.exists() else None
        subprocess.run(["scripts/compose-env.sh", str(file)], cwd=REPOSITORY, check=True, capture_output=True)
        assert before in (None, file.read_text(encoding="utf-8"))
        assert file.stat().st_mode & 0o077 == 0
    mine, yours = (variables_in(file.read_text(encoding="utf-8")) for file in files)

    assert mine.keys() == yours.keys() == EXAMPLE.keys()
    assert {name for name in mine if mine[name] != yours[name]} == {
        name for name, value in EXAMPLE.items() if not value
    }
    Fernet(mine["AIRFLOW_FERNET_KEY"])
    assert mine["POSTGRES_PASSWORD"].isalnum()


def test_airflow_is_told_what_the_local_aws_has() -> None:
    cluster = load_resources().cluster.name
    family = load_resources().task_definition.family
    aws = local_aws_settings() | {
        "PDF_OPS_ECS_CLUSTER": cluster,
        "PDF_OPS_ECS_TASK_DEFINITION": family,
        "PDF_OPS_ECS_SUBNETS": SUBNET,
    }
    wanted = {
        name: value
        for name, value in airflow_environment(Path("/airflow"), aws).items()
        if name.startswith("AIRFLOW__PDF_OPS__") and value and name in airflow_names(aws)
    }

    given = SERVICES["scheduler"]["environment"]
    assert wanted
    assert {name: given.get(name) for name in wanted} == wanted


def airflow_names(aws: dict[str, str]) -> set[str]:
    """The settings that come from the local AWS, less those about pace."""
    return {f"AIRFLOW__PDF_OPS__{name.removeprefix('PDF_OPS_')}" for name in aws}


def test_the_worker_is_told_what_the_local_aws_has() -> None:
    given = SERVICES["worker"]["environment"]
    # Empty ones are the default, and the container's own log does without CloudWatch.
    wanted = {
        name: value for name, value in local_aws_settings().items() if value and name != "LOG_GROUP_NAME"
    }

    assert {name: given.get(name) for name in wanted} == wanted


def test_every_service_that_stays_has_a_health_check_and_a_fixed_image() -> None:
    for name, service in SERVICES.items():
        assert re.search(r":(\$\{PDF_OPS_VERSION|[\d.]+)", service["image"]), name
        assert ("healthcheck" in service) is (name not in ("init", "worker")), name
    # The worker's is in its image.
    assert "HEALTHCHECK" in (REPOSITORY / "include/ocr_worker/Dockerfile").read_text(encoding="utf-8")


def test_nothing_but_this_machine_reaches_a_port() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]

    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


@pytest.mark.parametrize("name", ["include/ocr_worker/Dockerfile", "include/local_airflow/Dockerfile"])
def test_an_image_installs_nothing_from_python_that_the_lock_does_not_vouch_for(name: str) -> None:
    (install,) = re.findall(r"pip .*install.*", (REPOSITORY / name).read_text(encoding="utf-8"))

    assert "--require-hashes" in install
    assert "--only-binary :all:" in install


def test_the_tag_is_the_projects_version() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert EXAMPLE["PDF_OPS_VERSION"] == project["version"]
