"""System calls that Python has no function for: ``prctl`` and calls by number.

Linux only; whoever asks elsewhere gets an OSError.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys

PR_SET_DUMPABLE = 4
PR_SET_NO_NEW_PRIVS = 38


def prctl(option: int, value: int) -> None:
    """Change something about this process.

    Raises:
        OSError: If the kernel refuses.
    """
    _checked(_library().prctl(option, value, 0, 0, 0))


def call(number: int, *arguments: object) -> int:
    """Make a system call by its number.

    Raises:
        OSError: If the kernel refuses, or has no such call.
    """
    return _checked(_library().syscall(number, *arguments))


def hide_memory() -> None:
    """Keep other processes of the same user from this one's memory and environment, where the kernel can."""
    if sys.platform == "linux":
        prctl(PR_SET_DUMPABLE, 0)


def _library() -> ctypes.CDLL:
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, "needs Linux")
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
