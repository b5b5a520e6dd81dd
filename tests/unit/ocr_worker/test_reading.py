from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.ocr_worker.builders import STEADY

from ocr_worker import reading
from ocr_worker.engines import MAX_SIDE_PT, Geometry, Picture, Recognition, TextLayer
from ocr_worker.pictures import turned
from ocr_worker.reading import LOW_CONFIDENCE, PageReader, clean_text, recognize_upright
from pdf_ops.contract.errors import ErrorKind, PdfOpsError
from pdf_ops.contract.fingerprint import OcrMode, ReadingConfig
from pdf_ops.contract.pages import Method, MethodReason

GOOD_TEXT = (
    "The tenant shall pay the rent on the first day of each month, without deduction, to the account that "
    "the landlord has named in writing. If the rent is late, interest is due at the rate of the law."
)
GOOD = TextLayer(text=GOOD_TEXT)
BROKEN = TextLayer(text="\ufffd" * 300)
STAMP = TextLayer(text="Received 2024-03-07", image_coverage=1.0)
NO_LAYER = TextLayer(text="", image_coverage=1.0)
NOTHING_DRAWN = TextLayer(text="", is_drawn=False)


def strokes(paper=255, ink=0):
    pixels = np.full((300, 400), paper, dtype=np.uint8)
    for x in range(50, 350, 9):
        pixels[100:108, x : x + 3] = ink
    return pixels


def shadowed_strokes():
    return (strokes() * np.linspace(1.0, 0.4, 400)).astype(np.uint8)


class FakePage:
    """A page that holds what it is told; an error in place of a layer or of pixels is raised."""

    def __init__(self, layer=NO_LAYER, pixels=None):
        self.layer = layer
        self.pixels = strokes() if pixels is None else pixels
        self.size = Geometry(width_pt=595.0, height_pt=842.0, rotation=90)
        self.pictures = []

    def geometry(self):
        return self.size

    def text_layer(self):
        if isinstance(self.layer, Exception):
            raise self.layer
        return self.layer

    def picture(self, dpi, max_pixels):
        self.pictures.append((dpi, max_pixels))
        if isinstance(self.pixels, Exception):
            raise self.pixels
        return Picture(pixels=self.pixels, dpi=150.0)


class FakeRecognizer:
    """Gives the answers that it is told, one after the other, and remembers what it was shown."""

    name = "fake 1"

    def __init__(self, *answers, orientation=None):
        self._answers = list(answers)
        self._orientation = orientation
        self.shown = []
        self.asked_orientation = 0

    def recognize(self, picture):
        self.shown.append(picture.pixels)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def orientation(self, picture):
        self.asked_orientation += 1
        return self._orientation


def words(text, confidence=90.0, rotation=0):
    return Recognition(text=text, confidences=(confidence,) * len(text.split()), rotation=rotation)


NOTHING = words("")


def never():
    pytest.fail("the OCR engine was loaded")


def read(page, *answers, orientation=None, **config):
    """The reading, and the engine that did it."""
    recognizer = FakeRecognizer(*answers, orientation=orientation)
    reader = PageReader(ReadingConfig(**config), (lambda: recognizer) if answers else never)
    return reader.read(page, "parser 1"), recognizer


# Which way -----------------------------------------------------------------------------------


def test_a_good_text_layer_is_taken_without_drawing_the_page():
    page = FakePage(GOOD)
    result, _ = read(page)
    assert (result.text, result.method, result.reason) == (
        GOOD_TEXT,
        Method.TEXT_LAYER,
        MethodReason.GOOD_TEXT_LAYER,
    )
    assert page.pictures == []
    assert (result.layer_chars, result.layer_bad_ratio) == (len(GOOD_TEXT), 0.0)
    assert result.layer_word_ratio > 0.7
    assert (result.ocr_attempts, result.ocr_engine, result.dpi) == (0, None, None)


