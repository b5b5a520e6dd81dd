"""The sensor that waits for a run's documents; the work is in ``pdf_ops.triggers.completion``."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, PokeReturnValue, conf

from pdf_ops import exceptions
from pdf_ops.triggers.completion import SUCCESS, RunCompletionTrigger, RunWatch, WatchConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context


FAILURE_KEY = "failure"


class RunCompletionSensor(BaseSensorOperator):
    """Wait until every document of a run has an outcome; returns what became of them.

    Fails at once, without trying again, when nothing moves, when too many documents fail, and when AWS
    refuses a call; why is also in the XCom ``failure``. Tells progress, rate and the time left at each look.

    :param runs_table: The table with the run's counters.
    :param state_table: The table with the documents' states.
    :param dlq_url: The dead-letter queue, from which documents are closed that no worker closed.
    :param input_bucket: The bucket whose documents the state table knows by key alone.
    :param run_id: The run.
    :param failure_threshold: Share of failed documents that ends the run.
    :param failure_minimum: Failed documents before that share counts.
    :param stall_timeout_s: Seconds without a finished document after which the run is stalled.
    :param cluster: The ECS cluster of the run's workers, to notice when none is up; not looked at when empty.
    :param fleet_timeout_s: Seconds without a finished document when no worker is up any more.
    :param deferrable: Whether the triggerer does the waiting.
    :param aws_conn_id: The Airflow connection used for AWS credentials.
    :param region_name: The AWS region, if not the connection's own.
    """

    template_fields: Sequence[str] = (
        "runs_table",
        "state_table",
        "dlq_url",
        "input_bucket",
        "run_id",
        "failure_threshold",
        "failure_minimum",
        "stall_timeout_s",
        "cluster",
        "fleet_timeout_s",
        "aws_conn_id",
        "region_name",
    )
    ui_color = "#e3d9f2"

    def __init__(
        self,
        *,
        runs_table: str,
        state_table: str = "",
        dlq_url: str = "",
        input_bucket: str = "",
        run_id: str = "{{ run_id }}",
        failure_threshold: float | str = 0.5,
        failure_minimum: int | str = 20,
        stall_timeout_s: float | str = 3_600.0,
        cluster: str = "",
        fleet_timeout_s: float | str = 600.0,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        aws_conn_id: str | None = "aws_default",
        region_name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.runs_table = runs_table
        self.state_table = state_table
        self.dlq_url = dlq_url
        self.input_bucket = input_bucket
        self.run_id = run_id
        self.failure_threshold = failure_threshold
        self.failure_minimum = failure_minimum
        self.stall_timeout_s = stall_timeout_s
        self.cluster = cluster
        self.fleet_timeout_s = fleet_timeout_s
        self.deferrable = deferrable
        self.aws_conn_id = aws_conn_id
        self.region_name = region_name

    @cached_property
    def watch(self) -> RunWatch:
        """The watch, when there is no triggerer to do it."""
        return RunWatch(self._config(), self.log)

    def _config(self) -> WatchConfig:
        return WatchConfig(
            run_id=self.run_id,
            runs_table=self.runs_table,
            state_table=self.state_table,
            dlq_url=self.dlq_url,
            input_bucket=self.input_bucket,
            failure_threshold=float(self.failure_threshold),
            failure_minimum=int(self.failure_minimum),
            stall_timeout_s=float(self.stall_timeout_s),
            cluster=self.cluster,
            fleet_timeout_s=float(self.fleet_timeout_s),
            aws_conn_id=self.aws_conn_id or None,
            region_name=self.region_name or None,
        )

    def execute(self, context: Context) -> Any:
        """Wait: deferred, or by poking."""
        if self.deferrable:
            self.defer(
                trigger=RunCompletionTrigger(
                    config=asdict(self._config()), poll_interval_s=float(self.poke_interval)
                ),
                method_name="execute_complete",
                timeout=timedelta(seconds=self.timeout),
            )
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any] | None = None) -> dict[str, int]:
        """Return the counters, or raise what the watch found."""
        if event is None:
            raise exceptions.RunStalledError("the triggerer ended without a verdict")
        return self._conclude(context, event)

    def poke(self, context: Context) -> PokeReturnValue:
        """Look once."""
        verdict = self.watch.look()
        if verdict is None:
            return PokeReturnValue(is_done=False)
        return PokeReturnValue(is_done=True, xcom_value=self._conclude(context, verdict.to_event()))

    def _conclude(self, context: Context, event: dict[str, Any]) -> dict[str, int]:
        if event["status"] != SUCCESS:
            # For the report and the alert: they run later, and see only that this task failed.
            context["ti"].xcom_push(key=FAILURE_KEY, value=event["message"])
            raise getattr(exceptions, event["status"])(event["message"])
        self.log.info("%s", event["message"])
        counters: dict[str, int] = event["counters"]
        return counters
