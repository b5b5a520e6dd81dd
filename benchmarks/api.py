"""The REST API on this machine: status reads from the cache, beside a bare FastAPI route; and long listings.

    python -m benchmarks.api [--seconds 10] [--documents 200000] [--parts status,upload,listing]

One server process and one client process. The ratio to the bare route says what keys, limits, cache, ids
and the log cost. Uploads go to an S3 that keeps nothing, and listings to a DynamoDB with an index of SQLite:
the local AWS holds objects in memory, and sorts a partition anew for each query.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.stub_dynamodb import stub_dynamodb
from local_aws import LocalAws
from pdf_ops.api.document_routes import Sort
from pdf_ops.api.ids import Cursor, encode
from pdf_ops.contract.attributes import item_of
from pdf_ops.contract.state import StateStatus, listing_shard, new_listing_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.world import World

CONNECTIONS = 16
UPLOAD_BYTES = 2 * 2**30
LISTING_ROUNDS = 31
PARTS = ("status", "upload", "listing")
BARE = """
import sys, uvicorn
from fastapi import FastAPI
app = FastAPI()
@app.get("/v1/jobs/{job_id}")
async def job(job_id: str):
    return {"job_id": job_id, "status": "completed", "filename": "a.pdf", "pages_done": 3, "pages_total": 3,
            "error": None, "run_id": None, "created_at": None, "updated_at": None}
@app.get("/health")
async def health():
    return {}
