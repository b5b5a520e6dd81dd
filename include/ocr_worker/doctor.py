"""``ocr-worker doctor``: which engines, versions, languages and limits are in force, and what is missing.

Looks only; the limits are tried in a process of their own. The quick look, a container's health check,
starts no process and loads no engine.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ocr_worker import __version__
from ocr_worker.engines import images, pdfium, poppler, pypdf_text, tesseract
from ocr_worker.isolation.sandbox import Isolation, SandboxMode, try_out
from ocr_worker.limits import Limits, limits_in_force
from pdf_ops.contract.errors import PdfOpsError
from pdf_ops.contract.fingerprint import OcrMode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ocr_worker.settings import WorkerSettings

_LOW_DISK_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of the report.

    Attributes:
        name: What was looked at.
        found: What is there.
        problem: What is wrong and what to do, empty if nothing is.
        is_fatal: Whether nothing can be read with that.
    """

    name: str
    found: str
    problem: str = ""
    is_fatal: bool = False


def examine(settings: WorkerSettings) -> list[Finding]:
    """Look at everything."""
    return [
        Finding(name="ocr-worker", found=f"{__version__} on Python {platform.python_version()}"),
        *_engines(),
        *_languages(settings),
        *_limits(settings.limits),
        _isolation(settings.sandbox, settings.scratch_dir),
        _scratch(settings),
        Finding(
            name="reading",
            found=f"ocr {settings.ocr.value}, {settings.languages}, {settings.dpi} dpi, "
            f"at most {settings.max_page_pixels:,} pixels a page; "
            f"configuration {settings.reading.config_hash}",
        ),
        Finding(
            name="processes",
            found=f"{settings.processes}, each for {settings.max_docs_per_process} documents; "
            f"{settings.page_timeout_s:g} s a page, {settings.document_timeout_s:g} s a document",
        ),
    ]


def examine_quickly(settings: WorkerSettings) -> list[Finding]:
    """Look only at what would make every document fail."""
    return [_ocr_is_there(), *_languages(settings), _scratch(settings)]


def report(findings: list[Finding]) -> str:
    """The findings for people."""
    width = max(len(finding.name) for finding in findings)
    lines = []
    for finding in findings:
        mark = "ok  " if not finding.problem else "FAIL" if finding.is_fatal else "warn"
        lines.append(f"{mark}  {finding.name:<{width}}  {finding.found}")
        if finding.problem:
            lines.append(f"      {'':<{width}}  {finding.problem}")
    return "\n".join(lines)


def _engines() -> Iterator[Finding]:
    yield Finding(name="first parser", found=pdfium.version())
    yield Finding(name="second parser", found=pypdf_text.version())
    yield Finding(name="images", found=f"{images.version()} ({', '.join(images.FORMATS)})")
    second = poppler.version()
    yield Finding(
        name="second renderer",
        found=second or "missing",
        problem="" if second else "Damaged pages get no second try; run: apt-get install poppler-utils",
    )
    in_process, program = tesseract.tesserocr_version(), tesseract.program_version()
    yield Finding(
        name="OCR",
        found=in_process or program or "missing",
        problem=""
        if in_process
        else "OCR takes 1.3 times the CPU without tesserocr; run: pip install tesserocr"
        if program
        else "No page can be read by OCR; run: pip install tesserocr, or apt-get install tesseract-ocr",
        is_fatal=not (in_process or program),
    )
    yield Finding(
        name="OCR stand-in",
        found=program or "missing",
        problem="" if program else "tesserocr has no stand-in; run: apt-get install tesseract-ocr",
    )


def _ocr_is_there() -> Finding:
    """Whether there is an OCR engine, told without loading or starting it."""
    has_library = importlib.util.find_spec("tesserocr") is not None
    has_engine = has_library or shutil.which(tesseract.PROGRAM) is not None
    return Finding(
        name="OCR",
        found="tesserocr" if has_library else tesseract.PROGRAM if has_engine else "missing",
        problem="" if has_engine else "No page can be read by OCR; run: pip install tesserocr",
        is_fatal=True,
    )


def _languages(settings: WorkerSettings) -> Iterator[Finding]:
    problem = ""
    try:
        tesseract.check_languages(settings.reading.languages)
    except PdfOpsError as error:
        problem = error.detail
    installed = ", ".join(tesseract.installed_languages()) or "none"
    yield Finding(
        name="languages",
        found=f"{installed} in {tesseract.data_folder() or 'no folder'}",
        problem=problem,
        is_fatal=settings.ocr is not OcrMode.OFF,
    )
    has_orientation = tesseract.has_orientation_data()
    yield Finding(
        name="orientation",
        found="osd" if has_orientation else "missing",
        problem=""
        if has_orientation
        else "Some turned pages are not recognised; run: apt-get install tesseract-ocr-osd",
    )


def _limits(limits: Limits) -> Iterator[Finding]:
    """Each limit, tried in a process that ends with it."""
    code = "import json, sys; from ocr_worker import doctor; print(doctor.tried_limits(sys.argv[1]))"
    wanted = json.dumps({"memory_bytes": limits.memory_bytes, "page_timeout_s": limits.page_timeout_s})
    ran = subprocess.run([sys.executable, "-c", code, wanted], capture_output=True, text=True, check=False)
    held: dict[str, bool] = json.loads(ran.stdout) if ran.returncode == 0 else {}
    missing = [name for name, holds in held.items() if not holds]
    yield Finding(
        name="limits",
        found=f"{limits.memory_bytes // 2**20} MiB per page process; "
        f"in force: {', '.join(name for name, holds in held.items() if holds) or 'none'}",
        problem=f"Not in force on this system: {', '.join(missing)}" if missing or not held else "",
    )


def _isolation(mode: SandboxMode, scratch: Path) -> Finding:
    """What keeps page processes in, tried in a process of its own."""
    try:
        found = try_out(mode, scratch)
    except OSError:  # The next finding says what is wrong with the scratch.
        found = Isolation(())
    names = ", ".join(wall.value for wall in found.in_force)
    return Finding(
        name="isolation",
        found=f"{mode.value}; in force: {names or 'none'}",
        problem=found.problem,
        is_fatal=mode is SandboxMode.REQUIRE,
    )


def tried_limits(wanted: str) -> str:
    """What holds of the limits, as JSON; binds the process that asks."""
    return json.dumps(limits_in_force(Limits(**json.loads(wanted))))


def _scratch(settings: WorkerSettings) -> Finding:
    folder, problem, free = settings.scratch_dir, "", 0
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        problem = error.strerror or str(error)
    else:
        # Also false on a file system that is mounted read-only.
        problem = "" if os.access(folder, os.W_OK | os.X_OK) else "It cannot be written"
    if problem:
        return Finding(
            name="scratch",
            found=str(folder),
            problem=f"{problem}; set OCR_SCRATCH_DIR to a folder that can be written",
            is_fatal=True,
        )
    return Finding(
        name="scratch",
        found=f"{folder}, {free / 1e9:.1f} GB free",
        problem="Less than 1 GB is free; set OCR_SCRATCH_DIR" if free < _LOW_DISK_BYTES else "",
    )
