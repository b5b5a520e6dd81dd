"""OpenSearch beside the Parquet: pages are indexed after their document is committed, if that is set.

In a thread of its own, with a bounded queue and bounded time: whatever OpenSearch does, no row is lost,
nothing waits for it but the end of the worker, and what is not indexed is counted. ``pdf-ops reindex``
makes up for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ocr_worker.settings import OpenSearchAuth
from pdf_ops.contract.errors import ErrorKind
from pdf_ops.contract.opensearch import (
    MAX_BULK_BYTES,
    Action,
    FileText,
    IndexNames,
    OpenSearchClient,
    OpenSearchError,
    page_action,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from ocr_worker.events import Events, Metrics
    from ocr_worker.settings import ServiceSettings
    from pdf_ops.contract.documents import DocumentRow

BATCH_DOCUMENTS = 200
LINGER_S = 1.0
PREPARE_AGAIN_S = 30.0
# After a signal there is no time to lose: what is left is for `pdf-ops reindex`.
STOPPED_FLUSH_S = 5.0
READ_ROWS = 200
_AMAZON = (".es.amazonaws.com", ".aos.amazonaws.com")
_COLUMNS = [
    *("source_uri", "page", "page_count", "text", "method", "status"),
    *("ocr_confidence", "run_id", "read_at"),
]


class SearchSink:
    """Takes the files of committed documents, and indexes their rows.

    :param client: OpenSearch.
    :param names: Its indexes.
    :param events: Where it is said.
    :param metrics: Where it is counted.
    :param most_documents: More than these are not kept waiting.
    :param most_bytes: Nor are larger files together.
    """

    def __init__(
        self,
        client: OpenSearchClient,
        names: IndexNames,
        events: Events,
        metrics: Metrics,
        *,
        most_documents: int,
        most_bytes: int,
    ) -> None:
        self._client, self._names = client, names
        self._events, self._metrics = events, metrics
        self._queue: queue.Queue[tuple[DocumentRow, Path, int] | None] = queue.Queue(most_documents + 1)
        self._most_documents, self._most_bytes = most_documents, most_bytes
        self._lock = threading.Lock()
        self._waiting = self._waiting_bytes = 0
        self._is_over = threading.Event()
        self._prepared_at: float | None = None
        self._tried_at = float("-inf")
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._work, name="search-sink", daemon=True)
        self._thread.start()

    def add(self, row: DocumentRow, written: Path) -> None:
        """Take the file of a document that is committed; it is removed when it is indexed, or cannot be."""
        try:
            size = written.stat().st_size
            kept = written.rename(written.with_suffix(".index"))
        except OSError as error:
            self._batch_failed(str(error), 1)
            return
        with self._lock:
            has_room = (
                not self._is_over.is_set()
                and self._waiting < self._most_documents
                and (self._waiting == 0 or self._waiting_bytes + size <= self._most_bytes)
            )
            if has_room:
                self._waiting, self._waiting_bytes = self._waiting + 1, self._waiting_bytes + size
        if not has_room:
            kept.unlink(missing_ok=True)
            self._batch_failed("the queue is full", 1)
            return
        self._queue.put_nowait((row, kept, size))

    async def close(self, timeout_s: float) -> None:
        """Index what is waiting, for at most so long; the rest is counted."""
        self._queue.put_nowait(None)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), timeout_s)
        self._is_over.set()
        with self._lock:
            left = self._waiting
        if left:
            self._batch_failed("the worker ends before they are indexed", left)

    # In the thread ---------------------------------------------------------------------------

    def _work(self) -> None:
        is_last = False
        while not is_last and not self._is_over.is_set():
            batch, is_last = self._next_batch()
            if batch:
                try:
                    self._index(batch)
                except Exception as error:  # noqa: BLE001 -- whatever it is, the documents are safe
                    if not self._is_over.is_set():  # Else they are counted as left over.
                        self._say(self._batch_failed, f"{type(error).__name__}: {error}", len(batch))
                finally:
                    for _, path, size in batch:
                        path.unlink(missing_ok=True)
                        with self._lock:
                            self._waiting, self._waiting_bytes = self._waiting - 1, self._waiting_bytes - size
        self._say(self._ended.set)

    def _next_batch(self) -> tuple[list[tuple[DocumentRow, Path, int]], bool]:
        """What has come together within a second, and whether nothing comes after it."""
        batch = []
        item = self._queue.get()
        until = time.monotonic() + LINGER_S
        size = 0
        while item is not None:
            batch.append(item)
            size += item[2]
            if len(batch) >= BATCH_DOCUMENTS or size >= MAX_BULK_BYTES:
                return batch, False
            try:
                item = self._queue.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                return batch, False
        return batch, True

    def _index(self, batch: list[tuple[DocumentRow, Path, int]]) -> None:
        self._prepare()
        files, refused, indexed = [], {}, 0
        actions: list[Action] = []
        size = 0

        def send() -> None:
            nonlocal indexed, size
            result = self._client.bulk(actions, is_over=self._is_over.is_set, pause=self._is_over.wait)
            actions.clear()
            size = 0
            indexed += result.indexed
            refused.update(result.refused)
            self._say(self._metrics.index, retries=result.retries)
            if result.unsent:
                raise OpenSearchError(result.problem)

        for row, path, _ in batch:
            whole = FileText(row.source_uri, row.source_size or 0, row.media_type)
            for page in _rows_of(path):
                whole.add(page)
                actions.append(page_action(self._names, page, datetime.now(UTC)))
                size += len(actions[-1].lines)
                if size >= MAX_BULK_BYTES:
                    send()
            if whole.last_read_at is not None:
                files.append(whole)
                actions.append(whole.action(self._names, datetime.now(UTC)))
                size += len(actions[-1].lines)
        send()
        self._client.remove_older_pages(self._names, files)
        self._say(self._indexed, len(batch), indexed, refused)

    def _prepare(self) -> None:
        """Put the template in place, once; a domain that is down is not asked for it all the time."""
        if self._prepared_at is not None:
            return
        if time.monotonic() - self._tried_at < PREPARE_AGAIN_S:
            raise OpenSearchError("OpenSearch did not answer a moment ago")
        self._tried_at = time.monotonic()
        self._client.prepare(self._names)
        self._prepared_at = time.monotonic()

    def _say(self, function: Callable[..., object], *arguments: Any, **more: Any) -> None:
        """Have the event loop's thread count and log it."""
        try:
            self._loop.call_soon_threadsafe(lambda: function(*arguments, **more))
        except RuntimeError:
            return  # The worker has ended.

    # In the event loop -----------------------------------------------------------------------

    def _indexed(self, documents: int, indexed: int, refused: Mapping[str, str]) -> None:
        self._metrics.index(indexed=indexed, refused=len(refused))
        self._events.emit("index.done", documents=documents, indexed=indexed)
        if refused:
            self._events.emit(
                "index.refused",
                level="error",
                refused=len(refused),
                reasons=sorted(set(refused.values()))[:5],
                ids=sorted(refused)[:5],
                error_class=ErrorKind.TARGET_OPENSEARCH.error_class.value,
                error_code=ErrorKind.TARGET_OPENSEARCH.code,
            )

    def _batch_failed(self, reason: str, documents: int) -> None:
        self._metrics.index(dropped=documents)
        kind = ErrorKind.TARGET_OPENSEARCH
        self._events.emit(
            "index.failed",
            level="error",
            documents=documents,
            error_class=kind.error_class.value,
            error_code=kind.code,
            error=f"{reason}: `pdf-ops reindex` makes up for it",
        )


