"""The report as one HTML file: no scripts, nothing loaded from elsewhere, light and dark.

Everything that came from a bucket or a document is escaped. Not for figures: ``content`` has them.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from pdf_ops.reporting.sections import (
    show_cost,
    show_dead_letters,
    show_errors,
    show_failed_tasks,
    show_fleet,
    show_links,
    show_outcomes,
    show_slowest,
    show_stages,
    show_throughput,
    show_tiles,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

STYLE = Path(__file__).with_name("style.css")
"""Colours and sections; the page in Airflow has them too."""

STATES = {
    "complete": ("good", "complete"),
    "empty": ("neutral", "nothing to read"),
    "dry_run": ("neutral", "dry run"),
    "incomplete": ("bad", "incomplete"),
    "unreconciled": ("bad", "not reconciled"),
    "over_threshold": ("bad", "over the threshold"),
    "failed": ("bad", "failed"),
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
$style</style>
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
        show_tiles(report),
        show_failed_tasks(report),
        show_outcomes(report),
        show_errors(report),
        show_dead_letters(report),
        show_throughput(report),
        show_stages(report),
        show_slowest(report),
        show_cost(report),
        show_fleet(report),
        show_links(report),
    ]
    title = f"Run {escape(report['run_id'])}"
    style = STYLE.read_text(encoding="utf-8")
    return _PAGE.substitute(
        title=title, policy=escape(_POLICY), style=style, body="\n".join(filter(None, parts))
    )


def _header(report: Mapping[str, Any]) -> str:
    tone, label = STATES[report["state"]]
    about = [report["dag_id"], report["run_date"], f"report of {report['generated_at']}"]
    return (
        f'<header><h1>{escape(report["run_id"])}<span class="pill {tone}">{label}</span></h1>'
        f"<p>{' · '.join(escape(str(item)) for item in about if item)}</p>"
        f'<p class="lead">{escape(report["headline"])}</p></header>'
    )
