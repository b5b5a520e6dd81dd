"""What a queue message may look like, and the one shape that it becomes.

Bodies come from anyone who may write to the queue, so whatever is wrong with one is a MessageError
and nothing else. Not for receiving or sending.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, NoReturn, overload
from urllib.parse import unquote_plus

from pdf_ops.contract.errors import ErrorKind, PdfOpsError, sanitise
from pdf_ops.contract.layout import LayoutError, S3Uri, bare_etag, check_key, parse_bucket

MESSAGE_VERSION = 1
MAX_FIELD_BYTES = 1024
MAX_SIZE_BYTES = 2**63 - 1

_ACCEPTED = (
    'accepted: {"s3_key": "folder/file.pdf"}, {"s3Key": ..., "fileId": ...}, our own form with "v": 1, '
    "an S3 event notification (also by SNS), or an EventBridge event of aws.s3"
)
# A restored archive object can be read from then on, as if it were new.
_S3_EVENTS_WITH_DOCUMENT = ("ObjectCreated:", "ObjectRestore:Completed")
_EVENTBRIDGE_TYPES_WITH_DOCUMENT = ("Object Created", "Object Restore Completed")


class MessageError(PdfOpsError):
    """A message that names no document."""

    def __init__(self, problem: str) -> None:
        """Describe what is wrong with the message; the accepted forms are added."""
        super().__init__(ErrorKind.SOURCE_INVALID_MESSAGE, f"{sanitise(problem, 200)}; {_ACCEPTED}")


class MessageForm(StrEnum):
    """The form in which a message came."""

    SIMPLE = "simple"
    ENQUEUED = "enqueued"
    S3_EVENT = "s3_event"
    EVENTBRIDGE = "eventbridge"
    FILE_ID = "file_id"


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentMessage:
    """One document to read.

    Attributes:
        bucket: The source bucket; without one, the worker's own source bucket is meant.
        key: The object's key, as S3 has it (not URL-encoded).
        version_id: The object's version, in a versioned bucket.
        etag: The object's ETag, without quotes.
        size: The object's size in bytes.
        run_id: The run that asked for the document.
        file_id: The sender's own name for the document.
        shard: The listing shard that the document is in.
        form: How the message came; says nothing about the document, so it is not compared.
    """

    bucket: str | None = None
    key: str
    version_id: str | None = None
    etag: str | None = None
    size: int | None = None
    run_id: str | None = None
    file_id: str | None = None
    shard: str | None = None
    form: MessageForm = field(default=MessageForm.ENQUEUED, compare=False)

    def __post_init__(self) -> None:
        """Refuse values that no document can have.

        Raises:
            MessageError: If there is one.
        """
        try:
            check_key(self.key)
            if self.bucket is not None:
                object.__setattr__(self, "bucket", parse_bucket(self.bucket))
        except LayoutError as error:
            raise MessageError(str(error)) from error
        if self.etag is not None:
            object.__setattr__(self, "etag", bare_etag(self.etag) or None)
        for name in ("version_id", "etag", "run_id", "file_id", "shard"):
            _check_text(name, getattr(self, name))
        if self.size is not None and not 0 <= self.size <= MAX_SIZE_BYTES:
            raise MessageError("size is not a number of bytes")

    def source_uri(self, default_bucket: str) -> S3Uri:
        """Say where the document is, when messages without a bucket mean the default bucket."""
        return S3Uri(self.bucket or parse_bucket(default_bucket), self.key)

    def to_json(self) -> str:
        """Write the message in our own form."""
        body: dict[str, str | int] = {"v": MESSAGE_VERSION, "s3_key": self.key}
        for name in ("bucket", "version_id", "etag", "size", "run_id", "file_id", "shard"):
            value = getattr(self, name)
            if value is not None:
                body[name] = value
        return json.dumps(body, ensure_ascii=True, separators=(",", ":"))


def _check_text(name: str, value: str | None) -> None:
    if value is None:
        return
    try:
        size_bytes = len(value.encode("utf-8"))
    except UnicodeEncodeError:
        raise MessageError(f"{name} is not valid Unicode") from None
    if not 1 <= size_bytes <= MAX_FIELD_BYTES:
        raise MessageError(f"{name} has {size_bytes} bytes, not 1 to {MAX_FIELD_BYTES}")


def parse_message(body: str | bytes) -> tuple[DocumentMessage, ...]:
    """Read a queue message in any of the accepted forms.

    An S3 notification may hold several documents. What tells of no document to read gives an empty
    tuple: the test event that S3 sends when notifications are set up, and events about removed,
    tagged, archived or replicated objects. Such a message can be deleted. One bad record makes the
    whole notification an error, so that it reaches the DLQ and no document is dropped in silence.

    Raises:
        MessageError: If the body is none of the accepted forms; nothing else is raised.
    """
    parsed = _load_object(body, "the body")
    if parsed.get("Type") == "Notification" and "Message" in parsed:
        parsed = _load_object(_text(parsed, "Message", required=True), "the SNS notification's Message")
    return _parse_object(parsed)


def _load_object(body: str | bytes, what: str) -> dict[str, Any]:
    """Parse JSON that must be an object."""
    try:
        text = body if isinstance(body, str) else body.decode("utf-8")
        parsed = json.loads(text.removeprefix("\ufeff"), parse_constant=_refuse_constant)
    except RecursionError:
        raise MessageError(f"{what} is nested too deeply") from None
    except ValueError as error:
        # Invalid UTF-8, invalid JSON, NaN, and integers of thousands of digits all are ValueErrors.
        raise MessageError(f"{what} is not JSON ({error})") from None
    if not isinstance(parsed, dict):
        raise MessageError(f"{what} is JSON, but not an object")
    return parsed


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _parse_object(parsed: dict[str, Any]) -> tuple[DocumentMessage, ...]:
    if "v" in parsed:
        return (_parse_enqueued(parsed),)
    if parsed.get("Event") == "s3:TestEvent":
        return ()
    if "Records" in parsed:
        return _parse_s3_event(parsed)
    if "detail-type" in parsed:
        return _parse_eventbridge(parsed)
    if "s3_key" in parsed:
        return (_parse_plain(parsed, "s3_key", MessageForm.SIMPLE),)
    if "s3Key" in parsed:
        return (_parse_plain(parsed, "s3Key", MessageForm.FILE_ID),)
    names = ", ".join(sorted(parsed)[:10]) or "none"
    raise MessageError(f"the message has no s3_key (its fields: {names})")


def _parse_enqueued(parsed: dict[str, Any]) -> DocumentMessage:
    version = parsed["v"]
    if type(version) is not int or version != MESSAGE_VERSION:
        # Not repr of anything: that of a deeply nested value raises RecursionError.
        found = str(version)[:20] if isinstance(version, int | str) else "of another type"
        raise MessageError(f"v is {found}; this worker knows version {MESSAGE_VERSION}")
    # Here the key is taken literally: a key may well start with "s3://".
    return DocumentMessage(
        bucket=_text(parsed, "bucket"),
        key=_text(parsed, "s3_key", required=True),
        version_id=_text(parsed, "version_id"),
        etag=_text(parsed, "etag"),
        size=_size(parsed),
        run_id=_text(parsed, "run_id"),
        file_id=_text(parsed, "file_id"),
        shard=_text(parsed, "shard"),
        form=MessageForm.ENQUEUED,
    )


def _parse_plain(parsed: dict[str, Any], key_name: str, form: MessageForm) -> DocumentMessage:
    bucket = _text(parsed, "bucket")
    key = _text(parsed, key_name, required=True)
    if key.startswith("s3://"):
        try:
            uri = S3Uri.parse(key)
        except LayoutError as error:
            raise MessageError(f"{key_name}: {error}") from error
        bucket, key = uri.bucket, uri.key
    return DocumentMessage(bucket=bucket, key=key, file_id=_file_id(parsed), form=form)


def _parse_s3_event(parsed: dict[str, Any]) -> tuple[DocumentMessage, ...]:
    records = parsed["Records"]
    if not isinstance(records, list):
        raise MessageError("Records is not a list")
    documents = []
    for record in records:
        if not isinstance(record, dict) or not isinstance(record.get("s3"), dict):
            raise MessageError("a record has no s3 part, so it is not an S3 event")
        event_name = _text(record, "eventName", required=True)
        if not event_name.removeprefix("s3:").startswith(_S3_EVENTS_WITH_DOCUMENT):
            continue
        s3_object = _mapping(record["s3"], "object")
        encoded_key = _text(s3_object, "key", required=True)
        try:
            # S3 event notifications encode keys as HTML forms do: "+" is a space.
            key = unquote_plus(encoded_key, errors="strict")
        except ValueError:
            raise MessageError("the record's key is not URL-encoded UTF-8") from None
        documents.append(
            DocumentMessage(
                bucket=_text(_mapping(record["s3"], "bucket"), "name", required=True),
                key=key,
                version_id=_text(s3_object, "versionId"),
                etag=_text(s3_object, "eTag"),
                size=_size(s3_object),
                form=MessageForm.S3_EVENT,
            )
        )
    return tuple(documents)


def _parse_eventbridge(parsed: dict[str, Any]) -> tuple[DocumentMessage, ...]:
    detail_type = _text(parsed, "detail-type", required=True)
    if parsed.get("source") != "aws.s3" or not detail_type.startswith("Object "):
        # For instance CloudTrail's record of a PutObject: ignoring it would lose a document.
        raise MessageError(f"the EventBridge event is not S3's own ({detail_type})")
    if detail_type not in _EVENTBRIDGE_TYPES_WITH_DOCUMENT:
        return ()
    detail = _mapping(parsed, "detail")
    s3_object = _mapping(detail, "object")
    return (
        DocumentMessage(
            bucket=_text(_mapping(detail, "bucket"), "name", required=True),
            key=_text(s3_object, "key", required=True),  # not URL-encoded, other than S3 notifications
            version_id=_text(s3_object, "version-id"),
            etag=_text(s3_object, "etag"),
            size=_size(s3_object),
            form=MessageForm.EVENTBRIDGE,
        ),
    )


def _mapping(parsed: dict[str, Any], name: str) -> dict[str, Any]:
    value = parsed.get(name)
    if not isinstance(value, dict):
        raise MessageError(f"{name} is not an object")
    return value


@overload
def _text(parsed: dict[str, Any], name: str, *, required: Literal[True]) -> str: ...


@overload
def _text(parsed: dict[str, Any], name: str) -> str | None: ...


def _text(parsed: dict[str, Any], name: str, *, required: bool = False) -> str | None:
    """Take a text; an empty one is none, as some senders write it so."""
    value = parsed.get(name)
    if value is not None and not isinstance(value, str):
        raise MessageError(f"{name} is not a text")
    if required and not value:
        raise MessageError(f"{name} is missing or empty")
    return value or None


def _file_id(parsed: dict[str, Any]) -> str | None:
    value = parsed.get("fileId")
    # Databases hand out numbers.
    return str(value) if type(value) is int else _text(parsed, "fileId")


def _size(parsed: dict[str, Any]) -> int | None:
    value = parsed.get("size")
    if value is not None and type(value) is not int:
        raise MessageError("size is not a whole number")
    return value
