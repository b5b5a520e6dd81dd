"""Publishing the bundle for MWAA into a bucket of the local AWS, as `make mwaa-publish` does it."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from local_airflow.environment import REPOSITORY
from mwaa.bundle import BundleError, build
from mwaa.cli import main
from mwaa.publish import MANIFEST_KEY, publish

if TYPE_CHECKING:
    from pathlib import Path

    from local_aws import LocalAws


@pytest.fixture
def s3(local_aws: LocalAws) -> Any:
    return local_aws.client("s3")


@pytest.fixture
def bucket(s3: Any) -> str:
    name = f"mwaa-{uuid.uuid4().hex[:12]}"
    s3.create_bucket(Bucket=name)
    s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    return name


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    build(REPOSITORY, tmp_path / "bundle", airflow="3.3.1")
    return tmp_path / "bundle"


def keys(s3: Any, bucket: str) -> set[str]:
    return {item["Key"] for item in s3.list_objects_v2(Bucket=bucket).get("Contents", [])}


def read(s3: Any, bucket: str, key: str, **version: str) -> bytes:
    return bytes(s3.get_object(Bucket=bucket, Key=key, **version)["Body"].read())


def validated(command: str) -> dict[str, str]:
    """The parameters of an `aws mwaa update-environment` command, checked against AWS's own model."""
    import botocore.session
    from botocore.validate import validate_parameters

    words = shlex.split(command.replace("\\\n", " "))
    assert words[:3] == ["aws", "mwaa", "update-environment"]
    flags = dict(zip(words[3::2], words[4::2], strict=True))
    parameters = {
        "".join(part.capitalize() for part in flag.removeprefix("--").split("-")): value
        for flag, value in flags.items()
    }
    model = botocore.session.Session().get_service_model("mwaa").operation_model("UpdateEnvironment")
    validate_parameters(parameters, model.input_shape)
    assert set(parameters) <= set(model.input_shape.members)
    return parameters


