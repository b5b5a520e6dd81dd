"""docker-compose.yaml brought up for a test: by compose itself, or service by service where only podman runs.

In the second way each service runs its own image, command, environment and health check, as compose resolves
them, all on one loopback where every service's name leads; PostgreSQL and Redis are Debian's.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.support.containers import Engine

REPOSITORY = Path(__file__).resolve().parents[2]
FILE = REPOSITORY / "docker-compose.yaml"
OUR_IMAGES = ("pdf-ops-local:", "pdf-ops-worker:")
DEBIAN = ("postgres", "redis")
START_TIMEOUT_S = 300.0
_POLL_S = 2.0


class Stack(Protocol):
    """The services that are up."""

    def check(self, service: str) -> subprocess.CompletedProcess[str]:
        """Run a service's own health check once."""

    def start(self, service: str) -> None:
        """Start one that a profile keeps out."""

    def stop(self, service: str) -> int:
        """Stop one as compose does; returns its exit code."""

    def logs(self, service: str) -> str:
        """What it has printed."""


@dataclass(frozen=True)
class Compose:
    """The compose file under a Docker engine."""

    command: Sequence[str]

    def call(self, *arguments: str, is_checked: bool = True) -> subprocess.CompletedProcess[str]:
        ran = subprocess.run(
            [*self.command, *arguments], capture_output=True, text=True, check=False, cwd=REPOSITORY
        )
        assert not is_checked or ran.returncode == 0, f"{arguments}: {ran.stdout}{ran.stderr}"
        return ran

    def check(self, service: str) -> subprocess.CompletedProcess[str]:
        return self.call(
            "exec", "-T", service, *health_command(resolve(self.command)[service]), is_checked=False
        )

    def start(self, service: str) -> None:
        self.call("up", "--detach", "--no-build", service)

    def stop(self, service: str) -> int:
        self.call("stop", service)
        shown = self.call("ps", "--all", "--format", "{{.ExitCode}}", service)
        return int(shown.stdout)

    def logs(self, service: str) -> str:
        return self.call("logs", "--no-log-prefix", service).stdout


@dataclass(frozen=True)
class Services:
    """The services one by one."""

    engine: Engine
    services: Mapping[str, Mapping[str, Any]]
    folder: Path

    def name(self, service: str) -> str:
        return f"{self.folder.name}-{service}"

    def start(self, service: str) -> None:
        definition = self.services[service]
        hosts = [f"--add-host={name}:127.0.0.1" for name in self.services]
        variables = [f"--env={name}={value}" for name, value in definition.get("environment", {}).items()]
        volumes = [f"--volume={self._mount(one)}" for one in definition.get("volumes", [])]
        hardening = self.engine.hardening() if definition.get("read_only") else []
        self.engine.call(
            *("run", "--detach", f"--name={self.name(service)}", f"--hostname={service}", "--network=host"),
            *(
                *hosts,
                *variables,
                *volumes,
                *hardening,
                definition["image"],
                *map(_unescaped, definition["command"]),
            ),
        )

    def _mount(self, volume: str) -> str:
        source, _, rest = volume.partition(":")
        return volume if source.startswith("/") else f"{self.name(source)}:{rest}"

    def check(self, service: str) -> subprocess.CompletedProcess[str]:
        command = health_command(self.services[service])
        if service in DEBIAN:
            return subprocess.run(command, capture_output=True, text=True, check=False, env=_with_postgres())
        return self.engine.call("exec", self.name(service), *command, is_checked=False)

    def wait_for_end(self, service: str) -> int:
        return int(self.engine.call("wait", self.name(service)).stdout)

    def stop(self, service: str) -> int:
        grace_s = str(self.services[service].get("stop_grace_period", "10s"))
        self.engine.call("stop", "--time", str(_seconds(grace_s)), self.name(service))
        return self.wait_for_end(service)

    def logs(self, service: str) -> str:
        shown = self.engine.call("logs", self.name(service), is_checked=False)
        return shown.stdout + shown.stderr


@contextlib.contextmanager
def compose_up(command: Sequence[str]) -> Iterator[Stack]:
    """All services but those of profiles, brought up by compose and found healthy by it."""
    compose = Compose(command)
    try:
        compose.call("up", "--detach", "--wait", "--no-build")
        yield compose
    finally:
        compose.call("--profile", "*", "down", "--volumes", "--timeout", "60", is_checked=False)


@contextlib.contextmanager
def services_up(engine: Engine, command: Sequence[str], folder: Path) -> Iterator[Stack]:
    """The same without compose, in the order in which they wait for each other."""
    services = resolve(command)
    stack = Services(engine, services, folder)
    wanted = [name for name, one in services.items() if "profiles" not in one]
    with contextlib.ExitStack() as natives:
        natives.enter_context(_redis(services["redis"], folder))
        natives.enter_context(_postgres(services["postgres"], folder))
        try:
            for name in DEBIAN:
                wait_until_healthy(stack, name)
            while waiting := [name for name in wanted if name not in DEBIAN]:
                for name in waiting:
                    if not set(services[name].get("depends_on", {})) & set(waiting):
                        wanted.remove(name)
                        stack.start(name)
                        _wait_for(stack, name, services)
                        break
            yield stack
        finally:
            _remove(stack)


