"""Which files a command line means, and who they are: path, size, type, hash.

Files are told by content, so a folder gives every file in it. Not a parser.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from ocr_worker.rows import Source
from ocr_worker.sniff import sniff
from pdf_ops.contract.errors import ErrorKind, PdfOpsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pdf_ops.contract.media import MediaType

_HASHED_AT_ONCE = 1 << 20


class InputError(Exception):
    """Paths on the command line that cannot be used; the message names each of them."""


def find_files(given: Sequence[Path], *, without: Iterable[Path] = ()) -> list[Path]:
    """Every file that the paths mean, each once, in a stable order.

    A folder means all files below it, but for hidden ones. ``without`` are folders to leave out: the
    output folder may well lie inside the input folder.

    Raises:
        InputError: Naming every path that does not exist, and saying so when there is no file at all.
    """
    missing = [str(path) for path in given if not path.exists()]
    if missing:
        raise InputError(f"no such file or folder: {', '.join(missing)}")
    left_out = {path.resolve() for path in without}
    found: dict[Path, None] = {}
    for path in given:
        candidates = _below(path, left_out) if path.is_dir() else [path]
        found.update((Path(os.path.abspath(candidate)), None) for candidate in candidates)  # noqa: PTH100 -- Path.absolute keeps ".."
    if not found:
        raise InputError(f"no file in {', '.join(map(str, given))}")
    return list(found)


def _below(folder: Path, left_out: set[Path]) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder, onerror=_refuse_folder):
        here = Path(parent)
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".") and not (left_out and (here / name).resolve() in left_out)
        )
        yield from (here / name for name in sorted(names) if not name.startswith("."))


def _refuse_folder(error: OSError) -> None:
    """A folder that cannot be listed may hold documents: better none than some of them."""
    raise InputError(f"{error.filename}: {error.strerror}")


def is_small(path: Path) -> bool:
    """Whether identifying it takes less time than handing it to a thread."""
    try:
        return path.stat().st_size < _HASHED_AT_ONCE
    except OSError:
        return True


def identify(path: Path, max_bytes: int) -> tuple[Source, MediaType | None, PdfOpsError | None]:
    """Who a local file is; with an error, as far as it could be told, where it cannot be read."""
    uri = path.as_uri()
    try:
        # A pipe or a device would block for ever.
        if not path.is_file():
            raise PdfOpsError(ErrorKind.SOURCE_UNREADABLE, "is no regular file")
        size = path.stat().st_size
    except OSError as error:
        return Source(uri=uri), None, PdfOpsError(ErrorKind.SOURCE_UNREADABLE, error.strerror or str(error))
    except PdfOpsError as error:
        return Source(uri=uri), None, error
    if size > max_bytes:
        detail = f"{size / 2**20:.0f} MiB, {max_bytes / 2**20:.0f} are allowed"
        return Source(uri=uri, size=size), None, PdfOpsError(ErrorKind.POLICY_TOO_LARGE, detail)
    try:
        media_type = sniff(path)
        return Source(uri=uri, size=size, doc_id=_sha256(path), media_type=media_type.value), media_type, None
    except PdfOpsError as error:
        return Source(uri=uri, size=size), None, error


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb", buffering=0) as file:
            while chunk := file.read(_HASHED_AT_ONCE):
                digest.update(chunk)
    except OSError as error:
        raise PdfOpsError(ErrorKind.SOURCE_UNREADABLE, error.strerror or str(error)) from error
    return digest.hexdigest()
