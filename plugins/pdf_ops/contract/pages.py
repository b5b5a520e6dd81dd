"""The page row: the one definition of what the dataset holds, one row per page.

Each field's annotation gives its column's Arrow type, meaning and group; the schema, the record
batches and the reference table all come from here. Not for filling rows in: the worker does that.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003 -- the annotations are resolved at run time
from typing import TYPE_CHECKING, Annotated, ClassVar

from pdf_ops.contract.schema import Column, ExplainedEnum, Group, Table, arrow_schema, columns, record_batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

PAGE_SCHEMA_VERSION = 2


class Method(ExplainedEnum):
    """Where a page's text comes from."""

    TEXT_LAYER = "text_layer", "The text that the file itself holds."
    OCR = "ocr", "The text that OCR read from the page's image."
    EMPTY = "empty", "There is nothing to read on the page."
    NONE = "none", "No text was got, though there may be some."


class PageStatus(ExplainedEnum):
    """Whether a page was read."""

    OK = "ok", "The page was read; `method` says how."
    ERROR = "error", "The page could not be read; the error columns say why."


class MethodReason(ExplainedEnum):
    """Why a page's text comes from where it comes from."""

    GOOD_TEXT_LAYER = "good_text_layer", "The text layer passed every check."
    TRUSTED_OCR_LAYER = (
        "trusted_ocr_layer",
        "The layer is an earlier OCR's, which the settings trust.",
    )
    NOTHING_DRAWN = "nothing_drawn", "The page's content draws nothing at all."
    BLANK_PAGE = "blank_page", "The rendered page is blank."
    NO_TEXT_LAYER = "no_text_layer", "The page shows something but has no text layer."
    TOO_FEW_CHARACTERS = "too_few_characters", "The text layer is too short for what the page shows."
    UNMAPPED_GLYPHS = "unmapped_glyphs", "The layer's glyphs have no mapping to Unicode."
    PRIVATE_USE_GLYPHS = "private_use_glyphs", "The layer is full of private-use characters."
    REPLACEMENT_CHARACTERS = "replacement_characters", "The layer is full of U+FFFD replacement characters."
    CONTROL_CHARACTERS = "control_characters", "The layer is full of control characters."
    CID_RUNS = "cid_runs", "The layer holds glyph numbers such as (cid:12) in place of characters."
    INVISIBLE_TEXT = "invisible_text", "The layer is drawn invisibly over an image, as an earlier OCR does."
    HIDDEN_TEXT = (
        "hidden_text",
        "The layer cannot be seen: off the page, covered, too small, transparent, or paper on paper.",
    )
    NO_WORDS = "no_words", "The layer's characters do not form words."
    TEXT_LAYER_FAILED = "text_layer_failed", "Reading the text layer failed."
    IMAGE_INPUT = "image_input", "The file is an image and has no text layer."
    FORCED = "forced", "The settings say to OCR every page."
    OCR_OFF = "ocr_off", "The page needs OCR, and the settings turn it off."
    KEPT_TEXT_LAYER = "kept_text_layer", "The layer was doubtful, but OCR gave nothing better."
    NO_TEXT_FOUND = "no_text_found", "The page is not blank, yet every attempt read it as empty."
    NOT_READ = "not_read", "The page could not be read; this is an error row."


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRow:
    """One page of one document. A page that failed has a row too."""

    TABLE: ClassVar[Table] = Table("page", PAGE_SCHEMA_VERSION)

    doc_id: Annotated[str, Column("string", "SHA-256 of the file's bytes, in hex.", Group.IDENTITY)]
    source_uri: Annotated[str, Column("string", "Where the file was read from.", Group.IDENTITY)]
    source_etag: Annotated[
        str | None, Column("string", "The S3 object's ETag, without quotes.", Group.IDENTITY)
    ] = None
    source_version_id: Annotated[
        str | None, Column("string", "The S3 object's version, in a versioned bucket.", Group.IDENTITY)
    ] = None
    source_size: Annotated[int, Column("int64", "The file's size in bytes.", Group.IDENTITY)]
    page: Annotated[int, Column("int32", "The page's number in the file, from 1.", Group.IDENTITY)]
    page_count: Annotated[int, Column("int32", "How many pages the file has.", Group.IDENTITY)]

    text: Annotated[str, Column("string", "The page's text; empty, never null, without one.", Group.TEXT)]
    char_count: Annotated[int, Column("int32", "The number of characters in `text`.", Group.TEXT)]

    method: Annotated[
        Method, Column("dictionary<string>", "Where the text comes from, see below.", Group.DECISION)
    ]
    method_reason: Annotated[
        MethodReason, Column("dictionary<string>", "Why it comes from there, see below.", Group.DECISION)
    ]
    layer_chars: Annotated[
        int, Column("int32", "Characters in the page's text layer, used or not.", Group.DECISION)
    ] = 0
    layer_bad_ratio: Annotated[
        float | None,
        Column("float32", "Share of the layer's characters that cannot be meant, 0 to 1.", Group.DECISION),
    ] = None
    layer_word_ratio: Annotated[
        float | None,
        Column("float32", "Share of the layer's tokens that look like words, 0 to 1.", Group.DECISION),
    ] = None
    layer_invisible_ratio: Annotated[
        float | None,
        Column("float32", "Share of the layer's characters drawn invisibly, 0 to 1.", Group.DECISION),
    ] = None
    layer_hidden_ratio: Annotated[
        float | None,
        Column(
            "float32",
            "Share of the layer's characters that are drawn so that nobody sees them, 0 to 1.",
            Group.DECISION,
        ),
    ] = None
    image_coverage: Annotated[
        float | None,
        Column("float32", "Share of the page's area that images cover, 0 to 1.", Group.DECISION),
    ] = None

    ocr_confidence: Annotated[
        float | None, Column("float32", "Mean confidence of the OCR's words, 0 to 100.", Group.QUALITY)
    ] = None
    ocr_confidence_low: Annotated[
        float | None,
        Column("float32", "10th percentile of the confidences of the OCR's words, 0 to 100.", Group.QUALITY),
    ] = None
    ocr_words: Annotated[int | None, Column("int32", "Words that OCR found.", Group.QUALITY)] = None
    ocr_attempts: Annotated[int, Column("int16", "How often OCR was run on the page.", Group.QUALITY)] = 0

    width_pt: Annotated[
        float | None, Column("float32", "The page's width in points (1/72 inch).", Group.GEOMETRY)
    ] = None
    height_pt: Annotated[
        float | None, Column("float32", "The page's height in points (1/72 inch).", Group.GEOMETRY)
    ] = None
    rotation_declared: Annotated[
        int, Column("int16", "The clockwise rotation that the file declares, in degrees.", Group.GEOMETRY)
    ] = 0
    rotation_detected: Annotated[
        int,
        Column("int16", "The further clockwise rotation that was found and applied.", Group.GEOMETRY),
    ] = 0
    dpi: Annotated[
        float | None, Column("float32", "The resolution that the page was rendered at.", Group.GEOMETRY)
    ] = None

    status: Annotated[PageStatus, Column("dictionary<string>", "`ok` or `error`.", Group.OUTCOME)]
    error_class: Annotated[
        str | None, Column("string", "The error's class, e.g. `TIMEOUT`.", Group.OUTCOME)
    ] = None
    error_code: Annotated[
        str | None, Column("string", "The error's code within its class.", Group.OUTCOME)
    ] = None
    error_message: Annotated[str | None, Column("string", "What happened and what to do.", Group.OUTCOME)] = (
        None
    )

    run_id: Annotated[
        str | None, Column("string", "The run that the document was read in.", Group.PROVENANCE)
    ] = None
    worker_id: Annotated[str | None, Column("string", "The worker that read it.", Group.PROVENANCE)] = None
    attempt: Annotated[int, Column("int16", "The document's attempt, from 1.", Group.PROVENANCE)] = 1
    parser: Annotated[
        str | None,
        Column("string", "Name and version of the parser that opened the page.", Group.PROVENANCE),
    ] = None
    ocr_engine: Annotated[
        str | None, Column("string", "Name and version of the OCR engine, if used.", Group.PROVENANCE)
    ] = None
    languages: Annotated[str, Column("string", "The OCR languages, e.g. `eng+deu`.", Group.PROVENANCE)]
    config_hash: Annotated[
        str, Column("string", "Hash of every setting that changes what is read.", Group.PROVENANCE)
    ]
    schema_version: Annotated[int, Column("int16", "The version of this schema.", Group.PROVENANCE)] = (
        PAGE_SCHEMA_VERSION
    )

    open_ms: Annotated[
        float, Column("float32", "Opening the file and the page, milliseconds.", Group.TIMING)
    ] = 0.0
    text_ms: Annotated[float, Column("float32", "Reading the text layer, milliseconds.", Group.TIMING)] = 0.0
    render_ms: Annotated[float, Column("float32", "Rendering the page, milliseconds.", Group.TIMING)] = 0.0
    prepare_ms: Annotated[
        float, Column("float32", "Preparing the image for OCR, milliseconds.", Group.TIMING)
    ] = 0.0
    ocr_ms: Annotated[float, Column("float32", "OCR, milliseconds.", Group.TIMING)] = 0.0
    total_ms: Annotated[
        float, Column("float32", "The whole page by the clock, milliseconds.", Group.TIMING)
    ] = 0.0
    cpu_ms: Annotated[
        float, Column("float32", "CPU time of the page with its child processes, milliseconds.", Group.TIMING)
    ] = 0.0
    read_at: Annotated[datetime, Column("timestamp[ms, tz=UTC]", "When the page was finished.", Group.TIMING)]


def varying_columns() -> frozenset[str]:
    """The columns that may differ between two readings of the same bytes with the same settings."""
    timing = {column.name for column in columns(PageRow) if column.group is Group.TIMING}
    return frozenset(timing | {"run_id", "worker_id", "attempt"})


def page_schema() -> pa.Schema:
    """Give the Arrow schema of the page dataset."""
    return arrow_schema(PageRow)


def to_record_batch(rows: Sequence[PageRow]) -> pa.RecordBatch:
    """Turn page rows into one record batch of the page schema.

    Raises:
        RowError: If a value does not fit its column; the message names the column.
    """
    return record_batch(PageRow, rows)
