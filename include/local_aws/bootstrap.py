"""Creates what ``include/resources.json`` defines, by ordinary AWS calls; twice does no harm.

Not for a deployment, which Terraform makes from the same file.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from local_aws.resources import Bucket, Queue, Resources, Source, Table, TaskDefinition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Clients = Callable[[str], Any]


def create_resources(resources: Resources, client: Clients, region: str) -> dict[str, str]:
    """Create what is missing, and bring what is there into the defined form.

    Args:
        resources: What there should be.
        client: Gives a boto3 client by the name of its service.
        region: Where.

    Returns:
        The worker's settings, as environment variables.
    """
    for bucket in resources.buckets.values():
        _create_bucket(bucket, region, client("s3"))
    queue_urls = _create_queues(resources.queues, client("sqs"))
    for table in resources.tables.values():
        create_table(table, client("dynamodb"))
    for group in resources.log_groups.values():
        _create_log_group(group.name, group.retention_days, client("logs"))
    settings = worker_settings(resources, queue_urls, region)
    _create_cluster(resources, client("ecs"))
    _register_task_definition(resources, settings, region, client("ecs"))
    return settings


def worker_settings(resources: Resources, queue_urls: Mapping[str, str], region: str) -> dict[str, str]:
    """The worker's environment variables, with the values that the resources have."""

    def value(source: Source, key: str) -> str:
        match source:
            case Source.VALUE:
                return key
            case Source.BUCKET:
                return resources.buckets[key].name
            case Source.QUEUE:
                return queue_urls[key]
            case Source.TABLE:
                return resources.tables[key].name
            case Source.LOG_GROUP:
                return resources.log_groups[key].name
            case Source.REGION:
                return region

    container = resources.task_definition.container
    return {setting.name: value(setting.source, setting.key) for setting in container.environment}


def _exists(look: Callable[[], object], *missing: str) -> bool:
    from botocore.exceptions import ClientError

    try:
        look()
    except ClientError as error:
        if error.response["Error"]["Code"] in missing:
            return False
        raise
    return True


def _create_bucket(bucket: Bucket, region: str, s3: Any) -> None:
    if not _exists(lambda: s3.head_bucket(Bucket=bucket.name), "404"):
        # us-east-1 is the one region that may not be named.
        where = {"CreateBucketConfiguration": {"LocationConstraint": region}} if region != "us-east-1" else {}
        s3.create_bucket(Bucket=bucket.name, **where)
    if bucket.versioning:
        s3.put_bucket_versioning(Bucket=bucket.name, VersioningConfiguration={"Status": "Enabled"})


def _create_queues(queues: Mapping[str, Queue], sqs: Any) -> dict[str, str]:
    # Without attributes: creating a queue again with others is an error, setting them is not.
    urls = {key: sqs.create_queue(QueueName=queue.name)["QueueUrl"] for key, queue in queues.items()}
    for key, queue in queues.items():
        attributes = {
            "VisibilityTimeout": str(queue.visibility_timeout_s),
            "ReceiveMessageWaitTimeSeconds": str(queue.receive_wait_s),
            "MessageRetentionPeriod": str(queue.retention_s),
        }
        if queue.dead_letter_queue is not None:
            dead_letters = sqs.get_queue_attributes(
                QueueUrl=urls[queue.dead_letter_queue], AttributeNames=["QueueArn"]
            )
            attributes["RedrivePolicy"] = json.dumps(
                {
                    "deadLetterTargetArn": dead_letters["Attributes"]["QueueArn"],
                    "maxReceiveCount": queue.max_receive_count,
                }
            )
        sqs.set_queue_attributes(QueueUrl=urls[key], Attributes=attributes)
    return urls


