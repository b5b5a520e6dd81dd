from __future__ import annotations

from ocr_worker.engines import told_by


def parse_a_number() -> None:
    int("what the document says")


def test_an_engines_error_is_told_by_its_kind_and_place_and_quotes_nothing() -> None:
    try:
        parse_a_number()
    except ValueError as error:
        assert told_by("pypdf", error) == "pypdf: ValueError in parse_a_number"
    assert told_by("pypdf", KeyError("what the document says")) == "pypdf: KeyError"
