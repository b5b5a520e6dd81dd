"""The page process: opens documents, reads slices of pages, and answers on a socket.

Started by ``ocr_worker.pages`` with an environment that holds no credentials. It may be killed at
any moment; whoever started it loses one slice.
"""

from __future__ import annotations

import os
import resource
import socket
import sys
import time
from typing import TYPE_CHECKING, BinaryIO, cast

from ocr_worker.engines import load_factory
from ocr_worker.isolation import sandbox
from ocr_worker.limits import apply_limits, limit_cpu_of_next_page
from ocr_worker.opening import open_document, open_second
from ocr_worker.profiling import profiled_part
from ocr_worker.protocol import (
    EXIT_OUT_OF_MEMORY,
    HEADER,
    MARK,
    NO_PAGE,
    PageAnswer,
    ProcessConfig,
    SliceRequest,
    encode_end,
    encode_failed,
    encode_opened,
    encode_pages,
    encode_ready,
)
from ocr_worker.reading import PageReader, Stopwatch
from pdf_ops.contract.errors import ErrorClass, ErrorKind, PdfOpsError
from pdf_ops.contract.media import MediaType
from pdf_ops.contract.pages import Method, MethodReason

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ocr_worker.engines import Document, Recognizer
    from ocr_worker.engines.pypdf_text import PypdfDocument
    from ocr_worker.reading import Reading
    from pdf_ops.contract.fingerprint import ReadingConfig

# Answers are sent in batches: a frame for each 1 ms page would cost more than the page.
FLUSH_S = 0.05
FLUSH_CHARACTERS = 262_144
# Parsers keep what they have parsed until the document is closed: memory would grow with its length.
REOPEN_AFTER_PAGES = 800
REOPEN_AFTER_MS = 5_000.0
# The second parser takes long to open a longer document, too long for a look at its empty pages.
MAX_CHECKED_PAGES = 500


