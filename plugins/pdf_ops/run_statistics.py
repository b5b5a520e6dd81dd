"""What a run's rows say about it: outcomes, errors, timings, throughput, slowest documents.

Fed table by table while merging, of constant size, and added up from the tasks that merge a run
together. Not for showing: the report does that.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

STAGES = ("open_ms", "text_ms", "render_ms", "prepare_ms", "ocr_ms", "total_ms")
SLOWEST = 20
SAMPLES = 5
# 16 buckets for each doubling: a quantile is at most 2.2 % off.
_BUCKETS_PER_DOUBLING = 16
_MINUTE_MS = 60_000
_SUMS = ("page_rows", "size_bytes", "characters", "cpu_ms", "attempts")


class Histogram:
    """Positive numbers counted in buckets of constant relative width."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self._buckets: Counter[int] = Counter()

    def add(self, values: pa.Array | pa.ChunkedArray) -> None:
        """Count values; those that are not positive did not happen and are left out."""
        import pyarrow as pa
        import pyarrow.compute as pc

        positive = values.filter(pc.greater(values, 0))
        if not len(positive):
            return
        exact = positive.cast(pa.float64())
        self.count += len(exact)
        self.total += pc.sum(exact).as_py()
        buckets = pc.floor(pc.multiply(pc.log2(exact), float(_BUCKETS_PER_DOUBLING))).cast(pa.int32())
        for item in pc.value_counts(buckets).to_pylist():
            self._buckets[item["values"]] += item["counts"]

    def quantile(self, share: float) -> float:
        """The value that this share of the numbers does not exceed; 0 if there is none."""
        wanted = share * self.count
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= wanted:
                return float(2 ** ((bucket + 0.5) / _BUCKETS_PER_DOUBLING))
        return 0.0

    def state(self) -> dict[str, Any]:
        """All of it, for ``add_state`` elsewhere."""
        return {"count": self.count, "total": self.total, "buckets": sorted(self._buckets.items())}

    def add_state(self, state: Mapping[str, Any]) -> None:
        """Add what another one has counted."""
        self.count += state["count"]
        self.total += state["total"]
        self._buckets.update(dict(state["buckets"]))

    def as_json(self) -> dict[str, Any]:
        """The figures that a report shows."""
        return {
            "count": self.count,
            "p50_ms": _round(self.quantile(0.5)),
            "p95_ms": _round(self.quantile(0.95)),
            "total_ms": round(self.total),
        }


def _round(value: float) -> float:
    return 0.0 if value <= 0 else round(value, max(0, 2 - math.floor(math.log10(value))))


@dataclass(slots=True)
class _ErrorCount:
    count: int = 0
    samples: list[str] = field(default_factory=list)


