"""Makes a release: `make release VERSION=1.2.3`. Checks first, changes after; nothing leaves this machine.

The version is set where it is written down, committed and tagged, and the bundles for MWAA are built
from that commit. The image takes its tag from the same version.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from datetime import date
from pathlib import Path

from mwaa.bundle import AIRFLOW_VERSIONS, BundleError, build, read_version

ROOT = Path(__file__).resolve().parents[1]
# Where the version is written down.
VERSIONED = {
    "pyproject.toml": r'^(version = ")[^"]+(")$',
    "plugins/pdf_ops/__init__.py": r'^(__version__ = ")[^"]+(")$',
    "include/ocr_worker/__init__.py": r'^(__version__ = ")[^"]+(")$',
    ".env.example": r"^(PDF_OPS_VERSION=).+($)",
    "docker-compose.yaml": r"(\$\{PDF_OPS_VERSION:-)[^}]+(\})",
}
NEXT = """
{version} is committed and tagged, and its bundles are in dist/. What is left can be seen by others:

  git push origin HEAD v{version}
  make image                              # its tag is {version}; then push it, see docs/deploy-mwaa.md
  make mwaa-publish BUCKET=... ENVIRONMENT=...

docs/upgrade.md says in which order, and how to go back."""


class ReleaseError(Exception):
    """The release cannot be made; the message says what to do."""


def git(*arguments: str) -> str:
    """Run git in the repository; returns what it printed."""
    ran = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise ReleaseError(f"git {arguments[0]}: {ran.stderr.strip()}")
    return ran.stdout.strip()


def numbers(version: str) -> tuple[int, ...]:
    """A version to compare by."""
    if not re.fullmatch(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}", version):
        raise ReleaseError(f"{version!r} is no version: make release VERSION=1.2.3")
    return tuple(map(int, version.split(".")))


def changes_of(version: str) -> str:
    """What CHANGELOG.md says about the version."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(
        rf"^## \[{re.escape(version)}\][^\n]*\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
    )
    if found is None or not found[1].strip():
        raise ReleaseError(
            f"CHANGELOG.md has no section for it: move what is under [Unreleased] below "
            f"'## [{version}] - {date.today().isoformat()}' and commit that"  # noqa: DTZ011 -- a person's own day
        )
    return found[1].strip()


def check(version: str) -> str:
    """Refuse what cannot be released; returns what changed."""
    if numbers(version) < numbers(read_version(ROOT)):
        raise ReleaseError(f"{version} is older than {read_version(ROOT)}, which is in pyproject.toml")
    if git("status", "--porcelain"):
        raise ReleaseError("there are changes that are not committed: commit or stash them")
    if git("tag", "--list", f"v{version}"):
        raise ReleaseError(f"v{version} is there already: choose the next version")
    return changes_of(version)


def set_version(version: str) -> None:
    """Write the version wherever it is written down."""
    for name, pattern in VERSIONED.items():
        path = ROOT / name
        text, count = re.subn(
            pattern, rf"\g<1>{version}\g<2>", path.read_text(encoding="utf-8"), flags=re.MULTILINE
        )
        if not count:
            raise ReleaseError(f"{name} has no line with a version, and should have one")
        path.write_text(text, encoding="utf-8")


def release(version: str) -> None:
    """Make it, or leave everything as it was."""
    changes = check(version)
    try:
        set_version(version)
        for airflow in AIRFLOW_VERSIONS:
            build(ROOT, ROOT / "dist" / f"mwaa-{version}-airflow-{airflow}", airflow=airflow)
    except (ReleaseError, BundleError):
        git("checkout", "--", *VERSIONED)
        raise
    if git("status", "--porcelain"):
        git("commit", "--all", "--message", f"Release {version}")
    # --cleanup: git would take the headings of the changes for comments.
    git("tag", "--annotate", f"v{version}", "--cleanup=verbatim", "--message", f"{version}\n\n{changes}\n")


def main() -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version", help="such as 1.2.3")
    options = parser.parse_args()
    try:
        release(options.version)
    except (ReleaseError, BundleError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    print(NEXT.format(version=options.version))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
