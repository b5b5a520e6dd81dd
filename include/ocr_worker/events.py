"""What the container says: one JSON line per thing that happens, and metrics in CloudWatch's embedded format.

To standard output, which ECS collects; to a log group of its own when asked. Not for people at a terminal.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import resource
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

from ocr_worker.aws import aws_errors, error_code
from ocr_worker.summary import STAGES, Histogram
from pdf_ops.contract.errors import redact_urls

if TYPE_CHECKING:
    from pdf_ops.contract.documents import DocumentRow
    from pdf_ops.contract.pages import PageRow

NAMESPACE = "pdf_ops"
METRICS_INTERVAL_S = 60.0
SHIP_INTERVAL_S = 2.0
MAX_BATCH_EVENTS = 1_000
MAX_KEPT_EVENTS = 20_000
MAX_BATCH_BYTES = 900_000
# What a key may hold and a line must not: what ends a line for some readers, turns the direction of
# text round, hides itself, or cannot be written.
_ODD = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb]")


class Events:
    """Where everything that happens is said."""

    def __init__(self, worker_id: str, stream: TextIO | None = None) -> None:
        """Say it to standard output unless told otherwise."""
        self._worker_id = worker_id
        self._stream = stream or sys.stdout
        self._shipped: list[dict[str, Any]] | None = None

    def emit(self, event: str, *, level: str = "info", **fields: Any) -> None:
        """Say that something happened; what is None is left out."""
        line = {
            "ts": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "level": level,
            "event": event,
            "service": "ocr-worker",
            "worker_id": self._worker_id,
            **{
                name: redact_urls(value) if isinstance(value, str) else value
                for name, value in fields.items()
                if value is not None
            },
        }
        self._write(line)

    def emit_metrics(self, metrics: Metrics) -> None:
        """Say the figures since the last time, as CloudWatch takes them from a log."""
        for line in metrics.drain(self._worker_id):
            self._write(line)

    def _write(self, line: dict[str, Any]) -> None:
        text = json.dumps(line, ensure_ascii=False, default=str)
        text = _ODD.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
        print(text, file=self._stream, flush=True)
        if self._shipped is not None and len(self._shipped) < MAX_KEPT_EVENTS:
            self._shipped.append({"timestamp": int(time.time() * 1000), "message": text})

    @contextlib.asynccontextmanager
    async def shipped_to(self, logs: Any, group: str | None) -> Any:
        """Also send every line to a log group, if one is given; that it cannot never stops the work."""
        if not group:
            yield
            return
        self._shipped = []
        stop = asyncio.Event()
        shipping = asyncio.create_task(self._ship(logs, group, stop))
        try:
            yield
        finally:
            stop.set()
            await shipping
            self._shipped = None

    async def _ship(self, logs: Any, group: str, stop: asyncio.Event) -> None:
        stream = f"worker/{self._worker_id}"
        try:
            await logs.create_log_stream(logGroupName=group, logStreamName=stream)
        except aws_errors() as error:
            if error_code(error) != "ResourceAlreadyExistsException":
                print(json.dumps({"event": "logs.unavailable", "error": str(error)}), file=sys.stderr)
                return
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), SHIP_INTERVAL_S)
            while self._shipped:
                batch: list[dict[str, Any]] = []
                size = 0
                while self._shipped and len(batch) < MAX_BATCH_EVENTS and size < MAX_BATCH_BYTES:
                    size += len(self._shipped[0]["message"]) + 26
                    batch.append(self._shipped.pop(0))
                with contextlib.suppress(*aws_errors()):
                    await logs.put_log_events(logGroupName=group, logStreamName=stream, logEvents=batch)
            if stop.is_set():
                return


class Metrics:
    """The figures since they were last said."""

    def __init__(self) -> None:
        """Start from nothing."""
        self._reset()

    def _reset(self) -> None:
        self._counts: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._stages = {name: Histogram() for name in STAGES}
        self._lag_ms = 0

    def page(self, row: PageRow) -> None:
        """Count a page."""
        self._counts["Pages"] += 1
        self._counts[f"Pages{row.method.value.title().replace('_', '')}"] += 1
        for name in STAGES:
            spent = getattr(row, f"{name}_ms")
            if spent:
                self._stages[name].add(spent)

    def document(self, row: DocumentRow) -> None:
        """Count a document."""
        self._counts["Documents"] += 1
        self._counts[f"Documents{row.status.value.title()}"] += 1
        if row.error_class is not None:
            self._failures[row.error_class] += 1

    def index(self, *, indexed: int = 0, refused: int = 0, dropped: int = 0, retries: int = 0) -> None:
        """Count what became of documents in OpenSearch; dropped ones are whole files, the others are not."""
        values = {
            "Indexed": indexed,
            "IndexRefused": refused,
            "IndexDropped": dropped,
            "IndexRetries": retries,
        }
        self._counts.update({name: value for name, value in values.items() if value})

    def lag(self, milliseconds: int) -> None:
        """Note how long a message had waited."""
        self._lag_ms = max(self._lag_ms, milliseconds)

    def drain(self, worker_id: str) -> list[dict[str, Any]]:
        """The figures as lines of the embedded metric format, and start again."""
        values: dict[str, float] = dict(self._counts)
        units = dict.fromkeys(values, "Count")
        for name, stage in self._stages.items():
            if stage.count:
                values[f"{name.title()}P50"] = round(stage.percentile(0.5), 2)
                values[f"{name.title()}P95"] = round(stage.percentile(0.95), 2)
                units |= {f"{name.title()}P50": "Milliseconds", f"{name.title()}P95": "Milliseconds"}
        values["QueueLag"] = self._lag_ms
        units["QueueLag"] = "Milliseconds"
        scale = 1 if sys.platform == "darwin" else 1024
        values["PeakMemory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
        units["PeakMemory"] = "Bytes"
        lines = [_embedded(values, units, {"service": "ocr-worker"}, worker_id)]
        lines += [
            _embedded({"Failures": count}, {"Failures": "Count"}, {"error_class": error_class}, worker_id)
            for error_class, count in self._failures.items()
        ]
        self._reset()
        return lines


def _embedded(
    values: dict[str, float], units: dict[str, str], dimensions: dict[str, str], worker_id: str
) -> dict[str, Any]:
    return {
        "_aws": {
            "Timestamp": int(time.time() * 1000),
            "CloudWatchMetrics": [
                {
                    "Namespace": NAMESPACE,
                    "Dimensions": [list(dimensions)],
                    "Metrics": [{"Name": name, "Unit": units[name]} for name in values],
                }
            ],
        },
        "event": "metrics",
        "worker_id": worker_id,
        **dimensions,
        **values,
    }
