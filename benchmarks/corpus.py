"""The documents that everything is measured on, built from the corpus into .build/bench."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pikepdf

if TYPE_CHECKING:
    from pathlib import Path

TURNS = (90, 180, 270)


class NoCorpusError(Exception):
    """There is nothing to measure on."""


@dataclass(frozen=True, slots=True)
class Scans:
    """One document of scanned pages, and what each page says."""

    path: Path
    truth: list[str]


@dataclass(frozen=True, slots=True)
class Corpus:
    """Where the files lie, and where to build."""

    folder: Path
    work: Path

    def __post_init__(self) -> None:
        """Say what is missing."""
        if not (self.folder / "ocr_gt").is_dir():
            raise NoCorpusError(
                f"no corpus at {self.folder}: give a folder with ocr_gt/ (one-page scans NAME.pdf, each with "
                "NAME.gt.txt), real/ and manifest.csv as `make bench CORPUS=FOLDER`"
            )

    def scans(self) -> Scans:
        """All scans with ground truth as one document: a tool that starts per file pays once."""
        sources = sorted((self.folder / "ocr_gt").glob("*.pdf"))
        truth = [source.with_suffix(".gt.txt").read_text(encoding="utf-8") for source in sources]
        return Scans(self._merged("scans.pdf", sources), truth)

    def turned(self, degrees: int) -> Scans:
        """The same, each page shown turned clockwise."""
        upright = self.scans()
        path = self.work / f"scans-{degrees}.pdf"
        if not path.exists():
            with pikepdf.open(upright.path) as pdf:
                for page in pdf.pages:
                    page.rotate(degrees, relative=True)
                pdf.save(path)
        return Scans(path, upright.truth)

    def long_scan(self, pages: int) -> Path:
        """A scan of so many pages: those with ground truth over and over."""
        sources = sorted((self.folder / "ocr_gt").glob("*.pdf"))
        repeated = [sources[number % len(sources)] for number in range(pages)]
        return self._merged(f"scan-{pages}.pdf", repeated)

    def text_files(self) -> list[Path]:
        """The real documents whose text layer is good."""
        with (self.folder / "manifest.csv").open(newline="", encoding="utf-8") as rows:
            return [
                self.folder / "real" / row["file"]
                for row in csv.DictReader(rows)
                if row["set"] == "real" and row["kind"] == "text"
            ]

    def large_text(self, repeats: int) -> Path:
        """All text documents, this many times, as one large one."""
        return self._merged(f"text-{repeats}.pdf", self.text_files() * repeats)

    def _merged(self, name: str, sources: list[Path]) -> Path:
        path = self.work / name
        if not path.exists():
            with pikepdf.new() as merged:
                for source in sources:
                    with pikepdf.open(source) as pdf:
                        merged.add_pages_from(pdf)
                merged.save(path)
        return path


def prepare_pictures(scans: Scans, folder: Path) -> Path:
    """The pages as our own engine hands them to Tesseract, so that the floor reads the same pixels."""
    import numpy as np

    from ocr_worker.engines import tesseract
    from ocr_worker.engines.pdfium import PdfiumDocument
    from ocr_worker.pictures import flattened
    from pdf_ops.contract.fingerprint import ReadingConfig

    folder.mkdir(parents=True, exist_ok=True)
    config = ReadingConfig()
    document = PdfiumDocument(scans.path, None)
    for index in range(document.page_count):
        with document.page(index) as page:
            picture = page.picture(config.dpi, config.max_page_pixels)
        np.save(folder / f"{index:05d}.npy", flattened(picture.pixels))
    document.close()
    setup = {"data": str(tesseract.data_folder()), "languages": config.languages_label}
    (folder / "setup.json").write_text(json.dumps(setup))
    return folder
