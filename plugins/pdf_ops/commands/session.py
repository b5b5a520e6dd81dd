"""What a command works with: settings, AWS clients, and how it ends. Not for what a command does."""

from __future__ import annotations

import functools
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from pdf_ops.settings import Settings

OK, WRONG, UNUSABLE = 0, 1, 2
"""It is as it should be; it was looked at and is not; usage, settings or AWS cannot be used."""
EXIT_CODES = "exit codes: 0 all is well, 1 something is wrong, 2 usage, settings or AWS cannot be used"
_REFUSED = ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "403")
_MISSING = (
    "AWS.SimpleQueueService.NonExistentQueue",
    "QueueDoesNotExist",
    "ResourceNotFoundException",
    "NoSuchBucket",
    "ClusterNotFoundException",
)


class CommandError(Exception):
    """A command cannot go on; the message says what to do.

    Attributes:
        exit_code: What the program then ends with.
    """

    def __init__(self, message: str, exit_code: int = WRONG) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Session:
    """Settings from Airflow's configuration, and AWS with the credentials of whoever runs the command."""

    @functools.cached_property
    def settings(self) -> Settings:
        """The pipeline's settings, all of them checked."""
        from pdf_ops.settings import load

        return load()

    @functools.cache  # noqa: B019 -- one session a process
    def client(self, service: str) -> Any:
        """A service's client."""
        from pdf_ops.hooks.clients import aws_client

        return aws_client(
            service, aws_conn_id=None, region_name=self.settings.aws_region or None, connections=16
        )


def run_command(options: argparse.Namespace) -> int:
    """Run what the parser chose; every expected error is one message, and an exit code."""
    command: Callable[[Session, argparse.Namespace], int] = options.handler
    # Airflow logs to standard output, which is the command's; a server keeps its log.
    if options.command != "api":
        os.environ.setdefault("AIRFLOW__LOGGING__LOGGING_LEVEL", "ERROR")
    name = f"pdf-ops {options.command}"
    try:
        return command(Session(), options)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # As when the output goes into `head`; Python would complain once more at its end.
        sys.stdout = None
        return OK
    except CommandError as error:
        sys.stderr.write(f"{name}: {error}\n")
        return error.exit_code
    except Exception as error:
        if (message := explain(error)) is None:
            raise
        sys.stderr.write(f"{name}: {message}\n")
        return UNUSABLE


def explain(error: Exception) -> str | None:
    """What an error from outside means, and what to do; None for a mistake of ours."""
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, NoRegionError

    from pdf_ops.exceptions import SettingsError

    if isinstance(error, SettingsError):
        return str(error)
    if isinstance(error, NoCredentialsError):
        return (
            "there are no AWS credentials: log in as for the AWS CLI, or set AWS_ACCESS_KEY_ID and its secret"
        )
    if isinstance(error, NoRegionError):
        return "AWS has no region: set AIRFLOW__PDF_OPS__AWS_REGION or AWS_REGION"
    if isinstance(error, ClientError):
        from pdf_ops.hooks.clients import error_code

        code, what = (
            error_code(error),
            f"{error.operation_name}: {error.response['Error'].get('Message', '')}",
        )
        if code in _REFUSED:
            return f"AWS refuses {what}. `pdf-ops doctor` shows every permission that is missing"
        if code in _MISSING:
            return f"it does not exist, {what}. `pdf-ops doctor` compares the settings with what is there"
        return f"AWS answered {code} to {what}"
    if isinstance(error, BotoCoreError):
        return f"AWS cannot be reached: {error}"
    if isinstance(error, OSError):  # A folder or a disk of this machine.
        return f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"
    return None
