"""From S3 to a local file: whole, of one version, and hashed on the way.

Large objects come in parallel ranges. An object that changes while it is read is an error, never a
mixture of two. Not for deciding what to fetch.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ocr_worker.aws import aws_errors, source_error
from pdf_ops.contract.errors import ErrorKind, PdfOpsError
from pdf_ops.contract.layout import bare_etag

if TYPE_CHECKING:
    from pathlib import Path

    from pdf_ops.contract.layout import S3Uri

CHUNK_BYTES = 1 << 20
RANGE_BYTES = 16 << 20
PARALLEL_RANGES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectIdentity:
    """Which bytes are meant: one version of one object."""

    uri: S3Uri
    etag: str
    size: int
    version_id: str | None = None

    @property
    def request(self) -> dict[str, str]:
        """The arguments that ask S3 for exactly this."""
        wanted = {"Bucket": self.uri.bucket, "Key": self.uri.key, "IfMatch": f'"{self.etag}"'}
        return wanted | ({"VersionId": self.version_id} if self.version_id is not None else {})


async def identify_object(s3: Any, uri: S3Uri, version_id: str | None = None) -> ObjectIdentity:
    """Ask S3 what an object is now.

    Raises:
        PdfOpsError: SOURCE/….
    """
    wanted = {"Bucket": uri.bucket, "Key": uri.key}
    wanted |= {"VersionId": version_id} if version_id is not None else {}
    try:
        head = await s3.head_object(**wanted)
    except aws_errors() as error:
        raise source_error(error) from error
    return ObjectIdentity(
        uri=uri, etag=bare_etag(head["ETag"]), size=int(head["ContentLength"]), version_id=version_id
    )


async def fetch_object(s3: Any, identity: ObjectIdentity, path: Path) -> str:
    """Download an object; returns the SHA-256 of its bytes.

    Raises:
        PdfOpsError: SOURCE/… (SOURCE/changed_during_read if it is not what was meant), TARGET/disk.
    """
    try:
        if identity.size > RANGE_BYTES:
            await _fetch_ranges(s3, identity, path)
            return await asyncio.to_thread(_sha256, path)
        return await _fetch_whole(s3, identity, path)
    except PdfOpsError:
        raise
    except aws_errors() as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise PdfOpsError(ErrorKind.TARGET_DISK, f"{path.parent}: {error.strerror}") from error
        raise source_error(error) from error


async def _fetch_whole(s3: Any, identity: ObjectIdentity, path: Path) -> str:
    digest = hashlib.sha256()
    answer = await s3.get_object(**identity.request)
    received = 0
    # Not `as body`: in aiobotocore 3.4 that is the raw response, whose read takes no size.
    body = answer["Body"]
    async with body:
        with path.open("wb") as file:
            while chunk := await body.read(CHUNK_BYTES):
                digest.update(chunk)
                _write(file.fileno(), chunk, received, path)
                received += len(chunk)
    _check_length(received, int(answer["ContentLength"]))
    return digest.hexdigest()


async def _fetch_ranges(s3: Any, identity: ObjectIdentity, path: Path) -> None:
    """In parallel, each range into its place."""
    slots = asyncio.Semaphore(PARALLEL_RANGES)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)

    async def fetch(first: int) -> None:
        last = min(first + RANGE_BYTES, identity.size) - 1
        async with slots:
            answer = await s3.get_object(**identity.request, Range=f"bytes={first}-{last}")
            place = first
            body = answer["Body"]
            async with body:
                while chunk := await body.read(CHUNK_BYTES):
                    _write(descriptor, chunk, place, path)
                    place += len(chunk)
            _check_length(place, last + 1)

    try:
        async with asyncio.TaskGroup() as group:
            for first in range(0, identity.size, RANGE_BYTES):
                group.create_task(fetch(first))
    except* PdfOpsError as errors:
        raise errors.exceptions[0] from None
    except* aws_errors() as errors:
        raise source_error(errors.exceptions[0]) from None
    finally:
        os.close(descriptor)


def _write(descriptor: int, chunk: bytes, place: int, path: Path) -> None:
    """Write all of it: a disk that is almost full takes a part and says nothing."""
    left = memoryview(chunk)
    try:
        while left:
            written = os.pwrite(descriptor, left, place)
            left, place = left[written:], place + written
    except OSError as error:
        raise PdfOpsError(ErrorKind.TARGET_DISK, f"{path.parent}: {error.strerror}") from error


def _check_length(received: int, wanted: int) -> None:
    if received != wanted:
        raise PdfOpsError(ErrorKind.SOURCE_UNAVAILABLE, f"{received} of {wanted} bytes came")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
