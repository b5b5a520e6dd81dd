"""What a search gives, whichever index answers, and how one is asked. Not for how it is found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pdf_ops.search.query import SearchQuery

MAX_OFFSET = 9_900
"""So far a cursor goes: OpenSearch gives the first 10,000 hits only, and nobody reads more."""


class NoIndexError(Exception):
    """There is no index that could answer; the message says what to do."""


class NeverBuiltError(NoIndexError):
    """There is none yet: nothing has gone wrong."""


class NotReadyError(NoIndexError):
    """There is one, and it is on its way here."""


class IndexKind(StrEnum):
    """Which index answers."""

    EMBEDDED = "embedded"
    OPENSEARCH = "opensearch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a snippet."""

    text: str
    is_hit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A page.

    Attributes:
        source_uri: Where its document is.
        page: Its number, from 1.
        page_count: How many pages the document has.
        score: How well it fits; only good for comparing hits of one search.
        snippet: What stands around the words that were found.
    """

    source_uri: str
    page: int
    page_count: int
    score: float
    snippet: tuple[Piece, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexInfo:
    """What answered."""

    kind: IndexKind
    built_at: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A page of hits.

    Attributes:
        hits: The best first.
        total: How many there are in all, if that is known.
        has_more: Whether there are hits after these.
        index: What answered.
    """

    hits: tuple[Hit, ...]
    total: int | None
    has_more: bool
    index: IndexInfo


class SearchIndex(Protocol):
    """An index that answers. It may be asked from several threads at once."""

    def search(self, query: SearchQuery, *, limit: int, offset: int = 0) -> Found:
        """Find pages.

        Raises:
            NoIndexError: If there is none, or it does not answer; the message says what to do.
        """
