from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image
from tests.unit.ocr_worker.builders import STEADY

from ocr_worker.pictures import (
    EVEN_BACKGROUND,
    MAX_SIDE_PIXELS,
    MIN_DPI,
    capped_dpi,
    flattened,
    is_blank,
    resized_gray,
    turned,
)
from pdf_ops.contract.errors import ErrorKind, PdfOpsError

WIDTH, HEIGHT = 400, 560


def paper(level=255):
    return np.full((HEIGHT, WIDTH), level, dtype=np.uint8)


def with_line(pixels, *, ink=0, y=200):
    """Strokes like those of a line of 10 pt text at 100 dpi: letters 8 pixels high, 2 pixels thick."""
    for x in range(60, pixels.shape[1] - 60, 9):
        pixels[y : y + 8, x : x + 2] = ink
        pixels[y + 3 : y + 5, x : x + 6] = ink
    return pixels


def with_noise(pixels, spread, seed=1):
    noise = np.random.default_rng(seed).integers(-spread, spread + 1, pixels.shape)
    return np.clip(pixels.astype(np.int16) + noise, 0, 255).astype(np.uint8)


# Size before drawing -------------------------------------------------------------------------


def test_an_ordinary_page_is_drawn_at_the_resolution_asked_for():
    assert capped_dpi(595, 842, 200, 40_000_000) == 200


def test_a_large_page_is_drawn_just_as_coarse_as_it_must():
    dpi = capped_dpi(7200, 3600, 200, 9_000_000)
    assert (7200 / 72 * dpi) * (3600 / 72 * dpi) == pytest.approx(9_000_000)


SIZES = st.floats(1e-3, 1e9)


@STEADY
@given(width=SIZES, height=SIZES, dpi=st.integers(36, 1200), max_pixels=st.integers(100_000, 10**9))
@example(width=1e-3, height=1e7, dpi=200, max_pixels=100_000)
@example(width=72.0, height=72.0, dpi=1200, max_pixels=100_000)
def test_a_page_never_has_more_pixels_than_allowed(width, height, dpi, max_pixels):
    try:
        capped = capped_dpi(width, height, dpi, max_pixels)
    except PdfOpsError as error:
        assert_bomb(error)
        smallest = [max(1.0, side / 72 * MIN_DPI) for side in (width, height)]
        assert math.prod(smallest) > max_pixels * 0.999 or max(smallest) > MAX_SIDE_PIXELS * 0.999
        return
    assert MIN_DPI <= capped <= dpi
    # What is drawn is at least one pixel wide and high, however thin the page.
    drawn = [max(1.0, side / 72 * capped) for side in (width, height)]
    assert math.prod(drawn) <= max_pixels * 1.000001
    assert max(drawn) <= MAX_SIDE_PIXELS * 1.000001


def assert_bomb(error):
    assert error.kind is ErrorKind.BOMB_PIXELS


@pytest.mark.parametrize("odd", [0.0, -0.0, -5.0, math.nan, math.inf, -math.inf, 1e308])
@pytest.mark.parametrize("other", [595.0, -5.0, math.nan, math.inf, 1e308])
def test_a_page_of_an_impossible_size_is_refused(odd, other):
    for width, height in ((odd, other), (other, odd)):
        with pytest.raises(PdfOpsError) as caught:
            capped_dpi(width, height, 200, 40_000_000)
        assert caught.value.kind is ErrorKind.BOMB_PIXELS


def test_a_page_too_large_to_be_readable_is_refused_with_its_size():
    with pytest.raises(PdfOpsError, match=r"1389 x 1389 inches: 771604938 pixels at 20 dpi, 40000000 are"):
        capped_dpi(100_000, 100_000, 200, 40_000_000)


# Background ----------------------------------------------------------------------------------


@pytest.mark.parametrize("pixels", [paper(), paper(230), with_line(paper()), with_noise(paper(245), 3)])
def test_an_even_page_is_left_untouched(pixels):
    assert flattened(pixels) is pixels


@pytest.mark.parametrize("darkest", [0.7, 0.4, 0.2])
def test_a_shadow_is_evened_out_and_the_text_in_it_stays_dark(darkest):
    lit = with_line(np.full((HEIGHT, 1654), 250, dtype=np.uint8))
    light = np.linspace(1.0, darkest, 1654)
    pixels = (lit * light).astype(np.uint8)
    before = pixels.copy()
    flat = flattened(pixels)
    assert int(before[lit > 0].max()) - int(before[lit > 0].min()) > 60
    assert int(flat[lit > 0].min()) > 215
    assert int(flat[lit == 0].max()) < 40
    assert np.array_equal(pixels, before)


def test_a_dark_scan_of_white_paper_becomes_white():
    flat = flattened(with_line(paper(120)))
    assert int(np.median(flat)) > 250
    assert int(flat.min()) == 0


