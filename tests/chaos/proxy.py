"""A proxy on loopback between programs and the local AWS, that answers as AWS does on a bad day.

Runs in a thread of its own. What goes wrong is decided call by call by a function that it is given.
"""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

from aiohttp import ClientSession, ClientTimeout, TCPConnector, web
from yarl import URL

if TYPE_CHECKING:
    from collections.abc import Callable

HOST = "127.0.0.1"
HANG_S = 2.0
_HOP_HEADERS = {"host", "connection", "transfer-encoding", "content-length", "expect", "keep-alive"}


class Trouble(StrEnum):
    """What happens to a call."""

    THROTTLED = "throttled"
    ERROR_500 = "500"
    ERROR_503 = "503"
    DENIED = "denied"
    CONFLICT = "conflict"
    RESET = "reset"
    HANGS = "hangs"
    ANSWER_LOST = "answer_lost"
    ANSWER_CUT = "answer_cut"
    CALLER_KILLED = "caller_killed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call to AWS.

    Attributes:
        service: ``s3``, ``sqs``, ``dynamodb`` or another.
        operation: AWS's name of it; for S3 the method and the path.
        caller: Who says in its user agent that it is.
    """

    service: str
    operation: str
    caller: str


class Proxy:
    """Listens from ``with`` to the end of the block."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self.decide: Callable[[Call], Trouble | None] = lambda _: None
        self.on_kill: Callable[[str], None] = lambda _: None
        self.most_receives = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chaos-proxy", daemon=True)
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(20)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(20)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _start(self) -> None:
        self._session = ClientSession(
            connector=TCPConnector(limit=0), timeout=ClientTimeout(total=60), auto_decompress=False
        )
        app = web.Application(client_max_size=2**30)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, HOST, 0)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = f"http://{HOST}:{port}"

    async def _stop(self) -> None:
        await self._runner.cleanup()
        await self._session.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        call = _call_of(request)
        trouble = self.decide(call)
        match trouble:
            case (
                Trouble.THROTTLED | Trouble.ERROR_500 | Trouble.ERROR_503 | Trouble.DENIED | Trouble.CONFLICT
            ):
                return _refusal(call, trouble)
            case Trouble.RESET | Trouble.HANGS:
                if trouble is Trouble.HANGS:
                    await asyncio.sleep(HANG_S)
                return _hang_up(request)
        return await self._forward(request, body, call, trouble)

    async def _forward(
        self, request: web.Request, body: bytes, call: Call, trouble: Trouble | None
    ) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP_HEADERS}
        url = URL(self._upstream + request.raw_path, encoded=True)
        async with self._session.request(
            request.method, url, headers=headers, data=body, allow_redirects=False
        ) as answer:
            content = await answer.read()
            if call.operation == "ReceiveMessage" and answer.status == 200:
                self.most_receives = max(self.most_receives, *_receive_counts(content), 0)
            if trouble is Trouble.CALLER_KILLED:
                self.on_kill(call.caller)
            if trouble in (Trouble.ANSWER_LOST, Trouble.CALLER_KILLED):
                return _hang_up(request)
            response = web.StreamResponse(status=answer.status, reason=answer.reason)
            for name, value in answer.headers.items():
                if name.lower() not in _HOP_HEADERS:
                    response.headers.add(name, value)
            length = answer.headers.get("Content-Length", "0") if request.method == "HEAD" else len(content)
            response.content_length = int(length)
            await response.prepare(request)
            if request.method == "HEAD":
                return response
            if trouble is Trouble.ANSWER_CUT:
                await response.write(content[: len(content) // 2])
                return _hang_up(request)
            if content:
                await response.write(content)
            await response.write_eof()
            return response


def _call_of(request: web.Request) -> Call:
    target = request.headers.get("X-Amz-Target", "")
    service = {"DynamoDB": "dynamodb", "AmazonSQ": "sqs"}.get(target[:8], "other" if target else "s3")
    operation = target.rpartition(".")[2] if target else f"{request.method} {request.path}"
    agent = request.headers.get("User-Agent", "")
    caller = next((part[4:] for part in agent.split() if part.startswith("app/")), "")
    return Call(service=service, operation=operation, caller=caller)


def _receive_counts(content: bytes) -> list[int]:
    """How often each message of an answer has come so far, for a caller who has asked for it."""
    messages = json.loads(content).get("Messages") or []
    return [int(message.get("Attributes", {}).get("ApproximateReceiveCount", 0)) for message in messages]


def _hang_up(request: web.Request) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


def _refusal(call: Call, trouble: Trouble) -> web.Response:
    status, code = {
        Trouble.ERROR_500: (500, "InternalError" if call.service == "s3" else "InternalServerError"),
        Trouble.ERROR_503: (503, "ServiceUnavailable"),
        Trouble.DENIED: (403, "AccessDenied" if call.service == "s3" else "AccessDeniedException"),
        Trouble.CONFLICT: (400, "TransactionConflictException"),
        Trouble.THROTTLED: (503, "SlowDown") if call.service == "s3" else (400, "ThrottlingException"),
    }[trouble]
    if call.service == "s3":
        text = f"<Error><Code>{code}</Code><Message>chaos</Message><RequestId>0</RequestId></Error>"
        return web.Response(status=status, text=text, content_type="application/xml")
    answer: dict[str, Any] = {"__type": f"com.amazonaws#{code}", "message": "chaos"}
    if trouble is Trouble.CONFLICT and call.operation == "TransactWriteItems":
        reasons = [{"Code": "None"}, {"Code": "None"}, {"Code": "TransactionConflict", "Message": "chaos"}]
        answer |= {"__type": "com.amazonaws#TransactionCanceledException", "CancellationReasons": reasons}
    return web.Response(status=status, text=json.dumps(answer), content_type="application/x-amz-json-1.0")
