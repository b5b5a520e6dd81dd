"""Releases, made in a real repository of git."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import ocr_worker
import pdf_ops

REPOSITORY = Path(__file__).resolve().parents[3]
CHANGELOG = """# Changelog

## [Unreleased]

## [9.1.0] - 2030-01-01

### Added

- Something that users notice.

## [9.0.0] - 2029-01-01

- The one before.
"""


class Clone:
    """A repository with what a release touches."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("plugins", "dags", "locks", "scripts", "include/mwaa", "include/ocr_worker"):
            shutil.copytree(REPOSITORY / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in (
            "pyproject.toml",
            "requirements.txt",
            ".gitignore",
            ".env.example",
            "docker-compose.yaml",
        ):
            shutil.copy(REPOSITORY / name, folder)
        (folder / "CHANGELOG.md").write_text(CHANGELOG)
        self.git("init", "--quiet")
        for key, value in (("user.name", "Test"), ("user.email", "test@example.org")):
            self.git("config", key, value)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "All of it")

    def git(self, *arguments: str) -> str:
        ran = subprocess.run(["git", *arguments], cwd=self.folder, capture_output=True, text=True, check=True)
        return ran.stdout.strip()

    def release(self, version: str) -> tuple[int, str]:
        ran = subprocess.run(
            [sys.executable, self.folder / "scripts" / "release.py", version],
            capture_output=True,
            text=True,
            check=False,
        )
        return ran.returncode, ran.stdout + ran.stderr

    def assert_untouched(self) -> None:
        assert self.git("status", "--porcelain") == ""
        assert self.git("tag") == ""
        assert self.git("rev-list", "--count", "HEAD") == "1"


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path / "clone")


def test_a_release_sets_the_version_everywhere_builds_the_bundles_commits_and_tags(clone):
    code, output = clone.release("9.1.0")

    assert code == 0, output
    assert "git push origin HEAD v9.1.0" in output
    assert clone.git("status", "--porcelain") == ""
    assert clone.git("log", "-1", "--format=%s") == "Release 9.1.0"
    assert clone.git("rev-parse", "v9.1.0^{commit}") == clone.git("rev-parse", "HEAD")
    assert "- Something that users notice." in clone.git("tag", "--list", "--format=%(contents)", "v9.1.0")
    assert "The one before" not in clone.git("tag", "--list", "--format=%(contents)", "v9.1.0")
    for name in ("plugins/pdf_ops/__init__.py", "include/ocr_worker/__init__.py"):
        assert '__version__ = "9.1.0"' in (clone.folder / name).read_text()
    assert "PDF_OPS_VERSION=9.1.0\n" in (clone.folder / ".env.example").read_text()
    assert set(
        re.findall(r"PDF_OPS_VERSION:-([^}]+)", (clone.folder / "docker-compose.yaml").read_text())
    ) == {"9.1.0"}
    for airflow in ("3.2.1", "3.3.1"):
        bundle = clone.folder / "dist" / f"mwaa-9.1.0-airflow-{airflow}"
        manifest = json.loads((bundle / "manifest.json").read_text())
        assert (manifest["version"], manifest["airflow"]) == ("9.1.0", airflow)


def test_a_version_without_a_section_in_the_changelog_is_refused(clone):
    code, output = clone.release("9.2.0")

    assert (code, "CHANGELOG.md has no section" in output) == (1, True)
    clone.assert_untouched()


def test_changes_that_are_not_committed_are_refused(clone):
    (clone.folder / "new.txt").write_text("not yet")

    code, output = clone.release("9.1.0")

    assert (code, "not committed" in output) == (1, True)
    assert clone.git("tag") == ""


@pytest.mark.parametrize("version", ["", "v9.1.0", "9.1", "9.1.0-rc1", "0.0.1"])
def test_what_is_no_next_version_is_refused(clone, version):
    code, _ = clone.release(version)

    assert code == 1
    clone.assert_untouched()


def test_a_release_is_made_once(clone):
    clone.release("9.1.0")

    code, output = clone.release("9.1.0")

    assert (code, "there already" in output) == (1, True)


def test_a_release_whose_bundle_cannot_be_built_leaves_everything_as_it_was(clone):
    clone.git("rm", "--quiet", "plugins/.airflowignore")
    clone.git("commit", "--quiet", "--amend", "--no-edit")

    code, output = clone.release("9.1.0")

    assert (code, "airflowignore is missing" in output) == (1, True)
    clone.assert_untouched()


def test_the_version_is_the_same_wherever_it_is_written_down():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]

    assert {project["version"], pdf_ops.__version__, ocr_worker.__version__} == {project["version"]}


def test_the_changelog_has_a_section_for_what_is_not_released():
    text = (REPOSITORY / "CHANGELOG.md").read_text()

    assert re.search(r"^## \[Unreleased\]$", text, re.MULTILINE)
