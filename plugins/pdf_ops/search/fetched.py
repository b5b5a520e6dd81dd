"""The published index on this machine: fetched when it has changed, shared by all processes, bounded.

The index that is there answers while the next one comes. Not for building it.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pdf_ops.search.embedded import EmbeddedIndex
from pdf_ops.search.found import Found, NoIndexError, NotReadyError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pdf_ops.search.publishing import Publication, Publisher
    from pdf_ops.search.query import SearchQuery

CHECK_EVERY_S = 30.0
_ARRIVING = ".arriving-"
_log = logging.getLogger(__name__)


def default_cache() -> Path:
    """Where fetched indexes are unless somebody says otherwise."""
    return Path(tempfile.gettempdir()) / f"pdf_ops-search-{os.getuid()}"


class FetchedIndex:
    """The published index, as it was at most half a minute ago.

    :param publisher: Where it comes from.
    :param folder: The cache; made if it is not there.
    :param max_bytes: A larger index is not fetched.
    :param wait_s: How long the first search waits for it; until it is here if None.
    :param check_every_s: How often to look whether there is a newer one.
    """

    def __init__(
        self,
        publisher: Publisher,
        folder: Path,
        *,
        max_bytes: int,
        wait_s: float | None,
        check_every_s: float = CHECK_EVERY_S,
    ) -> None:
        self._publisher, self._folder = publisher, folder
        self._max_bytes, self._wait_s, self._check_every_s = max_bytes, wait_s, check_every_s
        self._lock = threading.Lock()
        self._etag = ""
        self._index: EmbeddedIndex | None = None
        self._checked_at = float("-inf")
        self._coming: threading.Thread | None = None
        self._problem: NoIndexError | None = None

    def search(self, query: SearchQuery, *, limit: int, offset: int = 0) -> Found:
        """See ``SearchIndex``.

        Raises:
            NotReadyError: If the first one is still on its way.
        """
        return self._current().search(query, limit=limit, offset=offset)

    def _current(self) -> EmbeddedIndex:
        with self._lock:
            if self._coming is None and time.monotonic() - self._checked_at >= self._check_every_s:
                self._check()
            index, coming = self._index, self._coming
        if index is not None:
            return index
        if coming is not None:
            coming.join(self._wait_s)
        with self._lock:
            if self._index is not None:
                return self._index
            if self._problem is not None:
                raise self._problem
        raise NotReadyError("the search index is being fetched for the first time: try again in a moment")

    def _check(self) -> None:
        """Look whether there is a newer one, and have it fetched if so."""
        try:
            publication = self._publisher.read(self._etag)
        except Exception as error:
            self._checked_at = time.monotonic()
            self._problem = error if isinstance(error, NoIndexError) else None
            if self._index is None:
                self._checked_at = float("-inf")
                raise
            _log.warning("the search index cannot be looked at, the one that is here is used: %s", error)
            return
        self._checked_at = time.monotonic()
        if publication is not None:
            self._coming = threading.Thread(
                target=self._bring, args=(publication,), name="search-index", daemon=True
            )
            self._coming.start()

    def _bring(self, publication: Publication) -> None:
        problem: NoIndexError | None = None
        index = None
        try:
            index = EmbeddedIndex(self._fetched(publication))
        except NoIndexError as error:
            problem = error
        except Exception as error:  # noqa: BLE001 -- whatever S3 or the disk say
            problem = NoIndexError(f"the search index could not be fetched: {type(error).__name__}: {error}")
        with self._lock:
            self._coming = None
            self._problem = problem
            if index is not None:
                self._index, self._etag = index, publication.etag
        if problem is not None:
            _log.warning("%s", problem)

    def _fetched(self, publication: Publication) -> Path:
        """The folder of an index, which other processes may have fetched meanwhile."""
        if publication.size_bytes > self._max_bytes:
            raise NoIndexError(
                f"the search index has {publication.size_bytes / 2**20:,.0f} MB, more than "
                f"PDF_OPS_SEARCH_CACHE_MB allows ({self._max_bytes / 2**20:,.0f}): raise it, or use "
                "OpenSearch"
            )
        target = self._folder / hashlib.sha256(publication.etag.encode()).hexdigest()[:32]
        with self._only_one():
            if target.is_dir():
                return target
            older = [path for path in self._folder.iterdir() if path.is_dir()]
            # What a process left that died while it fetched.
            for path in older:
                if path.name.startswith(_ARRIVING):
                    shutil.rmtree(path, ignore_errors=True)
            kept = [path for path in older if not path.name.startswith(_ARRIVING)]
            arriving = Path(tempfile.mkdtemp(prefix=_ARRIVING, dir=self._folder))
            try:
                newest = max(kept, key=lambda path: path.stat().st_mtime, default=None)
                self._publisher.fetch(publication, arriving, like=newest)
                arriving.rename(target)
            except BaseException:
                shutil.rmtree(arriving, ignore_errors=True)
                raise
            # Whoever has one of them open keeps its files until it has this one.
            for path in kept:
                shutil.rmtree(path, ignore_errors=True)
        return target

    @contextmanager
    def _only_one(self) -> Iterator[None]:
        """One process at a time, in a folder that is ours alone."""
        self._folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        if self._folder.stat().st_uid != os.getuid():
            raise NoIndexError(f"{self._folder} is somebody else's: set PDF_OPS_SEARCH_CACHE_DIR")
        with (self._folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                with suppress(OSError):
                    fcntl.flock(file, fcntl.LOCK_UN)
