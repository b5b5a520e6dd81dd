"""What a storm rages over: mostly small text documents, some scans, every kind of bad file, and victims."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from samples import documents as made

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

POISON = "victims/poison.pdf"
OVERWRITTEN = "victims/overwritten.pdf"
DELETED = "victims/deleted.pdf"
LONG = "victims/long.pdf"
TOO_LONG = "victims/too long.pdf"
MAX_PAGES = 50

OK = ("done",)
# What is told of a page is how it failed first: that may be a page process that was killed.
PARTIAL = ("partial BOMB/pixels", "partial OOM/page")


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A document of the storm.

    Attributes:
        key: Its key.
        body: Its bytes.
        pages: How many pages it has.
        expected: What may become of it: a status, with the error if there is one.
    """

    key: str
    body: bytes
    pages: int
    expected: tuple[str, ...]


def make_documents(rng: Random, count: int, folder: Path) -> list[Document]:
    """So many documents, the same for the same seed; the victims are among them."""
    texts = [(made.text_pdf(folder / f"text-{pages}.pdf", pages).read_bytes(), pages) for pages in (1, 2, 3)]
    scan = made.scan_pdf(folder / "scan.pdf", [made.scan()]).read_bytes()
    mixed = made.mixed_pdf(folder / "mixed.pdf").read_bytes()
    huge = made.huge_page_pdf(folder / "huge.pdf").read_bytes()
    locked = made.encrypted_pdf(folder / "locked.pdf", "secret").read_bytes()
    bad = [
        (b"", "failed CORRUPT/empty_file"),
        (b"<html>not here</html>", "failed CORRUPT/not_a_pdf"),
        (made.truncated_pdf(folder / "cut.pdf").read_bytes(), "failed CORRUPT/truncated"),
        (locked, "failed ENCRYPTED/password_required"),
    ]
    found = [
        Document(key=POISON, body=texts[0][0], pages=1, expected=("failed CRASH/poison",)),
        Document(key=OVERWRITTEN, body=texts[1][0], pages=2, expected=OK),
        # Before the deletion, or never.
        Document(key=DELETED, body=texts[0][0], pages=1, expected=("done", "failed SOURCE/not_found")),
        Document(
            key=TOO_LONG,
            body=made.text_pdf(folder / "too-long.pdf", MAX_PAGES + 1).read_bytes(),
            pages=0,
            expected=("skipped POLICY/too_many_pages",),
        ),
        Document(key=LONG, body=_padded(made.text_pdf(folder / "long.pdf", 40)), pages=40, expected=OK),
    ]
    for number in range(len(found), count):
        key = f"folder-{number % 7}/document {number:05d} +ü.pdf"
        kind = rng.random()
        tail = b"\n%% %d\n" % number  # Other bytes, so another ETag.
        if kind < 0.08:
            body, error = rng.choice(bad)
            found.append(Document(key=key, body=body, pages=0, expected=(error,)))
        elif kind < 0.10:
            found.append(Document(key=key, body=huge, pages=2, expected=PARTIAL))
        elif kind < 0.13:
            body, pages = (scan, 1) if rng.random() < 0.8 else (mixed, 3)
            found.append(Document(key=key, body=body + tail, pages=pages, expected=OK))
        else:
            body, pages = rng.choice(texts)
            found.append(Document(key=key, body=body + tail, pages=pages, expected=OK))
    return found


def _padded(path: Path) -> bytes:
    """Larger than the disk that a storm gives to one of its workers."""
    return path.read_bytes() + b"\n" * 700_000
