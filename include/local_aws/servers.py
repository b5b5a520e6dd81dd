"""A server of the local AWS as a child process: its port, its start, its end.

The parent binds the port and hands it over, so that a port in use is told at once and a free one cannot
be lost to someone else. Not for what the servers do.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

HOST = "127.0.0.1"
# Whose resources they are.
ACCOUNT = "000000000000"
_EVERYWHERE = "0.0.0.0"  # noqa: S104 -- only for one that goes by a name, and so by choice
# What a server may know of the environment: a person's own AWS settings are not in it.
PASSED_ENVIRONMENT = (
    "PATH",
    "PYTHONPATH",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "TESSDATA_PREFIX",
)
START_TIMEOUT_S = 60.0
BACKLOG = 512
_POLL_S = 0.05
_PARENT_POLL_S = 0.5
_KILL_WAIT_S = 5.0
_LOG_TAIL_CHARS = 2000
# Without the proxies that the environment may name: this machine is never behind one.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class LocalAwsError(Exception):
    """The local AWS cannot start, or is not there; the message says what to do."""


def bind(port: int, option: str, host: str = HOST) -> socket.socket:
    """Take a port, or a free one for 0: for this machine alone, unless the host has a name for others.

    Args:
        port: Which.
        host: What clients call this machine.
        option: The option that chooses another, for the message.

    Raises:
        LocalAwsError: If the port is in use or may not be taken.
    """
    taken = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        taken.bind((HOST if host == HOST else _EVERYWHERE, port))
    except (OSError, OverflowError) as error:
        taken.close()
        is_in_use = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        why = "is in use" if is_in_use else f"cannot be taken ({error})"
        raise LocalAwsError(
            f"port {port} {why}: stop what uses it, or choose another with {option} (0 takes a free one)"
        ) from None
    # From here on clients may connect; they wait until the server is there.
    taken.listen(BACKLOG)
    return taken


def get(url: str, timeout_s: float = 5.0) -> bytes:
    """Fetch from a server on this machine."""
    with _DIRECT.open(url, timeout=timeout_s) as answer:
        return bytes(answer.read())


def post(url: str, body: bytes = b"", timeout_s: float = 30.0) -> bytes:
    """Send to a server on this machine."""
    request = urllib.request.Request(url, data=body, method="POST")  # noqa: S310 -- our own http URL
    with _DIRECT.open(request, timeout=timeout_s) as answer:
        return bytes(answer.read())


class Server:
    """One server process, in a session of its own."""

    def __init__(self, name: str, log_file: Path) -> None:
        """Remember what it is called and where it logs."""
        self.name = name
        self._log_file = log_file
        self._process: subprocess.Popen[bytes] | None = None

    def start(
        self, module: str, port: socket.socket, arguments: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        """Start ``python -m module``, and hand it the port."""
        base = {name: os.environ[name] for name in PASSED_ENVIRONMENT if name in os.environ}
        descriptor = port.fileno()
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    module,
                    "--socket",
                    str(descriptor),
                    "--parent",
                    str(os.getpid()),
                    *arguments,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=base | dict(environment),
                cwd=self._log_file.parent,
                pass_fds=(descriptor,),
                start_new_session=True,
            )
        port.close()  # Only the child listens: when it dies, connections are refused and do not hang.

    @property
    def is_running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def wait_until_ready(self, url: str) -> None:
        """Wait until it answers.

        Raises:
            LocalAwsError: If it ends first, or takes too long.
        """
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
                get(url)
                return
            if not self.is_running:
                raise LocalAwsError(f"{self.name} ended at its start; its log:\n{self._log_tail()}")
            time.sleep(_POLL_S)
        raise LocalAwsError(f"{self.name} did not answer in {START_TIMEOUT_S:.0f} s:\n{self._log_tail()}")

    def stop(self, grace_s: float) -> None:
        """End it: SIGTERM, then SIGKILL for all that is left of its session."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(grace_s)
        # Tasks have groups of their own, but stay in the session: whatever became of the server, they end.
        kill_all(_session_members(process.pid))
        process.wait()
        self._process = None

    def _log_tail(self) -> str:
        return self._log_file.read_text(encoding="utf-8", errors="replace")[-_LOG_TAIL_CHARS:].strip()


def _session_members(session: int) -> list[psutil.Process]:
    members = []
    for process in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError, PermissionError, psutil.NoSuchProcess):
            if os.getsid(process.pid) == session:
                members.append(process)
    return members


def kill_all(processes: Iterable[psutil.Process]) -> None:
    """Kill each of the processes that is still there, and wait for their end."""
    doomed = list(processes)
    for process in doomed:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()  # psutil checks that the id has not been given to another.
    psutil.wait_procs(doomed, timeout=_KILL_WAIT_S)


def end_with_parent(parent: int, end: Callable[[], None]) -> None:
    """Have ``end`` called once the parent is gone, however it went: for use in a server process."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_POLL_S)
        end()

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()


def terminate_self() -> None:
    """Ask this process to end as a signal would."""
    os.kill(os.getpid(), signal.SIGTERM)
