"""``pdf-ops status``, ``failed``, ``report`` and ``cost``: how runs go and went. They change nothing."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pdf_ops.commands.output import add_json, bar, duration, moment, money, pairs, table, write, write_json
from pdf_ops.commands.session import EXIT_CODES, OK, UNUSABLE, CommandError, Session

if TYPE_CHECKING:
    import argparse

    from pdf_ops.failures import Failures
    from pdf_ops.run_status import RunStatus

_AT_ONCE = 8
_NUMBERS = ("documents", "done", "partial", "failed", "skipped", "pages", "documents/s", "cost")


def add_to(commands: Any) -> None:
    """Add the commands."""
    status = commands.add_parser(
        "status", help="recent runs, or how one goes", description=_status.__doc__, epilog=EXIT_CODES
    )
    status.add_argument("run", nargs="?", metavar="RUN", help="a run's id; the recent ones without it")
    status.add_argument("--limit", type=_positive, default=10, help="runs in the list (default %(default)s)")
    status.add_argument(
        "--watch", action="store_true", help="go on until every document has an outcome; Ctrl-C stops looking"
    )
    status.add_argument(
        "--interval", type=_positive, default=5, help="seconds between two looks (default %(default)s)"
    )
    status.set_defaults(handler=_status)

    failed = commands.add_parser(
        "failed",
        help="documents that failed, why, and what to do",
        description=_failed.__doc__,
        epilog=EXIT_CODES,
    )
    failed.add_argument("--run", dest="of_run", metavar="RUN", help="in this run; without it, as known now")
    failed.add_argument(
        "--class", dest="error_class", metavar="CLASS", type=error_class, help="only of this class"
    )
    failed.add_argument(
        "--limit", type=_positive, default=50, help="documents that are named (default %(default)s)"
    )
    failed.set_defaults(handler=_failed)

    report = commands.add_parser(
        "report", help="what a run's report says", description=_report.__doc__, epilog=EXIT_CODES
    )
    report.add_argument("run", nargs="?", metavar="RUN", help="a run's id; the newest without it")
    report.add_argument("--html", type=Path, metavar="FILE", help="write the page for people to this file")
    report.set_defaults(handler=_report)

    cost = commands.add_parser("cost", help="what a run cost", description=_cost.__doc__, epilog=EXIT_CODES)
    cost.add_argument("run", nargs="?", metavar="RUN", help="a run's id; the newest without it")
    cost.set_defaults(handler=_cost)
    for parser in (status, failed, report, cost):
        add_json(parser)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def error_class(text: str) -> str:
    """A class of errors, as an argument.

    Raises:
        ArgumentTypeError: If there is no such class.
    """
    import argparse

    from pdf_ops.contract.errors import ErrorClass

    if text.upper() not in set(ErrorClass):
        raise argparse.ArgumentTypeError(f"{text!r:.40} is none of {', '.join(ErrorClass)}")
    return text.upper()


# status --------------------------------------------------------------------------------------------


def _status(session: Session, options: argparse.Namespace) -> int:
    """Recent runs with their outcomes, or one with progress, rate, time left and cost."""
    if options.run is None:
        if options.watch:
            options.run = _newest(session)
        else:
            return _list(session, options)
    while True:
        status = _describe(session, options.run)
        _show_status(status, options)
        if not options.watch or status.is_finished:
            return OK
        time.sleep(options.interval)


def _list(session: Session, options: argparse.Namespace) -> int:
    from concurrent.futures import ThreadPoolExecutor

    from pdf_ops.run_status import recent_runs

    # Made here: threads share them, but must not make them at once.
    dynamodb, _ = session.client("dynamodb"), session.client("s3")
    entries, _ = recent_runs(dynamodb, session.settings.dynamo_runs_table_name, limit=options.limit)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(pool.map(lambda entry: _describe(session, entry.run_id), entries))
    if options.json:
        write_json([asdict(status) for status in found])
    elif not found:
        write("There is no run yet, or none in the last 90 days. Trigger the DAG pdf_ocr.")
    else:
        header = (
            "run",
            "began (UTC)",
            "documents",
            "finished",
            *_NUMBERS[1:5],
            "documents/s",
            "time left",
            "cost",
        )
        write(table(header, [_row(status) for status in found], right=(*_NUMBERS, "finished", "time left")))
    return OK


def _row(status: RunStatus) -> list[object]:
    share = f"{status.finished / status.documents:.0%}" if status.documents else "-"
    return [
        status.run_id,
        moment(status.created_at),
        status.documents,
        share,
        *status.outcomes.values(),
        status.documents_per_s,
        "-" if status.is_finished else duration(status.eta_s),
        money(status.cost.get("total")),
    ]


def _show_status(status: RunStatus, options: argparse.Namespace) -> None:
    if options.json:
        sys.stdout.write(
            json.dumps(asdict(status), indent=None if options.watch else 2, ensure_ascii=False) + "\n"
        )
        sys.stdout.flush()
        return
    if options.watch:
        line = (
            f"{bar(status.finished, status.documents)}  {status.finished:,} of "
            f"{'?' if status.documents is None else f'{status.documents:,}'}, "
            f"{status.outcomes['failed']:,} failed, {status.documents_per_s or 0:,.1f}/s, "
            f"{duration(status.eta_s)} left"
        )
        is_terminal = sys.stdout.isatty()
        sys.stdout.write(f"\r\x1b[K{line}" if is_terminal and not status.is_finished else f"{line}\n")
        sys.stdout.flush()
        return
    write(f"{status.run_id}\n{bar(status.finished, status.documents)}\n")
    state = "every document has an outcome" if status.is_finished else "documents are waited for"
    write(
        pairs(
            (
                ("state", state),
                ("began", moment(status.created_at)),
                ("documents", status.documents),
                ("finished", status.finished),
                *((f"  {name}", count) for name, count in status.outcomes.items()),
                ("pages", status.pages),
                ("documents/s", status.documents_per_s),
                ("time left", "-" if status.is_finished else duration(status.eta_s)),
                ("retries", status.retries),
                ("workers", status.workers),
                ("cost", f"{money(status.cost['total'])}, of which {money(status.cost['waste'])} wasted"),
                ("report", status.report_uri or "not written yet"),
            )
        )
    )


def _describe(session: Session, run_id: str) -> RunStatus:
    from pdf_ops.run_status import look_at

    settings = session.settings
    look = look_at(
        run_id,
        table=settings.dynamo_runs_table_name,
        layout=settings.layout,
        dynamodb=session.client("dynamodb"),
        s3=session.client("s3"),
    )
    if look is None:
        raise CommandError(
            f"there is no run {run_id!r}, or it is older than 90 days: `pdf-ops status` lists them"
        )
    return look.status


def _newest(session: Session) -> str:
    from pdf_ops.run_status import recent_runs

    table_name = session.settings.dynamo_runs_table_name
    entries, _ = recent_runs(session.client("dynamodb"), table_name, limit=1)
    if not entries:
        raise CommandError("there is no run yet, or none in the last 90 days")
    return entries[0].run_id


# failed --------------------------------------------------------------------------------------------


def _failed(session: Session, options: argparse.Namespace) -> int:
    """Documents that failed in a run, or whose last word is a failure, with class, code and what to do."""
    from pdf_ops.failures import failed_in_run, failed_now
    from pdf_ops.hooks.tables import StateTable
    from pdf_ops.run_items import RunItems

    settings, dynamodb = session.settings, session.client("dynamodb")
    states = StateTable(settings.dynamo_table_name, client=dynamodb)
    if options.of_run is None:
        found = failed_now(states, error_class=options.error_class, limit=options.limit)
    else:
        _describe(session, options.of_run)
        items = RunItems(table=settings.dynamo_runs_table_name, run_id=options.of_run, client=dynamodb)
        found = failed_in_run(items, states, error_class=options.error_class, limit=options.limit)
    if options.json:
        write_json(
            {
                "documents": [asdict(one) for one in found.documents],
                "by_error": dict(found.by_error.most_common()),
                "is_complete": found.is_complete,
            }
        )
    else:
        _show_failures(found)
    return OK


def _show_failures(found: Failures) -> None:
    from pdf_ops.dead_letters import what_to_do

    if not found.documents:
        write("No document failed.")
        return
    rows = [(one.s3_key, one.error or "no class", one.run_id) for one in found.documents]
    write(table(("document", "error", "run"), rows))
    if not found.is_complete:
        write("… and more: raise --limit, or narrow it down with --class and --run.")
    write()
    errors = [
        (label or "no class", count, what_to_do(label)) for label, count in found.by_error.most_common()
    ]
    write(table(("error", "documents", "what to do"), errors, right=("documents",)))


# report and cost -----------------------------------------------------------------------------------


def _report(session: Session, options: argparse.Namespace) -> int:
    """A run's report in short, and where the page is."""
    run_id = options.run or _newest(session)
    report = _read_report(session, run_id)
    if options.html is not None:
        _download(session, run_id, options.html)
    if options.json:
        write_json(report)
        return OK
    write(f"{run_id}\n{report['headline']}\n")
    outcomes = ", ".join(f"{count:,} {name}" for name, count in report["outcomes"].items())
    letters = report["dead_letters"]
    write(
        pairs(
            (
                ("state", report["state"]),
                ("began", moment(report["started_at"])),
                ("reported", moment(report["generated_at"])),
                (
                    "listed",
                    ", ".join(f"{count:,} {name}" for name, count in report["listed"].items() if count),
                ),
                ("outcomes", outcomes),
                ("page rows", report["pages"]["rows"]),
                ("dead letters", None if letters is None else letters["of_this_run"]),
                ("failed tasks", ", ".join(report["failed_tasks"]) or "none"),
                (
                    "cost",
                    f"{money(report['cost']['total'])}, of which {money(report['cost']['waste'])} wasted",
                ),
                ("page", options.html or report["links"]["report_html"]),
                ("in a browser", report["links"]["report_console"]),
                ("dataset", report["links"]["pages"]),
            )
        )
    )
    if report["errors"]:
        write()
        rows = [(item["label"], item["documents"], item["what_to_do"]) for item in report["errors"]]
        write(table(("error", "documents", "what to do"), rows, right=("documents",)))
    return OK


