"""The command line: ``ocr-worker`` with ``extract``, ``run``, ``mirror`` or ``doctor``.

Turns arguments into settings and a run into an exit code; the work is elsewhere. Exit codes: 0 all
documents done, 1 some were not, 2 usage or environment.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ocr_worker import __version__
from ocr_worker.console import JsonReporter, choose_reporter, closing_table
from ocr_worker.inputs import InputError, find_files
from ocr_worker.options import (
    CONFIG_FILE_VARIABLE,
    DEFAULT_CONFIG_FILE,
    SettingsError,
    load,
    settings_of,
)
from ocr_worker.pages import ONE_THREAD_VARIABLES
from ocr_worker.settings import MirrorSettings, OutputFormat, ServiceSettings, WorkerSettings
from pdf_ops.contract.errors import PdfOpsError
from pdf_ops.contract.fingerprint import OcrMode

if TYPE_CHECKING:
    from collections.abc import Sequence

DONE = 0
SOME_FAILED = 1
USAGE_OR_ENVIRONMENT = 2

_SETTING_PREFIX = "setting_"
_SETTINGS_HELP = (
    "Each can also be given in the environment under the name in brackets, in .env, or in a YAML file "
    f"({DEFAULT_CONFIG_FILE} here, or ${CONFIG_FILE_VARIABLE}) under its own name; flags win, then the "
    "environment, then .env, then the file."
)


def build_parser() -> argparse.ArgumentParser:
    """The arguments, those of the settings made from their definition."""
    parser = argparse.ArgumentParser(
        prog="ocr-worker",
        description="Turns PDFs and images into rows, one per page, with the text and where it came from.",
    )
    parser.add_argument("--version", action="version", version=f"ocr-worker {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    extract = commands.add_parser(
        "extract",
        help="read files on this machine",
        description="Read PDF, PNG, JPEG and TIFF files, told by content and not by name, into "
        "DIR/pages.parquet and DIR/documents.parquet.",
        epilog="Exit code: 0 every document was read, 1 some were not (documents.parquet says why), "
        "2 wrong usage or environment.",
    )
    extract.add_argument("inputs", nargs="+", type=Path, metavar="FILE_OR_FOLDER", help="what to read")
    extract.add_argument("--out", required=True, type=Path, metavar="DIR", help="where to write")
    extract.add_argument(
        "--format",
        type=OutputFormat,
        choices=list(OutputFormat),
        default=OutputFormat.PARQUET,
        help="what to write (default: parquet)",
    )
    extract.add_argument(
        "--text-dir", type=Path, metavar="DIR", help="also write each document's text as a file there"
    )
    extract.add_argument("--json", action="store_true", help="progress and summary as JSON lines")
    extract.add_argument(
        "--profile", type=Path, metavar="FILE", help="write where the time went; HTML if it is named so"
    )
    _add_settings(extract, WorkerSettings)
    run = commands.add_parser(
        "run",
        help="read documents that a queue names, as a member of a fleet",
        description="Take messages from SQS, read their documents from S3, write Parquet, and keep account "
        "in DynamoDB. Ends when the queue is empty for a while; on SIGTERM finishes or gives back its work.",
    )
    run.add_argument("--forever", action="store_true", help="do not end when the queue is empty")
    _add_settings(run, ServiceSettings)
    mirror = commands.add_parser(
        "mirror",
        help="download the documents that a queue names, and read nothing",
        description="Take messages from SQS and put their documents into a folder, by bucket and key.",
    )
    mirror.add_argument("--to", required=True, type=Path, metavar="DIR", help="where to put them")
    mirror.add_argument("--forever", action="store_true", help="do not end when the queue is empty")
    _add_settings(mirror, MirrorSettings)
    doctor = commands.add_parser(
        "doctor",
        help="show engines, versions, languages and limits",
        description="Show which engines, versions, languages and limits are in force, and what is missing.",
    )
    doctor.add_argument(
        "--quick",
        action="store_true",
        help="only what would make every document fail, and nothing started: for a health check",
    )
    _add_settings(doctor, WorkerSettings)
    return parser


def _add_settings(parser: argparse.ArgumentParser, cls: type[Any]) -> None:
    group = parser.add_argument_group("settings", _SETTINGS_HELP)
    for setting in settings_of(cls):
        shown = "" if setting.default is None else f", default: {setting.default}"
        arguments: dict[str, Any] = {"action": argparse.BooleanOptionalAction}
        if setting.kind is not bool:
            arguments = {"metavar": setting.name.rpartition("_")[2].upper()}
        accepted = f"({setting.accepted}{shown}) [{setting.option.variable}]"
        group.add_argument(
            setting.flag,
            dest=f"{_SETTING_PREFIX}{setting.name}",
            default=None,
            help=f"{setting.option.description} {accepted}".replace("%", "%%"),
            **arguments,
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    is_alone = arguments is None  # With arguments it is called by another program, whose modules are its own.
    if is_alone:
        gc.freeze()  # What was loaded stays: no collection needs to look at it.
    for variable in ONE_THREAD_VARIABLES:
        os.environ.setdefault(variable, "1")
    options = build_parser().parse_args(arguments)
    options.is_alone = is_alone
    try:
        if options.command == "run":
            return _run(options)
        if options.command == "mirror":
            return _mirror(options)
        settings = load(WorkerSettings, _flags(options))
        if options.command == "doctor":
            return _doctor(settings, is_quick=options.quick)
        return _extract(options, settings)
    except SettingsError as error:
        return _fail(f"settings:\n  {str(error).replace(chr(10), chr(10) + '  ')}")
    except InputError as error:
        return _fail(str(error))
    except PdfOpsError as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return _fail("stopped at once; nothing was written")


def _flags(options: argparse.Namespace) -> dict[str, object]:
    return {
        name.removeprefix(_SETTING_PREFIX): value
        for name, value in vars(options).items()
        if name.startswith(_SETTING_PREFIX)
    }


def _run(options: argparse.Namespace) -> int:
    import asyncio

    from ocr_worker.aws import read_secret
    from ocr_worker.engines import tesseract
    from ocr_worker.isolation.kernel import hide_memory
    from ocr_worker.output import load_parquet
    from ocr_worker.service import serve

    hide_memory()
    if options.is_alone:
        load_parquet()
    settings = load(ServiceSettings, _flags(options))
    if settings.secret_name is not None:
        settings = load(ServiceSettings, _flags(options), asyncio.run(read_secret(settings)))
    if settings.ocr is not OcrMode.OFF:
        tesseract.check_languages(settings.reading.languages)
    stopped_by = asyncio.run(serve(settings, is_forever=options.forever))
    return _fail(str(stopped_by)) if stopped_by is not None else DONE


def _mirror(options: argparse.Namespace) -> int:
    import asyncio

    from ocr_worker.mirror import mirror

    settings = load(MirrorSettings, _flags(options))
    failed = asyncio.run(mirror(settings, options.to, is_forever=options.forever))
    return SOME_FAILED if failed else DONE


def _extract(options: argparse.Namespace, settings: WorkerSettings) -> int:
    from ocr_worker.engines import tesseract
    from ocr_worker.extract import Destination, Extraction
    from ocr_worker.isolation.kernel import hide_memory
    from ocr_worker.output import load_parquet

    hide_memory()
    if settings.ocr is not OcrMode.OFF:
        tesseract.check_languages(settings.reading.languages)
    files = find_files(options.inputs, without=[options.out, *filter(None, [options.text_dir])])
    if options.is_alone and options.format is OutputFormat.PARQUET:
        load_parquet()
    destination = Destination(folder=options.out, format=options.format, text_folder=options.text_dir)
    with choose_reporter(as_json=options.json) as reporter:
        extraction = Extraction(settings, files, destination, reporter, options.profile)
        stopped_by = extraction.run()
    summary = extraction.summary
    if extraction.isolation is not None and extraction.isolation.missing:
        print(f"ocr-worker: page processes were not kept in: {extraction.isolation.problem}", file=sys.stderr)
    if isinstance(reporter, JsonReporter):
        reporter.finished(summary)
    else:
        print(closing_table(summary))
    if stopped_by is not None:
        return _fail(str(stopped_by))
    return SOME_FAILED if summary.documents_failed else DONE


def _doctor(settings: WorkerSettings, *, is_quick: bool) -> int:
    from ocr_worker.doctor import examine, examine_quickly, report

    findings = examine_quickly(settings) if is_quick else examine(settings)
    print(report(findings))
    is_broken = any(finding.problem and finding.is_fatal for finding in findings)
    return USAGE_OR_ENVIRONMENT if is_broken else DONE


def _fail(message: str) -> int:
    print(f"ocr-worker: {message}", file=sys.stderr)
    return USAGE_OR_ENVIRONMENT
