"""``make bench``: ours against what people use instead, and against the floors, in one interleaved run."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks import measure
from benchmarks.corpus import TURNS, Corpus, NoCorpusError, prepare_pictures
from benchmarks.score import Score, score

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WORK = Path(".build/bench")
PEER_PYTHON = Path(".venv-bench/bin/python")
OURS = Path(sys.executable).with_name("ocr-worker")
LARGE_REPEATS = 8
LONG_PAGES, SHORT_PAGES = 500, 50
# Tesseract's own threads fight over the cores, so each contender runs with one.
ONE_THREAD = {"OMP_THREAD_LIMIT": "1"}


@dataclass(slots=True)
class Contender:
    """Something that reads the documents of a section."""

    name: str
    run: Callable[[], measure.Usage]
    read: Callable[[], list[str]] | None = None
    usages: list[measure.Usage] = field(default_factory=list)
    score: Score | None = None

    def figure(self, name: str) -> float:
        """The median of a figure over the rounds."""
        return median(getattr(usage, name) for usage in self.usages)


@dataclass(slots=True)
class Section:
    """Contenders that read the same documents; ratios are to the first of them."""

    title: str
    pages: int
    contenders: list[Contender]
    rounds: int

    def measure(self, truth: list[str] | None) -> None:
        """Run all of them in turn, several times, and score what they read."""
        for number in range(self.rounds):
            for contender in self.contenders:
                print(f"  {self.title}: {contender.name} ({number + 1}/{self.rounds})", file=sys.stderr)
                contender.usages.append(contender.run())
                if truth is not None and contender.read is not None:
                    contender.score = score(contender.read(), truth)

    def table(self) -> str:
        """For people."""
        ours = self.contenders[0].figure("cpu_s")
        lines = [
            f"### {self.title} ({self.pages} pages)",
            "",
            "| | CPU s | ÷ ours | wall s | peak MB | CER % | word F1 % |",
            "|---|---|---|---|---|---|---|",
        ]
        for contender in self.contenders:
            cpu, found = contender.figure("cpu_s"), contender.score
            lines.append(
                f"| {contender.name} | {cpu:.2f} | {cpu / ours:.2f} | {contender.figure('wall_s'):.2f} "
                f"| {contender.figure('peak_rss_bytes') / 1e6:.0f} "
                f"| {f'{found.cer:.1f}' if found else ''} | {f'{found.word_f1:.1f}' if found else ''} |"
            )
        return "\n".join(lines)

    def as_json(self) -> dict[str, object]:
        """For programs."""
        return {
            "title": self.title,
            "pages": self.pages,
            "contenders": [
                {
                    "name": contender.name,
                    "score": asdict(contender.score) if contender.score else None,
                    "rounds": [asdict(usage) for usage in contender.usages],
                }
                for contender in self.contenders
            ],
        }


def ours(out: str, inputs: Sequence[Path], *flags: str, processes: int = 2) -> Contender:
    """Our own worker, as a user runs it."""
    folder = WORK / out
    command = [str(OURS), "extract", *map(str, inputs), "--out", str(folder)]
    command += ["--processes", str(processes), *flags]

    def read() -> list[str]:
        import pyarrow.parquet as pq

        return [str(text) for text in pq.read_table(folder / "pages.parquet")["text"].to_pylist()]

    return Contender(f"pdf_ops {' '.join(flags)}".strip(), lambda: measure.run(command), read)


def peer(name: str, label: str, out: str, inputs: Sequence[Path]) -> Contender:
    """A peer from peers.py."""
    result = WORK / out
    command = [str(PEER_PYTHON), str(Path(__file__).with_name("peers.py")), name, str(result)]
    command += map(str, inputs)

    def run() -> measure.Usage:
        usage = measure.run(command, env=ONE_THREAD)
        own_clock = result.with_suffix(".cpu")
        if own_clock.exists():
            return measure.Usage(usage.wall_s, float(own_clock.read_text()), usage.peak_rss_bytes)
        return usage

    return Contender(label, run, lambda: [str(page) for page in json.loads(result.read_text())])


def ocrmypdf(flag: str, path: Path) -> Contender:
    """OCRmyPDF, whose sidecar holds the text, pages separated by form feeds."""
    sidecar = WORK / "ocrmypdf.txt"
    command = [str(PEER_PYTHON.with_name("ocrmypdf")), flag, "--sidecar", str(sidecar), "--jobs", "2"]
    command += ["--quiet", str(path), str(WORK / "ocrmypdf.pdf")]

    def read() -> list[str]:
        return sidecar.read_text(encoding="utf-8").removesuffix("\f").split("\f")

    return Contender(f"ocrmypdf {flag}", lambda: measure.run(command, env=ONE_THREAD), read)


def ocr_section(corpus: Corpus, rounds: int) -> Section:
    """Scanned pages with ground truth."""
    scans = corpus.scans()
    pictures = prepare_pictures(scans, WORK / "pictures")
    section = Section(
        "Scanned pages",
        len(scans.truth),
        [
            ours("ocr", [scans.path]),
            peer("naive", "naive worker, tuned", "naive.json", [scans.path]),
            ocrmypdf("--force-ocr", scans.path),
            ocrmypdf("--skip-text", scans.path),
            peer("tesseract", "floor: Tesseract's recognition alone", "floor.json", [pictures]),
        ],
        rounds,
    )
    section.measure(scans.truth)
    return section


def turned_section(corpus: Corpus) -> Section:
    """The same pages, turned."""
    upright = corpus.scans()
    contenders = []
    for degrees in (0, *TURNS):
        scans = corpus.turned(degrees) if degrees else upright
        contender = ours(f"turned-{degrees}", [scans.path])
        contender.name = f"pdf_ops, turned by {degrees}°"
        contenders.append(contender)
    section = Section("Turned pages", len(upright.truth), contenders, 1)
    section.measure(upright.truth)
    return section


def text_section(corpus: Corpus, rounds: int) -> Section:
    """Text layers of real documents."""
    files = corpus.text_files()
    section = Section(
        f"Text layers, {len(files)} real documents",
        _count_pages(files),
        [
            ours("text", files, "--ocr", "off"),
            peer("pypdf", "pypdf", "pypdf.json", files),
            peer("pdfium", "floor: pdfium's text alone", "pdfium.json", files),
        ],
        rounds,
    )
    section.measure(None)
    return section


def large_section(corpus: Corpus, rounds: int) -> Section:
    """One large document with a text layer."""
    path = corpus.large_text(LARGE_REPEATS)
    section = Section(
        "One large text document",
        _count_pages([path]),
        [
            ours("large", [path], "--ocr", "off"),
            peer("pdfium", "floor: pdfium's text alone", "pdfium.json", [path]),
        ],
        rounds,
    )
    section.measure(None)
    return section


def scaling_section(corpus: Corpus, rounds: int) -> Section:
    """One process against two; wall time is what counts here."""
    path = corpus.long_scan(SHORT_PAGES)
    contenders = [ours("two", [path], processes=2), ours("one", [path], processes=1)]
    contenders[0].name, contenders[1].name = "pdf_ops, two page processes", "pdf_ops, one page process"
    section = Section("Two cores against one", SHORT_PAGES, contenders, rounds)
    section.measure(None)
    return section


def memory_section(corpus: Corpus) -> Section:
    """Memory as a scan grows."""
    contenders = []
    for pages in (LONG_PAGES, SHORT_PAGES):
        contender = ours(f"memory-{pages}", [corpus.long_scan(pages)])
        contender.name = f"pdf_ops, {pages} pages"
        contenders.append(contender)
    section = Section("Memory of a long scan", LONG_PAGES, contenders, 1)
    section.measure(None)
    return section


def _count_pages(files: Sequence[Path]) -> int:
    import pypdfium2

    total = 0
    for file in files:
        with pypdfium2.PdfDocument(file) as document:
            total += len(document)
    return total


def main() -> int:
    """Measure, print the tables, and write everything as JSON."""
    sections: dict[str, Callable[[Corpus, int], Section]] = {
        "ocr": ocr_section,
        "turned": lambda corpus, _: turned_section(corpus),
        "text": text_section,
        "large": large_section,
        "scaling": scaling_section,
        "memory": lambda corpus, _: memory_section(corpus),
    }
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--corpus", type=Path, default=Path("../shared/corpus"))
    parser.add_argument("--only", nargs="+", choices=sections, default=list(sections), metavar="SECTION")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is run (default: 3)")
    parser.add_argument("--json", type=Path, default=WORK / "results.json", help="where the figures go")
    options = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    try:
        corpus = Corpus(options.corpus, WORK)
    except NoCorpusError as error:
        print(error, file=sys.stderr)
        return 2
    done = []
    for name in options.only:
        done.append(sections[name](corpus, options.rounds))
        print(done[-1].table(), end="\n\n", flush=True)
    machine = {"cpus": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()}
    options.json.write_text(
        json.dumps({"machine": machine, "sections": [section.as_json() for section in done]}, indent=1)
    )
    shutil.rmtree(WORK / "pictures", ignore_errors=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
