"""The fleet: sized for the work, started once, replaced when reclaimed, always stopped."""

from __future__ import annotations

import json
import pickle
from functools import partial
from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import AirflowSkipException, TaskDeferred
from hypothesis import given
from hypothesis import strategies as st

from pdf_ops.exceptions import (
    FleetCapacityError,
    FleetError,
    SpotReclaimedError,
    TaskFailedToStartError,
    WorkerCrashedError,
)
from pdf_ops.hooks.ecs import fleet_tasks, started_by_of
from pdf_ops.operators.fleet import (
    STOP_REASON,
    PdfFleetOperator,
    PlanFleetOperator,
    StopFleetOperator,
    check_stopped,
    size_fleet,
    with_environment,
    worker_id_in,
)
from pdf_ops.pace import Pace

RUN = "scheduled__2026-01-01T00:00:00+00:00"
NO_ROOM = {"tasks": [], "failures": [{"reason": "Capacity is unavailable at this time."}]}


def operator(aws, **kwargs):
    usual = {
        "worker_index": 0,
        "run_id": RUN,
        "cluster": "fleet",
        "task_definition": "worker",
        "subnets": aws.subnet,
        "start_backoff_s": 0.001,
        "start_attempts": 2,
    }
    return PdfFleetOperator(task_id="fleet", **usual | kwargs)


def watch_calls(op, answer=lambda request: None):
    """See each RunTask as it leaves; an answer that is given is taken for ECS's."""
    calls = []

    def before_call(params, **_):
        request = json.loads(params["body"])
        calls.append(request)
        given = answer(request)
        return None if given is None else (SimpleNamespace(status_code=200), given)

    op.client.meta.events.register("before-call.ecs.RunTask", before_call)
    return calls


def start(op, context):
    with pytest.raises(TaskDeferred) as deferred:
        op.execute(context)
    return deferred.value.trigger.task_arn


def finish(op, context, arn):
    return op.execute_complete(context, {"status": "success", "task_arn": arn, "cluster": "fleet"})


def spot(request):
    return request["capacityProviderStrategy"][0]["capacityProvider"] == "FARGATE_SPOT"


def test_a_worker_starts_on_spot_with_its_run_in_its_environment(aws, cluster, context):
    op = operator(aws, environment={"SQS_QUEUE_URL": "q", "EMPTY": ""})
    calls = watch_calls(op)

    arn = start(op, context)

    (request,) = calls
    assert spot(request)
    assert request["startedBy"] == started_by_of(RUN)
    assert len(request["startedBy"]) <= 36
    assert len(request["clientToken"]) <= 64
    (container,) = request["overrides"]["containerOverrides"]
    variables = {entry["name"]: entry["value"] for entry in container["environment"]}
    assert variables["RUN_ID"] == RUN
    assert variables["SQS_QUEUE_URL"] == "q"
    assert "EMPTY" not in variables
    assert [task["taskArn"] for task in fleet_tasks(cluster, "fleet", RUN)] == [arn]


def test_a_second_try_waits_for_the_container_of_the_first(aws, cluster, context):
    first = start(operator(aws), context)
    second = operator(aws)
    calls = watch_calls(second)
    context["ti"].try_number = 2

    assert start(second, context) == first
    assert calls == []


def test_workers_of_a_run_do_not_take_each_others_container(aws, cluster, context):
    assert start(operator(aws), context) != start(operator(aws, worker_index=1), context)


def test_the_token_is_stable_within_a_try_and_new_in_the_next(aws, cluster, context):
    tokens = []
    for try_number in (1, 1, 2):
        op = operator(aws, capacity="on_demand", start_attempts=1)
        context["ti"].try_number = try_number
        calls = watch_calls(op, lambda request: NO_ROOM)
        with pytest.raises(FleetCapacityError):
            op.execute(context)
        tokens.append(calls[0]["clientToken"])

    assert tokens[0] == tokens[1] != tokens[2]


def test_on_demand_is_taken_when_there_is_no_spot(aws, cluster, context):
    op = operator(aws)
    calls = watch_calls(op, lambda request: NO_ROOM if spot(request) else None)

    start(op, context)

    assert [spot(call) for call in calls] == [True, True, False]


