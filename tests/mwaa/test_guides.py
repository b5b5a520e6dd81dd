"""The guides, followed: their commands are taken from the pages and run in a shell against the local AWS.

What only an account has, the tests put in its place: buckets that Terraform would make, and an
environment installed as MWAA does it. Folders that a reader makes are made in a temporary one.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from tests.support.guides import Command, commands_of
from tests.support.mwaa import own_environment
from tests.support.pipeline import Pipeline, run_program
from tests.support.slack import SlackEndpoint

from local_airflow.environment import REPOSITORY, airflow_environment
from mwaa.bundle import AIRFLOW_VERSIONS
from pdf_ops.contract.attributes import item_of, values_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.support.mwaa import MwaaInstall

    from local_aws import LocalAws

pytestmark = pytest.mark.timeout(900)

AWS_CLI = REPOSITORY / ".venv-aws-cli" / "bin"
SUFFIX = "000000000000-us-east-1"
# Each has a target, and tests, of its own.
ELSEWHERE = {"make setup", "make image"}
RUN = "7. A run"


@pytest.fixture
def environment(mwaa_install: Callable[[str], MwaaInstall]) -> MwaaInstall:
    return mwaa_install(AIRFLOW_VERSIONS[0])


def shell(local_aws: LocalAws) -> dict[str, str]:
    """The environment of a reader's shell: with the AWS CLI, and the local AWS for AWS."""
    return os.environ | local_aws.environment() | {"PATH": f"{AWS_CLI}{os.pathsep}{os.environ['PATH']}"}


def follow(commands: list[Command], folder: Path, variables: Mapping[str, str]) -> str:
    """Run the commands that are not marked, one after another; returns what they printed."""
    script = "\n".join(
        command.text for command in commands if command.is_provable and command.text not in ELSEWHERE
    )
    for made in ("deploy", ".build"):
        script = re.sub(rf"(?<![\w/-]){re.escape(made)}\b", shlex.quote(str(folder / made)), script)
    # A reader's make is not the one that runs these tests, perhaps for another version of Airflow.
    reader = {name: value for name, value in variables.items() if not name.startswith("MAKE")}
    return run_program(["bash", "-euo", "pipefail", "-c", script], reader)


def test_the_page_about_mwaa_leads_from_an_empty_bucket_to_rows(environment, local_aws: LocalAws, tmp_path):
    commands = commands_of("deploy-mwaa.md")
    sections = list(dict.fromkeys(command.section for command in commands))
    before = [command for command in commands if sections.index(command.section) < sections.index(RUN)]
    after = [command for command in commands if command.section == RUN or command.text.startswith("export ")]
    variables = shell(local_aws)
    s3 = local_aws.client("s3")
    buckets = {name: f"pdf-ops-{name}-{SUFFIX}" for name in ("input", "output", "manifest", "mwaa")}
    for bucket in buckets.values():
        s3.create_bucket(Bucket=bucket)
    s3.put_bucket_versioning(Bucket=buckets["mwaa"], VersioningConfiguration={"Status": "Enabled"})

    follow(before, tmp_path, variables)

    assert (tmp_path / "deploy" / "bundle.auto.tfvars.json").exists()
    for file in environment.manifest.files:
        published = s3.head_object(Bucket=buckets["mwaa"], Key=file.path)["Metadata"]["pdf-ops-sha256"]
        assert published == file.sha256, "the environment has what was published"
    settings = {
        "INPUT_S3_BUCKET": buckets["input"],
        "OUTPUT_S3_BUCKET": buckets["output"],
        "OUTPUT_S3_PREFIX": "",
        "MANIFEST_S3_BUCKET": buckets["manifest"],
        "MANIFEST_S3_KEY": "manifests/",
    }
    with SlackEndpoint() as slack, Pipeline(local_aws, environment, slack, **settings) as world:
        run = world.run(limit=100)
        assert run.exit_code == 0, run.output[-10_000:]

    printed = follow(after, tmp_path, variables)

    assert re.search(r"pages/run_date=\S+\.parquet", printed)
    [report] = (tmp_path / ".build" / "reports").rglob("report.html")
    assert "contracts/letter.pdf" in "".join(
        item["Key"] for item in s3.list_objects_v2(Bucket=buckets["input"])["Contents"]
    )
    assert "<html" in report.read_text(encoding="utf-8")


