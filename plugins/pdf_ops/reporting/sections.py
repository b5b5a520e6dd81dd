"""What a run's report shows, section by section: the report has them all, the page in Airflow most.

Each takes the report as ``content`` puts it together. Everything that came from a bucket or a document
is escaped.
"""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING, Any

from pdf_ops.reporting.charts import draw_bar, draw_curve, draw_pair, draw_stacked
from pdf_ops.reporting.figures import NONE, as_count, as_duration, as_money, as_price
from pdf_ops.reporting.tables import error_label, make_table, number_cell, prose, sample_keys

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RUNNING = "running"
"""The state of a report that is made while its run goes on."""
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


def show_tiles(report: Mapping[str, Any]) -> str:
    """The figures that people ask for first."""
    cost = report["cost"]
    tiles = [
        (as_count(report["finished"]), f"of {as_count(report['sent'])} documents finished"),
        (as_count(report["pages"]["rows"]), "page rows"),
        (f"{report['failed_ratio']:.1%}", _threshold(report)),
        (as_money(cost["total"]), f"compute, {as_money(cost['waste'])} of it wasted"),
    ]
    if cost["per_million_pages"] is not None:
        tiles.append((as_money(cost["per_million_pages"]), "a million pages"))
    return (
        '<div class="tiles">'
        + "".join(
            f'<div class="tile"><b>{escape(value)}</b><span>{escape(label)}</span></div>'
            for value, label in tiles
        )
        + "</div>"
    )


def _threshold(report: Mapping[str, Any]) -> str:
    threshold = report["failure_threshold"]
    return "failed" if threshold is None else f"failed; the run allows {threshold:.1%}"


def show_failed_tasks(report: Mapping[str, Any]) -> str:
    """The tasks that failed."""
    if not report["failed_tasks"]:
        return ""
    items = "".join(f"<li><code>{escape(name)}</code></li>" for name in report["failed_tasks"])
    return f'<section class="notice"><h2>Failed tasks</h2><ul>{items}</ul></section>'


def show_outcomes(report: Mapping[str, Any]) -> str:
    """What became of the documents, and whether it adds up."""
    outcomes: Mapping[str, int] = report["outcomes"]
    total = sum(outcomes.values())
    rows = [
        [
            f'<span class="dot bg-{tone}"></span>{name}',
            number_cell(outcomes[name]),
            number_cell(f"{outcomes[name] / total:.1%}" if total else NONE),
            f'<span class="soft">{meaning}</span>',
        ]
        for name, (tone, meaning) in _OUTCOMES.items()
    ]
    parts = [
        "<section><h2>Outcomes</h2>",
        draw_stacked([(name, outcomes[name], tone) for name, (tone, _) in _OUTCOMES.items()]),
        make_table("", ["Outcome", "#Documents", "#Share", "Meaning"], rows),
        _reconciliation(report),
    ]
    if report["listed"]:
        listed = ", ".join(f"{as_count(count)} {escape(name)}" for name, count in report["listed"].items())
        parts.append(f'<p class="soft">Listed objects by decision: {listed}.</p>')
    return "".join(parts) + "</section>"


def _reconciliation(report: Mapping[str, Any]) -> str:
    found = report["reconciliation"]
    if found is None:
        is_early = report["state"] == RUNNING
        why = "Done at the end, over all documents." if is_early else "It did not run."
        return f"<h3>Reconciliation</h3><p>{why}</p>"
    tone, word = ("good", "holds") if found["is_reconciled"] else ("bad", "does not hold")
    equation = re.sub(r"[0-9]+", lambda digits: as_count(int(digits[0])), escape(found["equation"]))
    parts = [
        f'<h3>Reconciliation <span class="is-{tone}">{word}</span></h3>',
        f'<p class="verdict">{equation}</p>',
        (
            f'<p class="soft">{as_count(found["page_rows"])} page rows in the dataset, '
            f"{as_count(found['pages_expected'])} pages in the documents.</p>"
        ),
    ]
    if found.get("samples"):
        rows = [
            [f'<span class="key">{escape(item["source_uri"])}</span>', escape(item["problem"])]
            for item in found["samples"]
        ]
        caption = f"The first of them; all are in {found.get('discrepancies_uri')}"
        parts.append(make_table(caption, ["Document", "Problem"], rows))
    return "".join(parts)


def show_errors(report: Mapping[str, Any]) -> str:
    """Errors of documents and of pages, and what to do."""
    if not report["errors"] and not report["page_errors"]:
        return ""
    parts = ["<section><h2>Errors by class, and what to do</h2>"]
    if report["errors"]:
        most = max(item["documents"] for item in report["errors"])
        tones = {"failed": "bad", "partial": "warn", "skipped": "muted"}
        rows = [
            [
                f"{error_label(item['label'])}<br>"
                + draw_bar(item["documents"], most, tones.get(item["status"], "bad")),
                number_cell(item["documents"]),
                escape(item["status"]),
                f"{escape(item['meaning'])}<br><b>{prose(item['what_to_do'])}</b>{sample_keys(item['samples'])}",
            ]
            for item in report["errors"]
        ]
        parts.append(make_table("", ["Error", "#Documents", "Outcome", "What happened, what to do"], rows))
    if report["page_errors"]:
        rows = [
            [
                error_label(item["label"]),
                number_cell(item["pages"]),
                f"{escape(item['meaning'])} <b>{prose(item['what_to_do'])}</b>",
            ]
            for item in report["page_errors"]
        ]
        parts.append("<h3>Pages with an error row</h3>")
        parts.append(make_table("", ["Error", "#Pages", "What happened, what to do"], rows))
    return "".join(parts) + "</section>"


