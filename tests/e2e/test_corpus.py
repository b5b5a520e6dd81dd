"""Hundreds of real and damaged files, where the corpus lies beside the project."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.worker import REPOSITORY, extract

from pdf_ops.contract.errors import ErrorKind

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.worker import Result

CORPUS = REPOSITORY.parent / "shared" / "corpus"
PAGE_TIMEOUT_S = 10.0

pytestmark = [
    pytest.mark.skipif(
        not CORPUS.is_dir(), reason=f"needs the corpus in {CORPUS}, which is not part of the project"
    ),
    pytest.mark.timeout(600),
]


def check_every_document_is_accounted_for(folder: Path, result: Result) -> None:
    files = sorted(path.name for path in folder.iterdir())
    assert sorted(result.outcomes) == files
    for document in result.documents:
        rows = [row["page"] for row in result.pages if row["source_uri"] == document["source_uri"]]
        assert rows == list(range(1, (document["page_count"] or 0) + 1))
        if document["status"] != "done":
            assert ErrorKind.of(document["error_class"], document["error_code"])


def test_every_broken_file_gets_rows_or_an_error_class_within_the_limits(tmp_path: Path) -> None:
    result = extract(
        CORPUS / "bad", tmp_path / "out", "--page-timeout-s", str(PAGE_TIMEOUT_S), "--ocr", "off"
    )

    assert result.exit_code == 1
    check_every_document_is_accounted_for(CORPUS / "bad", result)
    # A page is tried twice at the most, and opening may take as long as a page.
    slowest = max(document["wall_ms"] for document in result.documents)
    assert slowest < 3 * (PAGE_TIMEOUT_S + 5) * 1000


def test_no_real_document_is_lost(tmp_path: Path) -> None:
    result = extract(CORPUS / "real", tmp_path / "out", "--ocr", "off")

    assert result.exit_code == 0
    check_every_document_is_accounted_for(CORPUS / "real", result)
    assert {row["status"] for row in result.documents} == {"done"}
