from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw, ImageFont
from tests.unit.ocr_worker.builders import STEADY

from ocr_worker.engines import Picture, Recognition, tesseract
from ocr_worker.engines.tesseract import (
    TesserocrRecognizer,
    _set_image,
    check_languages,
    data_folder,
    has_orientation_data,
    installed_languages,
    load_recognizer,
    package_of,
    recognition_of,
)
from pdf_ops.contract.errors import ErrorKind, PdfOpsError

HEADER = "level\tpage_num\tblock_num\tpar_num\tline_num\tword_num\tleft\ttop\twidth\theight\tconf\ttext"


def word(text, conf=95.5, *, block=1, par=1, line=1, number=1, width=80, height=20):
    return f"5\t1\t{block}\t{par}\t{line}\t{number}\t10\t10\t{width}\t{height}\t{conf}\t{text}"


def level(number, block=0, par=0, line=0):
    """A row for the page, a block, a paragraph or a line, as Tesseract puts them between the words."""
    return f"{number}\t1\t{block}\t{par}\t{line}\t0\t0\t0\t500\t500\t-1\t"


def text_of(*rows):
    return recognition_of("\n".join(rows)).text


# Words into text -----------------------------------------------------------------------------


def test_words_make_lines_lines_make_paragraphs_and_blocks_are_set_apart():
    assert (
        text_of(
            level(1),
            level(2, 1),
            level(3, 1, 1),
            level(4, 1, 1, 1),
            word("The"),
            word("first", number=2),
            level(4, 1, 1, 2),
            word("line.", line=2),
            level(3, 1, 2),
            word("Another", par=2),
            word("paragraph.", par=2, number=2),
            level(2, 2),
            word("Block", block=2),
            word("two.", block=2, number=2),
        )
        == "The first\nline.\n\nAnother paragraph.\n\nBlock two."
    )


def test_the_header_that_the_program_writes_is_no_word():
    with_header = recognition_of(f"{HEADER}\n{word('text')}")
    assert with_header == recognition_of(word("text"))
    assert with_header.text == "text"


@pytest.mark.parametrize("tsv", ["", "\n\n", HEADER, level(1), "garbage", "5\t1\t1", word(""), word("   ")])
def test_without_words_there_is_no_text(tsv):
    recognition = recognition_of(tsv)
    assert (recognition.text, recognition.confidences) == ("", ())
    assert (recognition.mean, recognition.low) == (0.0, 0.0)


def test_empty_words_leave_neither_a_gap_nor_a_confidence():
    rows = [
        word("one"),
        word(" ", 10.0, number=2),
        word("two", number=3),
        word("", 0.0, line=2),
        word("three", line=3),
    ]
    recognition = recognition_of("\n".join(rows))
    assert recognition.text == "one two\nthree"
    assert recognition.confidences == (95.5, 95.5, 95.5)


def test_each_word_has_its_confidence_between_0_and_100():
    rows = [word("a", 12), word("b", "96.123", number=2), word("c", -1, number=3), word("d", 130, number=4)]
    assert recognition_of("\n".join(rows)).confidences == (12.0, 96.123, 0.0, 100.0)


def test_a_word_may_hold_anything_but_a_line_break():
    assert text_of(word('"quoted"\tand\ttabbed')) == '"quoted"\tand\ttabbed'
    assert text_of(word("naïve"), word("漢字", number=2)) == "naïve 漢字"


def test_carriage_returns_at_the_end_of_rows_are_no_text():
    assert recognition_of(f"{HEADER}\r\n{word('one')}\r\n{word('two', number=2)}\r\n").text == "one two"


def test_the_mean_and_the_low_end_of_the_confidences():
    recognition = Recognition(text="", confidences=tuple(float(number) for number in range(100, 0, -1)))
    assert recognition.mean == 50.5
    assert recognition.low == 11.0
    assert Recognition(text="a", confidences=(42.0,)).low == 42.0


def test_words_that_stand_upright_mean_that_tesseract_turned_the_page_itself():
    upright = [word("standing", width=20, height=80, number=number) for number in range(3)]
    lying = [word("lying", number=number) for number in range(2)]
    assert recognition_of("\n".join(upright + lying)).rotation == 270
    assert recognition_of("\n".join(upright[:2] + lying)).rotation == 0
    assert recognition_of("\n".join(lying)).rotation == 0


