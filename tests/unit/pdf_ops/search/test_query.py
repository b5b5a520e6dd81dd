from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdf_ops.search.query import MAX_CLAUSES, Clause, Kind, QueryError, fold, parse, words_of
from pdf_ops.search.snippets import SNIPPET_CHARS, snippet


def word(text):
    return Clause(Kind.WORD, (text,))


@pytest.mark.parametrize(
    ("typed", "wanted", "unwanted"),
    [
        ("Purchase order", (word("purchase"), word("order")), ()),
        ('"purchase  ORDER"', (Clause(Kind.PHRASE, ("purchase", "order")),), ()),
        ("“purchase order”", (Clause(Kind.PHRASE, ("purchase", "order")),), ()),
        ("order -draft", (word("order"),), (word("draft"),)),
        ('order -"first draft"', (word("order"),), (Clause(Kind.PHRASE, ("first", "draft")),)),
        ("invoic*", (Clause(Kind.PREFIX, ("invoic",)),), ()),
        ("e-mail", (Clause(Kind.PHRASE, ("e", "mail")),), ()),
        ("Über naïve", (word("uber"), word("naive")), ()),
        ("order order", (word("order"),), ()),
        ("order - & AND", (word("order"), word("and")), ()),
        ('"invoic*"', (word("invoic"),), ()),
        ("2026-01-31", (Clause(Kind.PHRASE, ("2026", "01", "31")),), ()),
    ],
)
def test_words_phrases_exclusions_and_prefixes_are_understood(typed, wanted, unwanted):
    query = parse(typed)

    assert (query.wanted, query.unwanted) == (wanted, unwanted)


@pytest.mark.parametrize(
    ("typed", "reason"),
    [
        ("", "no word"),
        ("  *** ---", "no word"),
        ("-draft", "only says what not to find"),
        ('"purchase order', "not closed"),
        ("a*", "too short"),
        ("foo-ba*", "only a single word"),
        ("x" * 501, "at most 500"),
        (" ".join(f"w{number}" for number in range(MAX_CLAUSES + 1)), "more than"),
    ],
)
def test_what_cannot_be_understood_is_refused_with_what_is_accepted(typed, reason):
    with pytest.raises(QueryError, match=reason):
        parse(typed)


@given(st.text(max_size=200))
def test_whatever_is_typed_gives_a_query_or_says_why_not(typed):
    try:
        query = parse(typed)
    except QueryError:
        return
    # Nothing of an engine's own syntax is left in it.
    assert all(part.isalnum() for clause in query.wanted + query.unwanted for part in clause.words)


@given(st.text(max_size=300), st.text(min_size=1, max_size=20))
def test_a_snippet_is_a_part_of_the_page_and_never_fails(text, typed):
    try:
        query = parse(typed)
    except QueryError:
        return
    pieces = snippet(text, query)

    assert sum(len(piece.text) for piece in pieces) <= SNIPPET_CHARS
    for piece in pieces:
        if piece.is_hit:
            assert words_of(piece.text)


def test_the_same_letters_match_however_they_are_written():
    assert fold("E\u0301TÉ") == fold("été") == "ete"
    assert words_of("ﬁnance İstanbul STRASSE straße") == ("finance", "istanbul", "strasse", "strasse")


def test_the_snippet_shows_where_most_of_the_words_stand():
    text = "order " + "filler " * 100 + "the purchase order of May " + "filler " * 100

    pieces = snippet(text, parse("purchase order"))

    assert [piece.text for piece in pieces if piece.is_hit] == ["purchase", "order"]
    assert len("".join(piece.text for piece in pieces)) <= SNIPPET_CHARS


def test_letters_with_accents_are_marked_as_one_word():
    pieces = snippet("Un e\u0301te\u0301 chaud", parse("ete"))

    assert [piece.text for piece in pieces if piece.is_hit] == ["été"]
