"""The objects of a run in S3: listed, read many at a time in order, written, copied and removed.

Every call goes through the Amazon provider's hook. Not for knowing where an object lives: that is
``pdf_ops.contract.layout``.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from pdf_ops.contract.layout import S3Uri, bare_etag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future
    from datetime import datetime
    from pathlib import Path

    from botocore.exceptions import ClientError

T = TypeVar("T")

PARALLEL_READS = 8
MAX_BYTES_IN_FLIGHT = 24 * 1024 * 1024
# An object that is larger is not held in memory but streamed to disk.
MAX_BYTES_IN_MEMORY = 8 * 1024 * 1024
_CHUNK_BYTES = 1024 * 1024
# boto3's own defaults, 10 parts of 8 MB at once, would take a fifth of a small worker's memory.
_TRANSFER = {"max_concurrency": 2, "multipart_chunksize": 8 * 1024 * 1024}


@dataclass(frozen=True, slots=True)
class FoundObject:
    """An object of a listing."""

    uri: S3Uri
    size_bytes: int
    etag: str = ""
    modified_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """An object to read, and about how many bytes it will take."""

    uri: S3Uri
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ReadObject:
    """What was read: the bytes, or the file that they were written to; neither if it is not there."""

    uri: S3Uri
    data: bytes | None = None
    path: Path | None = None

    @property
    def is_missing(self) -> bool:
        """Whether there is no such object."""
        return self.data is None and self.path is None


class ObjectStore:
    """S3 as the operators after the fleet need it.

    :param aws_conn_id: The Airflow connection used for AWS credentials.
    :param region_name: The AWS region, if not the connection's.
    :param client: A client that is there already, instead of the connection.
    """

    def __init__(
        self,
        *,
        aws_conn_id: str | None = "aws_default",
        region_name: str | None = None,
        client: Any = None,
    ) -> None:
        self.aws_conn_id = aws_conn_id
        self.region_name = region_name
        self._given_client = client

    @cached_property
    def hook(self) -> Any:
        """The provider's hook, with enough connections for parallel reads."""
        from airflow.providers.amazon.aws.hooks.s3 import S3Hook
        from botocore.config import Config

        return S3Hook(
            aws_conn_id=self.aws_conn_id,
            region_name=self.region_name,
            config=Config(
                max_pool_connections=PARALLEL_READS + 4, retries={"mode": "standard", "max_attempts": 8}
            ),
            transfer_config_args=_TRANSFER,
        )

    @cached_property
    def client(self) -> Any:
        """The client; it may be used from many threads."""
        return self._given_client or self.hook.get_conn()

    def list(self, prefix: S3Uri) -> Iterator[FoundObject]:
        """The objects below a prefix, in the order of their keys."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=prefix.bucket, Prefix=prefix.key)
        for page in pages:
            for item in page.get("Contents", ()):
                yield FoundObject(
                    S3Uri(prefix.bucket, item["Key"]),
                    item["Size"],
                    bare_etag(item.get("ETag", "")),
                    item.get("LastModified"),
                )

    def read(self, uri: S3Uri) -> bytes | None:
        """An object's bytes, or None if there is no such object."""
        answer = self._open(uri)
        return None if answer is None else _drain(answer["Body"])

    def read_tail(self, uri: S3Uri, size_bytes: int) -> bytes:
        """The last bytes of an object, fewer if it is shorter."""
        answer = self.client.get_object(Bucket=uri.bucket, Key=uri.key, Range=f"bytes=-{size_bytes}")
        return _drain(answer["Body"])

    def read_many(
        self,
        wanted: Iterable[Wanted],
        folder: Path,
        *,
        convert: Callable[[ReadObject], T],
        parallel: int = PARALLEL_READS,
    ) -> Iterator[T]:
        """Read objects in parallel and give them in the order they were asked for.

        At most ``parallel`` objects and about ``MAX_BYTES_IN_FLIGHT`` bytes are ahead of the one that
        is given. Large objects go to a file below ``folder``, which the caller removes. ``convert``
        runs in the threads that read, so that parsing overlaps with reading.
        """

        def fetch(uri: S3Uri, path: Path) -> T:
            return convert(self._fetch(uri, path))

        with ThreadPoolExecutor(parallel, thread_name_prefix="s3-read") as pool:
            ahead: deque[tuple[Future[T], int]] = deque()
            bytes_ahead = 0
            try:
                for number, item in enumerate(wanted):
                    size_bytes = min(item.size_bytes, MAX_BYTES_IN_MEMORY)
                    while ahead and (
                        len(ahead) >= parallel or bytes_ahead + size_bytes > MAX_BYTES_IN_FLIGHT
                    ):
                        future, freed = ahead.popleft()
                        yield future.result()
                        bytes_ahead -= freed
                    path = folder / f"object-{number}"
                    ahead.append((pool.submit(fetch, item.uri, path), size_bytes))
                    bytes_ahead += size_bytes
                while ahead:
                    yield ahead.popleft()[0].result()
            finally:
                for future, _ in ahead:
                    future.cancel()

    def put(self, uri: S3Uri, data: bytes, content_type: str) -> None:
        """Write a small object."""
        self.client.put_object(Bucket=uri.bucket, Key=uri.key, Body=data, ContentType=content_type)

    def download(self, uri: S3Uri, path: Path) -> None:
        """Write an object to a file, in parts if it is large."""
        self.client.download_file(uri.bucket, uri.key, str(path), Config=self.hook.transfer_config)

    def upload(self, path: Path, uri: S3Uri) -> None:
        """Write a file, in parts if it is large."""
        self.hook.load_file(filename=path, key=uri.key, bucket_name=uri.bucket, replace=True)

    def copy(self, source: S3Uri, target: S3Uri) -> bool:
        """Copy an object of at most 5 GB within S3, or say that there is none."""
        from botocore.exceptions import ClientError

        try:
            self.client.copy_object(
                Bucket=target.bucket,
                Key=target.key,
                CopySource={"Bucket": source.bucket, "Key": source.key},
            )
        except ClientError as error:
            if _is_missing(error):
                return False
            raise
        return True

    def remove(self, uris: Iterable[S3Uri]) -> None:
        """Remove objects; one that is not there is no error."""
        for uri in uris:
            self.client.delete_object(Bucket=uri.bucket, Key=uri.key)

    def _open(self, uri: S3Uri) -> Any | None:
        from botocore.exceptions import ClientError

        try:
            return self.client.get_object(Bucket=uri.bucket, Key=uri.key)
        except ClientError as error:
            if _is_missing(error):
                return None
            raise

    def _fetch(self, uri: S3Uri, path: Path) -> ReadObject:
        answer = self._open(uri)
        if answer is None:
            return ReadObject(uri)
        body = answer["Body"]
        if answer["ContentLength"] <= MAX_BYTES_IN_MEMORY:
            return ReadObject(uri, data=_drain(body))
        with body, path.open("wb") as file:
            for chunk in body.iter_chunks(_CHUNK_BYTES):
                file.write(chunk)
        return ReadObject(uri, path=path)


def _is_missing(error: ClientError) -> bool:
    return error.response.get("Error", {}).get("Code") in ("NoSuchKey", "404")


def _drain(body: Any) -> bytes:
    with body:
        data: bytes = body.read()
    return data