def test_a_first_worker_without_any_capacity_is_an_error_and_a_further_one_is_skipped(aws, cluster, context):
    op = operator(aws)
    watch_calls(op, lambda request: NO_ROOM)
    with pytest.raises(FleetCapacityError, match="quota"):
        op.execute(context)
    start(operator(aws), context)

    further = operator(aws, worker_index=1)
    watch_calls(further, lambda request: NO_ROOM)
    with pytest.raises(AirflowSkipException, match="1 other worker"):
        further.execute(context)


def test_a_refusal_that_is_not_about_capacity_is_not_tried_again(aws, cluster, context):
    op = operator(aws)
    calls = watch_calls(op, lambda request: {"tasks": [], "failures": [{"reason": "MISSING"}]})

    with pytest.raises(TaskFailedToStartError, match="MISSING"):
        op.execute(context)
    assert len(calls) == 1


def test_throttling_is_waited_out(aws, cluster, context):
    from botocore.exceptions import ClientError

    op = operator(aws)
    thrown = []

    def throttle(params, **_):
        if not thrown:
            thrown.append(1)
            raise ClientError({"Error": {"Code": "ThrottlingException", "Message": "slow down"}}, "RunTask")

    op.client.meta.events.register("before-call.ecs.RunTask", throttle)

    assert start(op, context)


def test_stopping_the_fleet_stops_this_runs_workers_only_and_is_no_failure_of_theirs(aws, cluster, context):
    ours, other = operator(aws), operator(aws, run_id="another")
    arn, others = start(ours, context), start(other, context)

    assert StopFleetOperator(task_id="stop", cluster="fleet", run_id=RUN, poll_s=0.01).execute(context) == 1

    assert finish(operator(aws), context, arn)["worker_id"].endswith("-0000-10")
    assert [task["taskArn"] for task in fleet_tasks(cluster, "fleet", "another")] == [others]


def test_stopping_ends_when_the_workers_are_gone_which_is_later_than_when_they_are_told(context, monkeypatch):
    statuses = iter(["RUNNING", "RUNNING", "STOPPING", "STOPPED"])
    seen = []

    class Ecs:
        """ECS lists a task as running until it is told to stop, though its container still works."""

        told = False

        def get_paginator(self, _):
            return SimpleNamespace(paginate=lambda **_: [{"taskArns": [] if self.told else ["arn"]}])

        def stop_task(self, **_):
            self.told = True

        def describe_tasks(self, **_):
            seen.append(next(statuses))
            return {"tasks": [{"taskArn": "arn", "lastStatus": seen[-1]}]}

    ecs = Ecs()
    monkeypatch.setattr("pdf_ops.operators.fleet.aws_client", lambda *_, **__: ecs)

    assert StopFleetOperator(task_id="stop", cluster="fleet", run_id=RUN, poll_s=0.01).execute(context) == 1
    assert seen[-1] == "STOPPED"


def test_stopping_never_fails_the_run(aws, context):
    assert StopFleetOperator(task_id="stop", cluster="no-such-cluster", run_id=RUN).execute(context) == 0


def test_a_worker_whose_machine_was_taken_back_is_replaced_so_many_times(aws, cluster, context):
    arn = start(operator(aws), context)
    ids = set()
    for _ in range(2):
        (task,) = fleet_tasks(cluster, "fleet", RUN)
        ids.add(worker_id_in(task))
        cluster.stop_task(cluster="fleet", task=arn, reason="Your Spot Task was interrupted.")
        with pytest.raises(TaskDeferred) as deferred:
            finish(operator(aws, max_replacements=2), context, arn)
        arn = deferred.value.trigger.task_arn
    cluster.stop_task(cluster="fleet", task=arn, reason="Your Spot Task was interrupted.")

    with pytest.raises(SpotReclaimedError):
        finish(operator(aws, max_replacements=2), context, arn)
    assert len(ids) == 2, "each container has a name of its own"


