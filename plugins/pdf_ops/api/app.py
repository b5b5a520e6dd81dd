"""The app: the same routes wherever it is served, with whatever decides who may.

Made without talking to anybody, so that Airflow's api-server starts also when settings are missing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from fastapi import FastAPI

from pdf_ops.api import (
    document_routes,
    health_routes,
    job_routes,
    redrive_routes,
    run_routes,
    search_routes,
)
from pdf_ops.api.pages.routes import add_pages
from pdf_ops.api.problems import ProblemError, handle_problems
from pdf_ops.api.requests_log import RequestLog
from pdf_ops.api.services import Services
from pdf_ops.exceptions import SettingsError

_DESCRIPTION = """
Upload documents, follow them, read their text, and send failed ones round again.

Errors are `application/problem+json`. Every answer has an `X-Request-ID`, and all but the health
checks have `X-RateLimit-*`.
"""
_log = logging.getLogger(__name__)


def create_app(make_services: Callable[[], Services]) -> FastAPI:
    """An app whose services are made when they are first asked for.

    Args:
        make_services: Makes them; a SettingsError becomes 503.
    """
    app = FastAPI(title="pdf_ops", version="1", description=_DESCRIPTION, redoc_url=None)
    made: list[Services] = []

    def services() -> Services:
        if not made:
            try:
                made.append(make_services())
            except SettingsError as error:
                _log.error("the API cannot work: %s", error)
                raise ProblemError(
                    503, "The pipeline's settings cannot be used; the log names them."
                ) from None
        return made[0]

    app.state.services = services
    for routes in (job_routes, document_routes, run_routes, search_routes, redrive_routes, health_routes):
        app.include_router(routes.router)
    add_pages(app)
    handle_problems(app)
    app.add_middleware(RequestLog)
    return app
