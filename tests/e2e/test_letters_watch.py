"""The watch over the dead letters, on the local AWS and a real HTTP endpoint in Slack's place."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

import pytest
from tests.support.pipeline import Install, Pipeline
from tests.support.slack import SlackEndpoint
from tests.support.world import World

from pdf_ops.contract.layout import Layout
from pdf_ops.contract.messages import DocumentMessage
from pdf_ops.dead_letters import LetterReader
from pdf_ops.operators.letters_watch import WatchLettersOperator

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from local_aws import LocalAws

pytestmark = [pytest.mark.timeout(300)]

CHANNEL = "letters"


class Watch:
    """A world with dead letters, its watch, and the messages that it sent."""

    def __init__(self, world: World, slack: SlackEndpoint) -> None:
        self.world, self.slack = world, slack
        self.layout = Layout(
            output_bucket=world.output, output_prefix="", manifest_bucket=world.output, manifest_prefix="m"
        )

    def look(self, *, slack_conn_id: str = "slack_letters") -> list[str]:
        """Look once; gives the messages that this look sent."""
        before = len(self.slack.texts(CHANNEL))
        WatchLettersOperator(
            task_id="watch",
            dlq_url=self.world.dlq,
            slack_conn_id=slack_conn_id,
            output_bucket=self.world.output,
            manifest_prefix="m",
            runs_table=self.world.runs_table,
        ).execute({})
        return self.slack.texts(CHANNEL)[before:]

    def bury(self, count: int, *, error: str = "TIMEOUT/page", run_id: str | None = None) -> None:
        error_class, _, code = error.partition("/")
        said = {"error_class": error_class, "error_code": code}
        for number in range(count):
            self.world.sqs.send_message(
                QueueUrl=self.world.dlq,
                MessageBody=DocumentMessage(
                    bucket=self.world.input, key=f"{number}.pdf", run_id=run_id
                ).to_json(),
                MessageAttributes={
                    name: {"DataType": "String", "StringValue": value} for name, value in said.items()
                },
            )

    def report(self, run_id: str, letters: int) -> None:
        """What a run's report says about its own letters."""
        uri = self.layout.report_json(run_id)
        body = {"dead_letters": {"of_this_run": letters, "is_complete": True}}
        self.world.s3.put_object(Bucket=uri.bucket, Key=uri.key, Body=json.dumps(body))


@pytest.fixture
def watch(local_aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in local_aws.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", "aws://")
    with SlackEndpoint() as slack, World(local_aws) as world:
        monkeypatch.setenv("AIRFLOW_CONN_SLACK_LETTERS", slack.connection(CHANNEL))
        yield Watch(world, slack)


def test_each_growth_is_told_once_with_its_worst_errors(watch: Watch):
    watch.bury(2)
    assert watch.look() == []  # The first look only learns what there is.

    watch.bury(5, error="CORRUPT/truncated")
    watch.bury(1, error="OOM/page")
    [message] = watch.look()

    assert "6 more that no run has reported, 8 in all" in message
    assert "`CORRUPT/truncated` 5, `OOM/page` 1" in message
    assert "pdf-ops redrive" in message
    assert [watch.look(), watch.look()] == [[], []]
    watch.bury(1)
    assert len(watch.look()) == 1


def test_what_a_run_reports_or_still_counts_is_not_told_again(watch: Watch):
    watch.look()
    watch.world.start_run("going-on", 2)
    watch.world.order("going-on", "bad.pdf", b"no pdf")
    watch.world.order("going-on", "worse.pdf", b"no pdf either")
    watch.world.work()
    assert watch.look() == []

    watch.report("going-on", 2)
    watch.bury(3)
    [message] = watch.look()

    assert "3 more that no run has reported, 5 in all" in message


def test_growth_beside_a_run_is_told_without_the_runs_own(watch: Watch):
    watch.look()
    watch.world.start_run("run", 2)
    watch.report("run", 2)
    watch.bury(2, run_id="run")
    watch.bury(1, error="CRASH/poison")

    [message] = watch.look()

    assert "1 more that no run has reported, 3 in all" in message
    assert "2 that runs report" in message


def test_letters_that_were_sent_round_again_are_forgotten_and_new_ones_told(watch: Watch):
    watch.bury(4)
    watch.look()
    with LetterReader(watch.world.sqs, watch.world.dlq, max_messages=10, max_s=30) as reader:
        for batch in reader.batches():
            reader.delete(batch)

    assert watch.look() == []
    watch.bury(1)
    assert len(watch.look()) == 1


def test_looking_hides_no_letter_from_a_redrive(watch: Watch):
    watch.look()
    watch.bury(30)

    watch.look()

    with LetterReader(watch.world.sqs, watch.world.dlq, max_messages=100, max_s=30) as reader:
        assert sum(len(batch) for batch in reader.batches()) == 30


def test_a_growth_that_slack_did_not_take_is_told_by_the_next_look(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
):
    watch.look()
    watch.bury(1)
    right = os.environ["AIRFLOW_CONN_SLACK_LETTERS"]
    wrong = json.dumps(json.loads(right) | {"host": "http://127.0.0.1:1/services"})
    monkeypatch.setenv("AIRFLOW_CONN_SLACK_LETTERS", wrong)
    assert watch.look() == []

    monkeypatch.setenv("AIRFLOW_CONN_SLACK_LETTERS", right)
    assert len(watch.look()) == 1


def test_nothing_is_asked_without_slack_and_nothing_is_received_or_written_while_nothing_changes(
    watch: Watch, caplog: pytest.LogCaptureFixture
):
    watch.bury(1)
    watch.look()

    with caplog.at_level("DEBUG", logger="botocore.endpoint"):
        watch.look(slack_conn_id="")
        assert asked(caplog) == []
        watch.look()

    assert asked(caplog) == ["GetItem", "GetQueueAttributes"]


def asked(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The operations that botocore has sent to AWS."""
    found = [re.search(r"OperationModel\(name=(\w+)\)", record.getMessage()) for record in caplog.records]
    return [match[1] for match in found if match]


@pytest.mark.parametrize("install", [Install.ours, Install.other])
def test_the_dag_runs_and_tells(local_aws: LocalAws, tmp_path: Path, install: type[Install]):
    with SlackEndpoint() as slack, Pipeline(local_aws, install(tmp_path / "airflow"), slack) as world:
        first = world.run(dag_id="pdf_dlq_watch")
        world.sqs.send_message(QueueUrl=world.dlq, MessageBody='{"s3_key": "lost.pdf"}')
        second = world.run(dag_id="pdf_dlq_watch")

        assert (first.exit_code, first.slack_messages) == (0, []), first.output[-3_000:]
        assert second.exit_code == 0, second.output[-3_000:]
        [message] = second.slack_messages
        assert "1 more that no run has reported" in message
        assert "`no class` 1" in message