def test_short_words_and_other_scripts_tell_nothing_about_the_orientation():
    assert recognition_of("\n".join([word("il", width=5, height=20)] * 9)).rotation == 0
    assert recognition_of("\n".join([word("縦書きの文", width=20, height=100)] * 9)).rotation == 0


@STEADY
@given(
    words=st.lists(
        st.tuples(
            st.integers(1, 3),
            st.integers(1, 2),
            st.integers(1, 2),
            st.text("abcß漢 .", max_size=5),
            st.floats(-1, 100),
        ),
        max_size=20,
    )
)
def test_the_text_holds_every_word_in_order_and_a_confidence_for_each(words):
    rows = [word(text, conf, block=block, par=par, line=line) for block, par, line, text, conf in words]
    recognition = recognition_of("\n".join(rows))
    expected = [text.strip() for *_, text, _ in words if text.strip()]
    assert recognition.text.split() == " ".join(expected).split()
    assert len(recognition.confidences) == len(expected)
    assert all(0 <= confidence <= 100 for confidence in recognition.confidences)


# Languages -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("language", "package"),
    [
        ("eng", "tesseract-ocr-eng"),
        ("chi_sim", "tesseract-ocr-chi-sim"),
        ("chi_sim_vert", "tesseract-ocr-chi-sim-vert"),
        ("srp_latn", "tesseract-ocr-srp-latn"),
        ("script/Latin", "tesseract-ocr-script-latn"),
        ("script/Cyrillic", "tesseract-ocr-script-cyrl"),
        ("script/Arabic", "tesseract-ocr-script-arab"),
        ("script/Greek", "tesseract-ocr-script-grek"),
        ("script/HanS", "tesseract-ocr-script-hans"),
        ("script/HanT_vert", "tesseract-ocr-script-hant-vert"),
        ("script/Japanese", "tesseract-ocr-script-jpan"),
        ("script/Japanese_vert", "tesseract-ocr-script-jpan-vert"),
        ("script/Hangul_vert", "tesseract-ocr-script-hang-vert"),
        ("script/Canadian_Aboriginal", "tesseract-ocr-script-cans"),
        ("script/Devanagari", "tesseract-ocr-script-deva"),
        ("script/Fraktur", "tesseract-ocr-script-frak"),
        ("script/Lao", "tesseract-ocr-script-laoo"),
        ("script/Vietnamese", "tesseract-ocr-script-viet"),
    ],
)
def test_the_package_of_a_language_is_the_one_that_debian_has(language, package):
    assert package_of(language) == package


def install(folder, *languages):
    for language in languages:
        path = folder / f"{language}.traineddata"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


@pytest.fixture
def tessdata(tmp_path, monkeypatch):
    monkeypatch.setenv("TESSDATA_PREFIX", str(tmp_path))
    return tmp_path


def test_installed_languages_are_those_with_data_in_order_and_without_the_orientation(tessdata):
    install(tessdata, "osd", "eng", "chi_sim", "script/Latin")
    (tessdata / "pdf.ttf").touch()
    assert installed_languages() == ("chi_sim", "eng", "script/Latin")
    assert has_orientation_data()
    check_languages(["eng", "script/Latin"])


def test_the_data_may_lie_in_a_folder_of_the_usual_name_below_the_one_that_is_named(tessdata):
    install(tessdata / "tessdata", "eng")
    assert data_folder() == tessdata / "tessdata"
    assert installed_languages() == ("eng",)
    assert not has_orientation_data()


def test_a_folder_that_is_named_but_holds_no_data_is_not_replaced_by_another(tessdata, monkeypatch):
    assert data_folder() is None
    assert installed_languages() == ()
    assert not has_orientation_data()
    monkeypatch.setenv("TESSDATA_PREFIX", str(tessdata / "missing"))
    assert data_folder() is None


def test_without_a_name_the_folders_of_the_distributions_are_tried(tmp_path, monkeypatch):
    monkeypatch.delenv("TESSDATA_PREFIX", raising=False)
    monkeypatch.setattr(tesseract, "_DATA_FOLDERS", (str(tmp_path / "missing"), str(tmp_path)))
    assert data_folder() == tmp_path
    monkeypatch.setattr(tesseract, "_DATA_FOLDERS", ())
    assert data_folder() is None


