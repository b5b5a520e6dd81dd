"""Everything that can be wrong with a request, as problem+json (RFC 9457).

One class, one body, one set of handlers. A mistake of ours is the request log's to answer.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

MEDIA_TYPE = "application/problem+json"
_log = logging.getLogger(__name__)


class ProblemError(Exception):
    """Ends a request with a problem.

    Attributes:
        status: The HTTP status.
        detail: What is wrong, and what to do.
        headers: Headers that go with it.
        more: Further members of the body.
    """

    def __init__(
        self, status: int, detail: str, *, headers: Mapping[str, str] | None = None, **more: Any
    ) -> None:
        super().__init__(status, detail)
        self.status, self.detail, self.headers, self.more = status, detail, dict(headers or {}), more


class Problem(BaseModel):
    """What is wrong with a request."""

    type: str = Field(examples=["about:blank"])
    title: str = Field(examples=["Not Found"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["There is no such document."])
    request_id: str = Field(examples=["4f1c7a3e0d9b4c7f"])
    errors: list[dict[str, Any]] | None = Field(default=None, description="What is wrong with each field.")


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The problems that a route documents, with those that every route has."""
    return {
        status: {
            "model": Problem,
            "description": HTTPStatus(status).phrase,
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status in sorted({401, 403, 422, 429, 503, *statuses})
    }


def answer(
    request: Request, status: int, detail: str, headers: Mapping[str, str] | None = None, **more: Any
) -> JSONResponse:
    """A problem as a response."""
    body = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "request_id": request.scope.get("state", {}).get("request_id", ""),
        **more,
    }
    return JSONResponse(body, status, dict(headers or {}), MEDIA_TYPE)


def handle_problems(app: FastAPI) -> None:
    """Have every error of an app answered as a problem."""
    from botocore.exceptions import BotoCoreError, ClientError

    @app.exception_handler(ProblemError)
    async def problem(request: Request, error: ProblemError) -> JSONResponse:
        return answer(request, error.status, error.detail, error.headers, **error.more)

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> JSONResponse:
        return answer(request, error.status_code, str(error.detail), error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        # Not the input itself: it may be large, and no JSON.
        errors = [
            {"field": ".".join(map(str, one["loc"])), "problem": str(one["msg"])} for one in error.errors()
        ]
        detail = "; ".join(f"{one['field']}: {one['problem']}" for one in errors[:5])
        return answer(request, 422, detail, errors=errors)

    async def out_of_reach(request: Request, error: Exception) -> JSONResponse:
        request_id = request.scope.get("state", {}).get("request_id", "")
        _log.warning("request %s: AWS refused a call: %s", request_id, error)
        return answer(
            request,
            503,
            f"AWS did not answer as it should ({type(error).__name__}). The log has the reason, under this "
            "request's id.",
            {"Retry-After": "5"},
        )

    app.add_exception_handler(ClientError, out_of_reach)
    app.add_exception_handler(BotoCoreError, out_of_reach)
