"""The page processes: started, fed with slices of pages, watched, killed, replaced.

The main process never parses a document; it cuts each one into slices and hands them out. A slice
that crashes, hangs or eats the memory costs one page at most: the page it was at is tried once more,
alone and with the other engines, and then becomes an error; the rest of the slice is read on.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from ocr_worker.profiling import PART_GRACE_S
from ocr_worker.protocol import (
    EXIT_OUT_OF_MEMORY,
    HEADER,
    MARK,
    MAX_FRAME_BYTES,
    NO_PAGE,
    Answer,
    BadAnswerError,
    Failed,
    Opened,
    ProcessConfig,
    Ready,
    SliceEnd,
    SliceRequest,
    decode_answer,
)
from ocr_worker.slices import DocumentStream, Slice
from pdf_ops.contract.errors import ErrorClass, ErrorKind, PdfOpsError, Scope

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ocr_worker.isolation.sandbox import Isolation
    from pdf_ops.contract.fingerprint import ReadingConfig
    from pdf_ops.contract.media import MediaType

# What a page process may know of the environment. Credentials, proxies and endpoints are not in it.
PASSED_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "TZ", "TESSDATA_PREFIX", "PYTHONPATH", "LD_LIBRARY_PATH")
# Parallel work is ours to arrange: threads of OpenMP fight over the cores, those of OpenBLAS only cost.
ONE_THREAD_VARIABLES = ("OMP_THREAD_LIMIT", "OPENBLAS_NUM_THREADS")
START_TIMEOUT_S = 60.0
START_ATTEMPTS = 3
# So many documents must fail for want of an engine before the run is stopped.
FATAL_DOCUMENTS = 2
START_PAUSE_S = 1.0
# A process that died with this share of its memory limit in use is taken to have run out of it.
OOM_SHARE = 0.5
_OOM_WORDS = (b"bad_alloc", b"out of memory", b"Out of memory", b"Cannot allocate memory", b"MemoryError")
_STDERR_TAIL_BYTES = 4096
_MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolConfig:
    """How many page processes there are, and how they live.

    Attributes:
        process: What every process is told.
        processes: How many run at once.
        document_timeout_s: Clock time for one document.
        max_docs_per_process: A process is replaced after this many.
        scratch: Where each process gets a folder of its own, the only one that it may write to.
    """

    process: ProcessConfig
    processes: int
    document_timeout_s: float
    max_docs_per_process: int
    scratch: Path


@dataclass(slots=True)
class ProcessUsage:
    """What the page processes have used so far, as the kernel counted it when they ended."""

    started: int = 0
    killed: int = 0
    cpu_s: float = 0.0
    peak_rss_bytes: int = 0


class ProcessDiedError(Exception):
    """A page process is gone, and with it the rest of its slice."""

    def __init__(self, error_class: ErrorClass, detail: str, page: int | None) -> None:
        """Say how it died and at which page."""
        super().__init__(error_class, detail, page)
        self.error_class = error_class
        self.detail = detail
        self.page = page


class PageProcess:
    """The main process's end of one page process."""

    def __init__(self, config: PoolConfig, usage: ProcessUsage) -> None:
        """Remember how to start it."""
        self._config = config
        self._usage = usage
        self._popen: subprocess.Popen[bytes] | None = None
        self._peak_at_start = 0
        self._mark = tempfile.TemporaryFile()  # noqa: SIM115 -- lives as long as the process
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 -- as above
        self._folder: Path | None = None
        self.isolation: Isolation | None = None
        self.documents: set[int] = set()
        self.has_open: int | None = None

    async def start(self) -> None:
        """Start it, in a process group and with an environment of its own.

        Raises:
            ProcessDiedError: If it does not come up.
        """
        ours, theirs = socket.socketpair()
        environment = {name: os.environ[name] for name in PASSED_ENVIRONMENT if name in os.environ}
        self._folder = folder = Path(tempfile.mkdtemp(prefix="page-", dir=self._config.scratch))
        environment |= dict.fromkeys(ONE_THREAD_VARIABLES, "1") | {"HOME": str(folder), "TMPDIR": str(folder)}
        self._spawn(theirs, environment, folder)
        theirs.close()
        self._usage.started += 1
        self._reader, self._writer = await asyncio.open_connection(sock=ours)
        process = self._config.process
        sandbox = replace(process.sandbox, writable=(*process.sandbox.writable, folder))
        await self._send(replace(process, sandbox=sandbox).encode())
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                answer = decode_answer(await self._receive())
        except TimeoutError:
            raise await self._died(ErrorClass.TIMEOUT, "did not start") from None
        except BadAnswerError as error:
            raise await self._died(ErrorClass.ENGINE, f"answered out of shape: {error}") from error
        except (asyncio.IncompleteReadError, ConnectionError):
            raise await self._died(None, "") from None
        if not isinstance(answer, Ready):
            reason = answer.error.detail if isinstance(answer, Failed) else "spoke out of turn"
            raise await self._died(ErrorClass.ENGINE, reason)
        self.isolation = answer.isolation

    def _spawn(self, theirs: socket.socket, environment: dict[str, str], folder: Path) -> None:
        self._peak_at_start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_BYTES
        descriptors = (theirs.fileno(), self._mark.fileno())
        command = [sys.executable, "-P", "-m", "ocr_worker.page_process", *map(str, descriptors)]
        self._popen = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._stderr,
            env=environment,
            cwd=folder,
            pass_fds=descriptors,
            start_new_session=True,
        )

    async def answers(self, request: SliceRequest, deadline: float) -> AsyncIterator[Answer]:
        """Have a slice read; yields what the process says until the slice is done.

        Raises:
            ProcessDiedError: If it crashes, is silent for longer than a page may take, or talks nonsense.
                It has been killed then.
        """
        loop = asyncio.get_running_loop()
        page_timeout_s = self._config.process.limits.page_timeout_s
        await self._send(request.encode())
        while True:
            limit_s = min(page_timeout_s, deadline - loop.time())
            try:
                async with asyncio.timeout(max(0.0, limit_s)):
                    content = await self._receive()
                answer = decode_answer(content)
            except TimeoutError:
                raise await self._died(ErrorClass.TIMEOUT, f"no answer within {limit_s:.0f} s") from None
            except BadAnswerError as error:
                raise await self._died(ErrorClass.ENGINE, f"answered out of shape: {error}") from error
            except (asyncio.IncompleteReadError, ConnectionError):
                raise await self._died(None, "") from None
            if isinstance(answer, SliceEnd):
                return
            yield answer

    def is_worn_out_for(self, document: int) -> bool:
        """Whether it has read so many documents that this one should get a new process."""
        return document not in self.documents and len(self.documents) >= self._config.max_docs_per_process

    async def stop(self) -> None:
        """End it, with every program that it started."""
        if self._popen is None:
            return
        self._writer.close()
        await self._reap(grace_s=PART_GRACE_S if self._config.process.profile_folder is not None else 0.0)
        await self._close_files()

    async def _close_files(self) -> None:
        self._mark.close()
        self._stderr.close()
        if self._folder is not None:
            # In a thread: a hostile process may have left a million files.
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def _send(self, content: bytes) -> None:
        with contextlib.suppress(ConnectionError):  # The next read finds out why.
            self._writer.write(HEADER.pack(len(content)) + content)
            await self._writer.drain()

    async def _receive(self) -> bytes:
        (size,) = HEADER.unpack(await self._reader.readexactly(HEADER.size))
        if size > MAX_FRAME_BYTES:
            raise BadAnswerError(f"a frame of {size} bytes")
        return await self._reader.readexactly(size)

    async def _died(self, known: ErrorClass | None, detail: str) -> ProcessDiedError:
        """Kill what is left of it, and find out how it ended."""
        self._usage.killed += known is not None
        ended_by_itself = known is None
        self._writer.close()
        status, peak_rss = await self._reap(grace_s=1.0 if ended_by_itself else 0.0)
        if known is None:
            known, detail = self._post_mortem(status, peak_rss)
        marked = os.pread(self._mark.fileno(), MARK.size, 0)
        (page,) = MARK.unpack(marked) if len(marked) == MARK.size else (NO_PAGE,)
        await self._close_files()
        return ProcessDiedError(known, detail, None if page == NO_PAGE else page)

    def _post_mortem(self, status: int, peak_rss: int) -> tuple[ErrorClass, str]:
        code = os.waitstatus_to_exitcode(status)
        limit = self._config.process.limits.memory_bytes
        size = os.fstat(self._stderr.fileno()).st_size
        tail = os.pread(self._stderr.fileno(), _STDERR_TAIL_BYTES, max(0, size - _STDERR_TAIL_BYTES))
        how = f"ended by {_signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
        if code == -signal.SIGXCPU:
            return ErrorClass.TIMEOUT, "used up its CPU time"
        ran_out = code in (EXIT_OUT_OF_MEMORY, -signal.SIGKILL) or any(word in tail for word in _OOM_WORDS)
        # A process starts with the peak of the one that started it, which says nothing about its own.
        is_own_peak = peak_rss > self._peak_at_start
        if ran_out or (code < 0 and is_own_peak and peak_rss > OOM_SHARE * limit):
            return ErrorClass.OOM, f"{how} with a limit of {limit // 2**20} MiB"
        return ErrorClass.CRASH, how

    async def _reap(self, grace_s: float = 0.0) -> tuple[int, int]:
        """Kill the whole group and take its usage; returns wait status and peak memory in bytes."""
        if self._popen is None:
            return 0, 0
        pid, self._popen.returncode = self._popen.pid, -signal.SIGKILL
        self._popen = None
        loop = asyncio.get_running_loop()
        ended = loop.run_in_executor(None, os.wait4, pid, 0)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(ended), grace_s)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        _, status, used = await ended
        self._usage.cpu_s += used.ru_utime + used.ru_stime
        self._usage.peak_rss_bytes = max(self._usage.peak_rss_bytes, used.ru_maxrss * _MAXRSS_BYTES)
        return status, used.ru_maxrss * _MAXRSS_BYTES


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # Real-time signals have no name.
        return f"signal {number}"


