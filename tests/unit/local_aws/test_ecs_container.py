"""Where tasks of the local ECS are containers, and where not; ``tests/image`` runs them."""

from __future__ import annotations

import socket
from pathlib import Path

from local_aws.ecs_container import has_engine


def test_only_a_socket_counts_as_an_engine(tmp_path: Path) -> None:
    """docker-compose.yaml puts /dev/null in its place where there is none."""
    place = tmp_path / "engine.sock"
    assert not has_engine(place)
    assert not has_engine(Path("/dev/null"))
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place))
        assert has_engine(place)
