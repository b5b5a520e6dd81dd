"""The command line: ``python -m local_aws up`` and ``env``.

Exit codes: 0 it was stopped, 1 it is not there or stopped by itself, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from local_aws.ecs_container import SOCKET, command_prefix, has_engine
from local_aws.ecs_tasks import WORKER_IMAGE
from local_aws.running import (
    DEFAULT_DATA,
    DEFAULT_ECS_PORT,
    DEFAULT_PORT,
    DEFAULT_REGION,
    LocalAws,
    find_running,
)
from local_aws.servers import HOST, LocalAwsError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_WATCH_S = 1.0


def build_parser() -> argparse.ArgumentParser:
    """The arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m local_aws",
        description="S3, SQS, DynamoDB, CloudWatch Logs, Secrets Manager and ECS on this machine.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    up = commands.add_parser(
        "up",
        help="start it, and run until Ctrl-C",
        description="Start it with the resources of include/resources.json, print how to use it, and run "
        "until Ctrl-C. ECS tasks run as processes of this machine, unless told otherwise. What is in it is "
        "gone when it stops.",
        epilog='LOCAL_AWS_IMAGES={"NAME": ["COMMAND", "ARGUMENT"]} adds images that ECS tasks may use.',
    )
    up.add_argument(
        "--port",
        type=int,
        default=DEFAULT_PORT,
        help="port of all services but ECS; 0 takes a free one (default: %(default)s)",
    )
    up.add_argument(
        "--ecs-port",
        type=int,
        default=DEFAULT_ECS_PORT,
        help="port of ECS; 0 takes a free one (default: %(default)s)",
    )
    up.add_argument("--region", default=DEFAULT_REGION, help="region to be (default: %(default)s)")
    up.add_argument(
        "--host",
        default=HOST,
        metavar="NAME",
        help="what clients call this machine; a name also lets other machines in (default: %(default)s)",
    )
    up.add_argument(
        "--task-image",
        metavar="IMAGE",
        help=f"run the worker's tasks as containers of this image where a Docker engine is at {SOCKET}",
    )
    up.add_argument(
        "--task-network", default="host", metavar="NAME", help="their network (default: %(default)s)"
    )
    env = commands.add_parser(
        "env",
        help="print the environment of the one that runs",
        description='Print the variables of the one that runs: eval "$(python -m local_aws env)".',
    )
    for command in (up, env):
        command.add_argument(
            "--data",
            type=Path,
            default=DEFAULT_DATA,
            metavar="DIR",
            help="folder for its logs, the output of tasks, and its state file (default: %(default)s)",
        )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    options = build_parser().parse_args(arguments)
    try:
        if options.command == "env":
            print(export_lines(find_running(options.data).environment))
            return 0
        return _up(options)
    except (LocalAwsError, ValueError) as error:
        print(f"local_aws: {error}", file=sys.stderr)
        return 1


def _up(options: argparse.Namespace) -> int:
    stop = threading.Event()
    # Before the start, so that a signal during it ends in an orderly way too.
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, lambda *_: stop.set())
    images = {}
    if options.task_image and has_engine():
        images[WORKER_IMAGE] = command_prefix(options.task_image, options.task_network)
    aws = LocalAws(
        options.data,
        port=options.port,
        ecs_port=options.ecs_port,
        region=options.region,
        host=options.host,
        images=images,
    )
    with aws:
        print(describe(aws), flush=True)
        while aws.is_running and not stop.wait(_WATCH_S):
            pass
        if stop.is_set():
            print("\nstopping, tasks first ...", flush=True)
            return 0
    raise LocalAwsError(f"a server ended by itself; its log is in {aws.data}")


def describe(aws: LocalAws) -> str:
    """What a person who has just started it wants to know."""
    addresses = {
        "S3, SQS, DynamoDB, CloudWatch Logs, Secrets Manager": aws.endpoint_url,
        "ECS, whose tasks are processes or containers of this machine": aws.ecs_endpoint_url,
        "logs, and what tasks print": str(aws.data),
    }
    width = max(map(len, addresses)) + 3
    lines = [f"  {what:<{width}}{where}" for what, where in addresses.items()]
    return "\n".join(
        [
            "The local AWS is up. Ctrl-C stops it, and what is in it is gone.",
            "",
            *lines,
            "",
            "In another terminal, these lines, or",
            f'  eval "$({shlex.join([sys.executable, "-m", "local_aws", "env", "--data", str(aws.data)])})"',
            "",
            export_lines(aws.environment()),
        ]
    )


def export_lines(environment: Mapping[str, str]) -> str:
    """The variables as a shell takes them."""
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in environment.items())