def create_table(table: Table, dynamodb: Any) -> None:
    """Create a table with its indexes, unless it is there."""
    if not _exists(lambda: dynamodb.describe_table(TableName=table.name), "ResourceNotFoundException"):
        keys = {"HASH": table.hash_key, "RANGE": table.range_key}
        present = {kind: name for kind, name in keys.items() if name is not None}
        names = [*present.values()]
        for index in table.indexes.values():
            names += [index.hash_key, index.range_key]
        dynamodb.create_table(
            TableName=table.name,
            KeySchema=[{"AttributeName": name, "KeyType": kind} for kind, name in present.items()],
            AttributeDefinitions=[
                {"AttributeName": name, "AttributeType": "S"} for name in dict.fromkeys(names)
            ],
            BillingMode="PAY_PER_REQUEST",
            **_index_arguments(table),
        )
        dynamodb.get_waiter("table_exists").wait(TableName=table.name)
    if table.ttl_attribute is not None:
        ttl = dynamodb.describe_time_to_live(TableName=table.name)["TimeToLiveDescription"]
        if ttl["TimeToLiveStatus"] == "DISABLED":  # Enabling it again is an error.
            dynamodb.update_time_to_live(
                TableName=table.name,
                TimeToLiveSpecification={"Enabled": True, "AttributeName": table.ttl_attribute},
            )


def _index_arguments(table: Table) -> dict[str, Any]:
    """The argument of CreateTable for a table's indexes; none if it has none."""
    if not table.indexes:
        return {}
    return {
        "GlobalSecondaryIndexes": [
            {
                "IndexName": name,
                "KeySchema": [
                    {"AttributeName": index.hash_key, "KeyType": "HASH"},
                    {"AttributeName": index.range_key, "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": list(index.attributes)},
            }
            for name, index in table.indexes.items()
        ]
    }


def _create_log_group(name: str, retention_days: int, logs: Any) -> None:
    groups = logs.describe_log_groups(logGroupNamePrefix=name)["logGroups"]
    if name not in {group["logGroupName"] for group in groups}:
        logs.create_log_group(logGroupName=name)
    logs.put_retention_policy(logGroupName=name, retentionInDays=retention_days)


def _create_cluster(resources: Resources, ecs: Any) -> None:
    cluster = resources.cluster
    found = ecs.describe_clusters(clusters=[cluster.name])["clusters"]
    if not any(one["status"] == "ACTIVE" for one in found):
        ecs.create_cluster(clusterName=cluster.name, capacityProviders=list(cluster.capacity_providers))


def _register_task_definition(
    resources: Resources, settings: Mapping[str, str], region: str, ecs: Any
) -> None:
    wanted = task_registration(resources.task_definition, resources, settings, region)
    revisions = ecs.list_task_definitions(familyPrefix=wanted["family"])["taskDefinitionArns"]
    if revisions:
        # A new revision for the same content would grow the list each time.
        latest = ecs.describe_task_definition(taskDefinition=wanted["family"])["taskDefinition"]
        if _is_part_of(wanted, latest):
            return
    ecs.register_task_definition(**wanted)


def task_registration(
    definition: TaskDefinition, resources: Resources, settings: Mapping[str, str], region: str
) -> dict[str, Any]:
    """The arguments of RegisterTaskDefinition."""
    container = definition.container
    return {
        "family": definition.family,
        "requiresCompatibilities": ["FARGATE"],
        "networkMode": "awsvpc",
        "cpu": str(definition.cpu),
        "memory": str(definition.memory_mb),
        "containerDefinitions": [
            {
                "name": container.name,
                "image": container.image,
                "command": list(container.command),
                "essential": True,
                "stopTimeout": container.stop_timeout_s,
                "environment": [{"name": name, "value": value} for name, value in settings.items()],
                "logConfiguration": {
                    "logDriver": "awslogs",
                    "options": {
                        "awslogs-group": resources.log_groups[container.log_group].name,
                        "awslogs-region": region,
                        "awslogs-stream-prefix": container.log_stream_prefix,
                    },
                },
            }
        ],
    }


def _is_part_of(wanted: object, found: object) -> bool:
    """Whether the answer holds all that was asked for; ECS adds defaults of its own."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return all(key in found and _is_part_of(value, found[key]) for key, value in wanted.items())
    if isinstance(wanted, list) and isinstance(found, list):
        return len(wanted) == len(found) and all(map(_is_part_of, wanted, found))
    return wanted == found
