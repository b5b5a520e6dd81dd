"""The embedded index: a folder that tantivy reads and writes. Not for where the folder comes from.

Words are folded and cut by ``query``, for the index and for queries alike; tantivy sees blanks only.
One entry per row of the page dataset, pages without text among them, so that the newest reading of a
document is always known.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from pdf_ops.search.found import Found, Hit, IndexInfo, IndexKind, NoIndexError
from pdf_ops.search.query import Kind, words_of
from pdf_ops.search.snippets import snippet

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pdf_ops.search.query import Clause, SearchQuery

FORMAT = 1
"""Raised whenever an index that is there could not be added to; it is built anew then."""
STATE = "dataset.json"
_TOKENIZER = "words"
_MAX_WORD_CHARS = 255
_MISSING = (
    "tantivy is not installed: add the line tantivy to requirements.txt, or `pip install 'pdf-ops[api]'`"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexState:
    """What an index holds.

    Attributes:
        built_at: When it was written.
        rows: How many pages are in it.
        files: The dataset's files in it, each with what tells whether it has changed.
        format: The version of our own fields.
        engine: The version of tantivy's files.
    """

    built_at: str
    rows: int
    files: dict[str, str] = field(default_factory=dict)
    format: int = FORMAT
    engine: str = ""

    @property
    def is_current(self) -> bool:
        """Whether this program can add to it."""
        return self.format == FORMAT and self.engine == engine_version()

    def to_json(self) -> bytes:
        """As it is stored."""
        return json.dumps(asdict(self), indent=1).encode()

    @classmethod
    def from_json(cls, data: bytes) -> IndexState:
        """Read it.

        Raises:
            NoIndexError: If it is not that.
        """
        try:
            return cls(**json.loads(data))
        except (ValueError, TypeError):
            raise NoIndexError(
                "the search index cannot be read: build it with `pdf-ops index --rebuild`"
            ) from None


def engine() -> Any:
    """Tantivy.

    Raises:
        NoIndexError: If it is not installed.
    """
    try:
        import tantivy
    except ImportError:
        raise NoIndexError(_MISSING) from None
    return tantivy


def engine_version() -> str:
    """The version of tantivy's files."""
    return str(engine().__version__).rpartition(" ")[2]


@cache
def schema() -> Any:
    """The index's fields."""
    return (
        engine()
        .SchemaBuilder()
        # Which file of the dataset, which document, which run: what is removed by.
        .add_text_field("file", tokenizer_name="raw", index_option="basic")
        .add_text_field("source", stored=True, tokenizer_name="raw", index_option="basic")
        .add_text_field("run", stored=True, tokenizer_name="raw", index_option="basic")
        .add_integer_field("read_at", stored=True)
        .add_integer_field("page", stored=True)
        .add_integer_field("page_count", stored=True)
        .add_text_field("words", tokenizer_name=_TOKENIZER, index_option="position")
        .add_bytes_field("text", stored=True)
        .build()
    )


def open_index(folder: Path) -> Any:
    """An index that is there, or an empty one in an empty folder.

    Raises:
        ValueError: If there is one that cannot be read.
    """
    tantivy = engine()
    index = tantivy.Index(schema(), path=str(folder))
    analyzer = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace())
    index.register_tokenizer(_TOKENIZER, analyzer.filter(tantivy.Filter.remove_long(_MAX_WORD_CHARS)).build())
    return index


def entry(file: str, row: dict[str, Any]) -> Any:
    """A row of the dataset as the index has it."""
    document = engine().Document()
    document.add_text("file", file)
    document.add_text("source", row["source_uri"])
    document.add_text("run", row["run_id"] or "")
    document.add_integer("read_at", row["read_at"])
    document.add_integer("page", row["page"])
    document.add_integer("page_count", row["page_count"])
    document.add_text("words", " ".join(words_of(row["text"])))
    document.add_bytes("text", zlib.compress(row["text"].encode("utf-8", "replace"), 1))
    return document


def term(name: str, value: str) -> Any:
    """Entries that have exactly this value."""
    return engine().Query.term_query(schema(), name, value, "basic")


class EmbeddedIndex:
    """An index in a folder, opened once. What is written to it later does not show.

    :param folder: Where it is.
    """

    def __init__(self, folder: Path) -> None:
        try:
            self.state = IndexState.from_json((folder / STATE).read_bytes())
            if not self.state.is_current:
                raise NoIndexError(
                    "the search index is of another version of pdf_ops or tantivy: build it with "
                    "`pdf-ops index`"
                )
            self._searcher = open_index(folder).searcher()
        except FileNotFoundError:
            raise NoIndexError(
                f"there is no search index in {folder}: build it with `pdf-ops index`"
            ) from None
        except (ValueError, OSError) as error:
            raise NoIndexError(
                f"the search index cannot be read ({error}): build it with `pdf-ops index --rebuild`"
            ) from error

    def search(self, query: SearchQuery, *, limit: int, offset: int = 0) -> Found:
        """See ``SearchIndex``."""
        tantivy = engine()
        occur = tantivy.Occur
        parts = [(occur.Must, _query(clause)) for clause in query.wanted]
        parts += [(occur.MustNot, _query(clause)) for clause in query.unwanted]
        found = self._searcher.search(tantivy.Query.boolean_query(parts), limit, offset=offset)
        return Found(
            hits=tuple(self._hits(found.hits, query)),
            total=found.count,
            has_more=offset + len(found.hits) < found.count,
            index=IndexInfo(
                kind=IndexKind.EMBEDDED, built_at=self.state.built_at, rows=self._searcher.num_docs
            ),
        )

    def _hits(self, found: list[tuple[float, Any]], query: SearchQuery) -> Iterator[Hit]:
        for score, address in found:
            page = self._searcher.doc(address)
            text = zlib.decompress(page.get_first("text")).decode("utf-8")
            yield Hit(
                source_uri=page.get_first("source"),
                page=page.get_first("page"),
                page_count=page.get_first("page_count"),
                score=round(score, 4),
                snippet=snippet(text, query),
            )


def _query(clause: Clause) -> Any:
    make = engine().Query
    match clause.kind:
        case Kind.WORD:
            return make.term_query(schema(), "words", clause.words[0], "freq")
        case Kind.PHRASE:
            return make.phrase_query(schema(), "words", list(clause.words))
        case Kind.PREFIX:
            # A word is letters and digits, so nothing in it means anything to a regular expression.
            return make.regex_query(schema(), "words", clause.words[0] + ".*")
