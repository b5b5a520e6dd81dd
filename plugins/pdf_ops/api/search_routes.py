"""Search: the pages that hold words, the best first."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Query

from pdf_ops.api.dependencies import Reader, ServicesDep
from pdf_ops.api.ids import decode, encode
from pdf_ops.api.models import SearchHit, SearchIndexInfo, SearchPage, SnippetPiece, filename_of
from pdf_ops.api.problems import ProblemError, responses
from pdf_ops.search.found import MAX_OFFSET, Found, Hit, NeverBuiltError, NoIndexError, NotReadyError
from pdf_ops.search.keys import end_of, key_of
from pdf_ops.search.query import MAX_QUERY_CHARS, QueryError, parse

_RETRY_S = "5"
router = APIRouter(prefix="/v1/search", tags=["search"])


@router.get("", summary="Find pages by their words", responses=responses(404))
async def search(
    services: ServicesDep,
    client: Reader,
    q: Annotated[
        str,
        Query(
            min_length=1,
            max_length=MAX_QUERY_CHARS,
            description='Words that are all on the page, "a phrase", -without, prefix*.',
            examples=['"purchase order" invoic* -draft'],
        ),
    ],
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    cursor: Annotated[
        str | None, Query(max_length=200, description="`next_cursor` of the page before.")
    ] = None,
) -> SearchPage:
    """The best hits first. A run's pages can be found once its task `index` has ended."""
    offset = _offset_of(cursor, q) if cursor else 0
    try:
        query = parse(q)
        found = await services.aws.run(services.search.search, query, limit=limit, offset=offset)
    except QueryError as error:
        raise ProblemError(422, f"q: {error}") from None
    except NeverBuiltError as error:
        raise ProblemError(404, _sentence(error)) from None
    except NotReadyError as error:
        raise ProblemError(503, _sentence(error), headers={"Retry-After": _RETRY_S}) from None
    except NoIndexError as error:
        raise ProblemError(503, _sentence(error)) from None
    bucket = services.pipeline.input_s3_bucket
    keys = list(dict.fromkeys(key_of(hit.source_uri, bucket) for hit in found.hits))
    # An upload's name is not its key's end.
    states = await services.documents.read(keys)
    names = {s3_key: filename_of(state) for s3_key, state in states.items()}
    return _page(found, bucket, names, q, offset)


def _page(found: Found, bucket: str, names: Mapping[str, str], q: str, offset: int) -> SearchPage:
    after = offset + len(found.hits)
    has_more = found.has_more and found.hits and after <= MAX_OFFSET
    return SearchPage(
        hits=[_hit(hit, bucket, names) for hit in found.hits],
        total=found.total,
        next_cursor=_cursor(after, q) if has_more else None,
        index=SearchIndexInfo(kind=found.index.kind, built_at=found.index.built_at, rows=found.index.rows),
    )


def _hit(hit: Hit, bucket: str, names: Mapping[str, str]) -> SearchHit:
    s3_key = key_of(hit.source_uri, bucket)
    return SearchHit(
        document_id=encode(s3_key),
        s3_key=s3_key,
        filename=names.get(s3_key) or end_of(s3_key),
        page=hit.page,
        page_count=hit.page_count,
        score=hit.score,
        snippet=[SnippetPiece(text=piece.text, is_hit=piece.is_hit) for piece in hit.snippet],
    )


def _cursor(offset: int, q: str) -> str:
    return encode(json.dumps([offset, _digest(q)]))


def _offset_of(cursor: str, q: str) -> int:
    try:
        values = json.loads(decode(cursor))
    except ValueError:
        values = None
    match values:
        case [int(offset), str(digest)] if digest == _digest(q) and 0 <= offset <= MAX_OFFSET:
            return int(offset)
    raise ProblemError(422, "cursor: take it from next_cursor of the page before, and keep the query.")


def _digest(q: str) -> str:
    return hashlib.sha256(q.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _sentence(error: Exception) -> str:
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}."
