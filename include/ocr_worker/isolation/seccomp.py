"""seccomp: which system calls a process may make, from then on and for all that it starts.

A list of what is refused, not of what is allowed: the container's own profile is such a list, and
engines may need other calls with each version. Refused calls fail with EPERM and kill nothing.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
from dataclasses import dataclass

from ocr_worker.isolation import kernel

# Name: number on x86_64, number on aarch64; None where there is no such call.
_REFUSED: dict[str, tuple[int, int | None]] = {
    # The network. The channel to the main process is there already.
    "socket": (41, 198),
    "connect": (42, 203),
    "bind": (49, 200),
    "listen": (50, 201),
    "accept": (43, 202),
    "accept4": (288, 242),
    # Does all of that past this filter.
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    # Other processes' memory, descriptors and lives.
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
    # Leaving the process group, by which everything is ended.
    "setsid": (112, 157),
    "setpgid": (109, 154),
    # Memory that outlives its process.
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    # Another view of the machine, or another kernel.
    "unshare": (272, 97),
    "setns": (308, 268),
    "chroot": (161, 51),
    "pivot_root": (155, 41),
    "mount": (165, 40),
    "umount2": (166, 39),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "quotactl": (179, 60),
    "acct": (163, 89),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "personality": (135, 92),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "iopl": (172, None),
    "ioperm": (173, None),
    # Where kernels have had their holes.
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
}
# Allowed for the process itself only; 0 means itself, or its group. Programs that it starts may not
# even signal themselves, since the filter cannot know their number: one that aborts crashes instead.
_ONLY_ITSELF: dict[str, tuple[int, int]] = {
    "kill": (62, 129),
    "tgkill": (234, 131),
    "prlimit64": (302, 261),
    "sched_setaffinity": (203, 122),
}
_CLONE = (56, 220)
# Its arguments are behind a pointer, which a filter cannot follow; without it the C library uses clone.
_CLONE3 = 435
# Every kind of namespace that clone can make.
_NEW_NAMESPACES = 0x7E020000

_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _FIRST_ARGUMENT_AT = 0, 4, 16
_X32 = 0x40000000
_SET_FILTER, _ASK_FOR_ACTION = 1, 2


@dataclass(frozen=True, slots=True)
class _Architecture:
    """How the kernel names it, where it stands in the tables, and its number for ``seccomp``."""

    audit: int
    column: int
    seccomp: int


_ARCHITECTURES = {
    "x86_64": _Architecture(0xC000003E, 0, 317),
    "aarch64": _Architecture(0xC00000B7, 1, 277),
}


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def is_available() -> bool:
    """Whether the kernel has filters, and this architecture a table here."""
    found = _ARCHITECTURES.get(os.uname().machine)
    if found is None or sys.platform != "linux":
        return False
    try:
        refuse = ctypes.byref(ctypes.c_uint32(_REFUSE))
        kernel.call(found.seccomp, ctypes.c_uint(_ASK_FOR_ACTION), ctypes.c_uint(0), refuse)
    except OSError:
        return False
    return True


def restrict_calls(own_pid: int) -> None:
    """Refuse the calls of this module's tables from now on; needs ``no_new_privs``.

    Raises:
        OSError: If the kernel refuses, or the architecture has no table.
    """
    machine = os.uname().machine
    if machine not in _ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"no table of system calls for {machine}")
    code = assemble(machine, own_pid)
    program = _FilterProgram(len(code) // 8, code)
    kernel.call(
        _ARCHITECTURES[machine].seccomp, ctypes.c_uint(_SET_FILTER), ctypes.c_uint(0), ctypes.byref(program)
    )


def assemble(machine: str, own_pid: int) -> bytes:
    """The filter as the kernel runs it: eight bytes an instruction."""
    architecture = _ARCHITECTURES[machine]
    column = architecture.column
    code = [
        _instruction(_LOAD, _ARCHITECTURE_AT),
        # Another architecture's calls have other numbers.
        _instruction(_IF_EQUAL, architecture.audit, 1, 0),
        _instruction(_RETURN, _KILL),
        _instruction(_LOAD, _NUMBER_AT),
        _instruction(_IF_AT_LEAST, _X32, 0, 1),
        _instruction(_RETURN, _refusal(errno.ENOSYS)),
        _instruction(_IF_EQUAL, _CLONE3, 0, 1),
        _instruction(_RETURN, _refusal(errno.ENOSYS)),
    ]
    for refused in _REFUSED.values():
        if refused[column] is not None:
            code += [
                _instruction(_IF_EQUAL, refused[column] or 0, 0, 1),
                _instruction(_RETURN, _refusal(errno.EPERM)),
            ]
    for bounded in _ONLY_ITSELF.values():
        code += [
            _instruction(_IF_EQUAL, bounded[column], 0, 5),
            _instruction(_LOAD, _FIRST_ARGUMENT_AT),
            _instruction(_IF_EQUAL, 0, 2, 0),
            _instruction(_IF_EQUAL, own_pid, 1, 0),
            _instruction(_RETURN, _refusal(errno.EPERM)),
            _instruction(_RETURN, _ALLOW),
        ]
        # Past the block the number is still loaded, as only its own call reaches the second load.
    code += [
        _instruction(_IF_EQUAL, _CLONE[column], 0, 3),
        _instruction(_LOAD, _FIRST_ARGUMENT_AT),
        _instruction(_IF_ANY_BIT, _NEW_NAMESPACES, 0, 1),
        _instruction(_RETURN, _refusal(errno.EPERM)),
        _instruction(_RETURN, _ALLOW),
    ]
    return b"".join(code)


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)


def _refusal(number: int) -> int:
    return _REFUSE | number