class PageProcess:
    """The loop of one page process."""

    def __init__(self, requests: BinaryIO, answers: BinaryIO, mark_fd: int) -> None:
        """Take the ends to talk on, and the file that says which page is being read."""
        self._requests = requests
        self._answers = answers
        self._mark_fd = mark_fd
        self._config = ProcessConfig.decode(self._receive() or b"{}")
        self._reader = self._reader_for(self._config.reading)
        self._open: tuple[tuple[Path, bool], Document] | None = None
        self._second: tuple[Path, PypdfDocument] | None = None
        self._pages_read, self._read_ms = 0, 0.0

    def _reader_for(self, reading: ReadingConfig) -> PageReader:
        return PageReader(reading, lambda: self._load_recognizer(reading.languages_label))

    def serve(self) -> None:
        """Answer requests until there are no more."""
        apply_limits(self._config.limits)
        try:
            isolation = sandbox.enter(self._config.sandbox)
        except PdfOpsError as error:
            self._send(encode_failed(error))
            return
        # Loaded before it reports for work: limits too tight for that are the run's problem, no document's.
        import pypdfium2.raw  # noqa: F401

        self._send(encode_ready(isolation))
        with profiled_part(self._config.profile_folder):
            self._serve()

    def _serve(self) -> None:
        while (content := self._receive()) is not None:
            self._mark(NO_PAGE)
            limit_cpu_of_next_page(self._config.limits)
            request = SliceRequest.decode(content)
            reading = request.reading or self._config.reading
            if reading != self._reader.config:
                self._reader = self._reader_for(reading)
            self._answer(request)
            self._send(encode_end())

    def _answer(self, request: SliceRequest) -> None:
        watch = Stopwatch()
        try:
            document = self._document(request)
        except PdfOpsError as error:
            self._send(encode_failed(error))
            return
        except OSError as error:
            self._send(encode_failed(PdfOpsError(ErrorKind.SOURCE_UNREADABLE, error.strerror or str(error))))
            return
        if request.page_count not in (None, document.page_count):
            # Another parser counts other pages, so its page 7 is not the page 7 that is asked for.
            detail = f"the second parser sees {document.page_count} pages, not {request.page_count}"
            self._send(encode_failed(PdfOpsError(ErrorKind.CORRUPT_PAGE_UNREADABLE, detail)))
            return
        self._send(encode_opened(document.page_count, watch.lap_ms()))
        if document.page_count > self._config.max_pages:
            return
        batch: list[PageAnswer] = []
        characters, flushed = 0, time.monotonic()
        for page in self._pages(document, request):
            batch.append(page)
            characters += len(page.reading.text) if page.reading is not None else 0
            if characters > FLUSH_CHARACTERS or time.monotonic() - flushed > FLUSH_S:
                self._send(encode_pages(batch))
                batch, characters, flushed = [], 0, time.monotonic()
        if batch:
            self._write(encode_pages(batch))  # The end of the slice goes along with it.

    def _pages(self, document: Document, request: SliceRequest) -> Iterator[PageAnswer]:
        for index in range(request.first, min(request.last, document.page_count)):
            self._mark(index)
            limit_cpu_of_next_page(self._config.limits)
            watch, cpu = Stopwatch(), _cpu_s()
            reading = error = None
            try:
                with document.page(index) as page:
                    reading = self._reader.read(page, document.parser)
                if reading.reason is MethodReason.NOTHING_DRAWN and not request.is_careful:
                    self._check_contents(document, request, index)
            except PdfOpsError as first:
                reading, error = self._by_second(request, index, document.page_count, first)
            total_ms = watch.lap_ms()
            self._pages_read += 1
            self._read_ms += total_ms
            yield PageAnswer(index, reading, error, total_ms, (_cpu_s() - cpu) * 1000)

    def _by_second(
        self, request: SliceRequest, index: int, page_count: int, first: PdfOpsError
    ) -> tuple[Reading | None, PdfOpsError | None]:
        """Give the second parser its try at a page that the first could not read."""
        is_pdf = request.media_type is MediaType.PDF
        if request.is_careful or not is_pdf or first.kind.error_class is not ErrorClass.CORRUPT:
            return None, first
        try:
            document = self._second_document(request)
            if document.page_count != page_count:
                return None, first
            with document.page(index) as page:
                reading = self._reader.read(page, document.parser)
        except PdfOpsError:
            return None, first
        # One that reads nothing has not read what the other could not.
        return (None, first) if reading.method is Method.EMPTY else (reading, None)

    def _second_document(self, request: SliceRequest) -> PypdfDocument:
        if self._second is None or self._second[0] != request.path:
            self._close_second()
            self._second = (request.path, open_second(request.path, request.password))
        return self._second[1]

    def _check_contents(self, first: Document, request: SliceRequest, index: int) -> None:
        """Tell an empty page from one whose contents pdfium cannot unpack: it says the same of both.

        Raises:
            PdfOpsError: CORRUPT/page_unreadable or BOMB/….
        """
        from ocr_worker.engines.pdfium import PdfiumDocument

        if isinstance(first, PdfiumDocument) and first.has_unpacked(index):
            return
        if first.page_count > MAX_CHECKED_PAGES:
            return
        try:
            document = self._second_document(request)
        except PdfOpsError:
            return  # It cannot tell.
        if document.page_count == first.page_count:
            with document.page(index) as page:
                page.check_contents()

    def _document(self, request: SliceRequest) -> Document:
        """The open document; kept open between slices, since most slices go on where one ended."""
        key = (request.path, request.is_careful)
        is_fresh = self._pages_read < REOPEN_AFTER_PAGES and self._read_ms < REOPEN_AFTER_MS
        if self._open is not None and self._open[0] == key and is_fresh:
            return self._open[1]
        self._pages_read, self._read_ms = 0, 0.0
        if self._open is not None:
            self._open[1].close()
            self._open = None
        self._close_second()
        document = open_document(
            request.path,
            request.media_type,
            password=request.password,
            is_careful=request.is_careful,
            max_pixels=self._reader.config.max_page_pixels,
            parser=self._config.parser,
        )
        self._open = (key, document)
        return document

    def _close_second(self) -> None:
        if self._second is not None:
            self._second[1].close()
            self._second = None

    def _load_recognizer(self, languages: str) -> Recognizer:
        name = self._config.recognizer
        if ":" in name:
            return cast("Recognizer", load_factory(name)(languages))
        from ocr_worker.engines.tesseract import load_recognizer

        return load_recognizer(name, languages)

    def _receive(self) -> bytes | None:
        header = self._requests.read(HEADER.size)
        if len(header) < HEADER.size:
            return None
        (size,) = HEADER.unpack(header)
        return self._requests.read(size)

    def _send(self, content: bytes) -> None:
        self._write(content)
        self._answers.flush()

    def _write(self, content: bytes) -> None:
        self._answers.write(HEADER.pack(len(content)) + content)

    def _mark(self, index: int) -> None:
        os.pwrite(self._mark_fd, MARK.pack(index), 0)


def _cpu_s() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def main(arguments: list[str]) -> int:
    """Serve on the descriptors that the command line names."""
    channel = socket.socket(fileno=int(arguments[0]))
    try:
        with channel.makefile("rb") as requests, channel.makefile("wb") as answers:
            PageProcess(requests, answers, int(arguments[1])).serve()
    except MemoryError:
        # No clean-up: there is no memory for it.
        os._exit(EXIT_OUT_OF_MEMORY)
    except BrokenPipeError:
        return 0
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
