"""Templates to answers: escaping is on, and the browser is told to run and load nothing but our own files.

Not for data: a page gets it from the services that the REST routes use.
"""

from __future__ import annotations

import functools
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2
from fastapi import Request
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from pdf_ops.api.ids import encode
from pdf_ops.api.services import Services
from pdf_ops.reporting import figures, tables

PREFIX = "/pages"
MOUNT = "/pdf-ops"
"""Where Airflow's api-server has the app."""
STATIC = Path(__file__).parents[1] / "static"
VENDORED = STATIC / "vendor" / "pdfjs" / "build" / "pdf.min.mjs"
"""Of what `make vendor` fetches; without it there are no pictures of pages."""

# WebAssembly decodes JPEG 2000 and JBIG2 in pdf.js, which draws in a worker that is a file of ours, too.
_POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; style-src 'self'; "
    "img-src 'self' blob: data:; font-src 'self' blob: data:; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'self'"
)
_UNITS = ("bytes", "kB", "MB", "GB", "TB")


@functools.cache
def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "count": figures.as_count,
        "duration": as_time_span,
        "size": as_size,
        "moment": show_moment,
        # The only texts with markup of their own: they escape what they are given.
        "prose": lambda text: Markup(tables.prose(text)),  # noqa: S704
        "document_id": encode,
    }
    return environment


def render(
    request: Request, services: Services | None, template: str, *, status: int = 200, **values: Any
) -> HTMLResponse:
    """A page."""
    base = request.scope.get("root_path", "").rstrip("/")
    text = (
        _templates()
        .get_template(template)
        .render(
            base=base,
            # Airflow's own pages, where this is a part of it.
            airflow=base.removesuffix(MOUNT) if base.endswith(MOUNT) else None,
            here=f"{base}{PREFIX}",
            static=f"{base}{PREFIX}/static",
            is_vendored=VENDORED.exists(),
            is_logged_in=services is not None and services.access.takes_keys,
            path=request.url.path.removeprefix(base),
            **values,
        )
    )
    # Never kept: what a page says changes, and depends on who asks.
    headers = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-store"}
    return HTMLResponse(text, status, headers)


def as_size(size_bytes: int | None) -> str:
    """Bytes, in the unit that fits."""
    if size_bytes is None:
        return figures.NONE
    value, unit = float(size_bytes), 0
    while value >= 1000 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    digits = 0 if unit == 0 or value >= 100 else 1
    return f"{value:,.{digits}f} {_UNITS[unit]}"


def as_time_span(seconds: float | None) -> str:
    """Seconds, as people say them."""
    if seconds is None:
        return figures.NONE
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3_600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 172_800:
        return f"{whole // 3_600} h {whole % 3_600 // 60:02d} min"
    return f"{whole // 86_400} days {whole % 86_400 // 3_600} h"


def show_moment(text: str | None) -> Markup:
    """A moment in UTC, which the browser then shows as local time."""
    if not text:
        return Markup("<span>{}</span>").format(figures.NONE)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return Markup("<span>{}</span>").format(text)
    moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    shown = moment.strftime("%Y-%m-%d %H:%M UTC")
    return Markup('<time datetime="{}">{}</time>').format(moment.isoformat(timespec="seconds"), shown)
