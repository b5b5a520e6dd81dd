"""The settings that decide what is read from a page, and their hash.

Two readings with the same bytes and the same hash give the same rows, which is what makes "already
done" safe. Not for settings that only change speed, limits in time or memory, or where rows go.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum

from pdf_ops.contract.errors import sanitise
from pdf_ops.contract.pages import PAGE_SCHEMA_VERSION

READING_VERSION = 2
"""Bumped whenever the same bytes with the same settings give other rows."""

MIN_DPI = 36
MAX_DPI = 1200

# Tesseract takes a language as a file name below its data folder, so nothing else may pass:
# no "..", no absolute path, no leading hyphen that would read as an option.
_LANGUAGE = re.compile(r"(?:script/)?[A-Za-z][A-Za-z0-9]*(?:[_-][A-Za-z0-9]+)*", re.ASCII)
_MAX_LANGUAGE_CHARS = 64


class ReadingConfigError(ValueError):
    """A reading setting has a value that cannot be used."""


class OcrMode(StrEnum):
    """When OCR is used: where the text layer is not good enough, on every page, or never."""

    AUTO = "auto"
    FORCE = "force"
    OFF = "off"


def parse_languages(label: str) -> tuple[str, ...]:
    """Split the languages as Tesseract writes them: ``eng+deu``, ``chi_sim``, ``script/Latin``.

    The order is kept, since the first language leads.

    Raises:
        ReadingConfigError: If a name is empty, repeated, or not a language name.
    """
    languages = tuple(label.split("+"))
    _check_languages(languages)
    return languages


def _check_languages(languages: tuple[str, ...]) -> None:
    accepted = 'accepted: Tesseract names joined with "+", such as eng, eng+deu, chi_sim or script/Latin'
    if not languages or languages == ("",):
        raise ReadingConfigError(f"languages: none is given; {accepted}")
    for position, language in enumerate(languages):
        shown = sanitise(language, _MAX_LANGUAGE_CHARS)
        if not language:
            raise ReadingConfigError(f"languages: name {position + 1} is empty; {accepted}")
        if len(language) > _MAX_LANGUAGE_CHARS or not _LANGUAGE.fullmatch(language):
            raise ReadingConfigError(f"languages: {shown!r} is not a language name; {accepted}")
        if language in languages[:position]:
            raise ReadingConfigError(f"languages: {shown!r} is given twice; {accepted}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingConfig:
    """What decides a page's row, besides its bytes.

    Attributes:
        ocr: When OCR is used.
        languages: The OCR languages, the leading one first.
        dpi: The resolution that pages are rendered at for OCR.
        max_page_pixels: Pages with more pixels than this at ``dpi`` are not rendered at it.
        trust_ocr_layer: Whether the invisible text of an earlier OCR is taken as it is.
    """

    ocr: OcrMode = OcrMode.AUTO
    languages: tuple[str, ...] = ("eng",)
    dpi: int = 200
    max_page_pixels: int = 40_000_000
    trust_ocr_layer: bool = False

    def __post_init__(self) -> None:
        """Refuse values that cannot be used."""
        if not isinstance(self.ocr, OcrMode):
            raise ReadingConfigError(f"ocr: {self.ocr!r} is not one of {', '.join(OcrMode)}")
        _check_languages(self.languages)
        if not MIN_DPI <= self.dpi <= MAX_DPI:
            raise ReadingConfigError(f"dpi: {self.dpi} is not between {MIN_DPI} and {MAX_DPI}")
        if self.max_page_pixels < 1:
            raise ReadingConfigError(f"max_page_pixels: {self.max_page_pixels} is not positive")

    @property
    def languages_label(self) -> str:
        """The languages as Tesseract takes them: ``eng+deu``."""
        return "+".join(self.languages)

    @property
    def config_hash(self) -> str:
        """16 hex digits that change whenever the same bytes may give other rows."""
        import hashlib  # A page process never asks, and it takes longer than the rest of this module.

        settings = {
            "dpi": self.dpi,
            "languages": list(self.languages),
            "max_page_pixels": self.max_page_pixels,
            "ocr": self.ocr.value,
            "page_schema_version": PAGE_SCHEMA_VERSION,
            "reading_version": READING_VERSION,
            "trust_ocr_layer": self.trust_ocr_layer,
        }
        canonical = json.dumps(settings, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(canonical.encode("ascii")).hexdigest()[:16]
