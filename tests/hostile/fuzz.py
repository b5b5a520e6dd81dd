"""``make fuzz``: mutated messages, settings, answers and documents, for a while; every finding is kept.

A finding is an error of a kind that the target never raises, or a document that is not accounted for.
The same seed tries the same things in the same order.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.hostile import attacks
from tests.hostile.ends import ENDS
from tests.hostile.mutation import mutated
from tests.support.worker import REPOSITORY, extract_with

from ocr_worker.options import CONFIG_FILE_VARIABLE, SettingsError, load, settings_of
from ocr_worker.protocol import BadAnswerError, PageAnswer, decode_answer, encode_opened, encode_pages
from ocr_worker.reading import Reading
from ocr_worker.settings import ServiceSettings, WorkerSettings
from pdf_ops.contract.errors import ErrorKind
from pdf_ops.contract.messages import DocumentMessage, MessageError, parse_message
from pdf_ops.contract.pages import Method, MethodReason
from samples import documents as made

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAX_SEED_BYTES = 300_000
BATCH_DOCUMENTS = 24
BURST_S = 1.0
LIMITS = {"page_timeout_s": 5.0, "document_timeout_s": 20.0, "memory_limit_mb": 768}
# Attacks that only spend a limit, and with it the time for anything else.
SLOW = {attacks.pattern_loop, attacks.form_laughs, attacks.flate_bomb, attacks.flate_in_flate_bomb}
SLOW |= {attacks.lzw_bomb, attacks.cmap_bomb, attacks.text_bomb, attacks.million_drawings, attacks.form_loop}

MESSAGES = (
    b'{"s3_key": "folder/file.pdf"}',
    b'{"s3Key": "a.pdf", "fileId": "7"}',
    DocumentMessage(bucket="bucket-a", key="k.pdf", etag="e", size=1, run_id="r", shard="1")
    .to_json()
    .encode(),
    (
        b'{"Records": [{"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": "bucket-a"}, "object": '
        b'{"key": "a+b%20c.pdf", "size": 10, "eTag": "x", "versionId": "v"}}}]}'
    ),
    (
        b'{"source": "aws.s3", "detail-type": "Object Created", "detail": {"bucket": {"name": "bucket-a"}, '
        b'"object": {"key": "a.pdf", "size": 10, "etag": "x"}}}'
    ),
    b'{"Type": "Notification", "Message": "{\\"s3_key\\": \\"a.pdf\\"}"}',
)
JSON_WORDS = (
    b"null",
    b"1e999",
    b"NaN",
    b"[" * 2000,
    b'{"a":' * 2000,
    b'"',
    b"\\u0000",
    b"\\ud800",
    b"\xff",
    b"{}",
    b"-0",
)
PDF_WORDS = (
    b"<<",
    b">>",
    b"endobj",
    b"stream\n",
    b"endstream",
    b"/Length 99999999",
    b"/Kids [1 0 R]",
    b"R",
    b"obj",
)
YAML_WORDS = (
    b"ocr: ",
    b"- ",
    b": ",
    b"&a [*a]",
    b"!!python/object:os.system ",
    b"\t",
    b"null",
    b"1e999",
    b"|",
    b"\x00",
)


@dataclass
class Session:
    """What was tried, and what was found."""

    folder: Path
    chance: random.Random
    tries: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    def found(self, target: str, body: bytes, problem: str) -> None:
        """Keep what went wrong as a file, and say so."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{target}-{len(self.findings)}"
        path.write_bytes(body)
        self.findings.append(problem)
        print(f"FOUND in {target}: {problem}\n      {path}", flush=True)

    def try_bytes(
        self,
        target: str,
        act: Callable[[bytes], None],
        seeds: Sequence[bytes],
        words: Sequence[bytes],
        until: float,
    ) -> None:
        """Mutate seeds and act on each until the time is up."""
        while time.monotonic() < until:
            body = mutated(self.chance.choice(seeds), seeds, words, self.chance)
            self.tries[target] += 1
            try:
                act(body)
            except Exception as error:  # noqa: BLE001 -- whatever comes out is the finding
                self.found(target, body, f"{type(error).__name__}: {error}")


def parse_a_message(body: bytes) -> None:
    """Only a MessageError may come out, and what is understood survives being written and read."""
    try:
        understood = parse_message(body)
    except MessageError:
        return
    for message in understood:
        assert parse_message(message.to_json()) == (message,)


def load_settings(body: bytes) -> None:
    """Only a SettingsError may come out, whatever the file and the environment hold."""
    cls = ServiceSettings if len(body) % 2 else WorkerSettings
    names = [setting.option.variable for setting in settings_of(cls)]
    lines = body.replace(b"\0", b"").split(b"\n")
    given = {name: os.fsdecode(line) for name, line in zip(names, lines, strict=False) if len(line) % 3 == 0}
    kept = dict(os.environ)
    with tempfile.NamedTemporaryFile(suffix=".yaml") as file:
        file.write(body)
        file.flush()
        os.environ.update(given | {CONFIG_FILE_VARIABLE: file.name})
        try:
            load(cls, {})
        except SettingsError:
            pass
        finally:
            os.environ.clear()
            os.environ.update(kept)


