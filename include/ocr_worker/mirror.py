"""``ocr-worker mirror``: messages in, files down, nothing read.

For a person who wants the documents that a queue names on a disk. A message is deleted when its
files are there.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from typing import TYPE_CHECKING
from urllib.parse import quote

from ocr_worker.aws import aws_errors, open_clients
from ocr_worker.events import Events
from ocr_worker.fetch import fetch_object, identify_object
from ocr_worker.queueing import Queue
from ocr_worker.service import make_worker_id
from pdf_ops.contract.errors import ErrorKind, PdfOpsError
from pdf_ops.contract.messages import MessageError, parse_message

if TYPE_CHECKING:
    from pathlib import Path

    from ocr_worker.aws import Clients
    from ocr_worker.queueing import Message
    from ocr_worker.settings import MirrorSettings
    from pdf_ops.contract.layout import S3Uri

AT_ONCE = 10


def local_path(folder: Path, uri: S3Uri) -> Path:
    """Where an object's file goes: its bucket and key as folders, whatever the key holds.

    A part of a key that a file system cannot hold, or that would lead out of the folder, is escaped, so
    that no two keys have one file.
    """
    return folder.joinpath(uri.bucket, *map(_file_name, uri.key.split("/")))


def _file_name(part: str) -> str:
    if not part:
        return "%2F"
    if set(part) <= {"."}:
        return part.replace(".", "%2E")
    part = part.replace("%", "%25")
    return part if part.isprintable() else quote(part, safe=" !#$%&'()+,;=@[]{}^`~")


async def mirror(settings: MirrorSettings, folder: Path, *, is_forever: bool) -> int:
    """Fetch what the queue names until it is empty; returns how many documents could not be fetched."""
    events = Events(make_worker_id())
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    failed = 0
    async with open_clients(settings.region) as clients:
        queue = Queue(
            clients.sqs, url=settings.queue_url, dlq_url=settings.dlq_url, visibility_s=settings.visibility_s
        )
        last_seen = time.monotonic()
        while not stopping.is_set():
            messages = await queue.receive(AT_ONCE, wait_s=min(20, max(1, round(settings.idle_s))))
            if messages:
                last_seen = time.monotonic()
            elif not is_forever and time.monotonic() - last_seen >= settings.idle_s:
                break
            results = await asyncio.gather(
                *(
                    _fetch(
                        message,
                        settings=settings,
                        clients=clients,
                        queue=queue,
                        folder=folder,
                        events=events,
                    )
                    for message in messages
                )
            )
            failed += results.count(False)
    return failed


async def _fetch(
    message: Message,
    *,
    settings: MirrorSettings,
    clients: Clients,
    queue: Queue,
    folder: Path,
    events: Events,
) -> bool:
    try:
        for document in parse_message(message.body):
            uri = document.source_uri(settings.input_bucket)
            identity = await identify_object(clients.s3, uri, document.version_id)
            target = local_path(folder, uri)
            await asyncio.to_thread(target.parent.mkdir, parents=True, exist_ok=True)
            partial = target.with_name(f".{message.message_id}.partial")
            try:
                await fetch_object(clients.s3, identity, partial)
                partial.replace(target)
            finally:
                partial.unlink(missing_ok=True)
            events.emit("document.mirrored", s3_key=uri.key, path=str(target), size_bytes=identity.size)
    except MessageError as error:
        events.emit("message.invalid", level="error", error=str(error))
        await queue.bury(message.body, error, None, None)
        await queue.delete([message])
        return False
    except OSError as error:
        failure = PdfOpsError(ErrorKind.TARGET_DISK, f"{folder}: {error.strerror}")
        events.emit("document.failed", level="error", error=str(failure))
        return False
    except PdfOpsError as error:
        events.emit("document.failed", level="warning", error=str(error))
        with contextlib.suppress(*aws_errors()):
            if not error.kind.retryable:
                await queue.bury(message.body, error, None, None)
                await queue.delete([message])
        return False
    await queue.delete([message])
    return True
