"""Engines that go wrong, put in place of the real ones through the seam that those use.

Each reads any page but the marked ones (narrower than A4) and does its worst there.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

from ocr_worker.engines import Recognition
from ocr_worker.engines.pdfium import PdfiumDocument
from pdf_ops.contract.errors import ErrorKind, PdfOpsError
from samples.documents import MARKED_PIXELS

if TYPE_CHECKING:
    from pathlib import Path

    from ocr_worker.engines import Picture


class _Recognizer:
    """Reads every page as a few words, but for the marked ones."""

    name = "faulty 1.0"

    def __init__(self, languages: str) -> None:
        self.languages = languages

    def recognize(self, picture: Picture) -> Recognition:
        if abs(picture.pixels.shape[1] - MARKED_PIXELS[0]) < 5:
            return self.fail()
        return Recognition(text="read well enough", confidences=(95.0, 95.0, 95.0))

    def fail(self) -> Recognition:
        raise AssertionError("not marked with a fault")

    def orientation(self, picture: Picture) -> int | None:
        del picture
        return None


class Hanging(_Recognizer):
    def fail(self) -> Recognition:
        time.sleep(600)
        raise AssertionError


class HangingWithChild(_Recognizer):
    """Starts a program that would outlive it, and hangs."""

    def fail(self) -> Recognition:
        subprocess.Popen(["sleep", "599.25"])
        time.sleep(600)
        raise AssertionError


class Spinning(_Recognizer):
    def fail(self) -> Recognition:
        while True:
            pass


class Aborting(_Recognizer):
    def fail(self) -> Recognition:
        os.abort()


class Exiting(_Recognizer):
    def fail(self) -> Recognition:
        os._exit(3)


class EatingMemory(_Recognizer):
    def fail(self) -> Recognition:
        eaten = []
        while True:
            eaten.append(bytearray(50_000_000))


class KilledByTheSystem(_Recognizer):
    """As the kernel's OOM killer does it."""

    def fail(self) -> Recognition:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


class KilledByRealTimeSignal(_Recognizer):
    def fail(self) -> Recognition:
        os.kill(os.getpid(), signal.SIGRTMIN + 6)
        raise AssertionError


class Blaming(_Recognizer):
    """Says of one page that the engine is not installed."""

    def fail(self) -> Recognition:
        raise PdfOpsError(ErrorKind.ENGINE_MISSING_LANGUAGE, "said by a hostile page")


class Raising(_Recognizer):
    def fail(self) -> Recognition:
        raise RuntimeError("an engine that was not expected to raise this")


class Lying(_Recognizer):
    """Gives figures that no page can have."""

    def fail(self) -> Recognition:
        return Recognition(text="x", confidences=(1e300,))


class Misconfigured(_Recognizer):
    def recognize(self, picture: Picture) -> Recognition:
        del picture
        raise PdfOpsError(ErrorKind.ENGINE_MISCONFIGURED, "every page would fail like this")


class Reporting(_Recognizer):
    """Reads each page as what the process sees: its id and its environment."""

    def recognize(self, picture: Picture) -> Recognition:
        del picture
        seen = " ".join(f"{name}={value}" for name, value in sorted(os.environ.items()))
        return Recognition(text=f"pid={os.getpid()} {seen}", confidences=(95.0,))


class SlowlyReading(_Recognizer):
    def recognize(self, picture: Picture) -> Recognition:
        time.sleep(0.4)
        del picture
        return Recognition(text="read in time", confidences=(95.0,))


class CrashingParser(PdfiumDocument):
    """Dies when it opens a document."""

    def __init__(self, path: Path, password: str | None) -> None:
        super().__init__(path, password)
        os.abort()


class HangingParser(PdfiumDocument):
    def __init__(self, path: Path, password: str | None) -> None:
        super().__init__(path, password)
        time.sleep(600)


class LyingParser(PdfiumDocument):
    """Says that there is a page more than there is."""

    def __init__(self, path: Path, password: str | None) -> None:
        super().__init__(path, password)
        self.page_count += 1
