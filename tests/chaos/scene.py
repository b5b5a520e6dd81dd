"""Where a run takes place: a world, a proxy before its AWS on either side, a fleet, and the accounts."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

from tests.chaos.control import Control
from tests.chaos.fleet import Fleet
from tests.chaos.plan import WorkerPlan
from tests.chaos.proxy import Proxy
from tests.chaos.verdict import Accounts, Verdict, judge
from tests.support.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.chaos.corpus import Document
    from tests.chaos.fleet import Worker

    from local_aws import LocalAws

WAIT_S = 60.0
NO_FAULTS = WorkerPlan()


class Scene:
    """One run's place, from ``with`` to the end of the block.

    Args:
        aws: The local AWS.
        folder: For the workers' disks and logs.
        documents: What is to be read.
        name: The run's name.
        sources: Folders whose modules the workers take before the repository's own.
        settings: The workers' settings, where they differ.
    """

    def __init__(
        self,
        aws: LocalAws,
        folder: Path,
        documents: Sequence[Document],
        *,
        name: str = "scene",
        sources: tuple[Path, ...] = (),
        **settings: object,
    ) -> None:
        self._aws = aws
        self._folder = folder
        self._sources = sources
        self._settings = settings
        self._name = name
        self.documents = documents
        self._cleanup = ExitStack()

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            self.world = stack.enter_context(World(self._aws))
            self.workers_aws = stack.enter_context(Proxy(self._aws.endpoint_url))
            self.control_aws = stack.enter_context(Proxy(self._aws.endpoint_url))
            self.control = Control(
                self.world, self._aws.environment(), self.control_aws.url, f"chaos__{self._name}"
            )
            stack.enter_context(self.control.in_force())
            self.fleet = Fleet(
                self.world, self._folder, self.workers_aws.url, self._sources, **self._settings
            )
            self.workers_aws.on_kill = lambda name: self.fleet.find(name).kill()
            stack.callback(self.fleet.stop, 5.0)
            for document in self.documents:
                self.world.put(document.key, document.body)
            self._cleanup = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def send(self, *, times: int = 1) -> None:
        """List the documents, and send their messages so many times."""
        self.control.list()
        for _ in range(times):
            self.control.enqueue()

    def wait_for(self, worker: Worker, *events: str) -> dict[str, Any]:
        """Wait until a worker says one of these."""
        return self._wait(
            lambda: next((event for event in worker.events() if event.get("event") in events), None),
            f"{worker.name} to say {' or '.join(events)}",
        )

    def _wait(self, look: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            if found := look():
                return found
            time.sleep(0.1)
        raise AssertionError(f"waited for {what} for {WAIT_S:.0f} s")

    def drain(self) -> None:
        """Have workers without faults read what is left, until no message is."""
        deadline = time.monotonic() + WAIT_S
        while self.world.messages_left() and time.monotonic() < deadline:
            self.fleet.clear_away()
            if not self.fleet.living:
                self.fleet.start(NO_FAULTS)
            time.sleep(0.2)

    def conclude(self, *, most_wasted: float, lines_removed: int = 0) -> Verdict:
        """End the fleet, merge, publish, reconcile, and judge."""
        self.fleet.stop()
        left = self.world.messages_left()
        self.control.plan_merge()
        self.control.merge()
        merged = self.control.publish()
        try:
            reconciliation = self.control.reconcile()
        except Exception as error:  # noqa: BLE001 -- it is a part of the verdict
            reconciliation = {"equation": str(error)}
        return judge(
            Accounts(self.world, self.control),
            self.documents,
            reconciliation=reconciliation,
            merged=merged,
            fleet=self.fleet,
            messages_left=left,
            lines_removed=lines_removed,
            most_wasted=most_wasted,
        )
