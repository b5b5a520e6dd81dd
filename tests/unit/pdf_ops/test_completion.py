"""Waiting for a run: it always ends, for the right reason, and closes what no worker closed."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from datetime import UTC, datetime

import pytest
from airflow.sdk._shared.module_loading import import_string
from airflow.sdk.exceptions import TaskDeferred

from pdf_ops.contract.attributes import attribute, item_of
from pdf_ops.contract.documents import DocumentStatus
from pdf_ops.contract.fingerprint import ReadingConfig
from pdf_ops.contract.messages import DocumentMessage
from pdf_ops.contract.runs import Outcome, RunRecord, worker_key
from pdf_ops.exceptions import (
    FailureThresholdError,
    PermanentAwsError,
    RunNotFoundError,
    RunStalledError,
)
from pdf_ops.hooks.ecs import started_by_of
from pdf_ops.hooks.tables import RunsTable, StateTable
from pdf_ops.sensors.completion import RunCompletionSensor
from pdf_ops.triggers.completion import RunCompletionTrigger, RunWatch, WatchConfig, describe_duration

RUN = "manual__2026-01-01T00:00:00+00:00"
CONFIG = ReadingConfig().config_hash


def record(aws, documents=3):
    RunsTable(aws.runs_table).put_record(
        RunRecord(
            run_id=RUN,
            documents=documents,
            size_bytes=1,
            reading=ReadingConfig(),
            is_forced=False,
            created_at="2026-01-01T00:00:00+00:00",
            run_date="2026-01-01",
            expires_at=2_000_000_000,
        )
    )


def count(aws, worker="w1", **counts):
    aws.client("dynamodb").update_item(
        TableName=aws.runs_table,
        Key=worker_key(RUN, worker),
        UpdateExpression="ADD " + ", ".join(f"#{name} :{name}" for name in counts),
        ExpressionAttributeNames={f"#{name}": name for name in counts},
        ExpressionAttributeValues={f":{name}": attribute(number) for name, number in counts.items()},
    )


def config(aws, **kwargs):
    usual = {
        "run_id": RUN,
        "runs_table": aws.runs_table,
        "state_table": aws.state_table,
        "dlq_url": aws.dlq_url,
        "input_bucket": aws.input,
    }
    return WatchConfig(**usual | kwargs)


def sensor(aws, **kwargs):
    return RunCompletionSensor(
        task_id="wait",
        run_id=RUN,
        runs_table=aws.runs_table,
        state_table=aws.state_table,
        dlq_url=aws.dlq_url,
        input_bucket=aws.input,
        poke_interval=0.01,
        **kwargs,
    )


def bury(aws, key="a.pdf", run_id=RUN, **attributes):
    aws.client("sqs").send_message(
        QueueUrl=aws.dlq_url,
        MessageBody=DocumentMessage(bucket=aws.input, key=key, etag="e", run_id=run_id).to_json(),
        MessageAttributes={
            name: {"DataType": "String", "StringValue": value} for name, value in attributes.items()
        },
    )


def put_state(aws, **values):
    aws.client("dynamodb").put_item(TableName=aws.state_table, Item=item_of(values))


def outcome(aws, key="a.pdf"):
    return RunsTable(aws.runs_table).get_outcome(RUN, key)


def test_a_run_goes_on_until_the_workers_counters_add_up(aws, caplog):
    record(aws, 3)
    watch = RunWatch(config(aws))
    count(aws, "w1", done=1, pages=7)

    with caplog.at_level("INFO"):
        assert watch.look() is None
    count(aws, "w2", partial=1)
    count(aws, "w17", skipped=1)
    verdict = watch.look()

    assert verdict.status == "success"
    assert verdict.counters["pages"] == 7
    assert "1 of 3 documents (33.3%)" in caplog.text


def test_the_sensor_returns_the_counters_without_a_triggerer(aws, context):
    record(aws, 1)
    count(aws, done=1)

    assert sensor(aws, deferrable=False).execute(context)["done"] == 1


def test_the_trigger_survives_its_way_to_the_triggerer_and_ends_with_one_event(aws, context):
    record(aws, 1)
    with pytest.raises(TaskDeferred) as deferred:
        sensor(aws, deferrable=True).execute(context)
    path, kwargs = deferred.value.trigger.serialize()
    trigger = import_string(path)(**kwargs)
    assert trigger.serialize() == (path, kwargs)
    count(aws, done=1)

    async def events():
        return [event.payload async for event in trigger.run()]

    (event,) = asyncio.run(events())
    assert sensor(aws).execute_complete(context, event)["done"] == 1


def test_a_run_that_does_not_move_is_stalled(aws, context):
    record(aws, 2)
    count(aws, done=1)

    with pytest.raises(RunStalledError, match="1 of 2"):
        sensor(aws, deferrable=False, stall_timeout_s="0.05").execute(context)

    assert "1 of 2" in context["ti"].pushed["failure"], "the report and the alert say it too"


def test_a_run_whose_workers_are_all_gone_is_stalled_sooner(aws, cluster):
    record(aws, 2)
    (worker,) = cluster.run_task(
        cluster="fleet",
        taskDefinition="worker",
        launchType="FARGATE",
        startedBy=started_by_of(RUN),
        networkConfiguration={"awsvpcConfiguration": {"subnets": [aws.subnet], "securityGroups": []}},
    )["tasks"]
    watch = RunWatch(config(aws, cluster="fleet", fleet_timeout_s=100, stall_timeout_s=1_000))
    watch.look()
    watch._memory.progress_at -= 200

    assert watch.look() is None, "a worker is up"
    cluster.stop_task(cluster="fleet", task=worker["taskArn"])
    verdict = watch.look()
    assert verdict.status == "RunStalledError"
    assert "No worker of the run is up" in verdict.message


def test_progress_starts_the_stall_clock_again(aws):
    record(aws, 3)
    watch = RunWatch(config(aws, stall_timeout_s=1_000))
    watch.look()
    watch._memory.progress_at -= 2_000
    count(aws, done=1)

    assert watch.look() is None
    watch._memory.progress_at -= 2_000
    assert watch.look().status == "RunStalledError"


def test_too_many_failures_end_the_run_before_it_is_over(aws, context):
    record(aws, 100)
    count(aws, failed=30)

    assert RunWatch(config(aws, failure_threshold=0.2, failure_minimum=40)).look() is None
    with pytest.raises(FailureThresholdError, match="30 of 100"):
        sensor(aws, deferrable=False, failure_threshold="0.2", failure_minimum="20").execute(context)


def test_a_small_run_may_fail_by_its_threshold_too(aws):
    record(aws, 2)
    count(aws, failed=2)

    assert RunWatch(config(aws, failure_threshold=0.5)).look().status == "FailureThresholdError"


def test_a_refusal_of_aws_ends_the_run_at_once(aws, context):
    with pytest.raises(PermanentAwsError, match="ResourceNotFound"):
        sensor(aws, deferrable=False).__class__(
            task_id="wait", run_id=RUN, runs_table="no-such-table", deferrable=False
        ).execute(context)


def test_a_run_without_a_record_is_not_waited_for(aws, context):
    with pytest.raises(RunNotFoundError, match="list task"):
        sensor(aws, deferrable=False).execute(context)


def test_throttling_is_waited_out(aws, monkeypatch):
    from botocore.exceptions import ClientError

    record(aws, 1)
    count(aws, done=1)
    watch = RunWatch(config(aws))
    watch.connect()
    real, calls = watch._runs.counters, []

    def throttled(run_id):
        calls.append(run_id)
        if len(calls) == 1:
            raise ClientError({"Error": {"Code": "ThrottlingException"}}, "Query")
        return real(run_id)

    monkeypatch.setattr(watch._runs, "counters", throttled)

    assert watch.look() is None
    assert watch.look().status == "success"


def test_a_document_whose_message_died_without_a_word_is_closed_as_failed(aws):
    record(aws, 1)
    bury(aws)

    verdict = RunWatch(config(aws, failure_threshold=1)).look()

    assert verdict.status == "success"
    assert verdict.counters["failed"] == 1
    found = outcome(aws)
    assert (found.status, found.error_class, found.error_code) == (DocumentStatus.FAILED, "CRASH", "poison")
    state = StateTable(aws.state_table).get_many(["a.pdf"])["a.pdf"]
    assert (state.status, state.error_class) == ("failed", "CRASH")
    left = aws.client("sqs").receive_message(QueueUrl=aws.dlq_url).get("Messages", [])
    assert len(left) == 1, "the message stays in the dead-letter queue, visible at once"


def test_closing_a_document_twice_counts_once(aws):
    record(aws, 2)
    bury(aws)
    bury(aws)

    for _ in range(2):
        RunWatch(config(aws, failure_threshold=1)).look()

    assert RunsTable(aws.runs_table).counters(RUN).failed == 1


def test_what_a_worker_has_spoken_about_and_what_is_another_runs_is_left_alone(aws):
    record(aws, 1)
    bury(aws, "spoken.pdf", error_class="CORRUPT")
    bury(aws, "other.pdf", run_id="another")
    aws.client("sqs").send_message(QueueUrl=aws.dlq_url, MessageBody="no JSON")

    assert RunWatch(config(aws)).look() is None
    assert outcome(aws, "spoken.pdf") is None
    assert outcome(aws, "other.pdf") is None


def test_a_document_that_a_worker_still_holds_is_not_closed(aws):
    record(aws, 1)
    bury(aws)
    until = int(datetime.now(UTC).timestamp() * 1000) + 60_000
    put_state(aws, s3_key="a.pdf", status="processing", etag="e", lease_until=until)

    assert RunWatch(config(aws)).look() is None
    assert outcome(aws) is None


def test_a_document_that_another_run_has_read_is_skipped_and_stays_read(aws):
    record(aws, 1)
    bury(aws)
    put_state(aws, s3_key="a.pdf", status="done", etag="e", config_hash=CONFIG, run_id="other")

    assert RunWatch(config(aws)).look().status == "success"

    found = outcome(aws)
    assert (found.status, found.done_by) == (DocumentStatus.SKIPPED, "other")
    assert StateTable(aws.state_table).get_many(["a.pdf"])["a.pdf"].status == "done"


def test_a_success_of_this_run_is_not_replaced(aws):
    record(aws, 2)
    bury(aws)
    runs = RunsTable(aws.runs_table)
    runs.put_outcome(
        Outcome(
            run_id=RUN,
            s3_key="a.pdf",
            status=DocumentStatus.DONE,
            worker_id="w1",
            committed_at="x",
            expires_at=1,
        )
    )

    assert RunWatch(config(aws)).look() is None
    assert outcome(aws).status == DocumentStatus.DONE
    assert runs.counters(RUN).failed == 0


def test_the_configuration_of_a_watch_is_plain_values(aws):
    trigger = RunCompletionTrigger(config=asdict(config(aws)), poll_interval_s=1)

    assert all(
        value is None or isinstance(value, str | int | float)
        for value in trigger.serialize()[1]["config"].values()
    )


@pytest.mark.parametrize(("seconds", "text"), [(5, "5 s"), (600, "10 min"), (7_200, "2.0 h")])
def test_durations_read_well(seconds, text):
    assert describe_duration(seconds) == text
