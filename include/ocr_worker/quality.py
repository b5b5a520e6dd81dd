"""How good a page's text layer is: good enough to take, or to be read by OCR instead.

A judgement on one page at a time: one typed cover page must not switch OCR off for 99 scanned
ones. It must cost far less than the text itself, so everything here is a sample or runs in C.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from operator import add
from typing import TYPE_CHECKING

from pdf_ops.contract.pages import MethodReason

if TYPE_CHECKING:
    from ocr_worker.engines import TextLayer

# Tika's rule for a page that holds next to nothing.
MIN_CHARACTERS = 10
# A stamp or a page number over a scan: text, but not the page's.
FEW_CHARACTERS = 250
LARGE_IMAGE = 0.5
# Text drawn as outlines: hardly a character, hundreds of shapes.
FEW_CHARACTERS_OUTLINED = 100
MANY_PATHS = 300
MAX_UNMAPPED = 0.2
MAX_BAD = 0.1
MAX_INVISIBLE = 0.5
# 124 pages of real text layers scored 0.75 and above, letters shifted by a broken font 0.53 and below.
MIN_WORDLIKE = 0.62
MIN_PAIRS = 80
MIN_ALPHANUMERIC = 0.4
MIN_JUDGED = 100
SAMPLE_CHARACTERS = 1_000

# Compiled when they are needed: where there is a bad character.
_PRIVATE = "[\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd]"
_REPLACED = "\ufffd"
_CONTROL = "[\x00-\x08\x0e-\x1f\x7f-\x9f\ufffe\uffff]"
_CID = re.compile(r"\(cid:\d+\)")
# One set and no alternatives, which would take four times as long to look for.
_BAD = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\ue000-\uf8ff\ufffd\ufffe\uffff\U000f0000-\U0010fffd]")
_SPACE = re.compile(r"\s+")
_LETTERS = re.compile("[a-z]{2,}")
_OTHER_LETTER = re.compile(r"[^\W\d_a-z]")
_ACCENT = re.compile("[\u0300-\u036f]+")
# Dot leaders, rules and bullets are how tables of contents look, not a sign of a broken font.
_FURNITURE = re.compile(r"[\s._\-\u2013\u2014·•…=|/:,*+$%()]+")

# For each letter those that commonly follow it: the pairs that make up 85 % of a word list in any of
# English, German, French, Spanish, Italian, Dutch, Portuguese, Polish and Swedish, accents removed.
_FOLLOWERS = {
    "a": "abcdfghijklmnoprstuvwyz",
    "b": "abeiloruy",
    "c": "acehiklortuyz",
    "d": "aeiorsuz",
    "e": "abcdefghijklmnoprstuvwxz",
    "f": "aeilort",
    "g": "aeginorsu",
    "h": "aeilnorstu",
    "i": "abcdefgjklmnoprstuvz",
    "j": "aeku",
    "k": "aeiklnorstu",
    "l": "adehilnostuy",
    "m": "abeimopsuy",
    "n": "acdeghiknostyz",
    "o": "bcdefgiklmnoprstuwz",
    "p": "aehiloprs",
    "q": "u",
    "r": "abdefgiklmnorstuvyz",
    "s": "acehiklmnopstuvz",
    "t": "aehijlnorstuyz",
    "u": "abcefgijlmnprstw",
    "v": "aeio",
    "w": "aeiosy",
    "y": "bckmnswz",
    "z": "aceiknouyz",
}
_COMMON_PAIRS = frozenset(first + second for first, row in _FOLLOWERS.items() for second in row)
# Most words of a page were on the pages before it.
_MAX_KNOWN_WORDS = 10_000
_MAX_KNOWN_LETTERS = 20


class _PairsOfWords(dict[str, int]):
    """How many of a word's neighbouring letters commonly stand together, by word."""

    def __missing__(self, word: str) -> int:
        count = sum(map(_COMMON_PAIRS.__contains__, map(add, word, word[1:])))
        if len(self) < _MAX_KNOWN_WORDS and len(word) <= _MAX_KNOWN_LETTERS:
            self[word] = count
        return count


