"""The app as Airflow's api-server mounts it: its own users, roles, connections and configuration."""

from __future__ import annotations

import functools
import os

from fastapi import FastAPI

from pdf_ops import settings as pipeline_settings
from pdf_ops.api import settings as api_settings
from pdf_ops.api.airflow_access import AirflowAccess
from pdf_ops.api.app import create_app
from pdf_ops.api.aws import Aws
from pdf_ops.api.requests_log import log_requests
from pdf_ops.api.services import Services

SECTION = "pdf_ops_api"
"""Of Airflow's configuration: MWAA takes options, and no environment variables but by a script."""


@functools.cache
def mounted_app() -> FastAPI:
    """The app, for the plugin."""
    log_requests()
    return create_app(_services)


def _services() -> Services:
    pipeline = pipeline_settings.load()
    aws = Aws(aws_conn_id=pipeline.aws_conn_id, region_name=pipeline.aws_region or None)
    settings = api_settings.load(configured())
    return Services.create(settings, pipeline, AirflowAccess(), aws, is_mounted=True)


def configured() -> dict[str, str]:
    """The settings by their variables: from the environment, or else from Airflow's configuration."""
    from airflow.sdk import conf

    return {
        setting.variable: os.environ.get(setting.variable)
        or str(conf.get(SECTION, setting.name, fallback="") or "")
        for setting in api_settings.API_SETTINGS
    }
