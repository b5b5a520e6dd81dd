"""What the tests of the bundle share: installed environments."""

from __future__ import annotations

import shutil
from functools import cache
from typing import TYPE_CHECKING

import pytest
from tests.support.mwaa import MwaaInstall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="session")
def mwaa_install(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], MwaaInstall]]:
    """Gives the environment of a version of Airflow; what it costs to make, it costs once."""
    made = []

    @cache
    def install(airflow: str) -> MwaaInstall:
        made.append(tmp_path_factory.mktemp(f"mwaa-{airflow}"))
        return MwaaInstall(airflow, made[-1])

    yield install
    for folder in made:
        shutil.rmtree(folder)
