"""The local AWS that outlives a command: the demonstration finds it again the next time.

Started as a program of its own, whose state file says where it is.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from local_aws import LocalAwsError
from local_aws.running import find_running

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from local_aws.running import Running

START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 30.0


def _running_in(data: Path) -> Running | None:
    try:
        return find_running(data)
    except LocalAwsError:
        return None


def ensure_local_aws(data: Path) -> tuple[Mapping[str, str], bool]:
    """The environment of the local AWS in a folder, and whether it had to be started.

    Raises:
        LocalAwsError: If it does not start.
    """
    running = _running_in(data)
    if running is not None:
        return running.environment, False
    data.mkdir(parents=True, exist_ok=True)
    log = data / "local-aws.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "local_aws", "up", "--data", str(data), "--port", "0", "--ecs-port", "0"],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        running = _running_in(data)
        if running is not None:
            return running.environment, True
        if process.poll() is not None:
            break
        time.sleep(0.2)
    raise LocalAwsError(f"it did not start:\n{log.read_text(encoding='utf-8', errors='replace')[-2000:]}")


def stop_local_aws(data: Path) -> bool:
    """Stop the local AWS in a folder; returns whether there was one."""
    running = _running_in(data)
    if running is None:
        return False
    os.kill(running.pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while _running_in(data) is not None and time.monotonic() < deadline:
        time.sleep(0.2)
    return True
