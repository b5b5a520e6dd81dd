"""Uploads: streamed to S3 as they arrive, stored once per content, then handed to the pipeline.

Order: object, state, message, claim. Whatever happens between two of them, the next listing finds the
object. A client that vanishes leaves nothing. Memory holds two parts at most, whatever the size.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from starlette.requests import ClientDisconnect

from pdf_ops.api.access import Client
from pdf_ops.api.aws import Aws
from pdf_ops.api.claims import Claim, Claims, content_name, idempotency_name
from pdf_ops.api.documents import Documents
from pdf_ops.api.doorbell import Doorbell, Visit
from pdf_ops.api.forms import FormFile
from pdf_ops.api.problems import ProblemError
from pdf_ops.api.settings import ApiSettings
from pdf_ops.contract.attributes import item_of
from pdf_ops.contract.errors import PdfOpsError, sanitise
from pdf_ops.contract.layout import bare_etag
from pdf_ops.contract.media import HEAD_BYTES, MediaType, media_type
from pdf_ops.contract.messages import DocumentMessage
from pdf_ops.contract.state import DocumentState, StateStatus, listing_shard, new_listing_key
from pdf_ops.hooks.clients import error_code
from pdf_ops.settings import Settings

PART_BYTES = 8 * 2**20
_WAIT_FOR_TWIN_S = 10.0
_SUFFIXES = {
    MediaType.PDF: ".pdf",
    MediaType.PNG: ".png",
    MediaType.JPEG: ".jpg",
    MediaType.TIFF: ".tiff",
}
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """An upload that was taken.

    Attributes:
        state: What is known about the document.
        is_new: Whether it was not there before.
        is_rung: Whether a run was started for it.
    """

    state: DocumentState
    is_new: bool
    is_rung: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """An object that was written."""

    key: str
    etag: str
    version_id: str | None
    size_bytes: int
    visit: Visit


class _Upload:
    """One upload's bytes on their way to S3: in parts as soon as there are more than one part's."""

    def __init__(self, s3: Any, bucket: str, prefix: str) -> None:
        self.name = uuid.uuid4().hex
        self.size_bytes = 0
        self.media_type: MediaType | None = None
        self.sha256 = hashlib.sha256()
        self._s3, self._bucket, self._prefix = s3, bucket, prefix
        self._buffer = bytearray()
        self._key = ""
        self._upload_id: str | None = None
        self._parts: list[dict[str, Any]] = []

    def add(self, data: bytes, filename: str) -> bool:
        """Take bytes; True if a part is full and should be sent.

        Raises:
            PdfOpsError: If the first of them are none of the kinds that are read.
        """
        self._buffer += data
        self.size_bytes += len(data)
        if self.media_type is None and len(self._buffer) >= HEAD_BYTES:
            self.media_type = media_type(bytes(self._buffer[:HEAD_BYTES]), filename)
        return len(self._buffer) >= PART_BYTES

    def close(self, filename: str) -> None:
        """Know that all bytes are there."""
        if self.media_type is None:
            self.media_type = media_type(bytes(self._buffer[:HEAD_BYTES]), filename)

    def send_part(self) -> None:
        """Send what is there as a part."""
        body, self._buffer = bytes(self._buffer), bytearray()
        self.sha256.update(body)
        if self._upload_id is None:
            # A folder of its own: its run reads it alone, whenever the upload ends.
            self._key = f"{self._prefix}{self.name}/document{self.suffix}"
            self._upload_id = self._s3.create_multipart_upload(
                Bucket=self._bucket, Key=self._key, ContentType=self._content_type
            )["UploadId"]
        number = len(self._parts) + 1
        answer = self._s3.upload_part(
            Bucket=self._bucket, Key=self._key, UploadId=self._upload_id, PartNumber=number, Body=body
        )
        self._parts.append({"PartNumber": number, "ETag": answer["ETag"]})

    def finish_hash(self) -> str:
        """The content's hash, once all is there; the last bytes stay to be stored."""
        digest = self.sha256.copy()
        digest.update(self._buffer)
        return digest.hexdigest()

    def store(self, window_s: int) -> _Stored:
        """Make the object appear."""
        if self._upload_id is not None:
            if self._buffer:
                self.send_part()
            answer = self._s3.complete_multipart_upload(
                Bucket=self._bucket,
                Key=self._key,
                UploadId=self._upload_id,
                MultipartUpload={"Parts": self._parts},
            )
            self._upload_id = None
            visit = Visit.of_one(self._key, self.name, datetime.now(UTC))
        else:
            visit = Visit.of_window(self._prefix, window_s, datetime.now(UTC))
            self._key = f"{visit.prefix}{self.name}{self.suffix}"
            answer = self._s3.put_object(
                Bucket=self._bucket, Key=self._key, Body=bytes(self._buffer), ContentType=self._content_type
            )
            if datetime.now(UTC) > visit.closes_at:
                visit = Visit.of_one(self._key, self.name, datetime.now(UTC))
        return _Stored(
            key=self._key,
            etag=bare_etag(answer["ETag"]),
            version_id=answer.get("VersionId"),
            size_bytes=self.size_bytes,
            visit=visit,
        )

    def discard(self) -> None:
        """Leave nothing behind."""
        self._buffer = bytearray()
        if self._upload_id is not None:
            self._s3.abort_multipart_upload(Bucket=self._bucket, Key=self._key, UploadId=self._upload_id)
            self._upload_id = None

    @property
    def suffix(self) -> str:
        """The ending of its key, by its content."""
        return _SUFFIXES[self.media_type] if self.media_type is not None else ""

    @property
    def _content_type(self) -> str:
        return self.media_type.value if self.media_type is not None else "application/octet-stream"


