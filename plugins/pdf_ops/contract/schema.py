"""From a dataclass whose fields say their column to an Arrow schema and record batches.

Used by the page and the document rows, so that a column is written down exactly once.
Not for reading: datasets are read with pyarrow or any other Parquet reader.
"""

from __future__ import annotations

import types
import typing
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa


class ExplainedEnum(StrEnum):
    """A string enum whose members each carry the sentence that explains them."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> Self:
        """Make a member that equals its value and has a meaning."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member


class Group(StrEnum):
    """The logical groups of columns, as the reference shows them."""

    IDENTITY = "Identity"
    TEXT = "Text"
    DECISION = "Decision"
    QUALITY = "Quality"
    GEOMETRY = "Geometry"
    PAGES = "Pages"
    OUTCOME = "Outcome"
    PROVENANCE = "Provenance"
    TIMING = "Timing"


@dataclass(frozen=True, slots=True)
class Table:
    """The name and version of a row class, as its files' metadata give them."""

    name: str
    version: int


class Row(Protocol):
    """A frozen dataclass whose fields each are Annotated with a Column."""

    TABLE: ClassVar[Table]
    __dataclass_fields__: ClassVar[dict[str, Any]]


RowT = TypeVar("RowT", bound=Row)


@dataclass(frozen=True, slots=True)
class Column:
    """What a field's annotation says about its column."""

    arrow_type: str
    doc: str
    group: Group


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedColumn:
    """A column with everything that is known about it."""

    name: str
    arrow_type: str
    nullable: bool
    doc: str
    group: Group


class SchemaError(TypeError):
    """A row class declares a column that cannot be made."""


class RowError(ValueError):
    """A row holds a value that its column cannot hold."""


@cache
def columns(cls: type[Row]) -> tuple[ResolvedColumn, ...]:
    """Resolve the columns of a row class, in the order of its fields.

    Raises:
        SchemaError: If a field has no ``Column``.
    """
    hints = typing.get_type_hints(cls, include_extras=True)
    resolved = []
    for field in fields(cls):
        hint = hints[field.name]
        found = [item for item in typing.get_args(hint)[1:] if isinstance(item, Column)]
        if typing.get_origin(hint) is not typing.Annotated or len(found) != 1:
            raise SchemaError(f"{cls.__name__}.{field.name} must be Annotated with exactly one Column")
        value_type = typing.get_args(hint)[0]
        resolved.append(
            ResolvedColumn(
                name=field.name,
                arrow_type=found[0].arrow_type,
                nullable=_is_optional(value_type),
                doc=found[0].doc,
                group=found[0].group,
            )
        )
    return tuple(resolved)


def _is_optional(value_type: object) -> bool:
    is_union = typing.get_origin(value_type) in (typing.Union, types.UnionType)
    return is_union and type(None) in typing.get_args(value_type)


@cache
def arrow_type(name: str) -> pa.DataType:
    """Turn the name of a type, as columns give it, into the type.

    Raises:
        SchemaError: If the name is not one of ours; the message lists them.
    """
    import pyarrow as pa

    known: dict[str, pa.DataType] = {
        "string": pa.string(),
        "int16": pa.int16(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "float32": pa.float32(),
        "dictionary<string>": pa.dictionary(pa.int16(), pa.string()),
        "timestamp[ms, tz=UTC]": pa.timestamp("ms", tz="UTC"),
    }
    if name not in known:
        raise SchemaError(f"unknown column type {name!r}; accepted: {', '.join(known)}")
    return known[name]


@cache
def arrow_schema(cls: type[Row]) -> pa.Schema:
    """Build the Arrow schema of a row class; each field's metadata holds its description."""
    import pyarrow as pa

    return pa.schema(
        [
            pa.field(
                column.name,
                arrow_type(column.arrow_type),
                nullable=column.nullable,
                metadata={"description": column.doc},
            )
            for column in columns(cls)
        ],
        metadata={"pdf_ops.schema": cls.TABLE.name, "pdf_ops.schema_version": str(cls.TABLE.version)},
    )


def record_batch(cls: type[RowT], rows: Sequence[RowT]) -> pa.RecordBatch:
    """Turn rows into one record batch, column by column.

    Raises:
        RowError: If a value does not fit its column, e.g. null where there is none, or a text that
            is not valid Unicode; the message names the column.
    """
    import pyarrow as pa

    schema = arrow_schema(cls)
    arrays = []
    for field in schema:
        try:
            array = pa.array(list(map(attrgetter(field.name), rows)), type=field.type)
        except (pa.ArrowException, UnicodeError, OverflowError, TypeError, ValueError) as error:
            raise RowError(f"column {field.name} ({field.type}) does not take a value: {error}") from error
        if array.null_count and not field.nullable:
            raise RowError(f"column {field.name} ({field.type}) must not be null")
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
