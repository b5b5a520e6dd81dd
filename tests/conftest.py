"""What must be true before any test module is imported: Airflow stays out of the user's own files."""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]

# Airflow reads these when it is first imported. One home per version, as their databases differ.
# The worker's tests also run where Airflow is not installed.
try:
    _airflow = importlib.metadata.version("apache-airflow")
except importlib.metadata.PackageNotFoundError:
    pass
else:
    os.environ["AIRFLOW_HOME"] = str(REPOSITORY / ".build" / f"airflow-{_airflow}")
    os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
