"""Every setting of the control plane, typed, in one place.

Values are Airflow configuration of the section ``pdf_ops``: ``AIRFLOW__PDF_OPS__INPUT_S3_BUCKET`` in
the environment, or a configuration option of MWAA. A DAG file takes them late, so that it always
parses; the first task checks them all. Not for what a person chooses per run: those are params.
"""

from __future__ import annotations

import math
import re
import types
import typing
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

from pdf_ops.contract.fingerprint import MAX_DPI, MIN_DPI, OcrMode, ReadingConfig, parse_languages
from pdf_ops.contract.layout import Layout, LayoutError, parse_bucket
from pdf_ops.exceptions import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SECTION = "pdf_ops"

_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


class Capacity(StrEnum):
    """Which machines the workers run on."""

    SPOT = "spot"
    ON_DEMAND = "on_demand"


@dataclass(frozen=True, slots=True)
class Option:
    """What a field's annotation says about its setting.

    Attributes:
        description: What it is for, one sentence.
        accepted: What it accepts, in words, where its type does not say.
        minimum: The smallest number accepted.
        maximum: The largest number accepted.
        read: Brings a text into one form; raises ValueError for one that cannot be used.
    """

    description: str
    accepted: str = ""
    minimum: float | None = None
    maximum: float | None = None
    read: Callable[[str], object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting with everything that is known about it."""

    name: str
    variable: str
    kind: type
    option: Option
    default: Any
    is_required: bool

    @property
    def accepted(self) -> str:
        """What it accepts, in words."""
        if self.option.accepted:
            return self.option.accepted
        if issubclass(self.kind, StrEnum):
            return ", ".join(self.kind)
        words = {int: "a whole number", float: "a number", bool: "true or false"}
        parts = [words.get(self.kind, "text")]
        if self.option.minimum is not None:
            parts.append(f"from {self.option.minimum:g}")
        if self.option.maximum is not None:
            parts.append(f"up to {self.option.maximum:g}")
        return " ".join(parts)

    def parse(self, text: str) -> Any:
        """Turn the configuration's text into a value.

        Raises:
            ValueError: Saying what is wrong with it.
        """
        value = self._typed(text.strip())
        if isinstance(value, int | float) and not isinstance(value, bool):
            if self.option.minimum is not None and value < self.option.minimum:
                raise ValueError(f"{text!r:.50} is too small")
            if self.option.maximum is not None and value > self.option.maximum:
                raise ValueError(f"{text!r:.50} is too large")
        return value

    def _typed(self, text: str) -> Any:
        if self.kind is bool:
            if text.lower() not in _TRUE + _FALSE:
                raise ValueError(f"{text!r:.50} is neither true nor false")
            return text.lower() in _TRUE
        if self.kind in (int, float):
            try:
                number = self.kind(text)
            except ValueError:
                raise ValueError(f"{text!r:.50} is no number of this kind") from None
            if not math.isfinite(number):
                raise ValueError(f"{text!r:.50} is not finite")
            return number
        if issubclass(self.kind, StrEnum):
            for member in self.kind:
                if member.value == text.lower():
                    return member
            raise ValueError(f"{text!r:.50} is none of them")
        return self.option.read(text) if self.option.read else text


def _queue_url(text: str) -> str:
    if not re.fullmatch(r"https?://[^\s/]+/\S+", text):
        raise ValueError(f"{text!r:.80} is no queue URL")
    return text


def _url(text: str) -> str:
    if not re.fullmatch(r"https?://[^\s/@]+/?", text):
        raise ValueError("it is no URL of a host, without a user and a path")
    return text.rstrip("/")


def _index_name(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,99}", text):
        raise ValueError(f"{text!r:.50} is no index's name")
    return text


def _list(text: str) -> str:
    """A list with commas, as the configuration holds it, without blanks and empty entries."""
    return ",".join(part.strip() for part in text.split(",") if part.strip())


def _languages(text: str) -> str:
    parse_languages(text)
    return text


def _cron(text: str) -> str:
    """Let a cron expression, a preset or nothing ("none": only by hand) through."""
    if text.lower() == "none":
        return "none"
    from croniter import croniter  # type: ignore[import-untyped]

    if not text.startswith("@") and not croniter.is_valid(text):
        raise ValueError(f"{text!r:.50} is no cron expression")
    return text


_BUCKET = "a bucket, such as my-bucket or s3://my-bucket/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the pipeline runs here."""

    input_s3_bucket: Annotated[str, Option("Bucket with the documents.", _BUCKET, read=parse_bucket)]
    output_s3_bucket: Annotated[str, Option("Bucket that rows are written to.", _BUCKET, read=parse_bucket)]
    sqs_queue_url: Annotated[
        str, Option("Queue that the workers receive from.", "a queue URL", read=_queue_url)
    ]
    dlq_sqs_queue_url: Annotated[
        str, Option("Dead-letter queue of that queue.", "a queue URL", read=_queue_url)
    ]
    dynamo_table_name: Annotated[str, Option("State table: one item per document.", "a table's name")]
    dynamo_runs_table_name: Annotated[
        str, Option("Runs table: counters and outcomes of each run.", "a table's name")
    ]
    ecs_cluster: Annotated[str, Option("Cluster that the workers run in.", "a cluster's name or ARN")]
    ecs_task_definition: Annotated[
        str, Option("Task definition of the worker.", "a family, family:revision or ARN")
    ]
    ecs_subnets: Annotated[
        str, Option("Subnets of the workers.", "subnet ids, separated by commas", read=_list)
    ]
    input_s3_prefix: Annotated[str, Option("Only documents below this prefix are listed.")] = ""
    input_suffixes: Annotated[
        str,
        Option(
            "Only keys with these endings are sent, whatever their case; all when empty.",
            "endings separated by commas, such as .pdf,.tiff",
            read=_list,
        ),
    ] = ""
    output_s3_prefix: Annotated[str, Option("Rows are written below this prefix.")] = ""
    manifest_s3_bucket: Annotated[
        str,
        Option(
            "Bucket for listings, manifests and reports; the output bucket unless given.",
            _BUCKET,
            read=parse_bucket,
        ),
    ] = ""
    manifest_s3_key: Annotated[
        str, Option("Listings, manifests and reports are written below this prefix.")
    ] = "manifests/"
    ecs_container_name: Annotated[str, Option("The worker's container in the task definition.")] = "worker"
    ecs_security_groups: Annotated[
        str, Option("Security groups of the workers.", "ids separated by commas", read=_list)
    ] = ""
    assign_public_ip: Annotated[
        bool, Option("Whether workers get a public address; needed in subnets without NAT or endpoints.")
    ] = False
    log_group_name: Annotated[
        str, Option("CloudWatch group of the workers' logs, so that a task can say where its worker's is.")
    ] = ""
    log_stream_prefix: Annotated[
        str, Option("Stream prefix of the workers' logs, as in the task definition.")
    ] = "pdf-ops"
    aws_conn_id: Annotated[str, Option("Airflow connection for all AWS calls.")] = "aws_default"
    aws_region: Annotated[str, Option("Region; the connection's own when empty.")] = ""
    slack_conn_id: Annotated[str, Option("Slack webhook connection for alerts; silent when empty.")] = ""
    schedule: Annotated[
        str,
        Option(
            "When the pipeline runs, in UTC.", "a cron expression, or none for runs by hand only", read=_cron
        ),
    ] = "0 2 * * *"
    events_sqs_queue_url: Annotated[
        str,
        Option(
            "Queue of S3 events that start a run at once, a queue of its own; the DAG pdf_doorbell is off "
            "when empty.",
            "a queue URL",
            read=_queue_url,
        ),
    ] = ""
    events_quiet_s: Annotated[
        float,
        Option(
            "Seconds without another event before a run is started; at most a minute after the first.",
            minimum=0,
            maximum=60,
        ),
    ] = 10.0
    dlq_watch_schedule: Annotated[
        str,
        Option(
            "When the dead-letter queue is looked at, in UTC; only with a Slack connection.",
            "a cron expression, or none",
            read=_cron,
        ),
    ] = "*/15 * * * *"
    lookback_days: Annotated[
        int,
        Option(
            "Only documents that changed in so many days before a run are looked at; 0 is all of them.",
            minimum=0,
            maximum=36_500,
        ),
    ] = 0
    max_active_runs: Annotated[
        int, Option("Runs at a time; they share the queue and count their own.", minimum=1, maximum=64)
    ] = 4
    capacity: Annotated[Capacity, Option("Machines for the workers, unless a run says otherwise.")] = (
        Capacity.SPOT
    )
    max_workers: Annotated[int, Option("Most workers of one run.", minimum=1, maximum=1_000)] = 20
    documents_per_worker: Annotated[
        int,
        Option(
            "Documents that justify another worker, before a run has shown how fast they are.",
            minimum=1,
            maximum=10_000_000,
        ),
    ] = 2_000
    megabytes_per_worker: Annotated[int, Option("Megabytes that do.", minimum=1, maximum=10_000_000)] = 2_000
    target_minutes: Annotated[
        float,
        Option(
            "Minutes that a run should take, once one has shown how fast workers are.",
            minimum=1,
            maximum=10_080,
        ),
    ] = 30.0
    failure_threshold: Annotated[
        float, Option("Share of failed documents that ends a run.", minimum=0, maximum=1)
    ] = 0.5
    failure_minimum: Annotated[
        int, Option("Failed documents before that share counts.", minimum=1, maximum=1_000_000)
    ] = 20
    poll_interval_s: Annotated[
        float, Option("Seconds between two looks at a run's counters.", minimum=0.1, maximum=3_600)
    ] = 30.0
    stall_timeout_s: Annotated[
        float, Option("Seconds without a finished document after which a run is stalled.", minimum=1)
    ] = 3_600.0
    fleet_timeout_s: Annotated[
        float,
        Option(
            "The same when none of the run's workers is up any more; longer than a failed task's next try.",
            minimum=1,
        ),
    ] = 600.0
    run_timeout_h: Annotated[float, Option("Hours that a run may take.", minimum=0.01, maximum=720)] = 72.0
    retries: Annotated[int, Option("How often a failed task is tried again.", minimum=0, maximum=20)] = 2
    retry_delay_s: Annotated[
        float, Option("Seconds before a failed task is tried again; it doubles.", minimum=0, maximum=86_400)
    ] = 30.0
    list_threads: Annotated[int, Option("Prefixes that are listed at once.", minimum=1, maximum=64)] = 8
    batches_in_flight: Annotated[
        int, Option("Batches of messages that one task sends at once.", minimum=1, maximum=64)
    ] = 8
    ocr_mode: Annotated[OcrMode, Option("When OCR is used, unless a run says otherwise.")] = OcrMode.AUTO
    languages: Annotated[
        str,
        Option(
            "OCR languages, unless a run says otherwise.", "Tesseract names such as eng+deu", read=_languages
        ),
    ] = "eng"
    dpi: Annotated[
        int,
        Option("Resolution that pages are drawn at for OCR.", minimum=MIN_DPI, maximum=MAX_DPI),
    ] = ReadingConfig().dpi
    max_page_pixels: Annotated[
        int,
        Option("Largest picture of a page.", minimum=100_000, maximum=1_000_000_000),
    ] = ReadingConfig().max_page_pixels
    search_index: Annotated[
        bool,
        Option("Whether each run brings the search index up to date; not needed where OpenSearch is."),
    ] = True
    opensearch_url: Annotated[
        str,
        Option(
            "OpenSearch, which the workers fill and searches ask in place of the index in S3.",
            "a URL such as https://search.example.com",
            read=_url,
        ),
    ] = ""
    opensearch_index: Annotated[
        str,
        Option(
            "What its indexes' names begin with.",
            "lower-case letters, digits, - and _",
            read=_index_name,
        ),
    ] = "pdf-ops"
    opensearch_username: Annotated[
        str, Option("Who logs in there; without one, requests to a domain of AWS's are signed.")
    ] = ""
    opensearch_password: Annotated[str, Option("With what.")] = field(default="", repr=False)
    trust_ocr_layer: Annotated[
        bool, Option("Take the invisible text that an earlier OCR left over a scan.")
    ] = False

    @property
    def layout(self) -> Layout:
        """Where everything lives in S3."""
        return Layout(
            output_bucket=self.output_s3_bucket,
            output_prefix=self.output_s3_prefix,
            manifest_bucket=self.manifest_s3_bucket or self.output_s3_bucket,
            manifest_prefix=self.manifest_s3_key,
        )


def settings_of(cls: type[Any], prefix: str) -> tuple[Setting, ...]:
    """All settings of a dataclass, in the order of its fields; their variables begin with the prefix."""
    hints = typing.get_type_hints(cls, include_extras=True)
    found = []
    for one in fields(cls):
        kind, option = typing.get_args(hints[one.name])
        if typing.get_origin(kind) in (typing.Union, types.UnionType):
            (kind,) = (part for part in typing.get_args(kind) if part is not type(None))
        is_required = one.default is MISSING
        found.append(
            Setting(
                name=one.name,
                variable=f"{prefix}{one.name.upper()}",
                kind=kind,
                option=option,
                default="" if is_required else one.default,
                is_required=is_required,
            )
        )
    return tuple(found)


SETTINGS = {setting.name: setting for setting in settings_of(Settings, f"AIRFLOW__{SECTION.upper()}__")}


def read_values(
    settings: Iterable[Setting], text_of: Callable[[Setting], str]
) -> tuple[dict[str, Any], list[str]]:
    """The values that are given, by name, and what is wrong with the others."""
    values: dict[str, Any] = {}
    problems = []
    for setting in settings:
        text = text_of(setting)
        # An empty variable is how compose files and shells write "not set".
        if not text.strip():
            if setting.is_required:
                problems.append(f"{setting.variable} is missing; accepts {setting.accepted}")
            continue
        try:
            values[setting.name] = setting.parse(text)
        except ValueError as error:
            problems.append(f"{setting.variable}: {error}; accepts {setting.accepted}")
    return values, problems


def _configured(name: str) -> str:
    from airflow.sdk import conf

    return str(conf.get(SECTION, name, fallback="") or "")


def load() -> Settings:
    """Take all settings from Airflow's configuration and check them together.

    Raises:
        SettingsError: Naming every setting that is wrong or missing, and what it accepts.
    """
    values, problems = read_values(SETTINGS.values(), lambda setting: _configured(setting.name))
    if not problems:
        settings = Settings(**values)
        try:
            _ = settings.layout
        except LayoutError as error:
            problems.append(f"output_s3_prefix or manifest_s3_key: {error}")
        if settings.events_sqs_queue_url in (settings.sqs_queue_url, settings.dlq_sqs_queue_url):
            problems.append(
                f"{SETTINGS['events_sqs_queue_url'].variable}: the queue of events must be one of its own, "
                "not that of the documents or the dead letters: what is in it is deleted"
            )
        if not problems:
            return settings
    raise SettingsError(
        "settings of pdf_ops cannot be used (set them in the environment, or as the section "
        f"[{SECTION}] of Airflow's configuration):\n" + "\n".join(problems)
    )


def setting(name: str) -> Any:
    """One setting, for DAG files and templates: its default when it is missing or wrong, never an error.

    Whoever needs them to be right calls ``load``.
    """
    known = SETTINGS[name]
    text = _configured(name)
    if not text.strip():
        return known.default
    try:
        return known.parse(text)
    except ValueError:
        return known.default


def check_settings(_context: object = None) -> None:
    """Refuse to go on with settings that cannot be used; for an operator's ``pre_execute``.

    Raises:
        SettingsError: Naming every one of them.
    """
    load()
