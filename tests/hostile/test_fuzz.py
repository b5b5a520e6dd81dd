"""The fuzzer itself: it finds what is there, says it again for the same seed, and finds nothing of ours."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import pytest
from tests.hostile.fuzz import (
    JSON_WORDS,
    MESSAGES,
    YAML_WORDS,
    Session,
    answer_seeds,
    document_seeds,
    load_settings,
    parse_a_message,
    read_a_batch,
    settings_seeds,
    take_an_answer,
)
from tests.hostile.mutation import mutated
from tests.support.worker import REPOSITORY

if TYPE_CHECKING:
    from pathlib import Path

SHORT_S = 1.0


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(tmp_path / "findings", random.Random(3))


def test_the_same_seed_tries_the_same_things() -> None:
    one, other = (
        [mutated(MESSAGES[0], MESSAGES, JSON_WORDS, chance) for _ in range(50)]
        for chance in (random.Random(5), random.Random(5))
    )

    assert one == other
    assert len(set(one)) > 40


def test_a_planted_fault_is_found_and_kept(session: Session) -> None:
    def fail_on_a_word(body: bytes) -> None:
        assert b"null" not in body

    session.try_bytes("planted", fail_on_a_word, MESSAGES, JSON_WORDS, time.monotonic() + SHORT_S)

    assert session.findings
    assert all(b"null" in path.read_bytes() for path in session.folder.iterdir())


def test_mutated_messages_settings_and_answers_raise_only_the_errors_that_are_theirs(
    session: Session,
) -> None:
    session.try_bytes("messages", parse_a_message, MESSAGES, JSON_WORDS, time.monotonic() + SHORT_S)
    session.try_bytes("settings", load_settings, settings_seeds(), YAML_WORDS, time.monotonic() + SHORT_S)
    session.try_bytes("answers", take_an_answer, answer_seeds(), JSON_WORDS, time.monotonic() + SHORT_S)

    assert session.findings == []
    assert min(session.tries.values()) > 20


def test_mutated_documents_are_all_accounted_for(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))

    read_a_batch(session, document_seeds(tmp_path / "no-corpus", tmp_path), tmp_path)

    assert session.findings == []
    assert session.ends.total() == session.tries["extract"] > 0
