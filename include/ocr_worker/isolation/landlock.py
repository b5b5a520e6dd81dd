"""Landlock: which files a process may open, from then on and for all that it starts.

Needs Linux 5.13 and no privileges. What a process has open stays open. Newer kernels also bind TCP
and signals; those are taken along where they exist, but not relied on: seccomp does the same.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import struct
from typing import TYPE_CHECKING

from ocr_worker.isolation import kernel

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

# The same numbers on every architecture.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION = 1
_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_FOLDER = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE = 1 << 14
_ALL_FIRST_VERSION = (1 << 13) - 1
_REFER = 1 << 13
# Opening, making, removing and renaming files and folders; no devices, sockets or pipes.
_REMOVE_FOLDER, _REMOVE_FILE, _MAKE_FOLDER, _MAKE_FILE = 1 << 4, 1 << 5, 1 << 7, 1 << 8
_FOR_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE

_READ = _READ_FILE | _READ_FOLDER
_RUN = _READ | _EXECUTE
_WRITE = _READ | _WRITE_FILE | _TRUNCATE | _REMOVE_FOLDER | _REMOVE_FILE | _MAKE_FOLDER | _MAKE_FILE
_TCP = 0b11
_SCOPES = 0b11


def version() -> int:
    """The version that the kernel has in force, 0 for none."""
    try:
        return kernel.call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_ASK_VERSION))
    except OSError:
        return 0


def restrict_files(*, programs: Iterable[Path], readable: Iterable[Path], writable: Iterable[Path]) -> None:
    """Let this process open nothing but what is at or below these paths, as far as they exist.

    Args:
        programs: May be read and executed.
        readable: May be read.
        writable: May be read and changed.

    Raises:
        OSError: If the kernel has no Landlock, or refuses.
    """
    known = version()
    handled = _ALL_FIRST_VERSION | (_REFER if known >= 2 else 0) | (_TRUNCATE if known >= 3 else 0)
    # The kernel knows by the size which fields there are: TCP since version 4, scopes since 6.
    wanted = struct.pack("<QQQ", handled, _TCP, _SCOPES)
    wanted = wanted[: 24 if known >= 6 else 16 if known >= 4 else 8]
    ruleset = kernel.call(_CREATE_RULESET, wanted, ctypes.c_size_t(len(wanted)), ctypes.c_uint32(0))
    try:
        for paths, access in ((programs, _RUN), (readable, _READ), (writable, _WRITE)):
            for path in paths:
                _allow(ruleset, path, access & handled)
        kernel.call(_RESTRICT_SELF, ruleset, ctypes.c_uint32(0))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: Path, access: int) -> None:
    # Linux only, so not there for a type checker elsewhere.
    only_path: int = getattr(os, "O_PATH", 0)
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        opened = os.open(path, only_path | os.O_CLOEXEC)
        try:
            if not stat.S_ISDIR(os.fstat(opened).st_mode):
                access &= _FOR_FILES
            rule = struct.pack("<Qi", access, opened)
            kernel.call(_ADD_RULE, ruleset, ctypes.c_int(_PATH_BENEATH), rule, ctypes.c_uint32(0))
        finally:
            os.close(opened)
