"""A redrive whose process is killed: no dead letter is lost, and what is left goes round the next time."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from tests.support.world import World

from local_airflow.environment import airflow_environment
from pdf_ops.contract.messages import DocumentMessage
from pdf_ops.dead_letters import count_letters

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from local_aws import LocalAws

pytestmark = [pytest.mark.timeout(900)]

LETTERS = 240
# The three tasks of pdf_redrive that touch letters, one after another, as its runs do.
REDRIVE = """
import json, os, sys
from datetime import UTC, datetime
from types import SimpleNamespace
from pdf_ops.operators.enqueue import PdfEnqueueOperator
from pdf_ops.operators.redrive import ClearLettersOperator, RedriveListOperator

given = json.loads(sys.argv[1])
run_id, aws = given["run_id"], {"aws_conn_id": None}
out = given["output"]
places = {"output_bucket": out, "manifest_bucket": out, "manifest_prefix": "manifests"}
ti = SimpleNamespace(try_number=1, xcom_push=lambda key, value: None)
dag_run = SimpleNamespace(
    run_type="manual", run_after=datetime.now(UTC), data_interval_start=None, data_interval_end=None
)
context = {"ti": ti, "dag_run": dag_run}
print("list", flush=True)
shards = RedriveListOperator(
    task_id="list", bucket=given["input"], dlq_url=given["dlq"], state_table=given["state_table"],
    runs_table=given["runs_table"], run_id=run_id, **places, **aws,
).execute(context)
print("send", flush=True)
for shard in shards:
    PdfEnqueueOperator(
        task_id="enqueue", shard_uri=shard, queue_url=given["queue"], run_id=run_id, **aws
    ).execute(context)
print("clear", flush=True)
ClearLettersOperator(
    task_id="clear", dlq_url=given["dlq"], input_bucket=given["input"], run_id=run_id, **places, **aws
).execute(context)
print("done", flush=True)
"""


class Redrive:
    """A world with dead letters, and the process that sends them round again."""

    def __init__(self, world: World, environment: Mapping[str, str], run_id: str) -> None:
        self.world, self._environment = world, environment
        self._given = {
            "run_id": run_id,
            "input": world.input,
            "output": world.output,
            "dlq": world.dlq,
            "queue": world.queue,
            "state_table": world.state_table,
            "runs_table": world.runs_table,
        }

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", REDRIVE, json.dumps(self._given)],
            env=dict(self._environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def wait_for_step(self, process: subprocess.Popen[str], step: str) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() == step:
                return
        raise AssertionError(f"it ended before {step}")

    def letters(self) -> int:
        return count_letters(self.world.sqs, self.world.dlq)

    def sent(self) -> set[str]:
        """The documents of the messages in the queue; looking does not take them away."""
        sqs, found, receipts = self.world.sqs, set(), []
        while received := sqs.receive_message(
            QueueUrl=self.world.queue, MaxNumberOfMessages=10, VisibilityTimeout=300
        ).get("Messages"):
            for message in received:
                found.add(json.loads(message["Body"])["s3_key"])
                receipts.append(message["ReceiptHandle"])
        for receipt in receipts:
            sqs.change_message_visibility(
                QueueUrl=self.world.queue, ReceiptHandle=receipt, VisibilityTimeout=0
            )
        return found

    def until_visible(self) -> None:
        """Wait until SQS gives back what a killed process had in hand."""
        deadline = time.monotonic() + 150
        name = "ApproximateNumberOfMessagesNotVisible"
        while (
            self.world.sqs.get_queue_attributes(QueueUrl=self.world.dlq, AttributeNames=[name])["Attributes"][
                name
            ]
            != "0"
        ):
            assert time.monotonic() < deadline, "the letters do not come back"
            time.sleep(0.5)


@pytest.fixture
def redrive(local_aws: LocalAws, tmp_path: Path) -> Iterator[Redrive]:
    with World(local_aws) as world:
        for number in range(LETTERS):
            key = f"{number:03d}.pdf"
            world.put(key, b"%PDF-1.7 " + key.encode())
            said = {"error_class": "TIMEOUT", "error_code": "page", "run_id": "run-1", "s3_key": key}
            world.sqs.send_message(
                QueueUrl=world.dlq,
                MessageBody=DocumentMessage(bucket=world.input, key=key, run_id="run-1").to_json(),
                MessageAttributes={
                    name: {"DataType": "String", "StringValue": value} for name, value in said.items()
                },
            )
        yield Redrive(world, airflow_environment(tmp_path / "home", local_aws.environment()), "redrive-1")


def test_a_redrive_that_is_killed_half_way_loses_no_dead_letter(redrive: Redrive):
    every = {f"{number:03d}.pdf" for number in range(LETTERS)}

    # While it looks through the letters.
    process = redrive.start()
    redrive.wait_for_step(process, "list")
    time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert redrive.letters() == LETTERS
    redrive.until_visible()

    # While it sends: nothing has been deleted yet.
    process = redrive.start()
    redrive.wait_for_step(process, "send")
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert redrive.letters() == LETTERS

    # While it deletes: what is gone from the one queue is in the other.
    process = redrive.start()
    redrive.wait_for_step(process, "clear")
    while redrive.letters() > LETTERS - 10:
        assert process.poll() is None, "it ended before it was killed"
    process.send_signal(signal.SIGKILL)
    process.wait()
    left = redrive.letters()
    assert 0 < left < LETTERS
    assert redrive.sent() == every
    redrive.until_visible()

    process = redrive.start()
    redrive.wait_for_step(process, "done")
    assert process.wait(60) == 0
    assert redrive.sent() == every
    assert redrive.letters() == 0
