"""One document's way through the page processes: which slice is next, and its pages back in order.

Pure book-keeping: no process, file or socket is touched here. Memory stays constant in the number
of pages: when the reader of the stream lags behind, no further slices are given out.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from ocr_worker.protocol import PageAnswer
from pdf_ops.contract.errors import ErrorClass, ErrorKind, PdfOpsError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
    from pathlib import Path

    from pdf_ops.contract.fingerprint import ReadingConfig
    from pdf_ops.contract.media import MediaType

FIRST_SLICE_PAGES = 4
MAX_SLICE_PAGES = 128
# Long enough that handing out slices costs nothing, short enough that a lost one is cheap.
SLICE_TARGET_S = 1.0
MAX_BUFFERED_CHARACTERS = 1_000_000
MAX_BUFFERED_PAGES = 500

_PAGE_KINDS = {
    ErrorClass.TIMEOUT: ErrorKind.TIMEOUT_PAGE,
    ErrorClass.OOM: ErrorKind.OOM_PAGE,
    ErrorClass.CRASH: ErrorKind.CRASH_PAGE,
    ErrorClass.ENGINE: ErrorKind.ENGINE_BAD_ANSWER,
}
_OPEN_KINDS = {
    ErrorClass.TIMEOUT: ErrorKind.TIMEOUT_OPEN,
    ErrorClass.OOM: ErrorKind.OOM_DOCUMENT,
    ErrorClass.CRASH: ErrorKind.CRASH_DOCUMENT,
    ErrorClass.ENGINE: ErrorKind.ENGINE_BAD_ANSWER,
}

_serials = count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Pages to read in one go, from ``first`` up to, not including, ``last``."""

    first: int
    last: int
    is_careful: bool = False


