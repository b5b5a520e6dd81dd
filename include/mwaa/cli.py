"""The command line: ``python -m mwaa build`` and ``publish``, which ``make`` calls.

Exit codes: 0 it is done, 1 it could not be, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mwaa.bundle import AIRFLOW_VERSIONS, BundleError, build
from mwaa.publish import publish

if TYPE_CHECKING:
    from collections.abc import Sequence

REPOSITORY = Path(__file__).resolve().parents[2]
DEFAULT_OUT = Path("dist/mwaa")


def build_parser() -> argparse.ArgumentParser:
    """The arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m mwaa", description="Build what Amazon MWAA takes, and bring it into the bucket."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    build_command = commands.add_parser(
        "build",
        help="build plugins.zip, dags/, requirements.txt, startup.sh and manifest.json",
        description="Build the bundle. The same sources give the same bytes.",
    )
    build_command.add_argument(
        "--airflow",
        choices=AIRFLOW_VERSIONS,
        default=AIRFLOW_VERSIONS[0],
        help="the environment's version of Airflow (default: %(default)s)",
    )
    build_command.add_argument(
        "--wheels",
        action="store_true",
        help="bring the packages along, for a private web server that reaches no package index",
    )
    build_command.add_argument("--out", type=Path, default=DEFAULT_OUT, help="(default: %(default)s)")
    publish_command = commands.add_parser(
        "publish",
        help="bring the bundle into the environment's bucket",
        description="Upload what changed, and print the command that makes the environment take it. "
        "AWS_ENDPOINT_URL, AWS_PROFILE and the like work as with any AWS tool.",
    )
    publish_command.add_argument("--bundle", type=Path, default=DEFAULT_OUT, help="(default: %(default)s)")
    publish_command.add_argument("--bucket", required=True, help="the environment's bucket")
    publish_command.add_argument(
        "--environment", default="ENVIRONMENT", help="the environment's name, for the command that is printed"
    )
    publish_command.add_argument(
        "--tfvars",
        type=Path,
        metavar="FILE",
        help="write the versions for Terraform, such as deploy/bundle.auto.tfvars.json",
    )
    publish_command.add_argument(
        "--replace", action="store_true", help="also overwrite objects that pdf_ops did not put there"
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    options = build_parser().parse_args(arguments)
    try:
        if options.command == "build":
            _build(options)
        else:
            _publish(options)
    except BundleError as error:
        print(f"mwaa: {error}", file=sys.stderr)
        return 1
    return 0


def _build(options: argparse.Namespace) -> None:
    manifest = build(REPOSITORY, options.out, airflow=options.airflow, has_wheels=options.wheels)
    for file in manifest.files:
        print(f"{file.sha256[:12]}  {file.size_bytes:>10,} bytes  {options.out / file.path}")
    print(f"pdf_ops {manifest.version} for Airflow {manifest.airflow} is in {options.out}")


def _publish(options: argparse.Namespace) -> None:
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    bucket = options.bucket.removeprefix("s3://").rstrip("/")
    if not bucket:
        raise BundleError("into which bucket? make mwaa-publish BUCKET=my-mwaa-bucket")
    try:
        published = publish(options.bundle, bucket, boto3.client("s3"), replaces=options.replace)
    except (BotoCoreError, ClientError) as error:
        raise BundleError(f"S3 refused, and part of it may be missing; publish again: {error}") from error
    for what in ("uploaded", "unchanged", "removed"):
        for key in getattr(published, what):
            print(f"{what:<9}  s3://{bucket}/{key}")
    if published.needs_update:
        print("\nMake the environment take it; it restarts, which takes 10 to 30 minutes:")
    else:
        print("\nThe environment needs no update, and takes changed DAGs by itself. Should it be behind:")
    if options.tfvars:
        options.tfvars.write_text(
            json.dumps(published.terraform_variables(), indent=2) + "\n", encoding="utf-8"
        )
        print(f"\nterraform apply, with the versions in {options.tfvars}")
    else:
        print(f"\n{published.update_command(options.environment)}")
