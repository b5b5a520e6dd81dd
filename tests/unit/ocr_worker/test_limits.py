"""Only what does not bind this process: whatever would be set is noted instead."""

from __future__ import annotations

import dataclasses
import resource
from types import SimpleNamespace

import pytest

from ocr_worker import limits
from ocr_worker.limits import (
    CPU_GRACE_S,
    MAX_FILE_BYTES,
    MAX_OPEN_FILES,
    Limits,
    apply_limits,
    limit_cpu_of_next_page,
    limits_in_force,
)

INFINITE = resource.RLIM_INFINITY
LIMITS = Limits(memory_bytes=2**30, page_timeout_s=60.0)


class Kernel:
    """Stands in for ``resource``; refuses what the kernel would refuse."""

    RLIM_INFINITY = INFINITE
    RLIMIT_CORE, RLIMIT_NOFILE, RLIMIT_AS, RLIMIT_CPU = "core", "files", "memory", "cpu"
    RLIMIT_FSIZE = "file size"
    RUSAGE_SELF = "self"

    def __init__(self, *, used_s=0.0, hard=None, refuses=()):
        self.now = dict.fromkeys(("core", "files", "memory", "cpu", "file size"), (INFINITE, INFINITE))
        self.now |= {kind: (value, value) for kind, value in (hard or {}).items()}
        self._used_s = used_s
        self._refuses = refuses

    def getrlimit(self, kind):
        return self.now[kind]

    def setrlimit(self, kind, wanted):
        soft, hard = wanted
        top = self.now[kind][1]
        if kind in self._refuses or (top != INFINITE and (hard == INFINITE or hard > top)):
            raise ValueError("not allowed to raise maximum limit")
        if hard != INFINITE and (soft == INFINITE or soft > hard):
            raise ValueError("current limit exceeds maximum limit")
        self.now[kind] = wanted

    def getrusage(self, who):
        assert who == self.RUSAGE_SELF
        return SimpleNamespace(ru_utime=self._used_s / 2, ru_stime=self._used_s / 2)


@pytest.fixture
def kernel(monkeypatch):
    def use(**options):
        stand_in = Kernel(**options)
        monkeypatch.setattr(limits, "resource", stand_in)
        monkeypatch.setattr(limits, "sys", SimpleNamespace(platform="darwin"))
        return stand_in

    return use


def test_limits_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        LIMITS.memory_bytes = 2**40


def test_memory_files_and_core_dumps_are_bound_for_good(kernel):
    now = kernel().now
    apply_limits(LIMITS)
    assert now["core"] == (0, 0)
    assert now["files"] == (MAX_OPEN_FILES, MAX_OPEN_FILES)
    assert now["file size"] == (MAX_FILE_BYTES, MAX_FILE_BYTES)
    assert now["memory"] == (2**30, 2**30)
    assert now["cpu"] == (INFINITE, INFINITE)


def test_a_stricter_limit_from_outside_stays(kernel):
    now = kernel(hard={"memory": 2**20, "files": 64}).now
    apply_limits(LIMITS)
    assert now["memory"] == (2**20, 2**20)
    assert now["files"] == (64, 64)


def test_a_limit_that_the_system_refuses_does_not_stop_the_others(kernel):
    now = kernel(refuses=("memory",)).now
    apply_limits(LIMITS)
    assert now["memory"] == (INFINITE, INFINITE)
    assert now["core"] == (0, 0)


@pytest.mark.parametrize(
    ("used_s", "timeout_s", "allowed_s"), [(0.0, 60.0, 60), (1000.9, 60.0, 1060), (0.5, 0.25, 0)]
)
def test_each_page_gets_its_cpu_time_on_top_of_what_was_used(used_s, timeout_s, allowed_s, kernel):
    now = kernel(used_s=used_s).now
    limit_cpu_of_next_page(Limits(memory_bytes=2**30, page_timeout_s=timeout_s))
    assert now["cpu"] == (allowed_s + CPU_GRACE_S, INFINITE)


def test_a_stricter_limit_of_cpu_time_from_outside_stays(kernel):
    now = kernel(used_s=30.0, hard={"cpu": 50}).now
    limit_cpu_of_next_page(LIMITS)
    assert now["cpu"] == (50, 50)


def test_the_limits_in_force_are_named(kernel):
    kernel()
    assert limits_in_force(LIMITS) == {
        "memory": True,
        "core files": True,
        "open files": True,
        "file size": True,
        "CPU time": True,
    }


def test_a_limit_that_is_not_in_force_is_named_as_such(kernel):
    kernel(refuses=("memory",))
    assert limits_in_force(LIMITS) == {
        "memory": False,
        "core files": True,
        "open files": True,
        "file size": True,
        "CPU time": True,
    }


def test_this_process_was_not_bound():
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] != MAX_OPEN_FILES
