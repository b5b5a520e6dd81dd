"""What the main process and a page process say to each other: frames of JSON on a socket.

The page process has touched hostile bytes, so its word is checked field by field before it is
believed; nothing is ever unpickled. The main process's word is trusted.
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass, field, fields
from operator import attrgetter
from pathlib import Path
from typing import Any

from ocr_worker.isolation.sandbox import Isolation, Sandbox, SandboxMode, Wall
from ocr_worker.limits import Limits
from ocr_worker.reading import MAX_TEXT_CHARACTERS, Reading
from pdf_ops.contract.errors import ErrorKind, PdfOpsError, Phase
from pdf_ops.contract.fingerprint import OcrMode, ReadingConfig
from pdf_ops.contract.media import MediaType
from pdf_ops.contract.pages import Method, MethodReason

HEADER = struct.Struct("<I")
MARK = struct.Struct("<q")
# The longest text, escaped; parsing a frame takes some twenty times its size.
MAX_FRAME_BYTES = 16 * 1024 * 1024
EXIT_OUT_OF_MEMORY = 86
NO_PAGE = -1


class BadAnswerError(ValueError):
    """A page process said something that it never says."""


def _reading_config(wire: dict[str, Any]) -> ReadingConfig:
    return ReadingConfig(**wire | {"ocr": OcrMode(wire["ocr"]), "languages": tuple(wire["languages"])})


def _sandbox(wire: dict[str, Any]) -> Sandbox:
    return Sandbox(
        mode=SandboxMode(wire["mode"]),
        readable=tuple(map(Path, wire["readable"])),
        writable=tuple(map(Path, wire["writable"])),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessConfig:
    """The first frame: how this process reads, for all its life.

    Attributes:
        reading: What decides the rows.
        limits: What the process may use.
        recognizer: ``auto``, ``tesserocr``, ``pytesseract``, or ``package.module:factory``.
        parser: ``pdfium``, or ``package.module:factory`` in its place.
        max_pages: Documents with more pages are not read.
        sandbox: What the process may open.
        profile_folder: Where to leave a profile at the end, if anywhere.
    """

    reading: ReadingConfig
    limits: Limits
    recognizer: str = "auto"
    parser: str = "pdfium"
    max_pages: int = 20_000
    sandbox: Sandbox = field(default_factory=lambda: Sandbox(mode=SandboxMode.AUTO))
    profile_folder: Path | None = None

    def encode(self) -> bytes:
        """As a frame's content."""
        return json.dumps(asdict(self), default=str).encode()

    @classmethod
    def decode(cls, content: bytes) -> ProcessConfig:
        """From a frame's content."""
        wire = json.loads(content)
        reading = wire.pop("reading")
        folder = wire.pop("profile_folder")
        return cls(
            reading=_reading_config(reading),
            limits=Limits(**wire.pop("limits")),
            sandbox=_sandbox(wire.pop("sandbox")),
            profile_folder=Path(folder) if folder is not None else None,
            **wire,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceRequest:
    """Read the pages from ``first`` up to, not including, ``last``.

    Attributes:
        path: The file, on local disk.
        media_type: What it is.
        first: The first page, from 0.
        last: Where to stop; beyond the end of the document is fine.
        is_careful: Leave pdfium out: it failed on this before.
        password: For an encrypted document.
        page_count: How many pages the document has, once a process has said so.
        reading: How to read it, if not as the process was told.
    """

    path: Path
    media_type: MediaType
    first: int
    last: int
    is_careful: bool = False
    password: str | None = None
    page_count: int | None = None
    reading: ReadingConfig | None = None

    def encode(self) -> bytes:
        """As a frame's content."""
        wire = {name: getattr(self, name) for name in _REQUEST_FIELDS}
        reading = None if self.reading is None else asdict(self.reading)
        return json.dumps(wire | {"path": str(self.path), "reading": reading}).encode()

    @classmethod
    def decode(cls, content: bytes) -> SliceRequest:
        """From a frame's content."""
        wire = json.loads(content)
        reading = wire.pop("reading")
        return cls(
            **wire | {"path": Path(wire["path"]), "media_type": MediaType(wire["media_type"])},
            reading=_reading_config(reading) if reading is not None else None,
        )


_REQUEST_FIELDS = tuple(found.name for found in fields(SliceRequest))


@dataclass(frozen=True, slots=True)
class Ready:
    """The process is up, and this is what keeps it in."""

    isolation: Isolation


@dataclass(frozen=True, slots=True)
class Opened:
    """The document is open: this is how many pages it has."""

    page_count: int
    open_ms: float


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """One page: a reading, or the error that stands in its place."""

    index: int
    reading: Reading | None
    error: PdfOpsError | None
    total_ms: float
    cpu_ms: float


@dataclass(frozen=True, slots=True)
class Failed:
    """The document cannot be opened."""

    error: PdfOpsError


@dataclass(frozen=True, slots=True)
class SliceEnd:
    """Every page of the slice was answered."""


Answer = Ready | Opened | Failed | SliceEnd | list[PageAnswer]

_READING_FIELDS = tuple(found.name for found in fields(Reading))
_reading_values = attrgetter(*_READING_FIELDS)
_MILLISECONDS = (0.0, 1e9)
_RATIO = (0.0, 1.0)
_CONFIDENCE = (0.0, 100.0)
_NUMBER_BOUNDS: dict[str, tuple[float, float]] = {
    "layer_chars": (0, MAX_TEXT_CHARACTERS),
    "layer_bad_ratio": _RATIO,
    "layer_word_ratio": _RATIO,
    "layer_invisible_ratio": _RATIO,
    "layer_hidden_ratio": _RATIO,
    "image_coverage": _RATIO,
    "ocr_confidence": _CONFIDENCE,
    "ocr_confidence_low": _CONFIDENCE,
    "ocr_words": (0, MAX_TEXT_CHARACTERS),
    "ocr_attempts": (0, 100),
    "width_pt": (0.0, 1e7),
    "height_pt": (0.0, 1e7),
    "rotation_declared": (0, 270),
    "rotation_detected": (0, 270),
    "dpi": (0.0, 10_000.0),
    "text_ms": _MILLISECONDS,
    "render_ms": _MILLISECONDS,
    "prepare_ms": _MILLISECONDS,
    "ocr_ms": _MILLISECONDS,
}
_WHOLE = {"layer_chars", "ocr_words", "ocr_attempts", "rotation_declared", "rotation_detected"}
_NEVER_NONE = {
    "layer_chars",
    "ocr_attempts",
    "rotation_declared",
    "rotation_detected",
    "text_ms",
    "render_ms",
    "prepare_ms",
    "ocr_ms",
}
_CHECKS = tuple(
    (name, low, high, (int,) if name in _WHOLE else (int, float), name in _NEVER_NONE)
    for name, (low, high) in _NUMBER_BOUNDS.items()
)
_METHODS = {member.value: member for member in Method}
_REASONS = {member.value: member for member in MethodReason}
_NAMES = ("parser", "ocr_engine")
_MAX_NAME_CHARS = 200


def encode_ready(isolation: Isolation) -> bytes:
    """The process is up."""
    return _dump({"ready": isolation.in_force})


def encode_opened(page_count: int, open_ms: float) -> bytes:
    """The document is open."""
    return _dump({"opened": [page_count, open_ms]})


def encode_failed(error: PdfOpsError) -> bytes:
    """The document cannot be opened."""
    return _dump({"failed": _error_to_wire(error)})


def encode_end() -> bytes:
    """The slice is done."""
    return _dump({"end": True})


def encode_pages(pages: list[PageAnswer]) -> bytes:
    """Some pages of the slice."""
    return _dump({"pages": [_page_to_wire(page) for page in pages]})


def decode_answer(content: bytes) -> Answer:
    """Check and take what a page process said.

    Raises:
        BadAnswerError: If it is anything but one of the five answers, or a field is out of its bounds.
    """
    try:
        wire = json.loads(content)
        [(kind, value)] = wire.items()
        if kind == "pages":
            return [_page_from_wire(item) for item in value]
        if kind == "opened":
            return Opened(_integer(value[0], 1, 2**31 - 1), _number(value[1], *_MILLISECONDS))
        if kind == "failed":
            return Failed(_error_from_wire(value))
        if kind == "end":
            return SliceEnd()
        if kind == "ready":
            return Ready(Isolation(tuple(Wall(name) for name in value)))
    except BadAnswerError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        # Not the error's words, here and below: they quote what was said.
        raise BadAnswerError(type(error).__name__) from error
    raise BadAnswerError("an unknown answer")


def _dump(wire: object) -> bytes:
    return json.dumps(wire, ensure_ascii=False, separators=(",", ":")).encode("utf-8", errors="replace")


def _page_to_wire(page: PageAnswer) -> list[object]:
    reading = None if page.reading is None else _reading_values(page.reading)
    error = None if page.error is None else _error_to_wire(page.error)
    return [page.index, reading, error, page.total_ms, page.cpu_ms]


def _page_from_wire(wire: Any) -> PageAnswer:
    index, reading, error, total_ms, cpu_ms = wire
    if (reading is None) == (error is None):
        raise BadAnswerError("a page needs a reading or an error")
    return PageAnswer(
        _integer(index, 0, 2**31 - 1),
        None if reading is None else _reading_from_wire(reading),
        None if error is None else _error_from_wire(error),
        _number(total_ms, *_MILLISECONDS),
        _number(cpu_ms, *_MILLISECONDS),
    )


def _reading_from_wire(wire: Any) -> Reading:
    if not isinstance(wire, list) or len(wire) != len(_READING_FIELDS):
        raise BadAnswerError("a reading has another number of fields")
    values = dict(zip(_READING_FIELDS, wire, strict=True))
    if not _is_text(values["text"], MAX_TEXT_CHARACTERS):
        raise BadAnswerError("text is no valid string, or too long")
    values["method"] = _METHODS[values["method"]]
    values["reason"] = _REASONS[values["reason"]]
    for name, low, high, kinds, is_never_none in _CHECKS:
        value = values[name]
        if value is None:
            if is_never_none:
                raise BadAnswerError(f"{name} is missing")
        elif type(value) not in kinds or not low <= value <= high:
            raise BadAnswerError(f"{name} is no number from {low} to {high}")
    for name in _NAMES:
        value = values[name]
        if value is not None and not _is_text(value, _MAX_NAME_CHARS):
            raise BadAnswerError(f"{name} is no short string")
    return Reading(**values)


def _is_text(value: Any, most: int) -> bool:
    """Whether it is a string of at most so many characters, each of which a file can hold."""
    if not isinstance(value, str) or len(value) > most:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # A lone surrogate: JSON can say it, UTF-8 cannot.
        return False
    return True


def _error_to_wire(error: PdfOpsError) -> list[str]:
    return [error.kind.label, error.detail, error.phase.value]


def _error_from_wire(wire: Any) -> PdfOpsError:
    label, detail, phase = wire
    if not isinstance(detail, str):
        raise BadAnswerError("an error's detail is no string")
    return PdfOpsError(ErrorKind.parse(label), detail, phase=Phase(phase))


def _integer(value: Any, low: float, high: float) -> int:
    if type(value) is not int or not low <= value <= high:
        raise BadAnswerError(f"no whole number from {low} to {high}")
    return value


def _number(value: Any, low: float, high: float) -> float:
    if type(value) not in (int, float) or not low <= value <= high:
        raise BadAnswerError(f"no number from {low} to {high}")
    return float(value)
