"""Ids of documents and cursors of listings, as they stand in URLs.

A document's id is its key in another spelling: nothing has to be looked up to read one.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass

from pdf_ops.api.problems import ProblemError
from pdf_ops.contract.layout import LayoutError, S3Uri

MAX_ID_CHARS = 1_500
ID_PATTERN = "^[A-Za-z0-9_-]+$"


def encode(text: str) -> str:
    """A text as an id."""
    return base64.urlsafe_b64encode(text.encode("utf-8", "surrogatepass")).decode("ascii").rstrip("=")


def decode(identifier: str) -> str:
    """The text of an id.

    Raises:
        ValueError: If it is none.
    """
    try:
        padded = identifier + "=" * (-len(identifier) % 4)
        text = base64.b64decode(padded, altchars=b"-_", validate=True).decode("utf-8")
    except (binascii.Error, UnicodeError) as error:
        raise ValueError("not an id") from error
    if encode(text) != identifier:
        raise ValueError("not an id")
    return text


def s3_key_of(document_id: str) -> str:
    """The state table's key of a document.

    Raises:
        ProblemError: 404 for an id that no document can have.
    """
    try:
        return decode(document_id)
    except ValueError:
        raise ProblemError(404, "There is no document with this id.") from None


def source_of(s3_key: str, default_bucket: str) -> S3Uri:
    """Where a document is, by its key in the state table.

    Raises:
        ProblemError: 404 for a key that no object can have.
    """
    try:
        return S3Uri.parse(s3_key) if s3_key.startswith("s3://") else S3Uri(default_bucket, s3_key)
    except LayoutError:
        raise ProblemError(404, "There is no document with this id.") from None


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where the next page of a listing begins.

    Attributes:
        after: The listing key that the page before ended with.
        sort: The order of the listing.
        skip: Matching entries that are still to be passed over.
    """

    after: str
    sort: str
    skip: int = 0

    def __str__(self) -> str:
        """As a URL has it."""
        return encode(json.dumps([self.after, self.sort, self.skip]))

    @classmethod
    def parse(cls, text: str, sort: str) -> Cursor:
        """Read one.

        Raises:
            ProblemError: 422 if it is none, or of a listing in another order.
        """
        try:
            values = json.loads(decode(text))
        except ValueError:
            values = None
        match values:
            case [str(after), str(of_sort), int(skip)] if after and of_sort == sort and skip >= 0:
                return cls(after, of_sort, skip)
        raise ProblemError(422, "cursor: take it from next_cursor of the page before, and keep the order.")
