"""Logging in to the pages of an API that runs by itself, with an API key.

The key goes into a cookie that no script can read and that the browser sends to this site alone: so
links, images and pdf.js need no code for it, and a script that got into a page could not take it away.
Inside Airflow there is nothing to do here: Airflow's own cookie vouches for its users.
"""

from __future__ import annotations

import urllib.parse

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from pdf_ops.api.access import KEY_COOKIE, Scope
from pdf_ops.api.dependencies import ServicesDep, take_token
from pdf_ops.api.pages.answering import PageRoute
from pdf_ops.api.pages.rendering import PREFIX, render
from pdf_ops.api.problems import ProblemError

MAX_FORM_BYTES = 4_096
router = APIRouter(prefix=PREFIX, include_in_schema=False, route_class=PageRoute)


@router.post("/login")
async def log_in(request: Request, services: ServicesDep) -> Response:
    """Take a key, if it is one, and go on to where the person wanted to be."""
    form = await _form(request)
    key = form.get("key", "").strip()
    going_to = _local(request, form.get("next", ""))
    asked = Request(_with_key(request, key))
    await take_token(request, services, f"address:{request.client.host if request.client else ''}")
    try:
        await services.access.authenticate(asked, Scope.READ)
    except ProblemError as error:
        return render(request, None, "login.html", status=error.status, message=error.detail, next=going_to)
    answer = RedirectResponse(going_to, 303)
    answer.set_cookie(
        KEY_COOKIE,
        key,
        path=request.scope.get("root_path", "") or "/",
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return answer


@router.post("/logout")
async def log_out(request: Request) -> Response:
    """Forget the key."""
    await _form(request)
    base = request.scope.get("root_path", "")
    answer = RedirectResponse(f"{base}{PREFIX}/documents", 303)
    answer.delete_cookie(KEY_COOKIE, path=base or "/", httponly=True, samesite="strict")
    return answer


async def _form(request: Request) -> dict[str, str]:
    """The fields of a small form of our own site."""
    if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
        raise ProblemError(403, "A page of another site may not ask for this.")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM_BYTES:
            raise ProblemError(413, "That is too long for a key.")
    fields = urllib.parse.parse_qs(body.decode("utf-8", "replace"), max_num_fields=5)
    return {name: values[0] for name, values in fields.items()}


def _local(request: Request, target: str) -> str:
    """A page of ours; never an address that somebody else put into the form."""
    pages = f"{request.scope.get('root_path', '')}{PREFIX}/"
    is_ours = target.startswith(pages) and not set(target) & set("\\\r\n\t")
    return target if is_ours else f"{pages}documents"


def _with_key(request: Request, key: str) -> dict[str, object]:
    """The request as a program with this key would make it."""
    headers = [
        (name, value) for name, value in request.headers.raw if name not in (b"authorization", b"cookie")
    ]
    return {**request.scope, "headers": [*headers, (b"authorization", f"Bearer {key}".encode())]}
