"""The plugin, as Airflow's loader finds it: the only file below plugins/ that the loader executes.

Thin on purpose: every process of Airflow loads it.
"""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin


class PdfOpsPlugin(AirflowPlugin):
    """Names the pipeline in ``airflow plugins``."""

    name = "pdf_ops"