def test_make_mwaa_publish_brings_the_bundle_into_the_bucket_and_prints_the_command(
    local_aws, s3, bucket, tmp_path
):
    environment = os.environ | local_aws.environment()
    for arguments in (
        ["build", "--out", tmp_path / "out"],
        [
            "publish",
            "--bundle",
            tmp_path / "out",
            "--bucket",
            f"s3://{bucket}/",
            "--environment",
            "production",
        ],
    ):
        ran = subprocess.run(
            [sys.executable, "-m", "mwaa", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )

    files = {
        path.relative_to(tmp_path / "out").as_posix()
        for path in (tmp_path / "out").rglob("*")
        if path.is_file()
    }
    assert keys(s3, bucket) == files - {"manifest.json"} | {MANIFEST_KEY}
    parameters = validated(ran.stdout[ran.stdout.index("aws mwaa") :])
    assert parameters["Name"] == "production"
    for name, key in (
        ("Plugins", "plugins.zip"),
        ("Requirements", "requirements.txt"),
        ("StartupScript", "startup.sh"),
    ):
        assert parameters[f"{name}S3Path"] == key
        published = read(s3, bucket, key, VersionId=parameters[f"{name}S3ObjectVersion"])
        assert published == (tmp_path / "out" / key).read_bytes()


def test_the_versions_are_written_for_terraform(local_aws, s3, bucket, bundle, tmp_path, monkeypatch, capsys):
    for name, value in local_aws.environment().items():
        monkeypatch.setenv(name, value)
    file = tmp_path / "bundle.auto.tfvars.json"

    assert main(["publish", "--bundle", str(bundle), "--bucket", bucket, "--tfvars", str(file)]) == 0

    versions = publish(bundle, bucket, s3).versions
    assert json.loads(file.read_text()) == {
        "bundle": {
            "plugins_version": versions["plugins.zip"],
            "requirements_version": versions["requirements.txt"],
            "startup_version": versions["startup.sh"],
        }
    }
    assert "terraform apply" in capsys.readouterr().out


def test_the_targets_of_make_call_that_command_line():
    ran = subprocess.run(
        [
            "make",
            "--dry-run",
            "mwaa-publish",
            "BUCKET=b",
            "ENVIRONMENT=e",
            "WHEELS=1",
            "REPLACE=1",
            "TFVARS=v.json",
        ],
        cwd=REPOSITORY,
        # Not what the make that runs this test was told.
        env={name: value for name, value in os.environ.items() if not name.startswith("MAKE")},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = re.sub(r"\\\n\s*", "", ran.stdout).splitlines()

    assert [" ".join(line.split()[1:]) for line in lines[-2:]] == [
        "-m mwaa build --airflow 3.3.1 --wheels",
        "-m mwaa publish --bucket 'b' --environment 'e' --tfvars 'v.json' --replace",
    ]


def test_publishing_the_same_bundle_again_writes_nothing_and_names_the_same_versions(s3, bucket, bundle):
    first = publish(bundle, bucket, s3)
    again = publish(bundle, bucket, s3)

    assert first.needs_update
    assert "plugins.zip" in first.uploaded
    assert (again.uploaded, again.needs_update) == ((), False)
    assert set(again.unchanged) == set(first.uploaded)
    assert again.versions == first.versions


def test_a_change_uploads_what_changed_and_removes_what_is_gone(s3, bucket, bundle, tmp_path):
    s3.put_object(Bucket=bucket, Key="dags/theirs.py", Body=b"# of another team")
    first = publish(bundle, bucket, s3)
    (tmp_path / "root" / "dags").mkdir(parents=True)
    for name in ("plugins", "include", "locks", "pyproject.toml", "requirements.txt"):
        (tmp_path / "root" / name).symlink_to(REPOSITORY / name)
    (tmp_path / "root" / "dags" / "renamed.py").write_text("# in place of all others\n")
    build(tmp_path / "root", bundle, airflow="3.3.1")

    second = publish(bundle, bucket, s3)

    assert second.uploaded == ("dags/renamed.py",)
    assert set(second.removed) == {key for key in first.uploaded if key.startswith("dags/")}
    assert not second.needs_update, "the environment finds changed DAGs by itself"
    assert {key for key in keys(s3, bucket) if key.startswith("dags/")} == {
        "dags/renamed.py",
        "dags/theirs.py",
    }


def test_what_another_team_has_in_the_bucket_is_not_overwritten_unless_told(s3, bucket, bundle):
    s3.put_object(Bucket=bucket, Key="requirements.txt", Body=b"theirs")

    with pytest.raises(BundleError, match=r"has requirements\.txt, which pdf_ops did not put there"):
        publish(bundle, bucket, s3)
    assert keys(s3, bucket) == {"requirements.txt"}

    publish(bundle, bucket, s3, replaces=True)
    assert read(s3, bucket, "requirements.txt") == (bundle / "requirements.txt").read_bytes()


def test_a_publication_that_was_interrupted_is_completed_by_the_next(s3, bucket, bundle):
    first = publish(bundle, bucket, s3)
    for key in ("plugins.zip", MANIFEST_KEY):
        s3.delete_object(Bucket=bucket, Key=key)

    assert publish(bundle, bucket, s3).uploaded == ("plugins.zip",)
    assert keys(s3, bucket) == {*first.uploaded, MANIFEST_KEY}


def test_a_bucket_without_versions_is_refused_with_the_command_that_helps(s3, bucket, bundle):
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Suspended"})

    with pytest.raises(BundleError, match="aws s3api put-bucket-versioning"):
        publish(bundle, bucket, s3)


def test_a_bucket_that_is_not_there_is_said_to_be_missing(s3, bundle):
    with pytest.raises(BundleError, match="cannot be used"):
        publish(bundle, f"none-{uuid.uuid4().hex[:12]}", s3)
