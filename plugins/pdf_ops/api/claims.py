"""Who stores an upload: one item each per content and per idempotency key, in the runs table.

The first to write the item stores the upload, and everybody after it gets the same job. Whoever dies
with a claim in hand loses it after a while. Not for the documents themselves.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from typing import Any

from pdf_ops.contract.attributes import item_of, values_of
from pdf_ops.contract.runs import HASH_KEY, RANGE_KEY, TTL_ATTRIBUTE
from pdf_ops.hooks.clients import error_code

STALE_S = 900
"""An upload that is not complete after so long was given up by whoever stored it."""
IDEMPOTENCY_DAYS = 7
_PART = "upload"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """An upload that somebody stores or has stored.

    Attributes:
        s3_key: The document's key; empty while it is not known.
        sha256: Of the content; empty while it is not known.
        is_complete: Whether it is stored.
        claimed_at: When, seconds since the epoch.
    """

    s3_key: str = ""
    sha256: str = ""
    is_complete: bool = False
    claimed_at: int = 0


class Claims:
    """Claims in the runs table.

    :param client: DynamoDB.
    :param table: The runs table.
    """

    def __init__(self, client: Any, table: str) -> None:
        self._client, self._table = client, table

    def take(self, name: str, claim: Claim) -> Claim | None:
        """Claim something; gives the claim that stands in the way, if one does."""
        from botocore.exceptions import ClientError

        now = int(time.time())
        try:
            self._client.put_item(
                TableName=self._table,
                Item=self._key(name) | _item(claim, now, name),
                ConditionExpression=f"attribute_not_exists({HASH_KEY}) OR {TTL_ATTRIBUTE} < :now OR "
                "(is_complete = :no AND claimed_at < :stale)",
                ExpressionAttributeValues=item_of({":now": now, ":no": False, ":stale": now - STALE_S}),
            )
        except ClientError as error:
            if error_code(error) != "ConditionalCheckFailedException":
                raise
            return self.get(name) or self.take(name, claim)
        return None

    def get(self, name: str) -> Claim | None:
        """A claim that somebody has."""
        found = self._client.get_item(TableName=self._table, Key=self._key(name), ConsistentRead=True)
        if "Item" not in found:
            return None
        values: dict[str, Any] = values_of(found["Item"])
        return Claim(**{field: values[field] for field in Claim.__dataclass_fields__ if field in values})

    def complete(self, name: str, claim: Claim) -> None:
        """Say that the upload is stored."""
        item = self._key(name) | _item(claim, int(time.time()), name)
        self._client.put_item(TableName=self._table, Item=item)

    def give_up(self, name: str) -> None:
        """Let others store it."""
        self._client.delete_item(TableName=self._table, Key=self._key(name))

    @staticmethod
    def _key(name: str) -> dict[str, Any]:
        return item_of({HASH_KEY: f"upload#{name}", RANGE_KEY: _PART})


def content_name(sha256: str) -> str:
    """The name of a content's claim."""
    return f"content#{sha256}"


def idempotency_name(client_id: str, key: str) -> str:
    """The name of a request's claim: keys of different clients have nothing to do with each other."""
    return f"idempotency#{hashlib.sha256(f'{client_id}#{key}'.encode()).hexdigest()}"


def _item(claim: Claim, now: int, name: str) -> dict[str, Any]:
    expires_at = now + IDEMPOTENCY_DAYS * 86_400 if name.startswith("idempotency#") else None
    return item_of(
        {
            "s3_key": claim.s3_key or None,
            "sha256": claim.sha256 or None,
            "is_complete": claim.is_complete,
            "claimed_at": now,
            TTL_ATTRIBUTE: expires_at,
        }
    )
