"""What is in OpenSearch and how it gets there: names, template, documents, and the bulk requests.

Both planes write the same documents under the same ids, and an older reading never replaces a newer
one. Speaks HTTP with the standard library; how a request is signed is the caller's to say.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
import ssl
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import TYPE_CHECKING, Any

from pdf_ops.contract.errors import redact_urls
from pdf_ops.contract.layout import LayoutError, S3Uri

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

TEMPLATE_VERSION = 1
"""Raised whenever the fields change; it is in the indexes' names, so that old and new stand side by side."""
MAX_BULK_BYTES = 5 * 2**20
# The text of a whole file is for programs that want it in one piece; what is searched is in its pages.
MAX_EXTRACTED_CHARS = 1_000_000
ATTEMPTS = 5
BACKOFF_S = 0.5
MAX_BACKOFF_S = 10.0
NDJSON = "application/x-ndjson"
_JSON = "application/json"
_PASSING = frozenset({408, 429, 500, 502, 503, 504})


class OpenSearchError(Exception):
    """OpenSearch did not do what it was asked.

    Attributes:
        status: What it answered; 0 if it did not.
        is_passing: Whether the same may work later.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message, status)
        self.message, self.status = message, status
        self.is_passing = status == 0 or status in _PASSING

    def __str__(self) -> str:
        """What it said."""
        return self.message


@dataclass(frozen=True, slots=True)
class IndexNames:
    """The indexes and their aliases.

    Attributes:
        name: What all of them begin with.
    """

    name: str

    @property
    def files(self) -> str:
        """One document per file."""
        return f"{self.name}-files-v{TEMPLATE_VERSION}"

    @property
    def pages(self) -> str:
        """One document per page."""
        return f"{self.name}-pages-v{TEMPLATE_VERSION}"

    @property
    def aliases(self) -> dict[str, str]:
        """The names without a version, for other programs, and what they stand for."""
        return {f"{self.name}-files": self.files, f"{self.name}-pages": self.pages}


_KEYWORD = {"type": "keyword", "ignore_above": 1024}
_TEXT = {"type": "text", "analyzer": "pdf_ops_text"}
_SETTINGS = {
    "analysis": {
        "analyzer": {
            "pdf_ops_text": {
                "type": "custom",
                "tokenizer": "standard",
                "filter": ["lowercase", "asciifolding"],
            }
        }
    }
}
_FIELDS: dict[str, dict[str, Any]] = {
    "files": {
        "file_id": _KEYWORD,
        "s3_key": _KEYWORD,
        "source_uri": _KEYWORD,
        "file_name": {**_TEXT, "fields": {"raw": _KEYWORD}},
        "file_size": {"type": "long"},
        "mime_type": _KEYWORD,
        "page_count": {"type": "integer"},
        "extracted_text": _TEXT,
        "text_length": {"type": "long"},
        "last_modified": {"type": "date"},
        "indexed_at": {"type": "date"},
    },
    "pages": {
        "file_id": _KEYWORD,
        "s3_key": _KEYWORD,
        "source_uri": _KEYWORD,
        "file_name": {**_TEXT, "fields": {"raw": _KEYWORD}},
        "page": {"type": "integer"},
        "page_count": {"type": "integer"},
        "text": _TEXT,
        "method": _KEYWORD,
        "status": _KEYWORD,
        "ocr_confidence": {"type": "float"},
        "run_id": _KEYWORD,
        "read_at": {"type": "date"},
        "indexed_at": {"type": "date"},
    },
}


def template_body(names: IndexNames, kind: str) -> dict[str, Any]:
    """The index template of ``files`` or ``pages``."""
    return {
        "index_patterns": [f"{names.name}-{kind}-v{TEMPLATE_VERSION}"],
        "version": TEMPLATE_VERSION,
        "priority": 200,
        "template": {
            "settings": _SETTINGS,
            # A field that is not known here is kept, and neither indexed nor refused.
            "mappings": {"dynamic": False, "properties": _FIELDS[kind]},
        },
    }


@dataclass(frozen=True, slots=True)
class Action:
    """One document to write.

    Attributes:
        id: Its id; the same document has the same.
        lines: What a bulk request holds of it.
    """

    id: str
    lines: bytes


def file_id_of(source_uri: str) -> str:
    """A file's id: one that fits, however long its key is."""
    return hashlib.sha256(source_uri.encode("utf-8", "surrogatepass")).hexdigest()


def _names_of(source_uri: str) -> dict[str, str]:
    try:
        key = S3Uri.parse(source_uri).key
    except LayoutError:
        key = source_uri
    return {
        "file_id": file_id_of(source_uri),
        "s3_key": key,
        "source_uri": source_uri,
        "file_name": key.rstrip("/").rpartition("/")[2] or key,
    }


def _action(index: str, identity: str, version: int, body: Mapping[str, Any]) -> Action:
    # With the time of reading as version: what comes late and is older changes nothing.
    head = {"index": {"_index": index, "_id": identity, "version": version, "version_type": "external_gte"}}
    lines = "".join(f"{json.dumps(part, ensure_ascii=True)}\n" for part in (head, body))
    return Action(identity, lines.encode("ascii"))


