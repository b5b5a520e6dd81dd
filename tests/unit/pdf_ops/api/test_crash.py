"""A mistake of ours in a route: the caller gets an id and no details, the log gets both."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, NoReturn

import httpx

from pdf_ops.api.app import create_app
from pdf_ops.api.requests_log import LOGGER

if TYPE_CHECKING:
    import pytest


async def ask(app: Any) -> httpx.Response:
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
        return await client.get("/v1/runs", headers={"X-Request-ID": "crash-1"})


def test_a_mistake_of_ours_is_a_problem_with_an_id_and_without_details(caplog: pytest.LogCaptureFixture):
    def mistaken() -> NoReturn:
        raise ZeroDivisionError("secret detail")

    logging.getLogger(LOGGER).propagate = True
    with caplog.at_level(logging.INFO, LOGGER):
        answer = asyncio.run(ask(create_app(mistaken)))

    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
    assert answer.json()["request_id"] == answer.headers["x-request-id"] == "crash-1"
    assert "secret detail" not in answer.text
    assert "secret detail" in caplog.text
    assert "request.crashed" in caplog.text
