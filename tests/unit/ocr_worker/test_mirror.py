from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocr_worker.mirror import local_path
from pdf_ops.contract.layout import S3Uri

FOLDER = Path("/mirror")
PARTS = st.sampled_from(["", ".", "..", "...", "a", "%2E", "%", "\0", "\n", "ü", " ", "%25"])
KEYS = st.lists(PARTS, min_size=1, max_size=4).map("/".join).filter(bool)


def path_of(key: str) -> Path:
    return local_path(FOLDER, S3Uri("bucket-a", key))


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("a/b.pdf", "a/b.pdf"),
        ("../../etc/passwd", "%2E%2E/%2E%2E/etc/passwd"),
        ("/etc/passwd", "%2F/etc/passwd"),
        ("a//b", "a/%2F/b"),
        ("a/", "a/%2F"),
        ("line\nbreak", "line%0Abreak"),
        ("100%", "100%25"),
    ],
)
def test_a_key_becomes_a_path_below_the_folder(key: str, name: str) -> None:
    assert path_of(key) == FOLDER / "bucket-a" / name


@given(KEYS, KEYS)
def test_no_key_leads_out_of_the_folder_and_no_two_share_a_file(one: str, other: str) -> None:
    path = path_of(one)

    assert ".." not in path.parts
    assert path.is_relative_to(FOLDER / "bucket-a")
    assert "\0" not in str(path)
    assert (path == path_of(other)) == (one == other)
