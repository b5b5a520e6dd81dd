from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.ocr_worker.builders import STEADY, error_page, good_page, page_row

from ocr_worker import protocol
from ocr_worker.limits import Limits
from ocr_worker.protocol import (
    BadAnswerError,
    Failed,
    Opened,
    PageAnswer,
    ProcessConfig,
    SliceEnd,
    SliceRequest,
    decode_answer,
    encode_end,
    encode_failed,
    encode_opened,
    encode_pages,
)
from ocr_worker.reading import MAX_TEXT_CHARACTERS, Reading
from pdf_ops.contract.errors import ErrorKind, PdfOpsError, Phase
from pdf_ops.contract.fingerprint import OcrMode, ReadingConfig
from pdf_ops.contract.media import MediaType
from pdf_ops.contract.pages import Method, MethodReason, to_record_batch

FULL_READING = Reading(
    text="Zahl \N{GRINNING FACE} é\n",
    method=Method.OCR,
    reason=MethodReason.NO_TEXT_LAYER,
    layer_chars=3,
    layer_bad_ratio=0.5,
    layer_word_ratio=0.25,
    layer_invisible_ratio=0.125,
    layer_hidden_ratio=0.25,
    image_coverage=1.0,
    ocr_confidence=91.5,
    ocr_confidence_low=40.25,
    ocr_words=3,
    ocr_attempts=2,
    width_pt=595.5,
    height_pt=842.0,
    rotation_declared=90,
    rotation_detected=270,
    dpi=200.0,
    parser="pdfium 1",
    ocr_engine="tesseract 5",
    text_ms=1.5,
    render_ms=2.5,
    prepare_ms=3.5,
    ocr_ms=4.5,
)
FIELDS = [field.name for field in dataclasses.fields(Reading)]
NUMBERS = [
    field.name
    for field in dataclasses.fields(Reading)
    if isinstance(getattr(FULL_READING, field.name), int | float)
]
WHOLE = [name for name in NUMBERS if isinstance(getattr(FULL_READING, name), int)]
OPTIONAL = [field.name for field in dataclasses.fields(Reading) if field.default is None]

CHARACTERS = st.characters(exclude_categories=["Cs"])
MILLISECONDS = st.floats(0, 1e9)
RATIOS = st.none() | st.floats(0, 1)
READINGS = st.builds(
    Reading,
    text=st.text(CHARACTERS, max_size=50),
    method=st.sampled_from(Method),
    reason=st.sampled_from(MethodReason),
    layer_chars=st.integers(0, MAX_TEXT_CHARACTERS),
    layer_bad_ratio=RATIOS,
    layer_word_ratio=RATIOS,
    layer_invisible_ratio=RATIOS,
    layer_hidden_ratio=RATIOS,
    image_coverage=RATIOS,
    ocr_confidence=st.none() | st.floats(0, 100),
    ocr_confidence_low=st.none() | st.floats(0, 100),
    ocr_words=st.none() | st.integers(0, 10_000),
    ocr_attempts=st.integers(0, 10),
    width_pt=st.none() | st.floats(0, 1e7),
    height_pt=st.none() | st.floats(0, 1e7),
    rotation_declared=st.sampled_from([0, 90, 180, 270]),
    rotation_detected=st.sampled_from([0, 90, 180, 270]),
    dpi=st.none() | st.floats(20, 1200),
    parser=st.none() | st.text(CHARACTERS, max_size=20),
    ocr_engine=st.none() | st.text(CHARACTERS, max_size=20),
    text_ms=MILLISECONDS,
    render_ms=MILLISECONDS,
    prepare_ms=MILLISECONDS,
    ocr_ms=MILLISECONDS,
)
ERRORS = st.builds(
    PdfOpsError, st.sampled_from(ErrorKind), st.text(max_size=50), phase=st.none() | st.sampled_from(Phase)
)
INDEXES = st.integers(0, 2**31 - 1)
PAGES = st.builds(PageAnswer, INDEXES, READINGS, st.none(), MILLISECONDS, MILLISECONDS) | st.builds(
    PageAnswer, INDEXES, st.none(), ERRORS, MILLISECONDS, MILLISECONDS
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=8), inner, max_size=6),
    max_leaves=20,
)


def same_error(one, other):
    return (one.kind, one.detail, one.phase) == (other.kind, other.detail, other.phase)


