"""Airflow's REST API, as a program on the same machine uses it. Standard library only."""

from __future__ import annotations

import json
import urllib.request
from dataclasses import dataclass
from functools import cached_property
from typing import Any

TIMEOUT_S = 60.0
# Without the proxies that the environment may name: this machine is never behind one.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class AirflowApi:
    """The API of one Airflow, and who asks.

    Attributes:
        url: Where Airflow is.
        user: Who logs in.
        password: With what.
    """

    url: str
    user: str
    password: str

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Ask for something below ``/api/v2``; returns what it answers.

        Raises:
            urllib.error.HTTPError: If Airflow refuses it.
            OSError: If nobody answers.
        """
        return _send(method, f"{self.url}/api/v2{path}", body, {"Authorization": f"Bearer {self._token}"})

    def health(self) -> Any:
        """How the parts of Airflow are; needs no login."""
        return _send("GET", f"{self.url}/api/v2/monitor/health")

    @cached_property
    def _token(self) -> str:
        login = {"username": self.user, "password": self.password}
        return str(_send("POST", f"{self.url}/auth/token", login)["access_token"])


def _send(method: str, url: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
    request = urllib.request.Request(  # noqa: S310 -- our own http URL
        url,
        method=method,
        data=None if body is None else json.dumps(body).encode("utf-8"),
        headers={"Content-Type": "application/json", **(headers or {})},
    )
    with _DIRECT.open(request, timeout=TIMEOUT_S) as answer:
        return json.loads(answer.read() or b"null")
