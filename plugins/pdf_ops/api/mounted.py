"""The app as Airflow's api-server mounts it: its own users, roles and connections."""

from __future__ import annotations

import functools

from fastapi import FastAPI

from pdf_ops import settings as pipeline_settings
from pdf_ops.api import settings as api_settings
from pdf_ops.api.airflow_access import AirflowAccess
from pdf_ops.api.app import create_app
from pdf_ops.api.aws import Aws
from pdf_ops.api.requests_log import log_requests
from pdf_ops.api.services import Services


@functools.cache
def mounted_app() -> FastAPI:
    """The app, for the plugin."""
    log_requests()
    return create_app(_services)


def _services() -> Services:
    pipeline = pipeline_settings.load()
    aws = Aws(aws_conn_id=pipeline.aws_conn_id, region_name=pipeline.aws_region or None)
    return Services.create(api_settings.load(), pipeline, AirflowAccess(), aws, is_mounted=True)
