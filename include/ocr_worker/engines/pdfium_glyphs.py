"""pdfium: what a sample of a page's glyphs tells about its text layer, and whether a person would see them.

Every call crosses into C, so all glyphs would cost more than the text itself; 32 tell a bad layer
from a good one. A picture is drawn only where something suggests that text is out of sight, and only
of the glyphs in question.
"""

from __future__ import annotations

import ctypes
import math
import time
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

SAMPLED_GLYPHS = 32
# Every fourth of them is looked at for being seen, which takes more calls.
_LOOKED_AT = 4
# Text render modes that paint nothing: an earlier OCR's, and a clipping path's.
INVISIBLE, _CLIPPING = 3, 7
# Kinds of objects on a page.
PATH, IMAGE, FORM = 2, 3, 5
# Modes that paint with the fill colour alone.
_FILLING = (0, 4)
# Room for the text of most pages, which takes long to make anew for each.
_KEPT_CHARACTERS = 1 << 15
_PAPER_LEVEL = 232
_MIN_ALPHA = 24
_MIN_HEIGHT_PT = 0.8
# Whatever covers text is painted after it: the last things that a page paints are looked at.
_LAST_OBJECTS = 8
_CONTRAST_LEVELS = 12
# 36 dpi: enough to tell that something is there.
_LOOK_SCALE = 0.5
_MAX_LOOK_PT = 3_000.0
_MAX_LOOK_S = 5.0
_COVERING_MARGIN_PT = 1.0
# A smaller share of the page hides too little of its text to matter.
_MIN_COVER_SHARE = 0.01
# So many must be hidden or doubtful that it would matter: a picture may cost as much as ten pages of text.
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


class Box(NamedTuple):  # Made for many glyphs of every page, and a dataclass takes three times as long.
    """Where something is on a page, in points."""

    left: float
    right: float
    bottom: float
    top: float

    def is_within(self, other: Box, margin: float = 0.0) -> bool:
        """Whether all of it is in the other."""
        return (
            self.left >= other.left - margin
            and self.right <= other.right + margin
            and self.bottom >= other.bottom - margin
            and self.top <= other.top + margin
        )

    def is_outside(self, other: Box) -> bool:
        """Whether none of it is in the other."""
        return (
            self.right <= other.left
            or self.left >= other.right
            or self.top <= other.bottom
            or self.bottom >= other.top
        )


# An argument as ctypes makes it of a pointer: made once for many calls, it saves a fifth of each.
pointer_to = ctypes.c_void_p.from_param


class _Numbers:
    """Some C numbers in a row, and pointers to the first four for pdfium to write to."""

    def __init__(self, kind: Any, count: int) -> None:
        self.values = (kind * count)()
        first, size = ctypes.addressof(self.values), ctypes.sizeof(kind)
        self.places = tuple(pointer_to(first + number * size) for number in range(min(count, 4)))


class Calls:
    """Functions of pdfium without the binding's checks of each argument, which take as long as the call.

    With room for what they answer: there is one thread, and every answer is taken at once. Addresses are
    given by ``pointer_to``: a whole number is taken for a C int.
    """

    def __init__(self) -> None:
        import pypdfium2
        import pypdfium2.raw as pdfium_c

        self.raw, self.error = pdfium_c, pypdfium2.PdfiumError
        self._characters = _Numbers(ctypes.c_ushort, _KEPT_CHARACTERS)
        self.edges = _Numbers(ctypes.c_double, 4)
        self.colour = _Numbers(ctypes.c_uint, 4)
        self.bounding = _Numbers(ctypes.c_float, 4)
        self.drawing = _Numbers(ctypes.c_int, 2)
        self.text_object = _unchecked("FPDFText_GetTextObject", ctypes.c_void_p)
        self.is_unmapped = _unchecked("FPDFText_HasUnicodeMapError")
        self.render_mode = _unchecked("FPDFTextObj_GetTextRenderMode")
        self.char_box = _unchecked("FPDFText_GetCharBox")
        self.fill_color = _unchecked("FPDFText_GetFillColor")
        self.text = _unchecked("FPDFText_GetText")
        self.page_width = _unchecked("FPDF_GetPageWidthF", ctypes.c_float)
        self.page_height = _unchecked("FPDF_GetPageHeightF", ctypes.c_float)
        self.crop_box = _unchecked("FPDFPage_GetCropBox")
        self.count_objects = _unchecked("FPDFPage_CountObjects")
        self.page_object = _unchecked("FPDFPage_GetObject", ctypes.c_void_p)
        self.object_type = _unchecked("FPDFPageObj_GetType")
        self.bounds = _unchecked("FPDFPageObj_GetBounds")
        self.draw_mode = _unchecked("FPDFPath_GetDrawMode")
        self.form_count = _unchecked("FPDFFormObj_CountObjects")
        self.form_object = _unchecked("FPDFFormObj_GetObject", ctypes.c_void_p)

    def text_of(self, textpage: Any, count: int) -> str:
        """The first so many characters of a text page, which is given as a bare pointer."""
        room = self._characters if count < _KEPT_CHARACTERS else _Numbers(ctypes.c_ushort, count + 1)
        written = self.text(pointer_to(address_of(textpage)), 0, count, room.places[0])
        return str(memoryview(room.values).cast("B")[: 2 * max(0, written - 1)], "utf-16-le", "replace")

    def shown_part(self, page: Any) -> Box:
        """What of a page is shown."""
        if self.crop_box(pointer_to(address_of(page.raw)), *self.bounding.places):
            left, bottom, right, top = self.bounding.values[:]
        else:
            left, bottom, right, top = page.get_mediabox()
        return Box(left, right, bottom, top)


