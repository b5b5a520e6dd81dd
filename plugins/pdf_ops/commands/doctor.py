"""``pdf-ops doctor``: what is missing or wrong in the deployment, and how to mend it."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pdf_ops.commands.output import add_json, write, write_json
from pdf_ops.commands.session import EXIT_CODES, OK, WRONG, Session

if TYPE_CHECKING:
    import argparse

_MARKS = {"ok": "✓", "note": "·", "problem": "✗"}


def add_to(commands: Any) -> None:
    """Add the command."""
    doctor = commands.add_parser(
        "doctor",
        help="what is missing or wrong in the deployment, and how to mend it",
        description="Look at settings, permissions, queues, tables, cluster, worker, logs, Slack and "
        "Airflow. Changes nothing.",
        epilog=EXIT_CODES,
    )
    add_json(doctor)
    doctor.set_defaults(handler=_examine)


def _examine(session: Session, options: argparse.Namespace) -> int:
    from pdf_ops.airflow_api import AirflowApi
    from pdf_ops.api.settings import load
    from pdf_ops.doctor import Deployment, Finding, Verdict, examine
    from pdf_ops.exceptions import SettingsError

    try:
        settings, airflow = session.settings, AirflowApi.of(load())
    except SettingsError as error:
        first, *problems = str(error).splitlines()
        findings = [
            Finding(what="settings", verdict=Verdict.PROBLEM, detail=one, fix=first) for one in problems
        ]
    else:
        findings = [
            Finding(what="settings", verdict=Verdict.OK, detail="can be used"),
            *examine(Deployment(settings=settings, client=session.client, airflow=airflow)),
        ]
    counts = Counter(finding.verdict.value for finding in findings)
    if options.json:
        write_json({"is_well": not counts["problem"], "findings": [asdict(finding) for finding in findings]})
    else:
        for finding in findings:
            write(f"{_MARKS[finding.verdict.value]} {finding.what}: {finding.detail}")
            if finding.fix:
                write(f"    → {finding.fix}")
        write(f"\n{counts['ok']} as they should be, {counts['note']} notes, {counts['problem']} problems")
    return WRONG if counts["problem"] else OK