def _wait_for(stack: Services, name: str, services: Mapping[str, Mapping[str, Any]]) -> None:
    """Wait as others ask for it: until it is healthy, or has done its work."""
    conditions = {one.get("depends_on", {}).get(name, {}).get("condition") for one in services.values()}
    if "service_completed_successfully" in conditions:
        assert stack.wait_for_end(name) == 0, stack.logs(name)
    elif "service_healthy" in conditions:
        wait_until_healthy(stack, name)


def _remove(stack: Services) -> None:
    for service in stack.services:
        if service not in DEBIAN:
            stack.engine.call("rm", "--force", "--volumes", stack.name(service), is_checked=False)
    listed = stack.engine.call("volume", "ls", "--quiet").stdout.split()
    for volume in listed:
        if volume.startswith(stack.folder.name):
            stack.engine.call("volume", "rm", "--force", volume, is_checked=False)


def wait_until_healthy(stack: Stack, service: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while (ran := stack.check(service)).returncode != 0:
        assert time.monotonic() < deadline, (
            f"{service}: {ran.stdout}{ran.stderr}\n{stack.logs(service)[-3000:]}"
        )
        time.sleep(_POLL_S)


def resolve(command: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The services as compose sees them, variables filled in and anchors merged; all profiles."""
    ran = subprocess.run(
        [*command, "--profile", "worker", "--profile", "opensearch", "config"],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
    )
    assert ran.returncode == 0, ran.stderr
    services: dict[str, dict[str, Any]] = yaml.safe_load(ran.stdout)["services"]
    return services


def health_command(service: Mapping[str, Any]) -> list[str]:
    """A service's health check as a command line."""
    (form, *command) = map(_unescaped, service["healthcheck"]["test"])
    return ["/bin/sh", "-c", *command] if form == "CMD-SHELL" else command


def _unescaped(text: str) -> str:
    """A dollar as it is meant: where compose is to leave one alone, the file has two."""
    return text.replace("$$", "$")


def _seconds(text: str) -> int:
    minutes, _, seconds = text.rpartition("m")
    return int(minutes or 0) * 60 + int(seconds.removesuffix("s") or 0)


def _with_postgres() -> dict[str, str]:
    """The environment in which PostgreSQL's programs are found; Debian has them in a folder of their own."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return os.environ | {"PATH": ":".join([*map(str, folders[-1:]), os.environ["PATH"]])}


@contextlib.contextmanager
def _redis(service: Mapping[str, Any], folder: Path) -> Iterator[None]:
    with (folder / "redis.log").open("wb") as log:
        process = subprocess.Popen(service["command"], stdout=log, stderr=log, cwd=folder)
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)


@contextlib.contextmanager
def _postgres(service: Mapping[str, Any], folder: Path) -> Iterator[None]:
    """A cluster with the user, password and database that the image would make from the same variables."""
    variables = service["environment"]
    # Its user must reach it, and the path of a socket must be short.
    data = Path("/tmp") / folder.name
    data.mkdir(mode=0o700)
    (password := data / "password").write_text(variables["POSTGRES_PASSWORD"], encoding="utf-8")
    become: list[str] = []
    if os.geteuid() == 0:  # It refuses to run as root.
        shutil.chown(data, "postgres", "postgres")
        shutil.chown(password, "postgres", "postgres")
        become = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    user = variables["POSTGRES_USER"]
    cluster = data / "cluster"
    options = ["--auth=scram-sha-256", f"--username={user}", f"--pwfile={password}", f"--pgdata={cluster}"]
    run = {"env": _with_postgres(), "cwd": data}
    subprocess.run([*become, "initdb", *options], check=True, capture_output=True, **run)
    with (folder / "postgres.log").open("wb") as log:
        server = ["postgres", "-D", str(cluster), "-h", "127.0.0.1", "-k", str(data)]
        process = subprocess.Popen([*become, *server], stdout=log, stderr=log, **run)
        try:
            create = ["createdb", "--host=127.0.0.1", f"--username={user}", variables["POSTGRES_DB"]]
            login = {"PGPASSWORD": variables["POSTGRES_PASSWORD"]}
            deadline = time.monotonic() + 60
            while subprocess.run(
                create, check=False, capture_output=True, env=_with_postgres() | login
            ).returncode:
                assert time.monotonic() < deadline, (folder / "postgres.log").read_text()
                time.sleep(0.5)
            yield
        finally:
            process.terminate()  # Waits for nobody but those who are connected.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()
            shutil.rmtree(data, ignore_errors=True)
