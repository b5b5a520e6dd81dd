"""A whole run that leaves out a guarantee of the README fails, and says which."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from tests.support.guarantees import promised_in

pytest_plugins = ["pytester"]

REPOSITORY = Path(__file__).resolve().parents[2]
README = """
| Nothing is lost | `test_nothing_is_lost` |
| Nothing is twice | `test_nothing_is_twice` |
"""
CONFTEST = """
from pathlib import Path
from tests.support import guarantees

def pytest_configure(config):
    guarantees.watch(config, Path(__file__).with_name("README.md"))
"""
LOST = "def test_nothing_is_lost(): pass\n"
TWICE = "def test_nothing_is_twice(): pass\n"
PER_CASE = """
import pytest
@pytest.mark.parametrize("case", ["usual", pytest.param("rare", marks=pytest.mark.skip("no such kernel"))])
def test_nothing_is_twice(case): pass
"""
AT_ONCE = ("-n", "2")


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """Runs tests in a repository of their own; gives the exit code and what was printed."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    # What else is installed beside pytest takes seconds to load.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makefile(".md", README=README)
    pytester.makeini(f"[pytest]\ntestpaths = checks\npythonpath = {REPOSITORY}\n")

    def run(source: str, *arguments: str, conftest: str = CONFTEST) -> tuple[int, str]:
        pytester.makeconftest(conftest)
        pytester.mkdir("checks").joinpath("test_it.py").write_text(source, encoding="utf-8")
        ran = pytester.runpytest_subprocess("-p", "xdist", *arguments)
        return int(ran.ret), ran.stdout.str()

    return run


@pytest.mark.parametrize("arguments", [(), AT_ONCE])
def test_a_whole_run_with_all_guarantees_passes_and_says_so(run, arguments):
    code, output = run(LOST + TWICE, *arguments)

    assert code == 0, output
    assert "all 2 guarantees of the README were tested" in output


@pytest.mark.parametrize("arguments", [(), AT_ONCE])
def test_a_guarantee_that_is_not_collected_fails_the_run_by_name(run, arguments):
    code, output = run(LOST, *arguments)

    assert code == 1, output
    assert "test_nothing_is_twice: did not run" in output
    assert "test_nothing_is_lost: " not in output


def test_a_guarantee_that_is_deselected_on_the_quiet_fails_the_run(run):
    dropping = "\ndef pytest_collection_modifyitems(items): del items[0]\n"

    code, output = run(LOST + TWICE, conftest=CONFTEST + dropping)

    assert code == 1, output
    assert "test_nothing_is_lost: did not run" in output


def test_a_guarantee_whose_setup_fails_did_not_run(run):
    code, output = run(f"{LOST}def test_nothing_is_twice(absent): pass\n")

    assert code == 1
    assert "test_nothing_is_twice: did not run" in output


@pytest.mark.parametrize("arguments", [(), AT_ONCE])
def test_a_guarantee_that_is_skipped_fails_the_run_in_ci(run, monkeypatch, arguments):
    monkeypatch.setenv("CI", "true")

    code, output = run(LOST + PER_CASE, *arguments)

    assert code == 1, output
    assert "test_nothing_is_twice: skipped (no such kernel)" in output


def test_a_guarantee_that_is_skipped_elsewhere_is_told_loudly(run):
    code, output = run(LOST + PER_CASE)

    assert code == 0, output
    assert "guarantees that were not tested" in output
    assert "test_nothing_is_twice: skipped (no such kernel)" in output


def test_a_guarantee_that_is_expected_to_fail_counts_as_skipped(run, monkeypatch):
    monkeypatch.setenv("CI", "true")
    failing = "import pytest\n@pytest.mark.xfail(reason='later')\ndef test_nothing_is_twice(): assert False\n"

    code, output = run(LOST + failing)

    assert code == 1, output
    assert "test_nothing_is_twice: skipped (later)" in output


@pytest.mark.parametrize(
    "arguments",
    [("checks",), ("checks/test_it.py",), ("-k", "lost"), ("--deselect", "checks/x.py"), ("--collect-only",)],
    ids=" ".join,
)
def test_a_run_of_chosen_tests_is_not_judged(run, arguments):
    code, output = run(LOST, *arguments)

    assert code == 0, output
    assert "guarantees" not in output


def test_a_run_that_was_broken_off_is_not_judged(run):
    code, output = run("def test_other(): assert False\n" + LOST + TWICE, "-x")

    assert code == 1
    assert "guarantees" not in output


def test_our_own_settings_choose_no_tests() -> None:
    """A choice made there would leave no run to judge."""
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    options = settings["tool"]["pytest"]["ini_options"]["addopts"]

    assert [option for option in options if not option.startswith(("--import-mode", "--strict", "-r"))] == []


def test_the_readme_promises_something() -> None:
    assert len(promised_in(REPOSITORY / "README.md")) > 30
