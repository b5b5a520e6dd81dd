from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pdf_ops.contract.runs import Counters
from pdf_ops.pace import Pace

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
COUNTERS = Counters(done=90, failed=10, size_bytes=5_000_000)


def container(minutes: int) -> dict[str, str]:
    return {"started_at": "2026-01-01T10:00:00+00:00", "stopped_at": f"2026-01-01T10:{minutes:02d}:00+00:00"}


def test_the_pace_is_what_all_workers_together_took():
    pace = Pace.of_run("run", COUNTERS, [container(10), container(20), {}], NOW)

    assert pace == Pace(run_id="run", documents=100, size_bytes=5_000_000, worker_s=1_800)
    assert Pace.from_json(pace.to_json()) == pace
    assert pace.worker_s_for(200, 1) == 3_600
    assert pace.worker_s_for(1, 50_000_000) == 18_000


def test_a_run_that_was_too_short_or_finished_nothing_shows_no_pace():
    assert Pace.of_run("run", COUNTERS, [container(4)], NOW) is None
    assert Pace.of_run("run", COUNTERS, [], NOW) is None
    assert Pace.of_run("run", Counters(), [container(30)], NOW) is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"run_id": "r", "documents": 0, "size_bytes": 1, "worker_s": 1}',
        b'{"run_id": "r", "documents": 1, "size_bytes": 1, "worker_s": Infinity}',
        b'{"run_id": "r", "documents": "x", "size_bytes": 1, "worker_s": 1}',
    ],
)
def test_an_object_that_holds_no_pace_is_no_history(data):
    assert Pace.from_json(data) is None