def show_dead_letters(report: Mapping[str, Any]) -> str:
    """What waits in the dead-letter queue."""
    found = report["dead_letters"]
    if found is None or not found["in_queue"]:
        return ""
    seen = "" if found["is_complete"] else " The queue is longer than what was looked at."
    parts = [
        "<section><h2>Dead-letter queue</h2>",
        (
            f"<p>{as_count(found['of_this_run'])} messages of this run, "
            f"{as_count(found['in_queue'])} in the queue.{seen} They are left where they are.</p>"
        ),
    ]
    if found["groups"]:
        rows = [
            [
                error_label(group["label"]),
                number_cell(group["messages"]),
                f"<b>{prose(group['what_to_do'])}</b>{sample_keys(group['samples'])}",
            ]
            for group in found["groups"]
        ]
        parts.append(make_table("", ["Error", "#Messages", "What to do"], rows))
    return "".join(parts) + "</section>"


def show_throughput(report: Mapping[str, Any]) -> str:
    """Documents and pages a minute."""
    points: Sequence[Mapping[str, Any]] = report["throughput"]
    if not points:
        return ""
    return (
        '<section><h2>Throughput</h2><div class="charts">'
        f"<div><h3>Documents a minute</h3>{draw_curve(points, 'documents')}</div>"
        f"<div><h3>Pages a minute</h3>{draw_curve(points, 'pages')}</div></div></section>"
    )


def show_stages(report: Mapping[str, Any]) -> str:
    """Where a page's time goes."""
    stages = {name: report["stages"].get(name) for name in _STAGES}
    shown = {name: stage for name, stage in stages.items() if stage and stage["count"]}
    if not shown:
        return ""
    most = max(stage["p95_ms"] for stage in shown.values())
    rows = [
        [
            f"{_STAGES[name]}",
            number_cell(stage["count"]),
            number_cell(as_duration(stage["p50_ms"])),
            number_cell(as_duration(stage["p95_ms"])),
            draw_pair(stage["p50_ms"], stage["p95_ms"], most),
        ]
        for name, stage in shown.items()
    ]
    methods = ", ".join(
        f"{as_count(count)} {escape(name)}" for name, count in report["pages"]["methods"].items()
    )
    caption = "Per page; a stage that a page did not need is not counted. The bars show p50 within p95."
    table = make_table(caption, ["Stage", "#Pages", "#p50", "#p95", "|"], rows)
    return f'<section><h2>Time by stage</h2>{table}<p class="soft">Pages by method: {methods}.</p></section>'


def show_slowest(report: Mapping[str, Any]) -> str:
    """The slowest documents."""
    if not report["slowest"]:
        return ""
    rows = [
        [
            f'<span class="key">{escape(item["source_uri"])}</span>',
            number_cell(as_duration(item["wall_ms"])),
            number_cell(as_duration(item["cpu_ms"])),
            number_cell(item["page_count"] if item["page_count"] is not None else NONE),
            number_cell(item["pages_ocr"]),
            escape(item["status"]),
        ]
        for item in report["slowest"]
    ]
    header = ["Document", "#Clock", "#CPU", "#Pages", "#by OCR", "Outcome"]
    return f"<section><h2>Slowest documents</h2>{make_table('', header, rows)}</section>"


def show_cost(report: Mapping[str, Any]) -> str:
    """What it cost, waste on a line of its own."""
    cost = report["cost"]
    total = cost["total"] or 1.0
    lines = [
        ("Reading documents", cost["reading"], "CPU time that ended in rows."),
        (
            "Waste: retries and duplicates",
            cost["waste"],
            f"{as_count(report['retries'])} retries; work that was done again or thrown away.",
        ),
    ]
    if cost["basis"] == "tasks":
        lines.append(("Idle and start-up", cost["idle"], "Paid for, and not spent on a document."))
    rows = [
        [
            f"{name}",
            number_cell(as_money(amount)),
            number_cell(f"{amount / total:.1%}"),
            f'<span class="soft">{why}</span>',
        ]
        for name, amount, why in lines
    ]
    rows.append(["Total", number_cell(as_money(cost["total"])), number_cell(""), ""])
    prices = cost["prices"]
    basis = (
        f"From the runtimes of {cost['tasks']} containers, {cost['spot_tasks']} of them on Spot"
        if cost["basis"] == "tasks"
        else "From the CPU time that the workers counted, at on-demand prices; idle time is not in it"
    )
    note = (
        f"{basis}: {cost['vcpu_hours']:g} vCPU hours. Prices an hour: {as_price(prices['vcpu_hour'])} a vCPU "
        f"and {as_price(prices['gb_hour'])} a GB on demand, {as_price(prices['spot_vcpu_hour'])} and "
        f"{as_price(prices['spot_gb_hour'])} on Spot. Storage and requests are not included."
    )
    table = make_table("", ["Compute", "#USD", "#Share", ""], rows, last_is_total=True)
    return f'<section><h2>Cost</h2>{table}<p class="soft">{note}</p></section>'


def show_fleet(report: Mapping[str, Any]) -> str:
    """What each worker did."""
    workers = report["fleet"]["workers"]
    if not workers:
        return ""
    rows = [
        [
            f'<span class="key">{escape(worker["worker_id"])}</span>',
            *(number_cell(worker[name]) for name in ("done", "partial", "failed", "skipped", "pages")),
            number_cell(as_duration(worker["cpu_ms"])),
            number_cell(worker["retries"]),
        ]
        for worker in workers
    ]
    header = ["Worker", "#ok", "#partial", "#failed", "#skipped", "#Pages", "#CPU", "#Retries"]
    return f"<section><h2>Fleet</h2>{make_table('', header, rows)}</section>"


def show_links(report: Mapping[str, Any]) -> str:
    """Where the files are."""
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
    return f"<section><h2>Where everything is</h2>{make_table('', ['What', 'Where'], rows)}</section>"
