"""What a person may type into a search: words, "phrases", -without and prefix*.

All words must be on one page. Nothing here knows an engine, and no engine's own syntax ever reaches it.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from enum import StrEnum

MAX_QUERY_CHARS = 500
MAX_CLAUSES = 30
MIN_PREFIX_CHARS = 2
WORD = re.compile(r"[^\W_]+")
"""A run of letters and digits."""
_MARKS = re.compile("[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]+")
_QUOTES = '"“”„«»'
_ACCEPTED = 'words, "a phrase", -without, prefix*'


class QueryError(ValueError):
    """A query that cannot be understood; the message says why and what is accepted."""


class Kind(StrEnum):
    """How a clause is meant."""

    WORD = "word"
    PHRASE = "phrase"
    PREFIX = "prefix"


@dataclass(frozen=True, slots=True)
class Clause:
    """One thing that a page must hold, or must not.

    Attributes:
        kind: How it is meant.
        words: Its words, folded; more than one are one phrase.
    """

    kind: Kind
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A query that was understood.

    Attributes:
        wanted: What a page must hold, all of it.
        unwanted: What it must not hold.
    """

    wanted: tuple[Clause, ...]
    unwanted: tuple[Clause, ...]


def fold(text: str) -> str:
    """A text as it is compared: lower case, without accents."""
    if text.isascii():
        return text.lower()
    return _MARKS.sub("", unicodedata.normalize("NFKD", text.casefold()))


def words_of(text: str) -> tuple[str, ...]:
    """The folded words of a text, for the index and for queries alike."""
    return tuple(WORD.findall(fold(text)))


def parse(text: str) -> SearchQuery:
    """Understand a query.

    Raises:
        QueryError: If it is none.
    """
    if len(text) > MAX_QUERY_CHARS:
        raise QueryError(f"the query has {len(text)} characters; at most {MAX_QUERY_CHARS} are accepted")
    wanted: list[Clause] = []
    unwanted: list[Clause] = []
    for raw, is_quoted, is_negative in _split(text):
        clause = _clause(raw, is_quoted)
        if clause is not None:
            (unwanted if is_negative else wanted).append(clause)
    if not wanted:
        reason = "it only says what not to find" if unwanted else "there is no word in it"
        raise QueryError(f"{reason}; accepted: {_ACCEPTED}")
    if len(wanted) + len(unwanted) > MAX_CLAUSES:
        raise QueryError(f"the query has more than {MAX_CLAUSES} parts")
    return SearchQuery(tuple(dict.fromkeys(wanted)), tuple(dict.fromkeys(unwanted)))


def _split(text: str) -> list[tuple[str, bool, bool]]:
    """The parts of a query: what stands there, whether in quotes, whether after a minus."""
    for quote in _QUOTES:
        text = text.replace(quote, '"')
    parts: list[tuple[str, bool, bool]] = []
    position = 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        is_negative = text[position] == "-"
        position += is_negative
        if text[position : position + 1] == '"':
            end = text.find('"', position + 1)
            if end < 0:
                raise QueryError(f'a phrase is not closed: put a " after it; accepted: {_ACCEPTED}')
            parts.append((text[position + 1 : end], True, is_negative))
            position = end + 1
            continue
        end = position
        while end < len(text) and not text[end].isspace() and text[end] != '"':
            end += 1
        parts.append((text[position:end], False, is_negative))
        position = end
    return parts


def _clause(raw: str, is_quoted: bool) -> Clause | None:
    """What one part means; None if there is no word in it."""
    words = words_of(raw)
    if not words:
        return None
    if raw.endswith("*") and not is_quoted:
        if len(words) > 1:
            raise QueryError(f"{raw[:50]!r}: only a single word may end with *")
        if len(words[0]) < MIN_PREFIX_CHARS:
            raise QueryError(f"{raw[:50]!r} is too short: at least {MIN_PREFIX_CHARS} letters before the *")
        return Clause(Kind.PREFIX, words)
    return Clause(Kind.PHRASE if len(words) > 1 else Kind.WORD, words)
