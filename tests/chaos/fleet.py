"""Real worker processes with plans of what goes wrong in them, each with a disk of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from tests.chaos.corpus import MAX_PAGES
from tests.chaos.plan import PLAN_VARIABLE, WorkerPlan

if TYPE_CHECKING:
    from tests.support.world import World

REPOSITORY = Path(__file__).resolve().parents[2]
# Short, so that what a dead worker held comes back within the test; the heart beats three times in it.
SETTINGS = {
    "LEASE_S": 4,
    "VISIBILITY_S": 4,
    "IDLE_S": 2,
    "BACKOFF_BASE_S": 0.5,
    "MAX_RETRIES": 6,
    "MAX_WORKERS": 1,
    "PREFETCH_DOCUMENTS": 4,
    "STOP_TIMEOUT_S": 2,
    "OCR_MAX_PAGES": MAX_PAGES,
    "OMP_THREAD_LIMIT": 1,
    "OPENBLAS_NUM_THREADS": 1,
    "LOG_GROUP_NAME": "",
}


@dataclass(slots=True)
class Worker:
    """One process of the fleet."""

    name: str
    process: subprocess.Popen[bytes]
    scratch: Path
    log: Path
    plan: WorkerPlan
    is_mounted: bool = False
    leftovers: list[str] = field(default_factory=list)
    is_gone: bool = False

    def kill(self) -> None:
        """As a machine that goes away."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def notify_spot(self) -> None:
        """As Spot does two minutes before it takes its machine back."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)

    def events(self) -> list[dict[str, Any]]:
        """What it said; the last line of one that was killed may be cut."""
        found = []
        for line in self.log.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return found


class Fleet:
    """Starts workers, and clears away after them as ECS does."""

    def __init__(
        self, world: World, folder: Path, endpoint: str, sources: tuple[Path, ...] = (), **settings: object
    ) -> None:
        """Remember where; ``sources`` are folders whose modules go before the repository's own."""
        self._world = world
        self._folder = folder
        self._endpoint = endpoint
        self._settings = {**SETTINGS, **settings}
        self._sources = sources
        self.mark = folder.name
        self.workers: list[Worker] = []

    @property
    def living(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.process.poll() is None]

    def start(self, plan: WorkerPlan, *, disk_bytes: int | None = None, **settings: object) -> Worker:
        """Start a worker, on a disk of a size if one is given, and with settings of its own."""
        name = f"w{len(self.workers):02d}"
        scratch, log = self._folder / name, self._folder / f"{name}.log"
        scratch.mkdir()
        command = [sys.executable, "-m", "tests.chaos.faulty_worker"]
        is_mounted = disk_bytes is not None and _mount(scratch, disk_bytes)
        if disk_bytes is not None and not is_mounted:
            # The next best: a file may not grow larger, but the disk as a whole may.
            command = ["/bin/sh", "-c", f'ulimit -f {disk_bytes // 512}; exec "$0" "$@"', *command]
        environment = os.environ | self._world.worker_environment(
            **{**self._settings, **settings},
            AWS_ENDPOINT_URL=self._endpoint,
            AWS_SDK_UA_APP_ID=name,
            WORKER_ID=f"{self.mark}-{name}",
            OCR_SCRATCH_DIR=scratch,
            TMPDIR=scratch,
            **{PLAN_VARIABLE: plan.to_json()},
        )
        environment["PYTHONPATH"] = os.pathsep.join(map(str, (*self._sources, REPOSITORY)))
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                env=environment,
                cwd=self._folder,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        worker = Worker(name, process, scratch, log, plan, is_mounted=is_mounted)
        self.workers.append(worker)
        return worker

    def find(self, name: str) -> Worker:
        return next(worker for worker in self.workers if worker.name == name)

    def clear_away(self) -> list[Worker]:
        """Note what workers that have ended left on their disks, and take the disks; gives who they are."""
        ended = [
            worker for worker in self.workers if not worker.is_gone and worker.process.poll() is not None
        ]
        for worker in ended:
            worker.is_gone = True
            if worker.process.returncode != -signal.SIGKILL:  # Else it could not clear away itself.
                worker.leftovers = [
                    str(path.relative_to(worker.scratch)) for path in worker.scratch.rglob("*")
                ]
            if worker.is_mounted:
                _unmount(worker.scratch)
            shutil.rmtree(worker.scratch, ignore_errors=True)
        return ended

    def stop(self, grace_s: float = 20.0) -> None:
        """End all in order, and by force who does not."""
        for worker in self.living:
            worker.notify_spot()
        deadline = time.monotonic() + grace_s
        for worker in self.workers:
            try:
                worker.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.kill()
        self.clear_away()

    def orphans(self, patience_s: float = 3.0) -> list[str]:
        """Processes that outlive the fleet: the kernel may take a moment to end them."""
        deadline = time.monotonic() + patience_s
        while found := self._processes():
            if time.monotonic() > deadline:
                return found
            time.sleep(0.2)
        return []

    def _processes(self) -> list[str]:
        # Page processes have no environment of ours, but stand in a worker's folder.
        found = []
        for process in psutil.process_iter():
            try:
                is_ours = str(self._folder) in process.cwd() and process.pid != os.getpid()
                if is_ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(f"{process.pid} {' '.join(process.cmdline())[:80]}")
            except psutil.Error:
                continue
        return found


def _mount(folder: Path, size_bytes: int) -> bool:
    """Put a small disk there, if that is allowed."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", folder]
    try:
        return subprocess.run(command, check=False, capture_output=True, timeout=10).returncode == 0
    except FileNotFoundError:
        return False


def _unmount(folder: Path) -> None:
    for _ in range(20):
        if subprocess.run(["umount", folder], check=False, capture_output=True).returncode == 0:
            return
        time.sleep(0.2)
    subprocess.run(["umount", "--lazy", folder], check=False, capture_output=True)
