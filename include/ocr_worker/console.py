"""What a person or a program sees of a run: a progress bar, plain lines or JSON lines, and the closing table.

Progress goes to standard error, results to standard output. Not for the container's logs.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any, Self, TextIO

from pdf_ops.contract.documents import DocumentStatus
from pdf_ops.contract.errors import ErrorKind
from pdf_ops.contract.pages import Method

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ocr_worker.summary import Summary
    from pdf_ops.contract.documents import DocumentRow
    from pdf_ops.contract.pages import PageRow

PLAIN_INTERVAL_S = 10.0
BAR_INTERVAL_S = 0.1


class PlainReporter:
    """Lines for a log: each document that was not read whole, and every ten seconds how far it is."""

    def __init__(self, stream: TextIO, interval_s: float = PLAIN_INTERVAL_S) -> None:
        """Write to a stream."""
        self._stream = stream
        self._interval_s = interval_s
        self._began = self._last = time.monotonic()

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """End."""

    def page(self, summary: Summary, row: PageRow) -> None:
        """Say how far it is, now and then."""
        del row
        self._tick(summary)

    def document(self, summary: Summary, row: DocumentRow) -> None:
        """Name a document that was not read whole."""
        if row.error_message is not None:
            print(f"{row.status}: {row.source_uri}: {row.error_message}", file=self._stream)
        self._tick(summary)

    def _tick(self, summary: Summary) -> None:
        now = time.monotonic()
        if now - self._last < self._interval_s:
            return
        self._last = now
        rate = summary.pages / (now - self._began)
        print(
            f"{summary.documents_done}/{summary.documents_total} documents, {summary.pages} pages, "
            f"{rate:.1f} pages/s, {summary.documents_failed} failed",
            file=self._stream,
            flush=True,
        )


class JsonReporter:
    """One JSON object a line for each document, on standard output; the summary comes last."""

    def __init__(self, stream: TextIO) -> None:
        """Write to a stream."""
        self._stream = stream

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """End."""

    def page(self, summary: Summary, row: PageRow) -> None:
        """Pages are in the output; here they would only be noise."""

    def document(self, summary: Summary, row: DocumentRow) -> None:
        """Say what became of a document."""
        self._emit(
            event="document",
            source_uri=row.source_uri,
            status=row.status.value,
            page_count=row.page_count,
            pages_ocr=row.pages_ocr,
            pages_error=row.pages_error,
            error_class=row.error_class,
            error_code=row.error_code,
            error_message=row.error_message,
            wall_ms=round(row.wall_ms, 1),
            documents_done=summary.documents_done,
            documents_total=summary.documents_total,
        )

    def finished(self, summary: Summary) -> None:
        """Say what became of the run."""
        self._emit(event="finished", **summary.as_json())

    def _emit(self, **fields: Any) -> None:
        print(json.dumps(fields, ensure_ascii=False), file=self._stream, flush=True)


class BarReporter:
    """A progress bar on a terminal: documents, pages, pages a second, time left, failures."""

    def __init__(self) -> None:
        """Prepare the bar."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            TextColumn("{task.completed:.0f}/{task.total:.0f} documents"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[pages]} pages  {task.fields[rate]:.1f} pages/s"),
            TextColumn("{task.fields[eta]}"),
            TextColumn("{task.fields[failed]}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task: Any = None
        self._began = self._last = time.monotonic()

    def __enter__(self) -> Self:
        """Show it."""
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Take it away."""
        self._progress.stop()

    def page(self, summary: Summary, row: PageRow) -> None:
        """Move on."""
        del row
        self._tick(summary)

    def document(self, summary: Summary, row: DocumentRow) -> None:
        """Move on, and name a document that was not read whole."""
        if row.error_message is not None:
            self._progress.console.print(
                f"{row.status}: {row.source_uri}: {row.error_message}", markup=False, highlight=False
            )
        self._tick(summary, is_due=summary.documents_done == summary.documents_total)

    def _tick(self, summary: Summary, *, is_due: bool = False) -> None:
        now = time.monotonic()
        if now - self._last < BAR_INTERVAL_S and not is_due:
            return
        self._last = now
        elapsed = max(now - self._began, 1e-3)
        shown: dict[str, Any] = {
            "pages": f"{summary.pages:,}",
            "rate": summary.pages / elapsed,
            "eta": _eta(summary, elapsed),
            "failed": f"{summary.documents_failed} failed" if summary.documents_failed else "",
        }
        if self._task is None:
            self._task = self._progress.add_task("", total=summary.documents_total, **shown)
        self._progress.update(self._task, completed=summary.documents_done, **shown)


def _eta(summary: Summary, elapsed_s: float) -> str:
    done = summary.documents_done
    if not done:
        return "about … left"
    left_s = elapsed_s / done * (summary.documents_total - done)
    return f"about {format_duration(left_s)} left"


def format_duration(seconds: float) -> str:
    """Seconds for people: ``0.8 s``, ``42 s``, ``3 min 20 s``, ``2 h 5 min``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def closing_table(summary: Summary) -> str:
    """The run for people: outcomes, where text came from, errors with what to do, timings, memory."""
    documents = [(status.value, f"{summary.documents[status]:,}") for status in DocumentStatus]
    pages = [(method.value, f"{summary.methods[method]:,}") for method in Method]
    parts = [
        _table(("documents", f"{summary.documents_done:,}"), documents),
        _table(("pages", f"{summary.pages:,}"), [*pages, ("error", f"{summary.pages_error:,}")]),
    ]
    if summary.errors:
        rows = [
            (label, f"{count:,}", ErrorKind.parse(label).what_to_do)
            for label, count in summary.errors.most_common()
        ]
        parts.append(_table(("errors", "documents", "what to do"), rows))
    stages = [
        (name, f"{stage.count:,}", f"{stage.percentile(0.5):.1f}", f"{stage.percentile(0.95):.1f}")
        for name, stage in summary.stages.items()
        if stage.count
    ]
    if stages:
        parts.append(_table(("milliseconds", "pages", "p50", "p95"), stages))
    rate = summary.pages / summary.wall_s if summary.wall_s else 0.0
    per_core = summary.pages / summary.cpu_s if summary.cpu_s else 0.0
    parts.append(
        f"{format_duration(summary.wall_s)}, {rate:.1f} pages/s ({per_core:.1f} per CPU second); peak memory "
        f"{summary.peak_main_bytes / 1e6:.0f} MB and {summary.peak_page_process_bytes / 1e6:.0f} MB per page "
        f"process"
    )
    return "\n\n".join(parts)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns side by side; numbers to the right, the last column of words as it comes."""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    rights = [all(_is_number(row[column]) for row in rows) for column in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, rights, strict=True)
        ).rstrip()
        for line in lines
    )


def _is_number(cell: str) -> bool:
    return cell.replace(",", "").replace(".", "").isdigit()


def choose_reporter(*, as_json: bool) -> PlainReporter | JsonReporter | BarReporter:
    """The one that suits where the output goes."""
    if as_json:
        return JsonReporter(sys.stdout)
    if sys.stderr.isatty():
        return BarReporter()
    return PlainReporter(sys.stderr)
