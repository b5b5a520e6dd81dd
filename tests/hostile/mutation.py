"""Mutations of bytes, each the same for the same seed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

MAX_BYTES = 2_000_000
MAX_STEPS = 8
ODD_NUMBERS = (b"0", b"-1", b"1e308", b"2147483648", b"4294967295", b"9223372036854775808", b"0.00001", b"")
_NUMBER = re.compile(rb"\d+")


def mutated(seed: bytes, others: Sequence[bytes], words: Sequence[bytes], chance: random.Random) -> bytes:
    """A seed with a few things wrong with it."""
    body = bytearray(seed[:MAX_BYTES])
    for _ in range(chance.randint(1, MAX_STEPS)):
        step = chance.choice((_flip, _set, _cut, _repeat, _drop_end, _number, _swap))
        step(body, chance)
        if chance.random() < 0.3:
            at = chance.randint(0, len(body))
            body[at:at] = chance.choice(words)
        if chance.random() < 0.1:
            other = chance.choice(others)
            begin = chance.randint(0, len(other))
            at = chance.randint(0, len(body))
            body[at : at + chance.randint(0, 4096)] = other[begin : begin + chance.randint(0, 4096)]
    return bytes(body[:MAX_BYTES])


def _place(body: bytearray, chance: random.Random) -> int:
    return chance.randrange(len(body)) if body else 0


def _flip(body: bytearray, chance: random.Random) -> None:
    if body:
        body[_place(body, chance)] ^= 1 << chance.randrange(8)


def _set(body: bytearray, chance: random.Random) -> None:
    if body:
        body[_place(body, chance)] = chance.choice((0, 10, 34, 37, 47, 60, 62, 91, 92, 127, 128, 255))


def _cut(body: bytearray, chance: random.Random) -> None:
    at = _place(body, chance)
    del body[at : at + chance.randint(1, 64)]


def _repeat(body: bytearray, chance: random.Random) -> None:
    at = _place(body, chance)
    body[at:at] = body[at : at + chance.randint(1, 64)] * chance.randint(1, 50)


def _drop_end(body: bytearray, chance: random.Random) -> None:
    if chance.random() < 0.2:
        del body[_place(body, chance) :]


def _number(body: bytearray, chance: random.Random) -> None:
    found = list(_NUMBER.finditer(bytes(body[:200_000])))
    if found:
        chosen = chance.choice(found)
        body[chosen.start() : chosen.end()] = chance.choice(ODD_NUMBERS)


def _swap(body: bytearray, chance: random.Random) -> None:
    one, other, size = _place(body, chance), _place(body, chance), chance.randint(1, 32)
    body[one : one + size], body[other : other + size] = body[other : other + size], body[one : one + size]
