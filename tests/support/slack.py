"""Slack's side of a webhook: a real HTTP endpoint that keeps what is posted to it."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class SlackEndpoint:
    """Takes messages from ``with`` to the end of the block; a channel is the end of a webhook's path."""

    def __init__(self) -> None:
        messages: list[tuple[str, dict[str, Any]]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                messages.append((self.path.rsplit("/", 1)[-1], json.loads(body)))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"ok")

            def log_message(self, *_: object) -> None:
                pass

        self._messages = messages
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def connection(self, channel: str) -> str:
        """An Airflow connection whose messages are kept under a channel's name."""
        host, port = self._server.server_address[:2]
        return json.dumps(
            {
                "conn_type": "slackwebhook",
                "host": f"http://{host}:{port}/services",
                "password": f"T0/B0/{channel}",
            }
        )

    def texts(self, channel: str) -> list[str]:
        """All that a reader of each message of a channel sees."""
        return [
            "\n".join([message["text"], *_texts(message["blocks"])])
            for found, message in self._messages
            if found == channel
        ]


def _texts(blocks: list[dict[str, Any]]) -> list[str]:
    elements = [element for block in blocks for element in block.get("elements", [block.get("text", {})])]
    return [element["text"] for element in elements]
