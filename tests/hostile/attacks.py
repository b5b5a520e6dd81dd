"""Every class of attack on a reader of documents, each made from nothing when it is needed.

``ends`` says how each ends. What a reader may ignore, such as a script, stands beside a sentence to read.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib

from tests.hostile import picture_attacks
from tests.hostile.pdf_bytes import (
    FONT,
    GIBIBYTE,
    SENTENCE,
    flate_of,
    lzw_of,
    one_page,
    run_length_of,
    stream,
    text,
    write,
)

from samples import documents as made

BLOCK = b"/FlateDecode"


# --- what unpacks to far more than it is --------------------------------------------------------


def _filtered(data: bytes, filters: bytes) -> bytes:
    return one_page(stream(data, b"/Filter [%s]" % filters))


def flate_bomb() -> bytes:
    return _filtered(flate_of(b" ", GIBIBYTE), BLOCK)


def flate_in_flate_bomb() -> bytes:
    return _filtered(zlib.compress(flate_of(b" ", 4 * GIBIBYTE)), BLOCK + BLOCK)


def lzw_bomb() -> bytes:
    return _filtered(lzw_of(32, GIBIBYTE), b"/LZWDecode")


def run_length_bomb() -> bytes:
    return _filtered(run_length_of(b" ", GIBIBYTE), b"/RunLengthDecode")


def chained_bomb() -> bytes:
    data = zlib.compress(zlib.compress(run_length_of(b" ", 2 * GIBIBYTE), 1))
    return _filtered(data.hex().encode() + b">", b"/ASCIIHexDecode" + BLOCK + BLOCK + b"/RunLengthDecode")


def filters_without_end() -> bytes:
    return _filtered(zlib.compress(b"q Q"), BLOCK * 10_000)


def image_bomb() -> bytes:
    image = stream(
        flate_of(b"\0", GIBIBYTE),
        b"/Type /XObject /Subtype /Image /Width 32768 /Height 32768 /ColorSpace /DeviceGray"
        b" /BitsPerComponent 8 /Filter /FlateDecode",
    )
    return one_page(
        stream(b"612 0 0 792 0 0 cm /I Do"), resources=b"/XObject << /I 10 0 R >>", more={10: image}
    )


def object_stream_bomb() -> bytes:
    packed = stream(flate_of(b" ", GIBIBYTE), b"/Type /ObjStm /N 1 /First 10 /Filter /FlateDecode")
    return one_page(catalog=b"/Names 10 0 R", more={10: packed})


def text_bomb() -> bytes:
    lines = (
        b"BT /F1 1 Tf " + b"(aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa) Tj " * 50_000
    )
    return one_page(stream(zlib.compress(lines + b"ET"), b"/Filter /FlateDecode"))


def font_bomb() -> bytes:
    more = {
        10: b"<< /Type /Font /Subtype /TrueType /BaseFont /X /FontDescriptor 11 0 R >>",
        11: b"<< /Type /FontDescriptor /FontName /X /Flags 4 /FontFile2 12 0 R >>",
        12: stream(flate_of(b"\0", GIBIBYTE), b"/Filter /FlateDecode"),
    }
    contents = stream(b"BT /F2 9 Tf (%s) Tj ET" % SENTENCE)
    return one_page(contents, resources=b"/Font << /F2 10 0 R >>", more=more)


def mesh_bomb() -> bytes:
    mesh = stream(
        flate_of(b"\x55", 64),
        b"/ShadingType 4 /ColorSpace /DeviceGray /BitsPerCoordinate 8 /BitsPerComponent 8 /BitsPerFlag 8"
        b" /Decode [0 1 0 1 0 1] /Filter /FlateDecode",
    )
    return one_page(stream(b"/S sh"), resources=b"/Shading << /S 10 0 R >>", more={10: mesh})


# --- pixels and boxes ---------------------------------------------------------------------------


def huge_box() -> bytes:
    return one_page(stream(b"0 0 1e9 1e9 re f"), box=b"0 0 1000000000 1000000000")


def huge_user_unit() -> bytes:
    return one_page(stream(b"0 0 99 99 re f"), page=b"/UserUnit 1000000")


def box_without_area() -> bytes:
    return one_page(stream(b"0 0 99 99 re f"), box=b"0 0 0 0")


def box_of_no_numbers() -> bytes:
    return one_page(stream(b"0 0 99 99 re f"), box=b"-1e38 /x 1e38 (y)")


# --- what refers to itself ----------------------------------------------------------------------


def page_tree_loop() -> bytes:
    return write(
        {
            1: b"<< /Type /Catalog /Pages 2 0 R >>",
            2: b"<< /Type /Pages /Kids [2 0 R 3 0 R] /Count 2 /Parent 3 0 R >>",
            3: b"<< /Type /Pages /Kids [2 0 R] /Count 1 /Parent 2 0 R >>",
        }
    )


def page_count_that_lies() -> bytes:
    whole = one_page()
    return whole.replace(b"/Count 1 ", b"/Count 1000000000 ")


def xref_loop() -> bytes:
    whole = one_page()
    at = whole.rindex(b"xref\n0 ")
    return whole.replace(b"/Root 1 0 R", b"/Root 1 0 R /Prev %d" % at)


def outline_loop() -> bytes:
    more = {
        10: b"<< /Type /Outlines /First 11 0 R /Last 11 0 R /Count 1 >>",
        11: b"<< /Title (a) /Parent 10 0 R /Next 11 0 R /Prev 11 0 R /First 10 0 R >>",
    }
    return one_page(catalog=b"/Outlines 10 0 R", more=more)


def object_stream_loop() -> bytes:
    packed = stream(b"11 0 << >>", b"/Type /ObjStm /N 1 /First 5 /Extends 10 0 R")
    return one_page(catalog=b"/Names 10 0 R", more={10: packed})


def length_loop() -> bytes:
    return one_page(b"<< /Length 4 0 R >>\nstream\nq Q\nendstream")


def form_loop() -> bytes:
    form = stream(
        b"/X Do /X Do",
        b"/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /X 10 0 R >> >>",
    )
    return one_page(stream(b"/X Do"), resources=b"/XObject << /X 10 0 R >>", more={10: form})


def form_laughs() -> bytes:
    """Each form draws the next ten times: ten billion in all."""
    more = {}
    for level in range(10):
        entries = b"/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /X %d 0 R >> >>"
        more[10 + level] = stream(b"/X Do " * 10, entries % (11 + level))
    more[20] = stream(b"0 0 9 9 re f", b"/Type /XObject /Subtype /Form /BBox [0 0 9 9]")
    return one_page(stream(b"/X Do"), resources=b"/XObject << /X 10 0 R >>", more=more)


def glyph_loop() -> bytes:
    font = (
        b"<< /Type /Font /Subtype /Type3 /FontBBox [0 0 9 9] /FontMatrix [1 0 0 1 0 0] /FirstChar 97"
        b" /LastChar 97 /Widths [9] /Encoding << /Differences [97 /a] >> /CharProcs << /a 11 0 R >>"
        b" /Resources << /Font << /F2 10 0 R >> >> >>"
    )
    glyph = stream(b"9 0 d0 BT /F2 1 Tf (aa) Tj ET")
    return one_page(
        stream(b"BT /F2 9 Tf (aa) Tj ET"),
        page=b"/X 1",
        resources=b"/Font << /F2 10 0 R >>",
        more={10: font, 11: glyph},
    )


def pattern_loop() -> bytes:
    pattern = stream(
        b"/Pattern cs /P scn 0 0 9 9 re f",
        b"/Type /Pattern /PatternType 1 /PaintType 1 /TilingType 1 /BBox [0 0 9 9] /XStep 0.001 /YStep 0.001"
        b" /Resources << /Pattern << /P 10 0 R >> >>",
    )
    contents = stream(b"/Pattern cs /P scn 0 0 612 792 re f")
    return one_page(contents, resources=b"/Pattern << /P 10 0 R >>", more={10: pattern})


def soft_mask_loop() -> bytes:
    state = b"<< /Type /ExtGState /SMask << /S /Luminosity /G 11 0 R >> >>"
    group = stream(
        b"/G gs 0 0 9 9 re f",
        b"/Type /XObject /Subtype /Form /BBox [0 0 612 792] /Group << /S /Transparency /CS /DeviceGray >>"
        b" /Resources << /ExtGState << /G 10 0 R >> >>",
    )
    contents = stream(b"/G gs 0 0 612 792 re f")
    return one_page(contents, resources=b"/ExtGState << /G 10 0 R >>", more={10: state, 11: group})


def colour_space_loop() -> bytes:
    contents = stream(b"/C cs 0 sc 0 0 99 99 re f")
    more = {10: b"[/Indexed 10 0 R 255 (abc)]"}
    return one_page(contents, resources=b"/ColorSpace << /C 10 0 R >>", more=more)


def encryption_loop() -> bytes:
    return one_page(trailer=b"/Encrypt 1 0 R /ID [(a) (b)]")


def name_tree_loop() -> bytes:
    more = {10: b"<< /Dests 11 0 R /EmbeddedFiles 11 0 R >>", 11: b"<< /Kids [11 0 R 11 0 R] >>"}
    return one_page(catalog=b"/Names 10 0 R /PageLabels 11 0 R", more=more)


# --- too deep, too many -------------------------------------------------------------------------


def deep_arrays() -> bytes:
    return one_page(catalog=b"/X %s%s" % (b"[" * 100_000, b"]" * 100_000))


def deep_dictionaries_on_the_page() -> bytes:
    return one_page(page=b"/X %s%s" % (b"<< /X " * 100_000, b">> " * 100_000))


def deep_strings() -> bytes:
    return one_page(stream(b"BT /F1 9 Tf %s%s Tj ET" % (b"(" * 1_000_000, b")" * 1_000_000)))


def deep_states() -> bytes:
    return one_page(stream(b"q " * 1_000_000 + b"0 0 99 99 re f"))


def deep_page_tree() -> bytes:
    depth = 20_000
    objects = {1: b"<< /Type /Catalog /Pages 2 0 R >>"}
    for level in range(2, depth):
        objects[level] = b"<< /Type /Pages /Kids [%d 0 R] /Count 1 /Parent %d 0 R >>" % (level + 1, level - 1)
    objects[depth] = b"<< /Type /Page /Parent %d 0 R /MediaBox [0 0 612 792] /Contents %d 0 R" % (
        depth - 1,
        depth + 1,
    )
    objects[depth] += b" /Resources << /Font << /F1 %d 0 R >> >> >>" % (depth + 2)
    return write(objects | {depth + 1: text(), depth + 2: FONT})


def deep_calculator() -> bytes:
    """A function that is nothing but blocks in blocks."""
    function = stream(b"{" * 200_000 + b"}" * 200_000, b"/FunctionType 4 /Domain [0 1 0 1] /Range [0 1]")
    shading = b"<< /ShadingType 1 /ColorSpace /DeviceGray /Function 11 0 R >>"
    more = {10: shading, 11: function}
    return one_page(stream(b"/S sh"), resources=b"/Shading << /S 10 0 R >>", more=more)


def million_objects() -> bytes:
    return one_page(more=dict.fromkeys(range(10, 1_000_010), b"[0]"))


def million_annotations() -> bytes:
    note = b"<< /Type /Annot /Subtype /Square /Rect [0 0 9 9] >>"
    return one_page(page=b"/Annots [%s]" % (b"10 0 R " * 1_000_000), more={10: note})


def million_drawings() -> bytes:
    return one_page(stream(zlib.compress(b"0 0 9 9 re f " * 1_000_000), b"/Filter /FlateDecode"))


def size_that_lies() -> bytes:
    return one_page(trailer=b"/Size 2147483647")


def giant_cmap() -> bytes:
    lines = [b"<%04X> <%s>" % (code % 65_536, b"0041" * 128) for code in range(60_000)]
    parts = [
        b"100 beginbfchar\n%s\nendbfchar" % b"\n".join(lines[at : at + 100]) for at in range(0, 60_000, 100)
    ]
    font = FONT.replace(b">>", b"/ToUnicode 11 0 R >>")
    cmap = stream(
        zlib.compress(b"/CIDInit /ProcSet findresource begin\n" + b"\n".join(parts)), b"/Filter /FlateDecode"
    )
    contents = stream(b"BT /F2 9 Tf (Nobody had expected the letter to arrive) Tj ET")
    return one_page(contents, resources=b"/Font << /F2 10 0 R >>", more={10: font, 11: cmap})


def cmap_bomb() -> bytes:
    font = FONT.replace(b">>", b"/ToUnicode 11 0 R >>")
    cmap = stream(flate_of(b" ", GIBIBYTE), b"/Filter /FlateDecode")
    contents = stream(b"BT /F2 9 Tf (Nobody had expected the letter to arrive) Tj ET")
    return one_page(contents, resources=b"/Font << /F2 10 0 R >>", more={10: font, 11: cmap})


# --- other languages inside ---------------------------------------------------------------------


LAUGHS = (
    b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "ha">'
    + b"".join(b'<!ENTITY %c "%s">' % (98 + level, b"&%c;" % (97 + level) * 10) for level in range(12))
    + b'<!ENTITY file SYSTEM "file:///etc/passwd">]><x>&m;&file;</x>'
)


def xfa_entities() -> bytes:
    more = {10: b"<< /Fields [] /XFA [(template) 11 0 R] /NeedAppearances true >>", 11: stream(LAUGHS)}
    return one_page(catalog=b"/AcroForm 10 0 R", more=more)


def metadata_entities() -> bytes:
    return one_page(catalog=b"/Metadata 10 0 R", more={10: stream(LAUGHS, b"/Type /Metadata /Subtype /XML")})


def javascript() -> bytes:
    more = {10: b"<< /S /JavaScript /JS (while (true) { app.alert('x'); }) >>"}
    return one_page(
        catalog=b"/OpenAction 10 0 R /AA << /WC 10 0 R >>", page=b"/AA << /O 10 0 R >>", more=more
    )


def launch_action() -> bytes:
    more = {10: b"<< /S /Launch /F (/bin/sh) /Win << /F (cmd.exe) /P (/c calc) >> /Next 11 0 R >>"}
    more[11] = b"<< /S /URI /URI (http://127.0.0.1:9/launched) >>"
    return one_page(catalog=b"/OpenAction 10 0 R", page=b"/AA << /O 10 0 R >>", more=more)


def embedded_bomb() -> bytes:
    more = {
        10: b"<< /EmbeddedFiles << /Names [(bomb.pdf) 11 0 R] >> >>",
        11: b"<< /Type /Filespec /F (../../bomb.pdf) /UF (../../bomb.pdf) /EF << /F 12 0 R >> >>",
        12: stream(flate_of(b" ", GIBIBYTE), b"/Type /EmbeddedFile /Filter /FlateDecode"),
    }
    return one_page(catalog=b"/Names 10 0 R /Collection << /View /T >>", more=more)


# --- images that are none -----------------------------------------------------------------------


def _image(data: bytes, entries: bytes, width: int = 1700, height: int = 2200) -> bytes:
    image = stream(
        data,
        b"/Type /XObject /Subtype /Image /Width %d /Height %d /ColorSpace /DeviceGray /BitsPerComponent 8 %s"
        % (width, height, entries),
    )
    return one_page(
        stream(b"612 0 0 792 0 0 cm /I Do"), resources=b"/XObject << /I 10 0 R >>", more={10: image}
    )


NOISE = bytes((number * 7919 + number // 3) % 256 for number in range(20_000))


def broken_jpeg() -> bytes:
    buffer = io.BytesIO()
    made.scan().save(buffer, "JPEG")
    whole = buffer.getvalue()
    return _image(whole[: len(whole) // 3] + NOISE, b"/Filter /DCTDecode")


def jpeg_that_lies_about_its_size() -> bytes:
    return _image(picture_attacks.jpeg_of_four_billion_pixels(), b"/Filter /DCTDecode")


def broken_jpeg2000() -> bytes:
    return _image(b"\0\0\0\x0cjP  \r\n\x87\n" + NOISE, b"/Filter /JPXDecode")


def jpeg2000_of_many_pixels() -> bytes:
    """A codestream whose size says a quintillion pixels in tiles of one."""
    size = struct.pack(">HIIIIIIII", 0, 2**30, 2**30, 0, 0, 1, 1, 0, 0) + struct.pack(">HBBB", 1, 7, 1, 1)
    head = b"\xff\x4f\xff\x51" + struct.pack(">H", len(size) + 2) + size
    return _image(head + NOISE, b"/Filter /JPXDecode")


def broken_jbig2() -> bytes:
    page = struct.pack(">IBBBI", 0, 48, 0, 1, 19) + struct.pack(">IIIIBH", 2**31 - 1, 2**31 - 1, 0, 0, 0, 0)
    return _image(page + NOISE, b"/Filter /JBIG2Decode")


def ccitt_of_many_columns() -> bytes:
    return _image(
        NOISE, b"/Filter /CCITTFaxDecode /DecodeParms << /K -1 /Columns 1000000000 /Rows 1000000000 >>"
    )


def predictor_of_many_columns() -> bytes:
    parameters = b"/Predictor 12 /Columns 2147483647 /Colors 32 /BitsPerComponent 16"
    return _image(zlib.compress(b"\0" * 100_000), b"/Filter /FlateDecode /DecodeParms << %s >>" % parameters)


def image_that_says_a_trillion_pixels() -> bytes:
    return _image(zlib.compress(b"\0" * 1000), b"/Filter /FlateDecode", 1_000_000, 1_000_000)


# --- files that are two things ------------------------------------------------------------------


def zip_and_pdf() -> bytes:
    packed = io.BytesIO(one_page())
    with zipfile.ZipFile(packed, "a") as archive:
        archive.writestr("../../escaped.txt", "x")
    return packed.getvalue()


def html_and_pdf() -> bytes:
    return one_page(header=b"<html><script>alert(1)</script>\n")


def gif_and_pdf() -> bytes:
    return one_page(header=b"GIF89a\x01\0\x01\0\0\0\0;")


def program_and_pdf() -> bytes:
    return one_page(header=b"MZ" + b"\0" * 400)


def jpeg_and_pdf() -> bytes:
    buffer = io.BytesIO()
    made.scan().save(buffer, "JPEG", comment=one_page()[:60_000])
    return buffer.getvalue()
