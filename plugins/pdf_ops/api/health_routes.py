"""Whether the API is there, and whether what it needs is. Open to everybody: load balancers ask."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Response

from pdf_ops.api.dependencies import ServicesDep
from pdf_ops.api.models import Health
from pdf_ops.api.services import Services

_BELIEVED_S = 5.0
router = APIRouter(tags=["health"])
_known: dict[str, Any] = {"at": float("-inf"), "checks": {}}


@router.get("/health", summary="Whether the API is there")
async def get_health() -> Health:
    """Says nothing about AWS."""
    return Health(status="ok")


@router.get(
    "/ready",
    summary="Whether the API can work",
    responses={503: {"model": Health, "description": "Something that it needs is out of reach."}},
)
async def get_readiness(services: ServicesDep, response: Response) -> Health:
    """Looks at the tables, the queue, the bucket and Redis; what it saw is believed for five seconds."""
    if time.monotonic() - _known["at"] > _BELIEVED_S:
        checks = await services.aws.run(_check, services)
        if services.redis is not None:
            # Without it every process is on its own, which is worse and still works.
            checks["redis"] = "ok" if await services.redis.is_up() else "out of reach"
        _known.update(at=time.monotonic(), checks=checks)
    checks = dict(_known["checks"])
    is_ready = all(state == "ok" for name, state in checks.items() if name != "redis")
    response.status_code = 200 if is_ready else 503
    return Health(status="ok" if is_ready else "out of reach", checks=checks)


def _check(services: Services) -> dict[str, str]:
    from botocore.exceptions import BotoCoreError, ClientError

    pipeline, aws = services.pipeline, services.aws
    probes: dict[str, Callable[[], object]] = {
        "state_table": lambda: aws.client("dynamodb").describe_table(TableName=pipeline.dynamo_table_name),
        "runs_table": lambda: aws.client("dynamodb").describe_table(
            TableName=pipeline.dynamo_runs_table_name
        ),
        "queue": lambda: aws.client("sqs").get_queue_attributes(QueueUrl=pipeline.sqs_queue_url),
        "bucket": lambda: aws.client("s3").head_bucket(Bucket=pipeline.input_s3_bucket),
    }
    checks = {}
    for name, probe in probes.items():
        try:
            probe()
        except (BotoCoreError, ClientError) as error:
            checks[name] = type(error).__name__
        else:
            checks[name] = "ok"
    return checks
