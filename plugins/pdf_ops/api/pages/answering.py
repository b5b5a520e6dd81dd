"""How a page ends when it cannot be shown: with a page that says why and what to do, and soon.

One class of routes, so that no page has to think of it. The REST routes answer the same with problem+json.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from pdf_ops.api.pages.rendering import render
from pdf_ops.api.problems import ProblemError, explain_aws
from pdf_ops.api.services import Services

DEADLINE_S = 12.0
_log = logging.getLogger(__name__)


class PageRoute(APIRoute):
    """A route whose problems are pages."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Wrap what would answer."""
        answer = super().get_route_handler()

        async def answer_or_explain(request: Request) -> Response:
            try:
                return await _in_time(answer(request))
            except ProblemError as error:
                return explain(request, error.status, error.detail)
            except HTTPException as error:
                return explain(request, error.status_code, str(error.detail))
            except RequestValidationError as error:
                detail = "; ".join(f"{one['loc'][-1]}: {one['msg']}" for one in error.errors()[:5])
                return explain(request, 422, detail)
            except (ClientError, BotoCoreError) as error:
                _log.warning("page %s: AWS refused a call: %s", _request_id(request), error)
                return explain(request, 503, explain_aws(error))
            except TimeoutError:
                return explain(
                    request,
                    503,
                    f"AWS did not answer in {DEADLINE_S:.0f} seconds. Check the web server's way to it: "
                    "network, VPC endpoints, AWS_ENDPOINT_URL and the region.",
                )

        return answer_or_explain


async def _in_time(answering: Coroutine[Any, Any, Response]) -> Response:
    """Wait for an answer, but not for longer than a person does.

    It is left to end by itself then: a thread that waits for AWS cannot be stopped.

    Raises:
        TimeoutError: If it takes too long.
    """
    task = asyncio.ensure_future(answering)
    done, _ = await asyncio.wait({task}, timeout=DEADLINE_S)
    if not done:
        task.add_done_callback(lambda late: late.cancelled() or late.exception())
        raise TimeoutError
    return task.result()


def explain(request: Request, status: int, detail: str) -> Response:
    """A page that says what is wrong; for whoever has to log in first, the way to do it."""
    services = _services(request)
    takes_keys = services is not None and services.access.takes_keys
    if status == 401 and takes_keys:
        message = "" if detail.startswith("Send an API key") else detail
        return render(request, None, "login.html", status=401, message=message, next=_own_address(request))
    return render(
        request,
        services,
        "problem.html",
        status=status,
        code=status,
        title=HTTPStatus(status).phrase,
        detail=detail,
        needs_login=status == 401,
        request_id=_request_id(request),
    )


def _services(request: Request) -> Services | None:
    try:
        services: Services = request.app.state.services()
    except ProblemError:
        return None
    return services


def _own_address(request: Request) -> str:
    query = f"?{request.url.query}" if request.url.query else ""
    return f"{request.url.path}{query}" if request.method == "GET" else ""


def _request_id(request: Request) -> str:
    return str(request.scope.get("state", {}).get("request_id", ""))
