"""Builds the bundle: plugins.zip, dags/, requirements.txt, startup.sh, and a manifest with their hashes.

The same sources give the same bytes, so that a hash says whether anything changed. Not for talking
to AWS: see ``mwaa.publish``.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path

AIRFLOW_VERSIONS = ("3.3.1", "3.2.1")
PYTHON_VERSION = "3.12"
PLUGINS_FOLDER = "/usr/local/airflow/plugins"
"""Where MWAA unpacks plugins.zip."""

PLUGINS, REQUIREMENTS, STARTUP, DAGS = "plugins.zip", "requirements.txt", "startup.sh", "dags"
MANIFEST = "manifest.json"

# MWAA's containers are x86-64 with glibc 2.34; pip takes only the platforms that it is told.
_PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
_CONSTRAINT = re.compile(
    r'^(--constraint\s+"\S+/constraints-)[0-9.]+(/constraints-3\.12\.txt")$', re.MULTILINE
)
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s\\;]+)", re.MULTILINE)
# The oldest time that a zip file can hold: the time of a build must not change its bytes.
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)
_HIDDEN_BUT_NEEDED = ".airflowignore"


class BundleError(Exception):
    """The bundle cannot be built, read or published; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BundledFile:
    """One file of a bundle.

    Attributes:
        path: Its place in the bundle, and its key in the bucket.
        sha256: Hash of its bytes, in hex.
        size_bytes: How many there are.
    """

    path: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a bundle holds.

    Attributes:
        version: The release of pdf_ops.
        airflow: The version of Airflow that it is built for.
        has_wheels: Whether it brings its packages along.
        files: All files but the manifest itself, by path.
    """

    version: str
    airflow: str
    has_wheels: bool
    files: tuple[BundledFile, ...]

    def to_json(self) -> str:
        """As the file holds it."""
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Manifest:
        """Read it.

        Raises:
            BundleError: If it is none.
        """
        try:
            values = json.loads(text)
            files = tuple(BundledFile(**file) for file in values.pop("files"))
            return cls(**values, files=files)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise BundleError(f"not the manifest of a bundle: {error!r}") from error


def build(root: Path, out: Path, *, airflow: str, has_wheels: bool = False) -> Manifest:
    """Build the bundle in a folder, which is emptied first.

    Args:
        root: The repository.
        out: The folder.
        airflow: The version of Airflow that the environment runs.
        has_wheels: Whether to bring the packages along, for an environment without a package index.

    Raises:
        BundleError: If something that belongs into it is missing or cannot be used.
    """
    if airflow not in AIRFLOW_VERSIONS:
        raise BundleError(f"Airflow {airflow} is not supported; accepted: {', '.join(AIRFLOW_VERSIONS)}")
    version = read_version(root)
    _empty(out)
    for source in _sources(root / "dags"):
        target = out / DAGS / source.relative_to(root / "dags")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())
    with tempfile.TemporaryDirectory() as scratch:
        extras = _offline_files(root, airflow, Path(scratch)) if has_wheels else []
        _zip_plugins(root / "plugins", extras, out / PLUGINS)
    requirements = _offline_requirements(root, airflow) if has_wheels else _requirements(root, airflow)
    (out / REQUIREMENTS).write_text(requirements, encoding="utf-8")
    startup = (root / "include" / "mwaa" / STARTUP).read_text(encoding="utf-8")
    startup = startup.replace("@VERSION@", version).replace("@AIRFLOW@", airflow)
    (out / STARTUP).write_text(startup, encoding="utf-8")
    manifest = Manifest(version=version, airflow=airflow, has_wheels=has_wheels, files=_files(out))
    (out / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
    return manifest


def load(folder: Path) -> Manifest:
    """Read a bundle's manifest and hold its files against it.

    Raises:
        BundleError: If there is none, or a file is not what was built.
    """
    try:
        manifest = Manifest.from_json((folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        raise BundleError(f"there is no bundle in {folder}: run `make mwaa` first") from None
    if _files(folder) != manifest.files:
        raise BundleError(f"the files in {folder} are not those that were built: run `make mwaa` again")
    return manifest


def read_version(root: Path) -> str:
    """The release, as pyproject.toml says.

    Raises:
        BundleError: If it does not.
    """
    try:
        return str(tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])
    except (OSError, KeyError, tomllib.TOMLDecodeError) as error:
        raise BundleError(f"{root} has no pyproject.toml with a version: {error}") from error


def _empty(out: Path) -> None:
    """Remove an earlier bundle, but nothing that is not one."""
    if out.exists() and any(out.iterdir()) and not (out / MANIFEST).exists():
        raise BundleError(f"{out} is not empty and holds no bundle: remove it, or choose another with --out")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)


def _sources(folder: Path) -> list[Path]:
    """Every file below a folder that belongs to the source, in a fixed order."""
    found = [
        path for path in folder.rglob("*") if path.is_file() and not _is_left_behind(path.relative_to(folder))
    ]
    if not found:
        raise BundleError(f"there is nothing in {folder}")
    return sorted(found, key=lambda path: path.relative_to(folder).as_posix())


def _is_left_behind(path: Path) -> bool:
    """Whether Python, an editor or the system made it."""
    return "__pycache__" in path.parts or any(
        part.startswith(".") and part != _HIDDEN_BUT_NEEDED for part in path.parts
    )


def _zip_plugins(plugins: Path, extras: list[Path], target: Path) -> None:
    """Zip the contents of plugins/, not the folder, and some files beside them."""
    # Without it, Airflow's loader would execute every module of pdf_ops under its bare name.
    if not (plugins / _HIDDEN_BUT_NEEDED).exists():
        raise BundleError(f"{plugins / _HIDDEN_BUT_NEEDED} is missing")
    with zipfile.ZipFile(target, "w") as archive:
        for source in _sources(plugins):
            name = source.relative_to(plugins).as_posix()
            archive.writestr(_zip_entry(name), source.read_bytes(), zipfile.ZIP_DEFLATED, 9)
        for extra in extras:
            # Wheels are compressed already.
            archive.writestr(_zip_entry(extra.name), extra.read_bytes(), zipfile.ZIP_STORED)


def _zip_entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _ZIP_TIME)
    entry.create_system = 3  # Unix, also when built elsewhere
    entry.external_attr = 0o100644 << 16
    return entry


def _requirements(root: Path, airflow: str) -> str:
    """requirements.txt with the constraints of this Airflow."""
    text = (root / REQUIREMENTS).read_text(encoding="utf-8")
    if len(_CONSTRAINT.findall(text)) != 1:
        raise BundleError(
            f"{root / REQUIREMENTS} needs exactly one --constraint line with the URL of Airflow's"
        )
    lines = _CONSTRAINT.sub(rf"\g<1>{airflow}\g<2>", text).splitlines()
    return _header(airflow) + "".join(f"{line}\n" for line in lines if line and not line.startswith("#"))


def _offline_requirements(root: Path, airflow: str) -> str:
    """The same with nothing that needs a network: packages and constraints are in the plugins folder."""
    return _header(airflow) + "".join(
        f"{line}\n"
        for line in (
            f"--find-links {PLUGINS_FOLDER}",
            "--no-index",
            f'--constraint "{PLUGINS_FOLDER}/{_constraints(root, airflow).name}"',
            *(f"{name}=={version}" for name, version in _pins(root, airflow)),
        )
    )


def _header(airflow: str) -> str:
    return f"# What pdf_ops needs beside the MWAA image of Airflow {airflow} (Python {PYTHON_VERSION}).\n"


def _constraints(root: Path, airflow: str) -> Path:
    return root / "include" / "mwaa" / f"constraints-{airflow}.txt"


def _wheels_lock(root: Path, airflow: str) -> Path:
    return root / "locks" / f"mwaa-{airflow}.txt"


def _pins(root: Path, airflow: str) -> list[tuple[str, str]]:
    return _PIN.findall(_wheels_lock(root, airflow).read_text(encoding="utf-8"))


def _offline_files(root: Path, airflow: str, folder: Path) -> list[Path]:
    """The constraints, and the wheels that the image does not have, as the lock pins them."""
    platforms = [argument for platform in _PLATFORMS for argument in ("--platform", platform)]
    command = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
        *("--no-deps", "--require-hashes", "--requirement", str(_wheels_lock(root, airflow))),
        *("--only-binary=:all:", "--python-version", PYTHON_VERSION, "--implementation", "cp"),
        *platforms,
        *("--dest", str(folder)),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise BundleError(f"pip could not download the wheels:\n{ran.stderr[-2000:]}")
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != len(_pins(root, airflow)):
        raise BundleError(f"{_wheels_lock(root, airflow)} pins other packages than pip downloaded")
    return [_constraints(root, airflow), *wheels]


def _files(folder: Path) -> tuple[BundledFile, ...]:
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
    return tuple(
        BundledFile(path=name, sha256=hashlib.sha256(body).hexdigest(), size_bytes=len(body))
        for name, body in sorted(found.items())
    )
