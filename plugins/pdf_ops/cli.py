"""``pdf-ops``: the control plane for people without a browser. Not the worker: that is ``ocr-worker``."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from pdf_ops.commands import search

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; gives the exit code."""
    parser = argparse.ArgumentParser(prog="pdf-ops", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)

    api = commands.add_parser("api", help="serve the REST API by itself")
    api.add_argument("--host", default="127.0.0.1", help="address to listen on (default %(default)s)")
    api.add_argument("--port", type=int, default=8090, help="port to listen on (default %(default)s)")
    api.add_argument(
        "--insecure-local", action="store_true", help="no API keys; only on an address of this machine"
    )
    api.set_defaults(run=_serve)

    key = commands.add_parser(
        "api-key", help="make an API key: the key itself, and its entry for the settings"
    )
    key.add_argument("name", help="whose it is; shown in logs")
    key.add_argument(
        "--scopes", default="read", help="read, upload, redrive, with commas (default %(default)s)"
    )
    key.set_defaults(run=_make_key)

    search.add_commands(commands)

    options = parser.parse_args(arguments)
    exit_code: int = options.run(options)
    return exit_code


def _serve(options: argparse.Namespace) -> int:
    from pdf_ops.api.standalone import StartError, serve
    from pdf_ops.exceptions import SettingsError

    try:
        serve(host=options.host, port=options.port, is_insecure=options.insecure_local)
    except (StartError, SettingsError) as error:
        sys.stderr.write(f"pdf-ops api: {error}\n")
        return 2
    return 0


def _make_key(options: argparse.Namespace) -> int:
    from pdf_ops.api.access import ApiKeyError, Scope, new_key

    try:
        scopes = frozenset(Scope(one.strip()) for one in options.scopes.split(","))
        key, entry = new_key(options.name, scopes)
    except (ApiKeyError, ValueError) as error:
        sys.stderr.write(f"pdf-ops api-key: {error}; scopes are {', '.join(Scope)}\n")
        return 2
    sys.stdout.write(f"key    {key}\nentry  {entry}\n")
    sys.stderr.write("Give the key to its owner; it is shown only now. Add the entry to PDF_OPS_API_KEYS.\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
