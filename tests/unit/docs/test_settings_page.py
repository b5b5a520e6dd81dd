"""docs/settings.md says what the code says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]


def test_the_settings_page_is_up_to_date() -> None:
    ran = subprocess.run(
        [sys.executable, "scripts/settings_reference.py"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
