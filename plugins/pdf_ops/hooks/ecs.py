"""The tasks of a run's fleet, as ECS knows them: by what they were started.

Not for starting or judging them: the fleet's operators do.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_STARTED_BY_CHARS = 36
_DESCRIBED_AT_ONCE = 100


def started_by_of(run_id: str) -> str:
    """The mark that all workers of a run carry in ECS, so that they can be found and stopped."""
    return "pdf_ops-" + hashlib.sha256(run_id.encode()).hexdigest()[: _STARTED_BY_CHARS - 8]


def fleet_tasks(client: Any, cluster: str, run_id: str) -> Iterator[dict[str, Any]]:
    """The tasks of a run's fleet that have not stopped."""
    pages = client.get_paginator("list_tasks").paginate(
        cluster=cluster, startedBy=started_by_of(run_id), desiredStatus="RUNNING"
    )
    for page in pages:
        if page["taskArns"]:
            for task in client.describe_tasks(cluster=cluster, tasks=page["taskArns"])["tasks"]:
                if task.get("lastStatus") != "STOPPED":
                    yield task


def tasks_up(client: Any, cluster: str, arns: Iterable[str]) -> set[str]:
    """Those of the tasks that still run: one that was told to stop is no longer listed as running."""
    wanted = sorted(arns)
    found: set[str] = set()
    for first in range(0, len(wanted), _DESCRIBED_AT_ONCE):
        described = client.describe_tasks(cluster=cluster, tasks=wanted[first : first + _DESCRIBED_AT_ONCE])
        found |= {task["taskArn"] for task in described["tasks"] if task.get("lastStatus") != "STOPPED"}
    return found
