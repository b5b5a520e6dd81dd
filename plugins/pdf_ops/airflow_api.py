"""Airflow's REST API, as far as we ask it for something from outside: who logs in, and which runs start.

The REST API and the command line start runs through it. Not for tasks: Airflow runs those itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    import httpx

    from pdf_ops.api.settings import ApiSettings

PIPELINE = "pdf_ocr"
REDRIVE = "pdf_redrive"
_TIMEOUT_S = 15.0
_CREATED = (200, 201)
_EXISTS = 409
_EXPIRED = 401


class AirflowApiError(Exception):
    """Airflow did not do what it was asked for; the message says why."""


@dataclass(kw_only=True)
class AirflowApi:
    """The API of one Airflow.

    Attributes:
        url: Where it is.
        username: Who logs in; nobody when empty.
        password: With what.
        token: A token instead of a login.
        headers: Headers instead of both.
        transport: Another way to it than the network.
    """

    url: str
    username: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    headers: Iterable[tuple[str, str]] = field(default=(), repr=False)
    transport: httpx.AsyncBaseTransport | None = None
    _login: str = field(default="", init=False, repr=False)

    @classmethod
    def of(cls, settings: ApiSettings) -> Self:
        """The one that the settings name."""
        return cls(
            url=settings.airflow_url,
            username=settings.airflow_username,
            password=settings.airflow_password,
            token=settings.airflow_token,
        )

    async def start_run(
        self,
        dag_id: str,
        run_id: str,
        conf: dict[str, Any],
        *,
        note: str,
        run_after: datetime | None = None,
    ) -> None:
        """Start a run; one of this id that is there already is as good.

        Args:
            dag_id: The DAG.
            run_id: The id that the run is to have.
            conf: Its params.
            note: Who asks, for people.
            run_after: When it begins; at once unless given.

        Raises:
            AirflowApiError: If there is none afterwards.
        """
        body = {"dag_run_id": run_id, "logical_date": None, "conf": conf, "note": note}
        if run_after is not None:
            body["run_after"] = run_after.isoformat()
        answer = await self._ask("POST", f"/api/v2/dags/{dag_id}/dagRuns", body)
        if answer.status_code not in (*_CREATED, _EXISTS):
            raise AirflowApiError(f"Airflow answered {answer.status_code}: {answer.text[:300]}")

    async def is_paused(self, dag_id: str) -> bool:
        """Whether a DAG's runs wait for somebody to unpause it.

        Raises:
            AirflowApiError: If Airflow does not know the DAG, or does not let us see it.
        """
        answer = await self._ask("GET", f"/api/v2/dags/{dag_id}")
        if answer.status_code not in _CREATED:
            raise AirflowApiError(f"Airflow answered {answer.status_code}: {answer.text[:300]}")
        return bool(answer.json()["is_paused"])

    async def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
        import httpx

        if not self.url:
            raise AirflowApiError(
                "PDF_OPS_AIRFLOW_URL is not set: it says where Airflow is; PDF_OPS_AIRFLOW_TOKEN, or "
                "PDF_OPS_AIRFLOW_USERNAME and PDF_OPS_AIRFLOW_PASSWORD, who asks"
            )
        try:
            async with httpx.AsyncClient(
                base_url=self.url, timeout=_TIMEOUT_S, trust_env=False, transport=self.transport
            ) as http:
                answer = await http.request(method, path, json=body, headers=await self._headers(http))
                if answer.status_code == _EXPIRED and self._login:
                    self._login = ""
                    answer = await http.request(method, path, json=body, headers=await self._headers(http))
                return answer
        except (httpx.HTTPError, OSError) as error:
            raise AirflowApiError(f"Airflow cannot be reached: {type(error).__name__}: {error}") from error

    async def _headers(self, http: httpx.AsyncClient) -> dict[str, str]:
        if given := dict(self.headers):
            return given
        if not self.token and not self._login and self.username:
            login = {"username": self.username, "password": self.password}
            answer = await http.post("/auth/token", json=login)
            if answer.status_code not in _CREATED:
                raise AirflowApiError(f"Airflow did not let us in: {answer.status_code}")
            self._login = str(answer.json()["access_token"])
        token = self.token or self._login
        return {"Authorization": f"Bearer {token}"} if token else {}
