"""Where a test can put a fault into a document's way: after each of its steps, and in the worker's clock.

In production nothing is there: faults are objects that the caller of ``serve`` hands over, and the
command line hands over none. No flag, variable or file can. Not for dealing with faults.
"""

from __future__ import annotations

import time
from enum import StrEnum
from typing import Protocol


class Step(StrEnum):
    """The steps of a document's way, in their order."""

    RECEIVE = "receive"
    CLAIM = "claim"
    FETCH = "fetch"
    EXTRACT = "extract"
    WRITE = "write"
    COMMIT = "commit"
    MANIFEST = "manifest"
    ACK = "ack"


class Faults(Protocol):
    """What goes wrong, and when."""

    def now_s(self) -> float:
        """The worker's clock, in seconds since the epoch."""

    async def at(self, step: Step, about: str) -> None:
        """A step is done, and the next has not begun.

        ``about`` is the document's key; the message's body after RECEIVE; empty after MANIFEST and ACK,
        which are done for many documents at once.
        """


class NoFaults:
    """Nothing goes wrong."""

    def now_s(self) -> float:
        """The machine's clock."""
        return time.time()

    async def at(self, step: Step, about: str) -> None:
        """Go on."""


NO_FAULTS = NoFaults()
