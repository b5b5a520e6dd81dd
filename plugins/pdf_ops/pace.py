"""How fast workers were: what a run leaves behind for the sizing of the next one's fleet.

One small object per way of reading, since OCR takes a hundred times what a text layer takes. Not for
the report, which has its own figures.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pdf_ops.cost import TaskRun

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from pdf_ops.contract.runs import Counters

# A shorter run is mostly the start of its containers and their wait for more.
MIN_WORKER_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What the workers of one run did in which time.

    Attributes:
        run_id: The run.
        documents: Documents that it finished.
        size_bytes: Their size together.
        worker_s: How long its workers were up, all together.
    """

    run_id: str
    documents: int
    size_bytes: int
    worker_s: float

    @classmethod
    def of_run(
        cls, run_id: str, counters: Counters, tasks: Iterable[Mapping[str, Any]], now: datetime
    ) -> Pace | None:
        """The pace of a run; None if it was too short to tell, or its containers are not known."""
        runs = (TaskRun.of(task, now) for task in tasks)
        worker_s = sum(run.runtime_s for run in runs if run is not None)
        if worker_s < MIN_WORKER_S or not counters.documents or not counters.size_bytes:
            return None
        return cls(
            run_id=run_id, documents=counters.documents, size_bytes=counters.size_bytes, worker_s=worker_s
        )

    @classmethod
    def from_json(cls, data: bytes) -> Pace | None:
        """Read the object; None if it holds none that can be used, as then there is no history."""
        try:
            found = cls(**json.loads(data))
            is_usable = min(found.documents, found.size_bytes, found.worker_s) > 0
        except (TypeError, ValueError):
            return None
        return found if is_usable and math.isfinite(found.worker_s) else None

    def to_json(self) -> bytes:
        """As the object holds it."""
        return json.dumps(asdict(self), indent=1).encode()

    def worker_s_for(self, documents: int, size_bytes: int) -> float:
        """How long one worker would take: by documents or by bytes, whichever is more."""
        return self.worker_s * max(documents / self.documents, size_bytes / self.size_bytes)
