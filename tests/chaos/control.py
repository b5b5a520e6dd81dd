"""Airflow's side of a run: its own operators, executed here one after the other, and again."""

from __future__ import annotations

import os
from contextlib import contextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

from tests.support.runs import FakeTaskInstance

from pdf_ops.contract.layout import Layout
from pdf_ops.operators.enqueue import PdfEnqueueOperator
from pdf_ops.operators.listing import PdfListOperator
from pdf_ops.operators.merge import MergeOperator
from pdf_ops.operators.plan_merge import PlanMergeOperator
from pdf_ops.operators.publish import PublishOperator
from pdf_ops.operators.reconcile import ReconcileOperator
from pdf_ops.operators.report import ReportOperator
from pdf_ops.triggers.completion import RunWatch, WatchConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.world import World


# So that there are several.
DOCUMENTS_PER_SHARD = 50


class Control:
    """The tasks of one run of the DAG in a world, whose AWS is at ``endpoint``."""

    def __init__(self, world: World, environment: dict[str, str], endpoint: str, run_id: str) -> None:
        self._world = world
        self._environment = environment | {"AWS_ENDPOINT_URL": endpoint}
        self.run_id = run_id
        self.layout = Layout(
            output_bucket=world.output,
            output_prefix="pages",
            manifest_bucket=world.output,
            manifest_prefix="manifests",
        )
        self._places = {
            "output_bucket": world.output,
            "output_prefix": "pages",
            "manifest_bucket": world.output,
            "manifest_prefix": "manifests",
            "runs_table": world.runs_table,
            "run_id": run_id,
            "aws_conn_id": None,
        }
        self._shards: list[str] = []
        self._merge_shards: list[str] = []
        self.watch = RunWatch(
            WatchConfig(
                run_id=run_id,
                runs_table=world.runs_table,
                state_table=world.state_table,
                dlq_url=world.dlq,
                input_bucket=world.input,
                failure_threshold=1.0,
                aws_conn_id=None,
            )
        )

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """This process's AWS is the world's, through the proxy."""
        with mock.patch.dict(os.environ, self._environment):
            self.watch.connect()
            yield

    def _context(self) -> Any:
        return {
            "ti": FakeTaskInstance(self.run_id),
            "run_id": self.run_id,
            "dag": SimpleNamespace(dag_id="pdf_ocr"),
            "dag_run": SimpleNamespace(
                run_type="manual",
                run_after=datetime(2100, 1, 1, tzinfo=UTC),
                data_interval_start=None,
                data_interval_end=None,
            ),
        }

    def list(self) -> int:
        """Freeze the listing; gives how many documents are sent."""
        context = self._context()
        operator = PdfListOperator(
            task_id="list", bucket=self._world.input, state_table=self._world.state_table, **self._places
        )
        self._shards = operator.execute(context)
        return int(context["ti"].pushed["summary"]["documents"])

    def enqueue(self) -> int:
        """Send all messages; gives how many there were."""
        return sum(
            PdfEnqueueOperator(
                task_id="enqueue",
                shard_uri=shard,
                queue_url=self._world.queue,
                run_id=self.run_id,
                batches_in_flight=2,
                aws_conn_id=None,
            ).execute(self._context())
            for shard in self._shards
        )

    def plan_merge(self) -> int:
        """Merge the manifest; gives how many shards there are."""
        operator = PlanMergeOperator(
            task_id="plan_merge",
            input_bucket=self._world.input,
            documents_per_shard=DOCUMENTS_PER_SHARD,
            **self._places,
        )
        self._merge_shards = operator.execute(self._context())
        return len(self._merge_shards)

    def merge(self) -> None:
        """Merge every shard."""
        for shard in self._merge_shards:
            MergeOperator(task_id="merge", shard_uri=shard, **self._places).execute(self._context())

    def publish(self) -> dict[str, Any]:
        return PublishOperator(task_id="publish", **self._places).execute(self._context())

    def reconcile(self) -> dict[str, Any]:
        return ReconcileOperator(task_id="reconcile", **self._places).execute(self._context())

    def report(self) -> dict[str, Any]:
        operator = ReportOperator(task_id="report", dlq_url=self._world.dlq, **self._places)
        return operator.execute(self._context())
