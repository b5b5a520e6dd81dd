"""The reference tables of docs/, written from the code: `python -m pdf_ops.contract.reference --write`.

Without `--write` it only checks, and exits with 1 when a page is out of date. Not for prose: only
what stands between a page's markers is replaced.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pdf_ops.contract.documents import DocumentRow, DocumentStatus
from pdf_ops.contract.errors import ErrorKind, ErrorPolicy, Scope
from pdf_ops.contract.pages import Method, MethodReason, PageRow, PageStatus
from pdf_ops.contract.schema import columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pdf_ops.contract.schema import ExplainedEnum, Row


class MarkerError(ValueError):
    """A page lacks a marker, or has one that nothing is known for."""


def render_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def render_columns(cls: type[Row]) -> str:
    """Write the table of a row class's columns."""
    return render_table(
        ("Group", "Column", "Type", "Null", "Meaning"),
        (
            (
                column.group.value,
                f"`{column.name}`",
                f"`{column.arrow_type}`",
                "yes" if column.nullable else "",
                column.doc,
            )
            for column in columns(cls)
        ),
    )


def render_values(enum: type[ExplainedEnum]) -> str:
    """Write the table of an enum's values."""
    return render_table(("Value", "Meaning"), ((f"`{member.value}`", member.meaning) for member in enum))


def render_errors() -> str:
    """Write the table of every error kind."""
    return render_table(
        ("Error", "Phase", "Scope", "Again?", "Counts as", "What happened", "What to do"),
        (
            (
                f"`{kind.label}`",
                kind.phase.value,
                kind.scope.value,
                _describe_retry(kind.policy),
                kind.counted_as.value,
                kind.meaning,
                kind.what_to_do,
            )
            for kind in ErrorKind
        ),
    )


def _describe_retry(policy: ErrorPolicy) -> str:
    if policy.scope is Scope.FLEET:
        return "no, stops the fleet"
    if not policy.retryable:
        return "no"
    return "yes" if policy.counts_as_attempt else "yes, not counted"


PAGES: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "page-schema.md": {
        "page-columns": lambda: render_columns(PageRow),
        "method": lambda: render_values(Method),
        "method-reason": lambda: render_values(MethodReason),
        "page-status": lambda: render_values(PageStatus),
        "document-columns": lambda: render_columns(DocumentRow),
        "document-status": lambda: render_values(DocumentStatus),
    },
    "errors.md": {"errors": render_errors},
}
"""What stands between which markers of which page."""


def fill(page: str, tables: Mapping[str, Callable[[], str]]) -> str:
    """Replace what stands between a page's markers.

    Raises:
        MarkerError: If the page's markers are not exactly those of the tables.
    """
    pattern = re.compile(r"(<!-- begin ([a-z-]+) -->\n).*?(<!-- end \2 -->)", re.DOTALL)
    found = [match[2] for match in pattern.finditer(page)]
    if sorted(found) != sorted(tables):
        raise MarkerError(f"the page has the markers {sorted(found)}; expected: {sorted(tables)}")
    return pattern.sub(lambda match: f"{match[1]}{tables[match[2]]()}\n{match[3]}", page)


def main(arguments: Sequence[str] | None = None) -> int:
    """Check or write the reference tables; 1 when a page was only checked and is out of date."""
    parser = argparse.ArgumentParser(prog="python -m pdf_ops.contract.reference", description=__doc__)
    parser.add_argument("--write", action="store_true", help="update the pages")
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="the folder that holds them")
    options = parser.parse_args(arguments)
    stale = []
    for name, tables in PAGES.items():
        path: Path = options.docs / name
        page = path.read_text(encoding="utf-8")
        filled = fill(page, tables)
        if filled == page:
            continue
        if options.write:
            path.write_text(filled, encoding="utf-8")
        else:
            stale.append(str(path))
    if stale:
        sys.stderr.write(f"out of date: {', '.join(stale)}; run `{parser.prog} --write`\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
