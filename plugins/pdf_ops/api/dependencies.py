"""What routes ask for: the services, and a client who may. Not for what they do then."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Path, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.exceptions import HTTPException

from pdf_ops.api.access import Client, Scope
from pdf_ops.api.ids import ID_PATTERN, MAX_ID_CHARS
from pdf_ops.api.problems import ProblemError
from pdf_ops.api.services import Services

PAGE_HEADER = "X-PDF-Ops-Page"
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_SITE = frozenset({"same-origin", "none"})
# For the documentation; who may is decided by what the app was made with.
_bearer = HTTPBearer(auto_error=False, description="An API key, or a token of Airflow.")


def services_of(request: Request) -> Services:
    """What the app works with.

    Raises:
        ProblemError: 503 while the pipeline's settings cannot be used; the log says which.
    """
    services: Services = request.app.state.services()
    return services


async def take_token(request: Request, services: Services, client_id: str) -> None:
    """Count a request against a client.

    Raises:
        ProblemError: 429.
    """
    allowance = await services.limiter.take(client_id)
    request.state.rate_headers = allowance.headers()
    if allowance.is_limited:
        raise ProblemError(429, f"Too many requests: try again in {allowance.retry_after_s} s.")


def refuse_other_sites(request: Request) -> None:
    """Keep other web sites from changing anything in the name of somebody whose browser knows a cookie.

    A browser says where a request comes from, and lets no other site set a header of its own choice.

    Raises:
        ProblemError: 403.
    """
    if request.method in _SAFE_METHODS:
        return
    if request.headers.get("sec-fetch-site", "none") not in _OWN_SITE:
        raise ProblemError(403, "A page of another site may not ask for this.")
    is_by_cookie = bool(request.cookies) and "authorization" not in request.headers
    if is_by_cookie and PAGE_HEADER not in request.headers:
        raise ProblemError(403, f"A request that a cookie vouches for needs the header {PAGE_HEADER}: 1.")


def require(scope: Scope) -> Callable[..., Awaitable[Client]]:
    """A dependency: whoever asks may, and not too often."""

    async def client(
        request: Request, _: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
    ) -> Client:
        services = services_of(request)
        refuse_other_sites(request)
        try:
            found = await services.access.authenticate(request, scope)
        except (ProblemError, HTTPException):
            # Guessing costs tokens, too.
            await take_token(request, services, f"address:{request.client.host if request.client else ''}")
            raise
        request.state.client_id = found.id
        await take_token(request, services, found.id)
        return found

    return client


ServicesDep = Annotated[Services, Depends(services_of)]
Reader = Annotated[Client, Depends(require(Scope.READ))]
Uploader = Annotated[Client, Depends(require(Scope.UPLOAD))]
Redriver = Annotated[Client, Depends(require(Scope.REDRIVE))]
DocumentId = Annotated[
    str, Path(pattern=ID_PATTERN, max_length=MAX_ID_CHARS, examples=["dXBsb2Fkcy9hLnBkZg"])
]
