"""The embedded index in S3: files that never change, and one object that says which of them it is.

That object is replaced as a whole, and only by who has seen the one before: whoever reads gets one
state or the next, and of two that publish at once the later begins again. Not for what is in it.
"""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pdf_ops.contract.layout import S3Uri
from pdf_ops.hooks.clients import error_code
from pdf_ops.search.building import Built, Progress, S3Dataset, update
from pdf_ops.search.embedded import STATE, IndexState
from pdf_ops.search.found import NeverBuiltError, NoIndexError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pdf_ops.contract.layout import Layout
    from pdf_ops.objects import ObjectStore

ATTEMPTS = 5
# Nobody reads or writes an index for longer than this.
_KEPT = timedelta(days=1)
_PARALLEL = 8
# tantivy's own, which it rewrites; so they are in the object that is replaced.
_SMALL = ("meta.json", ".managed.json", STATE)
_NO_INDEX = (
    "there is no search index yet: the next run of pdf_ocr builds it (its task `index`, unless the setting "
    "search_index is off), or `pdf-ops index` does now"
)
_REBUILD = "build the index with `pdf-ops index --rebuild`"
_log = logging.getLogger(__name__)


class ConflictError(Exception):
    """Somebody else has published meanwhile."""


@dataclass(frozen=True, slots=True)
class Publication:
    """An index as it was published.

    Attributes:
        etag: What tells it from any other.
        small: The content of its files that change.
        files: The files that do not: where each is below the prefix, and its size.
    """

    etag: str
    small: Mapping[str, str]
    files: Mapping[str, tuple[str, int]]

    @property
    def size_bytes(self) -> int:
        """How large it is."""
        return sum(size for _, size in self.files.values())

    @property
    def state(self) -> IndexState:
        """What it holds.

        Raises:
            NoIndexError: If that cannot be read.
        """
        return IndexState.from_json(self.small.get(STATE, "").encode())


