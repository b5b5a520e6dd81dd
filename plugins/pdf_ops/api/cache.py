"""Answers that are kept for a while, in this process or in a Redis that all processes share.

An entry has a version, and an older one never replaces a newer one: whoever read the table before a
change cannot bring the past back after it. A Redis that is gone is a cache that is always empty.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from cachetools import TTLCache

MAX_ENTRY_BYTES = 2**20
"""What is larger is not kept, neither here nor in Redis."""
_MAX_BYTES = 64 * 2**20
# What an entry takes besides its body.
_ENTRY_BYTES = 500
_log = logging.getLogger(__name__)

# KEYS: the entry. ARGV: version, body, milliseconds. One step, so that two processes cannot interleave.
_PUT_NEWEST = """
local known = redis.call('HGET', KEYS[1], 'version')
if known and known > ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'version', ARGV[1], 'body', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
"""


class Store(Protocol):
    """Where entries are."""

    async def get(self, key: str) -> bytes | None:
        """An entry that is still good."""

    async def put(self, key: str, version: str, body: bytes) -> None:
        """Keep an entry unless there is a newer one."""


class MemoryCache:
    """Entries of this process.

    :param ttl_s: How long an entry is good.
    """

    def __init__(self, ttl_s: float) -> None:
        self._entries: TTLCache[str, tuple[str, bytes]] = TTLCache(
            _MAX_BYTES, ttl_s, getsizeof=lambda entry: _ENTRY_BYTES + len(entry[1])
        )

    async def get(self, key: str) -> bytes | None:
        """See ``Store``."""
        found = self._entries.get(key)
        return found[1] if found else None

    async def put(self, key: str, version: str, body: bytes) -> None:
        """See ``Store``."""
        known = self._entries.get(key)
        if known is None or known[0] <= version:
            self._entries[key] = (version, body)


class RedisCache:
    """Entries that all processes share.

    :param url: The Redis.
    :param ttl_s: How long an entry is good.
    """

    def __init__(self, url: str, ttl_s: float) -> None:
        from redis.asyncio import Redis

        self._redis: Any = Redis.from_url(url, socket_timeout=1.0, socket_connect_timeout=1.0)
        self._put_newest = self._redis.register_script(_PUT_NEWEST)
        self._ttl_ms = max(1, round(ttl_s * 1000))

    async def get(self, key: str) -> bytes | None:
        """See ``Store``."""
        from redis.exceptions import RedisError

        try:
            body: bytes | None = await self._redis.hget(f"pdf_ops:{key}", "body")
        except (RedisError, OSError) as error:
            _log.warning("Redis is out of reach, nothing is cached: %s", error)
            return None
        return body

    async def put(self, key: str, version: str, body: bytes) -> None:
        """See ``Store``."""
        from redis.exceptions import RedisError

        try:
            await self._put_newest(keys=[f"pdf_ops:{key}"], args=[version, body, self._ttl_ms])
        except (RedisError, OSError) as error:
            _log.warning("Redis is out of reach, nothing is cached: %s", error)

    async def is_up(self) -> bool:
        """Whether it answers."""
        from redis.exceptions import RedisError

        try:
            return bool(await self._redis.ping())
        except (RedisError, OSError):
            return False


class Cache:
    """Reads through: what is not kept is loaded, once for all who ask for it meanwhile.

    :param store: Where entries are.
    :param ttl_s: How long an entry is good.
    """

    def __init__(self, store: Store, ttl_s: float) -> None:
        self.store = store
        self._ttl_s = ttl_s
        self._loading: dict[str, asyncio.Future[bytes | None]] = {}

    async def get(self, key: str, load: Callable[[], Awaitable[tuple[str, bytes] | None]]) -> bytes | None:
        """An entry, or what ``load`` gives: its version and body, or None for what is not there."""
        found = await self.store.get(key)
        if found is not None:
            return found
        loading = self._loading.get(key)
        if loading is None:
            loading = asyncio.ensure_future(self._load(key, load))
            self._loading[key] = loading
            loading.add_done_callback(lambda _: self._loading.pop(key, None))
        # Shielded: a client that goes away must not take the others' answer with it.
        return await asyncio.shield(loading)

    async def _load(self, key: str, load: Callable[[], Awaitable[tuple[str, bytes] | None]]) -> bytes | None:
        began = time.monotonic()
        loaded = await load()
        if loaded is None:
            return None
        version, body = loaded
        # A read that took longer than entries live may be older than one that has come and gone.
        is_fresh = time.monotonic() - began < self._ttl_s
        if is_fresh and len(body) <= MAX_ENTRY_BYTES:
            await self.store.put(key, version, body)
        return body
