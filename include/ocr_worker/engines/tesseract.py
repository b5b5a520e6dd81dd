"""Tesseract: in this process through tesserocr, or its program through pytesseract.

Both give the same text: one pass yields words, places and confidences, and the text is put together
here. psm 3, LSTM only.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ocr_worker.engines import Picture, Recognition, told_by
from pdf_ops.contract.errors import ErrorKind, PdfOpsError

if TYPE_CHECKING:
    from collections.abc import Iterable

PROGRAM = "tesseract"
PSM_AUTO = 3
PSM_ORIENTATION = 0
OEM_LSTM_ONLY = 1
ORIENTATION_LANGUAGE = "osd"
# Where distributions put the language data; tesserocr's wheel brings none.
_DATA_FOLDERS = (
    "/usr/share/tesseract-ocr/5/tessdata",
    "/usr/share/tesseract-ocr/4.00/tessdata",
    "/usr/share/tessdata",
    "/usr/local/share/tessdata",
    "/opt/homebrew/share/tessdata",
)
# Debian names a script's package by its ISO 15924 code; here where that is not the name's beginning.
_SCRIPT_CODES = {
    "armenian": "armn",
    "canadian-aboriginal": "cans",
    "cyrillic": "cyrl",
    "greek": "grek",
    "gujarati": "gujr",
    "japanese": "jpan",
    "kannada": "knda",
    "khmer": "khmr",
    "lao": "laoo",
    "latin": "latn",
    "malayalam": "mlym",
    "myanmar": "mymr",
    "oriya": "orya",
    "syriac": "syrc",
    "tamil": "taml",
    "tibetan": "tibt",
}
_MIN_ORIENTATION_CONFIDENCE = 1.0
_TSV_COLUMNS = 12
_WORD_LEVEL = "5"
# A word this long is wider than it is high; Latin only, as other scripts do run downwards.
_TELLING_CHARACTERS = 4
_DOWNWARD = 270


def data_folder() -> Path | None:
    """The folder with the language data: TESSDATA_PREFIX, or where distributions put it."""
    given = os.environ.get("TESSDATA_PREFIX")
    if given:
        for folder in (Path(given), Path(given) / "tessdata"):
            if any(folder.glob("*.traineddata")):
                return folder
        return None
    return next((Path(folder) for folder in _DATA_FOLDERS if Path(folder).is_dir()), None)


def installed_languages() -> tuple[str, ...]:
    """The languages that can be read, orientation data not counted."""
    folder = data_folder()
    if folder is None:
        return ()
    names = (path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.traineddata"))
    return tuple(sorted(name for name in names if name != ORIENTATION_LANGUAGE))


def has_orientation_data() -> bool:
    """Whether pages' orientation can be detected."""
    folder = data_folder()
    return folder is not None and (folder / f"{ORIENTATION_LANGUAGE}.traineddata").is_file()


def package_of(language: str) -> str:
    """The Debian package that brings a language."""
    name = language.removeprefix("script/").lower().replace("_", "-")
    if not language.startswith("script/"):
        return f"tesseract-ocr-{name}"
    script = name.removesuffix("-vert")
    return f"tesseract-ocr-script-{_SCRIPT_CODES.get(script, script[:4])}{name[len(script) :]}"


def check_languages(languages: Iterable[str]) -> None:
    """Make sure that every language is installed.

    Raises:
        PdfOpsError: ENGINE/missing_language, naming all missing ones and how to install them.
    """
    installed = installed_languages()
    missing = [language for language in languages if language not in installed]
    if missing:
        packages = " ".join(package_of(language) for language in missing)
        raise PdfOpsError(
            ErrorKind.ENGINE_MISSING_LANGUAGE,
            f"Tesseract has no data for {', '.join(missing)} (installed: {', '.join(installed) or 'none'}); "
            f"run: apt-get install {packages}",
        )


@cache
def tesserocr_version() -> str | None:
    """Name and version of the in-process engine, or None where it is not installed."""
    try:
        import tesserocr
    except ImportError:
        return None
    found = re.search(r"tesseract (\S+)", tesserocr.tesseract_version())
    return f"tesserocr {tesserocr.__version__} (tesseract {found.group(1) if found else 'unknown'})"