_pairs_of_words = _PairsOfWords()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a text layer is worth, why, and the figures behind it."""

    is_good: bool
    reason: MethodReason
    bad_ratio: float | None = None
    word_ratio: float | None = None


def judge(layer: TextLayer, *, trust_invisible: bool = False) -> Verdict:
    """Judge one page's text layer."""
    text = layer.text
    is_short = len(text) < 4 * FEW_CHARACTERS or text.isspace()
    characters = len(_SPACE.sub("", text)) if is_short else len(text)
    if characters == 0:
        drawn = MethodReason.NO_TEXT_LAYER if layer.is_drawn else MethodReason.NOTHING_DRAWN
        return Verdict(is_good=False, reason=drawn)
    bad_ratio, bad_reason = _bad_characters(text, characters)
    unmapped = layer.unmapped_ratio or 0.0
    bad_ratio = max(bad_ratio, unmapped)
    if bad_reason is not None:
        return Verdict(is_good=False, reason=bad_reason, bad_ratio=bad_ratio)
    if unmapped > MAX_UNMAPPED:
        return Verdict(is_good=False, reason=MethodReason.UNMAPPED_GLYPHS, bad_ratio=bad_ratio)
    word_ratio = wordlike_ratio(text)
    if is_gibberish(text, word_ratio):
        return Verdict(
            is_good=False, reason=MethodReason.NO_WORDS, bad_ratio=bad_ratio, word_ratio=word_ratio
        )
    coverage = layer.image_coverage or 0.0
    if (layer.hidden_ratio or 0.0) > MAX_INVISIBLE:
        return Verdict(
            is_good=False, reason=MethodReason.HIDDEN_TEXT, bad_ratio=bad_ratio, word_ratio=word_ratio
        )
    invisible = (layer.invisible_ratio or 0.0) > MAX_INVISIBLE
    if invisible and not trust_invisible:
        return Verdict(
            is_good=False, reason=MethodReason.INVISIBLE_TEXT, bad_ratio=bad_ratio, word_ratio=word_ratio
        )
    outlined = characters < FEW_CHARACTERS_OUTLINED and (layer.path_count or 0) > MANY_PATHS
    if (
        characters < MIN_CHARACTERS
        or outlined
        or (characters < FEW_CHARACTERS and coverage > LARGE_IMAGE and not invisible)
    ):
        reason = MethodReason.TOO_FEW_CHARACTERS
        return Verdict(is_good=False, reason=reason, bad_ratio=bad_ratio, word_ratio=word_ratio)
    reason = MethodReason.TRUSTED_OCR_LAYER if invisible else MethodReason.GOOD_TEXT_LAYER
    return Verdict(is_good=True, reason=reason, bad_ratio=bad_ratio, word_ratio=word_ratio)


def _bad_characters(text: str, characters: int) -> tuple[float, MethodReason | None]:
    """Share of characters that cannot be meant, and the worst kind of them if there are too many."""
    if _BAD.search(text) is None and "(cid:" not in text:
        return 0.0, None
    counts = {
        MethodReason.PRIVATE_USE_GLYPHS: len(re.findall(_PRIVATE, text)),
        MethodReason.REPLACEMENT_CHARACTERS: text.count(_REPLACED),
        MethodReason.CONTROL_CHARACTERS: len(re.findall(_CONTROL, text)),
        MethodReason.CID_RUNS: sum(len(run) for run in _CID.findall(text)),
    }
    ratio = min(1.0, sum(counts.values()) / characters)
    worst = max(counts, key=lambda reason: counts[reason])
    return ratio, worst if ratio > MAX_BAD else None


def wordlike_ratio(text: str) -> float | None:
    """Share of neighbouring letters that commonly stand together; None where there is too little to tell."""
    sample = text[:SAMPLE_CHARACTERS].lower()
    if not sample.isascii():
        sample = _ACCENT.sub("", unicodedata.normalize("NFD", sample))
    words = _LETTERS.findall(sample)
    letters = sum(map(len, words))
    if not sample.isascii() and len(_OTHER_LETTER.findall(sample)) >= max(1, letters):
        return None  # Another script.
    pairs = letters - len(words)
    return sum(map(_pairs_of_words.__getitem__, words)) / pairs if pairs >= MIN_PAIRS else None


def is_gibberish(text: str, word_ratio: float | None) -> bool:
    """Whether the characters form no words: letters in odd company, or signs in place of letters."""
    if word_ratio is not None:
        return word_ratio < MIN_WORDLIKE
    sample = _FURNITURE.sub("", text[:SAMPLE_CHARACTERS])
    if len(sample) < MIN_JUDGED:
        return False
    return sum(map(str.isalnum, sample)) / len(sample) < MIN_ALPHANUMERIC
