"""What is known about documents: the state table, through the cache that all routes share.

A state that the API itself changes is put into the cache with the change; what workers change shows
after ``status_cache_s`` at the latest.
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import Any

from pdf_ops.api.aws import Aws
from pdf_ops.api.cache import Cache
from pdf_ops.api.ids import s3_key_of
from pdf_ops.api.problems import ProblemError
from pdf_ops.contract.state import DocumentState, StateStatus
from pdf_ops.hooks.tables import StateTable

_FIELDS = tuple(field.name for field in fields(DocumentState))


class Documents:
    """Documents by their ids.

    :param aws: AWS.
    :param table: The state table.
    :param cache: For states.
    """

    def __init__(self, aws: Aws, table: str, cache: Cache) -> None:
        self._aws, self._table, self._cache = aws, table, cache

    async def get(self, document_id: str) -> DocumentState:
        """What is known about a document.

        Raises:
            ProblemError: 404 if nothing is.
        """
        s3_key = s3_key_of(document_id)

        async def load() -> tuple[str, bytes] | None:
            found = (await self.read([s3_key])).get(s3_key)
            return None if found is None else (found.last_updated or "", _pack(found))

        packed = await self._cache.get(_cache_key(s3_key), load)
        if packed is None:
            raise ProblemError(404, "There is no document with this id.")
        return _unpack(packed)

    async def read(self, s3_keys: list[str]) -> dict[str, DocumentState]:
        """What the table says now about documents."""
        return await self._aws.run(self._read, s3_keys)

    def _read(self, s3_keys: list[str]) -> dict[str, DocumentState]:
        return StateTable(self._table, client=self._aws.client("dynamodb")).get_many(s3_keys, _FIELDS)

    async def remember(self, state: DocumentState) -> None:
        """Put a state that was just written into the cache."""
        await self._cache.store.put(_cache_key(state.s3_key), state.last_updated or "", _pack(state))


def _cache_key(s3_key: str) -> str:
    return f"state:{s3_key}"


def _pack(state: DocumentState) -> bytes:
    return json.dumps({name: value for name, value in asdict(state).items() if value is not None}).encode()


def _unpack(packed: bytes) -> DocumentState:
    values: dict[str, Any] = json.loads(packed)
    return DocumentState(**values | {"status": StateStatus(values["status"])})
