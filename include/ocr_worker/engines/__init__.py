"""What a page is read with: one module per outside tool, behind the shapes declared here.

The shapes are the seam for tests, too: a faulty engine is just another engine. Nothing outside
these modules knows a tool's API or command line.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import numpy as np
    import numpy.typing as npt

    Gray: TypeAlias = npt.NDArray[np.uint8]


MAX_SIDE_PT = 1e7


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """A page's size as it is shown, and the clockwise rotation that the file declares."""

    width_pt: float
    height_pt: float
    rotation: int

    def clamped(self) -> Geometry:
        """The same within bounds that a row can hold: a file may declare anything."""
        width, height = (
            min(max(side, 0.0), MAX_SIDE_PT) if side == side else 0.0  # noqa: PLR0124 -- not a number
            for side in (self.width_pt, self.height_pt)
        )
        return Geometry(width_pt=width, height_pt=height, rotation=self.rotation % 360)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextLayer:
    """The text that a file holds for a page, with what the parser knows about it.

    ``None`` means not known: a figure that costs time is only taken where it can matter.

    Attributes:
        text: The text, lines separated by a newline.
        is_drawn: Whether the page draws anything at all.
        unmapped_ratio: Share of the sampled glyphs that have no mapping to Unicode.
        invisible_ratio: Share of the sampled glyphs that are drawn invisibly.
        hidden_ratio: Share of the sampled glyphs that are drawn, but so that nobody sees them.
        image_coverage: Share of the page's area that images cover.
        path_count: How many vector shapes the page draws.
    """

    text: str
    is_drawn: bool = True
    unmapped_ratio: float | None = None
    invisible_ratio: float | None = None
    hidden_ratio: float | None = None
    image_coverage: float | None = None
    path_count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A page as 8-bit gray pixels, contiguous, rows first."""

    pixels: Gray
    dpi: float


class Page(Protocol):
    """One open page."""

    def geometry(self) -> Geometry:
        """Size and declared rotation."""

    def text_layer(self) -> TextLayer | None:
        """The file's own text, or None where the format cannot hold any."""

    def picture(self, dpi: int, max_pixels: int) -> Picture:
        """The page in gray, upright as declared, at the resolution or below ``max_pixels``."""


class Document(Protocol):
    """One open document."""

    page_count: int
    parser: str

    def page(self, index: int) -> AbstractContextManager[Page]:
        """Open the page with this number, from 0."""

    def close(self) -> None:
        """Give back what the document holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognition:
    """What OCR read.

    Attributes:
        text: Words in lines, blocks separated by an empty line.
        confidences: One per word, 0 to 100.
        rotation: The clockwise turn that the engine itself applied to read the page.
    """

    text: str
    confidences: tuple[float, ...]
    rotation: int = 0

    @property
    def mean(self) -> float:
        """Mean word confidence, 0 where nothing was read."""
        return sum(self.confidences) / len(self.confidences) if self.confidences else 0.0

    @property
    def low(self) -> float:
        """The 10th percentile of the word confidences."""
        return sorted(self.confidences)[len(self.confidences) // 10] if self.confidences else 0.0


def told_by(engine: str, error: BaseException) -> str:
    """What went wrong inside an engine, for an error's detail: which error and where.

    Never the error's own words: they quote the document.
    """
    trace, where = error.__traceback__, ""
    while trace is not None:
        where = trace.tb_frame.f_code.co_name
        trace = trace.tb_next
    return f"{engine}: {type(error).__name__} in {where}" if where else f"{engine}: {type(error).__name__}"


def load_factory(name: str) -> Any:
    """What ``package.module:name`` names: how a test puts an engine of its own in place of a real one."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


class Recognizer(Protocol):
    """An OCR engine, loaded once per process."""

    name: str

    def recognize(self, picture: Picture) -> Recognition:
        """Read a picture."""

    def orientation(self, picture: Picture) -> int | None:
        """The clockwise turn that would put the picture upright, or None if it cannot tell."""
