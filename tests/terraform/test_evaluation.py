"""What the real Terraform makes of our definitions, where that needs no provider."""

from __future__ import annotations

import json

import pytest
from tests.support import terraform
from tests.support.permissions import PERMISSIONS_FILE, load_permissions, variables

from local_aws.bootstrap import task_registration, worker_settings
from local_aws.resources import RESOURCES_FILE, load_resources

pytestmark = pytest.mark.skipif(terraform.PROGRAM is None, reason="terraform is not installed")

REGION = "eu-west-1"


def test_the_configuration_is_formatted() -> None:
    terraform.run(terraform.ROOT, "fmt", "-check", "-diff", "-recursive")


def named(**given: str) -> dict[str, str]:
    """A value for each name that the permissions leave open."""
    return {name: f"arn:aws:test:::{name}" for name in variables()} | given


def test_the_policies_allow_exactly_the_permissions(tmp_path) -> None:
    names = named(secret_arns="arn:aws:secret-1,arn:aws:secret-2")

    policies = terraform.evaluate(
        "permissions", "policies", tmp_path, file=str(PERMISSIONS_FILE), names=names
    )

    allowed = {
        (role, action, tuple(statement["Resource"]), json.dumps(statement.get("Condition"), sort_keys=True))
        for role, policy in policies.items()
        for statement in json.loads(policy)["Statement"]
        for action in statement["Action"]
        if statement["Effect"] == "Allow"
    }
    assert allowed == {
        (one.role, one.action, one.arns, json.dumps(one.condition, sort_keys=True))
        for one in load_permissions(names)
    }
    assert any("arn:aws:secret-2" in resources for _, _, resources, _ in allowed)


def test_without_secrets_and_keys_nothing_is_allowed_on_them(tmp_path) -> None:
    names = named(secret_arns="", key_arns="")

    policies = terraform.evaluate(
        "permissions", "policies", tmp_path, file=str(PERMISSIONS_FILE), names=names
    )

    assert "secretsmanager:" not in policies["execution"]
    assert not any("kms:" in policy for policy in policies.values())


@pytest.fixture
def container(tmp_path) -> dict:
    resources = load_resources()
    [definition] = json.loads(
        terraform.evaluate(
            "container",
            "definitions",
            tmp_path,
            container=json.loads(RESOURCES_FILE.read_text(encoding="utf-8"))["task_definition"]["container"],
            image="registry/pdf-ops-worker:1.2.3",
            region=REGION,
            buckets={key: bucket.name for key, bucket in resources.buckets.items()},
            queue_urls={key: f"https://queues/{queue.name}" for key, queue in resources.queues.items()},
            tables={key: table.name for key, table in resources.tables.items()},
            log_group="/pdf-ops/worker",
            scratch_volume="scratch",
            environment={"MAX_RETRIES": "5"},
            secrets={"OCR_PASSWORD": "arn:aws:secret"},
        )
    )
    return definition


def test_the_deployed_container_is_the_one_that_the_local_aws_runs(container) -> None:
    resources = load_resources()
    urls = {key: f"https://queues/{queue.name}" for key, queue in resources.queues.items()}
    settings = worker_settings(resources, urls, REGION)
    registration = task_registration(resources.task_definition, resources, settings, REGION)
    [local] = registration["containerDefinitions"]

    deployed = {entry["name"]: entry["value"] for entry in container["environment"]}
    assert deployed == settings | {"MAX_RETRIES": "5", "OCR_SCRATCH_DIR": "/scratch"}
    for name in ("name", "command", "essential", "stopTimeout", "logConfiguration"):
        assert container[name] == local[name]


def test_the_deployed_container_can_write_to_its_scratch_volume_alone(container) -> None:
    assert container["readonlyRootFilesystem"] is True
    assert container["privileged"] is False
    assert container["linuxParameters"] == {"capabilities": {"drop": ["ALL"]}}
    assert container["mountPoints"] == [
        {"sourceVolume": "scratch", "containerPath": "/scratch", "readOnly": False}
    ]


def test_the_deployed_container_runs_as_the_images_user_and_is_asked_for_its_health(container) -> None:
    dockerfile = (RESOURCES_FILE.parent / "ocr_worker" / "Dockerfile").read_text(encoding="utf-8")

    assert f"USER {container['user']}" in dockerfile
    assert json.dumps(container["healthCheck"]["command"][1:]) in dockerfile


def test_secrets_reach_the_container_by_reference(container) -> None:
    assert container["secrets"] == [{"name": "OCR_PASSWORD", "valueFrom": "arn:aws:secret"}]
