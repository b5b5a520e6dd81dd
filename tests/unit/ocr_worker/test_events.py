from __future__ import annotations

import io
import json

import pytest

from ocr_worker.events import Events


def said(**fields: object) -> str:
    stream = io.StringIO()
    Events("w1", stream).emit("document.done", **fields)
    return stream.getvalue()


@pytest.mark.parametrize(
    "key", ["a\nb", "a\u2028b", "a\x85b", "\u202eb", "\x1b[31m", "\ud800", "\ufeffü漢😀"]
)
def test_an_event_is_one_line_whatever_a_key_holds(key: str) -> None:
    line = said(s3_key=key)

    assert len(line.splitlines()) == 1
    assert json.loads(line)["s3_key"] == key
    assert line.removesuffix("\n").isprintable()
    line.encode()


def test_a_url_in_an_event_gives_no_access() -> None:
    line = said(
        error="GET https://me:secret@host/a?X-Amz-Signature=secret failed", settings="sqs://u:secret@h"
    )

    assert "secret" not in line
    assert "https://***@host/a?***" in line
