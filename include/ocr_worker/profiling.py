"""Where the time goes: a statistical profile of the main process and of every page process, in one report.

Page processes leave their part in a folder when they end; the main process puts them together.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pdf_ops.contract.errors import ErrorKind, PdfOpsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyinstrument.session import Session

SAMPLE_INTERVAL_S = 0.001
# How long a page process may take to write its part down before it is killed.
PART_GRACE_S = 10.0
_PART_SUFFIX = ".pyisession"


@contextmanager
def profiled_part(folder: Path | None) -> Iterator[None]:
    """Profile a page process into a folder; without one, do nothing."""
    if folder is None:
        yield
        return
    from pyinstrument import Profiler

    profiler = Profiler(interval=SAMPLE_INTERVAL_S)
    profiler.start()
    try:
        yield
    finally:
        profiler.stop().save(folder / f"{os.getpid()}{_PART_SUFFIX}")


@contextmanager
def profiled_run(report: Path | None) -> Iterator[Path | None]:
    """Profile a run; yields the folder for the page processes' parts. HTML if the report is named so.

    Raises:
        PdfOpsError: TARGET/disk if the report cannot be written.
    """
    if report is None:
        yield None
        return
    import tempfile

    from pyinstrument import Profiler
    from pyinstrument.session import Session

    with tempfile.TemporaryDirectory(prefix="ocr-worker-profile-") as folder:
        profiler = Profiler(interval=SAMPLE_INTERVAL_S, async_mode="disabled")
        profiler.start()
        try:
            yield Path(folder)
        finally:
            main = profiler.stop()
            parts = [Session.load(path) for path in sorted(Path(folder).glob(f"*{_PART_SUFFIX}"))]
        try:
            report.parent.mkdir(parents=True, exist_ok=True)
            report.write_text(_rendered(main, parts, as_html=report.suffix == ".html"), encoding="utf-8")
        except OSError as error:
            raise PdfOpsError(ErrorKind.TARGET_DISK, f"{report}: {error.strerror}") from error


def _rendered(main: Session, parts: list[Session], *, as_html: bool) -> str:
    from pyinstrument.renderers import ConsoleRenderer, HTMLRenderer
    from pyinstrument.session import Session

    pages = None
    for part in parts:
        pages = part if pages is None else Session.combine(pages, part)
    if as_html:
        whole = main if pages is None else Session.combine(main, pages)
        return str(HTMLRenderer().render(whole))
    renderer = ConsoleRenderer(unicode=True, color=False)
    shown = ["Main process", renderer.render(main)]
    if pages is not None:
        shown += [f"Page processes ({len(parts)})", renderer.render(pages)]
    return "\n\n".join(shown) + "\n"
