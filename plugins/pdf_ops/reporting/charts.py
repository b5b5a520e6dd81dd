"""Small charts as SVG, drawn without any script: nothing in them needs a style attribute.

Colours come from classes that ``style.css`` has. Not for what is drawn: sections choose that.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MAX_POINTS = 120
_CHART_WIDTH, _CHART_HEIGHT = 560, 180
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 10, 10, 24


def draw_stacked(parts: Sequence[tuple[str, int, str]]) -> str:
    """One bar of named parts: name, count, tone."""
    total = sum(count for _, count, _ in parts)
    label = ", ".join(f"{count} {name}" for name, count, _ in parts)
    drawn = ['<rect class="fill-track" width="1000" height="22" rx="6"/>']
    begin = 0.0
    for name, count, tone in parts:
        if count:
            # So that one failure among a million can still be seen.
            width = max(3.0, 1000 * count / total)
            drawn.append(
                f'<rect class="fill-{tone}" x="{min(begin, 997):.1f}" width="{width:.1f}" height="22">'
                f"<title>{count} {name}</title></rect>"
            )
            begin += width
    return (
        f'<svg class="stacked" role="img" aria-label="{label}" viewBox="0 0 1000 22" '
        f'preserveAspectRatio="none">{"".join(drawn)}</svg>'
    )


def draw_bar(value: float, most: float, tone: str) -> str:
    """A short bar below a label."""
    width = max(1.0, 160 * value / most) if most else 0
    return (
        f'<svg aria-hidden="true" class="short" viewBox="0 0 160 6">'
        f'<rect class="fill-track" width="160" height="6" rx="3"/>'
        f'<rect class="fill-{tone}" width="{width:.1f}" height="6" rx="3"/></svg>'
    )


def draw_pair(p50: float, p95: float, most: float) -> str:
    """A median within its 95th percentile."""
    high, low = (300 * value / most if most else 0 for value in (p95, p50))
    return (
        f'<svg aria-hidden="true" class="pair" viewBox="0 0 300 14" preserveAspectRatio="none">'
        f'<rect class="fill-accent-2" width="{max(high, 1):.1f}" height="14" rx="3"/>'
        f'<rect class="fill-accent" width="{max(low, 1):.1f}" height="14" rx="3"/></svg>'
    )


def draw_curve(points: Sequence[Mapping[str, Any]], name: str) -> str:
    """Counts over time; minutes are taken together where there are many."""
    begin = datetime.fromisoformat(points[0]["minute"])
    counts = {
        int((datetime.fromisoformat(point["minute"]) - begin).total_seconds() // 60): point[name]
        for point in points
    }
    minutes = max(counts) + 1
    step = -(-minutes // _MAX_POINTS)
    values = [
        sum(counts.get(minute, 0) for minute in range(first, min(first + step, minutes)))
        / min(step, minutes - first)
        for first in range(0, minutes, step)
    ]
    top = _nice(max(values))
    width, height = _CHART_WIDTH - _LEFT - _RIGHT, _CHART_HEIGHT - _TOP - _BOTTOM
    floor = _TOP + height

    def y(value: float) -> float:
        return floor - height * value / top

    grid = "".join(
        f'<line class="grid" x1="{_LEFT}" x2="{_CHART_WIDTH - _RIGHT}" '
        f'y1="{y(value):.1f}" y2="{y(value):.1f}"/>'
        f'<text x="{_LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{_short(value)}</text>'
        for value in (0, top / 2, top)
    )
    last = datetime.fromisoformat(points[-1]["minute"])
    days = "%d %b %H:%M" if begin.date() != last.date() else "%H:%M"
    middle = _LEFT + width / 2
    if len(values) > 1:
        axis = f'<text x="{_LEFT}" y="{_CHART_HEIGHT - 6}">{begin.strftime(days)} UTC</text>'
        axis += (
            f'<text x="{_CHART_WIDTH - _RIGHT}" y="{_CHART_HEIGHT - 6}" text-anchor="end">'
            f"{last.strftime(days)} UTC</text>"
        )
        step_x = width / (len(values) - 1)
        line = " ".join(f"{_LEFT + i * step_x:.1f},{y(value):.1f}" for i, value in enumerate(values))
        shape = (
            f'<polygon class="area" points="{_LEFT},{floor} {line} {_LEFT + width},{floor}"/>'
            f'<polyline class="curve" points="{line}"/>'
        )
    else:
        axis = (
            f'<text x="{middle:.0f}" y="{_CHART_HEIGHT - 6}" text-anchor="middle">'
            f"{begin.strftime(days)} UTC</text>"
        )
        shape = (
            f'<rect class="fill-accent" x="{middle - 20:.0f}" width="40" '
            f'y="{y(values[0]):.1f}" height="{floor - y(values[0]):.1f}"/>'
        )
    peak = f"{name} a minute over {minutes} minutes, at most {_short(max(values))}"
    return (
        f'<svg role="img" aria-label="{peak}" viewBox="0 0 {_CHART_WIDTH} {_CHART_HEIGHT}">'
        f"{grid}{axis}{shape}</svg>"
    )


def _nice(value: float) -> float:
    """The next round number above a value, for the top of an axis."""
    if value <= 0:
        return 1.0
    power = 10.0 ** (len(str(int(value))) - 1) if value >= 1 else 0.1
    return next(power * factor for factor in (1, 2, 4, 5, 10, 20) if power * factor >= value)


def _short(value: float) -> str:
    if value >= 1_000_000:
        return f"{value / 1_000_000:g}M"
    if value >= 10_000:
        return f"{value / 1_000:g}k"
    return f"{value:,.0f}" if value >= 10 else f"{value:.3g}"
