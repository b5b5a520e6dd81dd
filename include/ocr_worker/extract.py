"""``ocr-worker extract``: local files in, page and document rows out.

The fleet reads with the same pool and writes the same rows; only where documents come from and
where rows go differs. Documents are written in the order in which they were given.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import tempfile
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ocr_worker.inputs import identify, is_small
from ocr_worker.isolation.sandbox import folders_of
from ocr_worker.output import TextFolder, open_writer
from ocr_worker.pages import PagePool
from ocr_worker.profiling import profiled_run
from ocr_worker.rows import DocumentTally, Provenance, Source
from ocr_worker.summary import Summary
from pdf_ops.contract.documents import DocumentRow, DocumentStatus
from pdf_ops.contract.errors import ErrorKind, PdfOpsError
from pdf_ops.contract.pages import PageRow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ocr_worker.isolation.sandbox import Isolation
    from ocr_worker.output import TableWriter
    from ocr_worker.settings import OutputFormat, WorkerSettings
    from ocr_worker.slices import DocumentStream

# Documents identified and handed to the page processes before their turn to be written: enough that
# no process waits while a slow one is read, few enough that their rows fit in memory.
AHEAD = 12


class Reporter(Protocol):
    """Whoever tells a person or a program how it goes."""

    def page(self, summary: Summary, row: PageRow) -> None:
        """A page was written."""

    def document(self, summary: Summary, row: DocumentRow) -> None:
        """A document is done with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where rows go."""

    folder: Path
    format: OutputFormat
    text_folder: Path | None = None


@dataclass(slots=True)
class _Begun:
    """A document whose reading has begun, or that cannot be read."""

    path: Path
    source: Source
    stream: DocumentStream | None
    error: PdfOpsError | None


class Extraction:
    """One run over local files."""

    def __init__(
        self,
        settings: WorkerSettings,
        files: Sequence[Path],
        destination: Destination,
        reporter: Reporter,
        profile: Path | None = None,
    ) -> None:
        """Say what to read, how, and where rows go; ``profile`` is a report on where the time goes."""
        self._settings = settings
        self._files = files
        self._destination = destination
        self._reporter = reporter
        self._profile = profile
        self._provenance = Provenance(reading=settings.reading)
        self._is_cancelled = False
        self.isolation: Isolation | None = None
        self.summary = Summary(documents_total=len(files))

    def run(self) -> PdfOpsError | None:
        """Read everything; returns the error that stopped the run early, if there is one.

        Whatever happens to a document, it has a row; whatever happens to a page of one that opened,
        it has a row, too. Ctrl-C ends the run early, with the files in order.

        Raises:
            PdfOpsError: TARGET/disk. No file is left behind then.
        """
        return asyncio.run(self._run())

    async def _run(self) -> PdfOpsError | None:
        began = time.perf_counter()
        try:
            scratch = tempfile.TemporaryDirectory(prefix="ocr-worker-", dir=self._settings.scratch_dir)
        except OSError as error:
            raise PdfOpsError(
                ErrorKind.TARGET_DISK, f"{self._settings.scratch_dir}: {error.strerror}"
            ) from error
        with (
            scratch,
            profiled_run(self._profile) as profile_folder,
            self._writers() as (pages, documents, texts),
        ):
            folders = folders_of(self._files)
            pool = PagePool(self._settings.pool(Path(scratch.name), profile_folder, folders))
            async with pool:
                with self._cancelled_by_signals(pool):
                    await self._read_all(pool, pages, documents, texts)
        self.summary.finish(pool.usage, time.perf_counter() - began)
        self.isolation = pool.isolation
        return pool.fatal

    @contextlib.contextmanager
    def _writers(self) -> Iterator[tuple[TableWriter[PageRow], TableWriter[DocumentRow], TextFolder | None]]:
        """The files, put in place together at the end or not at all."""
        target = self._destination
        with contextlib.ExitStack() as opened:
            pages = open_writer(target.folder, "pages", PageRow, target.format)
            opened.callback(pages.discard)
            documents = open_writer(target.folder, "documents", DocumentRow, target.format)
            opened.callback(documents.discard)
            texts = TextFolder(target.text_folder) if target.text_folder is not None else None
            if texts is not None:
                opened.callback(texts.end, keep=False)
            yield pages, documents, texts
            pages.close()
            documents.close()
            opened.pop_all()

    @contextlib.contextmanager
    def _cancelled_by_signals(self, pool: PagePool) -> Iterator[None]:
        """The first Ctrl-C or SIGTERM ends the run in order; after that they end it at once."""
        loop = asyncio.get_running_loop()
        caught = (signal.SIGINT, signal.SIGTERM)

        def cancel() -> None:
            self._is_cancelled = True
            for number in caught:
                loop.remove_signal_handler(number)
            pool.cancel()

        for number in caught:
            loop.add_signal_handler(number, cancel)
        try:
            yield
        finally:
            for number in caught:
                loop.remove_signal_handler(number)

    async def _read_all(
        self,
        pool: PagePool,
        pages: TableWriter[PageRow],
        documents: TableWriter[DocumentRow],
        texts: TextFolder | None,
    ) -> None:
        ahead: deque[asyncio.Task[_Begun]] = deque()
        files = iter(self._files)
        try:
            while True:
                for path in files:
                    ahead.append(asyncio.create_task(self._begin(pool, path)))
                    if len(ahead) >= AHEAD:
                        break
                if not ahead:
                    return
                await self._write(await ahead.popleft(), pages, documents, texts)
        finally:
            for task in ahead:
                task.cancel()

    async def _begin(self, pool: PagePool, path: Path) -> _Begun:
        stopped_by = pool.fatal or (PdfOpsError(ErrorKind.LOST_CANCELLED) if self._is_cancelled else None)
        if stopped_by is not None:
            return _Begun(path, Source(uri=path.as_uri()), None, stopped_by)
        max_bytes = self._settings.max_megabytes * 2**20
        if is_small(path):
            source, media_type, error = identify(path, max_bytes)
        else:
            source, media_type, error = await asyncio.to_thread(identify, path, max_bytes)
        stream = None
        if self._is_cancelled:  # Meanwhile.
            error = error or PdfOpsError(ErrorKind.LOST_CANCELLED)
        elif media_type is not None:
            stream = await pool.read(path, media_type, self._settings.password)
        return _Begun(path, source, stream, error)

    async def _write(
        self,
        begun: _Begun,
        pages: TableWriter[PageRow],
        documents: TableWriter[DocumentRow],
        texts: TextFolder | None,
    ) -> None:
        tally = DocumentTally(source=begun.source, provenance=self._provenance)
        error = begun.error
        if begun.stream is not None:
            if texts is not None:
                texts.begin(begun.path.name)
            async for answer in begun.stream.pages():
                tally.open_ms = begun.stream.open_ms
                row = tally.page_row(answer, begun.stream.page_count or 0)
                pages.write(row, row.char_count)
                if texts is not None:
                    texts.write(row)
                self.summary.add_page(row)
                self._reporter.page(self.summary, row)
            tally.page_count = begun.stream.page_count
            error = begun.stream.error
        document = tally.document_row(error, begun.stream.wall_ms if begun.stream is not None else 0.0)
        if texts is not None and begun.stream is not None:
            texts.end(keep=document.status in (DocumentStatus.DONE, DocumentStatus.PARTIAL))
        documents.write(document)
        self.summary.add_document(document)
        self._reporter.document(self.summary, document)
