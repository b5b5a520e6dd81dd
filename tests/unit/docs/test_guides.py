"""The pages that one follows command by command: each is run by a test, or marked as not provable here."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.support.guides import DOCS, commands_of

from ocr_worker.cli import build_parser
from ocr_worker.options import settings_of
from ocr_worker.settings import ServiceSettings

REPOSITORY = Path(__file__).resolve().parents[3]
TERRAFORM = REPOSITORY / "include" / "terraform"

WALKTHROUGH = "tests/mwaa/test_guides.py::test_the_page_about_mwaa_leads_from_an_empty_bucket_to_rows"
OWN_AIRFLOW = "tests/mwaa/test_guides.py::test_the_page_about_any_airflow_leads_to_a_dry_run"
# What runs each command that is not marked.
PROVED = {
    "make setup": "Makefile::setup",
    "export AWS_REGION=us-east-1 AWS_DEFAULT_REGION=us-east-1": WALKTHROUGH,
    'export SUFFIX="$(aws sts get-caller-identity --query Account --output text)-$AWS_REGION"': WALKTHROUGH,
    "export TF_VAR_image_tag=\"$(.venv/bin/ocr-worker --version | cut -d' ' -f2)\"": WALKTHROUGH,
    "make image": "Makefile::image-test",
    'export REGISTRY="${SUFFIX%%-*}.dkr.ecr.$AWS_REGION.amazonaws.com"': WALKTHROUGH,
    "mkdir -p deploy": WALKTHROUGH,
    'make mwaa-publish BUCKET="pdf-ops-mwaa-$SUFFIX" TFVARS=deploy/bundle.auto.tfvars.json': WALKTHROUGH,
    ".venv/bin/python -m samples .build/samples": WALKTHROUGH,
    'aws s3 cp --recursive --no-progress .build/samples "s3://pdf-ops-input-$SUFFIX/samples/"': WALKTHROUGH,
    "export ENVIRONMENT=pdf-ops": WALKTHROUGH,
    'aws s3 ls --recursive "s3://pdf-ops-output-$SUFFIX/pages/"': WALKTHROUGH,
    "aws s3 cp --recursive --no-progress --exclude '*' --include '*/report.html' "
    '"s3://pdf-ops-manifest-$SUFFIX/manifests/runs/" .build/reports': WALKTHROUGH,
    "make mwaa AIRFLOW=3.3.1": OWN_AIRFLOW,
    'python3 -m zipfile -e dist/mwaa/plugins.zip "$AIRFLOW_HOME/plugins"': OWN_AIRFLOW,
    'cp -r dist/mwaa/dags "$AIRFLOW_HOME/"': OWN_AIRFLOW,
    "airflow dags list-import-errors --local": OWN_AIRFLOW,
    "airflow dags test pdf_ocr --conf '{\"dry_run\": true}'": OWN_AIRFLOW,
    ".venv/bin/ocr-worker doctor": (
        "tests/e2e/test_extract.py::test_doctor_names_engines_languages_and_limits"
    ),
    ".venv/bin/ocr-worker run --forever": (
        "tests/e2e/test_service.py::test_a_worker_that_runs_forever_waits_for_more_until_it_is_told_to_stop"
    ),
    "make release VERSION=1.2.3": (
        "tests/unit/scripts/test_release.py::"
        "test_a_release_sets_the_version_everywhere_builds_the_bundles_commits_and_tags"
    ),
}
RECOVERY = {
    "Objects": "tests/mwaa/test_guides.py::test_an_object_that_was_deleted_or_replaced_is_brought_back",
    "Tables": "tests/mwaa/test_guides.py::test_a_table_is_restored_under_its_own_name_with_its_index",
}
# These run whole sections.
PROVED |= {
    command.text: RECOVERY[command.section]
    for command in commands_of("disaster-recovery.md")
    if command.is_provable and command.section in RECOVERY
}
PAGES = ("deploy-mwaa.md", "deploy-airflow.md", "worker-elsewhere.md", "upgrade.md", "disaster-recovery.md")


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_guide_is_run_by_a_test_or_marked(page):
    commands = commands_of(page)

    assert commands
    for command in commands:
        assert (command.text in PROVED) == command.is_provable, f"{page}: {command.text}"


def test_every_command_that_is_said_to_be_run_is_in_a_guide_and_its_proof_exists():
    assert set(PROVED) <= {command.text for page in PAGES for command in commands_of(page)}
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    for proof in set(PROVED.values()):
        file, _, name = proof.partition("::")
        if file == "Makefile":
            assert f"\n{name}:" in makefile, proof
        else:
            assert f"def {name}" in (REPOSITORY / file).read_text(encoding="utf-8"), proof


def blocks(page: str, language: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


# Terraform ---------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("terraform") is None, reason="Terraform is not installed")
def test_the_configuration_of_the_page_about_mwaa_is_formatted():
    [configuration] = blocks("deploy-mwaa.md", "hcl")

    formatted = subprocess.run(
        ["terraform", "fmt", "-"], input=configuration, capture_output=True, text=True, check=False
    )

    assert (formatted.returncode, formatted.stdout) == (0, configuration)


def test_the_guides_name_only_modules_variables_and_outputs_that_exist():
    variables, outputs, main = (
        (TERRAFORM / f"{name}.tf").read_text(encoding="utf-8") for name in ("variables", "outputs", "main")
    )
    [configuration] = blocks("deploy-mwaa.md", "hcl")
    module = configuration.split('module "pdf_ops" {')[1].split("\n}")[0]
    pages = "\n".join((DOCS / page).read_text(encoding="utf-8") for page in PAGES)

    for name in [
        *re.findall(r"^  (\w+) +=", module, re.MULTILINE),
        *("airflow_role_name", "api_settings", "sends_events"),
    ]:
        assert name == "source" or f'variable "{name}"' in variables, name
    for name in re.findall(r"module\.pdf_ops\.module\.(\w+)", pages):
        assert f'module "{name}"' in main, name
    named = set(re.findall(r"terraform -chdir=deploy output (?:-raw )?(\w+)", pages))
    assert named | {"control_plane_policy_arn"} == set(
        re.findall(r'^output "(\w+)"', configuration, re.MULTILINE)
    )
    for name in re.findall(r"module\.pdf_ops\.(\w+)", configuration):
        assert f'output "{name}"' in outputs, name
    for name in ("plugins_version", "requirements_version", "startup_version"):
        assert name in variables


# Workers elsewhere -------------------------------------------------------------------------------


def known_settings() -> tuple[set[str], set[str]]:
    settings = settings_of(ServiceSettings)
    names = {setting.option.variable for setting in settings}
    return names, {setting.option.variable for setting in settings if setting.is_required}


def test_the_example_for_kubernetes_names_only_settings_that_exist_and_all_that_are_required():
    text = (REPOSITORY / "include" / "kubernetes" / "worker.yaml").read_text(encoding="utf-8")
    objects = {item["kind"]: item for item in yaml.safe_load_all(text)}
    names, required = known_settings()
    settings = objects["ConfigMap"]["data"]

    assert required <= set(settings) <= names
    assert all(isinstance(value, str) for value in settings.values()), "Kubernetes refuses anything else"


def test_the_example_for_kubernetes_runs_the_worker_as_its_image_is_meant_to_run():
    text = (REPOSITORY / "include" / "kubernetes" / "worker.yaml").read_text(encoding="utf-8")
    objects = {item["kind"]: item for item in yaml.safe_load_all(text)}
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    [container] = pod["containers"]

    options = build_parser().parse_args(container["args"])
    assert (options.command, options.forever) == ("run", True)
    assert pod["serviceAccountName"] == objects["ServiceAccount"]["metadata"]["name"]
    assert container["envFrom"] == [{"configMapRef": {"name": objects["ConfigMap"]["metadata"]["name"]}}]
    selector = objects["Deployment"]["spec"]["selector"]["matchLabels"]
    assert selector == objects["Deployment"]["spec"]["template"]["metadata"]["labels"]
    # What is not finished is given back before the container is killed.
    stop_timeout_s = float(objects["ConfigMap"]["data"]["STOP_TIMEOUT_S"])
    assert stop_timeout_s + 30 <= pod["terminationGracePeriodSeconds"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    [mount] = container["volumeMounts"]
    assert mount["name"] in [volume["name"] for volume in pod["volumes"]]
    assert int(objects["ConfigMap"]["data"]["MAX_WORKERS"]) == int(container["resources"]["requests"]["cpu"])


def test_the_example_for_ec2_names_only_settings_that_exist_and_all_that_are_required():
    [file] = blocks("worker-elsewhere.md", "ini")
    settings = {line.split("=")[0] for line in file.splitlines()}
    names, required = known_settings()

    assert required <= settings <= names
