"""pdfium: what a sample of a page's glyphs tells about its text layer, and whether a person would see them.

Every call crosses into C, so all glyphs would cost more than the text itself; 32 tell a bad layer
from a good one. A picture is drawn only where something suggests that text is out of sight.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, NamedTuple

SAMPLED_GLYPHS = 32
# Every fourth of them is looked at for being seen, which takes more calls.
_LOOKED_AT = 4
# Text render modes that paint nothing: an earlier OCR's, and a clipping path's.
INVISIBLE, _CLIPPING = 3, 7
# Modes that paint with the fill colour alone.
_FILLING = (0, 4)
_PAPER_LEVEL = 232
_MIN_ALPHA = 24
_MIN_HEIGHT_PT = 0.8
# Whatever covers text is painted after it: the last things that a page paints are looked at.
_LAST_OBJECTS = 8
_CONTRAST_LEVELS = 12
# 36 dpi: enough to tell that something is there.
_LOOK_SCALE = 0.5
_MAX_LOOK_PT = 3_000.0
_COVERING_MARGIN_PT = 1.0
# A smaller share of the page hides too little of its text to matter.
_MIN_COVER_SHARE = 0.01
# So many must be hidden or doubtful that it would matter: a picture costs as much as ten pages of text.
_MIN_DOUBTFUL_SHARE = 0.4


@dataclass(frozen=True, slots=True)
class GlyphSample:
    """Shares of the sampled glyphs, 0 to 1.

    Attributes:
        unmapped: Have no mapping to Unicode.
        invisible: Are drawn invisibly, as an earlier OCR draws them.
        hidden: Are drawn, but where or so that nobody sees them.
    """

    unmapped: float = 0.0
    invisible: float = 0.0
    hidden: float = 0.0


class _Box(NamedTuple):  # Made for many glyphs of every page, and a dataclass takes three times as long.
    left: float
    right: float
    bottom: float
    top: float

    def is_within(self, other: _Box, margin: float = 0.0) -> bool:
        return (
            self.left >= other.left - margin
            and self.right <= other.right + margin
            and self.bottom >= other.bottom - margin
            and self.top <= other.top + margin
        )

    def is_outside(self, other: _Box) -> bool:
        return (
            self.right <= other.left
            or self.left >= other.right
            or self.top <= other.bottom
            or self.bottom >= other.top
        )


class _Sight:
    """Whether a page's glyphs can be seen, as far as that shows without a picture of it."""

    def __init__(self, page: Any, textpage: Any) -> None:
        left, bottom, right, top = page.get_cropbox()
        self.shown = _Box(left, right, bottom, top)
        self.looked = self.hidden = 0
        self.doubtful: list[_Box] = []
        self.drawn: list[tuple[_Box, int]] = []
        self._textpage = textpage
        self._colour = tuple(ctypes.c_uint() for _ in range(4))
        self._edges = tuple(ctypes.c_double() for _ in range(4))

    def look_at(self, index: int, item: Any, mode: int) -> None:
        """Take one glyph."""
        import pypdfium2.raw as pdfium_c

        self.looked += 1
        if mode == INVISIBLE:
            return
        pdfium_c.FPDFText_GetCharBox(self._textpage, index, *self._edges)
        left, right, bottom, top = self._edges
        box = _Box(left.value, right.value, bottom.value, top.value)
        if box.right <= box.left or box.top <= box.bottom:
            return  # A space of its own: nothing to see either way.
        pdfium_c.FPDFText_GetFillColor(self._textpage, index, *self._colour)
        red, green, blue, alpha = self._colour
        is_away = mode == _CLIPPING or alpha.value < _MIN_ALPHA or box.is_outside(self.shown)
        if is_away or _is_small(self._textpage, index, box):
            self.hidden += 1
        elif mode in _FILLING and min(red.value, green.value, blue.value) >= _PAPER_LEVEL:
            self.doubtful.append(box)
        else:
            self.drawn.append((box, ctypes.addressof(item.contents)))


