"""The document row: what became of one document, in the run manifest and the documents dataset.

Defined as the page row is, each column once. Not for the state table: that has its own keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003 -- the annotations are resolved at run time
from typing import TYPE_CHECKING, Annotated, ClassVar

from pdf_ops.contract.schema import Column, ExplainedEnum, Group, Table, arrow_schema, record_batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

DOCUMENT_SCHEMA_VERSION = 1


class DocumentStatus(ExplainedEnum):
    """What became of a document."""

    DONE = "done", "Every page was read."
    PARTIAL = "partial", "Some pages were read; the others have error rows."
    FAILED = "failed", "No page was read; the error columns say why."
    SKIPPED = "skipped", "It was left out by a limit, or another run had read it."


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentRow:
    """One document of one run."""

    TABLE: ClassVar[Table] = Table("document", DOCUMENT_SCHEMA_VERSION)

    source_uri: Annotated[str, Column("string", "Where the file was read from.", Group.IDENTITY)]
    doc_id: Annotated[
        str | None,
        Column("string", "SHA-256 of the file's bytes, in hex, if fetched.", Group.IDENTITY),
    ] = None
    source_etag: Annotated[
        str | None, Column("string", "The S3 object's ETag, without quotes.", Group.IDENTITY)
    ] = None
    source_version_id: Annotated[
        str | None, Column("string", "The S3 object's version, in a versioned bucket.", Group.IDENTITY)
    ] = None
    source_size: Annotated[
        int | None, Column("int64", "The file's size in bytes, if known.", Group.IDENTITY)
    ] = None
    media_type: Annotated[
        str | None, Column("string", "What the bytes are, e.g. `application/pdf`.", Group.IDENTITY)
    ] = None

    status: Annotated[
        DocumentStatus, Column("dictionary<string>", "What became of it, see below.", Group.OUTCOME)
    ]
    output_uri: Annotated[
        str | None, Column("string", "Where its page rows were written.", Group.OUTCOME)
    ] = None
    page_count: Annotated[
        int | None, Column("int32", "How many pages the file has, if it could be opened.", Group.PAGES)
    ] = None
    pages_written: Annotated[int, Column("int32", "Page rows that were written.", Group.PAGES)] = 0
    pages_text_layer: Annotated[int, Column("int32", "Pages whose text is the file's own.", Group.PAGES)] = 0
    pages_ocr: Annotated[int, Column("int32", "Pages whose text is OCR's.", Group.PAGES)] = 0
    pages_empty: Annotated[int, Column("int32", "Pages with nothing to read.", Group.PAGES)] = 0
    pages_none: Annotated[int, Column("int32", "Pages that gave no text without an error.", Group.PAGES)] = 0
    pages_error: Annotated[int, Column("int32", "Pages that could not be read.", Group.PAGES)] = 0
    char_count: Annotated[int, Column("int64", "Characters over all pages.", Group.PAGES)] = 0
    ocr_confidence: Annotated[
        float | None, Column("float32", "Mean of the OCR pages' confidences, 0 to 100.", Group.QUALITY)
    ] = None

    error_class: Annotated[
        str | None, Column("string", "The error's class, e.g. `CORRUPT`.", Group.OUTCOME)
    ] = None
    error_code: Annotated[
        str | None, Column("string", "The error's code within its class.", Group.OUTCOME)
    ] = None
    error_phase: Annotated[str | None, Column("string", "The step in which it happened.", Group.OUTCOME)] = (
        None
    )
    error_message: Annotated[str | None, Column("string", "What happened and what to do.", Group.OUTCOME)] = (
        None
    )

    run_id: Annotated[
        str | None, Column("string", "The run that the document was read in.", Group.PROVENANCE)
    ] = None
    worker_id: Annotated[str | None, Column("string", "The worker that read it.", Group.PROVENANCE)] = None
    attempt: Annotated[int, Column("int16", "The document's attempt, from 1.", Group.PROVENANCE)] = 1
    languages: Annotated[str, Column("string", "The OCR languages, e.g. `eng+deu`.", Group.PROVENANCE)]
    config_hash: Annotated[
        str, Column("string", "Hash of every setting that changes what is read.", Group.PROVENANCE)
    ]
    schema_version: Annotated[int, Column("int16", "The version of this schema.", Group.PROVENANCE)] = (
        DOCUMENT_SCHEMA_VERSION
    )

    wall_ms: Annotated[
        float,
        Column(
            "float32", "From its first page process to its last by the clock, milliseconds.", Group.TIMING
        ),
    ] = 0.0
    cpu_ms: Annotated[float, Column("float32", "CPU time over all pages, milliseconds.", Group.TIMING)] = 0.0
    read_at: Annotated[
        datetime, Column("timestamp[ms, tz=UTC]", "When the document was finished.", Group.TIMING)
    ]


def document_schema() -> pa.Schema:
    """Give the Arrow schema of the documents dataset and the run manifest."""
    return arrow_schema(DocumentRow)


def to_record_batch(rows: Sequence[DocumentRow]) -> pa.RecordBatch:
    """Turn document rows into one record batch of the document schema.

    Raises:
        RowError: If a value does not fit its column; the message names the column.
    """
    return record_batch(DocumentRow, rows)
