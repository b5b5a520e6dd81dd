"""What a page process may use: memory, CPU time, files; and that it dies with its parent.

Applied by the page process to itself before it sees a document: a bound on what a hostile file can
make the engines use. What they may open and call is bounded by ``ocr_worker.isolation``.
"""

from __future__ import annotations

import contextlib
import ctypes
import resource
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

MAX_OPEN_FILES = 128
# The largest file that is written is a page's picture on its way to a program.
MAX_FILE_BYTES = 1 << 30
CPU_GRACE_S = 5
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one page process.

    Attributes:
        memory_bytes: Address space of the process, and of each program that it starts.
        page_timeout_s: Clock and CPU time for one page.
    """

    memory_bytes: int
    page_timeout_s: float


def apply_limits(limits: Limits) -> None:
    """Bind this process for good; children inherit it."""
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_NOFILE, MAX_OPEN_FILES)
    _lower(resource.RLIMIT_FSIZE, MAX_FILE_BYTES)
    _lower(resource.RLIMIT_AS, limits.memory_bytes)
    if sys.platform == "linux":
        # A parent that is killed cannot clean up, so the kernel does.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        # If the machine runs out of memory it is a page that goes, not the process with the leases.
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def limit_cpu_of_next_page(limits: Limits) -> None:
    """Allow one page's CPU time from here on; past it the kernel ends the process (SIGXCPU)."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    allowed = int(usage.ru_utime + usage.ru_stime + limits.page_timeout_s) + CPU_GRACE_S
    soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
    if hard != resource.RLIM_INFINITY:
        allowed = min(allowed, hard)
    if allowed != soft:  # Most pages take less than a second.
        resource.setrlimit(resource.RLIMIT_CPU, (allowed, hard))


def _lower(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    # macOS refuses RLIMIT_AS; `ocr-worker doctor` says which limits are in force.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(kind, (value, value))


def limits_in_force(limits: Limits) -> dict[str, bool]:
    """Try each limit in this process and say which hold; for ``doctor``, run in a process of its own."""
    apply_limits(limits)
    wanted = {
        "memory": (resource.RLIMIT_AS, limits.memory_bytes),
        "core files": (resource.RLIMIT_CORE, 0),
        "open files": (resource.RLIMIT_NOFILE, MAX_OPEN_FILES),
        "file size": (resource.RLIMIT_FSIZE, MAX_FILE_BYTES),
    }
    held = {name: 0 <= resource.getrlimit(kind)[0] <= value for name, (kind, value) in wanted.items()}
    limit_cpu_of_next_page(limits)
    held["CPU time"] = resource.getrlimit(resource.RLIMIT_CPU)[0] != resource.RLIM_INFINITY
    return held
