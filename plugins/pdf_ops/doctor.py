"""Whether a deployment is as the pipeline needs it: every part is looked at, each fault says what mends it.

Reads only, and goes on after a fault, so that one look shows all of them. Not for documents or runs.
"""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

from pdf_ops.contract import runs, state
from pdf_ops.hooks.clients import error_code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pdf_ops.airflow_api import AirflowApi
    from pdf_ops.settings import Settings

    Client = Callable[[str], Any]
    Look = Callable[["Deployment"], Iterator["Finding"]]

MIN_RECEIVES = 6
"""A worker closes a document that killed five of them; before that the queue must not give it up."""
MIN_VISIBILITY_S = 120
"""A worker prolongs a message's visibility as it works, but not while it starts."""
MIN_RETENTION_S = 86_400
_REFUSED = ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "403", "AuthorizationError")
_ECR_IMAGE = re.compile(
    r"(?P<registry>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com[a-z.]*/(?P<name>[^:@]+)"
    r"(?::(?P<tag>[^@]+))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_INDEXES = {
    "state": {state.LISTING_INDEX: (state.LISTING_HASH_KEY, state.LISTING_RANGE_KEY)},
    "runs": {state.LISTING_INDEX: (state.LISTING_HASH_KEY, state.LISTING_RANGE_KEY)},
}
_KEYS = {"state": (state.HASH_KEY,), "runs": (runs.HASH_KEY, runs.RANGE_KEY)}
_ALLOW = "allow it, as include/permissions.json does for the role control_plane"


class Verdict(StrEnum):
    """What was found."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        what: The thing.
        verdict: Whether it is as it should be; a note is for what may be meant so.
        detail: What was found.
        fix: What to do; empty if nothing.
    """

    what: str
    verdict: Verdict
    detail: str
    fix: str = ""


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """What is looked at.

    Attributes:
        settings: What the pipeline is told.
        client: Gives an AWS client by the service's name.
        airflow: Airflow's API, for those who start runs from outside.
    """

    settings: Settings
    client: Client
    airflow: AirflowApi


def examine(deployment: Deployment) -> Iterator[Finding]:
    """Look at everything, one after another."""
    for look in LOOKS:
        yield from look(deployment)


def _ok(what: str, detail: str) -> Finding:
    return Finding(what=what, verdict=Verdict.OK, detail=detail)


def _problem(what: str, detail: str, fix: str) -> Finding:
    return Finding(what=what, verdict=Verdict.PROBLEM, detail=detail, fix=fix)


def _note(what: str, detail: str, fix: str = "") -> Finding:
    return Finding(what=what, verdict=Verdict.NOTE, detail=detail, fix=fix)


