"""The fleet: how many workers a run gets, starting each on ECS, and stopping all of them.

The waiting is the Amazon provider's own: here is what it lacks, a stable client token, capacity, Spot
and typed stop reasons. Not for the run's progress: that is the completion sensor's.
"""

from __future__ import annotations

import hashlib
import math
import random
import re
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.amazon.aws.operators.ecs import EcsRunTaskOperator
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowSkipException

from pdf_ops.exceptions import (
    FleetCapacityError,
    FleetError,
    SpotReclaimedError,
    TaskFailedToStartError,
    WorkerCrashedError,
)
from pdf_ops.hooks.clients import aws_client, is_throttled
from pdf_ops.hooks.ecs import fleet_tasks, started_by_of, tasks_up
from pdf_ops.operators.run_outputs import RunOutputsOperator
from pdf_ops.pace import Pace
from pdf_ops.settings import Capacity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

AUTO = "auto"
STOP_REASON = "pdf_ops: the run has ended"
WORKER_VARIABLE = "WORKER_ID"
RUN_VARIABLE = "RUN_ID"
_PROVIDERS = {Capacity.SPOT: "FARGATE_SPOT", Capacity.ON_DEMAND: "FARGATE"}
_NO_CAPACITY = re.compile(
    r"capacity is unavailable|RESOURCE:|no container instances|limit on the number", re.IGNORECASE
)
_RECLAIMED = re.compile(r"spot.*(interrupt|terminat|reclaim)|host ec2 .*(stopped|terminated)", re.IGNORECASE)
_SIGNALLED = (137, 143)
# The number of replacements lives in the worker's id: under `airflow dags test` nothing else that a
# deferred task could remember survives.
_ATTEMPTS_PER_TRY = 10


def worker_id_of(run_id: str, index: int, attempt: int) -> str:
    """A worker's name: new for each container, since each writes manifest parts of its own."""
    return f"{_worker_prefix(run_id, index)}{attempt:02d}"


def _worker_prefix(run_id: str, index: int) -> str:
    return f"{hashlib.sha256(run_id.encode()).hexdigest()[:8]}-{index:04d}-"


@dataclass(frozen=True, slots=True)
class FleetSize:
    """How many workers, and why."""

    workers: int
    reason: str


def size_fleet(
    *,
    documents: int,
    size_bytes: int,
    workers: str = AUTO,
    max_workers: int,
    documents_per_worker: int,
    bytes_per_worker: int,
    pace: Pace | None = None,
    target_s: float = 1_800.0,
) -> FleetSize:
    """Say how many workers a run gets.

    As many as its documents or its bytes justify, whichever asks for more: many small documents cost
    round trips, and large ones pages. Where an earlier run shows how fast a worker is, so many that the
    run takes about ``target_s``. Never more than the limit, nor than there are documents.

    Raises:
        FleetError: If the number that was asked for is none.
    """
    if not documents:
        return FleetSize(0, "there is nothing to read")
    most = min(max_workers, documents)
    asked = workers.strip().lower()
    if asked and asked != AUTO:
        if not asked.isdecimal() or int(asked) < 1:
            raise FleetError(f"workers: {workers!r:.20} is none; accepted: {AUTO}, or a number from 1")
        given = min(int(asked), most)
        return FleetSize(given, f"{asked} asked for, at most {most}")
    if pace is not None:
        work_s = pace.worker_s_for(documents, size_bytes)
        wanted = max(1, math.ceil(work_s / target_s))
        return FleetSize(
            min(most, wanted),
            f"{documents:,} documents of {size_bytes / 1e6:,.0f} MB would take one worker "
            f"{work_s / 60:,.0f} minutes at the pace of {pace.run_id}, and should take {target_s / 60:,.0f}: "
            f"that asks for {wanted}; at most {most}",
        )
    by_documents = math.ceil(documents / documents_per_worker)
    by_bytes = math.ceil(size_bytes / bytes_per_worker)
    count = max(1, min(most, max(by_documents, by_bytes)))
    return FleetSize(
        count,
        f"{documents:,} documents at {documents_per_worker:,} a worker ask for {by_documents}, "
        f"{size_bytes / 1e6:,.0f} MB at {bytes_per_worker / 1e6:,.0f} MB a worker for {by_bytes}; "
        f"at most {most}",
    )


