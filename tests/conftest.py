"""What all tests share: Airflow stays out of the user's own files, and there is a local AWS to ask for."""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support import guarantees

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local_aws import LocalAws

REPOSITORY = Path(__file__).resolve().parents[1]

# Airflow reads these when it is first imported. One home per version, as their databases differ.
# The worker's tests also run where Airflow is not installed.
try:
    _airflow = importlib.metadata.version("apache-airflow")
except importlib.metadata.PackageNotFoundError:
    pass
else:
    os.environ["AIRFLOW_HOME"] = str(REPOSITORY / ".build" / f"airflow-{_airflow}")
    os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"


def pytest_configure(config: pytest.Config) -> None:
    """Have a whole run fail if it leaves out what the README promises."""
    guarantees.watch(config, REPOSITORY / "README.md")


@pytest.fixture(scope="session")
def local_aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAws]:
    """A local AWS on free ports, one for each test process; nothing of it is set in our own environment.

    Its image ``shell`` runs the container's command, one string, with ``/bin/sh``. What a test leaves in it,
    the next one finds: use names of your own, or ``local_aws.reset()``.
    """
    from local_aws import LocalAws

    data = tmp_path_factory.mktemp("local-aws")
    with LocalAws(data, port=0, ecs_port=0, images={"shell": ["/bin/sh", "-c"]}) as aws:
        yield aws