@pytest.mark.parametrize(
    ("task", "error"),
    [
        ({"containers": [{"exitCode": 0}]}, None),
        ({"containers": [{"exitCode": 137}], "stoppedReason": STOP_REASON}, None),
        ({"containers": [{"exitCode": 1}]}, WorkerCrashedError),
        ({"containers": [{}]}, WorkerCrashedError),
        ({"containers": [{"exitCode": 137}]}, WorkerCrashedError),
        ({"containers": [{"exitCode": 137}], "capacityProviderName": "FARGATE_SPOT"}, SpotReclaimedError),
        (
            {
                "containers": [{"exitCode": 137, "reason": "OutOfMemoryError: killed"}],
                "capacityProviderName": "FARGATE_SPOT",
            },
            WorkerCrashedError,
        ),
        ({"stopCode": "SpotInterruption", "containers": [{"exitCode": 143}]}, SpotReclaimedError),
        ({"stoppedReason": "Host EC2 (instance i-1) terminated."}, SpotReclaimedError),
        (
            {"stopCode": "TaskFailedToStart", "stoppedReason": "CannotPullContainerError"},
            TaskFailedToStartError,
        ),
        (
            {"stopCode": "TaskFailedToStart", "stoppedReason": "Capacity is unavailable at this time."},
            FleetCapacityError,
        ),
    ],
)
def test_how_a_worker_stopped_has_a_type(task, error):
    if error is None:
        check_stopped(task)
        return
    with pytest.raises(error) as raised:
        check_stopped(task)
    assert type(raised.value) is error
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


@given(
    documents=st.integers(0, 10**7),
    size_bytes=st.integers(0, 10**13),
    workers=st.just("auto") | st.integers(1, 500).map(str),
    most=st.integers(1, 100),
)
def test_a_fleet_is_never_larger_than_its_limit_or_its_work(documents, size_bytes, workers, most):
    size = size_fleet(
        documents=documents,
        size_bytes=size_bytes,
        workers=workers,
        max_workers=most,
        documents_per_worker=2_000,
        bytes_per_worker=10**9,
    )

    assert (size.workers == 0) is (documents == 0)
    assert size.workers <= min(most, documents)
    assert size.reason


def test_bytes_ask_for_workers_as_documents_do():
    limits = {"max_workers": 50, "documents_per_worker": 1_000, "bytes_per_worker": 10**9}

    assert size_fleet(documents=10_000, size_bytes=1, **limits).workers == 10
    assert size_fleet(documents=100, size_bytes=20 * 10**9, **limits).workers == 20
    with pytest.raises(FleetError, match="accepted"):
        size_fleet(documents=1, size_bytes=1, workers="lots", **limits)


def test_a_run_is_sized_by_the_pace_of_the_last_one():
    limits = {"max_workers": 50, "documents_per_worker": 1_000, "bytes_per_worker": 10**9}
    pace = Pace(run_id="last", documents=1_000, size_bytes=10**9, worker_s=7_200)

    by_documents = size_fleet(documents=5_000, size_bytes=1, pace=pace, target_s=1_800, **limits)
    assert by_documents.workers == 20
    assert "pace of last" in by_documents.reason
    assert size_fleet(documents=10, size_bytes=10 * 10**9, pace=pace, target_s=3_600, **limits).workers == 10
    assert size_fleet(documents=10, size_bytes=1, pace=pace, **limits).workers == 1
    assert size_fleet(documents=5_000, size_bytes=1, workers="3", pace=pace, **limits).workers == 3


def test_the_plan_is_a_list_of_indices_and_a_run_without_work_has_none(aws, context):
    summary = {"documents": 5_000, "size_bytes": 1, "is_dry_run": False, "config_hash": "c0ffee"}
    plan = partial(PlanFleetOperator, task_id="plan", **aws.places)

    assert plan(listing=summary).execute(context) == [0, 1, 2]
    pace = Pace(run_id="last", documents=1_000, size_bytes=10**9, worker_s=1_800)
    uri = plan(listing=summary).layout.pace_json("c0ffee")
    aws.client("s3").put_object(Bucket=uri.bucket, Key=uri.key, Body=pace.to_json())
    assert plan(listing=summary).execute(context) == [0, 1, 2, 3, 4]
    assert plan(listing=summary | {"config_hash": "read otherwise"}).execute(context) == [0, 1, 2]
    for nothing in ({"documents": 0}, {"is_dry_run": True}):
        with pytest.raises(AirflowSkipException):
            plan(listing=summary | nothing).execute(context)


def test_overrides_that_were_given_are_kept():
    given_overrides = {
        "cpu": "512",
        "containerOverrides": [{"name": "worker", "environment": [{"name": "A", "value": "1"}]}],
    }

    merged = with_environment(given_overrides, "worker", {"B": "2"})

    assert merged["cpu"] == "512"
    assert merged["containerOverrides"][0]["environment"] == [
        {"name": "A", "value": "1"},
        {"name": "B", "value": "2"},
    ]
    assert given_overrides["containerOverrides"][0]["environment"] == [{"name": "A", "value": "1"}]
