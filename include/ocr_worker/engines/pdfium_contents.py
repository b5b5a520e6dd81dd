"""pdfium: whether it unpacked the contents of a page that draws nothing.

It says the same of an empty page and of one whose contents it cannot unpack. Its copy of the page tells
them apart in most cases, without the second parser, whose import alone takes as long as a hundred pages.
"""

from __future__ import annotations

import io
import re
import zlib
from typing import Any

# Where contents come directly after their page, as they do in a copy of one page: a stream that is plain or
# deflated and nothing else. No document can fake that, as no line break of its own stands in a dictionary.
_PAGE = b"\r\n4 0 obj\r\n"
_CONTENTS = re.compile(
    _PAGE + rb"<</Contents 5 0 R [^\r]*>>\r\nendobj\r\n"
    rb"5 0 obj\r\n<<(/Filter/FlateDecode)?/Length (\d{1,6})>>stream\r\n"
)
_MAX_UNPACKED_BYTES = 1 << 16
# What a page uses is copied along.
MAX_FILE_BYTES = 8 << 20


def has_unpacked(pdf: Any, index: int) -> bool:
    """Whether a page's contents can be unpacked for sure; False where it cannot tell."""
    import pypdfium2

    copied = io.BytesIO()
    try:
        with pypdfium2.PdfDocument.new() as copy:
            copy.import_pages(pdf, [index])
            copy.save(copied)
    except pypdfium2.PdfiumError:
        return False
    content = copied.getvalue()
    # The first page object there is: another is what a document put into a stream.
    begin = content.find(_PAGE)
    found = _CONTENTS.match(content, begin) if begin >= 0 else None
    if found is None:
        return False
    packed = content[found.end() : found.end() + int(found[2])]
    return found[1] is None or _is_deflated(packed)


def _is_deflated(packed: bytes) -> bool:
    inflating = zlib.decompressobj()
    try:
        inflating.decompress(packed, _MAX_UNPACKED_BYTES)
    except zlib.error:
        return False
    return inflating.eof
