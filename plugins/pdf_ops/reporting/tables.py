"""Tables and their cells as HTML. Whatever came from a bucket or a document is escaped here."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING

from pdf_ops.reporting.figures import as_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def make_table(
    caption: str, header: Sequence[str], rows: Iterable[Sequence[str]], *, last_is_total: bool = False
) -> str:
    """A table; a header that starts with # is a number's, and | is a column of bars."""
    head = "".join(
        '<th scope="col" class="n">' + escape(name[1:]) + "</th>"
        if name.startswith("#")
        else '<td class="bar"></td>'
        if name == "|"
        else f'<th scope="col">{escape(name)}</th>'
        if name
        else "<td></td>"
        for name in header
    )
    body = []
    rows = list(rows)
    for number, row in enumerate(rows):
        is_total = last_is_total and number == len(rows) - 1
        cells = [f'<th scope="row">{row[0]}</th>']
        cells += [cell if cell.startswith("<td") else f"<td>{cell}</td>" for cell in row[1:]]
        body.append(f"<tr{' class=total' if is_total else ''}>{''.join(cells)}</tr>")
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return (
        f'<div class="scroll"><table>{title}<thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def number_cell(value: object) -> str:
    """A cell whose digits line up with those above and below."""
    return f'<td class="n">{as_count(value) if isinstance(value, int) else escape(str(value))}</td>'


def sample_keys(keys: Sequence[str]) -> str:
    """Some keys, folded."""
    if not keys:
        return ""
    items = "".join(f'<li class="key">{escape(key)}</li>' for key in keys)
    name = "one key" if len(keys) == 1 else f"{len(keys)} keys"
    return f"<details><summary>Show {name}</summary><ul>{items}</ul></details>"


def error_label(error: str) -> str:
    """An error's class and code."""
    return f'<code class="label">{escape(error)}</code>'


def prose(text: str) -> str:
    """A sentence whose commands and settings stand between backticks."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text))