def page_action(names: IndexNames, row: Mapping[str, Any], indexed_at: datetime) -> Action:
    """A page's row as OpenSearch has it."""
    file_id = file_id_of(row["source_uri"])
    body = {
        **_names_of(row["source_uri"]),
        **{name: row[name] for name in ("page", "page_count", "text", "method", "status")},
        "ocr_confidence": row["ocr_confidence"],
        "run_id": row["run_id"],
        "read_at": row["read_at"].isoformat(),
        "indexed_at": indexed_at.isoformat(),
    }
    return _action(names.pages, f"{file_id}-{row['page']}", _milliseconds(row["read_at"]), body)


@dataclass(slots=True)
class FileText:
    """What the pages of a file give together, as they come by.

    Attributes:
        source_uri: Where the file is.
        size_bytes: Its size.
        mime_type: What it is, if that is known.
    """

    source_uri: str
    size_bytes: int
    mime_type: str | None = None
    page_count: int = 0
    text_length: int = 0
    first_read_at: datetime | None = None
    last_read_at: datetime | None = None
    _texts: list[str] = field(default_factory=list)
    _kept: int = 0

    def add(self, row: Mapping[str, Any]) -> None:
        """Take a page."""
        text: str = row["text"]
        self.page_count = row["page_count"]
        self.text_length += len(text)
        read_at = row["read_at"]
        self.first_read_at = min(self.first_read_at or read_at, read_at)
        self.last_read_at = max(self.last_read_at or read_at, read_at)
        if self._kept < MAX_EXTRACTED_CHARS:
            self._texts.append(text[: MAX_EXTRACTED_CHARS - self._kept])
            self._kept += len(text)

    def forget_text(self) -> None:
        """Keep the figures only."""
        self._texts, self._kept = [], MAX_EXTRACTED_CHARS

    def action(self, names: IndexNames, indexed_at: datetime) -> Action:
        """The file's document."""
        if self.last_read_at is None:
            raise ValueError("a file without pages has no document")
        body = {
            **_names_of(self.source_uri),
            "file_size": self.size_bytes,
            "mime_type": self.mime_type,
            "page_count": self.page_count,
            "extracted_text": "\n\f".join(self._texts),
            "text_length": self.text_length,
            "last_modified": self.last_read_at.isoformat(),
            "indexed_at": indexed_at.isoformat(),
        }
        return _action(names.files, file_id_of(self.source_uri), _milliseconds(self.last_read_at), body)


def _milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def older_pages(files: Sequence[FileText]) -> dict[str, Any]:
    """A query for what an earlier reading of these files has left: pages that they do not have any more."""
    return {
        "query": {
            "bool": {
                "should": [
                    {
                        "bool": {
                            "filter": [
                                {"term": {"file_id": file_id_of(one.source_uri)}},
                                {"range": {"page": {"gt": one.page_count}}},
                                {"range": {"read_at": {"lt": one.first_read_at.isoformat()}}},
                            ]
                        }
                    }
                    for one in files
                    if one.first_read_at is not None
                ],
                "minimum_should_match": 1,
            }
        }
    }


@dataclass(slots=True)
class BulkResult:
    """What became of the documents of a bulk request.

    Attributes:
        indexed: How many are in the index, or have a newer version there.
        refused: Those that never will be, with the reason.
        unsent: Those that could not be written for now.
        retries: How many requests had to be sent again.
        problem: What the last request failed with.
    """

    indexed: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    unsent: list[Action] = field(default_factory=list)
    retries: int = 0
    problem: str = ""