@cache
def program_version() -> str | None:
    """Name and version of the program, or None where it is not installed."""
    program = shutil.which(PROGRAM)
    if program is None:
        return None
    shown = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    lines = (shown.stdout or shown.stderr).splitlines()
    return f"pytesseract ({lines[0].strip()})" if lines else None


def load_recognizer(name: str, languages: str) -> TesserocrRecognizer | PytesseractRecognizer:
    """Load the OCR engine: ``tesserocr``, ``pytesseract``, or ``auto`` for the first that is there.

    Raises:
        PdfOpsError: ENGINE/missing_engine or ENGINE/misconfigured.
    """
    if name not in ("auto", "tesserocr", "pytesseract"):
        raise PdfOpsError(ErrorKind.ENGINE_MISCONFIGURED, f"no OCR engine is called {name!r}")
    if name in ("auto", "tesserocr") and tesserocr_version() is not None:
        return TesserocrRecognizer(languages)
    if name in ("auto", "pytesseract") and program_version() is not None:
        return PytesseractRecognizer(languages)
    wanted = "neither tesserocr nor the tesseract program is" if name == "auto" else f"{name} is not"
    raise PdfOpsError(ErrorKind.ENGINE_MISSING_ENGINE, f"{wanted} installed")


def recognition_of(tsv: str) -> Recognition:
    """Put a page's text together from the words that Tesseract's program prints.

    Words make lines, lines make blocks, and an empty line stands between blocks and paragraphs.
    """
    parts: list[str] = []
    confidences: list[float] = []
    line: tuple[str, ...] | None = None
    direction = _Direction()
    for row in tsv.splitlines():
        cells = row.split("\t", _TSV_COLUMNS - 1)
        if len(cells) < _TSV_COLUMNS or cells[0] != _WORD_LEVEL:
            continue
        word = cells[11].strip()
        if not word:
            continue
        here = tuple(cells[1:5])
        if line is not None:
            parts.append(" " if here == line else "\n" if here[:3] == line[:3] else "\n\n")
        line = here
        parts.append(word)
        confidences.append(_percent(float(cells[10])))
        direction.add(word, int(cells[8]), int(cells[9]))
    return Recognition(text="".join(parts), confidences=tuple(confidences), rotation=direction.rotation)


def _percent(confidence: float) -> float:
    return max(0.0, min(100.0, confidence))


class _Direction:
    """Which way the words run: Tesseract turns lines that run downwards, and does not say so.

    Their words are boxes that stand upright.
    """

    def __init__(self) -> None:
        self._upright = self._lying = 0

    def add(self, word: str, width: int, height: int) -> None:
        """Take a word's box."""
        if len(word) >= _TELLING_CHARACTERS and word.isascii():
            self._upright += height > width
            self._lying += height <= width

    @property
    def rotation(self) -> int:
        """The clockwise turn that Tesseract applied."""
        return _DOWNWARD if self._upright > self._lying else 0


