"""Who asks, and what they may, inside Airflow: its own users and roles.

Reading needs to read the pipeline's DAG; uploading and redriving need to trigger it. Imported by the
api-server only.
"""

from __future__ import annotations

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import get_user, requires_access_dag
from fastapi.security import HTTPAuthorizationCredentials
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from pdf_ops.api.access import Client, Scope

_NEEDED = {
    Scope.READ: requires_access_dag("GET", None, "pdf_ocr"),
    Scope.UPLOAD: requires_access_dag("POST", DagAccessEntity.RUN, "pdf_ocr"),
    Scope.REDRIVE: requires_access_dag("POST", DagAccessEntity.RUN, "pdf_redrive"),
}
# What Airflow itself knows its users by; both reach its own API when a run is started.
_FORWARDED = ("authorization", "cookie")


class AirflowAccess:
    """Airflow's auth manager, whichever it is."""

    takes_keys = False

    async def authenticate(self, request: Request, scope: Scope) -> Client:
        """See ``pdf_ops.api.access.Access``; Airflow raises its own 401 and 403."""
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        bearer = HTTPAuthorizationCredentials(scheme=kind, credentials=token) if token else None
        user = await get_user(request, None, bearer)
        await run_in_threadpool(_NEEDED[scope], request, user)
        headers = tuple((name, request.headers[name]) for name in _FORWARDED if name in request.headers)
        return Client(id=f"user:{user.get_id()}", headers=headers)
