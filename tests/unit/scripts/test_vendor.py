"""What `make vendor` takes into the pages: the package that was looked at, the files that were named."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def vendor() -> Any:
    spec = importlib.util.spec_from_file_location("vendor_under_test", ROOT / "scripts" / "vendor.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def package(folder: Path, files: dict[str, bytes]) -> Path:
    archive = folder / "package.tgz"
    with tarfile.open(archive, "w:gz") as packed:
        for name, body in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(body)
            packed.addfile(member, io.BytesIO(body))
    return archive


def test_a_package_with_another_hash_is_refused(vendor: Any):
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(b"good").digest()).decode()

    vendor.check("one", b"good", integrity)
    with pytest.raises(vendor.VendorError, match="not what"):
        vendor.check("one", b"evil", integrity)


def test_only_the_files_that_are_named_are_written_and_only_below_the_folder(vendor: Any, tmp_path: Path):
    files = {
        "package/LICENSE": b"law",
        "package/build/a.mjs": b"a",
        "package/build/b.map": b"b",
        "package/../../evil.mjs": b"evil",
    }
    target = tmp_path / "target"
    count = vendor.unpack(package(tmp_path, files), ["LICENSE", "*.mjs"], target)

    assert count == 2
    assert (target / "build" / "a.mjs").read_bytes() == b"a"
    assert not list(tmp_path.rglob("evil.mjs"))


def test_a_package_without_a_file_that_is_needed_is_refused(vendor: Any, tmp_path: Path):
    with pytest.raises(vendor.VendorError, match=r"has no wasm/\*"):
        vendor.unpack(package(tmp_path, {"package/LICENSE": b""}), ["LICENSE", "wasm/*"], tmp_path / "target")


def test_every_package_is_pinned_by_version_and_hash_and_names_no_host():
    text = (ROOT / "scripts" / "vendored.json").read_text(encoding="utf-8")

    assert "://" not in text
    for one in json.loads(text).values():
        assert one["integrity"].startswith("sha512-")
        assert one["version"][0].isdigit()
        assert "LICENSE" in one["files"]
