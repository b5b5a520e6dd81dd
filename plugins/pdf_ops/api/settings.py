"""Every setting of the REST API, from environment variables that begin with ``PDF_OPS_``.

Where documents, queues and tables are is the pipeline's to say: see ``pdf_ops.settings``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pdf_ops.contract.layout import clean_prefix
from pdf_ops.exceptions import SettingsError
from pdf_ops.settings import Option, read_values, settings_of

PREFIX = "PDF_OPS_"


def _url(text: str) -> str:
    if not re.fullmatch(r"https?://[^\s/]+\S*", text):
        raise ValueError(f"{text!r:.80} is no URL")
    return text.rstrip("/")


def _redis_url(text: str) -> str:
    if not re.fullmatch(r"rediss?://\S+", text):
        raise ValueError("it is no Redis URL")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """How the API behaves here. What is secret is kept out of its ``repr``."""

    redis_url: Annotated[
        str,
        Option(
            "Redis for caches and rate limits that several processes share; each has its own when empty.",
            "redis://host:6379/0",
            read=_redis_url,
        ),
    ] = field(default="", repr=False)
    upload_prefix: Annotated[
        str,
        Option("Uploads are stored below this prefix, which is below the input prefix.", read=clean_prefix),
    ] = "uploads/"
    max_upload_mb: Annotated[
        int, Option("Largest upload, in megabytes (2^20 bytes).", minimum=1, maximum=80_000)
    ] = 2_048
    rate_capacity: Annotated[
        int, Option("Requests that a client may make at once.", minimum=1, maximum=1_000_000)
    ] = 100
    rate_refill_per_minute: Annotated[
        int, Option("Requests a minute that a client may make for ever.", minimum=1, maximum=1_000_000)
    ] = 600
    status_cache_s: Annotated[
        float,
        Option("How long a status may be served before it is read again.", minimum=0.01, maximum=60),
    ] = 1.0
    result_cache_s: Annotated[
        float, Option("How long read pages are kept; they never change.", minimum=1, maximum=86_400)
    ] = 300.0
    events_interval_s: Annotated[
        float, Option("Seconds between two looks at a job whose events are followed.", minimum=0.1)
    ] = 1.0
    doorbell_window_s: Annotated[
        int, Option("Uploads of so many seconds share one run of the pipeline.", minimum=1, maximum=3_600)
    ] = 10
    search_cache_dir: Annotated[
        str,
        Option(
            "Where the search index is kept that was fetched from S3; a folder of the user's own below the "
            "system's temporary one when empty.",
            "a folder",
        ),
    ] = ""
    search_cache_mb: Annotated[
        int,
        Option("Largest search index that is fetched, in megabytes (2^20 bytes).", minimum=1),
    ] = 4_096
    download_url_s: Annotated[int, Option("How long a download URL works.", minimum=1, maximum=43_200)] = 300
    airflow_url: Annotated[
        str,
        Option(
            "Airflow, for an API that runs by itself: uploads and redrives start runs there.",
            "a URL such as https://airflow.example.com",
            read=_url,
        ),
    ] = ""
    airflow_username: Annotated[str, Option("Who logs in there.")] = ""
    airflow_password: Annotated[str, Option("With what.")] = field(default="", repr=False)
    airflow_token: Annotated[str, Option("A token to use instead of a login.")] = field(
        default="", repr=False
    )
    api_keys: Annotated[
        str,
        Option(
            "Keys of an API that runs by itself, hashed.",
            "lines (or entries with commas) as `pdf-ops api-key` prints them",
        ),
    ] = field(default="", repr=False)
    api_keys_secret: Annotated[
        str, Option("A secret in Secrets Manager with such lines, read again every five minutes.")
    ] = ""


API_SETTINGS = settings_of(ApiSettings, PREFIX)


def load(environment: Mapping[str, str] = os.environ) -> ApiSettings:
    """Take all settings from the environment and check them together.

    Raises:
        SettingsError: Naming every setting that is wrong, and what it accepts.
    """
    values, problems = read_values(API_SETTINGS, lambda setting: environment.get(setting.variable, ""))
    if problems:
        raise SettingsError("settings of the API cannot be used:\n" + "\n".join(problems))
    return ApiSettings(**values)
