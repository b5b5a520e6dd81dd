from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pdf_ops.contract import reference
from pdf_ops.contract.documents import DocumentRow
from pdf_ops.contract.errors import ErrorKind
from pdf_ops.contract.pages import MethodReason, PageRow
from pdf_ops.contract.schema import columns

DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.fixture
def docs(tmp_path):
    for name in reference.PAGES:
        shutil.copy(DOCS / name, tmp_path / name)
    return tmp_path


def test_the_reference_pages_are_up_to_date():
    """If this fails: `python -m pdf_ops.contract.reference --write`."""
    assert reference.main(["--docs", str(DOCS)]) == 0


def test_every_column_reason_and_error_has_its_line():
    schema = (DOCS / "page-schema.md").read_text(encoding="utf-8")
    for column in (*columns(PageRow), *columns(DocumentRow)):
        assert f"| `{column.name}` | `{column.arrow_type}` |" in schema
    for reason in MethodReason:
        assert f"| `{reason}` | {reason.meaning} |" in schema
    errors = (DOCS / "errors.md").read_text(encoding="utf-8")
    for kind in ErrorKind:
        (line,) = [line for line in errors.splitlines() if line.startswith(f"| `{kind.label}` |")]
        assert kind.what_to_do in line


def test_an_edited_table_is_noticed_and_written_again(docs, capsys):
    page = docs / "errors.md"
    before = page.read_text(encoding="utf-8")
    page.write_text(before.replace("| `LOST/spot` |", "| `LOST/sport` |"), encoding="utf-8")
    assert reference.main(["--docs", str(docs)]) == 1
    assert "errors.md; run `python -m pdf_ops.contract.reference --write`" in capsys.readouterr().err
    assert reference.main(["--docs", str(docs), "--write"]) == 0
    assert page.read_text(encoding="utf-8") == before


def test_prose_around_the_tables_is_left_alone(docs):
    page = docs / "page-schema.md"
    page.write_text("# My own words\n" + page.read_text(encoding="utf-8") + "The end.\n", encoding="utf-8")
    expected = page.read_text(encoding="utf-8")
    assert reference.main(["--docs", str(docs), "--write"]) == 0
    assert page.read_text(encoding="utf-8") == expected


def test_a_page_without_its_markers_is_refused(docs):
    page = docs / "errors.md"
    page.write_text(page.read_text(encoding="utf-8").replace("<!-- end errors -->", ""), encoding="utf-8")
    with pytest.raises(reference.MarkerError, match=r"expected: \['errors'\]"):
        reference.main(["--docs", str(docs), "--write"])


def test_a_pipe_in_a_cell_does_not_break_the_table():
    assert reference.render_table(("a",), [("x|y",)]) == "| a |\n| --- |\n| x\\|y |"
