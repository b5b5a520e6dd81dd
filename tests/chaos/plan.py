"""What is to go wrong in one worker: plain values, since they travel to its process."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum

from ocr_worker.faults import Step

PLAN_VARIABLE = "CHAOS_PLAN"


class Action(StrEnum):
    """What happens at a step."""

    KILL = "kill"
    KILL_PAGE_PROCESS = "kill_page_process"
    BUG = "bug"
    OUTAGE = "outage"
    SLOW = "slow"
    FREEZE = "freeze"
    OVERWRITE = "overwrite"
    DELETE = "delete"


BETWEEN_STEPS = (
    Action.KILL,
    Action.KILL_PAGE_PROCESS,
    Action.BUG,
    Action.OUTAGE,
    Action.SLOW,
    Action.FREEZE,
)
"""Those that make sense after every step. A worker that is slow still beats; a frozen one does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFault:
    """A fault after a step: the n-th time that it is done, or each time that it is about one document."""

    action: Action
    step: Step
    nth: int = 1
    about: str | None = None

    def __str__(self) -> str:
        where = f"of {self.about}" if self.about else f"no. {self.nth}"
        return f"{self.action.value} after {self.step.value} {where}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlan:
    """All that goes wrong in a worker.

    Attributes:
        faults: What happens after which step.
        skew_s: How far its clock is ahead.
        pause_s: How long it is slow or frozen: longer than lease and visibility.
        pause_until: A file whose appearance ends a pause instead.
        overwrite_with: The file that an object is overwritten with.
    """

    faults: tuple[StepFault, ...] = ()
    skew_s: float = 0.0
    pause_s: float = 7.0
    pause_until: str = ""
    overwrite_with: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> WorkerPlan:
        values = json.loads(text)
        faults = tuple(
            StepFault(**fault | {"action": Action(fault["action"]), "step": Step(fault["step"])})
            for fault in values.pop("faults")
        )
        return cls(**values, faults=faults)
