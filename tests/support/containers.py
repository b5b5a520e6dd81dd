"""Running our images in tests, with docker or podman: hardened as deployed, on this machine's network."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SCRATCH = "/scratch"
HARDENED = ("--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges")


class Engine:
    """A container engine, by its command."""

    def __init__(self, command: str) -> None:
        self.command = command
        self._is_podman = Path(command).name == "podman"
        # Compose talks to Docker's socket.
        self.has_compose = Path(command).name == "docker"

    def call(self, *arguments: str, is_checked: bool = True) -> subprocess.CompletedProcess[str]:
        ran = subprocess.run([self.command, *arguments], capture_output=True, text=True, check=False)
        assert not is_checked or ran.returncode == 0, f"{arguments}: {ran.stdout}{ran.stderr}"
        return ran

    @contextlib.contextmanager
    def socket(self, folder: Path) -> Iterator[Path]:
        """Where it speaks Docker's API: podman is asked to, docker always does."""
        if not self._is_podman:
            yield Path("/var/run/docker.sock")
            return
        place = folder / "engine.sock"
        server = subprocess.Popen(
            [self.command, "system", "service", "--time=0", f"unix://{place}"], stderr=subprocess.DEVNULL
        )
        try:
            deadline = time.monotonic() + 30
            while not place.exists():
                assert time.monotonic() < deadline, "podman does not serve its API"
                time.sleep(0.1)
            yield place
        finally:
            server.terminate()
            server.wait(30)

    def inspect_image(self, image: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.call("image", "inspect", image).stdout)[0]
        return found

    def hardening(self) -> list[str]:
        # podman, unlike docker, gives a read-only container writable temporary folders unless told not to.
        return [*HARDENED, *(["--read-only-tmpfs=false"] if self._is_podman else [])]

    def run(self, image: str, *command: str, entry_point: str | None = None, **variables: str) -> Any:
        """Run a command to its end; what it printed and its exit code."""
        chosen = ["--entrypoint", entry_point] if entry_point is not None else []
        return self.call(
            *("run", "--rm", "--network=host", *self.hardening(), *_variables(variables), *chosen),
            *(image, *command),
            is_checked=False,
        )


class Container:
    """One container with a scratch volume of its own, from ``with`` to the end of the block."""

    def __init__(self, engine: Engine, image: str, variables: Mapping[str, str], *command: str) -> None:
        self._engine, self._image = engine, image
        self._name = f"pdf-ops-test-{uuid.uuid4().hex[:12]}"
        self._arguments = [*_variables(variables), image, *command]

    def __enter__(self) -> Self:
        mount = f"--volume={self._name}:{SCRATCH}"
        options = (f"--name={self._name}", "--network=host", mount, *self._engine.hardening())
        self._engine.call("run", "--detach", *options, *self._arguments)
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.call("rm", "--force", "--volumes", self._name, is_checked=False)
        self._engine.call("volume", "rm", "--force", self._name, is_checked=False)

    def processes(self) -> list[psutil.Process]:
        """All that run in it, as this machine sees them."""
        first = psutil.Process(int(self._state()["Pid"]))
        return [first, *first.children(recursive=True)]

    def _state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._engine.call("inspect", self._name).stdout)[0]["State"]
        return found

    def started_at(self) -> str:
        return str(self._state()["StartedAt"])

    def execute(self, *command: str) -> subprocess.CompletedProcess[str]:
        return self._engine.call("exec", self._name, *command, is_checked=False)

    def stop(self, timeout_s: int) -> None:
        """As ECS does: the image's stop signal, and after the timeout SIGKILL."""
        self._engine.call("stop", "--time", str(timeout_s), self._name)

    def wait(self) -> int:
        """Wait for its end; returns its exit code."""
        return int(self._engine.call("wait", self._name).stdout)

    def log(self) -> list[dict[str, Any]]:
        shown = self._engine.call("logs", self._name)
        return [
            json.loads(line) for line in (shown.stdout + shown.stderr).splitlines() if line.startswith("{")
        ]

    def wait_for_event(self, event: str, timeout_s: float = 60.0) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for found in self.log():
                if found.get("event") == event:
                    return found
            time.sleep(0.1)
        raise AssertionError(f"no {event} within {timeout_s:.0f} s: {self.log()}")

    def scratch(self) -> list[str]:
        """What lies in its scratch volume, seen by another container."""
        ran = self._engine.call(
            *("run", "--rm", f"--volume={self._name}:{SCRATCH}", "--entrypoint=/bin/ls"),
            *(self._image, "-A", SCRATCH),
        )
        return ran.stdout.split()


def _variables(variables: Mapping[str, str]) -> list[str]:
    return [f"--env={name}={value}" for name, value in variables.items()]