def test_every_reading_says_how_large_the_page_is_and_who_opened_it():
    result, _ = read(FakePage(GOOD))
    assert (result.width_pt, result.height_pt, result.rotation_declared) == (595.0, 842.0, 90)
    assert result.parser == "parser 1"


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (NO_LAYER, MethodReason.NO_TEXT_LAYER),
        (STAMP, MethodReason.TOO_FEW_CHARACTERS),
        (BROKEN, MethodReason.REPLACEMENT_CHARACTERS),
        (TextLayer(text=GOOD_TEXT, invisible_ratio=1.0), MethodReason.INVISIBLE_TEXT),
        (None, MethodReason.IMAGE_INPUT),
        (PdfOpsError(ErrorKind.CORRUPT_PAGE_UNREADABLE), MethodReason.TEXT_LAYER_FAILED),
    ],
    ids=lambda value: value.value if isinstance(value, MethodReason) else "",
)
def test_a_page_without_a_good_layer_is_read_by_ocr_for_that_reason(layer, reason):
    result, recognizer = read(FakePage(layer), words("what OCR has read on the page", 88.0))
    assert (result.text, result.method, result.reason) == (
        "what OCR has read on the page",
        Method.OCR,
        reason,
    )
    assert (result.ocr_confidence, result.ocr_confidence_low, result.ocr_words) == (88.0, 88.0, 7)
    assert (result.ocr_attempts, result.ocr_engine, result.dpi) == (1, "fake 1", 150.0)
    assert len(recognizer.shown) == 1


def test_the_figures_of_the_layer_stay_with_a_page_that_ocr_has_read():
    layer = TextLayer(text=GOOD_TEXT, invisible_ratio=0.75, image_coverage=0.5)
    result, _ = read(FakePage(layer), words("read"))
    assert (result.layer_chars, result.layer_invisible_ratio, result.image_coverage) == (
        len(GOOD_TEXT),
        0.75,
        0.5,
    )


def test_the_settings_decide_how_large_the_picture_is():
    page = FakePage()
    read(page, words("read"), dpi=300, max_page_pixels=12_345)
    assert page.pictures == [(300, 12_345)]


def test_an_earlier_ocr_is_trusted_if_the_settings_say_so():
    layer = TextLayer(text=GOOD_TEXT, invisible_ratio=1.0, image_coverage=1.0)
    result, _ = read(FakePage(layer), trust_ocr_layer=True)
    assert result.reason is MethodReason.TRUSTED_OCR_LAYER


def test_forced_ocr_reads_a_page_with_a_good_layer():
    result, _ = read(FakePage(GOOD), words("short"), ocr=OcrMode.FORCE)
    assert (result.text, result.method, result.reason) == ("short", Method.OCR, MethodReason.FORCED)


@pytest.mark.parametrize("mode", OcrMode)
def test_a_page_that_draws_nothing_is_empty_without_ocr_in_any_mode(mode):
    page = FakePage(NOTHING_DRAWN)
    result, _ = read(page, ocr=mode)
    assert (result.text, result.method, result.reason) == ("", Method.EMPTY, MethodReason.NOTHING_DRAWN)
    assert page.pictures == []


@pytest.mark.parametrize(
    ("layer", "text", "method", "reason"),
    [
        (GOOD, GOOD_TEXT, Method.TEXT_LAYER, MethodReason.GOOD_TEXT_LAYER),
        (STAMP, STAMP.text, Method.TEXT_LAYER, MethodReason.OCR_OFF),
        (BROKEN, BROKEN.text, Method.TEXT_LAYER, MethodReason.OCR_OFF),
        (NO_LAYER, "", Method.NONE, MethodReason.OCR_OFF),
        (TextLayer(text=" \n "), "", Method.NONE, MethodReason.OCR_OFF),
        (None, "", Method.NONE, MethodReason.OCR_OFF),
    ],
    ids=["good", "stamp", "broken", "none", "white space", "image"],
)
def test_with_ocr_off_a_page_has_the_text_of_its_layer_or_none(layer, text, method, reason):
    page = FakePage(layer)
    result, _ = read(page, ocr=OcrMode.OFF)
    assert (result.text, result.method, result.reason) == (text, method, reason)
    assert page.pictures == []


def test_with_ocr_off_a_layer_that_cannot_be_read_is_an_error():
    error = PdfOpsError(ErrorKind.CORRUPT_PAGE_UNREADABLE, "no luck")
    with pytest.raises(PdfOpsError) as caught:
        read(FakePage(error), ocr=OcrMode.OFF)
    assert caught.value is error


