"""Writes what an image is made of as CycloneDX: Debian's packages and those of a virtual environment.

Runs inside the image, with nothing but the standard library: ``sbom.py VENV >FILE``.
"""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote


def debian_components(release: str) -> list[dict[str, str]]:
    """Every package that dpkg has installed."""
    form = "${db:Status-Abbrev}\t${Package}\t${Version}\t${Architecture}\n"
    shown = subprocess.run(["dpkg-query", "-W", "-f", form], capture_output=True, text=True, check=True)
    rows = [line.split("\t") for line in shown.stdout.splitlines()]
    return [
        component(
            name, version, f"pkg:deb/debian/{name}@{quote(version, safe='')}?arch={arch}&distro={release}"
        )
        for status, name, version, arch in rows
        if status.startswith("ii")
    ]


def python_components(venv: Path) -> list[dict[str, str]]:
    """Every distribution below a virtual environment."""
    folders = [str(folder) for folder in venv.glob("lib/python3*/site-packages")]
    found = {
        (one.name.lower().replace("_", "-"), one.version)
        for one in importlib.metadata.distributions(path=folders)
    }
    return [component(name, version, f"pkg:pypi/{name}@{version}") for name, version in sorted(found)]


def component(name: str, version: str, purl: str) -> dict[str, str]:
    """One part, as CycloneDX describes a library."""
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def system() -> dict[str, str]:
    """What /etc/os-release says."""
    lines = Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
    return dict(line.replace('"', "").split("=", 1) for line in lines if "=" in line)


def bill_of_materials(venv: Path) -> dict[str, object]:
    """The whole document; the same image gives the same bytes."""
    debian = system()
    release = f"{debian['ID']}-{debian['VERSION_ID']}"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "container", "bom-ref": venv.name, "name": venv.name}},
        "components": [
            {
                "type": "operating-system",
                "bom-ref": release,
                "name": debian["ID"],
                "version": debian["VERSION_ID"],
            },
            *debian_components(release),
            *python_components(venv),
        ],
    }


if __name__ == "__main__":
    print(json.dumps(bill_of_materials(Path(sys.argv[1])), indent=1))
