"""What end-to-end tests share: a local AWS."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local_aws import LocalAws


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
