"""What to show of a page: the few lines where most of the words stand, and which letters are the words."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from pdf_ops.search.found import Piece
from pdf_ops.search.query import WORD, Kind, fold

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pdf_ops.search.query import SearchQuery

SNIPPET_CHARS = 240
# What is behind it is found, too, but not shown: a page of that length is a table.
_LOOKED_AT_CHARS = 100_000
_BLANKS = re.compile(r"\s+")


def snippet(text: str, query: SearchQuery) -> tuple[Piece, ...]:
    """The part of a page's text with the most different words of a query, in pieces."""
    # Composed, so that an accent is a part of its letter's word.
    text = unicodedata.normalize("NFC", text[:_LOOKED_AT_CHARS])
    spans = _spans(text, query)
    begin, end = _window(text, spans)
    pieces: list[Piece] = []
    position = begin
    for first, last, _ in spans:
        if first < begin or last > end:
            continue
        if first > position:
            pieces.append(_piece(text[position:first], False))
        pieces.append(_piece(text[first:last], True))
        position = last
    if position < end:
        pieces.append(_piece(text[position:end], False))
    return tuple(piece for piece in pieces if piece.text)


def _piece(text: str, is_hit: bool) -> Piece:
    return Piece(text=_BLANKS.sub(" ", text), is_hit=is_hit)


def _spans(text: str, query: SearchQuery) -> list[tuple[int, int, str]]:
    """Where words of the query stand: begin, end, and which word."""
    words = {word for clause in query.wanted if clause.kind is not Kind.PREFIX for word in clause.words}
    prefixes = tuple(clause.words[0] for clause in query.wanted if clause.kind is Kind.PREFIX)
    spans = []
    for match in WORD.finditer(text):
        word = fold(match[0])
        if word in words:
            spans.append((match.start(), match.end(), word))
        elif prefixes and word.startswith(prefixes):
            spans.append((match.start(), match.end(), next(one for one in prefixes if word.startswith(one))))
    return spans


def _window(text: str, spans: Sequence[tuple[int, int, str]]) -> tuple[int, int]:
    """Where the snippet begins and ends: at blanks, around as many different words as possible."""
    best, best_count = 0, 0
    last = 0
    for number, (begin, _, _) in enumerate(spans):
        last = max(last, number)
        while last + 1 < len(spans) and spans[last + 1][1] - begin <= SNIPPET_CHARS * 2 // 3:
            last += 1
        count = len({word for _, _, word in spans[number : last + 1]})
        if count > best_count:
            best, best_count = begin, count
    begin = max(0, best - SNIPPET_CHARS // 4)
    if begin > 0:
        blank = text.find(" ", begin, best)
        begin = blank + 1 if blank >= 0 else begin
    end = min(len(text), begin + SNIPPET_CHARS)
    if end < len(text):
        blank = text.rfind(" ", begin + SNIPPET_CHARS // 2, end)
        end = blank if blank >= 0 else end
    return begin, end
