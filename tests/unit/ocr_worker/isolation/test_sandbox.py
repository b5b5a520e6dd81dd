from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ocr_worker.isolation import sandbox
from ocr_worker.isolation.sandbox import Isolation, Sandbox, SandboxMode, Wall, enter, folders_of
from pdf_ops.contract.errors import ErrorKind, PdfOpsError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def kernel_without_landlock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts nothing up around the test itself."""

    def put_up(wall: Wall, _: Sandbox) -> None:
        if wall is Wall.FILES:
            raise OSError(38, "Function not implemented")

    monkeypatch.setattr(sandbox, "_put_up", put_up)


@pytest.mark.usefixtures("kernel_without_landlock")
def test_a_wall_that_the_kernel_lacks_is_named_and_the_others_stand() -> None:
    found = enter(Sandbox(mode=SandboxMode.AUTO))

    assert found.missing == (Wall.FILES,)
    assert "landlock" in found.problem
    assert "Linux 5.13" in found.problem


@pytest.mark.usefixtures("kernel_without_landlock")
def test_a_wall_that_is_required_and_missing_stops_the_process() -> None:
    with pytest.raises(PdfOpsError, match="OCR_SANDBOX is require") as raised:
        enter(Sandbox(mode=SandboxMode.REQUIRE))

    assert raised.value.kind is ErrorKind.ENGINE_MISCONFIGURED


def test_with_every_wall_there_is_no_problem() -> None:
    assert Isolation(tuple(Wall)).problem == ""


def test_only_the_folders_of_the_documents_are_opened(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "c").mkdir()
    files = [tmp_path / "a" / "1.pdf", tmp_path / "a" / "b" / "2.pdf", tmp_path / "c" / "3.pdf"]

    assert folders_of(files) == (tmp_path / "a", tmp_path / "c")
    assert folders_of([]) == ()


def test_very_many_folders_become_the_one_that_holds_them(tmp_path: Path) -> None:
    files = [tmp_path / str(number) / "1.pdf" for number in range(sandbox.MAX_FOLDERS + 1)]

    assert folders_of(files) == (tmp_path,)
