"""A DynamoDB small enough to be copied at every step of a search, which evaluates the same expressions.

As much of the language as our conditions and updates use; anything else is an error. Calls are
coroutines that never wait, so that a caller can be run to its end without an event loop.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Item = dict[str, Any]
    Test = Callable[[Item, dict[str, str], dict[str, Any]], Any]

_TOKEN = re.compile(r"\s*([A-Za-z_]\w*|#\w+|:\w+|<=|>=|<>|[=<>(),])")
_KEYS = ("s3_key", "run_shard", "part")
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda left, right: left == right,
    "<>": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    ">": lambda left, right: left > right,
    "<=": lambda left, right: left <= right,
    ">=": lambda left, right: left >= right,
}


class Tables:
    """Tables by name; items by their key."""

    def __init__(self, rewrite: Callable[[str], str] = lambda condition: condition) -> None:
        """Start empty; ``rewrite`` changes conditions, for tests that break one."""
        self.items: dict[tuple[str, ...], Item] = {}
        self._rewrite = rewrite

    async def get_item(self, **call: Any) -> Any:
        item = self.items.get(_place(call["TableName"], call["Key"]))
        return {"Item": dict(item)} if item is not None else {}

    async def update_item(self, **call: Any) -> Any:
        place = _place(call["TableName"], call["Key"])
        if not self._holds(place, call):
            answer = {"Error": {"Code": "ConditionalCheckFailedException"}, "Item": self.items.get(place, {})}
            raise ClientError(answer, "UpdateItem")
        self.items[place] = _updated(self.items.get(place, dict(call["Key"])), call)
        return {"Attributes": dict(self.items[place])}

    async def transact_write_items(self, *, TransactItems: list[Any]) -> Any:  # noqa: N803
        places, reasons = [], []
        for entry in TransactItems:
            (kind, call) = next(iter(entry.items()))
            key = call["Key"] if kind == "Update" else {n: v for n, v in call["Item"].items() if n in _KEYS}
            # An outcome has its document's key as an attribute, which is no key of its table.
            key = {name: value for name, value in key.items() if kind == "Update" or name != "s3_key"}
            places.append((kind, call, _place(call["TableName"], key)))
            reasons.append({"Code": "None" if self._holds(places[-1][2], call) else "ConditionalCheckFailed"})
        if any(reason["Code"] != "None" for reason in reasons):
            answer = {"Error": {"Code": "TransactionCanceledException"}, "CancellationReasons": reasons}
            raise ClientError(answer, "TransactWriteItems")
        for kind, call, place in places:
            if kind == "Put":
                self.items[place] = dict(call["Item"])
            else:
                self.items[place] = _updated(self.items.get(place, dict(call["Key"])), call)
        return {}

    def _holds(self, place: tuple[str, ...], call: Any) -> bool:
        condition = call.get("ConditionExpression")
        if condition is None:
            return True
        names, values = call.get("ExpressionAttributeNames", {}), call.get("ExpressionAttributeValues", {})
        return bool(_compile(self._rewrite(condition))(self.items.get(place, {}), names, values))


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run to its end what never waits."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        return ended.value
    raise AssertionError("it waits for something")


def _place(table: str, key: Item) -> tuple[str, ...]:
    return (table, *(str(_plain(value)) for value in key.values()))


def _plain(value: Any) -> Any:
    ((kind, content),) = value.items()
    return int(content) if kind == "N" else content


def _updated(item: Item, call: Any) -> Item:
    names, values = call.get("ExpressionAttributeNames", {}), call["ExpressionAttributeValues"]
    changed = dict(item)
    for verb, clause in re.findall(
        r"(SET|REMOVE|ADD)\s+(.*?)(?=\s+(?:SET|REMOVE|ADD)\s|$)", call["UpdateExpression"]
    ):
        for part in re.split(r", (?![^(]*\))", clause):
            name, _, value = part.replace(" = ", " ").partition(" ")
            name = names.get(name, name)
            kept = re.fullmatch(r"if_not_exists\((\w+), (:\w+)\)", value)
            if verb == "REMOVE":
                changed.pop(name, None)
            elif kept is not None:
                changed[name] = changed.get(kept[1], values[kept[2]])
            elif verb == "SET":
                changed[name] = values[value]
            else:
                before = _plain(changed[name]) if name in changed else 0
                changed[name] = {"N": str(before + _plain(values[value]))}
    return changed


@cache
def _compile(condition: str) -> Test:
    tokens = _TOKEN.findall(condition)
    assert "".join(tokens) == re.sub(r"\s", "", condition), condition
    test, end = _either(tokens, 0)
    assert end == len(tokens), condition
    return test


def _either(tokens: list[str], at: int) -> tuple[Test, int]:
    left, at = _both(tokens, at)
    while at < len(tokens) and tokens[at] == "OR":
        right, at = _both(tokens, at + 1)
        left = _joined(any, left, right)
    return left, at


def _joined(how: Callable[[Any], bool], *tests: Test) -> Test:
    return lambda *given: how(test(*given) for test in tests)


def _both(tokens: list[str], at: int) -> tuple[Test, int]:
    left, at = _single(tokens, at)
    while at < len(tokens) and tokens[at] == "AND":
        right, at = _single(tokens, at + 1)
        left = _joined(all, left, right)
    return left, at


def _single(tokens: list[str], at: int) -> tuple[Test, int]:
    first = tokens[at]
    if first == "NOT":
        inner, at = _single(tokens, at + 1)
        return (lambda *given: not inner(*given)), at
    if first == "(":
        inner, at = _either(tokens, at + 1)
        assert tokens[at] == ")"
        return inner, at + 1
    if first in ("attribute_exists", "attribute_not_exists"):
        name, wanted = tokens[at + 2], first == "attribute_exists"
        return (lambda item, names, _: (names.get(name, name) in item) is wanted), at + 4
    if tokens[at + 1] == "IN":
        end = tokens.index(")", at)
        options = tokens[at + 3 : end : 2]
        return (lambda *given: _value(first, *given) in [_value(one, *given) for one in options]), end + 1
    return _comparison(first, _COMPARE[tokens[at + 1]], tokens[at + 2]), at + 3


def _comparison(left: str, compare: Callable[[Any, Any], bool], right: str) -> Test:
    def test(*given: Any) -> bool:
        values = _value(left, *given), _value(right, *given)
        return None not in values and compare(*values)

    return test


def _value(token: str, item: Item, names: dict[str, str], values: dict[str, Any]) -> Any:
    found = values[token] if token.startswith(":") else item.get(names.get(token, token))
    return None if found is None else _plain(found)
