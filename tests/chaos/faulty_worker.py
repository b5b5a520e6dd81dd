"""``python -m tests.chaos.faulty_worker``: the worker as it is, handed faults by its plan.

The only way in is the argument of ``serve``; the worker's own command line has none.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
from tests.chaos.plan import PLAN_VARIABLE, Action, StepFault, WorkerPlan

from ocr_worker.faults import Step
from ocr_worker.options import load
from ocr_worker.service import serve
from ocr_worker.settings import ServiceSettings


class ChaosError(Exception):
    """What no part of the worker expects."""


class PlannedFaults:
    """Does what the plan says, and tells of it and of each document that was read."""

    def __init__(self, plan: WorkerPlan) -> None:
        self._plan = plan
        self._seen: Counter[Step] = Counter()

    def now_s(self) -> float:
        return time.time() + self._plan.skew_s

    async def at(self, step: Step, about: str) -> None:
        self._seen[step] += 1
        if step is Step.EXTRACT:
            _say("chaos.extracted", s3_key=about)
        for fault in self._plan.faults:
            is_about = fault.about is not None and fault.about in about
            if fault.step is step and (is_about or (fault.about is None and self._seen[step] == fault.nth)):
                _say("chaos.fault", fault=str(fault))
                await self._act(fault)

    async def _act(self, fault: StepFault) -> None:  # noqa: C901 -- one case each
        began = time.monotonic()
        match fault.action:
            case Action.KILL:
                os.kill(os.getpid(), signal.SIGKILL)
            case Action.KILL_PAGE_PROCESS:
                # A moment later, when it is at work.
                asyncio.get_running_loop().call_later(0.03, _kill_page_process)
            case Action.BUG:
                raise ChaosError(str(fault))
            case Action.OUTAGE:
                raise ConnectionResetError(str(fault))
            case Action.SLOW:
                while not self._is_pause_over(began):  # noqa: ASYNC110 -- another process ends it
                    await asyncio.sleep(0.05)
            case Action.FREEZE:
                while not self._is_pause_over(began):
                    time.sleep(0.05)  # noqa: ASYNC251 -- the heart is to stop
            case Action.OVERWRITE:
                await asyncio.to_thread(_overwrite, fault.about, self._plan.overwrite_with)
            case Action.DELETE:
                await asyncio.to_thread(_delete, fault.about)

    def _is_pause_over(self, began: float) -> bool:
        if self._plan.pause_until:
            return Path(self._plan.pause_until).exists()
        return time.monotonic() - began > self._plan.pause_s


def _kill_page_process() -> None:
    for child in psutil.Process().children():
        if "ocr_worker.page_process" in child.cmdline():
            child.kill()
            return


def _s3() -> tuple[Any, str]:
    import boto3

    return boto3.client("s3"), os.environ["INPUT_S3_BUCKET"]


def _overwrite(key: str, path: str) -> None:
    client, bucket = _s3()
    client.put_object(Bucket=bucket, Key=key, Body=Path(path).read_bytes())


def _delete(key: str) -> None:
    client, bucket = _s3()
    client.delete_object(Bucket=bucket, Key=key)


def _say(event: str, **fields: str) -> None:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    print(json.dumps({"ts": now, "event": event, **fields}), flush=True)


def main() -> int:
    plan = WorkerPlan.from_json(os.environ[PLAN_VARIABLE])
    settings = load(ServiceSettings, {})
    stopped_by = asyncio.run(serve(settings, is_forever=False, faults=PlannedFaults(plan)))
    return 0 if stopped_by is None else 2


if __name__ == "__main__":
    raise SystemExit(main())
