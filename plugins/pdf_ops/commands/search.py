"""``pdf-ops search``, ``index`` and ``reindex``: find pages from a terminal, and keep what finds them.

Not for the index itself: that is ``pdf_ops.search``.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pdf_ops.commands.output import write, write_json
from pdf_ops.commands.session import OK, UNUSABLE, WRONG, CommandError

if TYPE_CHECKING:
    import argparse

    from pdf_ops.commands.session import Session
    from pdf_ops.objects import ObjectStore
    from pdf_ops.search.building import Built, Progress
    from pdf_ops.search.found import Found, Hit, Piece, SearchIndex

MAX_LIMIT = 1_000
_BOLD, _DIM, _PLAIN = "\033[1;33m", "\033[2m", "\033[0m"


def add_to(commands: Any) -> None:
    """Add the commands."""
    search = commands.add_parser("search", help="find pages by their words")
    search.add_argument(
        "words", nargs="+", help='words that are all on a page, "a phrase", -without, prefix*'
    )
    search.add_argument("--limit", type=int, default=10, help="at most so many hits (default %(default)s)")
    search.add_argument("--json", action="store_true", help="the hits for programs, as the API gives them")
    search.add_argument("--index", type=Path, help="an index in a local folder, instead of the published one")
    search.set_defaults(handler=_search)

    index = commands.add_parser("index", help="bring the search index up to date with the dataset")
    index.add_argument("--rebuild", action="store_true", help="begin with an empty index")
    index.add_argument("--dataset", type=Path, help="a local dataset, instead of the published one")
    index.add_argument("--index", type=Path, help="the local folder of its index; goes with --dataset")
    index.set_defaults(handler=_index)

    again = commands.add_parser("reindex", help="write the whole dataset to OpenSearch")
    again.add_argument("--dataset", type=Path, help="a local dataset, instead of the published one")
    again.set_defaults(handler=_reindex)


def _search(session: Session, options: argparse.Namespace) -> int:
    from pdf_ops.search.found import NoIndexError
    from pdf_ops.search.query import QueryError, parse

    if not 1 <= options.limit <= MAX_LIMIT:
        raise CommandError(f"--limit is {options.limit}; accepted: 1 to {MAX_LIMIT}", UNUSABLE)
    try:
        query = parse(" ".join(options.words))
        index, bucket = _index_of(session, options)
        found = index.search(query, limit=options.limit)
    except (QueryError, NoIndexError) as error:
        raise CommandError(str(error), UNUSABLE) from None
    if options.json:
        write_json(_as_json(found, bucket))
    else:
        _show(found, bucket)
    return OK if found.hits else WRONG


def _index(session: Session, options: argparse.Namespace) -> int:
    from pdf_ops.search.found import NoIndexError

    if (options.dataset is None) != (options.index is None):
        raise CommandError(
            "--dataset and --index go together: rows on this machine, and their index", UNUSABLE
        )
    try:
        built = _update_local(options) if options.dataset else _update_published(session, options)
    except NoIndexError as error:
        raise CommandError(str(error), UNUSABLE) from None
    rate = f", {built.rows_added / built.elapsed_s:,.0f} pages/s" if built.rows_added else ""
    write(
        f"{built.rows:,} pages in the index: {built.rows_added:,} added from {built.files_added:,} files, "
        f"{built.documents_replaced:,} documents replaced; {built.elapsed_s:.1f} s{rate}"
    )
    return OK


def _reindex(session: Session, options: argparse.Namespace) -> int:
    from dataclasses import replace

    from pdf_ops.contract.opensearch import IndexNames, OpenSearchError
    from pdf_ops.search.building import LocalDataset, S3Dataset
    from pdf_ops.search.found import NoIndexError
    from pdf_ops.search.opensearch import client_of, reindex

    pipeline = replace(session.settings, aws_conn_id="")
    if not pipeline.opensearch_url:
        raise CommandError("there is no OpenSearch: set AIRFLOW__PDF_OPS__OPENSEARCH_URL", UNUSABLE)
    names = IndexNames(pipeline.opensearch_index)
    try:
        dataset = (
            LocalDataset(options.dataset)
            if options.dataset
            else S3Dataset(_store(session), pipeline.layout.pages_dataset())
        )
        done = reindex(client_of(pipeline, timeout_s=60.0), names, dataset, on_progress=_progress())
    except (NoIndexError, OpenSearchError) as error:
        raise CommandError(
            f"{error}. What was written stays; run it again when that is mended", UNUSABLE
        ) from None
    write(
        f"{done.rows:,} pages of {done.files:,} files: {done.indexed:,} documents in {names.pages} and "
        f"{names.files}, {len(done.refused):,} refused; {done.elapsed_s:.1f} s"
    )
    for identity, reason in sorted(done.refused.items())[:10]:
        sys.stderr.write(f"refused {identity}: {reason}\n")
    return WRONG if done.refused else OK


def _index_of(session: Session, options: argparse.Namespace) -> tuple[SearchIndex, str]:
    from pdf_ops.search.embedded import EmbeddedIndex

    if options.index is not None:
        return EmbeddedIndex(options.index), ""
    from pdf_ops.api import settings as api_settings
    from pdf_ops.api.aws import Aws
    from pdf_ops.api.search import make_index

    pipeline = session.settings
    aws = Aws(aws_conn_id=None, region_name=pipeline.aws_region or None)
    return make_index(api_settings.load(), pipeline, aws, wait_s=None), pipeline.input_s3_bucket


def _update_local(options: argparse.Namespace) -> Built:
    from pdf_ops.search.building import LocalDataset, update
    from pdf_ops.search.found import NoIndexError

    if not options.dataset.exists():
        raise NoIndexError(f"there is no dataset at {options.dataset}")
    return update(
        options.index, LocalDataset(options.dataset), is_rebuild=options.rebuild, on_progress=_progress()
    )


def _update_published(session: Session, options: argparse.Namespace) -> Built:
    from pdf_ops.search.publishing import update_published

    layout = session.settings.layout
    built, _ = update_published(_store(session), layout, is_rebuild=options.rebuild, on_progress=_progress())
    return built


def _store(session: Session) -> ObjectStore:
    from pdf_ops.objects import ObjectStore

    return ObjectStore(aws_conn_id=None, region_name=session.settings.aws_region or None)


def _progress() -> Any:
    """Says how far it is: over and over on one line of a terminal, and now and then in a file."""
    told = {"percent": -1}
    is_terminal = sys.stderr.isatty()

    def tell(progress: Progress) -> None:
        percent = round(100 * progress.bytes_done / progress.bytes) if progress.bytes else 100
        if not is_terminal and percent // 10 == told["percent"] // 10:
            return
        told["percent"] = percent
        rate = progress.rows / progress.elapsed_s if progress.elapsed_s else 0.0
        line = (
            f"{percent:3d} %  {progress.files_done:,} of {progress.files:,} files, {progress.rows:,} pages, "
            f"{rate:,.0f} pages/s"
        )
        is_last = progress.files_done == progress.files
        sys.stderr.write(f"\r{line}\033[K{chr(10) if is_last else ''}" if is_terminal else f"{line}\n")
        sys.stderr.flush()

    return tell


def _as_json(found: Found, bucket: str) -> dict[str, Any]:
    from pdf_ops.api.ids import encode
    from pdf_ops.search.keys import end_of, key_of

    def hit(one: Hit) -> dict[str, Any]:
        s3_key = key_of(one.source_uri, bucket)
        return {
            "document_id": encode(s3_key),
            "s3_key": s3_key,
            "filename": end_of(s3_key),
            "page": one.page,
            "page_count": one.page_count,
            "score": one.score,
            "snippet": [{"text": piece.text, "is_hit": piece.is_hit} for piece in one.snippet],
        }

    return {
        "hits": [hit(one) for one in found.hits],
        "total": found.total,
        # More than --limit are had by raising it.
        "next_cursor": None,
        "index": {
            "kind": found.index.kind.value,
            "built_at": found.index.built_at,
            "rows": found.index.rows,
        },
    }


def _show(found: Found, bucket: str) -> None:
    from pdf_ops.search.keys import key_of

    has_colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    bold, dim, plain = (_BOLD, _DIM, _PLAIN) if has_colours else ("", "", "")
    width = max(40, shutil.get_terminal_size((100, 24)).columns)
    for hit in found.hits:
        name = _printable(key_of(hit.source_uri, bucket))
        sys.stdout.write(f"{name}  {dim}page {hit.page} of {hit.page_count}{plain}\n")
        sys.stdout.write(f"    {_line(hit.snippet, bold, plain, width - 4)}\n")
    total = f"{found.total:,}" if found.total is not None else "many"
    shown = f", the first {len(found.hits)} shown" if found.has_more else ""
    pages = "page" if found.total == 1 else "pages"
    sys.stdout.write(
        f"{dim}{total} {pages}{shown}; {found.index.rows:,} in the index of {found.index.built_at}{plain}\n"
    )


def _line(pieces: tuple[Piece, ...], bold: str, plain: str, width: int) -> str:
    """A snippet on one line, cut at the terminal's width."""
    written, left = [], width
    for piece in pieces:
        text = _printable(piece.text)[:left]
        left -= len(text)
        written.append(f"{bold}{text}{plain}" if piece.is_hit else text)
    return "".join(written)


def _printable(text: str) -> str:
    """Nothing that a terminal would take for a command: it comes from documents."""
    return "".join(char if char.isprintable() else " " for char in text)
