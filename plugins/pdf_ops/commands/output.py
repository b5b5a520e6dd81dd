"""How commands show what they found: tables for people, JSON for programs. Not for finding it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

_BAR_CELLS = 30
_MINUTE_S, _HOUR_S = 60, 3_600


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the flag that every command has."""
    parser.add_argument("--json", action="store_true", help="for programs: one JSON value")


def write(text: str = "") -> None:
    """Print a line."""
    sys.stdout.write(f"{text}\n")


def write_json(value: Any) -> None:
    """Print a JSON value."""
    write(json.dumps(value, indent=2, ensure_ascii=False))


def table(header: Sequence[str], rows: Iterable[Sequence[object]], *, right: Iterable[str] = ()) -> str:
    """A table with aligned columns; those named in ``right`` are numbers."""
    texts = [list(header), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[at]) for row in texts) for at in range(len(header))]
    numbers = {at for at, name in enumerate(header) if name in set(right)}
    lines = []
    for row in texts:
        cells = [
            text.rjust(width) if at in numbers else text.ljust(width)
            for at, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def pairs(values: Iterable[tuple[str, object]]) -> str:
    """Names and values, one a line."""
    shown = [(name, _cell(value)) for name, value in values]
    width = max((len(name) for name, _ in shown), default=0)
    return "\n".join(f"{name:<{width}}  {value}".rstrip() for name, value in shown)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    # A key may hold anything, also what moves a terminal's cursor.
    return "".join(one if one.isprintable() else "�" for one in str(value))


def bar(done: int, total: int | None) -> str:
    """A progress bar with its share."""
    share = min(1.0, done / total) if total else 1.0 if total == 0 else 0.0
    full = int(share * _BAR_CELLS)
    return f"[{'#' * full}{'.' * (_BAR_CELLS - full)}] {share:4.0%}"


def duration(seconds: float | None) -> str:
    """A time span, as people say it."""
    if seconds is None:
        return "-"
    whole = round(seconds)
    if whole < _MINUTE_S:
        return f"{whole} s"
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S} min {whole % _MINUTE_S:02d} s"
    return f"{whole // _HOUR_S} h {whole % _HOUR_S // _MINUTE_S:02d} min"


def money(dollars: float | None) -> str:
    """US dollars; small amounts with all that counts."""
    if dollars is None:
        return "-"
    return f"${dollars:,.2f}" if dollars >= 1 or not dollars else f"${dollars:.4f}"


def moment(text: str | None) -> str:
    """A moment to the minute, UTC."""
    return "-" if text is None else text[:16].replace("T", " ")
