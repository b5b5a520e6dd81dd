from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdf_ops.contract import fingerprint
from pdf_ops.contract.fingerprint import OcrMode, ReadingConfig, ReadingConfigError, parse_languages

LANGUAGE = st.from_regex(r"\A(script/)?[A-Za-z]{1,8}(_[a-z]{1,5})?\Z")
CONFIGS = st.builds(
    ReadingConfig,
    ocr=st.sampled_from(OcrMode),
    languages=st.lists(LANGUAGE, min_size=1, max_size=4, unique=True).map(tuple),
    dpi=st.integers(36, 1200),
    max_page_pixels=st.integers(1, 10**10),
    trust_ocr_layer=st.booleans(),
)


def test_the_default_settings_have_the_hash_they_always_had():
    """If this fails, every document counts as unread: bump READING_VERSION knowingly, then this value."""
    assert ReadingConfig().config_hash == "583a1ae52b9bd7c0"


def test_the_hash_does_not_depend_on_the_process():
    code = (
        "from pdf_ops.contract.fingerprint import ReadingConfig;"
        "print(ReadingConfig(languages=('eng', 'deu')).config_hash)"
    )
    hashes = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("0", "1", "4242")
    }
    assert hashes == {ReadingConfig(languages=("eng", "deu")).config_hash}


@given(CONFIGS, CONFIGS)
def test_settings_have_the_same_hash_exactly_when_they_are_the_same(one, other):
    assert (one.config_hash == other.config_hash) == (one == other)
    assert len(one.config_hash) == 16
    int(one.config_hash, 16)


@pytest.mark.parametrize(
    "change",
    [
        {"ocr": OcrMode.FORCE},
        {"languages": ("deu",)},
        {"languages": ("eng", "deu")},
        {"dpi": 201},
        {"max_page_pixels": 1},
        {"trust_ocr_layer": True},
    ],
    ids=str,
)
def test_every_setting_changes_the_hash(change):
    assert dataclasses.replace(ReadingConfig(), **change).config_hash != ReadingConfig().config_hash


def test_every_setting_is_covered_by_the_test_above():
    changed = {"ocr", "languages", "dpi", "max_page_pixels", "trust_ocr_layer"}
    assert {field.name for field in dataclasses.fields(ReadingConfig)} == changed


@pytest.mark.parametrize("version", ["READING_VERSION", "PAGE_SCHEMA_VERSION"])
def test_a_new_version_of_reading_or_of_the_schema_changes_the_hash(version, monkeypatch):
    before = ReadingConfig().config_hash
    monkeypatch.setattr(fingerprint, version, 999)
    assert ReadingConfig().config_hash != before


def test_the_leading_language_matters_to_the_hash():
    one, other = ReadingConfig(languages=("eng", "deu")), ReadingConfig(languages=("deu", "eng"))
    assert one.config_hash != other.config_hash


@given(CONFIGS)
def test_languages_survive_being_written_and_parsed(config):
    assert parse_languages(config.languages_label) == config.languages


@pytest.mark.parametrize(
    "label",
    [
        "eng",
        "eng+deu",
        "chi_sim",
        "chi_sim_vert+eng",
        "script/Latin",
        "script/HanS_vert",
        "deu_latf",
        "eng-best",
    ],
)
def test_tesseracts_own_names_are_taken(label):
    assert parse_languages(label) == tuple(label.split("+"))


@pytest.mark.parametrize(
    ("label", "problem"),
    [
        ("", "none is given"),
        ("+", "empty"),
        ("eng+", "name 2 is empty"),
        ("+eng", "name 1 is empty"),
        ("eng++deu", "name 2 is empty"),
        ("eng+eng", "given twice"),
        ("eng, deu", "not a language name"),
        (" eng", "not a language name"),
        ("eng\n", "not a language name"),
        ("../eng", "not a language name"),
        ("/etc/passwd", "not a language name"),
        ("script/../eng", "not a language name"),
        ("script/", "not a language name"),
        ("other/Latin", "not a language name"),
        ("-psm", "not a language name"),
        ("eng\x00", "not a language name"),
        ("\uff45\uff4e\uff47", "not a language name"),
        ("e" * 65, "not a language name"),
    ],
)
def test_languages_that_are_not_names_are_refused_with_the_reason_and_examples(label, problem):
    with pytest.raises(ReadingConfigError, match=rf"{problem}.*accepted: .*eng\+deu"):
        parse_languages(label)


@given(st.text())
def test_any_text_is_languages_or_refused_and_never_a_path_or_an_option(label):
    try:
        languages = parse_languages(label)
    except ReadingConfigError:
        return
    for language in languages:
        assert language.isascii()
        assert ".." not in language
        assert not language.startswith(("/", "-"))


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        ({"dpi": 0}, "dpi"),
        ({"dpi": 1201}, "dpi"),
        ({"max_page_pixels": 0}, "max_page_pixels"),
        ({"languages": ()}, "languages"),
        ({"languages": ("eng", "../x")}, "languages"),
        ({"ocr": "sometimes"}, "ocr.*auto, force, off"),
    ],
    ids=str,
)
def test_settings_that_cannot_be_used_are_refused_by_name(change, setting):
    with pytest.raises(ReadingConfigError, match=setting):
        ReadingConfig(**change)
