"""What a run did, counted as it goes: outcomes, errors, stage timings, memory.

Constant in size, whatever the number of pages: timings are kept as histograms. Not for showing.
"""

from __future__ import annotations

import math
import resource
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pdf_ops.contract.documents import DocumentStatus
from pdf_ops.contract.pages import Method, PageStatus

if TYPE_CHECKING:
    from ocr_worker.pages import ProcessUsage
    from pdf_ops.contract.documents import DocumentRow
    from pdf_ops.contract.pages import PageRow

STAGES = ("open", "text", "render", "prepare", "ocr", "total")
_STEP = math.log(1.05)
_SMALLEST_MS = 1e-3


@dataclass(slots=True)
class Histogram:
    """Durations in steps of five per cent."""

    count: int = 0
    total_ms: float = 0.0
    _steps: Counter[int] = field(default_factory=Counter)

    def add(self, milliseconds: float) -> None:
        """Count one duration."""
        self.count += 1
        self.total_ms += milliseconds
        self._steps[int(math.log(max(milliseconds, _SMALLEST_MS)) / _STEP)] += 1

    def percentile(self, share: float) -> float:
        """The duration that this share of all stays below, within five per cent; 0 without any."""
        wanted = share * self.count
        for step in sorted(self._steps):
            wanted -= self._steps[step]
            if wanted <= 0:
                return math.exp(step * _STEP)
        return 0.0


@dataclass(slots=True)
class Summary:
    """The run so far."""

    documents_total: int
    documents: Counter[DocumentStatus] = field(default_factory=Counter)
    pages: int = 0
    pages_error: int = 0
    methods: Counter[Method] = field(default_factory=Counter)
    characters: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    samples: dict[str, str] = field(default_factory=dict)
    stages: dict[str, Histogram] = field(default_factory=lambda: {name: Histogram() for name in STAGES})
    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_main_bytes: int = 0
    peak_page_process_bytes: int = 0
    processes_started: int = 0

    def add_page(self, row: PageRow) -> None:
        """Count a page."""
        self.pages += 1
        self.characters += row.char_count
        if row.status is PageStatus.ERROR:
            self.pages_error += 1
        else:
            self.methods[row.method] += 1
        stages = self.stages
        stages["total"].add(row.total_ms)
        for name, spent in (
            ("open", row.open_ms),
            ("text", row.text_ms),
            ("render", row.render_ms),
            ("prepare", row.prepare_ms),
            ("ocr", row.ocr_ms),
        ):
            if spent:
                stages[name].add(spent)

    def add_document(self, row: DocumentRow) -> None:
        """Count a document."""
        self.documents[row.status] += 1
        if row.error_class is not None:
            label = f"{row.error_class}/{row.error_code}"
            self.errors[label] += 1
            self.samples.setdefault(label, row.source_uri)

    def finish(self, usage: ProcessUsage, wall_s: float) -> None:
        """Take what the kernel counted, after the page processes have ended."""
        own = resource.getrusage(resource.RUSAGE_SELF)
        self.wall_s = wall_s
        self.cpu_s = own.ru_utime + own.ru_stime + usage.cpu_s
        self.peak_main_bytes = own.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        self.peak_page_process_bytes = usage.peak_rss_bytes
        self.processes_started = usage.started

    @property
    def documents_done(self) -> int:
        """How many documents have an outcome."""
        return sum(self.documents.values())

    @property
    def documents_failed(self) -> int:
        """Documents that were not read whole: failed, or with pages that are errors."""
        return self.documents[DocumentStatus.FAILED] + self.documents[DocumentStatus.PARTIAL]

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "documents": {
                "total": self.documents_total,
                **{s.value: self.documents[s] for s in DocumentStatus},
            },
            "pages": {
                "total": self.pages,
                "error": self.pages_error,
                **{method.value: self.methods[method] for method in Method},
            },
            "characters": self.characters,
            "errors": {
                label: {"documents": count, "sample": self.samples[label]}
                for label, count in self.errors.most_common()
            },
            "stages_ms": {
                name: {
                    "pages": stage.count,
                    "total": round(stage.total_ms, 1),
                    "p50": round(stage.percentile(0.5), 2),
                    "p95": round(stage.percentile(0.95), 2),
                }
                for name, stage in self.stages.items()
            },
            "wall_s": round(self.wall_s, 3),
            "cpu_s": round(self.cpu_s, 3),
            "pages_per_s": round(self.pages / self.wall_s, 2) if self.wall_s else 0.0,
            "peak_main_bytes": self.peak_main_bytes,
            "peak_page_process_bytes": self.peak_page_process_bytes,
            "processes_started": self.processes_started,
        }
