"""``pdf-ops``: the control plane for people without a browser. Not the worker: that is ``ocr-worker``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pdf_ops.commands import api, doctor, redrive, runs, search
from pdf_ops.commands.session import EXIT_CODES, run_command

if TYPE_CHECKING:
    from collections.abc import Sequence

# In the order of the help; each module adds its commands.
GROUPS = (
    runs,
    redrive,
    search,
    doctor,
    api,
)


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="pdf-ops",
        description="Watch runs, see what failed, send it round again, check the deployment.",
        epilog="Settings are Airflow's: AIRFLOW__PDF_OPS__INPUT_S3_BUCKET and so on; AWS credentials are "
        f"those of the AWS CLI. {EXIT_CODES}.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for group in GROUPS:
        group.add_to(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; gives the exit code."""
    return run_command(build_parser().parse_args(arguments))


if __name__ == "__main__":
    raise SystemExit(main())
