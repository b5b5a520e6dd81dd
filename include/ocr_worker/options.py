"""From a dataclass whose fields say their setting to its values: flags, environment, ``.env``, YAML.

Every value is checked before any is used, and each wrong one is named with where it came from and
what it would accept. Not pydantic: importing that costs more than reading a small PDF.
"""

from __future__ import annotations

import difflib
import math
import os
import types
import typing
from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

DOTENV_FILE = Path(".env")
DEFAULT_CONFIG_FILE = Path("ocr-worker.yaml")
CONFIG_FILE_VARIABLE = "OCR_CONFIG_FILE"

_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")

SettingsT = TypeVar("SettingsT")


class SettingsError(Exception):
    """Settings that cannot be used; the message names each of them, one a line."""


@dataclass(frozen=True, slots=True)
class Option:
    """What a field's annotation says about its setting.

    Attributes:
        variable: Its name in the environment.
        description: What it is for, one sentence.
        minimum: The smallest number accepted.
        maximum: The largest number accepted.
        is_exclusive: Whether the minimum itself is too small.
        check: Raises ValueError for a value that cannot be used.
    """

    variable: str
    description: str
    minimum: float | None = None
    maximum: float | None = None
    is_exclusive: bool = False
    check: Callable[[Any], object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting with everything that is known about it."""

    name: str
    kind: type
    option: Option
    default: object
    is_required: bool

    @property
    def flag(self) -> str:
        """As it is written on the command line."""
        return "--" + self.name.replace("_", "-")

    @property
    def accepted(self) -> str:
        """What it accepts, in words."""
        if issubclass(self.kind, StrEnum):
            return ", ".join(self.kind)
        words = {int: "a whole number", float: "a number", bool: "true or false", Path: "a path"}
        parts = [words.get(self.kind, "text")]
        option = self.option
        if option.minimum is not None:
            parts.append(f"{'above' if option.is_exclusive else 'from'} {option.minimum}")
        if option.maximum is not None:
            parts.append(f"up to {option.maximum}")
        return " ".join(parts)

    def parse(self, value: object) -> object:
        """Turn what a source gave into a value.

        Raises:
            ValueError: Saying what is wrong with it.
        """
        parsed = _PARSERS[self.kind](value) if self.kind in _PARSERS else self._member(value)
        option = self.option
        if option.minimum is not None and isinstance(parsed, int | float):
            too_small = parsed <= option.minimum if option.is_exclusive else parsed < option.minimum
            if too_small:
                raise ValueError(f"{value!r:.50} is too small")
        if option.maximum is not None and isinstance(parsed, int | float) and parsed > option.maximum:
            raise ValueError(f"{value!r:.50} is too large")
        if option.check is not None:
            option.check(parsed)
        return parsed

    def _member(self, value: object) -> object:
        for member in typing.cast("type[StrEnum]", self.kind):
            if member.value == value:
                return member
        raise ValueError(f"{value!r:.50} is none of them")


def _as_bool(value: object) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError(f"{value!r:.50} is neither true nor false")


def _as_int(value: object) -> int:
    if isinstance(value, int | str) and not isinstance(value, bool):
        try:
            return int(value)
        except ValueError:
            pass
    raise ValueError(f"{value!r:.50} is no whole number")


def _as_float(value: object) -> float:
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            number = float(value)
        except (ValueError, OverflowError):
            number = math.nan
        if math.isfinite(number):
            return number
    raise ValueError(f"{value!r:.50} is no number")


def _as_text(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        # Without the value, which may be a password.
        raise ValueError(f"a {type(value).__name__} is no text")  # noqa: TRY004 -- one kind of error for all
    return str(value)


def _as_path(value: object) -> Path:
    text = str(value) if isinstance(value, Path) else _as_text(value)
    if "\0" in text:
        raise ValueError("a path has no NUL in it")
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise ValueError(f"{text!r:.50} is in no user's home folder") from error


_PARSERS: dict[type, Callable[[object], object]] = {
    bool: _as_bool,
    int: _as_int,
    float: _as_float,
    str: _as_text,
    Path: _as_path,
}


_resolved: dict[type[Any], tuple[Setting, ...]] = {}


def settings_of(cls: type[Any]) -> tuple[Setting, ...]:
    """The settings of a dataclass, in the order of its fields."""
    if cls in _resolved:
        return _resolved[cls]
    hints = typing.get_type_hints(cls, include_extras=True)
    found = []
    for field in fields(cls):
        kind, option = typing.get_args(hints[field.name])
        if typing.get_origin(kind) in (typing.Union, types.UnionType):
            (kind,) = (part for part in typing.get_args(kind) if part is not type(None))
        has_default = field.default is not MISSING or field.default_factory is not MISSING
        found.append(
            Setting(
                name=field.name,
                kind=kind,
                option=option,
                default=None if field.default is MISSING else field.default,
                is_required=not has_default,
            )
        )
    return _resolved.setdefault(cls, tuple(found))


def load(
    cls: type[SettingsT], flags: Mapping[str, object], secret: Mapping[str, object] | None = None
) -> SettingsT:
    """Take the settings from all their sources and check them together.

    Args:
        cls: The dataclass.
        flags: Those given on the command line, by field name; they win.
        secret: Those of a secret, by variable; stronger than files, weaker than the environment.

    Raises:
        SettingsError: Naming every setting that is wrong or missing, and what it accepts.
    """
    values: dict[str, object] = {}
    problems = []
    sources = list(_sources(cls, flags, secret or {}))
    for setting in settings_of(cls):
        for where, given in sources:
            value = given(setting)
            # An empty variable is how compose files and shells write "not set".
            if value is None or value == "":
                continue
            try:
                values[setting.name] = setting.parse(value)
            except ValueError as error:
                name = setting.flag if where == "flags" else f"{setting.option.variable} ({where})"
                problems.append(f"{name}: {error}; accepts {setting.accepted}")
            break
        else:
            if setting.is_required:
                problems.append(f"{setting.option.variable} is missing; accepts {setting.accepted}")
    if problems:
        raise SettingsError("\n".join(problems))
    return cls(**values)


def _sources(
    cls: type[Any], flags: Mapping[str, object], secret: Mapping[str, object]
) -> Iterator[tuple[str, Callable[[Setting], object]]]:
    """Where values come from, the strongest first."""
    yield "flags", lambda setting: flags.get(setting.name)
    yield "environment", lambda setting: os.environ.get(setting.option.variable)
    yield "secret", lambda setting: secret.get(setting.option.variable)
    if DOTENV_FILE.is_file():
        from dotenv import dotenv_values

        try:
            dotenv = dotenv_values(DOTENV_FILE)
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"{DOTENV_FILE} cannot be read: {error}") from error
        yield str(DOTENV_FILE), lambda setting: dotenv.get(setting.option.variable)
    config_file = _config_file()
    if config_file is not None:
        config = _read_yaml(cls, config_file)
        yield str(config_file), lambda setting: config.get(setting.name)


def _config_file() -> Path | None:
    given = os.environ.get(CONFIG_FILE_VARIABLE)
    if not given:
        return DEFAULT_CONFIG_FILE if DEFAULT_CONFIG_FILE.is_file() else None
    if not Path(given).is_file():
        raise SettingsError(f"{CONFIG_FILE_VARIABLE}: there is no file {given}")
    return Path(given)


def _read_yaml(cls: type[Any], path: Path) -> dict[str, object]:
    """The file's values by field name; a name may be written as the variable, too."""
    import yaml

    class WordLoader(yaml.SafeLoader):
        """Leaves words as they are written: ``off`` is no truth value here, and ``0123`` no number."""

        yaml_implicit_resolvers = {  # noqa: RUF012 -- as the base class has it
            first: [(tag, pattern) for tag, pattern in found if tag.endswith((":null", ":merge"))]
            for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=WordLoader)  # noqa: S506 -- it is safe
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise SettingsError(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise SettingsError(f"{path} holds no names with values, such as `dpi: 200`")
    names = {setting.option.variable.lower(): setting.name for setting in settings_of(cls)}
    names |= {setting.name: setting.name for setting in settings_of(cls)}
    unknown = [str(name) for name in content if str(name).lower() not in names]
    if unknown:
        lines = []
        for name in unknown:
            near = difflib.get_close_matches(name.lower(), names, n=1)
            lines.append(f"{name} ({path}): there is no such setting" + (f"; {near[0]}?" if near else ""))
        raise SettingsError("\n".join(lines))
    return {names[str(name).lower()]: value for name, value in content.items()}
