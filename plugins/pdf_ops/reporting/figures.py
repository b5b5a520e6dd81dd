"""Figures as people read them: counts, money, times. Everything that shows a run writes them so."""

from __future__ import annotations

NONE = "\N{EN DASH}"


def as_count(value: object) -> str:
    """A number with separators."""
    return f"{value:,}" if isinstance(value, int | float) else NONE


def as_money(value: float) -> str:
    """US dollars; small sums with four digits."""
    if 0 < value < 0.0001:
        return "< $0.0001"
    if value and value < 0.01:
        return f"${value:.4f}"
    return f"${value:,.2f}"


def as_price(value: float) -> str:
    """US dollars with all digits that count."""
    return f"${value:.6g}"


def as_duration(value: float) -> str:
    """Milliseconds, in the unit that fits."""
    if value >= 60_000:
        return f"{value / 60_000:,.1f} min"
    if value >= 1_000:
        return f"{value / 1_000:,.1f} s"
    return f"{value:.3g} ms"
