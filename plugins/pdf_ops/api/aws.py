"""AWS as the API uses it: clients that threads share, and the threads.

The pipeline's own hooks and tables are synchronous; here they run beside the event loop. Not for what
is said to AWS.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import anyio
from anyio import to_thread

from pdf_ops.hooks.clients import aws_client

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 48
TIMEOUT_S = 5.0
"""A person waits: who does not answer by then is asked twice more, and not for minutes."""


class Aws:
    """Clients, made when they are first used: the api-server must start also when AWS is out of reach.

    :param aws_conn_id: The Airflow connection; AWS's own chain of credentials when None.
    :param region_name: The region, if not the connection's own.
    """

    def __init__(self, *, aws_conn_id: str | None, region_name: str | None) -> None:
        self.aws_conn_id = aws_conn_id
        self.region_name = region_name
        self._clients: dict[str, Any] = {}
        self._lock = threading.Lock()

    def client(self, service: str) -> Any:
        """A service's client."""
        with self._lock:
            if service not in self._clients:
                self._clients[service] = aws_client(
                    service,
                    aws_conn_id=self.aws_conn_id,
                    region_name=self.region_name,
                    connections=THREADS,
                    timeout_s=TIMEOUT_S,
                )
            return self._clients[service]

    @functools.cached_property
    def _limiter(self) -> anyio.CapacityLimiter:
        return anyio.CapacityLimiter(THREADS)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run something that waits for AWS in a thread."""
        return await to_thread.run_sync(functools.partial(function, *args, **kwargs), limiter=self._limiter)
