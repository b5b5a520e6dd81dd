"""A DynamoDB of one table whose index is a real one: a B-tree of SQLite.

The local AWS sorts a whole partition for each query, so deep pages of a listing would measure it and not us.
Here a query costs what it seeks and reads, as in DynamoDB. It knows the calls of a listing, and no others.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_CONDITION = "#shard = :shard AND #key BETWEEN :low AND :high"
_SCHEMA = """
CREATE TABLE state (s3_key TEXT PRIMARY KEY, listing_shard TEXT, listing_key TEXT, item TEXT);
CREATE INDEX listing ON state (listing_shard, listing_key);
"""


@dataclass
class Stub:
    """Where it is, and what it was asked since ``reset``."""

    file: Path
    endpoint: str = ""
    queries: int = 0
    entries: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _local: threading.local = field(default_factory=threading.local)

    def reset(self) -> None:
        """Count from nothing."""
        self.queries = self.entries = 0

    def write(self, items: Iterable[dict[str, Any]]) -> None:
        """Store items of the state table."""
        with sqlite3.connect(self.file) as database:
            database.executemany("INSERT INTO state VALUES (?, ?, ?, ?)", (_row(item) for item in items))

    def answer(self, operation: str, call: dict[str, Any]) -> dict[str, Any]:
        """Do one call."""
        match operation:
            case "Query":
                return self._query(call)
            case "BatchGetItem":
                [(table, wanted)] = call["RequestItems"].items()
                keys = [key["s3_key"]["S"] for key in wanted["Keys"]]
                marks = ", ".join("?" * len(keys))
                found = self._database.execute(f"SELECT item FROM state WHERE s3_key IN ({marks})", keys)
                return {"Responses": {table: [json.loads(item) for (item,) in found]}, "UnprocessedKeys": {}}
        raise NotImplementedError(operation)

    def _query(self, call: dict[str, Any]) -> dict[str, Any]:
        if call["KeyConditionExpression"] != _CONDITION or call["IndexName"] != "listing":
            raise NotImplementedError(call)
        values = {name: value["S"] for name, value in call["ExpressionAttributeValues"].items()}
        is_ascending, limit = call["ScanIndexForward"], call["Limit"]
        low, high = values[":low"], values[":high"]
        start = call.get("ExclusiveStartKey", {}).get("listing_key", {}).get("S")
        if start is not None:
            low, high = (start, high) if is_ascending else (low, start)
        found = self._database.execute(
            "SELECT item, listing_key FROM state WHERE listing_shard = ? AND listing_key BETWEEN ? AND ? "
            f"AND listing_key IS NOT ? ORDER BY listing_key {'ASC' if is_ascending else 'DESC'} LIMIT ?",
            (values[":shard"], low, high, start, limit),
        ).fetchall()
        with self._lock:
            self.queries += 1
            self.entries += len(found)
        answer: dict[str, Any] = {
            "Items": [json.loads(item) for item, _ in found],
            "Count": len(found),
            "ScannedCount": len(found),
        }
        if len(found) == limit:
            last = answer["Items"][-1]
            answer["LastEvaluatedKey"] = {
                name: last[name] for name in ("s3_key", "listing_shard", "listing_key")
            }
        return answer

    @property
    def _database(self) -> sqlite3.Connection:
        """A connection of this thread."""
        if not hasattr(self._local, "database"):
            self._local.database = sqlite3.connect(self.file)
        database: sqlite3.Connection = self._local.database
        return database


def _row(item: dict[str, Any]) -> tuple[str, ...]:
    names = ("s3_key", "listing_shard", "listing_key")
    return (*(str(item[name]["S"]) for name in names), json.dumps(item))


@contextmanager
def stub_dynamodb(file: Path) -> Iterator[Stub]:
    """Serve it from a thread to the end of the block."""
    stub = Stub(file)
    with sqlite3.connect(file) as database:
        database.executescript(_SCHEMA)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1

        def do_POST(self) -> None:
            operation = self.headers["X-Amz-Target"].rpartition(".")[2]
            call = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps(stub.answer(operation, call)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-amz-json-1.0")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    stub.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