def _read_report(session: Session, run_id: str) -> dict[str, Any]:
    from pdf_ops.objects import ObjectStore

    written = ObjectStore(client=session.client("s3")).read(session.settings.layout.report_json(run_id))
    if written is None:
        _describe(session, run_id)
        raise CommandError(
            f"the run {run_id!r} has no report yet: it is written at its end. See `pdf-ops status`"
        )
    return dict(json.loads(written))


def _download(session: Session, run_id: str, path: Path) -> None:
    from pdf_ops.objects import ObjectStore

    page = ObjectStore(client=session.client("s3")).read(session.settings.layout.report_html(run_id))
    if page is None:
        raise CommandError(f"the run {run_id!r} has no page")
    try:
        path.write_bytes(page)
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror}", UNUSABLE) from None


def _cost(session: Session, options: argparse.Namespace) -> int:
    """What a run cost, what of it was wasted or idle, and what a million such pages would cost."""
    status = _describe(session, options.run or _newest(session))
    cost = status.cost
    if options.json:
        write_json(
            {"run_id": status.run_id, "pages": status.pages, "is_final": bool(status.report_uri), **cost}
        )
        return OK
    write(f"{status.run_id}\n")
    basis = "the containers' runtimes" if cost["basis"] == "tasks" else "the workers' CPU time"
    write(
        pairs(
            (
                ("total", money(cost["total"])),
                ("  reading", money(cost["reading"])),
                ("  wasted", f"{money(cost['waste'])} (retries and duplicates)"),
                ("  idle", money(cost["idle"])),
                ("a million pages", money(cost["per_million_pages"])),
                ("pages", status.pages),
                ("vCPU hours", cost["vcpu_hours"]),
                ("containers", f"{cost['tasks']}, {cost['spot_tasks']} of them on Spot"),
                ("from", basis if status.report_uri else f"{basis}; the run has no report yet"),
            )
        )
    )
    return OK
