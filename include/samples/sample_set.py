"""The set that the demonstration loads: one of everything that a bucket holds, good and bad."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from samples import documents as made

if TYPE_CHECKING:
    from collections.abc import Callable

LONG_PAGES = 60


@dataclass(frozen=True, slots=True)
class Sample:
    """One object of the set."""

    key: str
    what: str
    body: bytes


_TYPED = made.PARAGRAPH
_LETTER = ("Dear customer,", "", *made.PARAGRAPH, "", "Yours sincerely,", "The Accounts Department")


def _built(build: Callable[[Path], Path]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="samples-") as folder:
        return build(Path(folder) / "sample").read_bytes()


def sample_set() -> list[Sample]:
    """Every sample, in the order of the keys."""
    text = _built(lambda path: made.text_pdf(path, [_LETTER, _TYPED]))
    samples = [
        Sample("contracts/letter.pdf", "text layer, two pages", text),
        Sample("contracts/letter-copy.pdf", "the same bytes again", text),
        Sample(
            f"contracts/long-{LONG_PAGES}-pages.pdf",
            "a long document",
            _built(lambda path: made.text_pdf(path, LONG_PAGES)),
        ),
        Sample("contracts/mixed.pdf", "typed cover, scanned pages", _built(made.mixed_pdf)),
        Sample(
            "contracts/über uns + mehr (final).pdf",
            "spaces, umlauts and a plus sign in the key",
            _built(lambda path: made.text_pdf(path, 1)),
        ),
        Sample(
            "scans/invoice.pdf",
            "a scan",
            _built(lambda path: made.scan_pdf(path, [made.scan(_LETTER)])),
        ),
        Sample(
            "scans/upside-down.pdf",
            "a scan turned by 180°, and one by 90°",
            _built(lambda path: made.scan_pdf(path, [made.scan(turned=180), made.scan(turned=90)])),
        ),
        Sample(
            "scans/earlier-ocr.pdf",
            "a scan with a bad OCR layer",
            _built(lambda path: made.ocr_layer_pdf(path, ["Tne qu1ck br0wn f0x"] * 6)),
        ),
        Sample("scans/broken-font.pdf", "text without Unicode", _built(made.damaged_font_pdf)),
        Sample("scans/photo.png", "an image", made.png_bytes(made.scan(_TYPED))),
        Sample(
            "scans/fax.tiff",
            "three pages, one of them blank",
            _built(lambda path: made.tiff(path, [made.scan(), made.blank_scan(), made.scan()])),
        ),
        Sample(
            "broken/encrypted.pdf",
            "needs a password",
            _built(lambda path: made.encrypted_pdf(path, "secret")),
        ),
        Sample("broken/truncated.pdf", "ends in the middle", _built(made.truncated_pdf)),
        Sample("broken/empty.pdf", "zero bytes", b""),
        Sample("broken/not-a-pdf.pdf", "an HTML page", b"<!DOCTYPE html><html><body>404</body></html>"),
        Sample("broken/huge-page.pdf", "a page of 70 m by 70 m", _built(made.huge_page_pdf)),
    ]
    return sorted(samples, key=lambda sample: sample.key)
