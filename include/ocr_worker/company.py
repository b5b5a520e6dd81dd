"""Which documents are read side by side, and which alone.

A document may kill its worker, and those in hand at the time are no less suspect than it: read alone,
each answers for itself. Not for deciding who is suspect.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


PATIENCE_S = 30.0


class Company:
    """Any number in company, or one alone; who wants to be alone is let in first."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        """Start with nobody."""
        self._patience_s = patience_s
        self._inside = 0
        self._is_one_alone = False
        self._waiting_alone = 0
        self._changed = asyncio.Condition()

    @contextlib.asynccontextmanager
    async def join(self, *, is_alone: bool) -> AsyncIterator[None]:
        """Wait until there is room, and be inside until the block ends."""
        async with self._changed:
            is_alone = is_alone and await self._wait_alone()
            if not is_alone:
                await self._changed.wait_for(lambda: not self._is_one_alone and not self._waiting_alone)
            self._inside += 1
            self._is_one_alone = is_alone
        try:
            yield
        finally:
            async with self._changed:
                self._inside -= 1
                self._is_one_alone = False
                self._changed.notify_all()

    async def _wait_alone(self) -> bool:
        """Wait until nobody is inside; False when that takes too long, as the others wait meanwhile."""
        self._waiting_alone += 1
        try:
            async with asyncio.timeout(self._patience_s):
                await self._changed.wait_for(lambda: self._inside == 0)
        except TimeoutError:
            return False
        finally:
            self._waiting_alone -= 1
            self._changed.notify_all()
        return True
