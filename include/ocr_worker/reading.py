"""One page, read: text layer if it is good, else OCR, and the row's figures on the way.

The order of attempts lives here and nowhere else. Runs in the page process; knows no files,
processes or limits.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ocr_worker.engines import Picture, Recognition
from ocr_worker.quality import Verdict, judge
from pdf_ops.contract.errors import ErrorClass, ErrorKind, PdfOpsError
from pdf_ops.contract.fingerprint import OcrMode
from pdf_ops.contract.pages import Method, MethodReason

if TYPE_CHECKING:
    from collections.abc import Callable

    from ocr_worker.engines import Page, Recognizer, TextLayer
    from pdf_ops.contract.fingerprint import ReadingConfig

# Upside-down pages are read with a mean confidence of 23 to 39, the worst upright ones of our sample
# with 66: below this another orientation is tried. Other settings (no flattening, 150 and 300 dpi,
# psm 4 and 11) did not raise word F1 on pages of low confidence, so none of them is tried.
LOW_CONFIDENCE = 60.0
MAX_TEXT_CHARACTERS = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What was read from one page, before it is known which document and run it belongs to."""

    text: str
    method: Method
    reason: MethodReason
    layer_chars: int = 0
    layer_bad_ratio: float | None = None
    layer_word_ratio: float | None = None
    layer_invisible_ratio: float | None = None
    layer_hidden_ratio: float | None = None
    image_coverage: float | None = None
    ocr_confidence: float | None = None
    ocr_confidence_low: float | None = None
    ocr_words: int | None = None
    ocr_attempts: int = 0
    width_pt: float | None = None
    height_pt: float | None = None
    rotation_declared: int = 0
    rotation_detected: int = 0
    dpi: float | None = None
    parser: str | None = None
    ocr_engine: str | None = None
    text_ms: float = 0.0
    render_ms: float = 0.0
    prepare_ms: float = 0.0
    ocr_ms: float = 0.0


class Stopwatch:
    """Milliseconds since it was last asked."""

    def __init__(self) -> None:
        """Start."""
        self._last = time.perf_counter()

    def lap_ms(self) -> float:
        """Milliseconds since the last lap."""
        now = time.perf_counter()
        lap, self._last = (now - self._last) * 1000, now
        return lap


class PageReader:
    """Reads pages with one configuration; loads the OCR engine when the first page needs it."""

    def __init__(self, config: ReadingConfig, load_recognizer: Callable[[], Recognizer]) -> None:
        """Remember how to read."""
        self.config = config
        self._load_recognizer = load_recognizer
        self._recognizer: Recognizer | None = None

    def read(self, page: Page, parser: str) -> Reading:
        """Read one page.

        Raises:
            PdfOpsError: With page scope, saying what is wrong with the page.
        """
        watch = Stopwatch()
        geometry = page.geometry().clamped()
        layer, verdict, layer_error = self._text_layer(page)
        text = clean_text(layer.text) if layer is not None else ""
        if len(text) > MAX_TEXT_CHARACTERS:
            raise PdfOpsError(ErrorKind.BOMB_TEXT, f"{len(text)} characters on one page")
        base = Reading(
            text=text,
            method=Method.TEXT_LAYER,
            reason=verdict.reason,
            layer_chars=len(text),
            layer_bad_ratio=verdict.bad_ratio,
            layer_word_ratio=verdict.word_ratio,
            layer_invisible_ratio=layer.invisible_ratio if layer is not None else None,
            layer_hidden_ratio=layer.hidden_ratio if layer is not None else None,
            image_coverage=layer.image_coverage if layer is not None else None,
            width_pt=geometry.width_pt,
            height_pt=geometry.height_pt,
            rotation_declared=geometry.rotation,
            parser=parser,
            text_ms=watch.lap_ms(),
        )
        if verdict.reason is MethodReason.NOTHING_DRAWN:
            return replace(base, method=Method.EMPTY)
        if self.config.ocr is OcrMode.OFF:
            return _without_ocr(base, verdict, layer_error)
        if verdict.is_good and self.config.ocr is OcrMode.AUTO:
            return base
        reason = MethodReason.FORCED if self.config.ocr is OcrMode.FORCE else verdict.reason
        try:
            return self._by_ocr(page, replace(base, reason=reason))
        except PdfOpsError as error:
            # A layer that was only doubted is better than an error; a broken one is not.
            doubted = (MethodReason.TOO_FEW_CHARACTERS, MethodReason.INVISIBLE_TEXT, MethodReason.HIDDEN_TEXT)
            is_usable = verdict.is_good or verdict.reason in doubted
            if not is_usable or error.kind.error_class is ErrorClass.ENGINE:
                raise
            return replace(base, reason=MethodReason.KEPT_TEXT_LAYER)

    def _text_layer(self, page: Page) -> tuple[TextLayer | None, Verdict, PdfOpsError | None]:
        try:
            layer = page.text_layer()
        except PdfOpsError as error:
            return None, Verdict(is_good=False, reason=MethodReason.TEXT_LAYER_FAILED), error
        if layer is None:
            return None, Verdict(is_good=False, reason=MethodReason.IMAGE_INPUT), None
        return layer, judge(layer, trust_invisible=self.config.trust_ocr_layer), None

    def _by_ocr(self, page: Page, base: Reading) -> Reading:
        from ocr_worker.pictures import flattened, is_blank

        watch = Stopwatch()
        raw = page.picture(self.config.dpi, self.config.max_page_pixels)
        render_ms = watch.lap_ms()
        picture = Picture(pixels=flattened(raw.pixels), dpi=raw.dpi)
        blank = is_blank(picture.pixels)
        base = replace(base, dpi=picture.dpi, render_ms=render_ms, prepare_ms=watch.lap_ms())
        if blank:
            if base.text.strip():
                return replace(base, reason=MethodReason.KEPT_TEXT_LAYER)
            return replace(base, text="", method=Method.EMPTY, reason=MethodReason.BLANK_PAGE)
        if self._recognizer is None:
            self._recognizer = self._load_recognizer()
        best, turn, attempts = recognize_upright(self._recognizer, picture)
        if not best.text and picture.pixels is not raw.pixels:
            # Flattening rescues most such pages and may, on a dark or inverted one, be what spoils it.
            best, turn, more = recognize_upright(self._recognizer, raw)
            attempts += more
        base = replace(base, ocr_attempts=attempts, ocr_engine=self._recognizer.name, ocr_ms=watch.lap_ms())
        text = clean_text(best.text)
        if not text.strip():
            if base.text.strip():
                return replace(base, reason=MethodReason.KEPT_TEXT_LAYER)
            return replace(base, text="", method=Method.NONE, reason=MethodReason.NO_TEXT_FOUND)
        if base.reason is MethodReason.TOO_FEW_CHARACTERS and len(text) < len(base.text):
            return replace(base, reason=MethodReason.KEPT_TEXT_LAYER)
        return replace(
            base,
            text=text,
            method=Method.OCR,
            ocr_confidence=best.mean,
            ocr_confidence_low=best.low,
            ocr_words=len(best.confidences),
            rotation_detected=(turn + best.rotation) % 360,
        )