def assert_valid(answer):
    """What the main process relies on: each field within its bounds, and fit to be written."""
    match answer:
        case Opened(page_count=page_count, open_ms=open_ms):
            assert type(page_count) is int
            assert 1 <= page_count < 2**31
            assert 0 <= open_ms <= 1e9
        case Failed(error=error):
            assert isinstance(error, PdfOpsError)
        case SliceEnd():
            pass
        case list():
            for page in answer:
                assert_valid_page(page)
        case _:
            pytest.fail(f"no answer: {answer!r}")


def assert_valid_page(page):
    assert type(page.index) is int
    assert 0 <= page.index < 2**31
    assert 0 <= page.total_ms <= 1e9
    assert 0 <= page.cpu_ms <= 1e9
    assert (page.reading is None) != (page.error is None)
    if page.reading is None:
        assert isinstance(page.error, PdfOpsError)
        return
    values = {name: getattr(page.reading, name) for name in FIELDS}
    assert len(values["text"]) <= MAX_TEXT_CHARACTERS
    assert isinstance(values["method"], Method)
    assert isinstance(values["reason"], MethodReason)
    for name in NUMBERS:
        value = values[name]
        assert value is None or (type(value) in (int, float) and math.isfinite(value) and value >= 0)
        assert value is not None or name in OPTIONAL
    del values["reason"]
    row = page_row(**values, method_reason=page.reading.reason, char_count=len(page.reading.text))
    to_record_batch([row])


# What the main process says ------------------------------------------------------------------


@pytest.mark.parametrize(
    "config",
    [
        ProcessConfig(reading=ReadingConfig(), limits=Limits(memory_bytes=2**30, page_timeout_s=60.0)),
        ProcessConfig(
            reading=ReadingConfig(
                ocr=OcrMode.FORCE,
                languages=("eng", "script/Latin"),
                dpi=300,
                max_page_pixels=10**6,
                trust_ocr_layer=True,
            ),
            limits=Limits(memory_bytes=2**40, page_timeout_s=0.25),
            recognizer="package.module:factory",
            parser="package.module:other",
            max_pages=7,
            profile_folder=Path("/tmp/a folder"),
        ),
    ],
    ids=["default", "all set"],
)
def test_a_configuration_arrives_as_it_was_sent(config):
    received = ProcessConfig.decode(config.encode())
    assert received == config
    assert received.reading.config_hash == config.reading.config_hash


@pytest.mark.parametrize(
    "name", ["a.pdf", "with space\nand line.pdf", "ü.pdf", "not-utf8-\udcff.pdf", "\N{GRINNING FACE}.pdf"]
)
@pytest.mark.parametrize("password", [None, "", "pässword\"'\\"])
@pytest.mark.parametrize("how", [None, ReadingConfig(ocr=OcrMode.OFF, languages=("deu", "eng"))])
def test_a_request_arrives_as_it_was_sent_whatever_the_file_is_called(name, password, how):
    request = SliceRequest(
        path=Path("/in") / name,
        media_type=MediaType.TIFF,
        first=3,
        last=2**31,
        is_careful=True,
        password=password,
        page_count=12,
        reading=how,
    )
    assert SliceRequest.decode(request.encode()) == request


def test_a_request_without_extras_arrives_as_it_was_sent():
    request = SliceRequest(path=Path("a"), media_type=MediaType.PDF, first=0, last=1)
    assert SliceRequest.decode(request.encode()) == request


# What a page process says --------------------------------------------------------------------


@pytest.mark.parametrize(("page_count", "open_ms"), [(1, 0.0), (2**31 - 1, 1e9), (20, 3)])
def test_opened_arrives_as_it_was_sent(page_count, open_ms):
    assert decode_answer(encode_opened(page_count, open_ms)) == Opened(page_count, open_ms)


def test_the_end_arrives_as_it_was_sent():
    assert decode_answer(encode_end()) == SliceEnd()


@STEADY
@given(error=ERRORS)
def test_a_failure_arrives_as_it_was_sent(error):
    answer = decode_answer(encode_failed(error))
    assert isinstance(answer, Failed)
    assert same_error(answer.error, error)


@STEADY
@given(pages=st.lists(PAGES, max_size=4))
def test_pages_arrive_as_they_were_sent(pages):
    answer = decode_answer(encode_pages(pages))
    assert_valid(answer)
    assert len(answer) == len(pages)
    for received, sent in zip(answer, pages, strict=True):
        without = dataclasses.replace(sent, error=None)
        assert dataclasses.replace(received, error=None) == without
        assert (received.error is None) == (sent.error is None)
        assert sent.error is None or same_error(received.error, sent.error)


