"""The command line: ``python -m local_airflow demo``, ``up``, ``env`` or ``clean``."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from local_airflow.environment import MigrationError
from local_aws import LocalAwsError

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_PORT = 8080


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m local_airflow", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("demo", help="load samples, run the DAG once, and show what came out")
    commands.add_parser("clean", help="stop and remove what the demonstration made")
    up = commands.add_parser("up", help="start Airflow with its UI against a local AWS, until Ctrl-C")
    up.add_argument("--port", type=int, default=DEFAULT_PORT, help="port of the UI (default: %(default)s)")
    up.add_argument("--doorbell", action="store_true", help="documents that are uploaded start runs")
    commands.add_parser("env", help='print the environment of the one that is up, for eval "$(…)"')
    options = parser.parse_args(arguments)

    from rich.console import Console

    from local_airflow.demo import DemoError, clean, run_demo
    from local_airflow.up import UpError, print_environment, run_up

    console = Console()
    try:
        if options.command == "clean":
            return clean(console)
        if options.command == "env":
            return print_environment()
        if options.command == "demo":
            return run_demo(console)
        return run_up(console, port=options.port, has_doorbell=options.doorbell)
    except (DemoError, UpError, LocalAwsError, MigrationError) as error:
        print(f"local_airflow: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
