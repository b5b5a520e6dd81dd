"""How much of a page was read: character error rate and bag-of-words F1, means over pages.

CER also counts reading order; F1 does not, so a receipt read column by column is only hurt by one.
Case does not count: the receipts' ground truth is in capitals, whatever is printed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import fmean

from rapidfuzz.distance import Levenshtein


@dataclass(frozen=True, slots=True)
class Score:
    """In per cent."""

    cer: float
    word_f1: float


def score(read: list[str], truth: list[str]) -> Score:
    """Compare pages with what they say."""
    if len(read) != len(truth):
        raise ValueError(f"{len(read)} pages were read, {len(truth)} are there")
    pairs = list(zip(read, truth, strict=True))
    return Score(
        100 * fmean(_cer(page, wanted) for page, wanted in pairs),
        100 * fmean(_word_f1(page, wanted) for page, wanted in pairs),
    )


def _cer(read: str, truth: str) -> float:
    page, wanted = " ".join(read.casefold().split()), " ".join(truth.casefold().split())
    return min(1.0, Levenshtein.distance(page, wanted) / max(1, len(wanted)))


def _word_f1(read: str, truth: str) -> float:
    page, wanted = Counter(read.casefold().split()), Counter(truth.casefold().split())
    if not page and not wanted:
        return 1.0
    return 2 * (page & wanted).total() / (page.total() + wanted.total())
