"""``pdf-ops api``: the app by itself, with API keys.

Refuses to start without a key, unless it is told to be open and can be reached from this machine only.
"""

from __future__ import annotations

import ipaddress
import logging
import sys

from pdf_ops import settings as pipeline_settings
from pdf_ops.api import settings as api_settings
from pdf_ops.api.access import Access, ApiKeyError, KeyAccess, OpenAccess
from pdf_ops.api.app import create_app
from pdf_ops.api.aws import Aws
from pdf_ops.api.requests_log import log_requests
from pdf_ops.api.services import Services
from pdf_ops.api.settings import ApiSettings


class StartError(Exception):
    """The API may not start like this; the message says what to do."""


def choose_access(settings: ApiSettings, aws: Aws, *, host: str, is_insecure: bool) -> Access:
    """Who may: whoever has a key, or, on one's own machine and on request, everybody.

    Raises:
        StartError: If there is no key, or a key that cannot be used.
    """
    if is_insecure:
        if not _is_loopback(host):
            raise StartError(f"--insecure-local is for this machine only, and {host} is not: use 127.0.0.1")
        return OpenAccess()

    def read_text() -> str:
        if not settings.api_keys_secret:
            return settings.api_keys
        found = aws.client("secretsmanager").get_secret_value(SecretId=settings.api_keys_secret)
        return f"{settings.api_keys}\n{found['SecretString']}"

    access = KeyAccess(read_text)
    try:
        count = access.load()
    except ApiKeyError as error:
        raise StartError(str(error)) from None
    if not count:
        raise StartError(
            "there is no API key, so nobody could ask for anything. Make one with `pdf-ops api-key NAME`, "
            "and set PDF_OPS_API_KEYS or PDF_OPS_API_KEYS_SECRET. To try it on this machine: --insecure-local"
        )
    return access


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def serve(*, host: str, port: int, is_insecure: bool) -> None:
    """Serve until a signal comes.

    Raises:
        StartError: If it may not start like this.
        SettingsError: If settings cannot be used.
    """
    import uvicorn

    pipeline, settings = pipeline_settings.load(), api_settings.load()
    aws = Aws(aws_conn_id=None, region_name=pipeline.aws_region or None)
    access = choose_access(settings, aws, host=host, is_insecure=is_insecure)
    services = Services.create(settings, pipeline, access, aws, is_mounted=False)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    log_requests()
    # Without uvicorn's access log: the app writes its own, with ids and without queries.
    uvicorn.run(
        create_app(lambda: services),
        host=host,
        port=port,
        access_log=False,
        log_level="warning",
        # Longer than load balancers keep a connection, so that none of them uses one that is closing.
        timeout_keep_alive=75,
    )