def recognize_upright(recognizer: Recognizer, picture: Picture) -> tuple[Recognition, int, int]:
    """Read a picture, turned if that reads better.

    Returns what was read, the clockwise turn that was applied before, and the number of attempts. A
    page that reads well as it is costs one attempt. Empty text counts as a bad read: the caller has
    made sure that the page is not blank.
    """
    from ocr_worker.pictures import turned

    best, best_turn, attempts = recognizer.recognize(picture), 0, 1
    for number in range(2):
        if best.mean >= LOW_CONFIDENCE:
            break
        # Upside down first: Tesseract reads lines that run upwards by itself, so this covers three
        # of the four orientations. Then whatever the orientation detector says.
        turn = 180 if number == 0 else recognizer.orientation(picture)
        if turn is None or (turn in (0, 180, best_turn) and number == 1):
            break
        other = recognizer.recognize(Picture(pixels=turned(picture.pixels, turn), dpi=picture.dpi))
        attempts += 1
        if _is_better(other, best):
            best, best_turn = other, turn
    return best, best_turn, attempts


def _is_better(other: Recognition, best: Recognition) -> bool:
    """More of it, and surer: a single confident speck must not beat a page of text."""
    return sum(other.confidences) > sum(best.confidences) or (
        other.mean > best.mean + 20 and len(other.confidences) * 2 > len(best.confidences)
    )


def _without_ocr(base: Reading, verdict: Verdict, layer_error: PdfOpsError | None) -> Reading:
    if layer_error is not None:
        raise layer_error
    if verdict.is_good:
        return base
    if base.text.strip():
        return replace(base, reason=MethodReason.OCR_OFF)
    return replace(base, text="", method=Method.NONE, reason=MethodReason.OCR_OFF)


# pdfium marks a hyphen at the end of a line with U+FFFE.
_REPLACED = (
    ("\r\n", "\n"),
    ("\r", "\n"),
    ("\v", "\n"),
    ("\f", "\n"),
    ("\u2028", "\n"),
    ("\u2029", "\n"),
    ("\ufffe", "-"),
)
# NUL ends a string in too many programs, and an escape sequence acts on whoever shows the text.
_CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f]")
# The bytes of the first half of them, and what the second half begins with.
_SUSPECT_BYTES = bytes((*range(9), *range(0x0E, 0x20), 0x7F, 0xC2))


def clean_text(text: str) -> str:
    """Text as every row holds it: newlines and tabs but no other control character, valid Unicode."""
    for odd, plain in _REPLACED:
        if odd in text:
            text = text.replace(odd, plain)
    content = text.encode("utf-8", errors="replace")
    if not text.isascii():
        text = content.decode()
    # Looking for bytes takes a tenth of the time.
    return text if len(content.translate(None, _SUSPECT_BYTES)) == len(content) else _CONTROL.sub("", text)