def test_the_ocr_engine_is_loaded_once_and_only_when_a_page_needs_it():
    loaded = []

    def load():
        loaded.append(FakeRecognizer(words("one"), words("two")))
        return loaded[-1]

    reader = PageReader(ReadingConfig(), load)
    reader.read(FakePage(GOOD), "parser 1")
    reader.read(FakePage(pixels=strokes(ink=255)), "parser 1")
    assert loaded == []
    assert reader.read(FakePage(), "parser 1").text == "one"
    assert reader.read(FakePage(), "parser 1").text == "two"
    assert len(loaded) == 1


# What is kept --------------------------------------------------------------------------------


def test_a_blank_page_is_empty_without_running_ocr():
    result, _ = read(FakePage(pixels=strokes(ink=255)))
    assert (result.text, result.method, result.reason) == ("", Method.EMPTY, MethodReason.BLANK_PAGE)
    assert (result.ocr_attempts, result.dpi) == (0, 150.0)


@pytest.mark.parametrize("layer", [STAMP, BROKEN], ids=["stamp", "broken"])
def test_the_layer_of_a_page_that_looks_blank_is_kept(layer):
    result, _ = read(FakePage(layer, pixels=strokes(ink=255)))
    assert (result.text, result.method, result.reason) == (
        layer.text,
        Method.TEXT_LAYER,
        MethodReason.KEPT_TEXT_LAYER,
    )


@pytest.mark.parametrize("mode", [OcrMode.AUTO, OcrMode.FORCE])
def test_the_layer_is_kept_where_ocr_reads_nothing(mode):
    result, _ = read(FakePage(STAMP), NOTHING, NOTHING, ocr=mode)
    assert (result.text, result.method, result.reason) == (
        STAMP.text,
        Method.TEXT_LAYER,
        MethodReason.KEPT_TEXT_LAYER,
    )
    assert (result.ocr_attempts, result.ocr_engine, result.ocr_confidence) == (2, "fake 1", None)


def test_a_stamp_is_kept_where_ocr_reads_less_than_it():
    result, _ = read(FakePage(STAMP), words("Receiv"))
    assert (result.text, result.reason) == (STAMP.text, MethodReason.KEPT_TEXT_LAYER)


def test_a_broken_layer_is_not_kept_for_being_longer():
    result, _ = read(FakePage(BROKEN), words("ok"))
    assert (result.text, result.method) == ("ok", Method.OCR)


def test_a_page_that_is_not_blank_but_read_as_empty_says_so():
    result, _ = read(FakePage(), NOTHING, NOTHING)
    assert (result.text, result.method, result.reason) == ("", Method.NONE, MethodReason.NO_TEXT_FOUND)
    assert result.ocr_confidence is None


@pytest.mark.parametrize("kind", [ErrorKind.BOMB_PIXELS, ErrorKind.CORRUPT_PAGE_UNREADABLE])
def test_a_doubtful_layer_is_kept_where_the_page_cannot_be_drawn(kind):
    result, _ = read(FakePage(STAMP, pixels=PdfOpsError(kind)))
    assert (result.text, result.method, result.reason) == (
        STAMP.text,
        Method.TEXT_LAYER,
        MethodReason.KEPT_TEXT_LAYER,
    )


@pytest.mark.parametrize(
    "layer",
    [NO_LAYER, None, TextLayer(text=" \r\n\t"), PdfOpsError(ErrorKind.CORRUPT_PAGE_UNREADABLE, "text")],
    ids=["none", "image", "white space", "failed"],
)
def test_a_page_that_has_no_text_and_cannot_be_drawn_is_an_error(layer):
    error = PdfOpsError(ErrorKind.BOMB_PIXELS, "too large")
    with pytest.raises(PdfOpsError) as caught:
        read(FakePage(layer, pixels=error))
    assert caught.value is error


@pytest.mark.parametrize("mode", [OcrMode.AUTO, OcrMode.FORCE])
@pytest.mark.parametrize("layer", [BROKEN, TextLayer(text=" \n")], ids=["broken", "white space"])
def test_a_broken_layer_is_not_kept_where_the_page_cannot_be_drawn(layer, mode):
    error = PdfOpsError(ErrorKind.BOMB_PIXELS)
    with pytest.raises(PdfOpsError) as caught:
        read(FakePage(layer, pixels=error), ocr=mode)
    assert caught.value is error


