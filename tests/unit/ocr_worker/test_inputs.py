from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from ocr_worker import inputs
from ocr_worker.inputs import InputError, find_files, identify, is_small
from ocr_worker.rows import Source
from pdf_ops.contract.errors import ErrorKind, PdfOpsError
from pdf_ops.contract.media import MediaType

PDF = b"%PDF-1.7\n"
PLENTY = 10**9


@pytest.fixture
def make(tmp_path):
    def make_files(*names):
        for name in names:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(PDF)
        return tmp_path

    return make_files


def names(found, folder):
    return [path.relative_to(folder).as_posix() for path in found]


# Which files ---------------------------------------------------------------------------------


def test_a_folder_means_every_file_below_it_but_the_hidden_ones(make):
    folder = make("b.pdf", "a.txt", "sub/deep/c.tif", "sub/a", ".hidden.pdf", ".git/d.pdf", "sub/.e/f.pdf")
    assert names(find_files([folder]), folder) == ["a.txt", "b.pdf", "sub/a", "sub/deep/c.tif"]


def test_a_hidden_file_or_folder_that_is_named_is_meant(make):
    folder = make(".hidden.pdf", ".git/d.pdf")
    found = find_files([folder / ".hidden.pdf", folder / ".git"])
    assert names(found, folder) == [".hidden.pdf", ".git/d.pdf"]


def test_files_come_in_the_order_given_and_within_a_folder_by_name(make):
    folder = make("z/2.pdf", "z/10.pdf", "z/1.pdf", "y/1.pdf", "x.pdf")
    found = find_files([folder / "z", folder / "x.pdf", folder / "y"])
    assert names(found, folder) == ["z/1.pdf", "z/10.pdf", "z/2.pdf", "x.pdf", "y/1.pdf"]
    assert found == find_files([folder / "z", folder / "x.pdf", folder / "y"])


def test_the_order_does_not_depend_on_that_of_the_file_system(make, monkeypatch):
    folder = make("c.pdf", "a.pdf", "b/2.pdf", "a/1.pdf")
    expected = find_files([folder])
    walk = os.walk

    def backwards(top, **options):
        for parent, folders, files in walk(top, **options):
            folders.reverse()
            yield parent, folders, files[::-1]

    monkeypatch.setattr(os, "walk", backwards)
    assert find_files([folder]) == expected


def test_a_file_that_is_meant_twice_is_found_once(make, monkeypatch):
    folder = make("a.pdf", "sub/b.pdf")
    monkeypatch.chdir(folder)
    given = [Path("a.pdf"), folder, folder / "sub" / ".." / "a.pdf", Path("sub"), Path("./sub/b.pdf")]
    found = find_files(given)
    assert names(found, folder) == ["a.pdf", "sub/b.pdf"]
    assert all(path.is_absolute() for path in found)


def test_the_output_folder_inside_the_input_folder_is_left_out(make, monkeypatch):
    folder = make("a.pdf", "out/pages.parquet", "texts/a.txt", "sub/out/b.pdf")
    (folder / "link").symlink_to(folder / "out")
    monkeypatch.chdir(folder)
    found = find_files([Path()], without=[folder / "link", Path("texts")])
    assert names(found, folder) == ["a.pdf", "sub/out/b.pdf"]


def test_an_output_folder_that_is_not_there_yet_leaves_out_nothing(make):
    folder = make("a.pdf")
    assert names(find_files([folder], without=[folder / "out"]), folder) == ["a.pdf"]


def test_every_path_that_is_not_there_is_named(make):
    folder = make("a.pdf")
    (folder / "dangling").symlink_to(folder / "nowhere")
    missing = [folder / "one.pdf", folder / "two", folder / "dangling"]
    with pytest.raises(InputError) as caught:
        find_files([missing[0], folder / "a.pdf", *missing[1:]])
    assert str(caught.value) == f"no such file or folder: {', '.join(map(str, missing))}"


def test_a_folder_without_files_is_an_error_that_names_it(make):
    folder = make(".hidden.pdf")
    (folder / "empty" / "deeper").mkdir(parents=True)
    with pytest.raises(InputError, match=f"no file in {folder}, {folder}/empty$"):
        find_files([folder, folder / "empty"])


def test_an_empty_folder_beside_a_file_does_no_harm(make):
    folder = make("a.pdf")
    (folder / "empty").mkdir()
    assert names(find_files([folder / "empty", folder / "a.pdf"]), folder) == ["a.pdf"]


def test_a_folder_that_cannot_be_listed_is_an_error_and_not_a_gap(make, monkeypatch):
    folder = make("a.pdf", "locked/b.pdf")
    scandir = os.scandir

    def denied(path):
        if Path(path).name == "locked":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", denied)
    with pytest.raises(InputError, match=f"^{folder}/locked: Permission denied$"):
        find_files([folder])


def test_a_link_that_leads_back_is_not_followed(make):
    folder = make("a.pdf")
    (folder / "loop").symlink_to(folder)
    assert names(find_files([folder]), folder) == ["a.pdf"]


def test_a_dangling_link_in_a_folder_is_found_so_that_it_gets_its_row(make):
    folder = make("a.pdf")
    (folder / "dangling.pdf").symlink_to(folder / "nowhere")
    assert names(find_files([folder]), folder) == ["a.pdf", "dangling.pdf"]


