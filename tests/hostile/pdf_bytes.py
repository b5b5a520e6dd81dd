"""PDFs put together from raw objects: the libraries that write good ones refuse to write these."""

from __future__ import annotations

import zlib

FONT = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
TEXT = b"BT /F1 12 Tf 72 720 Td (%s) Tj ET"
SENTENCE = b"Nobody had expected the letter to arrive before the end of the week, least of all she."
MEBIBYTE = 1 << 20
GIBIBYTE = 1024  # In MiB.


def stream(data: bytes, entries: bytes = b"") -> bytes:
    return b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(data), entries, data)


def text(sentence: bytes = SENTENCE) -> bytes:
    return stream(TEXT % sentence)


def write(objects: dict[int, bytes], *, trailer: bytes = b"", root: int = 1, header: bytes = b"") -> bytes:
    """A whole file with a correct cross-reference table."""
    parts, offsets, at = [header + b"%PDF-1.7\n"], {}, len(header) + 9
    for number, body in objects.items():
        offsets[number] = at
        parts.append(b"%d 0 obj\n%s\nendobj\n" % (number, body))
        at += len(parts[-1])
    size = max(objects) + 1
    table = [
        b"%010d 00000 n \n" % offsets[n] if n in offsets else b"0000000000 65535 f \n" for n in range(size)
    ]
    parts.append(b"xref\n0 %d\n%s" % (size, b"".join(table)))
    parts.append(
        b"trailer\n<< /Size %d /Root %d 0 R %s >>\nstartxref\n%d\n%%%%EOF\n" % (size, root, trailer, at)
    )
    return b"".join(parts)


def one_page(
    contents: bytes | None = None,
    *,
    catalog: bytes = b"",
    page: bytes = b"",
    resources: bytes = b"",
    box: bytes = b"0 0 612 792",
    more: dict[int, bytes] | None = None,
    trailer: bytes = b"",
    header: bytes = b"",
) -> bytes:
    """A page that says a sentence, but for what is given; objects from 10 on are free."""
    objects = {
        1: b"<< /Type /Catalog /Pages 2 0 R %s >>" % catalog,
        2: b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        3: b"<< /Type /Page /Parent 2 0 R /MediaBox [%s] /Contents 4 0 R"
        b" /Resources << /Font << /F1 5 0 R >> %s >> %s >>" % (box, resources, page),
        4: contents if contents is not None else text(),
        5: FONT,
    }
    return write(objects | (more or {}), trailer=trailer, header=header)


def flate_of(byte: bytes, mebibytes: int) -> bytes:
    """So many MiB of one byte, compressed a thousandfold; made by repetition, in no time."""
    packer = zlib.compressobj(9)
    head = packer.compress(byte * MEBIBYTE) + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(byte * MEBIBYTE) + packer.flush(zlib.Z_FULL_FLUSH)
    return head + block * (mebibytes - 1) + packer.flush()


def lzw_of(byte: int, mebibytes: int) -> bytes:
    """The same in LZW: each code stands for one byte more than the one before."""
    bits: list[str] = []
    for _ in range(8):  # Eight rounds end on a whole byte.
        bits.append(f"{256:09b}")
        width = 9
        for number, code in enumerate([byte, *range(258, 4094), 256]):
            bits.append(f"{code:0{width}b}")
            if number + 258 in (511, 1023, 2047):
                width += 1
    joined = "".join(bits)
    rounds = int(joined, 2).to_bytes(len(joined) // 8, "big")
    return rounds * max(1, mebibytes // 56)


def run_length_of(byte: bytes, mebibytes: int) -> bytes:
    return (b"\x81" + byte) * (mebibytes * MEBIBYTE // 128)
