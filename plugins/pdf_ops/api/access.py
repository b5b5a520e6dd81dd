"""Who asks, and what they may: API keys for an API that runs by itself.

Keys are kept hashed. They are long and random, so a plain SHA-256 is enough: there is nothing to guess.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from pdf_ops.api.problems import ProblemError

KEY_BYTES = 32
KEY_PREFIX = "pdfops_"
KEY_COOKIE = "pdf_ops_key"
"""Holds the key of somebody who has logged in to the pages; no script can read it."""
_SECRET_TTL_S = 300.0
_ENTRY = re.compile(r"(?P<name>[A-Za-z0-9._-]{1,64}):(?P<scopes>[a-z+]+):(?P<digest>[0-9a-f]{64})", re.ASCII)
_CHALLENGE = {"WWW-Authenticate": "Bearer"}


class Scope(StrEnum):
    """What a key allows."""

    READ = "read"
    UPLOAD = "upload"
    REDRIVE = "redrive"


class ApiKeyError(ValueError):
    """An entry that is no API key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """Whoever asks.

    Attributes:
        id: Their name; the rate limit and the log go by it.
        headers: What starts a DAG run in their name, where that is Airflow's to decide.
    """

    id: str
    headers: tuple[tuple[str, str], ...] = ()


class Access(Protocol):
    """Decides who may.

    Attributes:
        takes_keys: Whether people log in to the pages with an API key.
    """

    takes_keys: bool

    async def authenticate(self, request: Request, scope: Scope) -> Client:
        """Say who asks, if they may.

        Raises:
            ProblemError: 401 or 403.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """One key, hashed."""

    name: str
    scopes: frozenset[Scope]
    digest: str

    @classmethod
    def parse(cls, entry: str) -> ApiKey:
        """Read ``name:scope+scope:sha256``.

        Raises:
            ApiKeyError: If it is not that; the entry itself is not repeated.
        """
        found = _ENTRY.fullmatch(entry.strip())
        try:
            if found is None:
                raise ValueError("not name:scopes:sha256")
            scopes = frozenset(Scope(one) for one in found["scopes"].split("+"))
        except ValueError as error:
            raise ApiKeyError(
                f"an API key's entry cannot be used ({error}); accepted: NAME:SCOPES:SHA256 as "
                f"`pdf-ops api-key` prints it, with scopes of {', '.join(Scope)}"
            ) from None
        return cls(name=found["name"], scopes=scopes, digest=found["digest"])

    def __str__(self) -> str:
        """The entry for the settings."""
        return f"{self.name}:{'+'.join(sorted(self.scopes))}:{self.digest}"


def hash_key(key: str) -> str:
    """What is kept of a key."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def new_key(name: str, scopes: frozenset[Scope]) -> tuple[str, ApiKey]:
    """A fresh key: what its owner gets, and what the settings get."""
    key = KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)
    return key, ApiKey.parse(str(ApiKey(name=name, scopes=scopes, digest=hash_key(key))))


def parse_keys(text: str) -> dict[str, ApiKey]:
    """All keys of a text, by digest; lines that begin with # are comments.

    Raises:
        ApiKeyError: If an entry is none.
    """
    lines = [line.strip() for line in text.replace(",", "\n").splitlines()]
    keys = [ApiKey.parse(line) for line in lines if line and not line.startswith("#")]
    return {key.digest: key for key in keys}


class KeyAccess:
    """API keys from the settings, or from a source that may change.

    :param read_text: Gives the entries.
    :param ttl_s: How long they are believed.
    """

    takes_keys = True

    def __init__(self, read_text: Callable[[], str], *, ttl_s: float = _SECRET_TTL_S) -> None:
        self._read_text = read_text
        self._ttl_s = ttl_s
        self._keys: dict[str, ApiKey] = {}
        self._read_at = float("-inf")

    def load(self) -> int:
        """Read the keys; gives their number.

        Raises:
            ApiKeyError: If an entry is none.
        """
        self._keys = parse_keys(self._read_text())
        self._read_at = time.monotonic()
        return len(self._keys)

    async def authenticate(self, request: Request, scope: Scope) -> Client:
        """See ``Access``."""
        if time.monotonic() - self._read_at > self._ttl_s:
            await run_in_threadpool(self.load)
        kind, _, key = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer":
            key = request.cookies.get(KEY_COOKIE, "")
        if not key:
            raise ProblemError(401, "Send an API key: Authorization: Bearer KEY.", headers=_CHALLENGE)
        # Looked up by its hash: how long that takes says nothing about a key.
        found = self._keys.get(hash_key(key.strip()))
        if found is None:
            raise ProblemError(401, "This API key is not known here.", headers=_CHALLENGE)
        if scope not in found.scopes:
            raise ProblemError(403, f"The key {found.name} does not have the scope {scope}.")
        return Client(id=f"key:{found.name}")


class OpenAccess:
    """Everybody may everything: for one's own machine only."""

    takes_keys = False

    async def authenticate(self, request: Request, scope: Scope) -> Client:
        """See ``Access``."""
        return Client(id=f"address:{request.client.host if request.client else 'unknown'}")
