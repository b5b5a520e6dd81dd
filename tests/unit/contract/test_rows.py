from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, ClassVar

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from pdf_ops.contract import documents, pages
from pdf_ops.contract.documents import DOCUMENT_SCHEMA_VERSION, DocumentRow, DocumentStatus, document_schema
from pdf_ops.contract.pages import (
    PAGE_SCHEMA_VERSION,
    Method,
    MethodReason,
    PageRow,
    PageStatus,
    page_schema,
    varying_columns,
)
from pdf_ops.contract.schema import Column, Group, RowError, SchemaError, Table, arrow_schema, columns

READ_AT = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)

PAGE = PageRow(
    doc_id="ab" * 32,
    source_uri="s3://in/a.pdf",
    source_etag="e1",
    source_version_id="v1",
    source_size=5_000_000_000,
    page=1,
    page_count=2,
    text="Zahl \N{GRINNING FACE} é",
    char_count=8,
    method=Method.OCR,
    method_reason=MethodReason.NO_TEXT_LAYER,
    layer_chars=3,
    layer_bad_ratio=0.5,
    layer_word_ratio=0.25,
    layer_invisible_ratio=0.125,
    layer_hidden_ratio=0.25,
    image_coverage=1.0,
    ocr_confidence=91.5,
    ocr_confidence_low=40.25,
    ocr_words=3,
    ocr_attempts=2,
    width_pt=595.5,
    height_pt=842.0,
    rotation_declared=90,
    rotation_detected=180,
    dpi=200.0,
    status=PageStatus.OK,
    error_class="TIMEOUT",
    error_code="page",
    error_message="too slow",
    run_id="manual__1",
    worker_id="w1",
    attempt=2,
    parser="pdfium 1",
    ocr_engine="tesseract 5",
    languages="eng",
    config_hash="0" * 16,
    open_ms=1.0,
    text_ms=2.0,
    render_ms=3.0,
    prepare_ms=4.0,
    ocr_ms=5.0,
    total_ms=6.0,
    cpu_ms=7.0,
    read_at=READ_AT,
)
DOCUMENT = DocumentRow(
    source_uri="s3://in/a.pdf",
    doc_id="ab" * 32,
    source_etag="e1",
    source_version_id="v1",
    source_size=5_000_000_000,
    media_type="application/pdf",
    status=DocumentStatus.PARTIAL,
    page_count=9,
    pages_written=9,
    pages_text_layer=1,
    pages_ocr=2,
    pages_empty=3,
    pages_none=1,
    pages_error=2,
    char_count=3_000_000_000,
    ocr_confidence=80.5,
    error_class="TIMEOUT",
    error_code="page",
    error_phase="ocr",
    error_message="too slow",
    run_id="manual__1",
    worker_id="w1",
    attempt=2,
    languages="eng",
    config_hash="0" * 16,
    wall_ms=12.5,
    cpu_ms=50.0,
    read_at=READ_AT,
)
# Only what has no default, so that the defaults are proved to fit their columns too.
BARE_PAGE = PageRow(
    doc_id="cd" * 32,
    source_uri="file:///a.pdf",
    source_size=1,
    page=2,
    page_count=2,
    text="",
    char_count=0,
    method=Method.NONE,
    method_reason=MethodReason.NOT_READ,
    status=PageStatus.ERROR,
    languages="eng",
    config_hash="0" * 16,
    read_at=READ_AT,
)
BARE_DOCUMENT = DocumentRow(
    source_uri="s3://in/b.pdf",
    status=DocumentStatus.FAILED,
    languages="eng",
    config_hash="0" * 16,
    read_at=READ_AT,
)

BOTH = pytest.mark.parametrize(
    ("module", "rows", "schema", "version"),
    [
        (pages, [PAGE, BARE_PAGE], page_schema(), PAGE_SCHEMA_VERSION),
        (documents, [DOCUMENT, BARE_DOCUMENT], document_schema(), DOCUMENT_SCHEMA_VERSION),
    ],
    ids=["page", "document"],
)


def test_the_page_schema_is_what_version_1_promised():
    """Changing a column's name, type, order or nullability needs a new PAGE_SCHEMA_VERSION and this list."""
    assert PAGE_SCHEMA_VERSION == 2
    assert _shape(page_schema()) == [
        "doc_id string", "source_uri string", "source_etag string?", "source_version_id string?",
        "source_size int64", "page int32", "page_count int32",
        "text string", "char_count int32",
        "method dictionary", "method_reason dictionary", "layer_chars int32", "layer_bad_ratio float?",
        "layer_word_ratio float?", "layer_invisible_ratio float?", "layer_hidden_ratio float?",
        "image_coverage float?",
        "ocr_confidence float?", "ocr_confidence_low float?", "ocr_words int32?", "ocr_attempts int16",
        "width_pt float?", "height_pt float?", "rotation_declared int16", "rotation_detected int16",
        "dpi float?",
        "status dictionary", "error_class string?", "error_code string?", "error_message string?",
        "run_id string?", "worker_id string?", "attempt int16", "parser string?", "ocr_engine string?",
        "languages string", "config_hash string", "schema_version int16",
        "open_ms float", "text_ms float", "render_ms float", "prepare_ms float", "ocr_ms float",
        "total_ms float", "cpu_ms float", "read_at timestamp[ms, tz=UTC]",
    ]  # fmt: skip


