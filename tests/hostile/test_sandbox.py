"""What a page process cannot do even when its engine has been taken over."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.hostile.escaping import Escaping, Pointing
from tests.support.engines import CrashingParser
from tests.support.worker import OCR_WORKER, REPOSITORY, extract_with
from tests.support.world import World

from ocr_worker.isolation.sandbox import SandboxMode, Wall, try_out
from samples import documents as made

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local_aws import LocalAws

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the walls are those of Linux")

TEMPORARY = Path(tempfile.gettempdir())
NEEDS_EVERY_WALL = pytest.mark.skipif(
    sys.platform == "linux" and bool(try_out(SandboxMode.AUTO, TEMPORARY).missing),
    reason="this kernel does not have every wall",
)


@pytest.fixture
def scanned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A document, credentials in a home folder beside it, and services that answer."""
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    home = tmp_path / "home" / ".aws"
    home.mkdir(parents=True)
    (home / "credentials").write_text("aws_secret_access_key = do-not-tell")
    documents = tmp_path / "documents"
    documents.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as local:
        local.bind(str(tmp_path / "socket"))
        local.listen()
        place = {"port": tcp.getsockname()[1], "unix": str(tmp_path / "socket")}
        (documents / "place.json").write_text(json.dumps(place))
        yield made.scan_pdf(documents / "a.pdf", [made.scan()])


def attempts(scanned: Path, sandbox: SandboxMode) -> dict[str, str]:
    out = scanned.parent.parent / sandbox.value
    result = extract_with(
        scanned, out, recognizer=Escaping, parser=Pointing, sandbox=sandbox, processes=1, memory_limit_mb=4096
    )
    (row,) = result.pages
    assert row["error_class"] is None, row["error_message"]
    found: dict[str, str] = json.loads(row["text"])
    return found


@NEEDS_EVERY_WALL
def test_a_page_process_cannot_read_credentials_open_connections_or_write_outside_its_folder(
    scanned: Path,
) -> None:
    found = attempts(scanned, SandboxMode.REQUIRE)

    assert {name for name, outcome in found.items() if outcome == "got"} == set()
    assert len(found) > 20
    # Refused at once, and not for want of an answer: most machines have nothing at these addresses.
    asked = ("ask for the task's credentials", "ask the machine for credentials")
    assert [found[name] for name in asked] == ["PermissionError"] * 2
    assert not (scanned.parent.parent / "written.txt").exists()


def test_without_the_sandbox_the_same_attempts_succeed(scanned: Path) -> None:
    """So the test above fails when the walls are down: these are real files, ports and processes."""
    found = attempts(scanned, SandboxMode.OFF)

    refused = {name for name, outcome in found.items() if outcome != "got"}
    # Containers have their own rules for these, and root its own for the rest; the first two need AWS.
    assert refused <= {
        "ask for the task's credentials",
        "ask the machine for credentials",
        "start an io_uring",
        "make a namespace",
        "take the worker over",
        "read the worker's memory by a call",
        "read the worker's memory",
        "read the worker's environment",
    }


@NEEDS_EVERY_WALL
def test_every_engine_works_inside_the_sandbox(tmp_path: Path) -> None:
    """In the process and as programs."""
    scanned = made.scan_pdf(tmp_path / "a.pdf", [made.scan()])
    picture = made.tiff(tmp_path / "b.tiff", [made.scan(turned=180)])
    for recognizer in ("tesserocr", "pytesseract"):
        out = tmp_path / recognizer
        command = [*OCR_WORKER, "extract", scanned, picture, "--out", out, "--recognizer", recognizer]
        ran = subprocess.run(
            [*command, "--sandbox", "require"], capture_output=True, text=True, check=False, env=os.environ
        )
        assert ran.returncode == 0, ran.stderr


@NEEDS_EVERY_WALL
def test_poppler_draws_inside_the_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    path = made.scan_pdf(tmp_path / "a.pdf", [made.scan()])
    result = extract_with(path, tmp_path / "out", parser=CrashingParser, sandbox=SandboxMode.REQUIRE)

    (row,) = result.pages
    assert row["parser"].startswith("pypdf")
    assert made.share_read(row["text"]) > 0.95


@NEEDS_EVERY_WALL
def test_a_document_behind_a_link_is_read(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "given").mkdir()
    target = made.text_pdf(tmp_path / "elsewhere" / "a.pdf")
    link = tmp_path / "given" / "a.pdf"
    link.symlink_to(target)
    destination = tmp_path / "out"
    command = [*OCR_WORKER, "extract", str(link), "--out", str(destination), "--sandbox", "require"]

    assert subprocess.run(command, check=False, capture_output=True).returncode == 0


