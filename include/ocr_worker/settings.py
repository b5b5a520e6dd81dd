"""Every setting of the worker, typed, in one place.

Taken from flags, then the environment, then ``.env``, then a YAML file; all of them are checked at
once, and a wrong one names itself with what it would accept. Not for what a run is told by message.
"""

from __future__ import annotations

import os
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, AliasChoices, BeforeValidator, Field, SecretStr, ValidationError
from pydantic_settings import (
    BaseSettings,
    DotEnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    YamlConfigSettingsSource,
)

from ocr_worker.limits import Limits
from ocr_worker.pages import PoolConfig
from ocr_worker.protocol import ProcessConfig
from pdf_ops.contract.fingerprint import MAX_DPI, MIN_DPI, OcrMode, ReadingConfig, parse_languages

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic.fields import FieldInfo

CONFIG_FILE_VARIABLE = "OCR_CONFIG_FILE"
DEFAULT_CONFIG_FILE = Path("ocr-worker.yaml")
DOTENV_FILE = Path(".env")


class SettingsError(Exception):
    """Settings that cannot be used; the message names each of them."""


class OutputFormat(StrEnum):
    """What page and document rows are written as."""

    PARQUET = "parquet"
    JSONL = "jsonl"


class RecognizerName(StrEnum):
    """The OCR engines."""

    AUTO = "auto"
    TESSEROCR = "tesserocr"
    PYTESSERACT = "pytesseract"


def _usable_cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _checked_languages(value: str) -> str:
    parse_languages(value)
    return value


