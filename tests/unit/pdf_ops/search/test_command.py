"""``pdf-ops search`` and ``pdf-ops index`` as processes, on a dataset in a folder."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

import pytest
from tests.support.search import write_run


def pdf_ops(*arguments, **variables):
    environment = {name: value for name, value in os.environ.items() if "PDF_OPS" not in name}
    return subprocess.run(
        [sys.executable, "-m", "pdf_ops.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        env=environment | variables,
    )


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("command")
    write_run(
        folder / "pages",
        "one",
        {
            "a.pdf": ["The purchase\norder of May, with \x1b[31mcolours", "An order to purchase"],
            "b.pdf": ["purchase " * 20],
        },
    )
    built = pdf_ops("index", "--dataset", folder / "pages", "--index", folder / "index")
    assert built.returncode == 0, built.stderr
    assert "3 pages in the index: 3 added from 1 files" in built.stdout
    assert "100 %" in built.stderr
    return folder / "index"


def test_hits_show_file_page_and_text(index):
    found = pdf_ops("search", "purchase order", "--index", index)

    assert found.returncode == 0
    assert "s3://documents/a.pdf  page 1 of 2" in found.stdout
    assert "    The purchase order of May" in found.stdout
    assert "2 pages; 3 in the index" in found.stdout


def test_nothing_that_a_terminal_would_obey_comes_out_of_a_document(index):
    found = pdf_ops("search", "colours", "--index", index)

    assert "\x1b" not in found.stdout


def test_words_are_highlighted_on_a_terminal_only(index):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "pdf_ops.cli", "search", "May", "--index", str(index)]
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    with subprocess.Popen(command, stdout=theirs, env=environment) as process:
        os.close(theirs)
        written = b""
        while True:
            try:
                more = os.read(ours, 4096)
            except OSError:
                break
            if not more:
                break
            written += more
    os.close(ours)

    assert process.returncode == 0
    assert b"\x1b[1;33mMay\x1b[0m" in written


def test_words_phrases_and_exclusions_reach_it_as_the_shell_gives_them(index):
    def pages(*words):
        found = pdf_ops("search", "--json", "--index", index, "--", *words)
        return {(hit["filename"], hit["page"]) for hit in json.loads(found.stdout)["hits"]}

    assert pages("purchase", "order") == {("a.pdf", 1), ("a.pdf", 2)}
    assert pages("purchase order") == {("a.pdf", 1), ("a.pdf", 2)}
    assert pages('"purchase order"') == {("a.pdf", 1)}
    assert pages("purchase", "-order") == {("b.pdf", 1)}


def test_json_is_what_the_api_gives(index):
    found = json.loads(pdf_ops("search", "May", "--index", index, "--json", "--limit", "1").stdout)

    assert set(found) == {"hits", "total", "next_cursor", "index"}
    assert found["total"] == 1
    assert {"text": "May", "is_hit": True} in found["hits"][0]["snippet"]


def test_exit_codes_tell_nothing_found_from_cannot_search(index, tmp_path):
    assert pdf_ops("search", "nowhere", "--index", index).returncode == 1
    for arguments in (
        ("search", '"not closed', "--index", index),
        ("search", "x", "--index", tmp_path / "none"),
        ("search", "x", "--index", index, "--limit", "0"),
        ("search", "x"),
        ("index", "--dataset", tmp_path),
        ("index", "--dataset", tmp_path / "none", "--index", tmp_path / "index"),
    ):
        refused = pdf_ops(*arguments)
        assert refused.returncode == 2, arguments
        assert refused.stderr.startswith(f"pdf-ops {arguments[0]}: ")
        assert "Traceback" not in refused.stderr
