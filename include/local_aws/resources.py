"""What exists in AWS: ``include/resources.json``, typed.

The deployment reads the same file, so that the local AWS and the real one have the same resources.
Not for creating them: see ``local_aws.bootstrap``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

RESOURCES_FILE = Path(__file__).resolve().parent.parent / "resources.json"


class Source(StrEnum):
    """Where the value of a worker's setting comes from."""

    VALUE = "value"
    BUCKET = "bucket"
    QUEUE = "queue"
    TABLE = "table"
    LOG_GROUP = "log_group"
    REGION = "region"


class ResourcesError(ValueError):
    """The file of resources does not hold what it should."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """An S3 bucket."""

    name: str
    versioning: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """An SQS queue; one with a dead-letter queue names it by its key in the file."""

    name: str
    visibility_timeout_s: int
    receive_wait_s: int
    retention_s: int
    max_receive_count: int | None = None
    dead_letter_queue: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """A global secondary index of a table; its keys are strings, and it repeats these attributes."""

    hash_key: str
    range_key: str
    attributes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A DynamoDB table, paid per request; its keys are strings."""

    name: str
    hash_key: str
    range_key: str | None = None
    ttl_attribute: str | None = None
    indexes: Mapping[str, Index] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogGroup:
    """A group in CloudWatch Logs."""

    name: str
    retention_days: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The ECS cluster."""

    name: str
    capacity_providers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One environment variable of the worker.

    Attributes:
        name: The variable.
        source: What its value is.
        key: The value itself, or the key of the bucket, queue, table or log group in the file.
    """

    name: str
    source: Source
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """The worker's container.

    The last two hold in a deployment: a process of the local AWS has its system's files and limits.
    """

    name: str
    image: str
    command: tuple[str, ...]
    stop_timeout_s: int
    log_group: str
    log_stream_prefix: str
    environment: tuple[Setting, ...]
    scratch_path: str
    open_files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDefinition:
    """What ECS runs, on Fargate."""

    family: str
    cpu: int
    memory_mb: int
    container: Container


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """All of it, by the keys of the file."""

    buckets: Mapping[str, Bucket]
    queues: Mapping[str, Queue]
    tables: Mapping[str, Table]
    log_groups: Mapping[str, LogGroup]
    cluster: Cluster
    task_definition: TaskDefinition


def load_resources(path: Path = RESOURCES_FILE) -> Resources:
    """Read the file.

    Raises:
        ResourcesError: If something is missing, unknown, or refers to what is not there.
    """
    content = json.loads(path.read_text(encoding="utf-8"))
    try:
        resources = Resources(
            buckets={key: Bucket(**value) for key, value in content["buckets"].items()},
            queues={key: Queue(**value) for key, value in content["queues"].items()},
            tables={key: _table(value) for key, value in content["tables"].items()},
            log_groups={key: LogGroup(**value) for key, value in content["log_groups"].items()},
            cluster=Cluster(
                name=content["cluster"]["name"],
                capacity_providers=tuple(content["cluster"]["capacity_providers"]),
            ),
            task_definition=_task_definition(content["task_definition"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ResourcesError(f"{path.name}: {type(error).__name__}: {error}") from error
    _check_references(resources, path.name)
    return resources


def _table(content: Mapping[str, Any]) -> Table:
    indexes = {
        name: Index(**{**index, "attributes": tuple(index["attributes"])})
        for name, index in content.get("indexes", {}).items()
    }
    return Table(**{**content, "indexes": indexes})


def _task_definition(content: Mapping[str, Any]) -> TaskDefinition:
    container = dict(content["container"])
    container["command"] = tuple(container["command"])
    container["environment"] = tuple(_setting(*item) for item in container["environment"].items())
    return TaskDefinition(**{**content, "container": Container(**container)})


def _setting(name: str, content: Mapping[str, Any]) -> Setting:
    (source, key) = next(iter(content.items()))
    return Setting(name=name, source=Source(source), key=str(key))


def _check_references(resources: Resources, file: str) -> None:
    known = {
        Source.BUCKET: resources.buckets,
        Source.QUEUE: resources.queues,
        Source.TABLE: resources.tables,
        Source.LOG_GROUP: resources.log_groups,
    }
    container = resources.task_definition.container
    references = [(setting.source, setting.key) for setting in container.environment]
    references.append((Source.LOG_GROUP, container.log_group))
    references += [
        (Source.QUEUE, queue.dead_letter_queue)
        for queue in resources.queues.values()
        if queue.dead_letter_queue is not None
    ]
    for source, key in references:
        if source in known and key not in known[source]:
            raise ResourcesError(f"{file}: there is no {source} {key!r}; known: {', '.join(known[source])}")
