"""Between Python values and DynamoDB's typed attributes, for the items that both planes read and write.

Only what our tables hold: text, whole numbers and truth values. Not a client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

Value: TypeAlias = str | int | bool | None
Attribute: TypeAlias = dict[str, Any]
Item: TypeAlias = dict[str, Attribute]


class ItemError(ValueError):
    """An item of a table does not have the shape that we write."""


def attribute(value: str | int | bool) -> Attribute:
    """One value as DynamoDB takes it."""
    if isinstance(value, bool):
        return {"BOOL": value}
    return {"N": str(value)} if isinstance(value, int) else {"S": value}


def item_of(values: Mapping[str, Value]) -> Item:
    """An item; what is None is left out."""
    return {name: attribute(value) for name, value in values.items() if value is not None}


def values_of(item: Mapping[str, Any]) -> dict[str, Value]:
    """The values of an item.

    Raises:
        ItemError: If it holds a type that we never write.
    """
    values: dict[str, Value] = {}
    for name, typed in item.items():
        match typed:
            case {"S": str(text)}:
                values[name] = text
            case {"N": str(number)}:
                values[name] = int(float(number)) if "." in number else int(number)
            case {"BOOL": bool(truth)}:
                values[name] = truth
            case {"NULL": True}:
                values[name] = None
            case _:
                raise ItemError(f"attribute {name} is neither text, number nor truth value")
    return values