class OpenSearchClient:
    """OpenSearch over HTTP.

    :param url: Where it is.
    :param username: For basic authentication.
    :param password: For basic authentication.
    :param sign: Gives the headers of a signed request, where signatures are asked for.
    :param timeout_s: How long one request may stand still.
    """

    def __init__(
        self,
        url: str,
        *,
        username: str = "",
        password: str = "",
        sign: Callable[[str, str, Mapping[str, str], bytes], Mapping[str, str]] | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        self._url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._sign = sign
        self._basic = ""
        if username:
            self._basic = "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode("ascii")
        # Without a proxy: a domain is reached inside the network. A redirect would lose the signature.
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}),
            urllib.request.HTTPSHandler(context=ssl.create_default_context()),
            _NoRedirects(),
        )

    def call(self, method: str, path: str, body: Any = None, *, content_type: str = _JSON) -> dict[str, Any]:
        """Send one request.

        Raises:
            OpenSearchError: If it is refused, or not answered.
        """
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        what = f"{method} {path.partition('?')[0]}"
        headers: dict[str, str] = {"Accept": _JSON}
        if data:
            headers["Content-Type"] = content_type
        if self._basic:
            headers["Authorization"] = self._basic
        url = f"{self._url}{path}"
        if self._sign is not None:
            headers = dict(self._sign(method, url, headers, data))
        request = urllib.request.Request(url, data or None, headers, method=method)  # noqa: S310
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                content = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                reason = _reason_of(error.read(100_000))
            raise OpenSearchError(f"{what}: {error.code} {reason}", error.code) from None
        except (OSError, HTTPException) as error:
            why = getattr(error, "reason", None) or error
            raise OpenSearchError(redact_urls(f"{what}: {why}")) from None
        try:
            found = json.loads(content or b"{}")
        except ValueError:
            raise OpenSearchError(f"{what}: the answer is no JSON") from None
        return found if isinstance(found, dict) else {"answer": found}

    def prepare(self, names: IndexNames) -> None:
        """Put the templates in place and make the indexes.

        Raises:
            OpenSearchError: If that cannot be done.
        """
        for kind, index in (("files", names.files), ("pages", names.pages)):
            self.call("PUT", f"/_index_template/{index}", template_body(names, kind))
            try:
                self.call("PUT", f"/{index}", {})
            except OpenSearchError as error:
                if "resource_already_exists_exception" not in error.message:
                    raise

    def switch(self, names: IndexNames) -> None:
        """Have the names without a version stand for these indexes, at one moment.

        Raises:
            OpenSearchError: If that cannot be done.
        """
        actions: list[dict[str, Any]] = []
        for alias, index in names.aliases.items():
            actions.append({"remove": {"index": f"{alias}-v*", "alias": alias, "must_exist": False}})
            actions.append({"add": {"index": index, "alias": alias}})
        self.call("POST", "/_aliases", {"actions": actions})

    def remove_older_pages(self, names: IndexNames, files: Sequence[FileText]) -> None:
        """Remove pages that files do not have any more.

        Raises:
            OpenSearchError: If that cannot be done.
        """
        if files:
            self.call("POST", f"/{names.pages}/_delete_by_query?conflicts=proceed", older_pages(files))

    def bulk(
        self,
        actions: Sequence[Action],
        *,
        is_over: Callable[[], bool] = lambda: False,
        attempts: int = ATTEMPTS,
        pause: Callable[[float], object] = time.sleep,
    ) -> BulkResult:
        """Write documents; those that are put off are sent again, and only those.

        Args:
            actions: The documents.
            is_over: Says when not to try any more.
            attempts: How often a request is sent at most.
            pause: Waits so many seconds.
        """
        result = BulkResult()
        waiting = _requests(actions)
        while waiting:
            batch = waiting.pop(0)
            for attempt in range(attempts):
                try:
                    batch = self._bulk_once(batch, result)
                except OpenSearchError as error:
                    result.problem = str(error)
                    if error.status == 413 and len(batch) > 1:
                        middle = len(batch) // 2
                        waiting[:0] = [batch[:middle], batch[middle:]]
                        batch = []
                    elif error.status == 413:
                        result.refused[batch[0].id] = "413 too large for the domain"
                        batch = []
                    elif not error.is_passing:
                        attempt = attempts  # noqa: PLW2901 -- the same request would be refused again
                if not batch or attempt >= attempts - 1 or is_over():
                    break
                result.retries += 1
                pause(min(MAX_BACKOFF_S, BACKOFF_S * 2**attempt) * random.uniform(0.5, 1.0))  # noqa: S311
            result.unsent += batch
        return result

    def _bulk_once(self, batch: Sequence[Action], result: BulkResult) -> list[Action]:
        """Send a request; gives what is to be sent again."""
        answer = self.call("POST", "/_bulk", b"".join(one.lines for one in batch), content_type=NDJSON)
        items = answer.get("items")
        if not isinstance(items, list) or len(items) != len(batch):
            raise OpenSearchError("POST /_bulk: the answer does not fit the request", 500)
        again = []
        for action, item in zip(batch, items, strict=True):
            outcome: dict[str, Any] = next(iter(item.values()), {})
            status = int(outcome.get("status", 500))
            if status < 300 or status == 409:  # A newer version is there.
                result.indexed += 1
            elif status in _PASSING:
                again.append(action)
                result.problem = f"{status} {_kind_of(outcome)}"
            else:
                # Not the reason itself, which may quote the document.
                result.refused[action.id] = f"{status} {_kind_of(outcome)}"
        return again


def _requests(actions: Sequence[Action]) -> list[list[Action]]:
    """Documents cut into requests that are not too large."""
    found: list[list[Action]] = []
    size = 0
    for action in actions:
        if not found or size + len(action.lines) > MAX_BULK_BYTES:
            found.append([])
            size = 0
        found[-1].append(action)
        size += len(action.lines)
    return found


def _kind_of(outcome: Mapping[str, Any]) -> str:
    error = outcome.get("error")
    return str(error.get("type", "")) if isinstance(error, dict) else ""


def _reason_of(content: bytes) -> str:
    """OpenSearch's name of an error, without what it quotes."""
    try:
        error = json.loads(content).get("error")
    except (ValueError, AttributeError):
        return ""
    return str(error.get("type", "")) if isinstance(error, dict) else ""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Have a redirect be an error."""