def _rows_of(path: Path) -> Iterator[dict[str, Any]]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(READ_ROWS, columns=_COLUMNS, use_threads=False):
            yield from batch.to_pylist()


async def open_sink(settings: ServiceSettings, events: Events, metrics: Metrics) -> SearchSink | None:
    """The sink, if OpenSearch is set."""
    if not settings.opensearch_url:
        return None
    is_signed = settings.opensearch_auth is OpenSearchAuth.SIGV4 or (
        settings.opensearch_auth is OpenSearchAuth.AUTO
        and not settings.opensearch_username
        and settings.opensearch_url.partition("://")[2].partition("/")[0].endswith(_AMAZON)
    )
    client = OpenSearchClient(
        settings.opensearch_url,
        username=settings.opensearch_username or "",
        password=settings.opensearch_password or "",
        sign=await _signer(settings.region) if is_signed else None,
        timeout_s=settings.opensearch_timeout_s,
    )
    return SearchSink(
        client,
        IndexNames(settings.opensearch_index),
        events,
        metrics,
        most_documents=settings.opensearch_queue_documents,
        most_bytes=settings.opensearch_queue_mb * 2**20,
    )


async def _signer(region: str | None) -> Callable[[str, str, Mapping[str, str], bytes], Mapping[str, str]]:
    """Signs with the worker's own credentials, which botocore renews."""
    from botocore.session import get_session

    session = get_session()
    credentials = await asyncio.to_thread(session.get_credentials)
    name = region or session.get_config_variable("region")

    def sign(method: str, url: str, headers: Mapping[str, str], body: bytes) -> Mapping[str, str]:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest

        if credentials is None:
            raise OpenSearchError("there are no AWS credentials to sign with", 403)
        request = AWSRequest(method=method, url=url, data=body, headers=dict(headers))
        SigV4Auth(credentials.get_frozen_credentials(), "es", name).add_auth(request)
        return dict(request.headers.items())

    return sign
