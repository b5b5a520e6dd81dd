"""OpenSearch for the control plane: asked in place of the embedded index, and filled from the dataset.

What is in it, and the wire, is ``pdf_ops.contract.opensearch``'s: the workers write the same.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from pdf_ops.contract.opensearch import (
    MAX_BULK_BYTES,
    Action,
    FileText,
    IndexNames,
    OpenSearchClient,
    OpenSearchError,
    page_action,
)
from pdf_ops.search.building import Progress, rows_of
from pdf_ops.search.found import Found, Hit, IndexInfo, IndexKind, NoIndexError, Piece
from pdf_ops.search.query import Kind
from pdf_ops.search.snippets import SNIPPET_CHARS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pdf_ops.search.building import Dataset, DatasetFile
    from pdf_ops.search.query import Clause, SearchQuery
    from pdf_ops.settings import Settings

COLUMNS = (
    *("source_uri", "source_size", "page", "page_count", "text", "method", "status"),
    *("ocr_confidence", "run_id", "read_at"),
)
FILES_AT_ONCE = 200
_AMAZON = (".es.amazonaws.com", ".aos.amazonaws.com")
_SERVICE = "es"
# No document has these: they are not characters.
_BEGIN, _END = "\ue000", "\ue001"
_FACTS_S = 60.0
_OUT_OF_REACH = "look at the domain's health, and at what this program may do there"


def client_of(settings: Settings, *, timeout_s: float = 10.0) -> OpenSearchClient:
    """OpenSearch as the settings say: with a user, with a signature, or with neither."""
    host = settings.opensearch_url.partition("://")[2].partition("/")[0]
    is_signed = not settings.opensearch_username and host.endswith(_AMAZON)
    return OpenSearchClient(
        settings.opensearch_url,
        username=settings.opensearch_username,
        password=settings.opensearch_password,
        sign=_signer(settings) if is_signed else None,
        timeout_s=timeout_s,
    )


def _signer(settings: Settings) -> Callable[[str, str, Mapping[str, str], bytes], Mapping[str, str]]:
    """Signs with the credentials of the Airflow connection, or those of the machine."""

    def sign(method: str, url: str, headers: Mapping[str, str], body: bytes) -> Mapping[str, str]:
        from airflow.providers.amazon.aws.hooks.base_aws import AwsBaseHook
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest

        hook: Any = AwsBaseHook(
            aws_conn_id=settings.aws_conn_id or None,
            region_name=settings.aws_region or None,
            client_type="sts",
        )
        session = hook.get_session()
        request = AWSRequest(method=method, url=url, data=body, headers=dict(headers))
        credentials = session.get_credentials()
        if credentials is None:
            raise OpenSearchError("there are no AWS credentials to sign with", 403)
        SigV4Auth(credentials.get_frozen_credentials(), _SERVICE, session.region_name).add_auth(request)
        return dict(request.headers.items())

    return sign


class OpenSearchIndex:
    """Asks OpenSearch.

    :param client: OpenSearch.
    :param names: Its indexes.
    """

    def __init__(self, client: OpenSearchClient, names: IndexNames) -> None:
        self._client, self._names = client, names
        self._lock = threading.Lock()
        self._info: tuple[float, IndexInfo] | None = None

    def search(self, query: SearchQuery, *, limit: int, offset: int = 0) -> Found:
        """See ``SearchIndex``."""
        try:
            answer = self._client.call(
                "POST", f"/{self._names.pages}/_search", search_body(query, limit=limit, offset=offset)
            )
            info = self._described()
        except OpenSearchError as error:
            if error.status == 404:
                raise NoIndexError(
                    f"OpenSearch has no index {self._names.pages}: fill it with `pdf-ops reindex`"
                ) from None
            raise NoIndexError(f"OpenSearch does not answer ({error}): {_OUT_OF_REACH}") from None
        try:
            found = answer["hits"]
            hits = tuple(_hit(one) for one in found["hits"])
            total = found["total"]
            known = int(total["value"]) if total["relation"] == "eq" else None
            least = int(total["value"])
        except (KeyError, TypeError, ValueError):
            raise NoIndexError("OpenSearch's answer is not what was asked for: is it OpenSearch?") from None
        return Found(hits=hits, total=known, has_more=offset + len(hits) < least, index=info)

    def _described(self) -> IndexInfo:
        """How many pages it has, and when the last of them came; looked at once a minute."""
        with self._lock:
            if self._info is not None and time.monotonic() - self._info[0] < _FACTS_S:
                return self._info[1]
        body = {"size": 0, "track_total_hits": True, "aggs": {"last": {"max": {"field": "indexed_at"}}}}
        answer = self._client.call("POST", f"/{self._names.pages}/_search", body)
        last = answer.get("aggregations", {}).get("last", {}).get("value_as_string") or ""
        rows = int(answer["hits"]["total"]["value"])
        info = IndexInfo(kind=IndexKind.OPENSEARCH, built_at=str(last), rows=rows)
        with self._lock:
            self._info = time.monotonic(), info
        return info


def search_body(query: SearchQuery, *, limit: int, offset: int) -> dict[str, Any]:
    """A query in OpenSearch's words."""
    return {
        "from": offset,
        "size": limit,
        "_source": ["source_uri", "page", "page_count"],
        "query": {
            "bool": {
                "must": [_clause(one) for one in query.wanted],
                "must_not": [_clause(one) for one in query.unwanted],
            }
        },
        "highlight": {
            "pre_tags": [_BEGIN],
            "post_tags": [_END],
            "max_analyzer_offset": 900_000,
            "fields": {"text": {"type": "unified", "number_of_fragments": 1, "fragment_size": SNIPPET_CHARS}},
        },
    }


