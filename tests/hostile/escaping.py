"""An engine that was taken over: it tries to get at what a page process must not have, and reports each try.

The parser leaves word where the document lies; the recognizer acts, and gives what it found as the text.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ocr_worker.engines import Recognition
from ocr_worker.engines.pdfium import PdfiumDocument

if TYPE_CHECKING:
    from collections.abc import Callable

    from ocr_worker.engines import Picture

# Takes a process over without stopping it.
_PTRACE_SEIZE, _PTRACE = 0x4206, {"x86_64": 101, "aarch64": 117}
_PROCESS_VM_READV = {"x86_64": 310, "aarch64": 270}
_IO_URING_SETUP = 425


class Pointing(PdfiumDocument):
    """Reads as pdfium does, and notes where the document is."""

    document = Path()

    def __init__(self, path: Path, password: str | None) -> None:
        Pointing.document = path
        super().__init__(path, password)


class Escaping:
    """Reads each page as JSON: what was tried, and ``got`` or the error's name."""

    name = "escaping 1.0"

    def __init__(self, languages: str) -> None:
        del languages

    def orientation(self, picture: Picture) -> int | None:
        del picture

    def recognize(self, picture: Picture) -> Recognition:
        del picture
        found = {name: _outcome(attempt) for name, attempt in _attempts().items()}
        return Recognition(text=json.dumps(found), confidences=(95.0,))


def _outcome(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except OSError as error:
        return type(error).__name__
    except subprocess.CalledProcessError:
        return "refused"
    return "got"


def _attempts() -> dict[str, Callable[[], object]]:
    parent = os.getppid()
    around = Pointing.document.parent.parent
    place = json.loads((Pointing.document.parent / "place.json").read_text())
    secret = around / "home" / ".aws" / "credentials"
    script = f"import socket; socket.create_connection(('127.0.0.1', {place['port']}))"
    return {
        "read a file with credentials": secret.read_bytes,
        "read it through a program": lambda: _run("cat", str(secret)),
        "read it through a link": lambda: _linked(secret).read_bytes(),
        "list the home folder": lambda: list((around / "home").iterdir()),
        "read the worker's environment": Path(f"/proc/{parent}/environ").read_bytes,
        "read the worker's memory": lambda: _read_memory(parent),
        "take the worker over": lambda: _call(_PTRACE[_machine()], _PTRACE_SEIZE, parent, 0, 0),
        "read the worker's memory by a call": lambda: _process_vm_readv(parent),
        "signal the worker": lambda: os.kill(parent, 0),
        "limit the worker": lambda: resource.prlimit(parent, resource.RLIMIT_CORE, (0, 0)),
        "connect": lambda: socket.create_connection(("127.0.0.1", place["port"])).close(),
        "ask for the task's credentials": lambda: _ask("169.254.170.2"),
        "ask the machine for credentials": lambda: _ask("169.254.169.254"),
        "connect through a program": lambda: _run(sys.executable, "-c", script),
        "connect to a local socket": lambda: _connect_unix(place["unix"]),
        "send a datagram": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close(),
        "listen": lambda: socket.create_server(("127.0.0.1", 0)).close(),
        "start an io_uring": lambda: _call(_IO_URING_SETUP, 1, ctypes.create_string_buffer(120)),
        "write beside the document": lambda: (around / "written.txt").write_text("x"),
        "change the document": lambda: Pointing.document.open("r+b").close(),
        "write to another process's folder": lambda: (Path.cwd().parent / "written").write_text("x"),
        "write to shared memory": _write_shared_memory,
        "leave the process group": lambda: _run(sys.executable, "-c", "import os; os.setsid()"),
        "make a namespace": lambda: _run("unshare", "--user", "true"),
    }


def _ask(address: str) -> None:
    socket.create_connection((address, 80), timeout=1.0).close()


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def _linked(target: Path) -> Path:
    link = Path("link")
    link.unlink(missing_ok=True)
    link.symlink_to(target)
    return link


def _read_memory(pid: int) -> None:
    with Path(f"/proc/{pid}/mem").open("rb"):
        pass


def _connect_unix(path: str) -> None:
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as made:
        made.connect(path)


def _process_vm_readv(pid: int) -> None:
    _call(_PROCESS_VM_READV[_machine()], pid, None, 0, None, 0, 0)


def _machine() -> str:
    return os.uname().machine


def _call(number: int, *arguments: object) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), "refused")


def _write_shared_memory() -> None:
    path = Path("/dev/shm/ocr-worker-escaped")
    path.write_text("x")
    path.unlink()
