"""Running the worker in tests: as a user does, or with an engine that goes wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from ocr_worker.extract import Destination, Extraction
from ocr_worker.settings import OutputFormat, WorkerSettings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ocr_worker.pages import PoolConfig
    from pdf_ops.contract.documents import DocumentRow
    from pdf_ops.contract.errors import PdfOpsError
    from pdf_ops.contract.pages import PageRow

REPOSITORY = Path(__file__).resolve().parents[2]
OCR_WORKER = [sys.executable, "-m", "ocr_worker"]


@dataclass(frozen=True, slots=True)
class Result:
    """What a run left behind."""

    pages: list[dict[str, Any]]
    documents: list[dict[str, Any]]
    exit_code: int = 0
    output: str = ""
    errors: str = ""
    stopped_by: PdfOpsError | None = None

    @property
    def text(self) -> str:
        return "\f".join(page["text"] for page in self.pages)

    @property
    def outcomes(self) -> dict[str, str]:
        """Document name to status, with the error if there is one."""
        return {
            row["source_uri"].rsplit("/", 1)[1]: row["status"]
            if row["error_class"] is None
            else f"{row['status']} {row['error_class']}/{row['error_code']}"
            for row in self.documents
        }

    @property
    def page_errors(self) -> list[str | None]:
        """Each page's error, in order."""
        return [
            f"{row['error_class']}/{row['error_code']}" if row["error_class"] else None for row in self.pages
        ]


def rows_in(folder: Path) -> Result:
    return Result(
        pq.read_table(folder / "pages.parquet").to_pylist(),
        pq.read_table(folder / "documents.parquet").to_pylist(),
    )


def extract(
    inputs: Sequence[Path] | Path, out: Path, *flags: str, env: Mapping[str, str] | None = None
) -> Result:
    """``ocr-worker extract`` as a program."""
    given = [inputs] if isinstance(inputs, Path) else inputs
    ran = subprocess.run(
        [*OCR_WORKER, "extract", *map(str, given), "--out", str(out), *flags],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | dict(env or {}),
        cwd=out.parent,
    )
    written = rows_in(out) if (out / "pages.parquet").exists() else Result([], [])
    return replace(written, exit_code=ran.returncode, output=ran.stdout, errors=ran.stderr)


@dataclass(frozen=True)
class _FaultySettings(WorkerSettings):
    """Settings that put a test's engine in place of a real one, which no flag or variable can do."""

    faulty_recognizer: str = "auto"
    faulty_parser: str = "pdfium"

    def pool(
        self, scratch: Path, profile_folder: Path | None = None, readable: tuple[Path, ...] = ()
    ) -> PoolConfig:
        config = WorkerSettings.pool(self, scratch, profile_folder, readable)
        process = replace(config.process, recognizer=self.faulty_recognizer, parser=self.faulty_parser)
        return replace(config, process=process)


class _Silent:
    def page(self, summary: object, row: PageRow) -> None: ...

    def document(self, summary: object, row: DocumentRow) -> None: ...


def extract_with(
    inputs: Sequence[Path] | Path,
    out: Path,
    *,
    recognizer: type | None = None,
    parser: type | None = None,
    **settings: Any,
) -> Result:
    """The same in this process, with an engine of ``tests.support.engines``; page processes are real."""
    given = [inputs] if isinstance(inputs, Path) else list(inputs)
    names = {}
    if recognizer is not None:
        names["faulty_recognizer"] = f"{recognizer.__module__}:{recognizer.__qualname__}"
    if parser is not None:
        names["faulty_parser"] = f"{parser.__module__}:{parser.__qualname__}"
    chosen = _FaultySettings(**{"processes": 2, "page_timeout_s": 20.0} | settings | names)
    destination = Destination(folder=out, format=OutputFormat.PARQUET)
    extraction = Extraction(chosen, [path.resolve() for path in given], destination, _Silent())
    stopped_by = extraction.run()
    return replace(rows_in(out), stopped_by=stopped_by)
