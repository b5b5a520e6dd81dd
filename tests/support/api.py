"""The REST API as a process of its own, on a world of the local AWS, and a client for it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Self

import httpx
import psutil

from pdf_ops.api.access import Scope, new_key

if TYPE_CHECKING:
    from tests.support.world import World

START_TIMEOUT_S = 60.0
KEY, ENTRY = new_key("tester", frozenset(Scope))
READ_KEY, READ_ENTRY = new_key("reader", frozenset({Scope.READ}))


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def pipeline_settings(world: World) -> dict[str, str]:
    """The pipeline's settings for a world, as environment variables."""
    given = {
        "INPUT_S3_BUCKET": world.input,
        "OUTPUT_S3_BUCKET": world.output,
        "OUTPUT_S3_PREFIX": "pages",
        "MANIFEST_S3_KEY": "manifests",
        "SQS_QUEUE_URL": world.queue,
        "DLQ_SQS_QUEUE_URL": world.dlq,
        "DYNAMO_TABLE_NAME": world.state_table,
        "DYNAMO_RUNS_TABLE_NAME": world.runs_table,
        "ECS_CLUSTER": "pdf-ops",
        "ECS_TASK_DEFINITION": "pdf-ops-worker",
        "ECS_SUBNETS": "subnet-1",
    }
    return {f"AIRFLOW__PDF_OPS__{name}": value for name, value in given.items()}


class Api:
    """``pdf-ops api`` from ``with`` to the end of the block.

    :param aws: The local AWS.
    :param world: Its tables, queues and buckets.
    :param folder: For its log.
    :param python: The interpreter that runs it.
    :param settings: Settings without their prefix, such as ``RATE_CAPACITY``.
    """

    def __init__(
        self,
        aws: Any,
        world: World,
        folder: Path,
        *,
        python: Path = Path(sys.executable),
        **settings: object,
    ) -> None:
        self._python = python
        self.world = world
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / f"api-{self.port}.log"
        given: dict[str, object] = {
            "API_KEYS": f"{ENTRY},{READ_ENTRY}",
            "RATE_CAPACITY": 100_000,
            "RATE_REFILL_PER_MINUTE": 100_000,
        }
        self._environment = {
            **os.environ,
            **aws.environment(),
            **pipeline_settings(world),
            **{f"PDF_OPS_{name}": str(value) for name, value in (given | settings).items()},
        }
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [self._python, "-m", "pdf_ops.cli", "api", "--port", str(self.port)],
                env=self._environment,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            assert self._process.poll() is None, self.log.read_text()
            try:
                httpx.get(f"{self.url}/health", trust_env=False).raise_for_status()
            except httpx.HTTPError:
                time.sleep(0.1)
            else:
                return self
        raise AssertionError(f"the API did not start: {self.log.read_text()}")

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def client(self, key: str | None = KEY) -> httpx.Client:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60, trust_env=False)

    def process(self) -> psutil.Process:
        assert self._process is not None
        return psutil.Process(self._process.pid)

    def requests(self) -> list[dict[str, Any]]:
        """The lines of the request log."""
        lines = [line for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [json.loads(line) for line in lines]


def upload(client: httpx.Client, name: str, body: bytes, **headers: str) -> httpx.Response:
    return client.post("/v1/documents/upload-document", files={"file": (name, body)}, headers=headers)


class AirflowDouble:
    """Airflow's API as far as the doorbell uses it, checked: what it was asked to start."""

    def __init__(self, *, status: int = 200) -> None:
        self.status = status
        self.runs: list[dict[str, Any]] = []
        self.logins = 0
        self.is_token_expired = False
        double = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self._send(*double._answer(self.path, body, self.headers.get("Authorization")))

            def do_GET(self) -> None:
                self._send(*double._show(self.path, self.headers.get("Authorization")))

            def _send(self, status: int, answer: Any) -> None:
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def _answer(self, path: str, body: dict[str, Any], authorization: str | None) -> tuple[int, Any]:
        if path == "/auth/token":
            self.logins += 1
            self.is_token_expired = False
            is_known = body == {"username": "robot", "password": "secret"}
            return (201, {"access_token": "token"}) if is_known else (401, {"detail": "no"})
        if authorization != "Bearer token" or self.is_token_expired:
            return 401, {"detail": "no"}
        if any(run["dag_run_id"] == body["dag_run_id"] for run in self.runs):
            return 409, {"detail": "exists"}
        if self.status == 200:
            self.runs.append({"path": path, **body})
        return self.status, {}

    @staticmethod
    def _show(path: str, authorization: str | None) -> tuple[int, Any]:
        if authorization != "Bearer token":
            return 401, {"detail": "no"}
        is_known = path in ("/api/v2/dags/pdf_ocr", "/api/v2/dags/pdf_redrive")
        return (200, {"is_paused": False}) if is_known else (404, {"detail": "no such DAG"})

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def settings(self) -> dict[str, str]:
        return {"AIRFLOW_URL": self.url, "AIRFLOW_USERNAME": "robot", "AIRFLOW_PASSWORD": "secret"}


class Redis:
    """A real Redis server, from ``with`` to the end of the block."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def is_there() -> bool:
        return shutil.which("redis-server") is not None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        command = ["redis-server", "--port", str(self.port), "--save", "", "--dir", str(self._folder)]
        self._process = subprocess.Popen([*command, "--bind", "127.0.0.1"], stdout=subprocess.DEVNULL)
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        raise AssertionError("Redis did not start")

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(10)
            self._process = None
