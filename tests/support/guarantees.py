"""Whether the README's guarantees were put to the test: a whole run that left one out has failed.

Judges what pytest reports, in the process that hears of every test: with xdist, the controller. Not a run
of chosen tests, and not whether a test proves what it says.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PROMISE = re.compile(r"\| `(test_\w+)` \|")
# Options that leave tests out. `addopts` must have none of them, or no run would be whole.
CHOOSING = ("keyword", "markexpr", "deselect", "ignore", "ignore_glob", "lf", "stepwise")
NOT_RUNNING = ("collectonly", "setuponly", "setupplan")


def promised_in(readme: Path) -> frozenset[str]:
    """The names of the tests that a README's table of guarantees has."""
    return frozenset(PROMISE.findall(readme.read_text(encoding="utf-8")))


def watch(config: pytest.Config, readme: Path, environment: Mapping[str, str] = os.environ) -> None:
    """Judge this run by a README, if it is a whole one; in CI a guarantee may not be skipped either."""
    if not hasattr(config, "workerinput") and is_whole(config):
        guarantees = Guarantees(promised_in(readme), may_skip=not environment.get("CI"))
        config.pluginmanager.register(guarantees, "guarantees")


def is_whole(config: pytest.Config) -> bool:
    """Whether all tests are to run: nobody has named files, nor chosen among the tests."""
    chosen = [name for name in (*CHOOSING, *NOT_RUNNING) if config.getoption(name, None)]
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS and not chosen


class Guarantees:
    """What became of each guarantee's test; one with parameters ran if all of them did."""

    def __init__(self, promised: frozenset[str], *, may_skip: bool) -> None:
        self._promised = promised
        self._may_skip = may_skip
        self._ran: set[str] = set()
        self._skipped: dict[str, str] = {}
        self._is_judged = False

    @property
    def _missing(self) -> list[str]:
        return sorted(self._promised - self._ran - set(self._skipped))

    @property
    def _is_broken(self) -> bool:
        return bool(self._missing or (self._skipped and not self._may_skip))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid.partition("[")[0].rpartition("::")[2]
        if name not in self._promised:
            return
        if report.skipped:  # Also one that was expected to fail, and did.
            self._skipped[name] = _reason(report)
        elif report.when == "call":
            self._ran.add(name)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        # One that was broken off has not been whole.
        is_ended = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        self._is_judged = is_ended and not (session.shouldfail or session.shouldstop)
        if self._is_judged and self._is_broken:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._is_judged:
            return
        if not self._missing and not self._skipped:
            terminalreporter.write_line(f"all {len(self._promised)} guarantees of the README were tested")
            return
        broken = self._is_broken
        terminalreporter.section("guarantees that were not tested", red=broken, yellow=not broken, bold=True)
        for name in self._missing:
            terminalreporter.write_line(f"{name}: did not run", red=True)
        for name, reason in sorted(self._skipped.items()):
            terminalreporter.write_line(f"{name}: skipped ({reason})", red=broken, yellow=not broken)
        terminalreporter.write_line(
            "The README promises these; that makes the run a failed one, see docs/contributing.md."
            if broken
            else "The README promises these: nothing is proved about them here. With CI=true this would fail."
        )


def _reason(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    return str(getattr(report, "wasxfail", "")) or "no reason given"
