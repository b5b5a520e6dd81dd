"""Around every request: an id, one JSON line in the log, and the headers of its rate limit.

Plain ASGI, so that neither uploads nor downloads are held back.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
import uuid
from collections.abc import MutableMapping
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pdf_ops.api.problems import answer

LOGGER = "pdf_ops.api.requests"
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
# A document in a frame of Airflow's own pages, and nowhere else; nothing is ever sniffed.
_SAFETY = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"frame-ancestors 'self'"),
    (b"referrer-policy", b"no-referrer"),
)


class RequestLog:
    """The middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.log = logging.getLogger(LOGGER)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request through."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()
        state: MutableMapping[str, Any] = scope.setdefault("state", {})
        state["request_id"] = request_id = _request_id(scope)
        status: int | None = None
        sent_bytes = 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status, sent_bytes
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = list(message["headers"])
                headers.append((b"x-request-id", request_id.encode()))
                headers += state.get("rate_headers", ())
                headers += _SAFETY
                message = {**message, "headers": headers}
            elif message["type"] == "http.response.body":
                sent_bytes += len(message.get("body", b""))
            await send(message)

        try:
            await self.app(scope, receive, send_with_headers)
        except Exception:
            # Here, and not raised further: whoever is outside would answer without an id.
            self.log.exception("%s", _line(scope, state, 500, began, sent_bytes, event="request.crashed"))
            if status is not None:
                raise  # Half an answer is out: only hanging up tells the client.
            problem = answer(
                Request(scope), 500, "A mistake of ours. The log has it, under this request's id."
            )
            await problem(scope, receive, send_with_headers)
        else:
            self.log.info("%s", _line(scope, state, status or 500, began, sent_bytes, event="request"))


def _request_id(scope: Scope) -> str:
    """The caller's own id if it is harmless, else a new one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            text = value.decode("latin-1")
            if _ID.fullmatch(text):
                return str(text)
    return uuid.uuid4().hex


def _line(
    scope: Scope, state: MutableMapping[str, Any], status: int, began: float, sent_bytes: int, *, event: str
) -> str:
    route = scope.get("route")
    return json.dumps(
        {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "service": "api",
            "event": event,
            "request_id": state["request_id"],
            "method": scope["method"],
            # The route and not the path: paths hold ids by the million, and queries what people look for.
            "route": getattr(route, "path", None),
            "status": status,
            "client": state.get("client_id"),
            "ms": round((time.perf_counter() - began) * 1000, 2),
            "sent_bytes": sent_bytes,
        }
    )


def log_requests() -> None:
    """Have one bare JSON line a request on the process's output, whatever else is logged and how."""
    logger = logging.getLogger(LOGGER)
    if not logger.handlers:
        handler = logging.StreamHandler(sys.stdout)
        handler.setFormatter(logging.Formatter("%(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
