"""One command, measured whole: clock, CPU and peak memory of its process tree."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

SAMPLE_S = 0.05
LOG = Path(".build/bench/output.log")


class CommandFailedError(Exception):
    """A contender did not do its work."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a command used."""

    wall_s: float
    cpu_s: float
    peak_rss_bytes: int


def run(command: list[str], *, env: dict[str, str] | None = None, accepted: tuple[int, ...] = (0,)) -> Usage:
    """Run a command to its end; the kernel counts the CPU of all its descendants."""
    with LOG.open("wb") as log:
        began = time.perf_counter()
        process = subprocess.Popen(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=os.environ | (env or {})
        )
        peak = _PeakMemory(process.pid)
        peak.start()
        _, status, used = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        peak.stop()
    if process.returncode not in accepted:
        tail = LOG.read_text(errors="replace")[-2000:]
        raise CommandFailedError(f"{' '.join(command[:4])} … ended with {process.returncode}:\n{tail}")
    return Usage(wall_s, used.ru_utime + used.ru_stime, peak.bytes)


class _PeakMemory(threading.Thread):
    """Samples the resident memory of a process tree; shared pages count for each process."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._root = psutil.Process(pid)
        self._is_over = threading.Event()
        self.bytes = 0

    def run(self) -> None:
        while not self._is_over.wait(SAMPLE_S):
            total = 0
            try:
                tree = [self._root, *self._root.children(recursive=True)]
            except psutil.Error:
                return
            for process in tree:
                try:
                    total += process.memory_info().rss
                except psutil.Error:
                    continue
            self.bytes = max(self.bytes, total)

    def stop(self) -> None:
        self._is_over.set()
        self.join()
