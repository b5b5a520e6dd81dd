"""``pdf-ops api`` and ``api-key``: the REST API by itself."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from pdf_ops.commands.session import OK, UNUSABLE, CommandError, Session

if TYPE_CHECKING:
    import argparse


def add_to(commands: Any) -> None:
    """Add the commands."""
    api = commands.add_parser("api", help="serve the REST API by itself")
    api.add_argument("--host", default="127.0.0.1", help="address to listen on (default %(default)s)")
    api.add_argument("--port", type=int, default=8090, help="port to listen on (default %(default)s)")
    api.add_argument(
        "--insecure-local", action="store_true", help="no API keys; only on an address of this machine"
    )
    api.set_defaults(handler=_serve)

    key = commands.add_parser(
        "api-key", help="make an API key: the key itself, and its entry for the settings"
    )
    key.add_argument("name", help="whose it is; shown in logs")
    key.add_argument(
        "--scopes", default="read", help="read, upload, redrive, with commas (default %(default)s)"
    )
    key.set_defaults(handler=_make_key)


def _serve(_: Session, options: argparse.Namespace) -> int:
    from pdf_ops.api.standalone import StartError, serve

    try:
        serve(host=options.host, port=options.port, is_insecure=options.insecure_local)
    except StartError as error:
        raise CommandError(str(error), UNUSABLE) from None
    return OK


def _make_key(_: Session, options: argparse.Namespace) -> int:
    from pdf_ops.api.access import ApiKeyError, Scope, new_key

    try:
        scopes = frozenset(Scope(one.strip()) for one in options.scopes.split(","))
        key, entry = new_key(options.name, scopes)
    except (ApiKeyError, ValueError) as error:
        raise CommandError(f"{error}; scopes are {', '.join(Scope)}", UNUSABLE) from None
    sys.stdout.write(f"key    {key}\nentry  {entry}\n")
    sys.stderr.write("Give the key to its owner; it is shown only now. Add the entry to PDF_OPS_API_KEYS.\n")
    return OK
