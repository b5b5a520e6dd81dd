"""The plugin, as Airflow's loader finds it: the only file below plugins/ that the loader executes.

Thin on purpose: every process of Airflow loads it.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

from airflow.plugins_manager import AirflowPlugin

MOUNT = "pdf-ops"


@functools.cache
def _mounted_app() -> Any:
    """The app, or None where what it needs is missing."""
    try:
        from pdf_ops.api.mounted import mounted_app
    except ImportError:
        # MWAA starts without packages that it could not install; then Airflow must start, too.
        logging.getLogger(__name__).exception("the API of pdf_ops is left out: see requirements.txt")
        return None
    return mounted_app()


class PdfOpsPlugin(AirflowPlugin):
    """Names the pipeline in ``airflow plugins``, and mounts its API and pages under ``/pdf-ops``."""

    name = "pdf_ops"

    @property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override] # a list in the base class
        """The API and the pages; a property, so that only the api-server imports them."""
        app = _mounted_app()
        return [{"app": app, "url_prefix": f"/{MOUNT}", "name": "pdf_ops"}] if app is not None else []

    @property
    def external_views(self) -> list[dict[str, Any]]:  # type: ignore[override] # a list in the base class
        """Where Airflow shows the pages; without the API there are none."""
        if _mounted_app() is None:
            return []
        # Relative, so that they are found also where Airflow itself is below a prefix.
        return [
            {
                "name": "PDF run",
                "href": f"{MOUNT}/pages/runs/{{RUN_ID}}?dag_id={{DAG_ID}}",
                "destination": "dag_run",
                "url_route": "pdf_run",
            },
            {
                "name": "PDF documents",
                "href": f"{MOUNT}/pages/documents",
                "destination": "nav",
                "url_route": "pdf_documents",
            },
        ]
