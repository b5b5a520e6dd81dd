from __future__ import annotations

import pytest

from ocr_worker.engines import told_by


def parse_a_number() -> None:
    int("what the document says")


def test_an_engines_error_is_told_by_its_kind_and_place_and_quotes_nothing() -> None:
    with pytest.raises(ValueError, match="document") as raised:
        parse_a_number()

    assert told_by("pypdf", raised.value) == "pypdf: ValueError in parse_a_number"
    assert told_by("pypdf", KeyError("what the document says")) == "pypdf: KeyError"
