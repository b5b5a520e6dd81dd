"""The plugin, as Airflow's loader finds it: the only file below plugins/ that the loader executes.

Thin on purpose: every process of Airflow loads it.
"""

from __future__ import annotations

import logging
from typing import Any

from airflow.plugins_manager import AirflowPlugin


class PdfOpsPlugin(AirflowPlugin):
    """Names the pipeline in ``airflow plugins``, and mounts its API under ``/pdf-ops``."""

    name = "pdf_ops"

    @property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override] # a list in the base class
        """The API; a property, so that only the api-server imports it."""
        try:
            from pdf_ops.api.mounted import mounted_app
        except ImportError:
            # MWAA starts without packages that it could not install; then Airflow must start, too.
            logging.getLogger(__name__).exception("the API of pdf_ops is left out: see requirements.txt")
            return []
        return [{"app": mounted_app(), "url_prefix": "/pdf-ops", "name": "pdf_ops"}]