class Publisher:
    """The published index: read, fetched, and replaced.

    :param store: S3.
    :param layout: Where it is.
    """

    def __init__(self, store: ObjectStore, layout: Layout) -> None:
        self._store, self._layout = store, layout

    def read(self, known_etag: str = "") -> Publication | None:
        """What is published now; None if that is what is known already.

        Raises:
            NoIndexError: If nothing is, or it cannot be read.
        """
        found = self._get(known_etag)
        if found is None:
            return None
        etag, data = found
        uri = self._layout.search_index()
        try:
            values = json.loads(data)
            files = {name: (str(key), int(size)) for name, (key, size) in values["files"].items()}
            small = {name: str(values["small"][name]) for name in _SMALL if name in values["small"]}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise NoIndexError(f"{uri} cannot be read: {_REBUILD}") from None
        if any(Path(name).name != name for name in files):
            raise NoIndexError(f"{uri} names files outside the index: {_REBUILD}")
        return Publication(etag, small, files)

    def base(self) -> Publication | None:
        """What the next index is made from: empty for one that cannot be read, None if there is none."""
        try:
            return self.read()
        except NoIndexError:
            try:
                found = self._get()
            except NoIndexError:
                return None
            return Publication(found[0], {}, {}) if found else None

    def _get(self, known_etag: str = "") -> tuple[str, bytes] | None:
        from botocore.exceptions import ClientError

        uri = self._layout.search_index()
        condition = {"IfNoneMatch": f'"{known_etag}"'} if known_etag else {}
        try:
            answer = self._store.client.get_object(Bucket=uri.bucket, Key=uri.key, **condition)
        except ClientError as error:
            if error_code(error) in ("304", "NotModified"):
                return None
            if error_code(error) in ("404", "NoSuchKey"):
                raise NeverBuiltError(_NO_INDEX) from None
            raise
        with answer["Body"] as body:
            return answer["ETag"].strip('"'), body.read()

    def fetch(self, publication: Publication, folder: Path, *, like: Path | None = None) -> None:
        """Bring an index into an empty folder; files that a folder beside it has are not fetched again."""
        free = shutil.disk_usage(folder).free
        if free < publication.size_bytes * 1.1:
            raise NoIndexError(
                f"the search index has {publication.size_bytes / 1e6:,.0f} MB and {folder} room for "
                f"{free / 1e6:,.0f} MB: make room, or use OpenSearch"
            )
        with ThreadPoolExecutor(_PARALLEL, thread_name_prefix="search-fetch") as pool:
            for _ in pool.map(
                lambda item: self._fetch(item[0], item[1], folder, like), publication.files.items()
            ):
                pass
        for name, content in publication.small.items():
            (folder / name).write_text(content, encoding="utf-8")

    def _fetch(self, name: str, where: tuple[str, int], folder: Path, like: Path | None) -> None:
        key, size = where
        if like is not None:
            try:
                if (like / name).stat().st_size == size:
                    (folder / name).hardlink_to(like / name)
                    return
            except OSError:
                pass  # fetched, then
        self._store.download(self._uri(key), folder / name)

    def publish(self, folder: Path, base: Publication | None) -> Publication:
        """Replace what is published with the index in a folder.

        Args:
            folder: The index; nobody writes to it.
            base: What it was made from, or what it replaces.

        Raises:
            ConflictError: If something else is published by now; what was uploaded is removed.
        """
        from botocore.exceptions import ClientError

        small = {name: (folder / name).read_text("utf-8") for name in _SMALL if (folder / name).exists()}
        files: dict[str, tuple[str, int]] = {}
        new: list[tuple[Path, str]] = []
        ours = uuid.uuid4().hex
        for path in _files_of(folder, small["meta.json"]):
            size = path.stat().st_size
            known = base.files.get(path.name) if base else None
            if known is None or known[1] != size:
                known = f"{ours}/{path.name}", size
                new.append((path, known[0]))
            files[path.name] = known
        with ThreadPoolExecutor(2, thread_name_prefix="search-publish") as pool:
            for _ in pool.map(lambda item: self._store.upload(item[0], self._uri(item[1])), new):
                pass
        uri = self._layout.search_index()
        body = json.dumps({"small": small, "files": files}).encode()
        condition = {"IfMatch": f'"{base.etag}"'} if base else {"IfNoneMatch": "*"}
        try:
            answer = self._store.client.put_object(
                Bucket=uri.bucket, Key=uri.key, Body=body, ContentType="application/json", **condition
            )
        except ClientError as error:
            if error_code(error) not in ("PreconditionFailed", "ConditionalRequestConflict", "412", "409"):
                raise
            self._store.remove([self._uri(key) for _, key in new])
            raise ConflictError from error
        published = Publication(answer["ETag"].strip('"'), small, files)
        self._tidy(published, base)
        return published

    def _tidy(self, published: Publication, base: Publication | None) -> None:
        """Remove files of older indexes, and those that broken attempts have left."""
        prefix = self._layout.search_files()
        kept = {key for one in (published, base) if one for key, _ in one.files.values()}
        before = datetime.now(UTC) - _KEPT
        self._store.remove(
            [
                found.uri
                for found in self._store.list(prefix)
                if found.uri.key.removeprefix(prefix.key) not in kept
                and found.modified_at is not None
                and found.modified_at < before
            ]
        )

    def _uri(self, key: str) -> S3Uri:
        prefix = self._layout.search_files()
        return S3Uri(prefix.bucket, prefix.key + key)


def _files_of(folder: Path, meta: str) -> list[Path]:
    """The files of an index's segments; locks and leftovers are none."""
    segments = {segment["segment_id"].replace("-", "") for segment in json.loads(meta)["segments"]}
    return sorted(path for path in folder.iterdir() if path.name.partition(".")[0] in segments)


def update_published(
    store: ObjectStore,
    layout: Layout,
    *,
    is_rebuild: bool = False,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> tuple[Built, Publication | None]:
    """Bring the published index up to date with the published dataset; what was done, and what is there.

    Raises:
        NoIndexError: If it cannot be done here; the message says why.
    """
    publisher = Publisher(store, layout)
    for _ in range(ATTEMPTS):
        base = publisher.base()
        with tempfile.TemporaryDirectory(prefix="pdf_ops-index-") as name:
            folder = Path(name)
            if base is not None and not is_rebuild and _is_current(base):
                publisher.fetch(base, folder)
            built = update(folder, S3Dataset(store, layout.pages_dataset()), on_progress=on_progress)
            if not built.is_changed and base is not None:
                return built, base
            try:
                return built, publisher.publish(folder, base)
            except ConflictError:
                _log.info("Another run has published the search index meanwhile: once more, from there")
    raise NoIndexError(
        f"the search index was replaced by others {ATTEMPTS} times while this one was made; the next update "
        "adds what is missing"
    )


def _is_current(publication: Publication) -> bool:
    try:
        return publication.state.is_current
    except NoIndexError:
        return False


def publication_facts(publication: Publication) -> dict[str, Any]:
    """What to say about a published index."""
    state = publication.state
    return {"rows": state.rows, "built_at": state.built_at, "size_bytes": publication.size_bytes}
