"""The pages of a bucket's listing, from several prefixes at once. Not for deciding about what is on them."""

from __future__ import annotations

import threading
from collections import deque
from queue import Full, Queue
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def raw_pages(client: Any, bucket: str, prefix: str, threads: int) -> Iterator[list[dict[str, Any]]]:
    """The pages of ``ListObjectsV2``, from several prefixes at once where the keys have folders."""
    folders, contents = folders_of(client, bucket, prefix)
    if contents:
        yield contents
    listers = _Listers(client, bucket, folders)
    count = min(threads, len(folders))
    try:
        for number in range(count):
            threading.Thread(target=listers.run, name=f"list-{number}", daemon=True).start()
        while count:
            page = listers.pages.get()
            if isinstance(page, Exception):
                raise page
            if page is None:
                count -= 1
            else:
                yield page
    finally:
        listers.stop.set()


class _Listers:
    """What the listing threads share: folders to list, and a few pages ahead of their reader."""

    def __init__(self, client: Any, bucket: str, folders: Sequence[str]) -> None:
        self.client, self.bucket = client, bucket
        self.folders = deque(folders)
        self.pages: Queue[list[dict[str, Any]] | Exception | None] = Queue(maxsize=8)
        self.stop = threading.Event()

    def run(self) -> None:
        """List folders until there is none left, and say so; or say what went wrong."""
        try:
            while not self.stop.is_set():
                try:
                    folder = self.folders.popleft()
                except IndexError:
                    break
                self._list(folder)
        except Exception as error:  # noqa: BLE001 -- it is raised again where the pages are read
            self._put(error)
        else:
            self._put(None)

    def _list(self, folder: str) -> None:
        pages = self.client.get_paginator("list_objects_v2").paginate(
            Bucket=self.bucket, Prefix=folder, OptionalObjectAttributes=["RestoreStatus"]
        )
        for page in pages:
            if self.stop.is_set():
                return
            if page.get("Contents"):
                self._put(page["Contents"])

    def _put(self, page: list[dict[str, Any]] | Exception | None) -> None:
        while not self.stop.is_set():
            try:
                self.pages.put(page, timeout=0.5)
            except Full:
                continue
            return


def folders_of(client: Any, bucket: str, prefix: str) -> tuple[list[str], list[dict[str, Any]]]:
    """The folders below a prefix that can be listed side by side, and the objects beside them.

    One level down, and further while there is but one folder. Where one page does not hold them all,
    the prefix is listed as a whole: a million folders with a document each would be a million calls.
    """
    while True:
        page = client.list_objects_v2(
            Bucket=bucket, Prefix=prefix, Delimiter="/", OptionalObjectAttributes=["RestoreStatus"]
        )
        folders = [found["Prefix"] for found in page.get("CommonPrefixes", [])]
        contents = page.get("Contents", [])
        if page.get("IsTruncated") or not folders:
            return ([prefix], []) if page.get("IsTruncated") else ([], contents)
        if len(folders) > 1 or contents:
            return folders, contents
        prefix = folders[0]