class Uploads:
    """Takes uploads.

    :param aws: AWS.
    :param pipeline: Where documents, queue and tables are.
    :param settings: The API's own.
    :param documents: Tells the cache.
    :param doorbell: Starts runs.
    """

    def __init__(
        self, aws: Aws, pipeline: Settings, settings: ApiSettings, documents: Documents, doorbell: Doorbell
    ) -> None:
        self._aws, self._pipeline, self._settings = aws, pipeline, settings
        self._documents, self._doorbell = documents, doorbell
        self._prefix = pipeline.input_s3_prefix + settings.upload_prefix
        self._max_bytes = settings.max_upload_mb * 2**20
        self._suffixes = tuple(one.lower() for one in pipeline.input_suffixes.split(",") if one)

    async def take(
        self, client: Client, form: FormFile, length: int | None, idempotency_key: str | None
    ) -> Taken:
        """Store an upload and have it read, or find that it has been.

        Raises:
            ProblemError: 409, 413, 415 or 422.
        """
        # What stands around the file in a form is small.
        if length is not None and length > self._max_bytes + 2**20:
            raise self._too_large()
        claims = Claims(self._aws.client("dynamodb"), self._pipeline.dynamo_runs_table_name)
        name = idempotency_name(client.id, idempotency_key) if idempotency_key else None
        if name is not None:
            known = await self._aws.run(claims.take, name, Claim())
            if known is not None:
                return await self._repeat(known, form)
        upload = _Upload(self._aws.client("s3"), self._pipeline.input_s3_bucket, self._prefix)
        try:
            await self._receive(upload, form)
            taken, sha256 = await self._store_once(claims, upload, form.filename, client)
        except BaseException as error:
            # Also when the request is cancelled: a client that vanished leaves nothing in S3.
            await asyncio.shield(self._clean_up(upload, claims, name))
            if isinstance(error, PdfOpsError):
                raise _refusal(error) from None
            if isinstance(error, ClientDisconnect):
                raise ProblemError(400, "The client went away in the middle.") from None
            raise
        if name is not None:
            claim = Claim(s3_key=taken.state.s3_key, sha256=sha256, is_complete=True)
            await self._aws.run(claims.complete, name, claim)
        return taken

    async def _receive(self, upload: _Upload, form: FormFile) -> None:
        async for chunk in form.chunks():
            is_full = upload.add(chunk, form.filename)
            if upload.size_bytes > self._max_bytes:
                raise self._too_large()
            if is_full:
                self._check_kind(upload)
                await self._aws.run(upload.send_part)
        upload.close(form.filename)
        self._check_kind(upload)

    def _check_kind(self, upload: _Upload) -> None:
        if self._suffixes and not upload.suffix.endswith(self._suffixes):
            raise ProblemError(415, f"Only {', '.join(self._suffixes)} are read here.")

    def _too_large(self) -> ProblemError:
        return ProblemError(413, f"At most {self._settings.max_upload_mb} MB are taken.")

    async def _clean_up(self, upload: _Upload, claims: Claims, name: str | None) -> None:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            await self._aws.run(upload.discard)
            if name is not None:
                await self._aws.run(claims.give_up, name)
        except (BotoCoreError, ClientError) as error:
            _log.warning("an upload that failed could not be cleaned up: %s", error)

    async def _repeat(self, known: Claim, form: FormFile) -> Taken:
        """The same request again: its job, if the content is the same."""
        if not known.is_complete:
            raise ProblemError(
                409, "A request with this Idempotency-Key is under way.", headers={"Retry-After": "1"}
            )
        digest = hashlib.sha256()
        async for chunk in form.chunks():
            digest.update(chunk)
        if digest.hexdigest() != known.sha256:
            raise ProblemError(409, "This Idempotency-Key came with another content before.")
        return await self._known(known.s3_key)

    async def _known(self, s3_key: str) -> Taken:
        state = (await self._documents.read([s3_key])).get(s3_key)
        if state is None:
            raise ProblemError(
                409, "The same content is being stored; try again.", headers={"Retry-After": "1"}
            )
        return Taken(state=state, is_new=False, is_rung=False)

    async def _store_once(
        self, claims: Claims, upload: _Upload, filename: str, client: Client
    ) -> tuple[Taken, str]:
        sha256 = await self._aws.run(upload.finish_hash)
        name = content_name(sha256)
        known = await self._claim_content(claims, name)
        if known is not None:
            await self._aws.run(upload.discard)
            return await self._known(known.s3_key), sha256
        try:
            stored = await self._aws.run(upload.store, self._settings.doorbell_window_s)
        except BaseException:
            await asyncio.shield(self._aws.run(claims.give_up, name))
            raise

        async def conclude() -> Taken:
            taken = await self._hand_over(upload, stored, filename, client)
            claim = Claim(s3_key=stored.key, sha256=sha256, is_complete=True)
            await self._aws.run(claims.complete, name, claim)
            return taken

        # Nothing may stop half way from here on, not even a client that hangs up.
        return await asyncio.shield(conclude()), sha256

    async def _claim_content(self, claims: Claims, name: str) -> Claim | None:
        """The claim of the same content that was faster; None if it is ours."""
        deadline = time.monotonic() + _WAIT_FOR_TWIN_S
        while True:
            known = await self._aws.run(claims.take, name, Claim())
            if known is None:
                return None
            if known.is_complete:
                if await self._documents.read([known.s3_key]):
                    return known
                # Somebody has removed the document since: it may be stored anew.
                await self._aws.run(claims.give_up, name)
                continue
            if time.monotonic() > deadline:
                raise ProblemError(
                    409, "The same content is being stored; try again.", headers={"Retry-After": "5"}
                )
            await asyncio.sleep(0.25)

    async def _hand_over(self, upload: _Upload, stored: _Stored, filename: str, client: Client) -> Taken:
        is_rung = await self._doorbell.ring(stored.visit, client)
        run_id = stored.visit.run_id if is_rung else None
        now = datetime.now(UTC)
        state = DocumentState(
            s3_key=stored.key,
            status=StateStatus.PENDING,
            last_updated=now.isoformat(timespec="milliseconds"),
            etag=stored.etag,
            version_id=stored.version_id,
            run_id=run_id,
            listing_key=new_listing_key(stored.key, now),
            size_bytes=stored.size_bytes,
            content_type=upload.media_type.value if upload.media_type else None,
            filename=sanitise(filename, 200) or "document",
        )
        message = DocumentMessage(
            bucket=self._pipeline.input_s3_bucket,
            key=stored.key,
            version_id=stored.version_id,
            etag=stored.etag,
            size=stored.size_bytes,
            run_id=run_id,
        )
        await self._aws.run(self._put_state, state)
        await self._aws.run(
            self._aws.client("sqs").send_message,
            QueueUrl=self._pipeline.sqs_queue_url,
            MessageBody=message.to_json(),
        )
        await self._documents.remember(state)
        return Taken(state=state, is_new=True, is_rung=is_rung)

    def _put_state(self, state: DocumentState) -> None:
        from botocore.exceptions import ClientError

        values = {name: getattr(state, name) for name in DocumentState.__dataclass_fields__}
        item = item_of(
            values
            | {"status": state.status.value, "listing_shard": listing_shard(state.status, state.s3_key)}
        )
        client, table = self._aws.client("dynamodb"), self._pipeline.dynamo_table_name
        try:
            client.put_item(TableName=table, Item=item, ConditionExpression="attribute_not_exists(s3_key)")
        except ClientError as error:
            if error_code(error) != "ConditionalCheckFailedException":
                raise
            # A run listed the object just now, and a worker has it: only the name is news.
            client.update_item(
                TableName=table,
                Key={"s3_key": item["s3_key"]},
                UpdateExpression="SET filename = :name",
                ExpressionAttributeValues={":name": item["filename"]},
            )


def _refusal(error: PdfOpsError) -> ProblemError:
    """A content that no worker would read, as a problem."""
    if error.kind.code == "empty_file":
        return ProblemError(422, "The file is empty.")
    return ProblemError(415, f"Only PDF, PNG, JPEG and TIFF are read, and this is none: {error.detail}.")