class TesserocrRecognizer:
    """Tesseract in this process: the model is loaded once and kept."""

    def __init__(self, languages: str) -> None:
        """Load the languages.

        Raises:
            PdfOpsError: ENGINE/misconfigured if Tesseract refuses them.
        """
        self.name = tesserocr_version() or "tesserocr"
        self._api = self._load(languages, PSM_AUTO, OEM_LSTM_ONLY)
        self._orientation_api: Any = None

    def _load(self, languages: str, psm: int, oem: int) -> Any:
        import tesserocr

        folder = data_folder()
        try:
            return tesserocr.PyTessBaseAPI(
                path=str(folder) if folder else "", lang=languages, psm=psm, oem=oem
            )
        except RuntimeError as error:
            raise PdfOpsError(ErrorKind.ENGINE_MISCONFIGURED, f"tesserocr: {error}") from error

    def recognize(self, picture: Picture) -> Recognition:
        """Read a picture in one pass."""
        _set_image(self._api, picture)
        try:
            self._api.Recognize()
            return self._result()
        except RuntimeError as error:
            raise PdfOpsError(ErrorKind.CORRUPT_PAGE_UNREADABLE, told_by("tesserocr", error)) from error
        finally:
            self._api.Clear()

    def _result(self) -> Recognition:
        """The same as from the TSV, whose making takes a fiftieth of the recognition's time.

        That goes into asking each word whether it begins a line; so lines are asked for their text, and
        words for nothing but their confidence and box.
        """
        from tesserocr import RIL

        parts: list[str] = []
        lines = self._api.GetIterator()
        while lines is not None:
            text = "" if lines.Empty(RIL.TEXTLINE) else " ".join(lines.GetUTF8Text(RIL.TEXTLINE).split())
            if text:
                parts += ("\n\n" if lines.IsAtBeginningOf(RIL.PARA) else "\n", text)
            if not lines.Next(RIL.TEXTLINE):
                break
        confidences: list[float] = []
        direction = _Direction()
        words = self._api.GetIterator()
        while words is not None:
            word = "" if words.Empty(RIL.WORD) else words.GetUTF8Text(RIL.WORD).strip()
            if word:
                confidences.append(_percent(words.Confidence(RIL.WORD)))
                left, top, right, bottom = words.BoundingBox(RIL.WORD)
                direction.add(word, right - left, bottom - top)
            if not words.Next(RIL.WORD):
                break
        return Recognition(
            text="".join(parts[1:]), confidences=tuple(confidences), rotation=direction.rotation
        )

    def orientation(self, picture: Picture) -> int | None:
        """The clockwise turn that would put the picture upright."""
        if self._orientation_api is None:
            if not has_orientation_data():
                return None
            self._orientation_api = self._load(ORIENTATION_LANGUAGE, PSM_ORIENTATION, 0)
        _set_image(self._orientation_api, picture)
        try:
            found = self._orientation_api.DetectOrientationScript()
        finally:
            self._orientation_api.Clear()
        if not found or found["orient_conf"] < _MIN_ORIENTATION_CONFIDENCE:
            return None
        return (360 - int(found["orient_deg"])) % 360


def _set_image(api: Any, picture: Picture) -> None:
    height, width = picture.pixels.shape
    api.SetImageBytes(picture.pixels.tobytes(), width, height, 1, width)
    api.SetSourceResolution(round(picture.dpi))


class PytesseractRecognizer:
    """Tesseract as a program: slower, but needs nothing but Debian's package."""

    def __init__(self, languages: str) -> None:
        """Remember the languages; the program loads them for each page."""
        self.name = program_version() or "pytesseract"
        self._languages = languages

    def recognize(self, picture: Picture) -> Recognition:
        """Read a picture in one pass.

        Raises:
            PdfOpsError: CORRUPT/page_unreadable if the program refuses the picture.
        """
        import pytesseract
        from PIL import Image

        try:
            tsv = pytesseract.image_to_data(
                Image.fromarray(picture.pixels),
                lang=self._languages,
                config=f"--psm {PSM_AUTO} --oem {OEM_LSTM_ONLY} --dpi {round(picture.dpi)}",
            )
        except pytesseract.TesseractError as error:
            if error.status < 0:
                raise MemoryError(f"tesseract ended by signal {-error.status}") from error
            raise PdfOpsError(
                ErrorKind.CORRUPT_PAGE_UNREADABLE, f"tesseract: exit code {error.status}"
            ) from error
        return recognition_of(tsv)

    def orientation(self, picture: Picture) -> int | None:
        """The clockwise turn that would put the picture upright."""
        import pytesseract
        from PIL import Image

        if not has_orientation_data():
            return None
        try:
            found = pytesseract.image_to_osd(
                Image.fromarray(picture.pixels),
                config=f"--psm {PSM_ORIENTATION} --dpi {round(picture.dpi)}",
                output_type=pytesseract.Output.DICT,
            )
        except pytesseract.TesseractError:
            return None  # It says so when there are too few characters to tell.
        if float(found["orientation_conf"]) < _MIN_ORIENTATION_CONFIDENCE:
            return None
        return int(found["rotate"])
