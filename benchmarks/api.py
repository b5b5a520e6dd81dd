"""The REST API on this machine: status reads from the cache, beside a bare FastAPI route; and long listings.

    python -m benchmarks.api [--seconds 10] [--documents 200000]

One server process and one client process. The ratio to the bare route says what keys, limits, cache, ids
and the log cost. DynamoDB's own price of a page is what it reads; the emulator sorts anew each time.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from local_aws import LocalAws
from pdf_ops.api.ids import encode
from pdf_ops.contract.attributes import item_of
from pdf_ops.contract.state import StateStatus, listing_shard, new_listing_key

if TYPE_CHECKING:
    from tests.support.world import World

CONNECTIONS = 16
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


def _fill(world: World, documents: int) -> None:
    began = datetime(2026, 1, 1, tzinfo=UTC)
    batch: list[dict[str, Any]] = []
    for number in range(documents):
        key = f"many/{number:07d}.pdf"
        status = StateStatus.FAILED if number % 100 == 0 else StateStatus.DONE
        item = {
            "s3_key": key,
            "status": status.value,
            "listing_shard": listing_shard(status, key),
            "listing_key": new_listing_key(key, began + timedelta(seconds=number)),
            "content_type": "application/pdf",
        }
        batch.append({"PutRequest": {"Item": item_of(item)}})
        if len(batch) == 25:
            world.dynamodb.batch_write_item(RequestItems={world.state_table: batch})
            batch = []


async def measure_listing(aws: LocalAws, world: World, documents: int) -> None:
    """Pages of ten: what the index is asked for, and how long the emulator takes."""
    from pdf_ops.api.aws import Aws
    from pdf_ops.api.listing import Query, list_documents

    began = time.perf_counter()
    _fill(world, documents)
    _say(f"{documents:,} documents written in {time.perf_counter() - began:.0f} s")
    calls: list[dict[str, Any]] = []

    class Counting(Aws):
        def client(self, service: str) -> Any:
            made = aws.client(service)
            query = made.query

            def counted(**call: Any) -> Any:
                answer = query(**call)
                calls.append({"items": len(answer["Items"]), "scanned": answer["ScannedCount"]})
                return answer

            made.query = counted
            return made

    counting = Counting(aws_conn_id=None, region_name=None)
    made = counting.client("dynamodb")
    counting.client = lambda _: made  # type: ignore[method-assign]
    start = began_at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=documents)
    pages = {
        1: None,
        1_000: new_listing_key(f"many/{documents - 9_990:07d}.pdf", start - timedelta(seconds=9_990)),
        documents // 10: new_listing_key("many/0000010.pdf", began_at - timedelta(seconds=documents - 10)),
    }
    for number, after in pages.items():
        for statuses in ((), (StateStatus.FAILED,)):
            calls.clear()
            clock = time.perf_counter()
            found = await list_documents(
                counting, world.state_table, Query(limit=10, after=after, statuses=statuses)
            )
            spent_ms = (time.perf_counter() - clock) * 1000
            what = "failed only" if statuses else "all"
            _say(
                f"page {number:>7,} {what:12} {len(found.keys):3} documents   {len(calls):3} queries   "
                f"{sum(call['items'] for call in calls):4} entries read   {spent_ms:7.0f} ms on the emulator"
            )


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--documents", type=int, default=200_000, help="in the listing; 0 leaves it out")
    options = parser.parse_args()
    from tests.support.world import World

    with tempfile.TemporaryDirectory(prefix="pdf_ops-bench-") as name:
        folder = Path(name)
        with LocalAws(folder / "aws", port=0, ecs_port=0) as aws, World(aws) as world:
            measure_status(aws, world, folder, options.seconds)
            if options.documents:
                asyncio.run(measure_listing(aws, world, options.documents))


if __name__ == "__main__":
    main()
