"""``airflow standalone`` that ends with all its processes when it is told to, or when its parent is gone.

Started by ``local_airflow.up`` as ``python -m local_airflow.standalone PARENT``, in a session of its own.
Without it, an Airflow whose parent was killed would stay behind, and hold its port.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading

import psutil

from local_airflow.environment import airflow_program
from local_aws.servers import end_with_parent, kill_all

# Longer than Airflow needs with nothing to do: what a task was doing is of no use after the end.
GRACE_S = 10.0
_POLL_S = 0.2


def main() -> int:
    """Run Airflow until it ends, a signal comes, or the parent is gone; returns Airflow's exit code."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    end_with_parent(int(sys.argv[1]), stop.set)
    airflow = subprocess.Popen([airflow_program(), "standalone"])
    while airflow.poll() is None and not stop.wait(_POLL_S):
        pass
    if airflow.poll() is None:
        airflow.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            airflow.wait(GRACE_S)
    # Tasks have process groups of their own, but stay in the session.
    kill_all(_others_of_our_session())
    return airflow.wait()


def _others_of_our_session() -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if process.pid != os.getpid() and os.getsid(process.pid) == os.getsid(0):
                found.append(process)
    return found


if __name__ == "__main__":
    raise SystemExit(main())
