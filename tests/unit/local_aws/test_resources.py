"""The file of resources: what both planes and the deployment take from it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from local_aws.bootstrap import worker_settings
from local_aws.resources import RESOURCES_FILE, ResourcesError, load_resources
from pdf_ops.contract import runs, state

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_the_tables_have_the_keys_that_the_contract_writes() -> None:
    tables = load_resources().tables

    assert (tables["runs"].hash_key, tables["runs"].range_key) == (runs.HASH_KEY, runs.RANGE_KEY)
    assert tables["state"].hash_key == "s3_key"


def test_documents_and_runs_are_listed_by_the_index_that_the_contract_writes() -> None:
    for table in load_resources().tables.values():
        index = table.indexes[state.LISTING_INDEX]

        assert (index.hash_key, index.range_key) == (state.LISTING_HASH_KEY, state.LISTING_RANGE_KEY)


def test_the_dead_letter_queue_keeps_messages_longer_than_the_queue() -> None:
    # A message keeps the time of its first enqueueing when it moves.
    queues = load_resources().queues

    assert queues["documents"].dead_letter_queue == "dead_letters"
    assert queues["dead_letters"].retention_s > queues["documents"].retention_s


def test_every_setting_of_the_worker_gets_the_value_of_its_resource() -> None:
    urls = {"documents": "http://queue", "dead_letters": "http://dlq"}

    settings = worker_settings(load_resources(), urls, "eu-west-1")

    assert settings == {
        "INPUT_S3_BUCKET": "pdf-ops-input",
        "INPUT_S3_PREFIX": "",
        "OUTPUT_S3_BUCKET": "pdf-ops-output",
        "OUTPUT_S3_PREFIX": "",
        "MANIFEST_S3_BUCKET": "pdf-ops-manifest",
        "MANIFEST_S3_KEY": "manifests/",
        "SQS_QUEUE_URL": "http://queue",
        "DLQ_SQS_QUEUE_URL": "http://dlq",
        "DYNAMO_TABLE_NAME": "pdf-ops-state",
        "DYNAMO_RUNS_TABLE_NAME": "pdf-ops-runs",
        "AWS_REGION": "eu-west-1",
    }


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda content: content["queues"]["documents"].update(dead_letter_queue="dlq"), "no queue 'dlq'"),
        (lambda content: content["buckets"]["input"].update(colour="red"), "colour"),
        (lambda content: content.pop("tables"), "tables"),
        (
            lambda content: content["task_definition"]["container"]["environment"].update(
                X={"tabel": "state"}
            ),
            "tabel",
        ),
    ],
)
def test_a_mistake_in_the_file_is_named(
    tmp_path: Path, spoil: Callable[[dict[str, Any]], object], message: str
) -> None:
    content = json.loads(RESOURCES_FILE.read_text())
    spoil(content)
    file = tmp_path / "resources.json"
    file.write_text(json.dumps(content))

    with pytest.raises(ResourcesError, match=message):
        load_resources(file)
