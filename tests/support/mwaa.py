"""An Airflow as Amazon MWAA makes it from a bundle: its image's packages, ours on top, then the plugins.

Two things differ from MWAA, as neither can be had here: the URL of the constraints, and the folder
/usr/local/airflow. Both are replaced in the requirements by what they stand for.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from tests.support.pipeline import Install, home_variables, run_program

from local_airflow.environment import REPOSITORY
from mwaa.bundle import PLUGINS_FOLDER, build

CONSTRAINTS_URL = "https://raw.githubusercontent.com/apache/airflow/constraints-{0}/constraints-3.12.txt"
IMAGE = REPOSITORY / "include" / "mwaa"
IS_312 = "import sys; sys.exit(sys.version_info[:2] != (3, 12))"


def find_python_312() -> str:
    """An interpreter like MWAA's, or the name by which uv fetches one."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    # By running it: a version manager's shim may be on the path with nothing behind it.
    known = (sys.executable, "python3.12", *map(str, sorted(pyenv.glob("versions/3.12*/bin/python"))))
    for candidate in filter(shutil.which, known):
        if subprocess.run([candidate, "-c", IS_312], capture_output=True, check=False).returncode == 0:
            return candidate
    return "cpython-3.12"


def own_environment() -> dict[str, str]:
    """Ours, without what would lead Python, pip or Airflow elsewhere than MWAA's go."""
    foreign = ("AIRFLOW", "AWS_", "PYTHON", "PIP_FIND_LINKS", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if not name.startswith(foreign)}


class MwaaInstall(Install):
    """An environment of MWAA, below a folder of its own.

    :param airflow: Its version of Airflow.
    :param folder: An empty folder outside of the repository.
    :param has_wheels: Whether the bundle brings its packages along, and there is no package index.
    """

    def __init__(self, airflow: str, folder: Path, *, has_wheels: bool = False) -> None:
        super().__init__(airflow, folder)
        self.home_folder = folder / "airflow"
        self.plugins, self.dags = self.home_folder / "plugins", self.home_folder / "dags"
        self._venv = folder / "venv"
        bundle = folder / "bundle"
        self.manifest = build(REPOSITORY, bundle, airflow=airflow, has_wheels=has_wheels)
        with zipfile.ZipFile(bundle / "plugins.zip") as archive:
            archive.extractall(self.plugins)
        shutil.copytree(bundle / "dags", self.dags)
        self._make_image()
        self.preinstalled = self._packages()
        self.install_s = self._install_requirements(bundle / "requirements.txt", has_wheels=has_wheels)

    def _make_image(self) -> None:
        uv = subprocess.run(
            [REPOSITORY / "scripts" / "setup.sh", "uv"], capture_output=True, text=True, check=True
        )
        uv_program = REPOSITORY / uv.stdout.strip()
        made = subprocess.run(
            [
                uv_program,
                "venv",
                "--quiet",
                "--seed",
                "--no-project",
                "--python",
                find_python_312(),
                self._venv,
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode != 0:
            pytest.fail(
                "MWAA runs Python 3.12, and there is none here: install python3.12 and its venv module, or "
                f"`pyenv install 3.12`, and run this again. uv said:\n{made.stderr}"
            )
        run_program(
            [
                *(uv_program, "pip", "install", "--quiet", "--python", self._venv / "bin" / "python"),
                *("--requirement", IMAGE / "preinstalled.txt", f"apache-airflow=={self.airflow}"),
                *("--constraint", IMAGE / f"constraints-{self.airflow}.txt"),
            ],
            os.environ,
        )

    def _install_requirements(self, file: Path, *, has_wheels: bool) -> float:
        """As MWAA's entry point does it: pip itself, in one go; returns how many seconds it took."""
        there = PLUGINS_FOLDER if has_wheels else CONSTRAINTS_URL.format(self.airflow)
        here = self.plugins if has_wheels else IMAGE / f"constraints-{self.airflow}.txt"
        text = file.read_text(encoding="utf-8")
        assert there in text
        requirements = self._folder / "requirements.txt"
        requirements.write_text(text.replace(there, str(here)), encoding="utf-8")
        environment = own_environment()
        if has_wheels:
            # Not even a mirror or a cache of this machine.
            environment |= {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_CACHE_DIR": "1"}
        started = time.monotonic()
        run_program([self.bin / "pip", "install", "-r", requirements], environment, cwd=self.home_folder)
        return time.monotonic() - started

    def _packages(self) -> dict[str, str]:
        listed = self.run("pip", "list", "--format", "json")
        return {
            re.sub(r"[-_.]+", "-", package["name"]).lower(): package["version"]
            for package in json.loads(listed.splitlines()[-1])
        }

    @property
    def added(self) -> dict[str, str]:
        """What our requirements brought, or changed."""
        return dict(self._packages().items() - self.preinstalled.items())

    @cached_property
    def bin(self) -> Path:
        return self._venv / "bin"

    @property
    def cwd(self) -> Path:
        return self.home_folder

    def variables(self) -> dict[str, str]:
        return {
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.dags),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(self.plugins),
            # As MWAA's image sets it: each task pays for its imports.
            "AIRFLOW__CORE__EXECUTE_TASKS_NEW_PYTHON_INTERPRETER": "True",
            "PYTHONPATH": "",
        }

    def run(self, program: str, *arguments: str, **variables: str) -> str:
        """Run one of its programs, as a container of MWAA would."""
        environment = {**own_environment(), **self.variables(), **variables}
        return run_program([self.bin / program, *arguments], environment, cwd=self.cwd)

    def airflow_rows(self, home: Path, *arguments: str) -> list[dict[str, Any]]:
        """What a command of Airflow's lists."""
        printed = self.run("airflow", *arguments, "--output", "json", **home_variables(home))
        # Warnings may stand around it.
        found = [line for line in printed.splitlines() if line.startswith("[{") or line == "[]"]
        assert len(found) == 1, printed
        return list(json.loads(found[0]))
