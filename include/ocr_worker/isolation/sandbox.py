"""The page process's walls: no network, no file but what it reads with, no other process.

It puts them up itself, before it sees a document, with what an unprivileged container may use.
Not for bounds on memory and time: ``ocr_worker.limits``.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from ocr_worker.isolation import kernel, landlock, seccomp
from pdf_ops.contract.errors import ErrorKind, PdfOpsError

if TYPE_CHECKING:
    from collections.abc import Sequence

# What the C library, programs and fonts are found with. Not /etc as a whole, which may hold secrets,
# nor /proc, which holds other processes' environments.
_SYSTEM_PROGRAMS = ("/usr", "/bin", "/sbin", "/lib", "/lib64")
_SYSTEM_FILES = (
    "/etc/alternatives",
    "/etc/fonts",
    "/etc/group",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/var/cache/fontconfig",
    "/sys/devices/system/cpu",
    "/dev/urandom",
    "/dev/random",
)
_SYSTEM_SINKS = ("/dev/null",)
_FOLDER_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "TESSDATA_PREFIX")
# With more folders than this it takes their common one: rules are read at each process's start.
MAX_FOLDERS = 500


class SandboxMode(StrEnum):
    """What to do where the kernel cannot do all of it."""

    AUTO = "auto"
    REQUIRE = "require"
    OFF = "off"


class Wall(StrEnum):
    """What a page process can be kept in with."""

    NO_NEW_PRIVILEGES = "no_new_privs"
    FILES = "landlock"
    CALLS = "seccomp"


_NEEDS = {
    Wall.NO_NEW_PRIVILEGES: "a program with special rights could give them to a page",
    Wall.FILES: "a page process could open files that the worker may open; needs Linux 5.13 with Landlock",
    Wall.CALLS: "a page process could open connections; needs seccomp on x86_64 or aarch64",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """How one page process is kept in.

    Attributes:
        mode: Whether all of it must hold.
        readable: Where documents lie.
        writable: The process's own folders.
    """

    mode: SandboxMode
    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Isolation:
    """What is in force, and what is not."""

    in_force: tuple[Wall, ...]

    @property
    def missing(self) -> tuple[Wall, ...]:
        """What is not in force."""
        return tuple(wall for wall in Wall if wall not in self.in_force)

    @property
    def problem(self) -> str:
        """What the missing ones mean, empty if none is missing."""
        return "; ".join(f"no {wall.value}: {_NEEDS[wall]}" for wall in self.missing)


def enter(sandbox: Sandbox) -> Isolation:
    """Put the walls up around this process and all that it starts; there is no way back.

    Raises:
        PdfOpsError: ENGINE/misconfigured, if all must hold and one does not.
    """
    if sandbox.mode is SandboxMode.OFF:
        return Isolation(())
    in_force = []
    for wall in Wall:  # The others need the first.
        try:
            _put_up(wall, sandbox)
        except OSError:
            continue
        in_force.append(wall)
    found = Isolation(tuple(in_force))
    check(found, sandbox.mode)
    return found


def check(found: Isolation, mode: SandboxMode) -> None:
    """Refuse to go on where all must hold and one does not.

    Raises:
        PdfOpsError: ENGINE/misconfigured.
    """
    if mode is SandboxMode.REQUIRE and found.missing:
        detail = f"OCR_SANDBOX is require, but on this {os.uname().sysname}: {found.problem}"
        raise PdfOpsError(ErrorKind.ENGINE_MISCONFIGURED, detail)


def _put_up(wall: Wall, sandbox: Sandbox) -> None:
    if wall is Wall.NO_NEW_PRIVILEGES:
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        kernel.hide_memory()
    elif wall is Wall.FILES:
        landlock.restrict_files(
            programs=_programs(),
            readable=[*map(Path, _SYSTEM_FILES), *sandbox.readable],
            writable=[*map(Path, _SYSTEM_SINKS), *sandbox.writable],
        )
    else:
        seccomp.restrict_calls(os.getpid())


def _programs() -> list[Path]:
    """Python with its libraries, the system's, and where the environment says that programs and data are."""
    found = [*_SYSTEM_PROGRAMS, sys.prefix, sys.base_prefix, sys.exec_prefix, *sys.path]
    for variable in _FOLDER_VARIABLES:
        found += os.environ.get(variable, "").split(os.pathsep)
    return [Path(path) for path in dict.fromkeys(found) if path]


def try_out(mode: SandboxMode, scratch: Path) -> Isolation:
    """Put the walls up in a process of its own, with a folder in the scratch, and see whether they stand."""
    import subprocess  # Here, as no page process needs them.
    import tempfile

    if mode is SandboxMode.OFF:
        return Isolation(())
    code = "import sys; from ocr_worker.isolation import sandbox; sandbox.report_itself(sys.argv[1])"
    with tempfile.TemporaryDirectory(prefix="ocr-worker-", dir=scratch) as folder:
        command = [sys.executable, "-P", "-c", code, folder]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
    names = json.loads(ran.stdout) if ran.returncode == 0 else []
    return Isolation(tuple(Wall(name) for name in names))


def report_itself(folder: str) -> None:
    """Enter, try what must not work, and print which walls stand; for ``try_out``."""
    import socket

    hidden, own = Path(folder, "hidden"), Path(folder, "own")
    hidden.write_text("", encoding="ascii")
    own.mkdir()
    stand = {*enter(Sandbox(mode=SandboxMode.AUTO, writable=(own,))).in_force}
    with contextlib.suppress(PermissionError):
        hidden.read_bytes()
        stand.discard(Wall.FILES)
    (own / "written").write_text("", encoding="ascii")
    with contextlib.suppress(PermissionError):
        socket.socket().close()
        stand.discard(Wall.CALLS)
    print(json.dumps([wall.value for wall in Wall if wall in stand]))


def folders_of(files: Sequence[Path]) -> tuple[Path, ...]:
    """The folders to be readable so that these files are; links are followed."""
    folders = {folder.resolve() for folder in {path.parent for path in files}}
    folders |= {path.resolve().parent for path in files if path.is_symlink()}
    if len(folders) > MAX_FOLDERS:
        return (Path(os.path.commonpath(folders)),)
    return tuple(sorted(folder for folder in folders if not folders.intersection(folder.parents)))