class RunStatistics:
    """All that is counted of a run while its rows go by."""

    def __init__(self) -> None:
        self.documents: Counter[str] = Counter()
        self.pages: Counter[str] = Counter()
        self.page_rows = 0
        self.size_bytes = 0
        self.characters = 0
        self.cpu_ms = 0.0
        self.attempts = 0
        self.stages = {stage: Histogram() for stage in STAGES}
        self.document_ms = Histogram()
        self._minutes: dict[str, Counter[int]] = {"documents": Counter(), "pages": Counter()}
        self._slowest: list[tuple[float, str, dict[str, Any]]] = []
        self._errors: dict[tuple[str, str, str], _ErrorCount] = {}
        self._page_errors: Counter[tuple[str, str]] = Counter()

    def add_documents(self, rows: pa.Table) -> None:
        """Count document rows, each document once; statuses are plain strings."""
        import pyarrow.compute as pc

        if not rows.num_rows:
            return
        self.documents.update(_value_counts(rows["status"]))
        self.size_bytes += pc.sum(rows["source_size"]).as_py() or 0
        self.characters += pc.sum(rows["char_count"]).as_py() or 0
        self.cpu_ms += pc.sum(rows["cpu_ms"]).as_py() or 0.0
        self.attempts += pc.sum(rows["attempt"]).as_py() or 0
        self.document_ms.add(rows["wall_ms"])
        self._minutes["documents"].update(_by_minute(rows["read_at"]))
        self._add_slowest(rows)
        self._add_errors(rows)

    def add_pages(self, rows: pa.Table) -> None:
        """Count page rows."""
        import pyarrow.compute as pc

        self.page_rows += rows.num_rows
        self.pages.update(_value_counts(rows["method"]))
        for stage, histogram in self.stages.items():
            histogram.add(rows[stage])
        self._minutes["pages"].update(_by_minute(rows["read_at"]))
        failed = rows.select(["error_class", "error_code"]).filter(pc.is_valid(rows["error_class"]))
        if failed.num_rows:
            counts = failed.group_by(["error_class", "error_code"]).aggregate([([], "count_all")])
            for item in counts.to_pylist():
                self._page_errors[item["error_class"], item["error_code"] or ""] += item["count_all"]

    def state(self) -> dict[str, Any]:
        """All of it as JSON, for ``add_state`` in another task."""
        return {
            "documents": dict(self.documents),
            "pages": dict(self.pages),
            "stages": {stage: histogram.state() for stage, histogram in self.stages.items()},
            "document_ms": self.document_ms.state(),
            "minutes": {name: sorted(minutes.items()) for name, minutes in self._minutes.items()},
            "slowest": sorted(self._slowest, key=_slowest_first),
            "errors": [[*key, entry.count, entry.samples] for key, entry in sorted(self._errors.items())],
            "page_errors": [[*key, count] for key, count in sorted(self._page_errors.items())],
        } | {name: getattr(self, name) for name in _SUMS}

    def add_state(self, state: Mapping[str, Any]) -> None:
        """Add what another one has counted."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + state[name])
        self.documents.update(state["documents"])
        self.pages.update(state["pages"])
        for stage, histogram in self.stages.items():
            histogram.add_state(state["stages"][stage])
        self.document_ms.add_state(state["document_ms"])
        for name, minutes in self._minutes.items():
            minutes.update(dict(state["minutes"][name]))
        for duration_ms, uri, details in state["slowest"]:
            self._keep_slowest((duration_ms, uri, details))
        for *key, count, samples in state["errors"]:
            entry = self._errors.setdefault(tuple(key), _ErrorCount())
            entry.count += count
            entry.samples += samples[: SAMPLES - len(entry.samples)]
        for error_class, code, count in state["page_errors"]:
            self._page_errors[error_class, code] += count

    def as_json(self) -> dict[str, Any]:
        """Everything, for the report."""
        slowest = sorted(self._slowest, key=_slowest_first)
        return {
            "documents": {
                status: self.documents.get(status, 0) for status in ("done", "partial", "failed", "skipped")
            },
            "pages": {"rows": self.page_rows, "methods": dict(sorted(self.pages.items()))},
            "size_bytes": self.size_bytes,
            "characters": self.characters,
            "cpu_ms": round(self.cpu_ms),
            "attempts": self.attempts,
            "stages": {stage: histogram.as_json() for stage, histogram in self.stages.items()},
            "document_ms": self.document_ms.as_json(),
            "throughput": self._throughput(),
            "slowest": [details for _, _, details in slowest],
            "errors": self._errors_as_json(),
            "page_errors": [
                {"error_class": key[0], "error_code": key[1], "pages": count}
                for key, count in sorted(self._page_errors.items(), key=lambda item: (-item[1], item[0]))
            ],
        }

    def _add_slowest(self, rows: pa.Table) -> None:
        import pyarrow.compute as pc

        names = ["source_uri", "wall_ms", "cpu_ms", "page_count", "pages_ocr", "status"]
        top = pc.select_k_unstable(rows, k=min(SLOWEST, rows.num_rows), sort_keys=[("wall_ms", "descending")])
        for details in rows.select(names).take(top).to_pylist():
            if details["wall_ms"] > 0:
                details["wall_ms"], details["cpu_ms"] = round(details["wall_ms"]), round(details["cpu_ms"])
                self._keep_slowest((float(details["wall_ms"]), str(details["source_uri"]), details))

    def _keep_slowest(self, entry: tuple[float, str, dict[str, Any]]) -> None:
        if len(self._slowest) < SLOWEST:
            heapq.heappush(self._slowest, entry)
        else:
            heapq.heappushpop(self._slowest, entry)

    def _add_errors(self, rows: pa.Table) -> None:
        import pyarrow.compute as pc

        failed = rows.select(["status", "error_class", "error_code", "source_uri"]).filter(
            pc.is_valid(rows["error_class"])
        )
        if not failed.num_rows:
            return
        keys = ["status", "error_class", "error_code"]
        for item in failed.group_by(keys).aggregate([([], "count_all")]).to_pylist():
            key = (item["status"], item["error_class"], item["error_code"] or "")
            entry = self._errors.setdefault(key, _ErrorCount())
            entry.count += item["count_all"]
            if len(entry.samples) < SAMPLES:
                code = item["error_code"]
                same_code = (
                    pc.is_null(failed["error_code"]) if code is None else pc.equal(failed["error_code"], code)
                )
                matches = failed.filter(
                    pc.and_(
                        pc.and_(
                            pc.equal(failed["status"], item["status"]),
                            pc.equal(failed["error_class"], item["error_class"]),
                        ),
                        same_code,
                    )
                )
                entry.samples += matches["source_uri"].slice(0, SAMPLES - len(entry.samples)).to_pylist()

    def _errors_as_json(self) -> list[dict[str, Any]]:
        ordered = sorted(self._errors.items(), key=lambda item: (-item[1].count, item[0]))
        return [
            {
                "status": status,
                "error_class": error_class,
                "error_code": code,
                "documents": entry.count,
                "samples": entry.samples,
            }
            for (status, error_class, code), entry in ordered
        ]

    def _throughput(self) -> list[dict[str, Any]]:
        documents, pages = self._minutes["documents"], self._minutes["pages"]
        return [
            {
                "minute": datetime.fromtimestamp(minute * 60, UTC).isoformat(timespec="minutes"),
                "documents": documents[minute],
                "pages": pages[minute],
            }
            for minute in sorted(documents.keys() | pages.keys())
        ]


def _slowest_first(entry: tuple[float, str, dict[str, Any]]) -> tuple[float, str]:
    return -entry[0], entry[1]


def _value_counts(values: pa.ChunkedArray) -> dict[str, int]:
    import pyarrow as pa
    import pyarrow.compute as pc

    return {item["values"]: item["counts"] for item in pc.value_counts(values.cast(pa.string())).to_pylist()}


def _by_minute(moments: pa.ChunkedArray) -> dict[int, int]:
    import pyarrow as pa
    import pyarrow.compute as pc

    minutes = pc.divide(moments.drop_null().cast(pa.int64()), _MINUTE_MS)
    return {item["values"]: item["counts"] for item in pc.value_counts(minutes).to_pylist()}
