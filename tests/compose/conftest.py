"""The compose file, up. ``make compose-test`` sets the variables and gives it a network of its own."""

from __future__ import annotations

import os
import shlex
import subprocess
import uuid
from typing import TYPE_CHECKING

import pytest
from tests.support.compose import REPOSITORY, compose_up, services_up
from tests.support.containers import Engine

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tests.support.compose import Stack


@pytest.fixture(scope="session")
def variables_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A .env as a user makes it."""
    file = tmp_path_factory.mktemp("compose-env") / "env"
    subprocess.run(["scripts/compose-env.sh", str(file)], cwd=REPOSITORY, check=True, capture_output=True)
    return file


@pytest.fixture(scope="session")
def variables(variables_file: Path) -> Mapping[str, str]:
    lines = variables_file.read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


@pytest.fixture(scope="session")
def compose(variables_file: Path) -> Sequence[str]:
    """The command line of compose: ``docker compose``, or ``docker-compose`` where that is not there."""
    return [*shlex.split(os.environ["COMPOSE"]), "--env-file", str(variables_file)]


@pytest.fixture(scope="session")
def stack(compose: Sequence[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    engine = Engine(os.environ["ENGINE"])
    if engine.has_compose:
        with compose_up(compose) as stack:
            yield stack
    else:
        with services_up(
            engine, compose, tmp_path_factory.mktemp(f"pdf-ops-{uuid.uuid4().hex[:8]}", numbered=False)
        ) as stack:
            yield stack
