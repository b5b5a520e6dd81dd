"""The filter for both architectures, run by an interpreter that stands in for the kernel."""

from __future__ import annotations

import errno
import struct

import pytest

from ocr_worker.isolation.seccomp import assemble

OWN, OTHER = 4242, 1
ALLOWED, KILLED = "allowed", "killed"
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
CALLS = {
    "x86_64": {"read": 0, "execve": 59, "socket": 41, "clone": 56, "kill": 62, "ptrace": 101, "setsid": 112},
    "aarch64": {
        "read": 63,
        "execve": 221,
        "socket": 198,
        "clone": 220,
        "kill": 129,
        "ptrace": 117,
        "setsid": 157,
    },
}
CLONE3, IO_URING_SETUP = 435, 425
THREAD = 0x3D0F00
NEW_USER = 0x10000000


def run(machine: str, number: int, argument: int = 0, audit: int | None = None) -> str | int:
    """What the filter answers: allowed, killed, or the error's number."""
    memory = struct.pack("<IIQQ", number, audit or AUDIT[machine], 0, argument & (2**64 - 1))
    code = list(struct.iter_unpack("<HBBI", assemble(machine, OWN)))
    at, loaded = 0, 0
    while True:
        operation, if_true, if_false, value = code[at]
        at += 1
        if operation == 0x20:
            (loaded,) = struct.unpack_from("<I", memory, value)
        elif operation == 0x06:
            if value == 0x7FFF0000:
                return ALLOWED
            return KILLED if value == 0x80000000 else value & 0xFFFF
        else:
            holds = {0x15: loaded == value, 0x35: loaded >= value, 0x45: bool(loaded & value)}[operation]
            at += if_true if holds else if_false


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_refuses_network_other_processes_and_namespaces_and_nothing_else(machine: str) -> None:
    calls = CALLS[machine]

    assert [run(machine, calls[name]) for name in ("read", "execve")] == [ALLOWED] * 2
    assert [run(machine, calls[name]) for name in ("socket", "ptrace", "setsid")] == [errno.EPERM] * 3
    assert run(machine, IO_URING_SETUP) == errno.EPERM
    assert run(machine, calls["clone"], THREAD) == ALLOWED
    assert run(machine, calls["clone"], THREAD | NEW_USER) == errno.EPERM
    assert run(machine, CLONE3) == errno.ENOSYS


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize(
    ("target", "answer"), [(OWN, ALLOWED), (0, ALLOWED), (OTHER, errno.EPERM), (-1, errno.EPERM)]
)
def test_a_process_may_signal_itself_and_its_group_only(machine: str, target: int, answer: object) -> None:
    assert run(machine, CALLS[machine]["kill"], target) == answer


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_calls_of_another_architecture_end_the_process(machine: str) -> None:
    assert run(machine, 0, audit=0x40000003) == KILLED
    assert run(machine, 0x40000000 + 41) == errno.ENOSYS