def test_a_good_layer_is_kept_where_ocr_is_forced_and_the_page_cannot_be_drawn():
    result, _ = read(FakePage(GOOD, pixels=PdfOpsError(ErrorKind.BOMB_PIXELS)), ocr=OcrMode.FORCE)
    assert (result.text, result.reason) == (GOOD_TEXT, MethodReason.KEPT_TEXT_LAYER)


def test_a_page_of_an_impossible_size_has_one_that_a_row_can_hold():
    page = FakePage(GOOD)
    page.size = Geometry(width_pt=float("nan"), height_pt=float("inf"), rotation=-90)
    result, _ = read(page)
    assert (result.width_pt, result.height_pt, result.rotation_declared) == (0.0, MAX_SIDE_PT, 270)
    page.size = Geometry(width_pt=-5.0, height_pt=1e300, rotation=450)
    result, _ = read(page)
    assert (result.width_pt, result.height_pt, result.rotation_declared) == (0.0, MAX_SIDE_PT, 90)


def test_an_engine_that_cannot_work_is_an_error_also_where_there_is_a_layer():
    error = PdfOpsError(ErrorKind.ENGINE_MISCONFIGURED)
    with pytest.raises(PdfOpsError) as caught:
        read(FakePage(STAMP), error)
    assert caught.value is error


def test_running_out_of_memory_is_nothing_that_a_layer_makes_good():
    with pytest.raises(MemoryError):
        read(FakePage(STAMP), MemoryError())


def test_a_page_with_more_text_than_allowed_is_a_bomb(monkeypatch):
    monkeypatch.setattr(reading, "MAX_TEXT_CHARACTERS", len(GOOD_TEXT))
    assert read(FakePage(GOOD))[0].text == GOOD_TEXT
    with pytest.raises(PdfOpsError) as caught:
        read(FakePage(TextLayer(text=GOOD_TEXT + "x")))
    assert caught.value.kind is ErrorKind.BOMB_TEXT


# Attempts ------------------------------------------------------------------------------------


def test_a_page_that_reads_well_is_read_once():
    result, recognizer = read(FakePage(), words("fine", LOW_CONFIDENCE))
    assert (result.ocr_attempts, len(recognizer.shown), recognizer.asked_orientation) == (1, 1, 0)
    assert result.rotation_detected == 0


def test_a_page_of_low_confidence_is_tried_upside_down():
    page = FakePage()
    result, recognizer = read(page, words("s!ɥʇ", LOW_CONFIDENCE - 1), words("this", 90.0))
    assert (result.text, result.ocr_attempts, result.rotation_detected) == ("this", 2, 180)
    assert np.array_equal(recognizer.shown[1], turned(recognizer.shown[0], 180))
    assert recognizer.asked_orientation == 0


def test_what_read_better_the_right_way_up_is_kept():
    result, _ = read(FakePage(), words("a poor but upright page", 50.0), words("worse", 20.0))
    assert (result.text, result.rotation_detected) == ("a poor but upright page", 0)
    assert (result.ocr_attempts, result.ocr_confidence) == (2, 50.0)


def test_a_single_sure_speck_does_not_beat_a_page_of_text():
    poor = words(" ".join(["word"] * 50), 40.0)
    result, _ = read(FakePage(), poor, words("I", 95.0))
    assert (result.ocr_words, result.rotation_detected) == (50, 0)


def test_words_must_be_more_than_half_as_many_and_much_surer_to_count_for_more():
    poor = words(" ".join(["word"] * 50), 30.0)
    for many, confidence, turn in ((25, 55.0, 0), (26, 50.0, 0), (26, 51.0, 180)):
        result, _ = read(FakePage(), poor, words(" ".join(["word"] * many), confidence))
        assert result.rotation_detected == turn


def test_fewer_but_much_surer_words_do_beat_a_page_of_noise():
    noise = words(" ".join(["n0!se"] * 50), 25.0)
    result, _ = read(FakePage(), noise, words(" ".join(["word"] * 26), 47.0))
    assert (result.ocr_words, result.rotation_detected) == (26, 180)


