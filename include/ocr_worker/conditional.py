"""Calls to DynamoDB in our own terms: a condition that failed is an exception of its own.

What another write at the same moment got in the way of is tried again here, since botocore does not.
Not for what is written: see ``ledger``.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from ocr_worker.aws import aws_errors, error_code
from pdf_ops.contract.errors import ErrorKind, PdfOpsError

ATTEMPTS = 8
PAUSE_S = 0.05
# What DynamoDB says when a moment later it could.
_PASSING_REASONS = {"TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"}
_PASSING_CODES = {"TransactionConflictException", "TransactionInProgressException"}


class ConditionFailedError(Exception):
    """A conditional write was refused; this is what stands there."""

    def __init__(self, item: dict[str, Any]) -> None:
        """Take the item as it is."""
        super().__init__()
        self.item = item


class TransactionRefusedError(Exception):
    """A transaction was refused because of a condition; the reasons are in the order of its items."""

    def __init__(self, reasons: list[str]) -> None:
        """Take DynamoDB's codes."""
        super().__init__(reasons)
        self.reasons = reasons


async def call(dynamodb: Any, operation: str, **arguments: Any) -> Any:
    """Call DynamoDB.

    Raises:
        ConditionFailedError: If the condition of a single write does not hold.
        TransactionRefusedError: If one of a transaction does not.
        PdfOpsError: TARGET/dynamodb for all else. It may have been done all the same.
    """
    attempt = 0
    while True:
        try:
            return await getattr(dynamodb, operation)(**arguments)
        except aws_errors() as error:
            response: Any = getattr(error, "response", None) or {}
            code = error_code(error)
            if code == "ConditionalCheckFailedException":
                raise ConditionFailedError(response.get("Item") or {}) from error
            reasons = [str(reason.get("Code")) for reason in response.get("CancellationReasons", [])]
            if "ConditionalCheckFailed" in reasons:
                raise TransactionRefusedError(reasons) from error
            attempt += 1
            can_pass = code in _PASSING_CODES or not _PASSING_REASONS.isdisjoint(reasons)
            if not can_pass or attempt == ATTEMPTS:
                raise PdfOpsError(ErrorKind.TARGET_DYNAMODB, f"{operation}: {error}") from error
        await asyncio.sleep(PAUSE_S * 2**attempt * random.uniform(0.5, 1.5))  # noqa: S311