def test_the_document_schema_is_what_version_1_promised():
    """As above, with DOCUMENT_SCHEMA_VERSION."""
    assert DOCUMENT_SCHEMA_VERSION == 1
    assert _shape(document_schema()) == [
        "source_uri string", "doc_id string?", "source_etag string?", "source_version_id string?",
        "source_size int64?", "media_type string?", "status dictionary", "output_uri string?",
        "page_count int32?", "pages_written int32", "pages_text_layer int32", "pages_ocr int32",
        "pages_empty int32", "pages_none int32", "pages_error int32", "char_count int64",
        "ocr_confidence float?",
        "error_class string?", "error_code string?", "error_phase string?", "error_message string?",
        "run_id string?", "worker_id string?", "attempt int16", "languages string", "config_hash string",
        "schema_version int16", "wall_ms float", "cpu_ms float", "read_at timestamp[ms, tz=UTC]",
    ]  # fmt: skip


def _shape(schema: pa.Schema) -> list[str]:
    dictionary = pa.dictionary(pa.int16(), pa.string())
    return [
        f"{field.name} {'dictionary' if field.type == dictionary else field.type}" + "?" * field.nullable
        for field in schema
    ]


@BOTH
def test_every_value_of_a_row_comes_back_from_parquet(module, rows, schema, version, tmp_path):
    batch = module.to_record_batch(rows)
    with pq.ParquetWriter(tmp_path / "rows.parquet", schema, compression="zstd") as writer:
        writer.write_batch(batch)
        writer.write_batch(module.to_record_batch(rows[::-1]))
    table = pq.read_table(tmp_path / "rows.parquet")
    expected = [dataclasses.asdict(row) for row in [*rows, *rows[::-1]]]
    assert table.to_pylist() == expected


@BOTH
def test_a_file_names_its_schema_and_version_and_describes_its_columns(
    module, rows, schema, version, tmp_path
):
    pq.write_table(pa.Table.from_batches([module.to_record_batch(rows)]), tmp_path / "rows.parquet")
    read = pq.read_schema(tmp_path / "rows.parquet")
    name = module.__name__.rpartition(".")[2].removesuffix("s")
    assert read.metadata[b"pdf_ops.schema"] == name.encode()
    assert read.metadata[b"pdf_ops.schema_version"] == str(version).encode()
    assert rows[0].schema_version == version
    for column in columns(type(rows[0])):
        assert read.field(column.name).metadata[b"description"] == column.doc.encode()


@BOTH
def test_no_rows_give_an_empty_batch_of_the_same_schema(module, rows, schema, version):
    batch = module.to_record_batch([])
    assert batch.num_rows == 0
    assert batch.schema.equals(schema, check_metadata=True)


@BOTH
def test_every_column_is_described_in_a_sentence(module, rows, schema, version):
    for column in columns(type(rows[0])):
        assert column.doc.endswith("."), column.name
    docs = [column.doc for column in columns(type(rows[0]))]
    assert len(docs) == len(set(docs))


@BOTH
def test_null_is_refused_exactly_where_the_schema_forbids_it(module, rows, schema, version):
    for column in columns(type(rows[0])):
        row = dataclasses.replace(rows[0], **{column.name: None})
        if column.nullable:
            assert module.to_record_batch([row]).column(column.name).null_count == 1
        else:
            with pytest.raises(RowError, match=f"column {column.name} "):
                module.to_record_batch([row])


@pytest.mark.parametrize(
    ("column", "value"),
    [("text", "\ud800"), ("page", 2**31), ("page", "one"), ("source_size", 2**63), ("read_at", "now")],
)
def test_a_value_that_does_not_fit_is_refused_with_its_columns_name(column, value):
    with pytest.raises(RowError, match=f"column {column} "):
        pages.to_record_batch([dataclasses.replace(PAGE, **{column: value})])


def test_a_document_larger_than_2_gib_has_its_size_in_full():
    assert pages.to_record_batch([PAGE]).column("source_size").to_pylist() == [5_000_000_000]
    assert documents.to_record_batch([DOCUMENT]).column("char_count").to_pylist() == [3_000_000_000]


def test_the_columns_that_may_differ_between_identical_readings_are_named():
    assert {
        "open_ms", "text_ms", "render_ms", "prepare_ms", "ocr_ms", "total_ms", "cpu_ms", "read_at",
        "run_id", "worker_id", "attempt",
    } == varying_columns()  # fmt: skip


def test_dictionary_columns_filter_like_text(tmp_path):
    pq.write_table(
        pa.Table.from_batches([pages.to_record_batch([PAGE, BARE_PAGE])]), tmp_path / "rows.parquet"
    )
    found = ds.dataset(tmp_path).to_table(
        filter=(ds.field("method") == "ocr") & (ds.field("ocr_confidence") < 95)
    )
    assert found.column("page").to_pylist() == [1]


@pytest.mark.parametrize("enum", [Method, MethodReason, PageStatus, DocumentStatus])
def test_every_value_of_an_enum_is_text_and_explains_itself(enum):
    for member in enum:
        assert enum(member.value) is member
        assert str(member) == member.value == member.name.lower()
        assert member.meaning.endswith(".")
    assert len({member.meaning for member in enum}) == len(enum)


def test_a_row_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        PAGE.text = "forged"


def test_a_field_without_a_column_is_refused_by_name():
    @dataclass(frozen=True)
    class Undescribed:
        TABLE: ClassVar[Table] = Table("undescribed", 1)
        forgotten: int

    with pytest.raises(SchemaError, match=r"Undescribed\.forgotten"):
        columns(Undescribed)


def test_a_column_of_an_unknown_type_is_refused_with_the_accepted_ones():
    @dataclass(frozen=True)
    class Odd:
        TABLE: ClassVar[Table] = Table("odd", 1)
        value: Annotated[int, Column("int7", "An odd number.", Group.TEXT)]

    with pytest.raises(SchemaError, match=r"int7.*accepted: string, int16"):
        arrow_schema(Odd)
