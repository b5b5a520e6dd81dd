"""The tables of docs/settings.md, written from the code: `python scripts/settings_reference.py --write`.

Without `--write` it only checks, and exits with 1 when the page is out of date.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from ocr_worker.options import settings_of
from ocr_worker.settings import MirrorSettings, ServiceSettings, WorkerSettings
from pdf_ops.api.settings import API_SETTINGS
from pdf_ops.contract.reference import fill, render_table
from pdf_ops.settings import SETTINGS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "settings.md"


def _shown(default: object, *, is_required: bool) -> str:
    if is_required:
        return "required"
    if default is None or default == "":
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def control_plane() -> str:
    """The settings of the DAGs and operators."""
    return render_table(
        ("Setting", "What for", "Accepts", "Default"),
        (
            (
                f"`{setting.name}`",
                setting.option.description,
                setting.accepted,
                _shown(setting.default, is_required=setting.is_required),
            )
            for setting in SETTINGS.values()
        ),
    )


def worker(cls: type[Any], *, without: type[Any] | None = None) -> str:
    """The settings of a worker's command."""
    known = {setting.name for setting in settings_of(without)} if without is not None else set()
    return render_table(
        ("Variable", "Flag", "What for", "Accepts", "Default"),
        (
            (
                f"`{setting.option.variable}`",
                f"`{setting.flag}`",
                setting.option.description,
                setting.accepted,
                # Where a default depends on the machine, the page must not.
                ""
                if setting.name == "scratch_dir"
                else _shown(setting.default, is_required=setting.is_required),
            )
            for setting in settings_of(cls)
            if setting.name not in known
        ),
    )


def api() -> str:
    """The settings of the REST API."""
    return render_table(
        ("Variable", "What for", "Accepts", "Default"),
        (
            (
                f"`{setting.variable}`",
                setting.option.description,
                setting.accepted,
                _shown(setting.default, is_required=setting.is_required),
            )
            for setting in API_SETTINGS
        ),
    )


TABLES = {
    "control-plane": control_plane,
    "reading": lambda: worker(WorkerSettings),
    "service": lambda: worker(ServiceSettings, without=WorkerSettings),
    "api": api,
    "mirror": lambda: worker(MirrorSettings),
}


def main() -> int:
    """Check or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="update the page")
    options = parser.parse_args()
    page = PAGE.read_text(encoding="utf-8")
    filled = fill(page, TABLES)
    if options.write:
        PAGE.write_text(filled, encoding="utf-8")
        return 0
    if filled != page:
        sys.stderr.write(f"out of date: {PAGE}; run `python scripts/settings_reference.py --write`\n")
    return int(filled != page)


if __name__ == "__main__":
    raise SystemExit(main())
