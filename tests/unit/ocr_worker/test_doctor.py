"""What ``ocr-worker doctor`` says, and when it says that nothing can be read."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.support.worker import OCR_WORKER

from ocr_worker.doctor import examine_quickly
from ocr_worker.settings import WorkerSettings

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("flags", [[], ["--quick"]], ids=["whole", "quick"])
def test_doctor_fails_where_nothing_can_be_read(tmp_path: Path, flags: list[str]) -> None:
    def examine(*more: str) -> subprocess.CompletedProcess[str]:
        command = [*OCR_WORKER, "doctor", *flags, *more]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    well = examine()
    without_language = examine("--languages", "xxx")
    without_scratch = examine("--scratch-dir", str(tmp_path / "missing"))

    assert [ran.returncode for ran in (well, without_language, without_scratch)] == [0, 2, 2]
    assert "apt-get install tesseract-ocr-xxx" in without_language.stdout
    assert "set OCR_SCRATCH_DIR" in without_scratch.stdout


def test_the_quick_look_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a health check, beside page processes that use every core."""
    started: list[object] = []
    monkeypatch.setattr(subprocess, "Popen", lambda *arguments, **_: started.append(arguments))

    findings = examine_quickly(WorkerSettings())

    assert {finding.name for finding in findings} == {"OCR", "languages", "orientation", "scratch"}
    assert not started