def test_every_field_of_a_reading_arrives():
    page = PageAnswer(7, FULL_READING, None, 12.5, 10.25)
    assert [getattr(FULL_READING, name) for name in FIELDS].count(None) == 0
    assert decode_answer(encode_pages([page])) == [page]


def test_text_that_is_no_valid_unicode_arrives_as_text_that_is():
    (page,) = decode_answer(encode_pages([good_page(0, "a\ud800b")]))
    assert page.reading.text == "a?b"


# What it never says --------------------------------------------------------------------------


def page_wire(**changes):
    """A valid page as JSON, some fields of its reading changed."""
    (page,) = json.loads(encode_pages([PageAnswer(7, FULL_READING, None, 1.0, 1.0)]))["pages"]
    for name, value in changes.items():
        page[1][FIELDS.index(name)] = value
    return page


def refused(wire):
    with pytest.raises(BadAnswerError) as caught:
        decode_answer(json.dumps(wire).encode())
    return str(caught.value)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, -1, -1e-9, 1e10, 10**400, True, False, "1", [1], {}], ids=repr
)
def test_a_number_out_of_its_bounds_is_refused(name, value):
    assert "no " in refused({"pages": [page_wire(**{name: value})]})


@pytest.mark.parametrize("name", WHOLE)
def test_a_fraction_in_place_of_a_whole_number_is_refused(name):
    refused({"pages": [page_wire(**{name: 1.0})]})


@pytest.mark.parametrize("name", [name for name in FIELDS if name not in OPTIONAL])
def test_a_field_that_is_always_there_must_not_be_missing(name):
    refused({"pages": [page_wire(**{name: None})]})


@pytest.mark.parametrize("name", OPTIONAL)
def test_a_field_that_may_be_missing_may_be(name):
    (page,) = decode_answer(json.dumps({"pages": [page_wire(**{name: None})]}).encode())
    assert getattr(page.reading, name) is None


@pytest.mark.parametrize("name", ["method", "reason"])
@pytest.mark.parametrize("value", ["", "OCR", "magic", 7, None, ["ocr"], {"ocr": 1}, True], ids=repr)
def test_a_word_that_is_none_of_ours_is_refused(name, value):
    refused({"pages": [page_wire(**{name: value})]})


@pytest.mark.parametrize("text", [7, None, ["a"], {"a": 1}, True], ids=repr)
def test_text_that_is_no_string_is_refused(text):
    refused({"pages": [page_wire(text=text)]})


def test_more_text_than_a_page_may_have_is_refused(monkeypatch):
    monkeypatch.setattr(protocol, "MAX_TEXT_CHARACTERS", 100)
    assert decode_answer(json.dumps({"pages": [page_wire(text="x" * 100)]}).encode())
    refused({"pages": [page_wire(text="x" * 101)]})


@pytest.mark.parametrize("name", ["text", "parser", "ocr_engine"])
def test_a_lone_surrogate_is_refused_as_no_file_could_hold_it(name):
    refused({"pages": [page_wire(**{name: "a\ud800b"})]})


@pytest.mark.parametrize("name", ["parser", "ocr_engine"])
@pytest.mark.parametrize("value", ["x" * 201, 7, ["pdfium"]], ids=["long", "number", "list"])
def test_the_name_of_an_engine_is_a_short_string(name, value):
    refused({"pages": [page_wire(**{name: value})]})


@pytest.mark.parametrize(
    "page",
    [
        [7, None, None, 1.0, 1.0],
        [7, page_wire()[1], ["CRASH/page", "", "ocr"], 1.0, 1.0],
        [-1, None, ["CRASH/page", "", "ocr"], 1.0, 1.0],
        [2**31, None, ["CRASH/page", "", "ocr"], 1.0, 1.0],
        [True, None, ["CRASH/page", "", "ocr"], 1.0, 1.0],
        [7, None, ["CRASH/page", "", "ocr"], math.nan, 1.0],
        [7, None, ["CRASH/page", "", "ocr"], 1.0, -1.0],
        [7, None, ["CRASH/page", "", "ocr"], 1.0],
        [7, None, ["CRASH/page", "", "ocr"], 1.0, 1.0, 1.0],
        [7, page_wire()[1][:-1], None, 1.0, 1.0],
        [7, [*page_wire()[1], 0.0], None, 1.0, 1.0],
        [7, dict.fromkeys(FIELDS, 0), None, 1.0, 1.0],
        [7, "x" * len(FIELDS), None, 1.0, 1.0],
        "abcde",
        None,
        7,
    ],
    ids=range(16),
)
def test_a_page_out_of_shape_is_refused(page):
    refused({"pages": [page]})


