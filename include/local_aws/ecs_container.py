"""A task of the local ECS as a container: ``python -m local_aws.ecs_container IMAGE COMMAND``.

The process stands for the container: its lines and its exit code are the container's, and SIGTERM stops it.
For where a Docker engine is; otherwise tasks are processes of the worker itself.
"""

from __future__ import annotations

import argparse
import os
import signal
import stat
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from local_aws.resources import load_resources
from local_aws.servers import PASSED_ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Sequence

SOCKET = Path("/var/run/docker.sock")
LABEL = "pdf-ops.task"
_SUMMARY = "Run an ECS task as a container, for as long as it lasts."


def has_engine(socket: Path = SOCKET) -> bool:
    """Whether a Docker engine's socket is there; something else in its place counts as none."""
    try:
        return stat.S_ISSOCK(socket.stat().st_mode)
    except OSError:
        return False


def command_prefix(image: str, network: str, socket: Path = SOCKET) -> list[str]:
    """What the local ECS starts for an image: the beginning of a command line."""
    module = "local_aws.ecs_container"
    return [sys.executable, "-m", module, "--socket", str(socket), "--network", network, image]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the container to its end; returns its exit code."""
    parser = argparse.ArgumentParser(description=_SUMMARY)
    parser.add_argument("--socket", type=Path, default=SOCKET)
    parser.add_argument("--network", required=True)
    parser.add_argument("image")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)

    import docker

    engine = docker.DockerClient(base_url=f"unix://{options.socket}", timeout=600)
    stop_timeout_s = load_resources().task_definition.container.stop_timeout_s
    # All that the task is told, and nothing of this process's own.
    environment = {
        name: value for name, value in os.environ.items() if name not in (*PASSED_ENVIRONMENT, "HOME")
    }
    container = engine.containers.create(
        options.image,
        options.command,
        environment=environment,
        network=options.network,
        labels={LABEL: ""},
        # As in the task definition.
        read_only=True,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
    )

    def stop(*_: object) -> None:
        threading.Thread(target=container.stop, kwargs={"timeout": stop_timeout_s}, daemon=True).start()

    try:
        signal.signal(signal.SIGTERM, stop)
        container.start()
        for chunk in container.logs(stream=True, follow=True):
            sys.stdout.buffer.write(chunk)
            sys.stdout.flush()
        return int(container.wait()["StatusCode"])
    finally:
        container.remove(force=True, v=True)


if __name__ == "__main__":
    raise SystemExit(main())