class PlanFleetOperator(RunOutputsOperator):
    """Say how many workers the run gets; returns their indices, for the fleet to be mapped over.

    The arguments of :class:`~pdf_ops.operators.run_outputs.RunOutputsOperator`, and:

    :param listing: The listing's summary.
    :param workers: ``auto``, or how many.
    :param max_workers: The most there may be.
    :param documents_per_worker: Documents that justify another worker, before any run shows their pace.
    :param megabytes_per_worker: Megabytes that do.
    :param target_minutes: How long a run should take.
    """

    template_fields: Sequence[str] = (
        *RunOutputsOperator.template_fields,
        "listing",
        "workers",
        "max_workers",
        "documents_per_worker",
        "megabytes_per_worker",
        "target_minutes",
    )
    ui_color = "#fde8c8"

    def __init__(
        self,
        *,
        listing: Any,
        workers: int | str = AUTO,
        max_workers: int | str = 20,
        documents_per_worker: int | str = 2_000,
        megabytes_per_worker: int | str = 2_000,
        target_minutes: float | str = 30.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.listing = listing
        self.workers = workers
        self.max_workers = max_workers
        self.documents_per_worker = documents_per_worker
        self.megabytes_per_worker = megabytes_per_worker
        self.target_minutes = target_minutes

    def execute(self, context: Context) -> list[int]:
        """Size the fleet."""
        summary: Mapping[str, Any] = self.listing
        if summary["is_dry_run"] or not summary["documents"]:
            raise AirflowSkipException("there is nothing to read, so no worker is started")
        size = size_fleet(
            documents=summary["documents"],
            size_bytes=summary["size_bytes"],
            workers=str(self.workers),
            max_workers=int(self.max_workers),
            documents_per_worker=int(self.documents_per_worker),
            bytes_per_worker=int(self.megabytes_per_worker) * 1_000_000,
            pace=self._pace(str(summary.get("config_hash") or "")),
            target_s=float(self.target_minutes) * 60,
        )
        self.log.info("%d worker(s): %s", size.workers, size.reason)
        return list(range(size.workers))

    def _pace(self, config_hash: str) -> Pace | None:
        data = self.store.read(self.layout.pace_json(config_hash)) if config_hash else None
        return None if data is None else Pace.from_json(data)


class PdfFleetOperator(EcsRunTaskOperator):
    """Run one worker of the fleet until it has drained the queue; map over ``worker_index``.

    A second try finds the container that the first one started and waits for it. A worker whose Spot
    machine is taken back is replaced, since its messages go back to the queue. When there is no Spot
    capacity, on-demand is taken; when there is none at all and other workers of the run are up, this
    one is skipped.

    :param worker_index: Which worker of the run this is.
    :param run_id: The run.
    :param capacity: ``spot`` or ``on_demand``; anything else uses the launch type alone.
    :param environment: Variables for the container, besides the run's and the worker's id.
    :param subnets: Subnets, with commas.
    :param security_groups: Security groups, with commas.
    :param assign_public_ip: Whether the worker gets a public address.
    :param log_group: CloudWatch group of the workers' logs, to say where they are; none when empty.
    :param log_stream_prefix: Their stream prefix, as in the task definition.
    :param max_replacements: How often a reclaimed worker is replaced.
    :param start_attempts: How often each kind of capacity is asked for.
    :param start_backoff_s: The first wait between two of those; it doubles, with jitter.

    All other arguments are those of ``EcsRunTaskOperator``.
    """

    template_fields: Sequence[str] = (
        *EcsRunTaskOperator.template_fields,
        "worker_index",
        "run_id",
        "capacity",
        "environment",
        "subnets",
        "security_groups",
        "assign_public_ip",
        "log_group",
        "log_stream_prefix",
        "aws_conn_id",
        "region_name",
    )
    ui_color = "#fde8c8"

    def __init__(
        self,
        *,
        worker_index: int | str,
        run_id: str = "{{ run_id }}",
        capacity: str = Capacity.SPOT.value,
        environment: dict[str, str] | None = None,
        subnets: str = "",
        security_groups: str = "",
        assign_public_ip: bool | str = False,
        log_group: str = "",
        log_stream_prefix: str = "",
        max_replacements: int = 5,
        start_attempts: int = 4,
        start_backoff_s: float = 5.0,
        overrides: dict[str, Any] | None = None,
        container_name: str = "worker",
        deferrable: bool = True,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("launch_type", "FARGATE")
        super().__init__(
            overrides=overrides or {}, container_name=container_name, deferrable=deferrable, **kwargs
        )
        self.worker_index = worker_index
        self.run_id = run_id
        self.capacity = capacity
        self.environment = environment or {}
        self.subnets = subnets
        self.security_groups = security_groups
        self.assign_public_ip = assign_public_ip
        self.log_group = log_group
        self.log_stream_prefix = log_stream_prefix
        self.max_replacements = max_replacements
        self.start_attempts = start_attempts
        self.start_backoff_s = start_backoff_s

    def execute(self, context: Context) -> dict[str, Any]:
        """Find this worker's container or start it, then wait until it has stopped."""
        self._prepare()
        running = self._running()
        if running:
            self.arn = running[0]
            self.log.info("this worker's container is up already: %s", self.arn)
        else:
            # The try is part of the token: that of an earlier try would find its stopped container.
            self._start(context["ti"].try_number * _ATTEMPTS_PER_TRY)
        return self._wait(context)

    def execute_complete(  # type: ignore[override]  # the provider's returns a log line
        self, context: Context, event: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Judge how the container stopped; replace it when its machine was taken back."""
        self._prepare()
        if event is None or event.get("status") != "success":
            raise FleetError(f"waiting for the worker failed: {event}")
        self.arn = event["task_arn"]
        return self._finish() or self._wait(context)

    def _prepare(self) -> None:
        """Fill in what the provider's operator takes, from what a run knows."""
        self._started_by = started_by_of(self.run_id)
        if self.subnets:
            is_public = str(self.assign_public_ip).strip().lower() in ("true", "1", "yes", "on", "enabled")
            self.network_configuration = {
                "awsvpcConfiguration": {
                    "subnets": self.subnets.split(","),
                    "securityGroups": [group for group in self.security_groups.split(",") if group],
                    "assignPublicIp": "ENABLED" if is_public else "DISABLED",
                }
            }

    def _running(self) -> list[str]:
        """This worker's containers that have not stopped."""
        mine = _worker_prefix(self.run_id, int(self.worker_index))
        return [
            task["taskArn"]
            for task in fleet_tasks(self.client, self.cluster, self.run_id)
            if worker_id_in(task).startswith(mine)
        ]

    def _start(self, attempt: int) -> None:
        """Start the container on the first kind of capacity that there is."""
        kinds: dict[str, list[Capacity | None]] = {
            Capacity.SPOT.value: [Capacity.SPOT, Capacity.ON_DEMAND],
            Capacity.ON_DEMAND.value: [Capacity.ON_DEMAND],
        }
        last: Exception | None = None
        for kind in kinds.get(self.capacity, [None]):
            for again in range(self.start_attempts):
                if again:
                    wait_s = self.start_backoff_s * 2 ** (again - 1) * random.uniform(0.5, 1.5)  # noqa: S311
                    self.log.info(
                        "no room on %s; again in %.0f s: %s", kind or self.launch_type, wait_s, last
                    )
                    time.sleep(wait_s)
                try:
                    self._start_on(kind, attempt)
                except FleetCapacityError as error:
                    last = error
                else:
                    return
            self.log.warning("there is no capacity on %s: %s", kind or self.launch_type, last)
        self._give_up(last)

    def _give_up(self, last: Exception | None) -> None:
        others = sum(1 for _ in fleet_tasks(self.client, self.cluster, self.run_id))
        if others:
            raise AirflowSkipException(
                f"no capacity for this worker ({last}); {others} other worker(s) of the run do its share"
            )
        raise FleetCapacityError(
            f"ECS has no capacity for the first worker of the run: {last}. "
            "Try again later, in more subnets, or raise the account's Fargate quota."
        )

    def _start_on(self, kind: Capacity | None, attempt: int) -> None:
        from airflow.providers.amazon.aws.exceptions import EcsOperatorError
        from botocore.exceptions import ClientError

        worker_id = worker_id_of(self.run_id, int(self.worker_index), attempt)
        variables = self.environment | {RUN_VARIABLE: self.run_id, WORKER_VARIABLE: worker_id}
        self.overrides = with_environment(self.overrides, str(self.container_name), variables)
        self.capacity_provider_strategy = (
            [{"capacityProvider": _PROVIDERS[kind], "weight": 1}] if kind is not None else None
        )
        token = hashlib.sha256(f"{self.run_id}/{worker_id}/{kind}".encode()).hexdigest()[:64]

        def add_token(params: dict[str, Any], **_: Any) -> None:
            params["clientToken"] = token

        # The provider's operator has no argument for it, and building the request anew would be a copy.
        event = "provide-client-params.ecs.RunTask"
        self.client.meta.events.register(event, add_token, unique_id="pdf_ops")
        try:
            self._start_task()  # type: ignore[no-untyped-call]
        except EcsOperatorError as error:
            reasons = "; ".join(str(failure.get("reason", "")) for failure in error.failures)
            if _NO_CAPACITY.search(reasons):
                raise FleetCapacityError(reasons) from error
            raise TaskFailedToStartError(f"ECS refused the task: {reasons}") from error
        except ClientError as error:
            if is_throttled(error) or _NO_CAPACITY.search(str(error)):
                raise FleetCapacityError(str(error)) from error
            raise
        finally:
            self.client.meta.events.unregister(event, unique_id="pdf_ops")

    def _wait(self, context: Context) -> dict[str, Any]:
        """Wait for the container: deferred, or here."""
        self.log.info("the worker's log: %s", self._log_place() or "see the task in the ECS console")
        if self.do_xcom_push:
            context["ti"].xcom_push(key="ecs_task_arn", value=self.arn)
        if self.deferrable:
            self.defer(
                trigger=self._trigger(),
                method_name="execute_complete",
                timeout=timedelta(seconds=self.waiter_max_attempts * self.waiter_delay + 60),
            )
        while True:
            self._wait_for_task_ended()
            finished = self._finish()
            if finished is not None:
                return finished

    def _log_place(self) -> str:
        if not self.log_group:
            return ""
        task_id = str(self.arn).rpartition("/")[2]
        return f"{self.log_group} {self.log_stream_prefix}/{self.container_name}/{task_id}"

    def _trigger(self) -> Any:
        from airflow.providers.amazon.aws.triggers.ecs import TaskDoneTrigger

        return TaskDoneTrigger(
            cluster=self.cluster,
            task_arn=str(self.arn),
            waiter_delay=self.waiter_delay,
            waiter_max_attempts=self.waiter_max_attempts,
            aws_conn_id=self.aws_conn_id,
            **self._trigger_region(),
        )

    def _trigger_region(self) -> dict[str, Any]:
        """The region, by the argument's name in this version of the provider: 9.25 has ``region``."""
        import inspect

        from airflow.providers.amazon.aws.triggers.ecs import TaskDoneTrigger

        known = inspect.signature(TaskDoneTrigger.__init__).parameters
        return {"region_name" if "region_name" in known else "region": self.region_name}

    def _finish(self) -> dict[str, Any] | None:
        """Judge the stopped container; None when a replacement was started that has to be waited for."""
        answer = self.client.describe_tasks(cluster=self.cluster, tasks=[self.arn])
        if not answer.get("tasks"):
            raise FleetError(f"ECS no longer knows {self.arn}: {answer.get('failures')}")
        task = answer["tasks"][0]
        try:
            check_stopped(task)
        except SpotReclaimedError as error:
            attempt = int(worker_id_in(task).rpartition("-")[2] or 0)
            if attempt % _ATTEMPTS_PER_TRY >= min(self.max_replacements, _ATTEMPTS_PER_TRY - 1):
                raise
            self.log.warning("%s; starting a replacement", error)
            self._start(attempt + 1)
            return None
        self.log.info("the worker %s has done its work: %s", self.arn, task.get("stoppedReason", ""))
        return container_facts(task)


class StopFleetOperator(BaseOperator):
    """Stop every worker of a run that is still up, and wait until they are gone; never fails the run.

    A teardown: it runs however the run ended, also when a person ended it, so that no container stays
    behind and is paid for. Workers get a SIGTERM, finish or hand back what they have, and flush.

    :param cluster: The cluster.
    :param run_id: The run.
    :param wait_s: How long to wait for them; longer than the container's ``stopTimeout``.
    :param poll_s: Seconds between two looks.
    :param aws_conn_id: The Airflow connection used for AWS credentials.
    :param region_name: The AWS region, if not the connection's own.
    """

    template_fields: Sequence[str] = ("cluster", "run_id", "aws_conn_id", "region_name")
    ui_color = "#f5d0d0"

    def __init__(
        self,
        *,
        cluster: str,
        run_id: str = "{{ run_id }}",
        wait_s: float = 180.0,
        poll_s: float = 2.0,
        aws_conn_id: str | None = "aws_default",
        region_name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.cluster = cluster
        self.run_id = run_id
        self.wait_s = wait_s
        self.poll_s = poll_s
        self.aws_conn_id = aws_conn_id
        self.region_name = region_name

    def execute(self, context: Context) -> int:
        """Stop them; give how many there were."""
        stopped: set[str] = set()
        try:
            client = aws_client("ecs", aws_conn_id=self.aws_conn_id, region_name=self.region_name)
            deadline = time.monotonic() + self.wait_s
            while True:
                # Again and again: one may have been started while the others were being stopped.
                up = {task["taskArn"] for task in fleet_tasks(client, self.cluster, self.run_id)}
                for arn in up - stopped:
                    client.stop_task(cluster=self.cluster, task=arn, reason=STOP_REASON)
                    self.log.info("stopping %s", arn)
                stopped |= up
                up |= tasks_up(client, self.cluster, stopped)
                if not up or time.monotonic() > deadline:
                    break
                time.sleep(self.poll_s)
            if up:
                self.log.warning("still up after %.0f s: %s", self.wait_s, sorted(up))
        except Exception:  # A teardown that fails would hide how the run itself ended.
            self.log.exception(
                "the fleet could not be stopped; look for tasks started by %s", started_by_of(self.run_id)
            )
        self.log.info("%d worker(s) had to be stopped", len(stopped))
        return len(stopped)


def with_environment(
    overrides: Mapping[str, Any], container_name: str, variables: Mapping[str, str]
) -> dict[str, Any]:
    """Overrides with these variables for one container; what is empty stays the task definition's."""
    containers = [dict(found) for found in overrides.get("containerOverrides", [])]
    ours = next((found for found in containers if found.get("name") == container_name), None)
    if ours is None:
        ours = {"name": container_name}
        containers.append(ours)
    merged = {entry["name"]: entry["value"] for entry in ours.get("environment", [])} | {
        name: value for name, value in variables.items() if value
    }
    ours["environment"] = [{"name": name, "value": value} for name, value in sorted(merged.items())]
    return {**overrides, "containerOverrides": containers}


def worker_id_in(task: Mapping[str, Any]) -> str:
    """The worker id that a task was started with."""
    for container in task.get("overrides", {}).get("containerOverrides", []):
        for entry in container.get("environment", []):
            if entry.get("name") == WORKER_VARIABLE:
                return str(entry.get("value", ""))
    return ""


def container_facts(task: Mapping[str, Any]) -> dict[str, Any]:
    """What the report needs to know about a container: when, how large, on what."""
    times = {
        name: task[found].isoformat() if task.get(found) else None
        for name, found in (("started_at", "startedAt"), ("stopped_at", "stoppedAt"))
    }
    return {
        "worker_id": worker_id_in(task),
        "task_arn": task.get("taskArn"),
        **times,
        "cpu": task.get("cpu"),
        "memory": task.get("memory"),
        "capacity": task.get("capacityProviderName") or task.get("launchType"),
    }


def check_stopped(task: Mapping[str, Any]) -> None:
    """Judge how a worker's task stopped: returns if it did its work or was stopped by us.

    Raises:
        FleetCapacityError: If there was no room for it.
        TaskFailedToStartError: If it never ran.
        SpotReclaimedError: If its machine was taken back.
        WorkerCrashedError: If it ended with an error, or ECS does not know how.
    """
    arn = str(task.get("taskArn", "")).rpartition("/")[2]
    code, reason = str(task.get("stopCode", "")), str(task.get("stoppedReason", ""))
    if STOP_REASON in reason:
        return
    if _NO_CAPACITY.search(reason):
        raise FleetCapacityError(f"{arn}: {reason}")
    if code == "TaskFailedToStart":
        raise TaskFailedToStartError(
            f"the worker {arn} never ran: {reason}. Check its image, execution role and the subnets' route."
        )
    if code in ("SpotInterruption", "TerminationNotice") or _RECLAIMED.search(reason):
        raise SpotReclaimedError(f"the machine of the worker {arn} was taken back: {reason or code}")
    for container in task.get("containers", []):
        exit_code = container.get("exitCode")
        if exit_code == 0:
            continue
        is_on_spot = task.get("capacityProviderName") == _PROVIDERS[Capacity.SPOT]
        is_out_of_memory = "outofmemory" in str(container.get("reason", "")).lower()
        if exit_code in _SIGNALLED and is_on_spot and not is_out_of_memory:
            raise SpotReclaimedError(f"the worker {arn} on Spot was ended by a signal: {reason or exit_code}")
        raise WorkerCrashedError(arn, exit_code, str(container.get("reason") or reason))