def _clause(clause: Clause) -> dict[str, Any]:
    match clause.kind:
        case Kind.WORD:
            return {"match": {"text": {"query": clause.words[0]}}}
        case Kind.PHRASE:
            return {"match_phrase": {"text": {"query": " ".join(clause.words)}}}
        case Kind.PREFIX:
            return {"prefix": {"text": {"value": clause.words[0]}}}


def _hit(found: Mapping[str, Any]) -> Hit:
    source = found["_source"]
    text = next(iter(found.get("highlight", {}).get("text", [])), "")
    return Hit(
        source_uri=str(source["source_uri"]),
        page=int(source["page"]),
        page_count=int(source["page_count"]),
        score=round(float(found["_score"] or 0.0), 4),
        snippet=tuple(_pieces(text)),
    )


def _pieces(text: str) -> list[Piece]:
    pieces = []
    for number, part in enumerate(text.split(_BEGIN)):
        hit, found, rest = part.partition(_END) if number else ("", "", part)
        if found and hit:
            pieces.append(Piece(text=hit, is_hit=True))
        elif not found and number:
            rest = hit
        if rest:
            pieces.append(Piece(text=" ".join(rest.split("\n")), is_hit=False))
    return pieces


class Reindexed:
    """What a reindexing did, as it goes.

    Attributes:
        files: How many files of the dataset were read.
        indexed: How many documents, of files and pages, are in the index.
        refused: Those that OpenSearch does not take, with the reason.
        elapsed_s: How long it took.
    """

    def __init__(self) -> None:
        self.files = 0
        self.rows = 0
        self.indexed = 0
        self.refused: dict[str, str] = {}
        self.elapsed_s = 0.0


def reindex(
    client: OpenSearchClient,
    names: IndexNames,
    dataset: Dataset,
    *,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> Reindexed:
    """Write the whole dataset to OpenSearch, and have the names without a version stand for it.

    May be repeated, and may run while workers write: what is older never replaces what is newer.

    Raises:
        OpenSearchError: If it does not take it; what was written stays, and nothing was switched.
    """
    client.prepare(names)
    done = _Reindexing(client, names, dataset, on_progress).run()
    client.switch(names)
    return done


class _Reindexing:
    def __init__(
        self,
        client: OpenSearchClient,
        names: IndexNames,
        dataset: Dataset,
        on_progress: Callable[[Progress], None],
    ) -> None:
        self._client, self._names, self._dataset = client, names, dataset
        self._on_progress = on_progress
        self._done = Reindexed()
        self._began = time.monotonic()
        self._actions: list[Action] = []
        self._bytes = self._bytes_done = 0
        self._whole: list[FileText] = []
        self._current: FileText | None = None
        self._whose: tuple[str, str | None] = ("", None)
        self._total: Sequence[DatasetFile] = ()

    def run(self) -> Reindexed:
        self._total = self._dataset.files()
        with TemporaryDirectory(prefix="pdf_ops-reindex-") as name:
            from pathlib import Path

            for file in self._total:
                self._take(self._dataset.local(file, Path(name)))
                self._done.files += 1
                self._bytes_done += file.size_bytes
                self._tell()
        self._finish()
        self._send()
        self._done.elapsed_s = time.monotonic() - self._began
        return self._done

    def _take(self, path: Path) -> None:
        for row in rows_of(path, COLUMNS, has_moments=True):
            whose = row["source_uri"], row["run_id"]
            # Not at the end of the file: a long document goes on in the next.
            if self._current is None or whose != self._whose:
                self._finish()
                uri = row["source_uri"]
                self._current, self._whose = FileText(uri, row["source_size"], media_type_of(uri)), whose
            self._current.add(row)
            self._add(page_action(self._names, row, datetime.now(UTC)))
            self._done.rows += 1
            if self._done.rows % 5_000 == 0:
                self._tell()

    def _finish(self) -> None:
        current, self._current = self._current, None
        if current is None:
            return
        self._add(current.action(self._names, datetime.now(UTC)))
        current.forget_text()
        self._whole.append(current)
        if len(self._whole) >= FILES_AT_ONCE:
            self._send()

    def _add(self, action: Action) -> None:
        self._actions.append(action)
        self._bytes += len(action.lines)
        if self._bytes >= MAX_BULK_BYTES:
            self._write()

    def _send(self) -> None:
        self._write()
        self._client.remove_older_pages(self._names, self._whole)
        self._whole = []

    def _write(self) -> None:
        result = self._client.bulk(self._actions)
        self._actions, self._bytes = [], 0
        self._done.indexed += result.indexed
        self._done.refused |= result.refused
        if result.unsent:
            raise OpenSearchError(f"{len(result.unsent)} documents could not be written: {result.problem}")

    def _tell(self) -> None:
        self._on_progress(
            Progress(
                files_done=self._done.files,
                files=len(self._total),
                bytes_done=self._bytes_done,
                bytes=sum(file.size_bytes for file in self._total),
                rows=self._done.rows,
                elapsed_s=time.monotonic() - self._began,
            )
        )


def media_type_of(source_uri: str) -> str | None:
    """What a file is by its name: the page dataset does not say more."""
    import mimetypes

    return mimetypes.guess_type(source_uri)[0]
