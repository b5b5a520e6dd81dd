"""include/terraform as the tests see it: parsed, or evaluated by the real program, without a provider."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import hcl2

from local_airflow.environment import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROOT = REPOSITORY / "include" / "terraform"
PROGRAM = shutil.which("terraform")


def files() -> list[Path]:
    return sorted(ROOT.rglob("*.tf"))


def folders() -> list[Path]:
    return sorted({file.parent for file in files()})


@functools.cache
def parse(file: Path) -> dict[str, Any]:
    """A file's blocks, without the quotes that the parser leaves around strings and labels."""
    with file.open(encoding="utf-8") as stream:
        return dict(_plain(hcl2.load(stream)))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items() if not str(key).startswith("__")}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, str) and len(value) > 1 and value[0] == value[-1] == '"':
        return value[1:-1]
    return value


def blocks(folder: Path, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The blocks of one kind in a folder, by label; a resource's label is ``type.name``."""
    for file in sorted(folder.glob("*.tf")):
        for block in parse(file).get(kind, []):
            for label, content in block.items():
                if kind in ("resource", "data"):
                    yield from ((f"{label}.{name}", inner) for name, inner in content.items())
                else:
                    yield label, content


def local_values(folder: Path) -> dict[str, Any]:
    return {
        name: value
        for file in sorted(folder.glob("*.tf"))
        for block in parse(file).get("locals", [])
        for name, value in block.items()
    }


def run(folder: Path, *arguments: str) -> str:
    """Run the program; returns what it printed."""
    assert PROGRAM is not None
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
    ran = subprocess.run(
        [PROGRAM, *arguments],
        cwd=folder,
        env=environment | {"CHECKPOINT_DISABLE": "1", "TF_IN_AUTOMATION": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def evaluate(module: str, output: str, folder: Path, **variables: Any) -> Any:
    """What a module that has no resources makes of its variables."""
    configuration = {
        "module": {"it": {"source": str(ROOT / "modules" / module), **variables}},
        "output": {output: {"value": f"${{module.it.{output}}}"}},
    }
    # ${...} in what is given is text, not a template; our own output is one.
    text = json.dumps(configuration["module"]).replace("${", "$${")
    (folder / "main.tf.json").write_text(
        json.dumps({"module": json.loads(text), "output": configuration["output"]}), encoding="utf-8"
    )
    run(folder, "init", "-input=false", "-no-color")
    run(folder, "apply", "-input=false", "-no-color", "-auto-approve")
    return json.loads(run(folder, "output", "-json", output))
