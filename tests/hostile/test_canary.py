"""Secrets and document text stay where they belong: every place that speaks is searched for a canary."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.hostile.pdf_bytes import SENTENCE, one_page, stream
from tests.support.world import World

from samples import documents as made

if TYPE_CHECKING:
    from pathlib import Path

    from local_aws import LocalAws

RUN = "manual__2026-01-01T00:00:00+00:00"
CANARY = "xylophonecanary"
SECRET = "do-not-tell-4b1d"

pytestmark = pytest.mark.timeout(300)


def documents_with_a_canary(folder: Path) -> dict[str, bytes]:
    """The word where a reader finds it, and where only an error message would quote it."""
    word = CANARY.encode()
    good = one_page(stream(b"BT /F1 12 Tf 72 720 Td (%s %s) Tj ET" % (word, SENTENCE)))
    locked = made.encrypted_pdf(folder / "locked.pdf", "another").read_bytes()
    return {
        "good.pdf": good,
        "page.pdf": b"<html>%s</html>" % word,
        "cut.pdf": good[:300],
        "filter.pdf": one_page(stream(b"x", b"/Filter /%sDecode" % word)),
        "number.pdf": good.replace(b"/Count 1", b"/Count %s" % word).replace(b"xref", b"%s" % word),
        "tree.pdf": good.replace(b"/Kids [3 0 R]", b"/Kids [(%s) /%s]" % (word, word)),
        "table.pdf": b"%%PDF-1.7\n1 0 obj << /%s (%s) >>\nxref\n%s\ntrailer\n%s" % ((word,) * 4),
        "picture.png": made.png_bytes(made.scan([CANARY] * 3))[:2000].replace(b"IDAT", word[:4]),
        "picture.tiff": b"II*\0" + word * 20,
        "locked.pdf": locked,
        "scan.pdf": made.scan_pdf(
            folder / "scan.pdf", [made.scan([f"{CANARY} is written here"] * 5)]
        ).read_bytes(),
    }


def test_no_document_text_and_no_secret_is_in_what_a_worker_says(local_aws: LocalAws, tmp_path: Path) -> None:
    documents = documents_with_a_canary(tmp_path)
    with World(local_aws) as world:
        world.start_run(RUN, len(documents) + 1)
        for key, body in documents.items():
            world.order(RUN, key, body)
        world.send({"v": 1, "s3_key": "missing.pdf", "bucket": world.input, "run_id": RUN})
        world.send("{" + SECRET)

        log = world.work(
            AWS_SECRET_ACCESS_KEY=SECRET,
            AWS_SESSION_TOKEN=SECRET,
            OCR_PASSWORD=SECRET,
            MAX_RETRIES=1,
        )

        assert set(world.outcomes(RUN).values()) == {"done", "failed"}
        letters = [
            {name: value for name, value in letter.items() if name != "body"}
            for letter in world.dead_letters()
        ]
        said = {
            "log": json.dumps(log),
            "dead letters": json.dumps(letters),
            "manifest": json.dumps(world.manifest(), default=str),
            "state": json.dumps(world.dynamodb.scan(TableName=world.state_table)["Items"]),
            "runs": json.dumps(world.dynamodb.scan(TableName=world.runs_table)["Items"]),
        }
        pages = world.pages()

    assert sum(CANARY in row["text"].lower() for row in pages) >= 2, "the canary was never read"
    assert len(letters) >= 6
    for place, words in said.items():
        assert CANARY not in words.lower(), place
        assert SECRET not in words, place


def test_keys_of_every_kind_are_read_and_logged_one_event_a_line(local_aws: LocalAws, tmp_path: Path) -> None:
    """Dots, line breaks, direction marks, quotes, markup and the longest key that S3 takes."""
    body = made.text_pdf(tmp_path / "a.pdf").read_bytes()
    keys = [
        "../../etc/passwd.pdf",
        "a/../../b.pdf",
        'line\nbreak\r\n{"event": "worker.stopped"}.pdf',
        "nul-like\x01\x1b[31m.pdf",
        "\u202efdp.exe\u2066.pdf",
        "sep\u2028arated\u0085.pdf",
        "<script>alert(1)</script>'\"&.pdf",
        "=cmd|' /C calc'!A0.pdf",
        "Zürich ñ 漢字 😀.pdf",
        "e\u0301-decomposed.pdf",
        "%2e%2e%2f + ?versionId=1#x.pdf",
        "k" * 1020 + ".pdf",
        "ü" * 510 + ".pdf",
    ]
    with World(local_aws) as world:
        world.start_run(RUN, len(keys))
        for key in keys:
            world.order(RUN, key, body)

        worker = world.start_worker()
        output, _ = worker.communicate(timeout=120)

        assert worker.returncode == 0, output
        assert world.outcomes(RUN) == dict.fromkeys(keys, "done")
        assert {row["source_uri"] for row in world.pages()} == {f"s3://{world.input}/{key}" for key in keys}
    # Whatever counts as the end of a line, and whoever reads it on a terminal.
    log = [json.loads(line) for line in output.splitlines()]
    assert sorted(line["s3_key"] for line in log if line["event"] == "document.done") == sorted(keys)
    assert sum(line["event"] == "worker.stopped" for line in log) == 1
    assert "\x1b" not in output
    assert "\u202e" not in output


def test_a_key_that_no_object_has_is_buried_with_its_class(local_aws: LocalAws) -> None:
    keys = {
        "nul\0.pdf": "not_found",
        "": "invalid_message",
        "k" * 1025: "invalid_message",
        "\ud800.pdf": "invalid_message",
    }
    with World(local_aws) as world:
        for key in keys:
            world.send(json.dumps({"s3_key": key}))

        world.work()

        found = {
            json.loads(letter["body"])["s3_key"]: letter["error_code"] for letter in world.dead_letters()
        }
    assert found == keys