class DocumentStream:
    """A document being read: gives out slices, takes answers, yields pages in order."""

    def __init__(
        self,
        *,
        path: Path,
        media_type: MediaType,
        password: str | None,
        reading: ReadingConfig | None = None,
        timeout_s: float,
        processes: int,
        max_pages: int,
        wake: Callable[[], Awaitable[None]],
    ) -> None:
        """Describe the document."""
        self.serial = next(_serials)
        self.path = path
        self.media_type = media_type
        self.password = password
        self.reading = reading
        self.page_count: int | None = None
        self.open_ms = 0.0
        self.wall_ms = 0.0
        self._began = time.monotonic()
        self.error: PdfOpsError | None = None
        self.deadline = float("inf")
        self._timeout_s = timeout_s
        self._processes = processes
        self._max_pages = max_pages
        self._wake = wake
        self._is_opening = False
        self._deaths: dict[int, PdfOpsError] = {}
        self._open_death: PdfOpsError | None = None
        self._out = 0
        self._idle_since: float | None = None
        self._is_careful = False
        self._next_page = 0
        self._first_slice_pages = FIRST_SLICE_PAGES
        self._again: list[Slice] = []
        self._waiting: dict[int, PageAnswer] = {}
        self._emitted = 0
        self._ready: asyncio.Queue[PageAnswer | None] = asyncio.Queue()
        self._buffered_characters = 0
        self._seconds, self._timed_pages = 0.0, 0
        self.is_finished = False

    # Giving out ------------------------------------------------------------------------------

    @property
    def is_out(self) -> bool:
        """Whether a process is reading a slice of it right now."""
        return self._out > 0

    def take(self, *, is_alone: bool = False) -> Slice | None:
        """The next slice to read, or None if there is none to give out now.

        ``is_alone`` says that there are too few other documents to keep every process busy: then the
        first slice is short, so that the rest can be shared out soon.
        """
        taken: Slice | None = None
        if self.is_finished:
            return None
        if self._again:
            taken = self._again.pop(0)
        elif self.page_count is None:
            if self._is_opening:
                return None
            self._is_opening = True
            self._began = time.monotonic()
            self.deadline = self._began + self._timeout_s
            self._first_slice_pages = 1 if is_alone else FIRST_SLICE_PAGES
            taken = Slice(first=0, last=self._first_slice_pages)
        elif self._next_page < self.page_count and not self._is_full():
            last = min(self.page_count, self._next_page + self._slice_pages(self.page_count))
            taken = Slice(first=self._next_page, last=last, is_careful=self._is_careful)
        if taken is None:
            return None
        self._next_page = max(self._next_page, taken.last)
        if self._out == 0 and self._idle_since is not None:
            # While nobody reads it, because others go first or its rows are not yet written, no time runs.
            self.deadline += time.monotonic() - self._idle_since
            self._idle_since = None
        self._out += 1
        return taken

    def given_back(self) -> None:
        """A process is done with a slice, however it went."""
        self._out -= 1
        if self._out == 0:
            self._idle_since = time.monotonic()

    def _slice_pages(self, page_count: int) -> int:
        """As many pages as take about a second, and so few that all processes end together."""
        mean_s = (
            self._seconds / self._timed_pages if self._timed_pages else SLICE_TARGET_S / FIRST_SLICE_PAGES
        )
        by_time = int(SLICE_TARGET_S / max(mean_s, 1e-4))
        left = page_count - self._next_page
        by_share = -(-left // (2 * self._processes)) if self._processes > 1 else left
        return max(1, min(MAX_SLICE_PAGES, by_time, by_share))

    def _is_full(self, just_left: int = 0) -> bool:
        waiting = self._ready.qsize() + len(self._waiting) + just_left
        return self._buffered_characters > MAX_BUFFERED_CHARACTERS or waiting > MAX_BUFFERED_PAGES

    # Taking back -----------------------------------------------------------------------------

    def opened(self, page_count: int, open_ms: float) -> bool:
        """A process has the document open. Returns whether that is news."""
        if self.page_count is not None or self.is_finished:
            return False
        self.open_ms = open_ms
        if page_count > self._max_pages:
            detail = f"{page_count} pages, {self._max_pages} are allowed"
            self.fail(PdfOpsError(ErrorKind.POLICY_TOO_MANY_PAGES, detail))
            return False
        self.page_count = page_count
        self._next_page = min(self._first_slice_pages, page_count)
        return True

    def deliver(self, taken: Slice, pages: Iterable[PageAnswer]) -> None:
        """Take pages that were read. A page outside its slice, or a second answer, is not believed."""
        if self.is_finished or self.page_count is None:
            return
        for page in pages:
            inside = taken.first <= page.index < min(taken.last, self.page_count)
            if not inside or page.index < self._emitted or page.index in self._waiting:
                continue
            if page.error is not None and page.index in self._deaths:
                page = _lost_page(page.index, self._deaths[page.index])  # noqa: PLW2901
            self._waiting[page.index] = page
            self._buffered_characters += len(page.reading.text) if page.reading is not None else 0
            self._seconds += page.total_ms / 1000
            self._timed_pages += 1
        self._emit()

    def slice_done(self, taken: Slice) -> None:
        """The process has finished the slice; pages that it left out become errors."""
        if self.page_count is None:
            self.slice_died(taken, ErrorClass.ENGINE, "ended without saying how many pages there are", None)
        elif not self.is_finished:
            left_out = self._missing(taken)
            error = PdfOpsError(ErrorKind.ENGINE_BAD_ANSWER, "the page was left out of the answer")
            lost = [_lost_page(index, self._deaths.get(index, error)) for index in left_out]
            self.deliver(taken, lost)

    def slice_failed(self, taken: Slice, error: PdfOpsError) -> None:
        """The document could not be opened."""
        if self.page_count is None:
            is_telling = error.kind.error_class in (ErrorClass.ENCRYPTED, ErrorClass.BOMB)
            self.fail(error if is_telling or self._open_death is None else self._open_death)
        else:
            # It opened before, in another process: only these pages are lost.
            lost = self._missing(taken)
            self.deliver(taken, [_lost_page(index, self._page_error(index, error)) for index in lost])

    def slice_died(self, taken: Slice, error_class: ErrorClass, detail: str, page: int | None) -> None:
        """The process died during the slice, at this page if it had got to one."""
        if self.is_finished:
            return
        if time.monotonic() >= self.deadline:
            self._expire()
            return
        if self.page_count is None:
            if self._is_careful:
                self.fail(self._open_death or PdfOpsError(_OPEN_KINDS[error_class], detail))
            else:
                self._open_death = PdfOpsError(_OPEN_KINDS[error_class], detail)
                self._is_careful = True
                self._again.append(Slice(first=0, last=self._first_slice_pages, is_careful=True))
            return
        missing = self._missing(taken)
        culprits = [index for index in missing if index == page] or missing[:1]
        for index in culprits:
            if taken.is_careful and taken.last - taken.first == 1:
                self.deliver(taken, [_lost_page(index, PdfOpsError(_PAGE_KINDS[error_class], detail))])
            else:
                self._deaths.setdefault(index, PdfOpsError(_PAGE_KINDS[error_class], detail))
                self._again.append(Slice(first=index, last=index + 1, is_careful=True))
        self._again.extend(
            Slice(first=run[0], last=run[-1] + 1, is_careful=taken.is_careful)
            for run in _runs(index for index in missing if index not in culprits)
        )

    def fail(self, error: PdfOpsError) -> None:
        """End the document with an error: without rows if it was not open yet, else with error rows."""
        if self.is_finished:
            return
        if self.page_count is not None:
            self._fill(error)
            return
        self.error = error
        self._finish()

    def cancel(self) -> None:
        """Stop here: pages that were not read become errors."""
        if self.page_count is None:
            self.fail(PdfOpsError(ErrorKind.LOST_CANCELLED))
        elif not self.is_finished:
            self._fill(PdfOpsError(ErrorKind.LOST_CANCELLED))

    def _expire(self) -> None:
        limit = f"not finished within {self._timeout_s:.0f} s"
        if self.page_count is None:
            self.fail(PdfOpsError(ErrorKind.TIMEOUT_OPEN, limit))
        else:
            self._fill(PdfOpsError(ErrorKind.TIMEOUT_DOCUMENT, limit))

    def _fill(self, error: PdfOpsError) -> None:
        for index in range(self._emitted, self.page_count or 0):
            self._waiting.setdefault(index, _lost_page(index, error))
        self._emit()

    def _page_error(self, index: int, second: PdfOpsError) -> PdfOpsError:
        """How the page failed first: what the second parser makes of it says less."""
        return self._deaths.get(index) or PdfOpsError(ErrorKind.CORRUPT_PAGE_UNREADABLE, second.detail)

    def _missing(self, taken: Slice) -> list[int]:
        pages = range(max(taken.first, self._emitted), min(taken.last, self.page_count or 0))
        return [index for index in pages if index not in self._waiting]

    def _emit(self) -> None:
        while self._emitted in self._waiting:
            self._ready.put_nowait(self._waiting.pop(self._emitted))
            self._emitted += 1
        if self._emitted == self.page_count:
            self._finish()

    def _finish(self) -> None:
        self.is_finished = True
        self.wall_ms = (time.monotonic() - self._began) * 1000
        self._ready.put_nowait(None)

    # Reading ---------------------------------------------------------------------------------

    async def pages(self) -> AsyncIterator[PageAnswer]:
        """The pages in order; ends when all are there, or with ``error`` set if there are none."""
        while (page := await self._ready.get()) is not None:
            was_full = self._is_full(just_left=1)
            self._buffered_characters -= len(page.reading.text) if page.reading is not None else 0
            yield page
            if was_full and not self._is_full():
                await self._wake()


def _lost_page(index: int, error: PdfOpsError) -> PageAnswer:
    return PageAnswer(index, None, error, 0.0, 0.0)


def _runs(indexes: Iterable[int]) -> list[list[int]]:
    """Neighbouring numbers, together."""
    runs: list[list[int]] = []
    for index in indexes:
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return runs
