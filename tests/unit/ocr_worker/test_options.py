from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.unit.ocr_worker.builders import STEADY

from ocr_worker.options import Option, SettingsError, load, settings_of


class Size(StrEnum):
    SMALL = "small"
    LARGE = "large"
    OFF = "off"


def _not_evil(value):
    if value == "evil":
        raise ValueError("is evil")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    size: Annotated[Size, Option("SHOP_SIZE", "How large.")] = Size.SMALL
    shelves: Annotated[int, Option("SHOP_SHELVES", "How many.", minimum=1, maximum=100)] = 10
    rent: Annotated[float, Option("SHOP_RENT", "How dear.", minimum=0, is_exclusive=True, maximum=1e6)] = 2.5
    is_open: Annotated[bool, Option("SHOP_IS_OPEN", "Whether it is open.")] = False
    owner: Annotated[str, Option("SHOP_OWNER", "Whose it is.", check=_not_evil)] = "nobody"
    secret: Annotated[str | None, Option("SHOP_SECRET", "Where the key is.")] = field(
        default=None, repr=False
    )
    cellar: Annotated[Path, Option("SHOP_CELLAR", "Where the stock is.")] = Path("/cellar")


@dataclass(frozen=True, slots=True, kw_only=True)
class Strict:
    name: Annotated[str, Option("STRICT_NAME", "Must be given.")]
    count: Annotated[int, Option("STRICT_COUNT", "Must be given, too.", minimum=3)]