class WorkerSettings(BaseSettings):
    """How the worker reads. Each field's first alias is its environment variable."""

    model_config = SettingsConfigDict(
        env_file_encoding="utf-8", extra="ignore", populate_by_name=True, frozen=True, case_sensitive=False
    )

    ocr: Annotated[
        OcrMode,
        Field(
            validation_alias=AliasChoices("OCR_MODE", "ocr"),
            description="When to use OCR: where the text layer is not good enough, on every page, or never.",
        ),
    ] = OcrMode.AUTO
    languages: Annotated[
        str,
        AfterValidator(_checked_languages),
        Field(
            validation_alias=AliasChoices("OCR_LANGUAGES", "languages"),
            description="OCR languages, the leading one first, such as eng+deu.",
        ),
    ] = "eng"
    dpi: Annotated[
        int,
        Field(
            ge=MIN_DPI,
            le=MAX_DPI,
            validation_alias=AliasChoices("OCR_DPI", "dpi"),
            description="Resolution that pages are drawn at for OCR.",
        ),
    ] = 200
    max_page_pixels: Annotated[
        int,
        Field(
            ge=100_000,
            le=1_000_000_000,
            validation_alias=AliasChoices("OCR_MAX_PAGE_PIXELS", "max_page_pixels"),
            description="Largest picture of a page; a page that is larger at --dpi is drawn coarser.",
        ),
    ] = 40_000_000
    trust_ocr_layer: Annotated[
        bool,
        Field(
            validation_alias=AliasChoices("OCR_TRUST_OCR_LAYER", "trust_ocr_layer"),
            description="Take the invisible text that an earlier OCR left over a scan.",
        ),
    ] = False
    recognizer: Annotated[
        RecognizerName,
        Field(
            validation_alias=AliasChoices("OCR_RECOGNIZER", "recognizer"),
            description="OCR engine; auto takes the first that is installed.",
        ),
    ] = RecognizerName.AUTO
    password: Annotated[
        SecretStr | None,
        Field(
            validation_alias=AliasChoices("OCR_PASSWORD", "password"),
            description="Password for encrypted documents that you own; better given in the environment.",
        ),
    ] = None
    processes: Annotated[
        int,
        Field(
            ge=1,
            le=256,
            default_factory=_usable_cores,
            validation_alias=AliasChoices("MAX_WORKERS", "processes"),
            description="Page processes that run at once; one per core unless given.",
        ),
    ]
    max_docs_per_process: Annotated[
        int,
        Field(
            ge=1,
            validation_alias=AliasChoices("OCR_MAX_DOCS_PER_PROCESS", "max_docs_per_process"),
            description="Documents after which a page process is replaced.",
        ),
    ] = 200
    page_timeout_s: Annotated[
        float,
        Field(
            gt=0,
            le=86_400,
            validation_alias=AliasChoices("OCR_PAGE_TIMEOUT_S", "page_timeout_s"),
            description="Seconds that one page may take, by the clock and of CPU.",
        ),
    ] = 60.0
    document_timeout_s: Annotated[
        float,
        Field(
            gt=0,
            le=604_800,
            validation_alias=AliasChoices("OCR_DOCUMENT_TIMEOUT_S", "document_timeout_s"),
            description="Seconds that one document may take.",
        ),
    ] = 3_600.0
    memory_limit_mb: Annotated[
        int,
        Field(
            ge=256,
            validation_alias=AliasChoices("OCR_MEMORY_LIMIT_MB", "memory_limit_mb"),
            description="Address space of one page process, in MiB.",
        ),
    ] = 1_536
    max_pages: Annotated[
        int,
        Field(
            ge=1,
            validation_alias=AliasChoices("OCR_MAX_PAGES", "max_pages"),
            description="Documents with more pages are skipped (POLICY/too_many_pages).",
        ),
    ] = 20_000
    max_megabytes: Annotated[
        int,
        Field(
            ge=1,
            validation_alias=AliasChoices("OCR_MAX_MEGABYTES", "max_megabytes"),
            description="Larger files are skipped (POLICY/too_large).",
        ),
    ] = 4_096
    scratch_dir: Annotated[
        Path,
        BeforeValidator(lambda value: Path(value).expanduser()),
        Field(
            validation_alias=AliasChoices("OCR_SCRATCH_DIR", "scratch_dir"),
            description="Folder for temporary files; a tmpfs is fastest.",
        ),
    ] = Path(tempfile.gettempdir())

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags, environment, ``.env``, YAML: the first that gives a value wins."""
        del dotenv_settings, file_secret_settings
        config_file = _config_file()
        sources: list[PydanticBaseSettingsSource] = [
            init_settings,
            env_settings,
            DotEnvSettingsSource(settings_cls, env_file=DOTENV_FILE),
        ]
        if config_file is not None:
            sources.append(YamlConfigSettingsSource(settings_cls, yaml_file=config_file))
        return tuple(sources)

    @property
    def reading(self) -> ReadingConfig:
        """What decides the rows."""
        return ReadingConfig(
            ocr=self.ocr,
            languages=parse_languages(self.languages),
            dpi=self.dpi,
            max_page_pixels=self.max_page_pixels,
            trust_ocr_layer=self.trust_ocr_layer,
        )

    @property
    def limits(self) -> Limits:
        """What one page process may use."""
        return Limits(memory_bytes=self.memory_limit_mb * 2**20, page_timeout_s=self.page_timeout_s)

    def pool(self, scratch: Path, profile_folder: Path | None = None) -> PoolConfig:
        """How the page processes run."""
        return PoolConfig(
            process=ProcessConfig(
                reading=self.reading,
                limits=self.limits,
                recognizer=self.recognizer.value,
                max_pages=self.max_pages,
                profile_folder=profile_folder,
            ),
            processes=self.processes,
            document_timeout_s=self.document_timeout_s,
            max_docs_per_process=self.max_docs_per_process,
            scratch=scratch,
        )


def variable_of(name: str, field: FieldInfo) -> str:
    """The environment variable of a setting."""
    alias = field.validation_alias
    first = alias.choices[0] if isinstance(alias, AliasChoices) else name.upper()
    return first if isinstance(first, str) else name.upper()


def accepted_values(field: FieldInfo) -> str:
    """What a setting accepts, in words."""
    kind: Any = field.annotation
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return ", ".join(kind)
    bounds = {
        type(item).__name__: getattr(item, type(item).__name__.lower())
        for item in field.metadata
        if type(item).__name__ in ("Ge", "Gt", "Le", "Lt")
    }
    names = {int: "a whole number", float: "a number", bool: "true or false", Path: "a path"}
    words = [names.get(kind, "text")]
    words += [f"above {bounds['Gt']}"] if "Gt" in bounds else []
    words += [f"from {bounds['Ge']}"] if "Ge" in bounds else []
    words += [f"up to {bounds['Le']}"] if "Le" in bounds else []
    return " ".join(words)


def load_settings(flags: Mapping[str, object]) -> WorkerSettings:
    """Take the settings from all their sources and check them together.

    Args:
        flags: Those given on the command line, by field name.

    Raises:
        SettingsError: Naming every setting that is wrong, and what it accepts.
    """
    try:
        return WorkerSettings(**dict(flags))  # type: ignore[arg-type]
    except ValidationError as error:
        lines = [_explain(item["loc"], item["msg"]) for item in error.errors(include_url=False)]
        raise SettingsError("\n".join(lines)) from None
    except (OSError, ValueError) as error:  # A YAML file that is none, a .env that is no text.
        raise SettingsError(f"the settings file cannot be read: {error}") from error


def _explain(place: Sequence[object], message: str) -> str:
    given = str(place[0]) if place else ""
    for name, field in WorkerSettings.model_fields.items():
        variable = variable_of(name, field)
        if given in (name, variable, variable.lower()):
            reason = message.removeprefix("Value error, ")
            flag = name.replace("_", "-")
            return f"--{flag} ({variable}): {reason}; accepts {accepted_values(field)}"
    return f"{given}: {message}"


def _config_file() -> Path | None:
    given = os.environ.get(CONFIG_FILE_VARIABLE)
    if given:
        if not Path(given).is_file():
            raise SettingsError(f"{CONFIG_FILE_VARIABLE}: there is no file {given}")
        return Path(given)
    return DEFAULT_CONFIG_FILE if DEFAULT_CONFIG_FILE.is_file() else None