@pytest.mark.parametrize(
    "error",
    [
        ["CRASH/forged", "", "ocr"],
        ["", "", "ocr"],
        [7, "", "ocr"],
        [["CRASH/page"], "", "ocr"],
        ["CRASH/page", 7, "ocr"],
        ["CRASH/page", None, "ocr"],
        ["CRASH/page", "", "lunch"],
        ["CRASH/page", "", None],
        ["CRASH/page", "", ["ocr"]],
        ["CRASH/page", ""],
        ["CRASH/page", "", "ocr", ""],
        None,
        7,
        "abc",
    ],
    ids=repr,
)
def test_an_error_out_of_shape_is_refused(error):
    refused({"failed": error})
    refused({"pages": [[7, None, error or [], 1.0, 1.0]]})


def test_the_detail_of_an_error_is_made_safe_again():
    forged = {"failed": ["CRASH/page", "a\nERROR forged\x1b[2J\u202e\ud800" + "x" * 10**6, "ocr"]}
    answer = decode_answer(json.dumps(forged).encode())
    assert answer.error.detail.startswith("a ERROR forged [2J x")
    assert len(answer.error.detail) <= 500


@pytest.mark.parametrize(
    "opened",
    [
        [0, 1.0], [-1, 1.0], [2**31, 1.0], [1.0, 1.0], [True, 1.0], ["1", 1.0], [1, math.nan], [1, -1],
        [1], [], 7, None, "11", {"0": 1},
    ],
    ids=repr,
)  # fmt: skip
def test_a_page_count_out_of_its_bounds_is_refused(opened):
    refused({"opened": opened})


@pytest.mark.parametrize(
    "wire",
    [{}, [], None, 7, "end", {"end": True, "opened": [1, 1.0]}, {"other": 1}, [["end", True]]],
    ids=repr,
)
def test_an_answer_of_no_known_kind_is_refused(wire):
    refused(wire)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00",
        b"{",
        b'{"end":true',
        b'{"end":true}x',
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b'{"pages":' + b"[" * 100_000,
        b'{"opened":[' + b"9" * 5_000 + b",1]}",
        b'{"opened":[1,1e999]}',
    ],
    ids=range(10),
)
def test_bytes_that_are_no_answer_are_refused(content):
    with pytest.raises(BadAnswerError):
        decode_answer(content)


@STEADY
@given(content=st.binary(max_size=200))
def test_any_bytes_are_an_answer_or_refused(content):
    check(content)


@STEADY
@given(
    wire=JSON
    | st.dictionaries(st.sampled_from(["pages", "opened", "failed", "end"]), JSON, min_size=1, max_size=2)
)
def test_any_json_is_an_answer_or_refused(wire):
    check(json.dumps(wire).encode())


@STEADY
@given(data=st.data(), value=JSON)
def test_a_valid_answer_with_anything_put_anywhere_in_it_is_an_answer_or_refused(data, value):
    sent = data.draw(
        st.sampled_from(
            [
                encode_pages([PageAnswer(7, FULL_READING, None, 1.0, 1.0), error_page(8)]),
                encode_failed(PdfOpsError(ErrorKind.CORRUPT_TRUNCATED, "the end is missing")),
                encode_opened(12, 3.5),
            ]
        )
    )
    wire = json.loads(sent)
    parent, key = data.draw(st.sampled_from(list(places(wire))))
    parent[key] = value
    check(json.dumps(wire).encode())


@STEADY
@given(data=st.data())
def test_a_valid_answer_with_bytes_changed_is_an_answer_or_refused(data):
    content = bytearray(encode_pages([PageAnswer(7, FULL_READING, None, 1.0, 1.0), error_page(8)]))
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(content) - 1))
        content[position] = data.draw(st.integers(0, 255))
    check(bytes(content))


def places(wire):
    """Every place inside a JSON value, as its container and key."""
    items = wire.items() if isinstance(wire, dict) else enumerate(wire)
    for key, value in list(items):
        yield wire, key
        if isinstance(value, dict | list):
            yield from places(value)


def check(content):
    try:
        answer = decode_answer(content)
    except BadAnswerError:
        return
    assert_valid(answer)
