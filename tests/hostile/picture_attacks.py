"""Attacks that are pictures: PNG, JPEG and TIFF, each made from nothing when it is needed."""

from __future__ import annotations

import io
import struct
import zlib

from tests.hostile.pdf_bytes import GIBIBYTE, flate_of

from samples import documents as made


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _png(width: int, height: int, pixels: bytes, more: bytes = b"") -> bytes:
    head = _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + more + _chunk(b"IDAT", pixels) + _chunk(b"IEND", b"")


def png_of_ten_billion_pixels() -> bytes:
    return _png(100_000, 100_000, flate_of(b"\0", 64))


def png_with_a_bomb_for_a_comment() -> bytes:
    comment = _chunk(b"zTXt", b"Comment\0\0" + flate_of(b" ", GIBIBYTE))
    return _png(64, 64, zlib.compress(b"\0" * 65 * 64), comment)


def png_with_a_bomb_for_a_profile() -> bytes:
    profile = _chunk(b"iCCP", b"ICC\0\0" + flate_of(b" ", GIBIBYTE))
    return _png(64, 64, zlib.compress(b"\0" * 65 * 64), profile)


def png_with_more_pixels_than_it_says() -> bytes:
    return _png(64, 64, flate_of(b"\0", GIBIBYTE))


def jpeg_of_four_billion_pixels() -> bytes:
    buffer = io.BytesIO()
    made.scan(size=(64, 64)).save(buffer, "JPEG")
    body = bytearray(buffer.getvalue())
    at = body.index(b"\xff\xc0") + 5
    body[at : at + 4] = b"\xff\xff\xff\xff"
    return bytes(body)


def _tiff(width: int, height: int, compression: int, strip: bytes, following: int = 0) -> bytes:
    """A TIFF of one directory, with the place of the next."""
    at = 8 + 2 + 9 * 12 + 4
    entries = [(256, 4, 1, width), (257, 4, 1, height), (258, 3, 1, 8), (259, 3, 1, compression)]
    entries += [(262, 3, 1, 1), (273, 4, 1, at), (277, 3, 1, 1), (278, 4, 1, height), (279, 4, 1, len(strip))]
    directory = struct.pack("<H", len(entries)) + b"".join(struct.pack("<HHII", *entry) for entry in entries)
    return b"II*\0" + struct.pack("<I", 8) + directory + struct.pack("<I", following) + strip


def tiff_without_end() -> bytes:
    """A TIFF whose one directory is its own next."""
    return _tiff(8, 8, 1, b"\0" * 64, following=8)


def tiff_with_a_bomb_for_pixels() -> bytes:
    return _tiff(8, 8, 8, flate_of(b"\0", GIBIBYTE))


def tiff_of_many_pixels() -> bytes:
    return _tiff(30_000, 30_000, 8, flate_of(b"\0", 64))
