"""The report as one HTML file: no scripts, nothing loaded from elsewhere, light and dark.

Everything that came from a bucket or a document is escaped. Not for figures: ``content`` has them.
"""

from __future__ import annotations

import re
from datetime import datetime
from html import escape
from string import Template
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_NONE = "\N{EN DASH}"
_MAX_POINTS = 120
_CHART_WIDTH, _CHART_HEIGHT = 1000, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 10, 10, 24

_STATES = {
    "complete": ("good", "complete"),
    "empty": ("neutral", "nothing to read"),
    "dry_run": ("neutral", "dry run"),
    "incomplete": ("bad", "incomplete"),
    "unreconciled": ("bad", "not reconciled"),
    "over_threshold": ("bad", "over the threshold"),
    "failed": ("bad", "failed"),
}
_OUTCOMES = {
    "ok": ("good", "Every page was read."),
    "partial": ("warn", "Some pages have error rows."),
    "failed": ("bad", "No page was read."),
    "skipped": ("muted", "Left out by a limit, or another run had read it."),
}
_STAGES = {
    "open_ms": "Open",
    "text_ms": "Text layer",
    "render_ms": "Render",
    "prepare_ms": "Prepare image",
    "ocr_ms": "OCR",
    "total_ms": "Whole page",
}

# A file from a bucket may be opened anywhere: even if a key got past the escaping, nothing would run or load.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="$policy">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>$title</title>
<style>
:root {
  --bg: #f6f7f9; --card: #ffffff; --ink: #16202c; --soft: #5a6776; --line: #dfe4ea; --track: #eef1f4;
  --good: #18794e; --warn: #b7791f; --bad: #c5303a; --muted: #8a96a3; --accent: #2563c9; --accent-2: #7fa9ea;
}
@media (prefers-color-scheme: dark) {
  :root {
    --bg: #10151b; --card: #182029; --ink: #e6ebf1; --soft: #9aa7b5; --line: #2b3641; --track: #222d38;
    --good: #3fb27f; --warn: #d9a441; --bad: #ef6a70; --muted: #6f7d8b;
    --accent: #6ba2f5; --accent-2: #38588a;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--bg); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 28px 20px 56px; }
header h1 { font-size: 22px; margin: 0 0 2px; overflow-wrap: anywhere; }
header p { margin: 0; color: var(--soft); }
.lead { font-size: 17px; color: var(--ink) !important; margin: 10px 0 0 !important; }
.pill { display: inline-block; padding: 2px 10px; border-radius: 999px; font-size: 13px; font-weight: 600;
  color: var(--card); vertical-align: 3px; margin-left: 8px; white-space: nowrap; }
.pill.good { background: var(--good); } .pill.bad { background: var(--bad); }
.pill.neutral { background: var(--muted); }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 18px 20px;
  margin-top: 16px; }
h2 { font-size: 16px; margin: 0 0 10px; }
h3 { font-size: 13px; margin: 16px 0 4px; color: var(--soft); font-weight: 600; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px;
  margin-top: 18px; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 12px 16px; }
.tile b { display: block; font-size: 24px; line-height: 1.25; font-variant-numeric: tabular-nums; }
.tile span { color: var(--soft); font-size: 13px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
caption { text-align: left; color: var(--soft); font-size: 13px; padding-bottom: 6px; }
th, td { text-align: left; padding: 7px 12px 7px 0; border-top: 1px solid var(--line); vertical-align: top; }
thead td { border-top: 0; }
thead th { border-top: 0; color: var(--soft); font-weight: 600; font-size: 13px; white-space: nowrap; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
tr.total td, tr.total th { font-weight: 700; border-top: 2px solid var(--line); }
th[scope=row] { font-weight: 600; }
code.label { white-space: nowrap; }
code, .key { font: 13px/1.45 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
  overflow-wrap: anywhere; }
.soft { color: var(--soft); }
.dot { display: inline-block; width: 10px; height: 10px; border-radius: 3px; margin-right: 7px; }
.bg-good { background: var(--good); } .bg-warn { background: var(--warn); }
.bg-bad { background: var(--bad); }
.bg-muted { background: var(--muted); }
.fill-good { fill: var(--good); } .fill-warn { fill: var(--warn); } .fill-bad { fill: var(--bad); }
.fill-muted { fill: var(--muted); } .fill-track { fill: var(--track); }
.fill-accent { fill: var(--accent); } .fill-accent-2 { fill: var(--accent-2); }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--soft); font: 12px system-ui, sans-serif; }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .area { fill: var(--accent); opacity: .16; }
svg .curve { fill: none; stroke: var(--accent); stroke-width: 2; }
.notice { border-left: 4px solid var(--bad); } .verdict { font-weight: 600; }
.is-good { color: var(--good); } .is-bad { color: var(--bad); }
details summary { cursor: pointer; color: var(--accent); }
ul { margin: 6px 0 0; padding-left: 18px; }
footer { color: var(--soft); font-size: 13px; margin-top: 18px; }
.bar { width: 34%; min-width: 140px; }
@media print { body { background: #fff; } section { break-inside: avoid; } }
</style>
</head>
<body>
<main>
$body
</main>
</body>
</html>
""")


def render(report: Mapping[str, Any]) -> str:
    """The whole page."""
    parts = [
        _header(report),
        _tiles(report),
        _failed_tasks(report),
        _outcomes(report),
        _errors(report),
        _dead_letters(report),
        _throughput(report),
        _stages(report),
        _slowest(report),
        _cost(report),
        _fleet(report),
        _links(report),
    ]
    title = f"Run {escape(report['run_id'])}"
    return _PAGE.substitute(title=title, policy=escape(_POLICY), body="\n".join(filter(None, parts)))


def _header(report: Mapping[str, Any]) -> str:
    tone, label = _STATES[report["state"]]
    about = [report["dag_id"], report["run_date"], f"report of {report['generated_at']}"]
    return (
        f'<header><h1>{escape(report["run_id"])}<span class="pill {tone}">{label}</span></h1>'
        f"<p>{' · '.join(escape(str(item)) for item in about if item)}</p>"
        f'<p class="lead">{escape(report["headline"])}</p></header>'
    )


def _tiles(report: Mapping[str, Any]) -> str:
    cost = report["cost"]
    tiles = [
        (_count(report["finished"]), f"of {_count(report['sent'])} documents finished"),
        (_count(report["pages"]["rows"]), "page rows"),
        (f"{report['failed_ratio']:.1%}", _threshold(report)),
        (_money(cost["total"]), f"compute, {_money(cost['waste'])} of it wasted"),
    ]
    if cost["per_million_pages"] is not None:
        tiles.append((_money(cost["per_million_pages"]), "a million pages"))
    return (
        '<div class="tiles">'
        + "".join(
            f'<div class="tile"><b>{value}</b><span>{escape(label)}</span></div>' for value, label in tiles
        )
        + "</div>"
    )


def _threshold(report: Mapping[str, Any]) -> str:
    threshold = report["failure_threshold"]
    return "failed" if threshold is None else f"failed; the run allows {threshold:.1%}"


def _failed_tasks(report: Mapping[str, Any]) -> str:
    if not report["failed_tasks"]:
        return ""
    items = "".join(f"<li><code>{escape(name)}</code></li>" for name in report["failed_tasks"])
    return f'<section class="notice"><h2>Failed tasks</h2><ul>{items}</ul></section>'


def _outcomes(report: Mapping[str, Any]) -> str:
    outcomes: Mapping[str, int] = report["outcomes"]
    total = sum(outcomes.values())
    rows = [
        [
            f'<span class="dot bg-{tone}"></span>{name}',
            _number_cell(outcomes[name]),
            _number_cell(f"{outcomes[name] / total:.1%}" if total else _NONE),
            f'<span class="soft">{meaning}</span>',
        ]
        for name, (tone, meaning) in _OUTCOMES.items()
    ]
    parts = [
        "<section><h2>Outcomes</h2>",
        _stacked([(name, outcomes[name], tone) for name, (tone, _) in _OUTCOMES.items()]),
        _table("", ["Outcome", "#Documents", "#Share", "Meaning"], rows),
        _reconciliation(report),
    ]
    if report["listed"]:
        listed = ", ".join(f"{_count(count)} {escape(name)}" for name, count in report["listed"].items())
        parts.append(f'<p class="soft">Listed objects by decision: {listed}.</p>')
    return "".join(parts) + "</section>"


def _reconciliation(report: Mapping[str, Any]) -> str:
    found = report["reconciliation"]
    if found is None:
        return "<h3>Reconciliation</h3><p>It did not run.</p>"
    tone, word = ("good", "holds") if found["is_reconciled"] else ("bad", "does not hold")
    parts = [
        f'<h3>Reconciliation <span class="is-{tone}">{word}</span></h3>',
        f'<p class="verdict">{re.sub(r"[0-9]+", lambda n: _count(int(n[0])), escape(found["equation"]))}</p>',
        (
            f'<p class="soft">{_count(found["page_rows"])} page rows in the dataset, '
            f"{_count(found['pages_expected'])} pages in the documents.</p>"
        ),
    ]
    if found.get("samples"):
        rows = [
            [f'<span class="key">{escape(item["source_uri"])}</span>', escape(item["problem"])]
            for item in found["samples"]
        ]
        caption = f"The first of them; all are in {found.get('discrepancies_uri')}"
        parts.append(_table(caption, ["Document", "Problem"], rows))
    return "".join(parts)


def _errors(report: Mapping[str, Any]) -> str:
    if not report["errors"] and not report["page_errors"]:
        return ""
    parts = ["<section><h2>Errors by class, and what to do</h2>"]
    if report["errors"]:
        most = max(item["documents"] for item in report["errors"])
        tones = {"failed": "bad", "partial": "warn", "skipped": "muted"}
        rows = [
            [
                f"{_label(item['label'])}<br>"
                + _bar(item["documents"], most, tones.get(item["status"], "bad")),
                _number_cell(item["documents"]),
                escape(item["status"]),
                f"{escape(item['meaning'])}<br><b>{_prose(item['what_to_do'])}</b>{_samples(item['samples'])}",
            ]
            for item in report["errors"]
        ]
        parts.append(_table("", ["Error", "#Documents", "Outcome", "What happened, what to do"], rows))
    if report["page_errors"]:
        rows = [
            [
                _label(item["label"]),
                _number_cell(item["pages"]),
                f"{escape(item['meaning'])} <b>{_prose(item['what_to_do'])}</b>",
            ]
            for item in report["page_errors"]
        ]
        parts.append("<h3>Pages with an error row</h3>")
        parts.append(_table("", ["Error", "#Pages", "What happened, what to do"], rows))
    return "".join(parts) + "</section>"


def _dead_letters(report: Mapping[str, Any]) -> str:
    found = report["dead_letters"]
    if found is None or not found["in_queue"]:
        return ""
    seen = "" if found["is_complete"] else " The queue is longer than what was looked at."
    parts = [
        "<section><h2>Dead-letter queue</h2>",
        (
            f"<p>{_count(found['of_this_run'])} messages of this run, "
            f"{_count(found['in_queue'])} in the queue.{seen} They are left where they are.</p>"
        ),
    ]
    if found["groups"]:
        rows = [
            [
                _label(group["label"]),
                _number_cell(group["messages"]),
                f"<b>{_prose(group['what_to_do'])}</b>{_samples(group['samples'])}",
            ]
            for group in found["groups"]
        ]
        parts.append(_table("", ["Error", "#Messages", "What to do"], rows))
    return "".join(parts) + "</section>"


def _throughput(report: Mapping[str, Any]) -> str:
    points: Sequence[Mapping[str, Any]] = report["throughput"]
    if not points:
        return ""
    return (
        "<section><h2>Throughput</h2>"
        f"<h3>Documents a minute</h3>{_curve(points, 'documents')}"
        f"<h3>Pages a minute</h3>{_curve(points, 'pages')}</section>"
    )


def _stages(report: Mapping[str, Any]) -> str:
    stages = {name: report["stages"].get(name) for name in _STAGES}
    shown = {name: stage for name, stage in stages.items() if stage and stage["count"]}
    if not shown:
        return ""
    most = max(stage["p95_ms"] for stage in shown.values())
    rows = [
        [
            f"{_STAGES[name]}",
            _number_cell(stage["count"]),
            _number_cell(_milliseconds(stage["p50_ms"])),
            _number_cell(_milliseconds(stage["p95_ms"])),
            _pair(stage["p50_ms"], stage["p95_ms"], most),
        ]
        for name, stage in shown.items()
    ]
    methods = ", ".join(
        f"{_count(count)} {escape(name)}" for name, count in report["pages"]["methods"].items()
    )
    caption = "Per page; a stage that a page did not need is not counted. The bars show p50 within p95."
    table = _table(caption, ["Stage", "#Pages", "#p50", "#p95", "|"], rows)
    return f'<section><h2>Time by stage</h2>{table}<p class="soft">Pages by method: {methods}.</p></section>'


def _slowest(report: Mapping[str, Any]) -> str:
    if not report["slowest"]:
        return ""
    rows = [
        [
            f'<span class="key">{escape(item["source_uri"])}</span>',
            _number_cell(_milliseconds(item["wall_ms"])),
            _number_cell(_milliseconds(item["cpu_ms"])),
            _number_cell(item["page_count"] if item["page_count"] is not None else _NONE),
            _number_cell(item["pages_ocr"]),
            escape(item["status"]),
        ]
        for item in report["slowest"]
    ]
    header = ["Document", "#Clock", "#CPU", "#Pages", "#by OCR", "Outcome"]
    return f"<section><h2>Slowest documents</h2>{_table('', header, rows)}</section>"


def _cost(report: Mapping[str, Any]) -> str:
    cost = report["cost"]
    total = cost["total"] or 1.0
    lines = [
        ("Reading documents", cost["reading"], "CPU time that ended in rows."),
        (
            "Waste: retries and duplicates",
            cost["waste"],
            f"{_count(report['retries'])} retries; work that was done again or thrown away.",
        ),
    ]
    if cost["basis"] == "tasks":
        lines.append(("Idle and start-up", cost["idle"], "Paid for, and not spent on a document."))
    rows = [
        [
            f"{name}",
            _number_cell(_money(amount)),
            _number_cell(f"{amount / total:.1%}"),
            f'<span class="soft">{why}</span>',
        ]
        for name, amount, why in lines
    ]
    rows.append(["Total", _number_cell(_money(cost["total"])), _number_cell(""), ""])
    prices = cost["prices"]
    basis = (
        f"From the runtimes of {cost['tasks']} containers, {cost['spot_tasks']} of them on Spot"
        if cost["basis"] == "tasks"
        else "From the CPU time that the workers counted, at on-demand prices; idle time is not in it"
    )
    note = (
        f"{basis}: {cost['vcpu_hours']:g} vCPU hours. Prices an hour: {_price(prices['vcpu_hour'])} a vCPU "
        f"and {_price(prices['gb_hour'])} a GB on demand, {_price(prices['spot_vcpu_hour'])} and "
        f"{_price(prices['spot_gb_hour'])} on Spot. Storage and requests are not included."
    )
    table = _table("", ["Compute", "#USD", "#Share", ""], rows, last_is_total=True)
    return f'<section><h2>Cost</h2>{table}<p class="soft">{note}</p></section>'


def _fleet(report: Mapping[str, Any]) -> str:
    workers = report["fleet"]["workers"]
    if not workers:
        return ""
    rows = [
        [
            f'<span class="key">{escape(worker["worker_id"])}</span>',
            *(_number_cell(worker[name]) for name in ("done", "partial", "failed", "skipped", "pages")),
            _number_cell(_milliseconds(worker["cpu_ms"])),
            _number_cell(worker["retries"]),
        ]
        for worker in workers
    ]
    header = ["Worker", "#ok", "#partial", "#failed", "#skipped", "#Pages", "#CPU", "#Retries"]
    return f"<section><h2>Fleet</h2>{_table('', header, rows)}</section>"


def _links(report: Mapping[str, Any]) -> str:
    names = {
        "pages": "Page dataset",
        "documents": "Documents dataset",
        "manifest": "Run manifest",
        "report_json": "This report as JSON",
    }
    rows = [
        [label, f'<span class="key">{escape(report["links"][name])}</span>']
        for name, label in names.items()
        if name in report["links"]
    ]
    return f"<section><h2>Where everything is</h2>{_table('', ['What', 'Where'], rows)}</section>"


# --- pieces ------------------------------------------------------------------


def _table(
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


def _number_cell(value: object) -> str:
    return f'<td class="n">{_count(value) if isinstance(value, int) else escape(str(value))}</td>'


def _samples(keys: Sequence[str]) -> str:
    if not keys:
        return ""
    items = "".join(f'<li class="key">{escape(key)}</li>' for key in keys)
    name = "one key" if len(keys) == 1 else f"{len(keys)} keys"
    return f"<details><summary>Show {name}</summary><ul>{items}</ul></details>"


def _label(error: str) -> str:
    return f'<code class="label">{escape(error)}</code>'


def _prose(text: str) -> str:
    """A sentence whose commands and settings stand between backticks."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text))


def _stacked(parts: Sequence[tuple[str, int, str]]) -> str:
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
        f'<svg role="img" aria-label="{label}" viewBox="0 0 1000 22" preserveAspectRatio="none" '
        f'style="height:22px;margin-bottom:12px;border-radius:6px">{"".join(drawn)}</svg>'
    )


def _bar(value: float, most: float, tone: str) -> str:
    width = max(1.0, 160 * value / most) if most else 0
    return (
        f'<svg aria-hidden="true" viewBox="0 0 160 6" style="width:160px;margin-top:5px">'
        f'<rect class="fill-track" width="160" height="6" rx="3"/>'
        f'<rect class="fill-{tone}" width="{width:.1f}" height="6" rx="3"/></svg>'
    )


def _pair(p50: float, p95: float, most: float) -> str:
    high, low = (300 * value / most if most else 0 for value in (p95, p50))
    return (
        f'<svg aria-hidden="true" viewBox="0 0 300 14" preserveAspectRatio="none" style="height:14px">'
        f'<rect class="fill-accent-2" width="{max(high, 1):.1f}" height="14" rx="3"/>'
        f'<rect class="fill-accent" width="{max(low, 1):.1f}" height="14" rx="3"/></svg>'
    )


def _curve(points: Sequence[Mapping[str, Any]], name: str) -> str:
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
    axis = f'<text x="{_LEFT}" y="{_CHART_HEIGHT - 6}">{begin.strftime(days)} UTC</text>'
    if len(values) > 1:
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
        shape = (
            f'<rect class="fill-accent" x="{_LEFT + width / 2 - 20:.0f}" width="40" '
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


def _count(value: object) -> str:
    return f"{value:,}" if isinstance(value, int | float) else _NONE


def _money(value: float) -> str:
    if value and value < 0.01:
        return f"${value:.4f}"
    return f"${value:,.2f}"


def _price(value: float) -> str:
    return f"${value:.6g}"


def _milliseconds(value: float) -> str:
    if value >= 60_000:
        return f"{value / 60_000:,.1f} min"
    if value >= 1_000:
        return f"{value / 1_000:,.1f} s"
    return f"{value:.3g} ms"
