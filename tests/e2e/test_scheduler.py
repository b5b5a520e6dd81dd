"""What ``make up`` starts, used as a person uses it: with a real scheduler, triggerer and api-server."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import psutil
import pyarrow.parquet as pq
import pytest
from tests.support.slack import SlackEndpoint

from local_airflow.demo import DAG_ID, Place
from local_airflow.environment import airflow_program
from local_airflow.up import Up, UpError, airflow_up
from pdf_ops.hooks.ecs import fleet_tasks
from samples import documents as made

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pdf_ops.contract.layout import S3Uri

pytestmark = pytest.mark.timeout(900)

WAIT_S = 400.0
CHANNEL = "alerts"
# The last interval ended twelve hours ago, and the next one ends in twelve hours: not while we look.
DUE = (datetime.now(UTC) - timedelta(hours=12)).replace(minute=0, second=0, microsecond=0)
ENDED = ("success", "failed")


@dataclass(frozen=True)
class Stack:
    """Airflow on a local AWS, and Slack's side of its messages."""

    up: Up
    slack: SlackEndpoint
    folder: Path

    @property
    def place(self) -> Place:
        return Place(self.up.aws.environment())

    def put(self, key: str, body: bytes) -> None:
        self.up.aws.client("s3").put_object(
            Bucket=self.place.environment["INPUT_S3_BUCKET"], Key=key, Body=body
        )

    def read(self, uri: S3Uri) -> bytes:
        body: bytes = self.up.aws.client("s3").get_object(Bucket=uri.bucket, Key=uri.key)["Body"].read()
        return body

    def report(self, run_id: str) -> dict[str, Any]:
        return dict(json.loads(self.read(self.place.layout.report_json(run_id))))

    def dataset_rows(self, run_id: str) -> list[dict[str, Any]]:
        root = self.place.layout.pages_dataset()
        rows = []
        for item in self.up.aws.client("s3").list_objects_v2(Bucket=root.bucket, Prefix=root.key)["Contents"]:
            body = self.up.aws.client("s3").get_object(Bucket=root.bucket, Key=item["Key"])["Body"].read()
            rows += pq.read_table(io.BytesIO(body)).to_pylist()
        return [row for row in rows if row["run_id"] == run_id]

    def trigger(self, **conf: Any) -> str:
        body = {"logical_date": None, "conf": conf}
        return str(self.up.api.call("POST", f"/dags/{DAG_ID}/dagRuns", body)["dag_run_id"])

    def runs(self, run_type: str) -> list[dict[str, Any]]:
        found = self.up.api.call("GET", f"/dags/{DAG_ID}/dagRuns?limit=100&run_type={run_type}")
        return list(found["dag_runs"])

    def state(self, run_id: str) -> str:
        return str(self.up.api.call("GET", f"/dags/{DAG_ID}/dagRuns/{quote(run_id, safe='')}")["state"])

    def tasks(self, run_id: str) -> dict[str, str]:
        path = f"/dags/{DAG_ID}/dagRuns/{quote(run_id, safe='')}/taskInstances?limit=100"
        found = self.up.api.call("GET", path)["task_instances"]
        return {f"{task['task_id']} {task['map_index']}".removesuffix(" -1"): task["state"] for task in found}

    def end(self, run_id: str) -> str:
        """How a run ends."""
        self.until(lambda: self.state(run_id) in ENDED, lambda: f"{run_id} to end: {self.tasks(run_id)}")
        return self.state(run_id)

    def messages(self, run_id: str) -> list[str]:
        return [text for text in self.slack.texts(CHANNEL) if run_id in text]

    def workers(self) -> list[psutil.Process]:
        """The processes that ECS runs for us, whatever it says about them."""
        found = []
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if "ocr_worker" in child.cmdline():
                    found.append(child)
        return found

    def fleet(self, run_id: str) -> list[dict[str, Any]]:
        return list(fleet_tasks(self.up.aws.client("ecs"), self.up.aws.resources.cluster.name, run_id))

    def until(self, is_so: Callable[[], object], what: Callable[[], str]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not is_so():
            assert time.monotonic() < deadline, f"waited {WAIT_S:.0f} s for {what()}"
            self.up.check()
            time.sleep(0.5)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("up")
    before = set(psutil.Process().children(recursive=True))
    with SlackEndpoint() as slack:
        variables = {
            "AIRFLOW_CONN_SLACK_ALERTS": slack.connection(CHANNEL),
            "AIRFLOW__PDF_OPS__SLACK_CONN_ID": "slack_alerts",
            "AIRFLOW__PDF_OPS__SCHEDULE": f"0 {DUE.hour} * * *",
            # `make up` starts nothing by itself; here is proved what would start if it did.
            "AIRFLOW__SCHEDULER__USE_JOB_SCHEDULE": "True",
        }
        with airflow_up(folder, port=0, variables=variables) as up:
            yield Stack(up, slack, folder)
            processes = set(psutil.Process().children(recursive=True)) - before
    _, alive = psutil.wait_procs(processes, timeout=10)
    assert [process for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []


def test_a_run_that_a_person_triggers_succeeds_is_published_and_summarised_in_slack(stack: Stack):
    run_id = stack.trigger(prefix="samples/contracts/", workers="1")

    assert stack.end(run_id) == "success", stack.tasks(run_id)
    report = stack.report(run_id)
    assert report["reconciliation"]["is_reconciled"]
    assert report["outcomes"]["ok"] == report["sent"] == 5
    assert len({row["source_uri"] for row in stack.dataset_rows(run_id)}) == 5
    stack.until(lambda: stack.messages(run_id), lambda: "the summary in Slack")
    [summary] = stack.messages(run_id)
    assert summary.startswith(f"Done: {DAG_ID}, run {run_id}")
    assert "5 ok" in summary


def test_backfilled_days_run_at_once_and_no_document_counts_for_two_of_them(stack: Stack, tmp_path: Path):
    documents = 12
    for number in range(documents):
        made.text_pdf(tmp_path / "page.pdf", [[f"Document {number}", *made.PARAGRAPH]])
        stack.put(f"backfill/{number}.pdf", (tmp_path / "page.pdf").read_bytes())
    first_day = DUE - timedelta(days=4)
    # Their own windows are days on which nothing was there yet: have all three want the same documents.
    conf = {
        "prefix": "backfill/",
        "window_end": (datetime.now(UTC) + timedelta(days=1)).isoformat(),
        "workers": "1",
    }

    subprocess.run(
        [
            *(airflow_program(), "backfill", "create", "--dag-id", DAG_ID, "--max-active-runs", "3"),
            *("--from-date", first_day.isoformat(), "--to-date", (first_day + timedelta(days=2)).isoformat()),
            *("--dag-run-conf", json.dumps(conf)),
        ],
        env=dict(stack.up.environment),
        check=True,
        timeout=WAIT_S,
    )

    run_ids = [run["dag_run_id"] for run in stack.runs("backfill")]
    assert len(run_ids) == 3
    assert {run_id: stack.end(run_id) for run_id in run_ids} == dict.fromkeys(run_ids, "success")
    reports = [stack.report(run_id) for run_id in run_ids]
    assert sum(report["outcomes"].get("ok", 0) for report in reports) == documents
    for report in reports:
        assert sum(report["listed"].values()) == documents
        assert sum(report["outcomes"].values()) == report["sent"]
        assert set(filter(report["outcomes"].get, report["outcomes"])) <= {"ok", "skipped"}
    rows = [row["source_uri"] for run_id in run_ids for row in stack.dataset_rows(run_id)]
    assert len(rows) == len(set(rows)) == documents


def test_a_run_that_is_ended_by_hand_fails_leaves_no_worker_behind_and_alerts_once(
    stack: Stack, tmp_path: Path
):
    # Enough for some seconds; a worker that is told to stop finishes what it has begun.
    for number in range(2):
        pages = [made.scan([f"Document {number}, page {page}", *made.PARAGRAPH]) for page in range(40)]
        stack.put(f"ended/{number}.pdf", made.scan_pdf(tmp_path / "scan.pdf", pages).read_bytes())
    run_id = stack.trigger(prefix="ended/", workers="2", ocr_mode="force")
    deferred = {"fleet 0": "deferred", "fleet 1": "deferred", "wait": "deferred"}
    stack.until(
        lambda: deferred.items() <= stack.tasks(run_id).items(), lambda: f"the fleet: {stack.tasks(run_id)}"
    )
    assert len(stack.fleet(run_id)) == 2
    assert stack.workers()

    path = f"/dags/{DAG_ID}/dagRuns/{quote(run_id, safe='')}"
    stack.up.api.call("PATCH", path, {"state": "failed"})

    assert stack.end(run_id) == "failed", stack.tasks(run_id)
    assert stack.tasks(run_id)["stop_fleet"] == "success"
    assert stack.fleet(run_id) == []
    assert stack.workers() == []
    stack.until(lambda: stack.messages(run_id), lambda: "the alert in Slack")
    # A second one would come from the other ways to end: give those the time that this one took.
    time.sleep(3)
    [alert] = stack.messages(run_id)
    assert alert.startswith(f"Failed: {DAG_ID}, run {run_id}")
    assert "ended by hand" in alert


def test_a_schedule_without_catchup_starts_the_latest_interval_and_nothing_else(stack: Stack):
    stack.until(lambda: stack.runs("scheduled"), lambda: "the latest interval")

    [run] = stack.runs("scheduled")
    assert datetime.fromisoformat(run["data_interval_end"]) == DUE
    assert stack.end(run["dag_run_id"]) == "success"
    # All documents here are younger than that interval.
    assert stack.report(run["dag_run_id"])["sent"] == 0


def test_a_port_in_use_is_told_before_anything_starts(stack: Stack, tmp_path: Path):
    port = int(stack.up.api.url.rpartition(":")[2])

    with pytest.raises(UpError, match=f"port {port} is in use"), airflow_up(tmp_path / "other", port=port):
        pass

    assert not (tmp_path / "other").exists()


def test_a_second_one_in_the_same_folder_is_refused(stack: Stack):
    with pytest.raises(UpError, match="up already"), airflow_up(stack.folder, port=0):
        pass

    assert stack.up.api.health()["scheduler"]["status"] == "healthy"