def _asked(what: str, ask: Callable[[], Any], setting: str) -> tuple[Any, Finding | None]:
    """What AWS answers, or what its refusal means."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return ask(), None
    except ClientError as error:
        code = error_code(error)
        if code in _REFUSED:
            return None, _problem(what, f"{error.operation_name} is not allowed", _ALLOW)
        return None, _problem(
            what, f"{error.operation_name}: {code}", f"create it, or correct the setting {setting}"
        )
    except BotoCoreError as error:
        return None, _problem(
            what, str(error), "is AWS within reach, and are there credentials and a region?"
        )


# S3 ------------------------------------------------------------------------------------------------


def _buckets(deployment: Deployment) -> Iterator[Finding]:
    settings, s3 = deployment.settings, deployment.client("s3")
    layout = settings.layout
    for role, bucket, setting in (
        ("input", settings.input_s3_bucket, "input_s3_bucket"),
        ("output", layout.output_bucket, "output_s3_bucket"),
        ("manifest", layout.manifest_bucket, "manifest_s3_bucket"),
    ):
        what = f"{role} bucket {bucket}"
        _, fault = _asked(what, partial(s3.list_objects_v2, Bucket=bucket, MaxKeys=1), setting)
        yield fault or _ok(what, "can be listed")


# SQS -----------------------------------------------------------------------------------------------


def _queues(deployment: Deployment) -> Iterator[Finding]:
    settings = deployment.settings
    documents, fault = _queue(deployment, "queue of documents", settings.sqs_queue_url, "sqs_queue_url")
    if fault:
        yield fault
    letters, fault = _queue(deployment, "dead-letter queue", settings.dlq_sqs_queue_url, "dlq_sqs_queue_url")
    if fault:
        yield fault
    if documents is not None and letters is not None:
        yield from _redrive_policy(documents, letters)
        yield from _times(documents, letters)
    if settings.events_sqs_queue_url:
        what = "queue of events"
        found, fault = _queue(deployment, what, settings.events_sqs_queue_url, "events_sqs_queue_url")
        yield fault or _ok(what, f"{found['ApproximateNumberOfMessages']} events wait")


def _queue(deployment: Deployment, what: str, url: str, setting: str) -> tuple[Any, Finding | None]:
    sqs = deployment.client("sqs")
    answer, fault = _asked(
        what, lambda: sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"]), setting
    )
    return (answer or {}).get("Attributes"), fault


def _redrive_policy(documents: dict[str, str], letters: dict[str, str]) -> Iterator[Finding]:
    what = "redrive policy"
    policy = json.loads(documents.get("RedrivePolicy", "{}"))
    target, receives = policy.get("deadLetterTargetArn"), int(policy.get("maxReceiveCount", 0))
    if target is None:
        yield _problem(
            what,
            "the queue of documents has none, so a message that kills its workers comes back for ever",
            f"set RedrivePolicy: deadLetterTargetArn {letters['QueueArn']}, maxReceiveCount 10",
        )
    elif target != letters["QueueArn"]:
        yield _problem(
            what,
            f"it leads to {target}, where nobody looks",
            f"set deadLetterTargetArn to {letters['QueueArn']}, or correct the setting dlq_sqs_queue_url",
        )
    elif receives < MIN_RECEIVES:
        yield _problem(
            what,
            f"it gives a message up after {receives} receives, before workers have closed its document",
            "set maxReceiveCount to 10",
        )
    else:
        yield _ok(what, f"to the dead-letter queue after {receives} receives")
    if "RedrivePolicy" in letters:
        yield _problem(
            "dead-letter queue",
            "it has a redrive policy of its own: looking at letters would move them away",
            "remove its RedrivePolicy",
        )


def _times(documents: dict[str, str], letters: dict[str, str]) -> Iterator[Finding]:
    visibility_s = int(documents["VisibilityTimeout"])
    kept_s, letters_kept_s = (int(one["MessageRetentionPeriod"]) for one in (documents, letters))
    if visibility_s < MIN_VISIBILITY_S:
        yield _problem(
            "visibility timeout",
            f"{visibility_s} s: messages come back before their worker has begun",
            "set VisibilityTimeout to 300",
        )
    else:
        yield _ok("visibility timeout", f"{visibility_s} s")
    if letters_kept_s <= kept_s:
        yield _problem(
            "retention",
            "the dead-letter queue forgets a letter as soon as the queue would: each keeps its first date",
            "set its MessageRetentionPeriod to 1209600, 14 days",
        )
    elif kept_s < MIN_RETENTION_S:
        yield _problem(
            "retention",
            f"documents are lost after {kept_s} s",
            "set MessageRetentionPeriod to 345600, 4 days",
        )
    else:
        yield _ok("retention", f"{kept_s // 86_400} days, of letters {letters_kept_s // 86_400} days")


# DynamoDB ------------------------------------------------------------------------------------------


def _tables(deployment: Deployment) -> Iterator[Finding]:
    settings = deployment.settings
    for role, name, setting in (
        ("state", settings.dynamo_table_name, "dynamo_table_name"),
        ("runs", settings.dynamo_runs_table_name, "dynamo_runs_table_name"),
    ):
        yield from _table(deployment, role, name, setting)


def _table(deployment: Deployment, role: str, name: str, setting: str) -> Iterator[Finding]:
    what, dynamodb = f"{role} table {name}", deployment.client("dynamodb")
    answer, fault = _asked(what, lambda: dynamodb.describe_table(TableName=name), setting)
    if fault:
        yield fault
        return
    table = answer["Table"]
    keys = _key_names(table)
    if keys != _KEYS[role]:
        yield _problem(
            what,
            f"its key is {', '.join(keys)}",
            f"make another one with the key {', '.join(_KEYS[role])}: a table's key cannot be changed",
        )
        return
    yield _ok(what, f"key {', '.join(keys)}")
    indexes = {index["IndexName"]: index for index in table.get("GlobalSecondaryIndexes", [])}
    for index, wanted in _INDEXES[role].items():
        found = indexes.get(index)
        if found is None or _key_names(found) != wanted:
            yield _problem(
                f"index {index} of {name}",
                "is missing" if found is None else f"its key is {', '.join(_key_names(found))}",
                f"apply include/terraform, or create it with the key {', '.join(wanted)} and all attributes",
            )
        elif found.get("IndexStatus", "ACTIVE") != "ACTIVE":
            yield _note(
                f"index {index} of {name}", f"is {found['IndexStatus'].lower()}", "wait until it is active"
            )
        else:
            yield _ok(f"index {index} of {name}", "is there")
    if role == "runs":
        yield _expiry(dynamodb, name, setting)


def _key_names(table: dict[str, Any]) -> tuple[str, ...]:
    ordered = sorted(table["KeySchema"], key=lambda key: key["KeyType"] != "HASH")
    return tuple(key["AttributeName"] for key in ordered)


def _expiry(dynamodb: Any, name: str, setting: str) -> Finding:
    what = f"expiry of {name}"
    answer, fault = _asked(what, lambda: dynamodb.describe_time_to_live(TableName=name), setting)
    if fault:
        return fault
    found = answer["TimeToLiveDescription"]
    is_on = found.get("TimeToLiveStatus") in ("ENABLED", "ENABLING")
    if is_on and found.get("AttributeName") == runs.TTL_ATTRIBUTE:
        return _ok(what, f"by {runs.TTL_ATTRIBUTE}")
    return _problem(
        what,
        "the outcomes of runs are kept for ever",
        f"aws dynamodb update-time-to-live --table-name {name} --time-to-live-specification "
        f"Enabled=true,AttributeName={runs.TTL_ATTRIBUTE}",
    )


# ECS and logs --------------------------------------------------------------------------------------


def _cluster(deployment: Deployment) -> Iterator[Finding]:
    settings, ecs = deployment.settings, deployment.client("ecs")
    what = f"cluster {settings.ecs_cluster}"
    answer, fault = _asked(
        what, lambda: ecs.describe_clusters(clusters=[settings.ecs_cluster]), "ecs_cluster"
    )
    if fault:
        yield fault
        return
    active = [one for one in answer["clusters"] if one["status"] == "ACTIVE"]
    if not active:
        yield _problem(what, "there is none of this name", "create it, or correct the setting ecs_cluster")
        return
    providers = active[0].get("capacityProviders", [])
    if settings.capacity.value == "spot" and "FARGATE_SPOT" not in providers:
        yield _problem(
            what,
            "it has no capacity provider FARGATE_SPOT",
            f"aws ecs put-cluster-capacity-providers --cluster {settings.ecs_cluster} --capacity-providers "
            "FARGATE FARGATE_SPOT --default-capacity-provider-strategy capacityProvider=FARGATE; "
            "or set capacity to on_demand",
        )
    else:
        yield _ok(what, "is active")


def _worker(deployment: Deployment) -> Iterator[Finding]:
    settings, ecs = deployment.settings, deployment.client("ecs")
    what = f"task definition {settings.ecs_task_definition}"
    answer, fault = _asked(
        what,
        lambda: ecs.describe_task_definition(taskDefinition=settings.ecs_task_definition),
        "ecs_task_definition",
    )
    if fault:
        yield fault
        return
    definition = answer["taskDefinition"]
    containers = {one["name"]: one for one in definition["containerDefinitions"]}
    container = containers.get(settings.ecs_container_name)
    if container is None:
        yield _problem(
            what,
            f"it has no container {settings.ecs_container_name}, but {', '.join(containers)}",
            "correct the setting ecs_container_name",
        )
        return
    yield _ok(what, f"revision {definition.get('revision')}, image {container['image']}")
    yield from _image(deployment, container["image"])
    yield from _log_group(deployment, container)


def _image(deployment: Deployment, image: str) -> Iterator[Finding]:
    from botocore.exceptions import ClientError

    named = _ECR_IMAGE.fullmatch(image)
    if named is None:
        yield _note(f"image {image}", "it is not in ECR, so nobody looked whether it is there")
        return
    wanted = {"imageDigest": named["digest"]} if named["digest"] else {"imageTag": named["tag"] or "latest"}
    try:
        deployment.client("ecr").describe_images(
            registryId=named["registry"], repositoryName=named["name"], imageIds=[wanted]
        )
    except ClientError as error:
        if error_code(error) in _REFUSED:
            yield _note(
                f"image {image}", "DescribeImages is not allowed, so nobody looked whether it is there"
            )
        else:
            yield _problem(
                f"image {image}",
                f"DescribeImages: {error_code(error)}",
                "build and push it: docs/worker-image.md",
            )
    else:
        yield _ok(f"image {image}", "is there")


def _log_group(deployment: Deployment, container: dict[str, Any]) -> Iterator[Finding]:
    options = container.get("logConfiguration", {}).get("options", {})
    used, configured = options.get("awslogs-group"), deployment.settings.log_group_name
    name = configured or used
    if not name:
        yield _note("log group", "the worker's container has none: what workers say is lost")
        return
    if configured and used and configured != used:
        yield _problem(f"log group {configured}", f"workers write to {used}", f"set log_group_name to {used}")
        return
    what, logs = f"log group {name}", deployment.client("logs")
    answer, fault = _asked(what, lambda: logs.describe_log_groups(logGroupNamePrefix=name), "log_group_name")
    if fault:
        yield fault
    elif name not in {group["logGroupName"] for group in answer["logGroups"]}:
        yield _problem(
            what, "there is none of this name", f"aws logs create-log-group --log-group-name {name}"
        )
    else:
        yield _ok(what, "is there")


# Airflow and Slack ---------------------------------------------------------------------------------


def _slack(deployment: Deployment) -> Iterator[Finding]:
    name = deployment.settings.slack_conn_id
    if not name:
        yield _note("Slack", "no connection is configured: runs and dead letters alert nobody")
        return
    what = f"Slack connection {name}"
    try:
        from airflow.providers.slack.hooks.slack_webhook import SlackWebhookHook
    except ImportError:
        yield _problem(what, "the Slack provider is missing", "pip install apache-airflow-providers-slack")
        return
    try:
        hook: Any = SlackWebhookHook(slack_webhook_conn_id=name)
        hook.get_conn()
    except Exception as error:  # noqa: BLE001 -- each backend of connections fails in its own way
        # The URL in an error holds the webhook's secret, hence its type alone.
        yield _problem(
            what,
            f"cannot be used here: {type(error).__name__}",
            f"define it, as AIRFLOW_CONN_{name.upper()}="
            '{"conn_type": "slackwebhook", "password": "T000/B000/XXX"}; where Airflow keeps it in its own '
            "database, run this command beside Airflow",
        )
    else:
        yield _ok(what, "is known; nothing was sent")


def _airflow(deployment: Deployment) -> Iterator[Finding]:
    from pdf_ops.airflow_api import PIPELINE, REDRIVE, AirflowApiError

    if not deployment.airflow.url:
        yield _note("Airflow's API", "PDF_OPS_AIRFLOW_URL is not set: `pdf-ops redrive` can only count here")
        return
    for dag_id in (PIPELINE, REDRIVE):
        what = f"DAG {dag_id}"
        try:
            is_paused = asyncio.run(deployment.airflow.is_paused(dag_id))
        except AirflowApiError as error:
            yield _problem(what, str(error), "are PDF_OPS_AIRFLOW_URL and the token or login right?")
            continue
        if is_paused:
            yield _problem(what, "it is paused: its runs wait", f"airflow dags unpause {dag_id}")
        else:
            yield _ok(what, "is there, and not paused")


# In the order in which they are shown; another part that can be configured is one more.
LOOKS: tuple[Look, ...] = (_buckets, _queues, _tables, _cluster, _worker, _slack, _airflow)
