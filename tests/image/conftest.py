"""The image under test, the engine that runs it, and a local AWS. ``make image-test`` sets the variables."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.support.containers import Engine

from local_aws import LocalAws

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def engine() -> Engine:
    return Engine(os.environ["ENGINE"])


@pytest.fixture(scope="session")
def image() -> str:
    return os.environ["IMAGE"]


@pytest.fixture(scope="session")
def local_aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAws]:
    with LocalAws(tmp_path_factory.mktemp("local-aws"), port=0, ecs_port=0) as aws:
        yield aws
