"""Starts runs in Airflow, so that somebody comes to read what was uploaded or is sent round again.

By Airflow's own API: inside the api-server without leaving the process and in the caller's name, from
elsewhere by its URL. Uploads of a few seconds share one run; its id follows from the time alone, so
that processes need not agree on it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from pdf_ops.airflow_api import PIPELINE, AirflowApi, AirflowApiError
from pdf_ops.api.access import Client
from pdf_ops.api.settings import ApiSettings

MARGIN_S = 5.0
"""Before a run looks: clocks differ, and a run leaves out what S3 says was written after it began."""
_MAX_REMEMBERED = 1_000
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """A run that reads uploads.

    Attributes:
        run_id: Its id.
        prefix: It reads what is below.
        run_after: When it begins.
        closes_at: What is stored later than this is not surely seen by it.
    """

    run_id: str
    prefix: str
    run_after: datetime
    closes_at: datetime

    @classmethod
    def of_window(cls, upload_prefix: str, window_s: int, now: datetime) -> Visit:
        """The run that uploads of this moment share."""
        began = datetime.fromtimestamp(now.timestamp() // window_s * window_s, UTC)
        ends = began + timedelta(seconds=window_s)
        return cls(
            run_id=f"upload__{began:%Y-%m-%dT%H:%M:%SZ}",
            prefix=f"{upload_prefix}{began:%Y%m%dT%H%M%SZ}/",
            run_after=ends + timedelta(seconds=MARGIN_S),
            closes_at=ends + timedelta(seconds=1),
        )

    @classmethod
    def of_one(cls, key: str, name: str, now: datetime) -> Visit:
        """A run for one document alone."""
        return cls(
            run_id=f"upload__{name}", prefix=key, run_after=now + timedelta(seconds=MARGIN_S), closes_at=now
        )


class Doorbell:
    """Airflow's API.

    :param settings: Where it is, for an API that runs by itself.
    :param is_mounted: Whether this is Airflow's own process.
    """

    def __init__(self, settings: ApiSettings, *, is_mounted: bool) -> None:
        self._airflow = AirflowApi.of(settings)
        self._is_mounted = is_mounted
        self._rung: dict[str, None] = {}

    async def ring(self, visit: Visit, client: Client) -> bool:
        """Have a run read the uploads of a window; False if that could not be arranged."""
        if visit.run_id in self._rung:
            return True
        # Forced, so that the run publishes also what a worker has read by the time it lists.
        conf = {"prefix": visit.prefix, "force": True}
        try:
            await self.start(PIPELINE, visit.run_id, conf, client, run_after=visit.run_after)
        except AirflowApiError as error:
            _log.warning("no run was started for uploads: %s", error)
            return False
        self._rung[visit.run_id] = None
        while len(self._rung) > _MAX_REMEMBERED:
            del self._rung[next(iter(self._rung))]
        return True

    async def start(
        self,
        dag_id: str,
        run_id: str,
        conf: dict[str, Any],
        client: Client,
        *,
        run_after: datetime | None = None,
    ) -> None:
        """Start a run; one of this id that is there already is as good.

        Raises:
            AirflowApiError: If there is none afterwards.
        """
        airflow = self._airflow
        if self._is_mounted:
            # The app that this very process serves: its authentication and its audit log, and no network.
            from airflow.api_fastapi.main import app

            transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
            airflow = AirflowApi(url="http://airflow.invalid", headers=client.headers, transport=transport)
        await airflow.start_run(dag_id, run_id, conf, note=f"by {client.id}", run_after=run_after)
