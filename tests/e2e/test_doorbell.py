"""S3's events start runs: the trigger alone on both versions of Airflow, and under a real scheduler."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.pipeline import Install

from local_airflow.environment import airflow_environment
from local_airflow.up import ENVIRONMENT_FILE, Up, airflow_up
from local_airflow.uploads import tell_of_uploads
from samples import documents as made

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from local_aws import LocalAws

pytestmark = pytest.mark.timeout(900)

WAIT_S = 400.0
ENDED = ("success", "failed")

# The trigger as the triggerer runs it; prints each event, and ends when nothing has come for so long.
LISTEN = """
import asyncio, json, sys
from pdf_ops.triggers.doorbell import NewDocumentsTrigger

trigger = NewDocumentsTrigger(queue_url=sys.argv[1], quiet_s=float(sys.argv[2]), aws_conn_id=None)

async def main():
    events = trigger.run()
    try:
        while True:
            event = await asyncio.wait_for(anext(events), float(sys.argv[3]))
            print(json.dumps(event.payload), flush=True)
            if sys.argv[4] == "die":
                import os, signal
                os.kill(os.getpid(), signal.SIGKILL)
    except TimeoutError:
        pass

asyncio.run(main())
"""


def waiting(sqs: Any, url: str) -> int:
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    return sum(map(int, sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"].values()))


class Listener:
    """An input bucket whose events go to a queue, and the trigger that listens to it."""

    def __init__(self, aws: LocalAws, install: Install, name: str) -> None:
        self.sqs, self.s3, self.bucket = aws.client("sqs"), aws.client("s3"), name
        self.s3.create_bucket(Bucket=name)
        self.queue = self.sqs.create_queue(QueueName=name)["QueueUrl"]
        tell_of_uploads(aws, bucket=name, queue_url=self.queue)
        self._install = install
        self._environment = airflow_environment(install.home(), aws.environment())

    def listen(self, *, end: str = "live") -> list[dict[str, int]]:
        """Listen until all is told and deleted, or until the listener dies; gives what was told."""
        listening = subprocess.Popen(
            [self._install.bin / "python", "-c", LISTEN, self.queue, "1", "300", end],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        deadline = time.monotonic() + WAIT_S
        while listening.poll() is None and waiting(self.sqs, self.queue):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        if end == "live":
            listening.terminate()
        out, _ = listening.communicate(timeout=60)
        assert listening.returncode == (-signal.SIGKILL if end == "die" else -signal.SIGTERM)
        return [json.loads(line) for line in out.splitlines() if line.startswith('{"documents')]


@pytest.fixture(params=[Install.ours, Install.other], ids=["ours", "other"])
def listener(local_aws: LocalAws, tmp_path: Path, request: pytest.FixtureRequest) -> Listener:
    return Listener(local_aws, request.param(tmp_path / "airflow"), f"bell-{time.time_ns()}")


def test_a_burst_is_one_event_and_what_names_no_document_is_none(listener: Listener):
    for number in range(45):
        listener.s3.put_object(Bucket=listener.bucket, Key=f"a b/{number}.pdf", Body=b"%PDF-1.7")
    listener.sqs.send_message(QueueUrl=listener.queue, MessageBody='{"Event": "s3:TestEvent"}')
    listener.sqs.send_message(QueueUrl=listener.queue, MessageBody="hello")

    [event] = listener.listen()

    assert event["documents"] == 45
    assert waiting(listener.sqs, listener.queue) == 0

    listener.sqs.send_message(QueueUrl=listener.queue, MessageBody='{"Event": "s3:TestEvent"}')
    assert listener.listen() == []
    assert waiting(listener.sqs, listener.queue) == 0


def test_a_listener_that_dies_after_telling_loses_no_event(listener: Listener):
    listener.s3.put_object(Bucket=listener.bucket, Key="a.pdf", Body=b"%PDF-1.7")

    told = listener.listen(end="die")

    assert told == [{"documents": 1, "messages": told[0]["messages"]}]
    assert waiting(listener.sqs, listener.queue) == told[0]["messages"]


# Under a real scheduler and triggerer ---------------------------------------------------------------


class Stack:
    """Airflow whose doorbell is on."""

    def __init__(self, up: Up, folder: Path) -> None:
        self.up = up
        self.folder = folder
        self.sqs, self.s3 = up.aws.client("sqs"), up.aws.client("s3")
        self.bucket = up.environment["AIRFLOW__PDF_OPS__INPUT_S3_BUCKET"]
        self.events = up.environment["AIRFLOW__PDF_OPS__EVENTS_SQS_QUEUE_URL"]
        self.documents = up.environment["AIRFLOW__PDF_OPS__SQS_QUEUE_URL"]

    def runs(self, dag_id: str) -> list[dict[str, Any]]:
        found = self.up.api.call("GET", f"/dags/{dag_id}/dagRuns?limit=100&order_by=run_after")
        return list(found["dag_runs"])

    def report(self, run_id: str) -> dict[str, Any]:
        from local_airflow.demo import Place

        uri = Place(self.up.aws.environment()).layout.report_json(run_id)
        return dict(json.loads(self.s3.get_object(Bucket=uri.bucket, Key=uri.key)["Body"].read()))

    def until(self, is_so: Callable[[], object], what: Callable[[], object]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not is_so():
            assert time.monotonic() < deadline, f"waited {WAIT_S:.0f} s: {what()}"
            self.up.check()
            time.sleep(0.5)

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """``pdf-ops`` in a terminal beside it, which has been told what `local_airflow env` says."""
        told = json.loads((self.folder / ENVIRONMENT_FILE).read_text())
        return subprocess.run(
            [sys.executable, "-m", "pdf_ops.cli", *arguments],
            env=dict(os.environ) | told,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )

    def is_quiet(self) -> bool:
        """Whether all events are told and all runs have ended."""
        runs = [*self.runs("pdf_doorbell"), *self.runs("pdf_ocr")]
        return not waiting(self.sqs, self.events) and all(run["state"] in ENDED for run in runs)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("up")
    with airflow_up(folder, port=0, has_doorbell=True) as up:
        yield Stack(up, folder)


def test_a_burst_of_documents_starts_few_runs_and_doubled_or_strange_events_none_that_reads_again(
    stack: Stack, tmp_path: Path
):
    body = made.text_pdf(tmp_path / "text.pdf", 1).read_bytes()
    for number in range(30):
        stack.s3.put_object(Bucket=stack.bucket, Key=f"bell/{number}.pdf", Body=body + b"%" * number)

    stack.until(lambda: stack.runs("pdf_ocr"), lambda: stack.runs("pdf_doorbell"))
    stack.until(stack.is_quiet, lambda: stack.runs("pdf_ocr"))

    started = stack.runs("pdf_ocr")
    assert len(started) <= 2
    assert all(run["dag_run_id"].startswith("doorbell__") for run in started)
    # Everything in the bucket, the samples too: the listing is the truth, and not the events.
    assert sum(stack.report(run["dag_run_id"])["sent"] for run in started) >= 30
    assert waiting(stack.sqs, stack.documents) == 0

    event = {
        "Records": [
            {
                "eventName": "ObjectCreated:Put",
                "s3": {"bucket": {"name": stack.bucket}, "object": {"key": key}},
            }
            for key in ("bell/1.pdf", "never/was.pdf")
        ]
    }
    for _ in range(5):
        stack.sqs.send_message(QueueUrl=stack.events, MessageBody=json.dumps(event))
    stack.until(lambda: len(stack.runs("pdf_ocr")) > len(started), lambda: stack.runs("pdf_doorbell"))
    stack.until(stack.is_quiet, lambda: stack.runs("pdf_ocr"))

    again = stack.runs("pdf_ocr")[len(started) :]
    assert len(again) == 1
    assert [run["state"] for run in again] == ["success"]
    assert stack.report(again[0]["dag_run_id"])["sent"] == 0
    assert [run["state"] for run in stack.runs("pdf_doorbell")] == ["success"] * len(
        stack.runs("pdf_doorbell")
    )


def test_the_command_line_redrives_through_airflow_and_finds_nothing_wrong(stack: Stack):
    letters = stack.up.environment["AIRFLOW__PDF_OPS__DLQ_SQS_QUEUE_URL"]
    before = waiting(stack.sqs, letters)
    stack.s3.put_object(Bucket=stack.bucket, Key="bad.pdf", Body=b"<html>503</html>")
    # Its own letter, and not one that was there: else it comes between counting and sending.
    stack.until(
        lambda: waiting(stack.sqs, letters) > before and stack.is_quiet(), lambda: stack.runs("pdf_ocr")
    )

    counted = stack.command("redrive", "--class", "CORRUPT", "--dry-run", "--json")
    started = stack.command("redrive", "--class", "CORRUPT", "--yes", "--json")
    examined = stack.command("doctor", "--json")

    assert (counted.returncode, started.returncode) == (0, 0), counted.stderr + started.stderr
    documents, run_id = json.loads(counted.stdout)["documents"], json.loads(started.stdout)["run_id"]
    assert documents > 0
    assert examined.returncode == 0, examined.stdout
    assert {"DAG pdf_ocr", "DAG pdf_redrive", "queue of events"} <= {
        finding["what"] for finding in json.loads(examined.stdout)["findings"] if finding["verdict"] == "ok"
    }
    stack.until(
        lambda: {run["dag_run_id"]: run["state"] for run in stack.runs("pdf_redrive")}[run_id] in ENDED,
        lambda: stack.runs("pdf_redrive"),
    )
    assert stack.report(run_id)["sent"] == documents
    assert json.loads(stack.command("status", run_id, "--json").stdout)["is_finished"]
