from __future__ import annotations

import errno
import os

import pytest

from ocr_worker import fetch
from pdf_ops.contract.errors import ErrorKind, PdfOpsError


def test_a_disk_that_takes_a_part_at_a_time_gets_all_of_it(tmp_path, monkeypatch):
    """Else a document is cut off on an almost full disk, and closed as truncated for good."""
    pwrite = os.pwrite
    monkeypatch.setattr(fetch.os, "pwrite", lambda file, data, place: pwrite(file, data[:7], place))
    path = tmp_path / "file"

    with path.open("wb") as file:
        fetch._write(file.fileno(), bytes(range(100)), 3, path)

    assert path.read_bytes()[3:] == bytes(range(100))


def test_a_full_disk_is_an_error_of_the_disk_and_not_of_the_document(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(fetch.os, "pwrite", refuse)
    path = tmp_path / "file"

    with path.open("wb") as file, pytest.raises(PdfOpsError) as raised:
        fetch._write(file.fileno(), b"x", 0, path)

    assert raised.value.kind is ErrorKind.TARGET_DISK
