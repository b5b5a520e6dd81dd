"""The worker's AWS clients, and what their errors mean in our own terms.

One session, one set of clients for the worker's life. Not for what is done with them.
"""

from __future__ import annotations

import io
import json
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ocr_worker.options import SettingsError
from pdf_ops.contract.errors import ErrorKind, PdfOpsError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ocr_worker.settings import ServiceSettings

MAX_CONNECTIONS = 64
CONNECT_TIMEOUT_S = 10
READ_TIMEOUT_S = 60
ATTEMPTS = 6

_NOT_FOUND = {"404", "NoSuchKey", "NoSuchVersion", "NotFound"}
_DENIED = {"403", "AccessDenied", "AccessDeniedException", "Forbidden", "InvalidObjectState"}
_CHANGED = {"412", "PreconditionFailed"}
_THROTTLED = {"503", "SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded"}


@dataclass(frozen=True, slots=True)
class Clients:
    """The clients that the worker uses."""

    s3: Any
    sqs: Any
    dynamodb: Any
    logs: Any
    secrets: Any


@asynccontextmanager
async def open_clients(region: str | None) -> AsyncIterator[Clients]:
    """Open the clients, and close them at the end."""
    from aiobotocore.config import AioConfig
    from aiobotocore.session import get_session

    config = AioConfig(
        region_name=region,
        max_pool_connections=MAX_CONNECTIONS,
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=READ_TIMEOUT_S,
        retries={"mode": "standard", "max_attempts": ATTEMPTS},
    )
    session = get_session()
    async with AsyncExitStack() as stack:
        names = ("s3", "sqs", "dynamodb", "logs", "secretsmanager")
        opened = [
            await stack.enter_async_context(session.create_client(name, config=config)) for name in names
        ]
        clients = Clients(*opened)
        clients.s3.meta.events.register("before-send.s3", _send_whole)
        yield clients


def _send_whole(request: Any, **_: Any) -> None:
    """Have aiohttp send an object's bytes again when it repeats a request by itself.

    After a reset it does, without botocore's knowing: from a file that has been read to its end, so that
    S3 waits for a body that never comes. Nor does it ask S3 first whether a body is welcome: no timeout
    covers that wait. Neither the header nor the kind of body is signed.
    """
    request.headers.pop("Expect", None)
    if isinstance(request.body, io.BytesIO):
        request.body = request.body.getvalue()


def error_code(error: BaseException) -> str:
    """AWS's own code of an error, empty where the service was not reached."""
    response = getattr(error, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""


def aws_errors() -> tuple[type[Exception], ...]:
    """What AWS and the network raise, for an ``except``; anything else is a mistake of ours."""
    from aiohttp import ClientError as HttpError
    from botocore.exceptions import BotoCoreError, ClientError

    return (ClientError, BotoCoreError, HttpError, OSError, TimeoutError)


def source_error(error: BaseException) -> PdfOpsError:
    """What went wrong with reading an object."""
    code = error_code(error)
    if code in _NOT_FOUND:
        return PdfOpsError(ErrorKind.SOURCE_NOT_FOUND)
    if code in _DENIED:
        return PdfOpsError(ErrorKind.SOURCE_ACCESS_DENIED, str(error))
    if code in _CHANGED:
        return PdfOpsError(ErrorKind.SOURCE_CHANGED_DURING_READ)
    if code in _THROTTLED:
        return PdfOpsError(ErrorKind.SOURCE_THROTTLED, str(error))
    return PdfOpsError(ErrorKind.SOURCE_UNAVAILABLE, f"{type(error).__name__}: {error}")


async def read_secret(settings: ServiceSettings) -> dict[str, object]:
    """The settings that a secret holds, by variable.

    Raises:
        SettingsError: If it cannot be read, or is no JSON object.
    """
    async with open_clients(settings.region) as clients:
        try:
            answer = await clients.secrets.get_secret_value(SecretId=settings.secret_name)
            content = json.loads(answer["SecretString"])
        except aws_errors() as error:
            raise SettingsError(f"SECRET_NAME: {settings.secret_name} cannot be read: {error}") from error
        except (ValueError, KeyError):
            content = None
    if not isinstance(content, dict):
        raise SettingsError(
            f"SECRET_NAME: {settings.secret_name} holds no JSON object of settings by variable"
        )
    return content