def sample_glyphs(page: Any, textpage: Any, count: int) -> GlyphSample:
    """Look at an even sample of a page's glyphs."""
    import pypdfium2.raw as pdfium_c

    unmapped = invisible = seen = 0
    textpage = textpage.raw  # Unwrapping it for each call would cost as much as the call.
    sight = _Sight(page, textpage)
    for index in range(0, count, max(1, count // SAMPLED_GLYPHS)):
        item = pdfium_c.FPDFText_GetTextObject(textpage, index)
        if not item:
            continue  # A space or line break that pdfium put in itself.
        seen += 1
        unmapped += pdfium_c.FPDFText_HasUnicodeMapError(textpage, index) == 1
        mode = pdfium_c.FPDFTextObj_GetTextRenderMode(item)
        invisible += mode == INVISIBLE
        if seen % _LOOKED_AT == 0:
            sight.look_at(index, item, mode)
    if not seen:
        return GlyphSample()
    doubtful = sight.doubtful + _covered(page, sight.shown, sight.drawn)
    hidden = sight.hidden
    if doubtful and hidden + len(doubtful) >= _MIN_DOUBTFUL_SHARE * sight.looked:
        hidden += _out_of_sight(page, sight.shown, doubtful)
    return GlyphSample(unmapped / seen, invisible / seen, hidden / max(1, sight.looked))


def _covered(page: Any, shown: _Box, glyphs: list[tuple[_Box, int]]) -> list[_Box]:
    """The glyphs that lie below one of the last things that the page paints."""
    import pypdfium2.raw as pdfium_c

    min_area = _MIN_COVER_SHARE * (shown.right - shown.left) * (shown.top - shown.bottom)
    objects = pdfium_c.FPDFPage_CountObjects(page.raw)
    x0, y0, x1, y1 = (ctypes.c_float() for _ in range(4))
    covers: list[tuple[_Box, int]] = []
    places: dict[int, int] = {}
    for index in range(max(0, objects - _LAST_OBJECTS), objects):
        item = pdfium_c.FPDFPage_GetObject(page.raw, index)
        places[ctypes.addressof(item.contents)] = index
        if _can_cover(item) and pdfium_c.FPDFPageObj_GetBounds(item, x0, y0, x1, y1):
            box = _Box(x0.value, x1.value, y0.value, y1.value)
            if (box.right - box.left) * (box.top - box.bottom) >= min_area:
                covers.append((box, index))
    if not covers:
        return []
    return [
        box
        for box, address in glyphs
        if any(
            places.get(address, -1) < index and box.is_within(cover, _COVERING_MARGIN_PT)
            for cover, index in covers
        )
    ]


def _can_cover(item: Any) -> bool:
    """Whether it is an image or a filled shape; a form is neither, as it mostly holds the text itself."""
    import pypdfium2.raw as pdfium_c

    kind = pdfium_c.FPDFPageObj_GetType(item)
    if kind != pdfium_c.FPDF_PAGEOBJ_PATH:
        return bool(kind == pdfium_c.FPDF_PAGEOBJ_IMAGE)
    fill, stroke = ctypes.c_int(), ctypes.c_int()
    return bool(pdfium_c.FPDFPath_GetDrawMode(item, fill, stroke) and fill.value)


def _is_small(textpage: Any, index: int, box: _Box) -> bool:
    """Whether a glyph is too small to be seen, and not just a full stop."""
    import pypdfium2.raw as pdfium_c

    if max(box.right - box.left, box.top - box.bottom) >= _MIN_HEIGHT_PT:
        return False
    around = pdfium_c.FS_RECTF()
    pdfium_c.FPDFText_GetLooseCharBox(textpage, index, around)
    return bool(around.top - around.bottom < _MIN_HEIGHT_PT)


def _out_of_sight(page: Any, shown: _Box, boxes: list[_Box]) -> int:
    """How many of the glyphs do not stand out from what is around them in a picture of the page."""
    wide, high = shown.right - shown.left, shown.top - shown.bottom
    if not boxes or page.get_rotation() or not (0 < wide < _MAX_LOOK_PT and 0 < high < _MAX_LOOK_PT):
        return 0
    bitmap = page.render(scale=_LOOK_SCALE, grayscale=True, may_draw_forms=False, draw_annots=False)
    pixels = memoryview(bitmap.buffer).cast("B")
    hidden = 0
    for box in boxes:
        above, below = (int((shown.top - edge) * _LOOK_SCALE) for edge in (box.top, box.bottom))
        begin, end = (max(0, int((edge - shown.left) * _LOOK_SCALE)) for edge in (box.left, box.right))
        # With a pixel around it, where its edge may be. Not by numpy, whose import costs more than the look.
        rows = range(max(0, above - 1), min(bitmap.height, below + 2))
        starts = [row * bitmap.stride + max(0, begin - 1) for row in rows]
        wide_pixels = min(bitmap.width, end + 2) - max(0, begin - 1)
        seen = b"".join(pixels[start : start + wide_pixels] for start in starts)
        hidden += not seen or max(seen) - min(seen) < _CONTRAST_LEVELS
    return hidden