def take_an_answer(body: bytes) -> None:
    """Only a BadAnswerError may come out of what a page process says."""
    try:
        decode_answer(body)
    except BadAnswerError:
        return


def answer_seeds() -> list[bytes]:
    reading = Reading(
        text="a text", method=Method.OCR, reason=MethodReason.NO_TEXT_LAYER, ocr_confidence=50.0
    )
    return [
        encode_opened(3, 1.5),
        encode_pages([PageAnswer(0, reading, None, 1.0, 1.0)]),
        b'{"ready":["seccomp"]}',
    ]


def settings_seeds() -> list[bytes]:
    plain = "".join(f"{setting.name}: {setting.default}\n" for setting in settings_of(WorkerSettings))
    return [plain.encode(), b"ocr: off\ndpi: 300\n", b"languages: eng+deu\nprocesses: 2\nmax-pages: 7\n"]


def document_seeds(corpus: Path, folder: Path) -> list[bytes]:
    """Small documents of every kind: generated ones, attacks, and the corpus where it is."""
    seeds = [
        made.text_pdf(folder / "a.pdf", 2).read_bytes(),
        made.scan_pdf(folder / "b.pdf", [made.scan(size=(400, 300))]).read_bytes(),
        made.tiff(folder / "c.tiff", [made.scan(size=(400, 300))] * 2).read_bytes(),
        made.png_bytes(made.scan(size=(400, 300))),
        made.encrypted_pdf(folder / "d.pdf", "").read_bytes(),
    ]
    seeds += [body for attack in ENDS if attack not in SLOW and len(body := attack()) < MAX_SEED_BYTES]
    if corpus.is_dir():
        files = sorted(path for path in corpus.rglob("*") if path.is_file())
        seeds += [path.read_bytes() for path in files if path.stat().st_size < MAX_SEED_BYTES]
    return seeds


def read_a_batch(session: Session, seeds: Sequence[bytes], folder: Path) -> None:
    """Documents through real page processes: each has an outcome with a class, and a row for every page."""
    batch = folder / f"batch-{session.tries['extract']}"
    batch.mkdir()
    paths = []
    for number in range(BATCH_DOCUMENTS):
        paths.append(batch / f"{number:02}")
        paths[-1].write_bytes(mutated(session.chance.choice(seeds), seeds, PDF_WORDS, session.chance))
    session.tries["extract"] += len(paths)
    began = time.monotonic()
    result = extract_with(paths, batch / "out", **LIMITS)
    if result.stopped_by is not None:
        session.found("extract", b"\n".join(map(os.fsencode, paths)), f"stopped by {result.stopped_by}")
    by_uri = {path.resolve().as_uri(): path for path in paths}
    for row in result.documents:
        path = by_uri.pop(row["source_uri"])
        error = row["error_class"] and ErrorKind.of(row["error_class"], row["error_code"]).label
        session.ends[error or row["status"]] += 1
        pages = [page["page"] for page in result.pages if page["source_uri"] == row["source_uri"]]
        if pages != list(range(1, (row["page_count"] or 0) + 1)):
            session.found("extract", path.read_bytes(), f"{len(pages)} rows for {row['page_count']} pages")
        if error in ("ENGINE/bad_answer", "CRASH/document", "CRASH/page"):
            how = row["error_message"].partition(". ")[0]
            # An engine that aborts is its own business; ours are exits of the interpreter and odd answers.
            if "exit code" in how or error == "ENGINE/bad_answer":
                session.found("extract", path.read_bytes(), how)
    for path in by_uri.values():
        session.found("extract", path.read_bytes(), "no outcome")
    if time.monotonic() - began > BATCH_DOCUMENTS * LIMITS["document_timeout_s"]:
        session.found("extract", paths[0].read_bytes(), "a batch took longer than its limits")


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz until the time is up; exit code 1 if something was found."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--corpus", type=Path, default=REPOSITORY.parent / "shared" / "corpus" / "bad")
    parser.add_argument("--keep", type=Path, default=REPOSITORY / ".build" / "fuzz", help="where findings go")
    options = parser.parse_args(arguments)
    os.environ["PYTHONPATH"] = str(REPOSITORY)
    session = Session(options.keep, random.Random(options.seed))
    deadline = time.monotonic() + options.seconds
    answers, settings = answer_seeds(), settings_seeds()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        documents = document_seeds(options.corpus, Path(name))
        while (now := time.monotonic()) < deadline:
            burst = min(BURST_S, (deadline - now) / 4)
            session.try_bytes("messages", parse_a_message, MESSAGES, JSON_WORDS, time.monotonic() + burst)
            session.try_bytes("settings", load_settings, settings, YAML_WORDS, time.monotonic() + burst)
            session.try_bytes("answers", take_an_answer, answers, JSON_WORDS, time.monotonic() + burst)
            if time.monotonic() < deadline:
                read_a_batch(session, documents, Path(name))
    print(json.dumps({"seed": options.seed, "tries": session.tries, "documents": session.ends}, indent=2))
    print(f"{len(session.findings)} findings" + (f" in {options.keep}" if session.findings else ""))
    return 1 if session.findings else 0


if __name__ == "__main__":
    sys.exit(main())
