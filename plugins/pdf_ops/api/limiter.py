"""How often a client may ask: a bucket of tokens each, shared by all processes where there is a Redis.

The arithmetic is throttled-py's GCRA, which is a token bucket that refills continuously. A Redis that
is gone costs the sharing, never a request.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from throttled.asyncio import MemoryStore, RedisStore, Throttled, rate_limiter
from throttled.exceptions import StoreUnavailableError

_MAX_CLIENTS = 100_000
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What is left of a client's bucket."""

    is_limited: bool
    capacity: int
    remaining: int
    reset_after_s: int
    retry_after_s: int

    def headers(self) -> list[tuple[bytes, bytes]]:
        """The headers that every answer carries."""
        found = [
            (b"x-ratelimit-limit", b"%d" % self.capacity),
            (b"x-ratelimit-remaining", b"%d" % self.remaining),
            (b"x-ratelimit-reset", b"%d" % self.reset_after_s),
        ]
        if self.is_limited:
            found.append((b"retry-after", b"%d" % self.retry_after_s))
        return found


class RateLimiter:
    """Buckets of tokens, one a client.

    :param capacity: What a full bucket holds.
    :param refill_per_minute: How many tokens come back a minute.
    :param redis_url: Where the buckets are; in this process when empty.
    """

    def __init__(self, *, capacity: int, refill_per_minute: int, redis_url: str = "") -> None:
        self.capacity = capacity
        quota = rate_limiter.per_duration(timedelta(minutes=1), limit=refill_per_minute, burst=capacity)

        def throttle(store: Any) -> Throttled:
            return Throttled(using="gcra", quota=quota, store=store)

        self._local = throttle(MemoryStore(options={"MAX_SIZE": _MAX_CLIENTS}))
        # Impatient: whoever asks waits for it.
        patience = {"SOCKET_TIMEOUT": 1, "SOCKET_CONNECT_TIMEOUT": 1}
        self._shared = throttle(RedisStore(server=redis_url, options=patience)) if redis_url else None

    async def take(self, client_id: str) -> Allowance:
        """Take a token."""
        key = f"pdf_ops:rate:{client_id}"
        result = None
        if self._shared is not None:
            try:
                result = await self._shared.limit(key)
            except StoreUnavailableError as error:
                _log.warning("Redis is out of reach, each process limits for itself: %s", error)
        if result is None:
            result = await self._local.limit(key)
        state = result.state
        return Allowance(
            is_limited=result.limited,
            capacity=self.capacity,
            remaining=max(0, int(state.remaining)),
            reset_after_s=max(0, math.ceil(state.reset_after)),
            retry_after_s=max(1, math.ceil(state.retry_after)),
        )