class PagePool:
    """Page processes that read any number of documents at once, the earliest first."""

    def __init__(self, config: PoolConfig) -> None:
        """Remember how to run; ``async with`` runs it."""
        self._config = config
        self._streams: list[DocumentStream] = []
        self._changed = asyncio.Condition()
        self._workers: list[asyncio.Task[None]] = []
        self.usage = ProcessUsage()
        self.fatal: PdfOpsError | None = None
        self.isolation: Isolation | None = None
        self._accused_by: set[int] = set()

    async def __aenter__(self) -> Self:
        """Start handing out slices; processes start when there is something to read."""
        self._workers = [asyncio.create_task(self._work()) for _ in range(self._config.processes)]
        for worker in self._workers:
            worker.add_done_callback(self._worker_ended)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop, killing what still runs."""
        self.cancel()
        for worker in self._workers:
            worker.cancel()
        ended = await asyncio.gather(*self._workers, return_exceptions=True)
        for error in ended:
            if isinstance(error, Exception):
                raise error

    def cancel(self) -> None:
        """End every document here: pages that were not read become errors."""
        for stream in self._streams:
            stream.cancel()

    def _worker_ended(self, worker: asyncio.Task[None]) -> None:
        """Let nobody wait for a worker that failed; ``__aexit__`` raises its error."""
        if not worker.cancelled() and worker.exception() is not None:
            self.fatal = self.fatal or PdfOpsError(ErrorKind.ENGINE_MISCONFIGURED, str(worker.exception()))
            self.cancel()

    async def read(
        self,
        path: Path,
        media_type: MediaType,
        password: str | None = None,
        reading: ReadingConfig | None = None,
    ) -> DocumentStream:
        """Have a document read, as ``reading`` says if it does; its pages come out of the stream in order."""
        stream = DocumentStream(
            path=path,
            media_type=media_type,
            password=password,
            reading=reading,
            timeout_s=self._config.document_timeout_s,
            processes=self._config.processes,
            max_pages=self._config.process.max_pages,
            wake=self._wake,
        )
        if self.fatal is not None:
            stream.fail(self.fatal)
            return stream
        self._streams.append(stream)
        await self._wake()
        return stream

    async def _wake(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _next(self, has_open: int | None) -> tuple[DocumentStream, Slice]:
        """The next slice for a process that has this document open.

        Opening costs, so a process stays with its document, then takes one that nobody is reading, and
        only then helps with another's. The earliest document goes first each time.
        """
        async with self._changed:
            while True:
                self._streams = [stream for stream in self._streams if not stream.is_finished]
                is_alone = len(self._streams) < self._config.processes
                for stream in sorted(self._streams, key=lambda s: (s.serial != has_open, s.is_out, s.serial)):
                    taken = stream.take(is_alone=is_alone)
                    if taken is not None:
                        return stream, taken
                await self._changed.wait()

    async def _work(self) -> None:
        process: PageProcess | None = None
        try:
            while True:
                stream, taken = await self._next(process.has_open if process is not None else None)
                if process is not None and process.is_worn_out_for(stream.serial):
                    await process.stop()
                    process = None
                if process is None:
                    process = await self._started()
                if process is None:
                    stream.fail(self.fatal or PdfOpsError(ErrorKind.ENGINE_MISCONFIGURED))
                    continue
                try:
                    process.has_open = stream.serial
                    process.documents.add(stream.serial)
                    await self._read(process, stream, taken)
                except ProcessDiedError as death:
                    process = None
                    stream.slice_died(taken, death.error_class, death.detail, death.page)
                finally:
                    stream.given_back()
                await self._wake()
        finally:
            if process is not None:
                await process.stop()

    async def _started(self) -> PageProcess | None:
        """A new page process; None, with ``fatal`` set, if none comes up."""
        reason = ""
        for attempt in range(START_ATTEMPTS):
            await asyncio.sleep(attempt * START_PAUSE_S)
            try:
                process = PageProcess(self._config, self.usage)
                await process.start()
            except ProcessDiedError as death:
                reason = death.detail
            except OSError as error:  # No memory, files or process ids left: may pass.
                reason = str(error)
            else:
                self.isolation = process.isolation
                return process
        self.fatal = PdfOpsError(ErrorKind.ENGINE_MISCONFIGURED, f"no page process starts: {reason}")
        return None

    async def _read(self, process: PageProcess, stream: DocumentStream, taken: Slice) -> None:
        request = SliceRequest(
            path=stream.path,
            media_type=stream.media_type,
            first=taken.first,
            last=taken.last,
            is_careful=taken.is_careful,
            password=stream.password,
            page_count=stream.page_count,
            reading=stream.reading,
        )
        async for answer in process.answers(request, stream.deadline):
            if isinstance(answer, Opened):
                if stream.opened(answer.page_count, answer.open_ms):
                    await self._wake()  # The other processes can take their slices now.
            elif isinstance(answer, Failed):
                self._note_fatal(stream, answer.error)
                stream.slice_failed(taken, answer.error)
            elif isinstance(answer, list):
                for page in answer:
                    if page.error is not None:
                        self._note_fatal(stream, page.error)
                stream.deliver(taken, answer)
        stream.slice_done(taken)

    def _note_fatal(self, stream: DocumentStream, error: PdfOpsError) -> None:
        """An engine that cannot work fails every document alike: stop instead of failing a million.

        One document's word is not enough: a hostile one could stop the fleet.
        """
        if error.kind.error_class is ErrorClass.ENGINE and error.kind.scope is Scope.FLEET:
            self._accused_by.add(stream.serial)
            if len(self._accused_by) >= FATAL_DOCUMENTS:
                self.fatal = self.fatal or error