@cache
def calls() -> Calls:
    """The functions, looked up once."""
    return Calls()


def address_of(handle: Any) -> int:
    """The address in one of the binding's pointers."""
    return ctypes.addressof(handle.contents)


def _unchecked(name: str, result: Any = ctypes.c_int) -> Any:
    import pypdfium2.raw as pdfium_c

    address = ctypes.cast(getattr(pdfium_c, name), ctypes.c_void_p).value
    # It keeps the interpreter's lock, which nobody else wants, as taking it again takes time.
    return ctypes.PYFUNCTYPE(result)(address or 0)


class _Sight:
    """Whether a page's glyphs can be seen, as far as that shows without a picture of it."""

    def __init__(self, page: Any, textpage: Any) -> None:
        self._calls = calls()
        self.shown = self._calls.shown_part(page)
        self.looked = self.hidden = 0
        self.doubtful: list[Box] = []
        self.drawn: list[tuple[Box, int]] = []
        self._textpage = textpage
        self._text = pointer_to(address_of(textpage))
        self._item, self._colour = 0, (0, 0, 0, 0)

    def look_at(self, index: int, item: int, mode: int) -> None:
        """Take one glyph, of the object at this address."""
        self.looked += 1
        if mode == INVISIBLE:
            return
        calls = self._calls
        calls.char_box(self._text, index, *calls.edges.places)
        box = Box(*calls.edges.values[:])
        if box.right <= box.left or box.top <= box.bottom:
            return  # A space of its own: nothing to see either way.
        if item != self._item:
            calls.fill_color(self._text, index, *calls.colour.places)
            self._item, self._colour = item, calls.colour.values[:]
        red, green, blue, alpha = self._colour
        is_away = mode == _CLIPPING or alpha < _MIN_ALPHA or box.is_outside(self.shown)
        if is_away or _is_small(self._textpage, index, box):
            self.hidden += 1
        elif mode in _FILLING and min(red, green, blue) >= _PAPER_LEVEL:
            self.doubtful.append(box)
        else:
            self.drawn.append((box, item))