def test_the_page_about_any_airflow_leads_to_a_dry_run(environment, local_aws: LocalAws, tmp_path):
    home = environment.home()
    variables = airflow_environment(home, local_aws.environment())
    for name in ("AIRFLOW__CORE__DAGS_FOLDER", "AIRFLOW__CORE__PLUGINS_FOLDER"):
        del variables[name]  # Airflow's own: those below its home
    variables |= {"PYTHONPATH": "", "PATH": f"{environment.bin}{os.pathsep}{variables['PATH']}"}

    printed = follow(commands_of("deploy-airflow.md"), tmp_path, variables)

    assert (home / "plugins" / ".airflowignore").exists()
    assert "dry run: 0 documents" in printed or "nothing to do" in printed
    assert "state=success" in printed


def section_of(page: str, section: str) -> list[Command]:
    return [command for command in commands_of(page) if command.section == section]


def test_an_object_that_was_deleted_or_replaced_is_brought_back(local_aws: LocalAws, tmp_path):
    s3, bucket, key = local_aws.client("s3"), "recovery", "pages/a.parquet"
    s3.create_bucket(Bucket=bucket)
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    old = s3.put_object(Bucket=bucket, Key=key, Body=b"old")["VersionId"]
    s3.put_object(Bucket=bucket, Key=key, Body=b"new")
    marker = s3.delete_object(Bucket=bucket, Key=key)["VersionId"]
    given = {"BUCKET": bucket, "KEY": key, "DELETE_MARKER": marker, "OLD_VERSION": old}
    [listing, undelete, restore] = section_of("disaster-recovery.md", "Objects")
    variables = shell(local_aws) | given

    assert {old, marker} <= set(re.findall(r'"VersionId": "(.+?)"', follow([listing], tmp_path, variables)))
    follow([undelete], tmp_path, variables)
    assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == b"new"
    follow([restore], tmp_path, variables)
    assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == b"old"


def test_a_table_is_restored_under_its_own_name_with_its_index(local_aws: LocalAws, tmp_path):
    dynamodb, table = local_aws.client("dynamodb"), "pdf-ops-state"
    dynamodb.update_continuous_backups(
        TableName=table, PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True}
    )
    dynamodb.update_table(TableName=table, DeletionProtectionEnabled=True)
    item = {"s3_key": "a.pdf", "status": "done", "listing_shard": "done#0", "listing_key": "2026#a"}
    dynamodb.put_item(TableName=table, Item=item_of(item))
    moment = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")

    follow(section_of("disaster-recovery.md", "Tables"), tmp_path, shell(local_aws) | {"MOMENT": moment})

    found = dynamodb.query(
        TableName=table,
        IndexName="listing",
        KeyConditionExpression="listing_shard = :shard",
        ExpressionAttributeValues={":shard": {"S": "done#0"}},
    )["Items"]
    assert [values_of(one)["s3_key"] for one in found] == ["a.pdf"]
    assert f"{table}-restored" not in dynamodb.list_tables()["TableNames"]


@pytest.mark.parametrize(
    "command",
    [
        command.text
        for command in commands_of("deploy-mwaa.md")
        if command.text.startswith("aws mwaa") and not command.is_provable
    ],
)
def test_what_can_only_be_sent_to_a_real_environment_is_at_least_what_the_aws_cli_takes(command):
    checked = f"ENVIRONMENT=pdf-ops; {command} --generate-cli-skeleton output"
    variables = {"PATH": f"{AWS_CLI}{os.pathsep}{os.environ['PATH']}", "AWS_DEFAULT_REGION": "us-east-1"}

    ran = subprocess.run(
        ["bash", "-euc", checked],
        env=own_environment() | variables,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    assert "RestApiStatusCode" in ran.stdout
