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

from pdf_ops.hooks.clients import error_code, is_throttled

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


def explain_aws(error: Exception) -> str:
    """What is wrong with AWS, and what to do: without names of resources, which the log has."""
    name, code = type(error).__name__, error_code(error)
    operation = getattr(error, "operation_name", "")
    if not code:
        if "Credential" in name or "Token" in name:
            return (
                f"AWS does not know who asks: there are no usable credentials ({name}). Give the web server "
                "a role, or the Airflow connection of the setting aws_conn_id."
            )
        return (
            f"AWS cannot be reached ({name}). Check the web server's way to it: network, VPC endpoints, "
            "AWS_ENDPOINT_URL and the region."
        )
    if is_throttled(error):
        return f"AWS is busy: {operation} was throttled ({code}). Try again in a minute."
    if "AccessDenied" in code or code in ("403", "AuthFailure"):
        return (
            f"AWS does not allow {operation} ({code}). Give the web server's role the policy of the "
            "control plane, as docs/deploy-airflow.md describes."
        )
    if (
        "Token" in code
        or "Signature" in code
        or code in ("InvalidAccessKeyId", "UnrecognizedClientException")
    ):
        return f"AWS does not take the web server's credentials ({code}). Renew or correct them."
    if "NotFound" in code or code.startswith("NoSuch") or code == "404":
        return (
            f"AWS has nothing under a name of the settings: {operation} says {code}. Check the names of "
            "tables, buckets and queues, and the region."
        )
    return f"AWS did not answer as it should: {operation} says {code}."


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
        detail = f"{explain_aws(error)} The log has the reason, under this request's id."
        return answer(request, 503, detail, {"Retry-After": "5"})

    app.add_exception_handler(ClientError, out_of_reach)
    app.add_exception_handler(BotoCoreError, out_of_reach)
