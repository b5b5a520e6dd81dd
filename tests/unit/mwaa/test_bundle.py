"""The bundle for MWAA: what is in it, that it can be repeated, and what it refuses."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from mwaa.bundle import BundleError, Manifest, build, load
from mwaa.cli import main
from pdf_ops import __version__

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture
def repository(tmp_path):
    """What a bundle is made of, to be changed."""
    root = tmp_path / "repository"
    for folder in ("plugins", "dags", "include/mwaa", "locks"):
        shutil.copytree(REPOSITORY / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "requirements.txt"):
        shutil.copy(REPOSITORY / file, root)
    return root


def names_in(bundle: Path) -> list[str]:
    with zipfile.ZipFile(bundle / "plugins.zip") as archive:
        return archive.namelist()


def test_the_zip_holds_the_contents_of_plugins_and_not_the_folder(repository, tmp_path):
    build(repository, tmp_path / "out", airflow="3.3.1")

    names = names_in(tmp_path / "out")
    assert {".airflowignore", "pdf_ops_plugin.py", "pdf_ops/__init__.py", "pdf_ops/contract/pages.py"} <= set(
        names
    )
    assert not [name for name in names if name.startswith("plugins")]


def test_nothing_that_is_not_source_is_shipped(repository, tmp_path):
    for left in ("plugins/pdf_ops/__pycache__/x.cpython-312.pyc", "plugins/.DS_Store", "dags/.idea/x.py"):
        (repository / left).parent.mkdir(exist_ok=True)
        (repository / left).write_text("left behind")

    manifest = build(repository, tmp_path / "out", airflow="3.3.1")

    assert not [name for name in names_in(tmp_path / "out") if "pycache" in name or "DS_Store" in name]
    assert [file.path for file in manifest.files] == [
        *(f"dags/{path.name}" for path in sorted((REPOSITORY / "dags").glob("*.py"))),
        "plugins.zip",
        "requirements.txt",
        "startup.sh",
    ]


def test_the_same_sources_give_the_same_bytes(repository, tmp_path):
    first = build(repository, tmp_path / "first", airflow="3.3.1")
    for path in repository.rglob("*.py"):
        os.utime(path, (1, 1))
        path.chmod(0o755)

    assert build(repository, tmp_path / "second", airflow="3.3.1") == first


def test_a_changed_source_gives_another_hash(repository, tmp_path):
    first = build(repository, tmp_path / "first", airflow="3.3.1")
    (repository / "plugins" / "pdf_ops" / "window.py").write_text("# changed\n")

    assert build(repository, tmp_path / "second", airflow="3.3.1") != first


@pytest.mark.parametrize("airflow", ["3.2.1", "3.3.1"])
def test_the_requirements_name_the_constraints_of_their_airflow(repository, tmp_path, airflow):
    build(repository, tmp_path / "out", airflow=airflow)

    [_, constraint, *packages] = (tmp_path / "out" / "requirements.txt").read_text().splitlines()
    assert constraint == (
        f'--constraint "https://raw.githubusercontent.com/apache/airflow/constraints-{airflow}/constraints-3.12.txt"'
    )
    assert packages == ["apache-airflow-providers-slack", "pyarrow", "redis", "tantivy", "throttled-py"]


def test_the_manifest_has_version_and_hash_of_every_file(repository, tmp_path):
    build(repository, tmp_path / "out", airflow="3.3.1")

    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert (manifest["version"], manifest["airflow"]) == (__version__, "3.3.1")
    for file in manifest["files"]:
        body = (tmp_path / "out" / file["path"]).read_bytes()
        assert (file["sha256"], file["size_bytes"]) == (hashlib.sha256(body).hexdigest(), len(body))


def test_the_startup_script_says_which_release_a_container_started_with(repository, tmp_path):
    build(repository, tmp_path / "out", airflow="3.2.1")

    # Sourced, as MWAA does it.
    ran = subprocess.run(
        ["bash", "-euc", 'source "$0"; env', tmp_path / "out" / "startup.sh"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.splitlines()[0] == f"pdf_ops {__version__}, built for Airflow 3.2.1"
    assert f"PDF_OPS_VERSION={__version__}" in ran.stdout.splitlines()


def test_building_again_leaves_nothing_of_the_bundle_before(repository, tmp_path):
    (repository / "dags" / "old.py").write_text("# gone in the next release\n")
    build(repository, tmp_path / "out", airflow="3.3.1")
    (repository / "dags" / "old.py").unlink()

    build(repository, tmp_path / "out", airflow="3.3.1")

    assert not (tmp_path / "out" / "dags" / "old.py").exists()


def test_a_folder_with_other_things_is_not_emptied(repository, tmp_path):
    (tmp_path / "thesis.txt").write_text("the only copy")

    with pytest.raises(BundleError, match="holds no bundle"):
        build(repository, tmp_path, airflow="3.3.1")
    assert (tmp_path / "thesis.txt").exists()


def test_plugins_without_their_airflowignore_are_refused(repository, tmp_path):
    (repository / "plugins" / ".airflowignore").unlink()

    with pytest.raises(BundleError, match="airflowignore is missing"):
        build(repository, tmp_path / "out", airflow="3.3.1")


def test_requirements_without_constraints_are_refused(repository, tmp_path):
    (repository / "requirements.txt").write_text("pyarrow\n")

    with pytest.raises(BundleError, match="--constraint"):
        build(repository, tmp_path / "out", airflow="3.3.1")


def test_an_airflow_that_nobody_proved_is_refused(repository, tmp_path):
    with pytest.raises(BundleError, match=r"accepted: 3\.3\.1, 3\.2\.1"):
        build(repository, tmp_path / "out", airflow="2.10.3")


def test_a_bundle_that_was_edited_is_not_taken(repository, tmp_path):
    manifest = build(repository, tmp_path / "out", airflow="3.3.1")
    assert load(tmp_path / "out") == manifest
    (tmp_path / "out" / "requirements.txt").write_text("pyarrow\n")

    with pytest.raises(BundleError, match="make mwaa"):
        load(tmp_path / "out")


def test_a_file_that_is_no_manifest_is_not_taken_for_one():
    with pytest.raises(BundleError, match="not the manifest"):
        Manifest.from_json('{"files": [{"name": "x"}]}')


def test_the_command_line_says_what_is_wrong_and_what_to_do(tmp_path, capsys):
    assert main(["publish", "--bucket", "", "--bundle", str(tmp_path)]) == 1
    assert "BUCKET=" in capsys.readouterr().err