def test_a_process_leaves_no_folder_behind(scanned: Path, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    extract_with(scanned, tmp_path / "out", recognizer=Escaping, parser=Pointing, scratch_dir=scratch)

    assert list(scratch.iterdir()) == []


def test_the_worker_hides_its_own_memory_and_environment() -> None:
    """For kernels without Landlock: then only this keeps a page process out of /proc/WORKER/environ."""
    script = (
        "from ocr_worker.isolation import kernel\n"
        "from ocr_worker.cli import main\n"
        "import sys\n"
        "main(['extract', sys.argv[1], '--out', sys.argv[2]])\n"
        "print('dumpable', kernel.call({'x86_64': 157, 'aarch64': 167}[__import__('os').uname().machine], 3))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, "/nonexistent", "/nonexistent-out"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.stdout.strip() == "dumpable 0"


def test_doctor_and_the_first_log_line_say_what_is_in_force(local_aws: LocalAws) -> None:
    in_force = [wall.value for wall in try_out(SandboxMode.AUTO, TEMPORARY).in_force]
    shown = subprocess.run([*OCR_WORKER, "doctor"], capture_output=True, text=True, check=False).stdout
    with World(local_aws) as world:
        started = world.work(IDLE_S=0)[0]

    (line,) = [line for line in shown.splitlines() if " isolation " in line]
    assert line.endswith(", ".join(in_force))
    assert (started["event"], started["isolation"]) == ("worker.started", in_force)


# Takes Landlock away from a program, as an older kernel has none: its first call is answered with ENOSYS.
ON_AN_OLDER_KERNEL = """
import ctypes, os, struct, sys
from ocr_worker.isolation import kernel, seccomp
code = [(0x20, 0, 0, 0), (0x15, 0, 1, 444), (0x06, 0, 0, 0x00050000 | 38), (0x06, 0, 0, 0x7FFF0000)]
program = seccomp._FilterProgram(len(code), b"".join(struct.pack("<HBBI", *line) for line in code))
kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
number = {"x86_64": 317, "aarch64": 277}[os.uname().machine]
kernel.call(number, ctypes.c_uint(1), ctypes.c_uint(0), ctypes.byref(program))
os.execv(sys.argv[1], sys.argv[1:])
"""


def on_an_older_kernel(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", ON_AN_OLDER_KERNEL, *OCR_WORKER, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@NEEDS_EVERY_WALL
def test_a_kernel_without_landlock_is_told_loudly_and_refused_where_it_is_required(tmp_path: Path) -> None:
    path = made.text_pdf(tmp_path / "a.pdf")

    taken = on_an_older_kernel("extract", path, "--out", tmp_path / "taken")
    refused = on_an_older_kernel("extract", path, "--out", tmp_path / "refused", "--sandbox", "require")
    examined = on_an_older_kernel("doctor")
    examined_strictly = on_an_older_kernel("doctor", "--sandbox", "require")

    assert taken.returncode == 0
    assert "page processes were not kept in: no landlock" in taken.stderr
    assert refused.returncode == 2
    assert "OCR_SANDBOX is require" in refused.stderr
    assert "warn  isolation" in examined.stdout
    assert "in force: no_new_privs, seccomp" in examined.stdout
    assert "FAIL  isolation" in examined_strictly.stdout
    assert (examined.returncode, examined_strictly.returncode) == (0, 2)


# The rest of the same program: the worker's main process with an engine that was taken over.
TAKEN_OVER = """
from pathlib import Path
from tests.hostile.escaping import Escaping, Pointing
from tests.support.worker import extract_with
kernel.hide_memory()
path, out = map(Path, sys.argv[1:])
print(extract_with(path, out, recognizer=Escaping, parser=Pointing, memory_limit_mb=4096).text)
"""


def test_an_ordinary_user_without_landlock_still_has_no_network_and_no_way_to_the_workers_memory(
    scanned: Path, tmp_path: Path
) -> None:
    """As in a container on an older kernel: only files are open then, and SECURITY.md says so."""
    as_user = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]
    if subprocess.run([*as_user, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no other user can be had here")
    program = ON_AN_OLDER_KERNEL.rpartition("os.execv")[0] + TAKEN_OVER
    ran = subprocess.run(
        [*as_user, sys.executable, "-c", program, scanned, tmp_path / "out"],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
    )

    found = json.loads(ran.stdout)
    assert found["read a file with credentials"] == "got"
    refused = {name for name, outcome in found.items() if outcome != "got"}
    assert refused >= {
        "read the worker's environment",
        "read the worker's memory",
        "read the worker's memory by a call",
        "take the worker over",
        "signal the worker",
        "limit the worker",
        "connect",
        "connect through a program",
        "connect to a local socket",
        "send a datagram",
        "listen",
        "start an io_uring",
        "leave the process group",
    }


def test_walls_that_do_not_stand_are_told_from_those_that_do() -> None:
    assert try_out(SandboxMode.OFF, TEMPORARY).missing == tuple(Wall)