def test_all_missing_languages_are_named_with_the_command_that_installs_them(tessdata):
    install(tessdata, "eng", "osd")
    with pytest.raises(PdfOpsError) as caught:
        check_languages(iter(["deu", "eng", "chi_sim", "script/Latin", "osd"]))
    assert caught.value.kind is ErrorKind.ENGINE_MISSING_LANGUAGE
    assert caught.value.detail == (
        "Tesseract has no data for deu, chi_sim, script/Latin, osd (installed: eng); run: apt-get install "
        "tesseract-ocr-deu tesseract-ocr-chi-sim tesseract-ocr-script-latn tesseract-ocr-osd"
    )


def test_without_any_language_the_message_says_so(tessdata):
    with pytest.raises(PdfOpsError, match=r"no data for eng \(installed: none\)"):
        check_languages(["eng"])


# Engines -------------------------------------------------------------------------------------


def test_an_engine_that_does_not_exist_is_refused_by_name():
    with pytest.raises(PdfOpsError, match="no OCR engine is called 'abbyy'") as caught:
        load_recognizer("abbyy", "eng")
    assert caught.value.kind is ErrorKind.ENGINE_MISCONFIGURED


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("auto", "neither tesserocr nor the tesseract program is installed"),
        ("tesserocr", "tesserocr is not installed"),
        ("pytesseract", "pytesseract is not installed"),
    ],
)
def test_an_engine_that_is_not_installed_is_named(name, words, monkeypatch):
    monkeypatch.setattr(tesseract, "tesserocr_version", lambda: None)
    monkeypatch.setattr(tesseract, "program_version", lambda: None)
    with pytest.raises(PdfOpsError, match=words) as caught:
        load_recognizer(name, "eng")
    assert caught.value.kind is ErrorKind.ENGINE_MISSING_ENGINE


@pytest.mark.parametrize(
    ("name", "has_library", "expected"),
    [("auto", True, "library"), ("auto", False, "program"), ("pytesseract", True, "program")],
)
def test_the_engine_in_this_process_goes_first_unless_the_program_is_asked_for(
    name, has_library, expected, monkeypatch
):
    monkeypatch.setattr(tesseract, "tesserocr_version", lambda: "tesserocr 2" if has_library else None)
    monkeypatch.setattr(tesseract, "program_version", lambda: "tesseract 5")
    monkeypatch.setattr(tesseract, "TesserocrRecognizer", lambda languages: ("library", languages))
    monkeypatch.setattr(tesseract, "PytesseractRecognizer", lambda languages: ("program", languages))
    assert load_recognizer(name, "eng+deu") == (expected, "eng+deu")


@pytest.mark.parametrize("turn", [0, 90])
def test_words_taken_one_by_one_are_those_that_the_program_would_print(turn):
    rows = ["Minutes of the annual meeting", "of the harbour board", "", "Everybody was present, and nobody"]
    drawing = Image.new("L", (1000, 520), 255)
    pen = ImageDraw.Draw(drawing)
    font = ImageFont.load_default(44)
    for number, row in enumerate(rows):
        pen.text((60, 60 + 100 * number), row, fill=0, font=font)
    pixels = np.ascontiguousarray(np.asarray(drawing.rotate(-turn, expand=True)))
    recognizer = TesserocrRecognizer("eng")
    read = recognizer.recognize(Picture(pixels=pixels, dpi=200))
    _set_image(recognizer._api, Picture(pixels=pixels, dpi=200))
    recognizer._api.Recognize()
    printed = recognition_of(recognizer._api.GetTSVText(0))
    assert "annual meeting" in read.text
    assert "\n" in read.text
    assert (read.text, read.rotation) == (printed.text, printed.rotation)
    assert read.confidences == pytest.approx(printed.confidences, abs=0.001)


def test_a_picture_without_words_reads_as_nothing():
    empty = Picture(pixels=np.full((400, 400), 255, np.uint8), dpi=200)
    assert TesserocrRecognizer("eng").recognize(empty) == Recognition(text="", confidences=())