uvicorn.run(app, port=int(sys.argv[1]), access_log=False, log_level="warning")
"""


async def _ask(port: int, path: str, key: str, seconds: float) -> tuple[int, list[float]]:
    """Read a status over and over on keep-alive connections; plain sockets, as an HTTP client costs more."""
    request = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
    end = time.perf_counter() + seconds
    took: list[float] = []

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (began := time.perf_counter()) < end:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(head.decode())
            lines = head.lower().split(b"\r\n")
            [length] = [int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:")]
            await reader.readexactly(length)
            took.append((time.perf_counter() - began) * 1000)
        writer.close()

    await asyncio.gather(*(one() for _ in range(CONNECTIONS)))
    return len(took), took


def _measure(name: str, port: int, path: str, key: str, seconds: float) -> float:
    asyncio.run(_ask(port, path, key, 1.0))
    count, took = asyncio.run(_ask(port, path, key, seconds))
    quantiles = statistics.quantiles(took, n=100)
    rate = count / seconds
    _say(f"{name:34} {rate:8,.0f} reads/s   p50 {quantiles[49]:6.1f} ms   p99 {quantiles[98]:6.1f} ms")
    return rate


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _wait(port: int) -> None:
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise RuntimeError("the server did not start")


def measure_status(aws: LocalAws, world: World, folder: Path, seconds: float) -> None:
    """Status reads, in rounds that take turns, so that a noisy machine is noisy for all."""
    from tests.support.api import KEY, Api, Redis, free_port

    world.dynamodb.put_item(
        TableName=world.state_table,
        Item=item_of({"s3_key": "a.pdf", "status": "done", "last_updated": "2026-01-01T00:00:00.000+00:00"}),
    )
    path = f"/v1/jobs/{encode('a.pdf')}"
    bare_port = free_port()
    bare = subprocess.Popen([sys.executable, "-c", BARE, str(bare_port)])
    limits = {"RATE_CAPACITY": 1_000_000, "RATE_REFILL_PER_MINUTE": 1_000_000}
    try:
        _wait(bare_port)
        rates: dict[str, list[float]] = {}
        with (
            Redis(folder) as redis,
            Api(aws, world, folder, **limits) as own,
            Api(aws, world, folder, **limits, REDIS_URL=redis.url) as shared,
        ):
            for _ in range(2):
                for name, port in (
                    ("bare FastAPI route", bare_port),
                    ("status, cache in the process", own.port),
                    ("status, cache and limits in Redis", shared.port),
                ):
                    rates.setdefault(name, []).append(_measure(name, port, path, KEY, seconds))
        floor = max(rates["bare FastAPI route"])
        for name, found in rates.items():
            _say(f"{name:34} {max(found) / floor:5.2f} of the bare route")
    finally:
        bare.terminate()
        bare.wait()


class _Elsewhere:
    """The local AWS, with other endpoints for some of its services."""

    def __init__(self, aws: LocalAws, **endpoints: str) -> None:
        self._aws, self._endpoints = aws, endpoints

    def environment(self) -> dict[str, str]:
        own = {f"AWS_ENDPOINT_URL_{service}": url for service, url in self._endpoints.items()}
        return self._aws.environment() | own


def measure_upload(aws: LocalAws, world: World, folder: Path) -> None:
    """One upload of two gigabytes, into an S3 that keeps nothing: how much the process grows meanwhile."""
    from tests.support.api import Api

    from benchmarks.pipeline import stub_aws

    block = random.randbytes(2**20)
    with (
        stub_aws(0) as s3,
        Api(_Elsewhere(aws, S3=s3), world, folder) as api,
        api.client() as client,
    ):
        for size in (32 * 2**20, UPLOAD_BYTES):  # The first one warms up.
            before = peak = api.process().memory_info().rss
            began = time.perf_counter()

            def stream(size: int = size) -> Iterator[bytes]:
                nonlocal peak
                yield b"--x\r\nContent-Disposition: form-data; name=file; filename=a.pdf\r\n\r\n"
                yield b"%PDF-1.7\n" + random.randbytes(16)
                for _ in range(size // len(block) - 1):
                    yield block
                    peak = max(peak, api.process().memory_info().rss)
                yield block[:-25] + b"\r\n--x--\r\n"

            answer = client.post(
                "/v1/documents/upload-document",
                content=stream(),
                headers={"Content-Type": "multipart/form-data; boundary=x"},
                timeout=600,
            )
            took = time.perf_counter() - began
            peak = max(peak, api.process().memory_info().rss)
            if answer.status_code != 202 or answer.json()["size_bytes"] != size:
                raise RuntimeError(answer.text)
    _say(
        f"an upload of {UPLOAD_BYTES:,} bytes: {took:.0f} s, {UPLOAD_BYTES / took / 1e6:.0f} MB/s; "
        f"the process grew by {(peak - before) / 2**20:.0f} MB to {peak / 2**20:.0f} MB"
    )


def _many(documents: int) -> Iterator[dict[str, Any]]:
    for number in range(documents):
        key = _key(number)
        status = StateStatus.FAILED if number % 100 == 0 else StateStatus.DONE
        yield item_of(
            {
                "s3_key": key,
                "status": status.value,
                "listing_shard": listing_shard(status, key),
                "listing_key": _listing_key(number),
                "content_type": "application/pdf",
            }
        )


def _key(number: int) -> str:
    return f"many/{number:07d}.pdf"


def _listing_key(number: int) -> str:
    return new_listing_key(_key(number), datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number))


def measure_listing(aws: LocalAws, world: World, folder: Path, documents: int) -> None:
    """Pages of ten at the beginning, at page 1,000 and at the end, in turns; the index is a B-tree."""
    from tests.support.api import Api

    with (
        stub_dynamodb(folder / "state.sqlite") as table,
        Api(_Elsewhere(aws, DYNAMODB=table.endpoint), world, folder) as api,
        api.client() as client,
    ):
        table.write(_many(documents))
        for what, step, more in (("all", 1, {}), ("failed only", 100, {"status": "failed"})):
            last = documents // step // 10 - 1
            pages = sorted({1, min(1_000, last), last})
            took: dict[int, list[float]] = {}
            asked: dict[int, tuple[int, int]] = {}
            for turn in range(LISTING_ROUNDS):
                for page in pages:
                    # The newest come first.
                    first = (documents - 1) // step - 10 * (page - 1)
                    after = _listing_key((first + 1) * step)
                    cursor = {"cursor": str(Cursor(after, Sort.NEWEST.value))} if page > 1 else {}
                    table.reset()
                    began = time.perf_counter()
                    answer = client.get("/v1/documents/list-document", params=cursor | more)
                    took.setdefault(page, []).append((time.perf_counter() - began) * 1000)
                    found = [document["s3_key"] for document in answer.raise_for_status().json()["documents"]]
                    if found != [_key((first - place) * step) for place in range(10)]:
                        raise RuntimeError(f"page {page}: {found}")
                    asked[page] = (table.queries, table.entries)
                if turn == 0:
                    took.clear()  # It warms up.
            for page, times in took.items():
                _say(
                    f"page {page:>7,} of {documents:,}, {what:12} {asked[page][0]:3} queries "
                    f"{asked[page][1]:4} entries   median {statistics.median(times):6.1f} ms   "
                    f"{statistics.median(times) / statistics.median(took[1]):5.2f} of page 1"
                )


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--documents", type=int, default=200_000, help="in the listing")
    parser.add_argument("--parts", default=",".join(PARTS), help="what to measure")
    options = parser.parse_args()
    from tests.support.world import World

    with tempfile.TemporaryDirectory(prefix="pdf_ops-bench-") as name:
        folder = Path(name)
        with LocalAws(folder / "aws", port=0, ecs_port=0) as aws, World(aws) as world:
            for part in options.parts.split(","):
                match part:
                    case "status":
                        measure_status(aws, world, folder, options.seconds)
                    case "upload":
                        measure_upload(aws, world, folder)
                    case "listing":
                        measure_listing(aws, world, folder, options.documents)
                    case _:
                        parser.error(f"--parts: {part} is none of {', '.join(PARTS)}")


if __name__ == "__main__":
    main()
