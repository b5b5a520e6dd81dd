"""Clients for AWS through the Amazon provider's connections, and what their errors mean.

Not for what is said with them: that is the tables' and operators'.
"""

from __future__ import annotations

from typing import Any

# What cannot change by waiting: a person has to fix a policy, a name or a credential.
_PERMANENT = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "AuthFailure",
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "AWS.SimpleQueueService.NonExistentQueue",
        "NoSuchBucket",
        "NoSuchKey",
        "QueueDoesNotExist",
        "ResourceNotFoundException",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
        "ValidationException",
    }
)
_THROTTLED = frozenset(
    {
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "SlowDown",
        "ThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
        "TransactionConflictException",
    }
)


def aws_client(
    service: str,
    *,
    aws_conn_id: str | None = "aws_default",
    region_name: str | None = None,
    connections: int = 10,
    timeout_s: float | None = None,
) -> Any:
    """A client that may be used from many threads.

    Args:
        service: AWS's name of the service, such as ``sqs``.
        aws_conn_id: The Airflow connection.
        region_name: The region, if not the connection's own.
        connections: How many calls go out at once.
        timeout_s: For people who wait: how long AWS may take to connect, or to go on, and few tries. AWS's
            own minute and many tries when None.
    """
    from airflow.providers.amazon.aws.hooks.base_aws import AwsBaseHook
    from botocore.config import Config

    hook: Any = AwsBaseHook(
        aws_conn_id=aws_conn_id or None,
        region_name=region_name or None,
        client_type=service,
        config=Config(
            max_pool_connections=max(10, connections),
            retries={"mode": "standard", "max_attempts": 3 if timeout_s else 6},
            **({"connect_timeout": timeout_s, "read_timeout": 4 * timeout_s} if timeout_s else {}),
            # For presigned URLs: botocore's default is an older one, which most regions refuse.
            signature_version="s3v4" if service == "s3" else None,
        ),
    )
    return hook.get_conn()


def error_code(error: Exception) -> str:
    """AWS's code of a client error; empty for any other error."""
    response = getattr(error, "response", None)
    if not isinstance(response, dict):
        return ""
    return str(response.get("Error", {}).get("Code", ""))


def is_permanent(error: Exception) -> bool:
    """Whether the same call would be refused again."""
    from botocore.exceptions import NoCredentialsError, ParamValidationError

    return error_code(error) in _PERMANENT or isinstance(error, NoCredentialsError | ParamValidationError)


def is_throttled(error: Exception) -> bool:
    """Whether AWS asks to come back later."""
    return error_code(error) in _THROTTLED


def cancellation_codes(error: Exception) -> list[str]:
    """Why each item of a transaction was refused, ``None`` for those that were not."""
    response: dict[str, Any] = getattr(error, "response", {})
    return [str(reason.get("Code", "None")) for reason in response.get("CancellationReasons", [])]