def test_names_that_are_no_valid_unicode_are_found_and_identified(tmp_path):
    path = tmp_path / os.fsdecode(b"caf\xe9.pdf")
    path.write_bytes(PDF)
    assert find_files([tmp_path]) == [path]
    source, media_type, error = identify(path, PLENTY)
    assert source.uri.endswith("/caf%E9.pdf")
    assert (media_type, error) == (MediaType.PDF, None)


# Who they are --------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [len(PDF), 5_000, inputs._HASHED_AT_ONCE, 2 * inputs._HASHED_AT_ONCE + 7])
def test_a_file_is_known_by_uri_size_hash_and_kind(size, tmp_path):
    path = tmp_path / "a b.pdf"
    content = PDF + b"\x07" * (size - len(PDF))
    path.write_bytes(content)
    source, media_type, error = identify(path, PLENTY)
    assert error is None
    assert media_type is MediaType.PDF
    assert source == Source(
        uri=f"file://{tmp_path}/a%20b.pdf",
        size=size,
        doc_id=hashlib.sha256(content).hexdigest(),
        media_type="application/pdf",
    )


@pytest.mark.parametrize(("limit", "is_allowed"), [(2**20, True), (2**20 - 1, False)])
def test_a_file_larger_than_allowed_is_skipped_without_being_read(limit, is_allowed, tmp_path, monkeypatch):
    path = tmp_path / "a.pdf"
    path.write_bytes(PDF.ljust(2**20))
    if not is_allowed:
        monkeypatch.setattr(Path, "open", _never)
    source, media_type, error = identify(path, limit)
    assert source.size == 2**20
    assert (error is None) is is_allowed
    assert (media_type is not None) is is_allowed
    if not is_allowed:
        assert error.kind is ErrorKind.POLICY_TOO_LARGE
        assert source.doc_id is None


def _never(*_, **__):
    pytest.fail("it was opened")


def test_the_size_and_the_limit_are_in_the_error(tmp_path):
    path = tmp_path / "a.pdf"
    with path.open("wb") as file:
        file.truncate(3 * 2**20)
    _, _, error = identify(path, 2 * 2**20)
    assert error.detail == "3 MiB, 2 are allowed"


def test_what_is_no_regular_file_is_never_read(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe.pdf")
    (tmp_path / "folder.pdf").mkdir()
    (tmp_path / "dangling.pdf").symlink_to(tmp_path / "nowhere")
    (tmp_path / "null.pdf").symlink_to("/dev/zero")
    monkeypatch.setattr(Path, "open", _never)
    for name in ("pipe.pdf", "folder.pdf", "dangling.pdf", "null.pdf", "missing.pdf"):
        source, media_type, error = identify(tmp_path / name, PLENTY)
        assert source == Source(uri=f"file://{tmp_path}/{name}")
        assert media_type is None
        assert error.kind is ErrorKind.SOURCE_UNREADABLE
        assert error.detail == "is no regular file"


def test_a_file_that_cannot_be_looked_at_is_an_unreadable_source(tmp_path, monkeypatch):
    path = tmp_path / "a.pdf"
    path.write_bytes(PDF)

    def denied(*_, **__):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", denied)
        _, _, error = identify(path, PLENTY)
    assert (error.kind, error.detail) == (ErrorKind.SOURCE_UNREADABLE, "Permission denied")
    monkeypatch.setattr(Path, "open", denied)
    source, _, error = identify(path, PLENTY)
    assert (error.kind, error.detail) == (ErrorKind.SOURCE_UNREADABLE, "Permission denied")
    assert source.size == len(PDF)


def test_a_disk_that_fails_while_a_file_is_hashed_is_an_unreadable_source(tmp_path, monkeypatch):
    path = tmp_path / "a.pdf"
    path.write_bytes(PDF)

    def broken(_):
        raise PdfOpsError(ErrorKind.SOURCE_UNREADABLE, "Input/output error")

    monkeypatch.setattr(inputs, "_sha256", broken)
    source, media_type, error = identify(path, PLENTY)
    assert (source.doc_id, media_type) == (None, None)
    assert error.kind is ErrorKind.SOURCE_UNREADABLE


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("a.pdf", b"", ErrorKind.CORRUPT_EMPTY_FILE),
        ("a.pdf", b"<html>", ErrorKind.CORRUPT_NOT_A_PDF),
        ("a.docx", b"PK\x03\x04", ErrorKind.POLICY_UNSUPPORTED_TYPE),
    ],
)
def test_a_file_of_no_use_has_its_size_and_its_error(name, content, kind, tmp_path):
    path = tmp_path / name
    path.write_bytes(content)
    source, media_type, error = identify(path, PLENTY)
    assert source == Source(uri=path.as_uri(), size=len(content))
    assert media_type is None
    assert error.kind is kind


def test_small_files_are_identified_at_once_and_those_that_are_gone_too(tmp_path):
    path = tmp_path / "a.pdf"
    path.write_bytes(PDF)
    assert is_small(path)
    with path.open("wb") as file:
        file.truncate(2**20)
    assert not is_small(path)
    assert is_small(tmp_path / "missing.pdf")