NAMES = [setting.name for setting in settings_of(Shop)]
VARIABLES = {setting.name: setting.option.variable for setting in settings_of(Shop)}
KINDS = {setting.name: setting.kind for setting in settings_of(Shop)}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A folder without settings, and an environment without them, too."""
    monkeypatch.chdir(tmp_path)
    for variable in (*VARIABLES.values(), "OCR_CONFIG_FILE", "STRICT_NAME", "STRICT_COUNT"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


def write_yaml(text, name="ocr-worker.yaml"):
    Path(name).write_text(text, encoding="utf-8")


def write_dotenv(text):
    Path(".env").write_text(text, encoding="utf-8")


def problems(flags=None, cls=Shop):
    with pytest.raises(SettingsError) as caught:
        load(cls, flags or {})
    return str(caught.value).splitlines()


def outcome(name, flags, secret=None):
    """The value of a setting, or the error that stands in its place."""
    try:
        return getattr(load(Shop, flags, secret), name), None
    except SettingsError as error:
        return None, str(error)


# Sources -------------------------------------------------------------------------------------


def test_without_any_source_the_defaults_hold():
    assert load(Shop, {}) == Shop()


def test_flags_win_over_the_environment_over_a_secret_over_dotenv_over_yaml(monkeypatch):
    write_yaml("shelves: 11\n")
    assert load(Shop, {}).shelves == 11
    write_dotenv("SHOP_SHELVES=22\n")
    assert load(Shop, {}).shelves == 22
    secret = {"SHOP_SHELVES": 30}
    assert load(Shop, {}, secret).shelves == 30
    monkeypatch.setenv("SHOP_SHELVES", "33")
    assert load(Shop, {}, secret).shelves == 33
    assert load(Shop, {"shelves": "44"}, secret).shelves == 44


@pytest.mark.parametrize("value", [True, 1.5, 10**400, [1], {"a": 1}, "x", -1, None, ""], ids=repr)
@pytest.mark.parametrize("name", ["shelves", "rent", "size", "is_open", "owner", "secret", "cellar"])
def test_a_value_of_any_shape_in_a_secret_is_a_value_or_an_error_with_its_name(name, value):
    loaded, error = outcome(name, {}, {VARIABLES[name]: value})
    if error is None:
        assert isinstance(loaded, KINDS[name]) or loaded is None
    else:
        assert error.startswith(f"{VARIABLES[name]} (secret): ")


def test_each_setting_comes_from_the_strongest_source_that_has_it(monkeypatch):
    write_yaml("shelves: 11\nrent: 11.5\nowner: yaml\nsize: large\n")
    write_dotenv("SHOP_RENT=22.5\nSHOP_OWNER=dotenv\n")
    monkeypatch.setenv("SHOP_OWNER", "environment")
    assert load(Shop, {"is_open": True}) == Shop(
        shelves=11, rent=22.5, owner="environment", size=Size.LARGE, is_open=True
    )


@pytest.mark.parametrize("flag", [None, ""])
def test_an_empty_value_means_not_set_and_the_next_source_is_asked(flag, monkeypatch):
    write_yaml("shelves: 11\n")
    write_dotenv("SHOP_SHELVES=\n")
    monkeypatch.setenv("SHOP_SHELVES", "")
    assert load(Shop, {"shelves": flag}).shelves == 11
    write_yaml("shelves:\n")
    assert load(Shop, {"shelves": flag}).shelves == 10


def test_false_on_the_command_line_is_a_value_and_not_unset(monkeypatch):
    monkeypatch.setenv("SHOP_IS_OPEN", "true")
    assert load(Shop, {"is_open": False}).is_open is False


def test_a_wrong_value_that_a_stronger_source_overrides_does_no_harm(monkeypatch):
    monkeypatch.setenv("SHOP_SHELVES", "many")
    assert load(Shop, {"shelves": "5"}).shelves == 5


def test_the_yaml_file_can_be_named_in_the_environment(monkeypatch):
    write_yaml("shelves: 11\n")
    write_yaml("shelves: 55\n", "other.yml")
    monkeypatch.setenv("OCR_CONFIG_FILE", "other.yml")
    assert load(Shop, {}).shelves == 55
    monkeypatch.setenv("OCR_CONFIG_FILE", "")
    assert load(Shop, {}).shelves == 11


@pytest.mark.parametrize("name", ["missing.yaml", "."])
def test_a_yaml_file_that_is_named_but_not_there_is_an_error(name, monkeypatch):
    monkeypatch.setenv("OCR_CONFIG_FILE", name)
    assert problems() == [f"OCR_CONFIG_FILE: there is no file {name}"]


@pytest.mark.parametrize("name", ["shelves", "SHELVES", "SHOP_SHELVES", "shop_shelves"])
def test_a_setting_may_be_written_in_yaml_by_its_name_or_its_variables(name):
    write_yaml(f"{name}: 11\n")
    assert load(Shop, {}).shelves == 11


def test_an_empty_yaml_file_is_no_settings():
    write_yaml("# nothing yet\n")
    assert load(Shop, {}) == Shop()


@pytest.mark.parametrize("text", ["size: off", "size: 'off'", 'size: "off"', "{size: off}"])
def test_a_word_that_yaml_takes_for_a_truth_value_is_still_that_word(text):
    write_yaml(text)
    assert load(Shop, {}).size is Size.OFF


@pytest.mark.parametrize("text", ["0123", "1_0", "12:30:45", "1e3", "yes", "2024-01-02", "0x1F", "1.10"])
def test_text_in_yaml_is_what_is_written_there_also_without_quotes(text):
    write_yaml(f"secret: {text}\n")
    assert load(Shop, {}).secret == text


@pytest.mark.parametrize("nothing", ["null", "~", "", "''"])
def test_null_in_yaml_means_not_set(nothing):
    write_yaml(f"secret: {nothing}\nshelves: {nothing}\n")
    assert load(Shop, {}) == Shop()


def test_a_truth_value_in_yaml_is_written_as_anywhere():
    for written, value in (("true", True), ("Yes", True), ("on", True), ("false", False), ("No", False)):
        write_yaml(f"is_open: {written}\n")
        assert load(Shop, {}).is_open is value


# Errors --------------------------------------------------------------------------------------


def test_all_wrong_settings_are_reported_at_once_with_name_source_and_what_they_accept(monkeypatch):
    write_yaml("rent: -1\nis_open: perhaps\n")
    write_dotenv("SHOP_OWNER=evil\n")
    monkeypatch.setenv("SHOP_SIZE", "medium")
    monkeypatch.setenv("SHOP_CELLAR", "fine")
    assert problems({"shelves": "101"}) == [
        "SHOP_SIZE (environment): 'medium' is none of them; accepts small, large, off",
        "--shelves: '101' is too large; accepts a whole number from 1 up to 100",
        "SHOP_RENT (ocr-worker.yaml): '-1' is too small; accepts a number above 0 up to 1000000.0",
        "SHOP_IS_OPEN (ocr-worker.yaml): 'perhaps' is neither true nor false; accepts true or false",
        "SHOP_OWNER (.env): is evil; accepts text",
    ]


def test_all_missing_settings_are_named():
    assert problems(cls=Strict) == [
        "STRICT_NAME is missing; accepts text",
        "STRICT_COUNT is missing; accepts a whole number from 3",
    ]


def test_required_settings_that_are_given_are_taken(monkeypatch):
    monkeypatch.setenv("STRICT_COUNT", "3")
    assert load(Strict, {"name": "a"}) == Strict(name="a", count=3)


@pytest.mark.parametrize(
    ("written", "near"),
    [("shelvs", "shelves"), ("Ownr", "owner"), ("SHOP_SHELVS", "shop_shelves"), ("is-open", "is_open")],
)
def test_an_unknown_name_in_yaml_suggests_the_near_one(written, near):
    write_yaml(f"{written}: 1\n")
    assert problems() == [f"{written} (ocr-worker.yaml): there is no such setting; {near}?"]


def test_unknown_names_in_yaml_are_all_reported_and_far_ones_without_a_suggestion():
    write_yaml("xyzzy: 1\n17: 2\nshelve: 3\n")
    assert problems() == [
        "xyzzy (ocr-worker.yaml): there is no such setting",
        "17 (ocr-worker.yaml): there is no such setting",
        "shelve (ocr-worker.yaml): there is no such setting; shelves?",
    ]


@pytest.mark.parametrize("text", ["- shelves\n- 11\n", "shelves\n", "17\n", "true\n"])
def test_yaml_that_holds_no_names_is_an_error(text):
    write_yaml(text)
    assert problems() == ["ocr-worker.yaml holds no names with values, such as `dpi: 200`"]


@pytest.mark.parametrize(
    "content",
    [
        b"shelves: [1\n",
        b"\tshelves: 1\n",
        b"shelves: \xff\n",
        b"shelves: &a *b\n",
        b"? [a]\n: 1\n",
        b"shelves: !!python/object/apply:os.getpid []\n",
        b"shelves: 2024-13-45\n",
        b"shelves: !!timestamp 2024-13-45\n",
        b"shelves: " + b"9" * 5_000 + b"\n",
        b"shelves: " + b"[" * 50_000 + b"\n",
    ],
    ids=[
        "open",
        "tab",
        "not utf-8",
        "anchor",
        "odd key",
        "object",
        "no date",
        "tagged",
        "huge number",
        "deep",
    ],
)
def test_yaml_that_cannot_be_read_is_an_error_of_one_line_with_its_name(content):
    Path("ocr-worker.yaml").write_bytes(content)
    (line,) = problems()
    assert "ocr-worker.yaml" in line


@pytest.mark.parametrize("value", ["[1]", "{a: 1}", "true", "2024-01-02", "1.5", "0x", "1e400", "9" * 400])
@pytest.mark.parametrize("name", ["shelves", "rent", "size", "is_open", "owner", "secret", "cellar"])
def test_a_yaml_value_of_another_shape_is_a_value_or_an_error_with_its_name(name, value):
    write_yaml(f"{name}: {value}\n")
    loaded, error = outcome(name, {})
    if error is None:
        assert isinstance(loaded, KINDS[name])
    else:
        assert error.startswith(f"{VARIABLES[name]} (ocr-worker.yaml): ")


def test_a_dotenv_file_that_is_no_text_is_an_error_with_its_name():
    Path(".env").write_bytes(b"SHOP_OWNER=\xff\xfe\n")
    (line,) = problems()
    assert line.startswith(".env cannot be read: ")


# Values --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "written", "value"),
    [
        ("size", "large", Size.LARGE),
        ("shelves", "1", 1),
        ("shelves", " 100 ", 100),
        ("rent", "1e3", 1000.0),
        ("rent", "7", 7.0),
        ("is_open", "YES", True),
        ("is_open", "on", True),
        ("is_open", "1", True),
        ("is_open", " False ", False),
        ("is_open", "no", False),
        ("is_open", "0", False),
        ("owner", "someone else", "someone else"),
        ("cellar", "relative/folder", Path("relative/folder")),
    ],
)
def test_a_variable_becomes_a_value_of_its_kind(name, written, value, monkeypatch):
    monkeypatch.setenv(VARIABLES[name], written)
    loaded = getattr(load(Shop, {}), name)
    assert loaded == value
    assert type(loaded) is type(value)


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("size", "LARGE"),
        ("size", "Size.LARGE"),
        ("shelves", "0"),
        ("shelves", "1.0"),
        ("shelves", "ten"),
        ("shelves", " "),
        ("shelves", "9" * 5_000),
        ("rent", "0"),
        ("rent", "-0.0"),
        ("rent", "nan"),
        ("rent", "inf"),
        ("rent", "1,5"),
        ("is_open", "2"),
        ("is_open", "maybe"),
        ("cellar", "~nobody-has-this-name/cellar"),
    ],
)
def test_a_variable_that_is_no_such_value_is_refused_by_name(name, written, monkeypatch):
    monkeypatch.setenv(VARIABLES[name], written)
    (line,) = problems()
    assert line.startswith(f"{VARIABLES[name]} (environment): ")
    assert "; accepts " in line
    assert len(line) < 200


def test_a_tilde_is_the_home_folder(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("SHOP_CELLAR", "~/cellar")
    assert load(Shop, {}).cellar == Path("/home/me/cellar")


def test_a_setting_knows_its_flag_its_default_and_what_it_accepts():
    by_name = {setting.name: setting for setting in settings_of(Shop)}
    assert [by_name[name].flag for name in ("size", "is_open")] == ["--size", "--is-open"]
    assert by_name["shelves"].default == 10
    assert by_name["secret"].default is None
    assert by_name["secret"].kind is str
    assert not any(setting.is_required for setting in by_name.values())
    assert all(setting.is_required for setting in settings_of(Strict))
    assert {name: setting.accepted for name, setting in by_name.items()} == {
        "size": "small, large, off",
        "shelves": "a whole number from 1 up to 100",
        "rent": "a number above 0 up to 1000000.0",
        "is_open": "true or false",
        "owner": "text",
        "secret": "text",
        "cellar": "a path",
    }


@STEADY
@given(name=st.sampled_from(NAMES), written=st.text() | st.integers().map(str) | st.floats().map(str))
@example(name="cellar", written="~nobody-has-this-name")
@example(name="cellar", written="\0")
@example(name="shelves", written="١٢")
def test_any_string_for_any_setting_is_a_value_within_bounds_or_an_error_with_its_name(name, written):
    value, error = outcome(name, {name: written})
    if error is not None:
        assert error.startswith(f"--{name.replace('_', '-')}: ")
        return
    assert isinstance(value, KINDS[name]) or (name == "secret" and not written)
    assert name != "shelves" or 1 <= value <= 100
    assert name != "rent" or 0 < value <= 1e6


@STEADY
@given(
    name=st.sampled_from(NAMES),
    written=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
)
def test_any_string_in_the_environment_is_a_value_or_an_error_with_its_variable(name, written):
    with mock.patch.dict(os.environ, {VARIABLES[name]: written}):
        value, error = outcome(name, {})
    if error is None:
        assert value is None or isinstance(value, KINDS[name])
    else:
        assert error.startswith(f"{VARIABLES[name]} (environment): ")
