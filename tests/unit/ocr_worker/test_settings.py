from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.unit.ocr_worker.builders import STEADY

from ocr_worker.limits import Limits
from ocr_worker.options import SettingsError, load, settings_of
from ocr_worker.settings import RecognizerName, WorkerSettings
from pdf_ops.contract.fingerprint import OcrMode, ReadingConfig

SETTINGS = {setting.name: setting for setting in settings_of(WorkerSettings)}
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A folder without settings, and an environment without them, too."""
    monkeypatch.chdir(tmp_path)
    for setting in SETTINGS.values():
        monkeypatch.delenv(setting.option.variable, raising=False)
    monkeypatch.delenv("OCR_CONFIG_FILE", raising=False)


def test_nothing_needs_to_be_set():
    settings = load(WorkerSettings, {})
    assert settings.reading == ReadingConfig()
    assert settings.processes >= 1
    assert settings.password is None


def test_the_worker_obeys_flags_before_the_environment_before_dotenv_before_yaml(monkeypatch):
    Path("ocr-worker.yaml").write_text(
        "dpi: 101\nlanguages: deu\nmax_pages: 11\nocr: off\n", encoding="utf-8"
    )
    Path(".env").write_text("OCR_DPI=102\nOCR_LANGUAGES=fra\nOCR_MAX_PAGES=12\n", encoding="utf-8")
    monkeypatch.setenv("OCR_DPI", "103")
    monkeypatch.setenv("OCR_LANGUAGES", "pol")
    settings = load(WorkerSettings, {"dpi": "104"})
    assert (settings.dpi, settings.languages) == (104, "pol")
    assert (settings.max_pages, settings.ocr) == (12, OcrMode.OFF)


def test_every_setting_has_a_variable_of_its_own_a_sentence_and_a_flag():
    variables = [setting.option.variable for setting in SETTINGS.values()]
    assert len(variables) == len(set(variables))
    assert {variable for variable in variables if not variable.startswith("OCR_")} == {"MAX_WORKERS"}
    for setting in SETTINGS.values():
        assert setting.option.description.endswith("."), setting.name
        assert setting.flag.startswith("--")
        assert not setting.is_required
        assert setting.accepted


def test_every_default_is_a_value_that_the_setting_itself_accepts():
    for setting in SETTINGS.values():
        if setting.default is not None:
            assert setting.parse(str(setting.default)) == setting.default, setting.name


def test_what_is_wrong_is_reported_together(monkeypatch):
    monkeypatch.setenv("OCR_MODE", "sometimes")
    monkeypatch.setenv("OCR_LANGUAGES", "eng+../../etc/passwd")
    monkeypatch.setenv("MAX_WORKERS", "0")
    with pytest.raises(SettingsError) as caught:
        load(WorkerSettings, {"dpi": "9999"})
    mode, languages, dpi, workers = str(caught.value).splitlines()
    assert mode == "OCR_MODE (environment): 'sometimes' is none of them; accepts auto, force, off"
    assert languages.startswith("OCR_LANGUAGES (environment): languages: '../../etc/passwd' is not")
    assert dpi == "--dpi: '9999' is too large; accepts a whole number from 36 up to 1200"
    assert workers == "MAX_WORKERS (environment): '0' is too small; accepts a whole number from 1 up to 256"


def test_a_password_is_not_shown(monkeypatch):
    monkeypatch.setenv("OCR_PASSWORD", "open sesame")
    settings = load(WorkerSettings, {})
    assert settings.password == "open sesame"
    assert "sesame" not in repr(settings)
    assert "sesame" not in str(settings)
    assert "sesame" not in repr(settings.pool(Path("/scratch")))


def test_a_wrong_password_setting_does_not_show_the_password(monkeypatch):
    Path("ocr-worker.yaml").write_text("password: [open sesame]\n", encoding="utf-8")
    with pytest.raises(SettingsError, match="OCR_PASSWORD") as caught:
        load(WorkerSettings, {})
    assert "sesame" not in str(caught.value)


def test_one_process_per_core_that_may_be_used_unless_given(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3, 5}, raising=False)
    assert load(WorkerSettings, {}).processes == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert load(WorkerSettings, {}).processes == 7
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert load(WorkerSettings, {}).processes == 1
    assert load(WorkerSettings, {"processes": "2"}).processes == 2


FULL = WorkerSettings(
    ocr=OcrMode.FORCE,
    languages="eng+script/Latin",
    dpi=300,
    max_page_pixels=123_456,
    trust_ocr_layer=True,
    recognizer=RecognizerName.PYTESSERACT,
    password="open sesame",
    processes=3,
    max_docs_per_process=17,
    page_timeout_s=1.5,
    document_timeout_s=99.5,
    memory_limit_mb=300,
    max_pages=42,
    max_megabytes=5,
    scratch_dir=Path("/scratch"),
)


def test_what_decides_the_rows_is_passed_on_whole():
    assert FULL.reading == ReadingConfig(
        ocr=OcrMode.FORCE,
        languages=("eng", "script/Latin"),
        dpi=300,
        max_page_pixels=123_456,
        trust_ocr_layer=True,
    )


def test_limits_are_in_bytes_and_seconds():
    assert FULL.limits == Limits(memory_bytes=300 * 1024 * 1024, page_timeout_s=1.5)


def test_the_pool_gets_what_it_and_its_processes_need():
    pool = FULL.pool(Path("/scratch/run"), Path("/profile"))
    assert (pool.processes, pool.document_timeout_s, pool.max_docs_per_process) == (3, 99.5, 17)
    assert pool.scratch == Path("/scratch/run")
    process = pool.process
    assert (process.reading, process.limits) == (FULL.reading, FULL.limits)
    assert (process.recognizer, process.max_pages) == ("pytesseract", 42)
    assert process.profile_folder == Path("/profile")
    assert FULL.pool(Path("/scratch/run")).process.profile_folder is None


def test_settings_that_only_change_speed_or_limits_do_not_change_what_is_read():
    default = WorkerSettings()
    for name in set(SETTINGS) - {field.name for field in dataclasses.fields(ReadingConfig)}:
        changed = dataclasses.replace(default, **{name: getattr(FULL, name)})
        assert changed.reading.config_hash == default.reading.config_hash, name


@STEADY
@given(
    name=st.sampled_from(sorted(SETTINGS)),
    written=TEXTS
    | st.integers().map(str)
    | st.floats().map(str)
    | st.sampled_from(["on", "auto", "eng+deu"]),
)
@example(name="scratch_dir", written="~nobody-has-this-name")
@example(name="page_timeout_s", written="9" * 400)
def test_any_string_for_any_setting_is_a_value_within_bounds_or_an_error_that_names_its_variable(
    name, written
):
    setting = SETTINGS[name]
    error = settings = None
    with mock.patch.dict(os.environ, {setting.option.variable: written}):
        try:
            settings = load(WorkerSettings, {})
        except SettingsError as caught:
            error = str(caught)
    if settings is None:
        assert error.startswith(f"{setting.option.variable} (environment): ")
        assert f"; accepts {setting.accepted}" in error
        return
    value, option = getattr(settings, name), setting.option
    assert isinstance(value, setting.kind) or (name == "password" and written == "")
    if isinstance(value, int | float) and not isinstance(value, bool):
        assert option.minimum is None or option.minimum <= value
        assert not option.is_exclusive or option.minimum < value
        assert option.maximum is None or value <= option.maximum
    # Whatever was accepted can be used.
    settings.pool(Path("/scratch")).process.encode()
