"""What the API's tests share: a local AWS, a world in it, and an API process on that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.api import KEY, Api
from tests.support.world import World

from samples import documents as made

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

    from local_aws import LocalAws


@pytest.fixture(scope="session")
def local_aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAws]:
    from local_aws import LocalAws

    with LocalAws(tmp_path_factory.mktemp("local-aws"), port=0, ecs_port=0) as aws:
        yield aws


@pytest.fixture(scope="module")
def world(local_aws: LocalAws) -> Iterator[World]:
    with World(local_aws) as world:
        yield world


@pytest.fixture(scope="module")
def api(local_aws: LocalAws, world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """One API for all tests of a module; it keeps statuses for a tenth of a second only."""
    folder = tmp_path_factory.mktemp("api")
    with Api(local_aws, world, folder, STATUS_CACHE_S=0.1, EVENTS_INTERVAL_S=0.2, MAX_UPLOAD_MB=12) as api:
        yield api


@pytest.fixture
def client(api: Api) -> Iterator[httpx.Client]:
    with api.client(KEY) as client:
        yield client


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return made.text_pdf(tmp_path_factory.mktemp("text") / "text.pdf", 3).read_bytes()