@pytest.mark.parametrize("level", [0, 1])
def test_a_black_page_is_no_division_by_zero(level):
    flat = flattened(paper(level))
    assert flat.dtype == np.uint8
    assert flat.shape == (HEIGHT, WIDTH)


@pytest.mark.parametrize("shape", [(1, 1), (10, 500), (500, 10), (63, 63)])
def test_a_picture_too_small_to_have_a_background_is_left_untouched(shape):
    pixels = np.tile(np.arange(shape[1], dtype=np.uint8), (shape[0], 1))
    assert flattened(pixels) is pixels


@STEADY
@given(st.integers(64, 90), st.integers(64, 90), st.integers(0, 2**32 - 1))
def test_flattening_keeps_size_and_kind_and_only_ever_brightens(height, width, seed):
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width)).astype(np.uint8)
    flat = flattened(pixels)
    assert flat.shape == pixels.shape
    assert flat.dtype == np.uint8
    assert bool((flat >= pixels).all())


def test_a_background_counts_as_even_up_to_a_few_levels():
    halves = paper(255)
    halves[:, WIDTH // 2 :] = 255 - EVEN_BACKGROUND
    assert flattened(halves) is halves
    halves[:, WIDTH // 2 :] = 255 - 3 * EVEN_BACKGROUND
    assert flattened(halves) is not halves


# Blank pages ---------------------------------------------------------------------------------


def dusty():
    """Four black specks, and two hundred that are hardly to be seen."""
    pixels = paper()
    for y, x in np.random.default_rng(7).integers(20, 380, (200, 2)):
        pixels[y, x] = 150
    for place in (101, 202, 303, 377):
        pixels[place, place] = 0
    return pixels


def shadow_at_rim():
    pixels = paper()
    pixels[:, :8] = 30
    pixels[:9, :] = 60
    pixels[-10:, :] = 0
    return pixels


@pytest.mark.parametrize(
    "pixels",
    [
        paper(),
        paper(128),
        paper(0),
        with_noise(paper(235), 20),
        dusty(),
        shadow_at_rim(),
        np.full((3, 3), 255, dtype=np.uint8),
        np.full((1, 1), 9, dtype=np.uint8),
        np.zeros((0, 0), dtype=np.uint8),
    ],
    ids=["white", "gray", "black", "noise", "dust", "rim", "tiny", "one pixel", "none"],
)
def test_a_page_of_paper_dust_and_shadow_at_the_rim_is_blank(pixels):
    assert is_blank(pixels)


@pytest.mark.parametrize(
    "pixels",
    [
        with_line(paper()),
        with_line(paper(), ink=90),
        with_line(paper(), ink=215),
        with_line(paper(), y=20),
        with_line(paper(180)),
        with_line(with_noise(paper(240), 8)),
        with_line(paper(0), ink=255),
        with_line(shadow_at_rim()),
    ],
    ids=["black", "gray", "pale", "at the top", "on gray", "on noise", "white on black", "in a shadow"],
)
def test_a_single_line_of_text_makes_a_page_not_blank(pixels):
    assert not is_blank(pixels)


def test_a_page_half_black_is_not_blank():
    pixels = paper()
    pixels[: HEIGHT // 3] = 0
    assert not is_blank(pixels)


def test_a_tiny_picture_with_contrast_is_not_blank():
    pixels = np.full((6, 6), 255, dtype=np.uint8)
    pixels[2:4, 2:4] = 0
    assert not is_blank(pixels)


# Turning and scaling -------------------------------------------------------------------------

ARROW = np.array([[1, 2, 3], [4, 5, 6]], dtype=np.uint8)


@pytest.mark.parametrize(
    ("clockwise", "expected"),
    [
        (0, [[1, 2, 3], [4, 5, 6]]),
        (90, [[4, 1], [5, 2], [6, 3]]),
        (180, [[6, 5, 4], [3, 2, 1]]),
        (270, [[3, 6], [2, 5], [1, 4]]),
        (360, [[1, 2, 3], [4, 5, 6]]),
    ],
)
def test_a_picture_is_turned_clockwise(clockwise, expected):
    result = turned(ARROW, clockwise)
    assert result.tolist() == expected
    assert result.flags.c_contiguous


@pytest.mark.parametrize(
    ("scale", "shape"), [(1.0, (30, 20)), (0.5, (15, 10)), (2.0, (60, 40)), (1e-6, (1, 1))]
)
def test_a_gray_image_becomes_contiguous_pixels_at_another_scale(scale, shape):
    pixels = resized_gray(Image.new("L", (20, 30), 200), scale)
    assert pixels.shape == shape
    assert pixels.dtype == np.uint8
    assert pixels.flags.c_contiguous
    assert int(pixels.min()) == int(pixels.max()) == 200