@pytest.mark.parametrize("turn", [90, 270])
def test_after_that_the_orientation_detector_is_asked(turn):
    answers = [words("no", 30.0), words("on", 20.0), words("yes indeed", 90.0)]
    result, recognizer = read(FakePage(), *answers, orientation=turn)
    assert (result.text, result.ocr_attempts, result.rotation_detected) == ("yes indeed", 3, turn)
    assert np.array_equal(recognizer.shown[2], turned(recognizer.shown[0], turn))


@pytest.mark.parametrize("turn", [None, 0, 180])
def test_a_detector_that_has_nothing_new_to_say_costs_no_attempt(turn):
    result, recognizer = read(FakePage(), words("no", 30.0), words("on", 20.0), orientation=turn)
    assert (result.text, result.ocr_attempts, recognizer.asked_orientation) == ("no", 2, 1)


@pytest.mark.parametrize(("turn", "own", "sum_of_both"), [(90, 270, 0), (90, 90, 180), (270, 270, 180)])
def test_the_turn_that_the_engine_made_by_itself_is_added_to_ours(turn, own, sum_of_both):
    answers = [words("no", 30.0), words("on", 20.0), words("yes", 90.0, rotation=own)]
    result, _ = read(FakePage(), *answers, orientation=turn)
    assert result.rotation_detected == sum_of_both


def test_empty_text_on_a_page_that_is_not_blank_is_tried_in_another_orientation():
    result, recognizer = read(FakePage(), NOTHING, words("upside down", 80.0))
    assert (result.text, result.ocr_attempts, result.rotation_detected) == ("upside down", 2, 180)
    assert len(recognizer.shown) == 2


def test_empty_text_on_a_flattened_page_is_tried_again_as_it_was():
    page = FakePage(pixels=shadowed_strokes())
    result, recognizer = read(page, NOTHING, NOTHING, words("in the shadow", 80.0))
    assert (result.text, result.ocr_attempts, result.method) == ("in the shadow", 3, Method.OCR)
    flat, _, raw = recognizer.shown
    assert not np.array_equal(flat, page.pixels)
    assert raw is page.pixels


def test_an_even_page_is_not_tried_again_as_it_is_what_it_was():
    page = FakePage()
    result, recognizer = read(page, NOTHING, NOTHING)
    assert result.ocr_attempts == 2
    assert recognizer.shown[0] is page.pixels


def test_at_most_three_attempts_are_made_at_one_picture():
    bad = [words("bad", 10.0)] * 3
    best, turn, attempts = recognize_upright(
        FakeRecognizer(*bad, orientation=90), Picture(pixels=strokes(), dpi=150.0)
    )
    assert (best.text, turn, attempts) == ("bad", 0, 3)


def test_a_stopwatch_gives_the_milliseconds_of_each_lap(monkeypatch):
    moments = iter([10.0, 10.5, 12.0])
    monkeypatch.setattr(reading.time, "perf_counter", lambda: next(moments))
    watch = reading.Stopwatch()
    assert [watch.lap_ms(), watch.lap_ms()] == [500.0, 1500.0]


# Text ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("odd", "plain"),
    [
        ("a\r\nb\rc\nd", "a\nb\nc\nd"),
        ("a\0b", "ab"),
        ("a\u2028b\u2029c", "a\nb\nc"),
        ("hyphen\ufffeation", "hyphen-ation"),
        ("a\ud800b\udfff", "a?b?"),
        ("tab\tstays", "tab\tstays"),
        ("é 漢 \N{GRINNING FACE}", "é 漢 \N{GRINNING FACE}"),
        ("", ""),
    ],
)
def test_text_is_cleaned(odd, plain):
    assert clean_text(odd) == plain


@STEADY
@given(st.text(st.characters()))
def test_clean_text_can_be_written_anywhere_and_cleaning_it_again_changes_nothing(text):
    clean = clean_text(text)
    clean.encode("utf-8")
    assert not set(clean) & set("\0\r\v\f\x1b\x7f\x9b\u2028\u2029\ufffe")
    assert clean_text(clean) == clean
    assert len(clean) <= len(text)


def test_both_the_layer_and_what_ocr_read_are_cleaned():
    assert read(FakePage(TextLayer(text=GOOD_TEXT + "\r\n\0")))[0].text == GOOD_TEXT + "\n"
    assert read(FakePage(), words("one\r\ntwo"))[0].text == "one\ntwo"