def sample_glyphs(page: Any, textpage: Any, count: int) -> GlyphSample:
    """Look at an even sample of the glyphs of a page and its text page, the latter as a bare pointer."""
    unmapped = invisible = seen = 0
    sight = _Sight(page, textpage)
    known, text = calls(), pointer_to(address_of(textpage))
    text_object, is_unmapped, render_mode = known.text_object, known.is_unmapped, known.render_mode
    last, mode = 0, 0
    for index in range(0, count, max(1, count // SAMPLED_GLYPHS)):
        item = text_object(text, index)
        if not item:
            continue  # A space or line break that pdfium put in itself.
        seen += 1
        unmapped += is_unmapped(text, index) == 1
        if item != last:
            last, mode = item, render_mode(pointer_to(item))
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


def _covered(page: Any, shown: Box, glyphs: list[tuple[Box, int]]) -> list[Box]:
    """The glyphs that lie below one of the last things that the page paints."""
    if not glyphs:
        return []
    known, raw = calls(), pointer_to(address_of(page.raw))
    min_area = _MIN_COVER_SHARE * (shown.right - shown.left) * (shown.top - shown.bottom)
    objects = known.count_objects(raw)
    covers: list[tuple[Box, int]] = []
    places: dict[int, int] = {}
    for index in range(max(0, objects - _LAST_OBJECTS), objects):
        address = known.page_object(raw, index)
        places[address] = index
        item = pointer_to(address)
        if _can_cover(known, item) and known.bounds(item, *known.bounding.places):
            left, bottom, right, top = known.bounding.values[:]
            if (right - left) * (top - bottom) >= min_area:
                covers.append((Box(left, right, bottom, top), index))
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


def _can_cover(known: Calls, item: Any) -> bool:
    """Whether it is an image or a filled shape; a form is neither, as it mostly holds the text itself."""
    kind = known.object_type(item)
    if kind != PATH:
        return bool(kind == IMAGE)
    return bool(known.draw_mode(item, *known.drawing.places) and known.drawing.values[0])


def _is_small(textpage: Any, index: int, box: Box) -> bool:
    """Whether a glyph is too small to be seen, and not just a full stop."""
    import pypdfium2.raw as pdfium_c

    if max(box.right - box.left, box.top - box.bottom) >= _MIN_HEIGHT_PT:
        return False
    around = pdfium_c.FS_RECTF()
    pdfium_c.FPDFText_GetLooseCharBox(textpage, index, around)
    return bool(around.top - around.bottom < _MIN_HEIGHT_PT)


def _out_of_sight(page: Any, shown: Box, boxes: list[Box]) -> int:
    """How many of the glyphs do not stand out from what is around them in a picture of the page."""
    wide, high = shown.right - shown.left, shown.top - shown.bottom
    if not boxes or page.get_rotation() or not (0 < wide < _MAX_LOOK_PT and 0 < high < _MAX_LOOK_PT):
        return 0
    page_width, page_height = (math.ceil(side * _LOOK_SCALE) for side in page.get_size())
    hidden, parts = 0, []
    for box in boxes:
        above, below = (int((shown.top - edge) * _LOOK_SCALE) for edge in (box.top, box.bottom))
        begin, end = (max(0, int((edge - shown.left) * _LOOK_SCALE)) for edge in (box.left, box.right))
        # With a pixel around it, where its edge may be.
        top, bottom = max(0, above - 1), min(page_height, below + 2)
        left, right = max(0, begin - 1), min(page_width, end + 2)
        if top < bottom and left < right:
            parts.append((top, bottom, left, right))
        else:
            hidden += 1
    began = time.perf_counter()
    while parts:
        # One by one, as the rest of the page is skipped; but no page that is slow to draw so many times.
        is_slow = time.perf_counter() - began > _MAX_LOOK_S
        drawn, parts = (parts, []) if is_slow else (parts[:1], parts[1:])
        hidden += _unseen(page, (page_width, page_height), drawn)
    return hidden


def _unseen(page: Any, size: tuple[int, int], parts: list[tuple[int, int, int, int]]) -> int:
    """How many parts of a picture of the page, by their top, bottom, left and right, show nothing."""
    tops, bottoms, lefts, rights = zip(*parts, strict=True)
    first, begin, wide = min(tops), min(lefts), max(rights) - min(lefts)
    drawn = _drawn_part(page, size, (begin, first), wide, max(bottoms) - first)
    hidden = 0
    for top, bottom, left, right in parts:
        starts = range((top - first) * wide + left - begin, (bottom - first) * wide, wide)
        seen = b"".join(drawn[start : start + right - left] for start in starts)
        hidden += max(seen) - min(seen) < _CONTRAST_LEVELS
    return hidden


def _drawn_part(page: Any, size: tuple[int, int], place: tuple[int, int], width: int, height: int) -> bytes:
    """Part of a picture of the page, in gray: a tenth of the time of the whole, as pdfium skips the rest."""
    import pypdfium2.raw as pdfium_c

    pixels = ctypes.create_string_buffer(b"\xff" * (width * height), width * height)
    bitmap = pdfium_c.FPDFBitmap_CreateEx(width, height, pdfium_c.FPDFBitmap_Gray, pixels, width)
    pdfium_c.FPDF_RenderPageBitmap(bitmap, page.raw, -place[0], -place[1], *size, 0, pdfium_c.FPDF_GRAYSCALE)
    pdfium_c.FPDFBitmap_Destroy(bitmap)
    return pixels.raw
