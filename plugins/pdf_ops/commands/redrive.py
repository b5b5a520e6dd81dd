"""``pdf-ops redrive``: count what would go round again, ask, and have Airflow run ``pdf_redrive``."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from pdf_ops.commands.output import add_json, table, write, write_json
from pdf_ops.commands.runs import error_class
from pdf_ops.commands.session import EXIT_CODES, OK, UNUSABLE, WRONG, CommandError, Session

if TYPE_CHECKING:
    from pdf_ops.redrive import Selection

MAX_LIMIT = 100_000


def add_to(commands: Any) -> None:
    """Add the command."""
    redrive = commands.add_parser(
        "redrive",
        help="send failed or badly read documents round again",
        description="Count the dead letters that match, ask, and start the DAG pdf_redrive. Everything that "
        "is given must hold; with nothing given, every dead letter is meant. A letter is deleted only after "
        "its document was sent.",
        epilog="Airflow is where PDF_OPS_AIRFLOW_URL says, and who asks is PDF_OPS_AIRFLOW_TOKEN, or "
        f"PDF_OPS_AIRFLOW_USERNAME and PDF_OPS_AIRFLOW_PASSWORD. {EXIT_CODES}.",
    )
    redrive.add_argument("--run", dest="run_id", metavar="RUN", help="only documents of this run")
    redrive.add_argument(
        "--class",
        dest="error_class",
        metavar="CLASS",
        type=error_class,
        help="only those that failed with it",
    )
    redrive.add_argument("--prefix", metavar="PREFIX", help="only keys that begin with it")
    redrive.add_argument(
        "--confidence-below",
        type=_confidence,
        metavar="0-100",
        help="not dead letters: documents that OCR read with less confidence, read again",
    )
    redrive.add_argument(
        "--limit",
        type=_limit,
        default=10_000,
        help=f"so many at most (default %(default)s, up to {MAX_LIMIT})",
    )
    redrive.add_argument("--dry-run", action="store_true", help="only count")
    redrive.add_argument("--yes", action="store_true", help="do not ask")
    redrive.add_argument(
        "--approval", action="store_true", help="the run waits until a person approves it in Airflow, too"
    )
    add_json(redrive)
    redrive.set_defaults(handler=_redrive)


def _confidence(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 100:
        raise argparse.ArgumentTypeError(f"{text:.20} is not from 0 to 100")
    return value


def _limit(text: str) -> int:
    value = int(text)
    if not 1 <= value <= MAX_LIMIT:
        raise argparse.ArgumentTypeError(f"{text:.20} is not from 1 to {MAX_LIMIT}")
    return value


def _redrive(session: Session, options: argparse.Namespace) -> int:
    import asyncio
    from datetime import UTC, datetime

    from pdf_ops.airflow_api import REDRIVE, AirflowApi, AirflowApiError
    from pdf_ops.api.settings import load
    from pdf_ops.redrive import Criteria, new_run_id, select

    airflow = AirflowApi.of(load())
    if not options.dry_run and not airflow.url:
        # Before counting, which may take minutes.
        raise CommandError(
            "PDF_OPS_AIRFLOW_URL is not set, so no run can be started. Set it, and PDF_OPS_AIRFLOW_TOKEN or "
            "PDF_OPS_AIRFLOW_USERNAME and PDF_OPS_AIRFLOW_PASSWORD; or count with --dry-run and trigger "
            "pdf_redrive in Airflow",
            UNUSABLE,
        )
    wanted = {
        "run_id": options.run_id,
        "error_class": options.error_class,
        "prefix": options.prefix,
        "confidence_below": options.confidence_below,
    }
    found = select(
        Criteria(**wanted),
        session.settings,
        sqs=session.client("sqs"),
        s3=session.client("s3"),
        limit=options.limit,
    )
    if not options.json:
        _show(found)
    if options.dry_run or not found.sources:
        if options.json:
            _write_answer(found, None)
        return OK
    if not options.yes and not _is_wanted(len(found.sources)):
        sys.stderr.write("Nothing was sent.\n")
        return WRONG
    run_id = new_run_id(datetime.now(UTC))
    conf = {name: value for name, value in wanted.items() if value is not None}
    conf |= {"limit": options.limit, "dry_run": False, "approval": options.approval}
    try:
        asyncio.run(airflow.start_run(REDRIVE, run_id, conf, note="by pdf-ops redrive"))
    except AirflowApiError as error:
        raise CommandError(f"no run was started, and nothing was sent. {error}") from None
    if options.json:
        _write_answer(found, run_id)
    else:
        write(f"Started {run_id}. Follow it: pdf-ops status --watch '{run_id}'")
    return OK


def _write_answer(found: Selection, run_id: str | None) -> None:
    write_json(
        {
            "documents": len(found.sources),
            "by_error": dict(found.by_error.most_common()),
            "is_complete": found.is_complete,
            "unreadable": found.unreadable,
            "run_id": run_id,
        }
    )


def _show(found: Selection) -> None:
    if not found.sources:
        write("No document matches.")
        return
    write(table(("error", "documents"), found.by_error.most_common(), right=("documents",)))
    write(f"\n{len(found.sources):,} documents would go round again.")
    if not found.is_complete:
        write("There are more than --limit, or than there was time to look at: run it again afterwards.")
    if found.unreadable:
        write(f"{found.unreadable:,} letters name no document, and stay where they are.")


def _is_wanted(documents: int) -> bool:
    sys.stderr.write(f"Send {documents:,} documents round again? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
