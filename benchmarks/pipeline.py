"""``make bench-pipeline``: the whole pipeline on the local AWS, and the parts of it that must scale.

Many small documents, so that it is all but the reading itself that is measured: one run of the real DAG,
each Airflow task in a process of its own, enqueue against bare calls, listing a million keys, and merging
as many manifest lines.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psutil

from benchmarks import measure, merge
from benchmarks.stub_aws import PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from local_aws import LocalAws

WORK = Path(".build/bench/pipeline")
DAG_ID = "pdf_ocr"
TASK_LIMIT_MB = 400
ENQUEUE_LIMIT = 1.3
MERGE_LIMIT = 2.0
# Constant, up to what the allocator keeps: ten times as many keys may take so much more.
LISTING_LIMIT = 1.25
IN_FLIGHT = 8
UPLOADS = 16
FOLDER_DOCUMENTS = 1_000
SAMPLE_S = 0.1
# Those that hold rows.
# The proof first: planning begins the merging anew, and what was published then counts for nothing.
BARE_OPERATORS = ("reconcile", "plan_merge", "merge")
# The tasks that can be run again by themselves when the run is over; the fleet's would start workers.
FLOOR = "fleet_is_due"
"""A task that does nothing: what it takes is Airflow's own, and the DAG files' imports."""
REPEATED_TASKS = (
    *("plan_fleet", "wait", "stop_fleet"),
    *("plan_merge", "merge", "publish", "reconcile", "report", "gate"),
)
_TASK = re.compile(r"\[DAG TEST\] (starting|end task) task_id=(\S+) map_index=(-?\d+)")
_RUN = re.compile(r"DagRun Finished: .*?run_id=([^,\s]+),.*?state=(\w+)")


class BenchmarkError(Exception):
    """There is nothing to measure, since it did not work."""


@dataclass(frozen=True, slots=True)
class Line:
    """A figure, and what it should be at the most."""

    name: str
    value: float
    unit: str
    limit: float | None = None

    @property
    def is_met(self) -> bool:
        return self.limit is None or self.value <= self.limit


@dataclass(slots=True)
class Part:
    """A part of the benchmark: its figures for people, and everything for programs."""

    title: str
    lines: list[Line] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)

    def add(self, name: str, value: float, unit: str, limit: float | None = None) -> None:
        self.lines.append(Line(name, value, unit, limit))

    def table(self) -> str:
        rows = [f"### {self.title}", "", "| | | limit | ÷ limit |", "|---|---|---|---|"]
        for line in self.lines:
            limit = "" if line.limit is None else f"{line.limit:g} {line.unit}".strip()
            ratio = "" if line.limit is None else f"{line.value / line.limit:.2f}"
            mark = "" if line.is_met else " ✗"
            rows.append(f"| {line.name} | {line.value:,.6g} {line.unit} | {limit} | {ratio}{mark} |")
        return "\n".join(rows)

    def as_json(self) -> dict[str, Any]:
        figures = {
            line.name: {"value": line.value, "unit": line.unit, "limit": line.limit} for line in self.lines
        }
        return {"title": self.title, "figures": figures, "details": self.details}


# --- the whole DAG ---------------------------------------------------------------------------


def put_documents(aws: LocalAws, count: int) -> float:
    """One page of text each, all of them different; returns how long it took."""
    from samples.documents import text_pdf

    with tempfile.TemporaryDirectory() as folder:
        page = text_pdf(Path(folder) / "page.pdf").read_bytes()
    s3, bucket = aws.client("s3"), aws.environment()["INPUT_S3_BUCKET"]

    def put(number: int) -> None:
        key = f"bench/{number // FOLDER_DOCUMENTS:04d}/document {number:07d}.pdf"
        s3.put_object(Bucket=bucket, Key=key, Body=page + b"%% document %d\n" % number)

    began = time.perf_counter()
    with ThreadPoolExecutor(UPLOADS) as pool:
        for _ in pool.map(put, range(count), chunksize=100):
            pass
    return time.perf_counter() - began


def define_worker(aws: LocalAws, **variables: str) -> str:
    """The deployed worker with settings that suit two workers on a small machine; returns the definition."""
    ecs = aws.client("ecs")
    deployed = ecs.describe_task_definition(taskDefinition=aws.resources.task_definition.family)
    definition = deployed["taskDefinition"]
    [container] = definition["containerDefinitions"]
    given = {entry["name"]: entry["value"] for entry in container["environment"]} | variables
    container["environment"] = [{"name": name, "value": value} for name, value in given.items()]
    kept = ("requiresCompatibilities", "networkMode", "cpu", "memory", "containerDefinitions")
    ecs.register_task_definition(family="bench-worker", **{name: definition[name] for name in kept})
    return "bench-worker"


class Cpu:
    """CPU of the local AWS's servers, and of the workers that its ECS has run."""

    def __init__(self) -> None:
        by_module = {}
        for child in psutil.Process().children():
            for module in ("local_aws.data_server", "local_aws.ecs_server"):
                if module in child.cmdline():
                    by_module[module] = child
        self._data = by_module["local_aws.data_server"]
        self._ecs = by_module["local_aws.ecs_server"]

    def read(self) -> dict[str, float]:
        """Seconds so far; a worker counts, with its page processes, when it has ended."""
        data, ecs = self._data.cpu_times(), self._ecs.cpu_times()
        return {
            "ministack": data.user + data.system,
            "ecs": ecs.user + ecs.system,
            "workers": ecs.children_user + ecs.children_system,
        }

    @property
    def worker_bytes(self) -> int:
        """What the workers that run now have in memory, page processes included."""
        total = 0
        for process in self._ecs.children(recursive=True):
            try:
                total += process.memory_info().rss
            except psutil.Error:
                continue
        return total


@dataclass(slots=True)
class DagRun:
    """What is seen of ``airflow dags test`` from outside."""

    run_id: str = ""
    state: str = ""
    wall_s: float = 0.0
    cpu_s: float = 0.0
    tasks: list[dict[str, Any]] = field(default_factory=list)
    fleet_began: datetime | None = None
    peak_bytes: int = 0
    workers_peak_bytes: int = 0
    current: dict[str, Any] | None = None

    def seconds_of(self, name: str) -> float:
        return sum(float(task["wall_s"]) for task in self.tasks if task["task"] == name)

    def see_line(self, line: str, on_fleet: Callable[[], None]) -> None:
        """Note what a line of the log says about the run."""
        if found := _RUN.search(line):
            self.run_id, self.state = found.groups()
        found = _TASK.search(line)
        if found is None:
            return
        what, task, index = found.groups()
        now = time.perf_counter()
        if what == "starting":
            if task == "fleet" and self.fleet_began is None:
                self.fleet_began = datetime.now(UTC)
                on_fleet()
            self.current = {"task": task, "index": int(index), "began": now, "peak_bytes": 0}
        elif self.current is not None:
            self.current["wall_s"] = now - self.current.pop("began")
            self.tasks.append(self.current)
            self.current = None

    def watch_memory(self, pid: int, cpu: Cpu, is_over: threading.Event) -> None:
        """Sample what is in memory until the run is over."""
        airflow = psutil.Process(pid)
        while not is_over.wait(SAMPLE_S):
            try:
                found = airflow.memory_info().rss
            except psutil.Error:
                return
            self.peak_bytes = max(self.peak_bytes, found)
            self.workers_peak_bytes = max(self.workers_peak_bytes, cpu.worker_bytes)
            current = self.current
            if current is not None:
                current["peak_bytes"] = max(current["peak_bytes"], found)


def run_dag(
    environment: Mapping[str, str], conf: Mapping[str, Any], cpu: Cpu, on_fleet: Callable[[], None]
) -> DagRun:
    """Run the DAG once, and note when which task ran and what was in memory by then."""
    from local_airflow.environment import airflow_program

    run, is_over = DagRun(), threading.Event()
    command = [airflow_program(), "dags", "test", DAG_ID, "--conf", json.dumps(dict(conf))]
    log = WORK / "airflow.log"
    began = time.perf_counter()
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        watcher = threading.Thread(target=run.watch_memory, args=(process.pid, cpu, is_over), daemon=True)
        watcher.start()
        for line in process.stdout or ():
            file.write(line)
            run.see_line(line, on_fleet)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        is_over.set()
        watcher.join()
    run.wall_s, run.cpu_s = time.perf_counter() - began, used.ru_utime + used.ru_stime
    if process.returncode or run.state != "success":
        raise BenchmarkError(f"the run ended as {run.state or 'nothing'}; see {log}")
    return run


def whole_run(documents: int, workers: int, rounds: int) -> Iterator[Part]:
    """One run of the DAG, then its tasks one by one."""
    del rounds
    from local_airflow.demo import Place
    from local_airflow.environment import airflow_environment, migrate_database
    from local_aws import LocalAws

    folder = WORK / "whole"
    shutil.rmtree(folder, ignore_errors=True)
    with LocalAws(folder / "aws", port=0, ecs_port=0) as aws:
        say(f"uploading {documents:,} documents")
        upload_s = put_documents(aws, documents)
        definition = define_worker(aws, MAX_WORKERS="1", IDLE_S="3")
        place = Place(aws.environment())
        environment = airflow_environment(
            (folder / "airflow").resolve(),
            place.environment,
            ECS_TASK_DEFINITION=definition,
            POLL_INTERVAL_S="1",
        )
        migrate_database(environment, WORK / "migrate.log")
        cpu = Cpu()

        def start_others() -> None:
            # `airflow dags test` runs the fleet's tasks one after another: the others start with the first.
            network = {"awsvpcConfiguration": {"subnets": [place.environment["PDF_OPS_ECS_SUBNETS"]]}}
            for number in range(1, workers):
                variable = {"name": "WORKER_ID", "value": f"bench-{number:04d}"}
                aws.client("ecs").run_task(
                    cluster=place.environment["PDF_OPS_ECS_CLUSTER"],
                    taskDefinition=definition,
                    launchType="FARGATE",
                    networkConfiguration=network,
                    overrides={"containerOverrides": [{"name": "worker", "environment": [variable]}]},
                )

        say(f"running {DAG_ID} with {workers} workers")
        before = cpu.read()
        run = run_dag(environment, {"workers": "1"}, cpu, start_others)
        after = cpu.read()
        used = {name: after[name] - before[name] for name in after}
        part = _run_part(place, run, used, documents, workers)
        part.details["upload_s"] = upload_s
        yield part
        yield _tasks_part(aws, environment, run)
    shutil.rmtree(folder, ignore_errors=True)


def _run_part(place: Any, run: DagRun, used: Mapping[str, float], documents: int, workers: int) -> Part:
    import io

    import pyarrow.parquet as pq

    s3, layout = place.client("s3"), place.layout

    def read(uri: Any) -> bytes:
        body: bytes = s3.get_object(Bucket=uri.bucket, Key=uri.key)["Body"].read()
        return body

    reconciliation = json.loads(read(layout.reconciliation_json(run.run_id)))
    if not reconciliation["is_reconciled"] or reconciliation["ok"] != documents:
        raise BenchmarkError(f"the run does not add up: {reconciliation['equation']}")
    manifest = pq.read_table(
        io.BytesIO(read(layout.run_manifest(run.run_id))), columns=["read_at", "worker_id"]
    )
    ends = sorted(manifest["read_at"].to_pylist())
    fleet_s = (ends[-1] - run.fleet_began).total_seconds()
    fifth, last = ends[documents // 20], ends[documents - documents // 20 - 1]
    steady = 0.9 * documents / max((last - fifth).total_seconds(), 0.001)
    part = Part(f"{documents:,} one-page documents through the whole DAG, {workers} workers")
    part.add("reconciliation: documents without an outcome", documents - reconciliation["ok"], "")
    part.add("wall, the whole run", round(run.wall_s, 1), "s")
    part.add("wall, fleet's start to last document", round(fleet_s, 1), "s")
    part.add("documents a second, fleet's start to last document", round(documents / fleet_s, 1), "/s")
    part.add("documents a second, without the first and last twentieth", round(steady, 1), "/s")
    for name, seconds in (
        ("workers", used["workers"]),
        ("ministack (S3, SQS, DynamoDB)", used["ministack"]),
        ("local ECS", used["ecs"]),
        ("Airflow", run.cpu_s),
    ):
        part.add(f"CPU a document, {name}", round(1000 * seconds / documents, 2), "ms")
    part.add("peak memory of all workers together", round(run.workers_peak_bytes / 1e6), "MB")
    # All tasks one after another in one process, which nobody deploys: no limit, but nothing is hidden.
    part.add("peak memory of `airflow dags test`", round(run.peak_bytes / 1e6), "MB")
    for name in ("list", "enqueue", "plan_merge", "merge", "publish", "reconcile", "report"):
        part.add(f"wall, task {name}", round(run.seconds_of(name), 1), "s")
    shards = [task["wall_s"] for task in run.tasks if task["task"] == "merge"]
    part.add(f"wall, the longest of {len(shards)} merging tasks", round(max(shards), 1), "s")
    by_worker = manifest["worker_id"].value_counts().to_pylist()
    part.details = {
        "equation": reconciliation["equation"],
        "cpu_s": {**used, "airflow": run.cpu_s},
        "documents_by_worker": {item["values"]: item["counts"] for item in by_worker},
        "tasks": run.tasks,
    }
    return part


def _tasks_part(aws: LocalAws, environment: Mapping[str, str], run: DagRun) -> Part:
    """Each task again, by ``airflow tasks test``: a process with all of Airflow in it, and nothing else."""
    part = Part("Peak memory of each Airflow task in a process of its own")
    python = [sys.executable, "-m", "airflow"]
    commands = {FLOOR: [*python, "tasks", "test", DAG_ID, FLOOR, run.run_id]}
    shards = sum(task["task"] == "merge" for task in run.tasks)
    # One that the run has not frozen: everything is listed, looked up, and found read.
    moment = datetime.now(UTC).replace(microsecond=0).isoformat()
    commands["list"] = [*python, "tasks", "test", DAG_ID, "list", moment]
    commands["enqueue"] = [*python, "tasks", "test", "--map-index", "0", DAG_ID, "enqueue", run.run_id]
    for name in REPEATED_TASKS:
        for number in range(shards if name == "merge" else 1):
            index = ["--map-index", str(number)] if name == "merge" else []
            shown = f"{name} {number}" if name == "merge" else name
            commands[shown] = [*python, "tasks", "test", *index, DAG_ID, name, run.run_id]
    for name, command in commands.items():
        say(f"task {name}")
        usage = measure.run(command, env=dict(environment))
        shutil.copy(measure.LOG, WORK / f"task-{name}.log")
        part.details[name] = vars_of(usage)
        above = (usage.peak_rss_bytes - part.details[FLOOR]["peak_rss_bytes"]) / 1e6
        said = "an empty task" if name == FLOOR else f"{name}, {above:.0f} above an empty task"
        part.add(said, round(usage.peak_rss_bytes / 1e6), "MB", TASK_LIMIT_MB)
    # `airflow tasks test` has an API server and a database session in it, which a deployed task has not; nor
    # is a deployed task as bare as an operator by itself. What a deployed task takes lies between the two.
    for name in BARE_OPERATORS:
        say(f"operator {name}")
        command = [sys.executable, "-m", "benchmarks.pipeline", "--one", name, run.run_id]
        usage = measure.run(command, env=dict(environment))
        part.add(f"{name}, the operator without Airflow's own", round(usage.peak_rss_bytes / 1e6), "MB")
        part.details[f"{name}, operator"] = vars_of(usage)
    aws.client("sqs").purge_queue(QueueUrl=environment["SQS_QUEUE_URL"])
    return part


def _run_operator(name: str, run_id: str) -> int:
    """An operator of the end of a run, again, with nothing of Airflow but its SDK."""
    from pdf_ops.contract.layout import Layout
    from pdf_ops.operators.merge import MergeOperator
    from pdf_ops.operators.plan_merge import PlanMergeOperator
    from pdf_ops.operators.reconcile import ReconcileOperator

    places = {
        "output_bucket": os.environ["OUTPUT_S3_BUCKET"],
        "output_prefix": os.environ.get("OUTPUT_S3_PREFIX", ""),
        "manifest_bucket": os.environ["MANIFEST_S3_BUCKET"],
        "manifest_prefix": os.environ["MANIFEST_S3_KEY"],
    }
    arguments: dict[str, Any] = places | {
        "task_id": name,
        "runs_table": os.environ["DYNAMO_RUNS_TABLE_NAME"],
        "run_id": run_id,
        "aws_conn_id": None,
    }
    context: Any = {"dag_run": None}
    if name == "plan_merge":
        return len(PlanMergeOperator(**arguments).execute(context))
    if name == "merge":
        shard_uri = str(Layout(**places).merge_shard(run_id, 0))
        return MergeOperator(shard_uri=shard_uri, **arguments).execute(context)["documents"]
    return int(ReconcileOperator(**arguments).execute(context)["page_rows"])


# --- enqueue ---------------------------------------------------------------------------------


def enqueue(documents: int, workers: int, rounds: int) -> Iterator[Part]:
    """Our enqueue against bare calls, which have nothing to read and nothing to check."""
    del workers
    from local_aws import LocalAws
    from pdf_ops.contract.listing import SHARD_LINES

    folder = WORK / "enqueue"
    shutil.rmtree(folder, ignore_errors=True)
    times: dict[str, list[dict[str, float]]] = {"ours": [], "bare": []}
    with LocalAws(folder / "aws", port=0, ecs_port=0) as aws:
        bucket = aws.environment()["MANIFEST_S3_BUCKET"]
        shards = [
            put_shard(aws, bucket, number, range(first, min(first + SHARD_LINES, documents)))
            for number, first in enumerate(range(0, documents, SHARD_LINES))
        ]
        sqs = aws.client("sqs")
        for number in range(rounds):
            for name, found in times.items():
                say(f"enqueue: {name} ({number + 1}/{rounds})")
                queue = sqs.create_queue(QueueName=f"bench-{name}-{number}")["QueueUrl"]
                command = [sys.executable, "-m", "benchmarks.pipeline", "--one", f"enqueue-{name}"]
                measure.run([*command, queue, *shards], env=aws.environment())
                found.append(json.loads((WORK / "one.json").read_text()))
                sent = int(found[-1]["sent"])
                if sent != documents:
                    raise BenchmarkError(f"{name} sent {sent} of {documents} messages")
                sqs.delete_queue(QueueUrl=queue)
    part = Part(f"Enqueue {documents:,} messages, {IN_FLIGHT} batches at once")
    ours, bare = (
        {figure: median(one[figure] for one in found) for figure in ("wall_s", "sending_s", "cpu_s")}
        for found in times.values()
    )
    part.add("ours, wall", round(ours["wall_s"], 2), "s")
    part.add("bare SendMessageBatch, wall", round(bare["wall_s"], 2), "s")
    part.add("ours ÷ bare, wall", round(ours["wall_s"] / bare["wall_s"], 3), "times", ENQUEUE_LIMIT)
    part.add("ours ÷ bare, sending without clients", round(ours["sending_s"] / bare["sending_s"], 3), "times")
    part.add("ours ÷ bare, our own CPU", round(ours["cpu_s"] / bare["cpu_s"], 3), "times")
    part.details = dict(times)
    shutil.rmtree(folder, ignore_errors=True)
    yield part


def put_shard(aws: LocalAws, bucket: str, number: int, documents: range) -> str:
    """A listing's shard, as the list task writes it."""
    from pdf_ops.contract.listing import Decision, ListedObject

    lines = [
        ListedObject(
            bucket="pdf-ops-input",
            key=f"incoming/2026/customer-{document % 97:04d}/invoice {document:09d}.pdf",
            etag=f"{document:032x}",
            size=40_000 + document,
            last_modified="2026-03-01T08:15:30+00:00",
            decision=Decision.NEW,
        ).to_line()
        for document in documents
    ]
    key = f"bench/listing/shard-{number:05d}.jsonl.gz"
    aws.client("s3").put_object(Bucket=bucket, Key=key, Body=gzip.compress("".join(lines).encode(), 5))
    return f"s3://{bucket}/{key}"


def _enqueue_ours(queue: str, shards: list[str], sending: list[float]) -> int:
    from pdf_ops.operators import enqueue as module
    from pdf_ops.operators.enqueue import PdfEnqueueOperator

    send_all = module.send_all

    def timed(*arguments: Any) -> int:
        began = time.perf_counter()
        count = send_all(*arguments)
        sending.append(time.perf_counter() - began)
        return count

    module.send_all = timed
    sent = 0
    for shard in shards:
        operator = PdfEnqueueOperator(
            task_id="enqueue",
            shard_uri=shard,
            queue_url=queue,
            run_id="manual__2026-03-01T00:00:00+00:00",
            batches_in_flight=IN_FLIGHT,
            aws_conn_id=None,
        )
        sent += operator.execute({})
    return sent


def _bodies(shards: list[str]) -> list[list[str]]:
    """The same messages, ready to be sent."""
    import boto3

    from pdf_ops.contract.layout import S3Uri
    from pdf_ops.contract.listing import read_lines
    from pdf_ops.operators.enqueue import BATCH_MESSAGES, batches, messages_of

    s3, found = boto3.client("s3"), []
    for shard in shards:
        uri = S3Uri.parse(shard)
        lines = gzip.decompress(s3.get_object(Bucket=uri.bucket, Key=uri.key)["Body"].read()).splitlines()
        name = uri.key.rpartition("/")[2].partition(".")[0]
        messages = messages_of(read_lines(lines), run_id="manual__2026-03-01T00:00:00+00:00", shard=name)
        found += [[message.to_json() for message in batch] for batch in batches(messages, BATCH_MESSAGES)]
    return found


def _enqueue_bare(queue: str, bodies: list[list[str]], sending: list[float]) -> int:
    import boto3.session
    from botocore.config import Config

    # A session of its own: the default one has been warmed by reading the bodies.
    sqs = boto3.session.Session().client("sqs", config=Config(max_pool_connections=IN_FLIGHT))

    def send(batch: list[str]) -> int:
        entries = [{"Id": str(number), "MessageBody": body} for number, body in enumerate(batch)]
        return len(sqs.send_message_batch(QueueUrl=queue, Entries=entries)["Successful"])

    began = time.perf_counter()
    with ThreadPoolExecutor(IN_FLIGHT) as pool:
        sent = sum(pool.map(send, bodies))
    sending.append(time.perf_counter() - began)
    return sent


# --- listing ---------------------------------------------------------------------------------


def listing(documents: int, workers: int, rounds: int) -> Iterator[Part]:
    """The list task against an S3 that can list a million keys."""
    del documents, workers, rounds
    usages: dict[int, measure.Usage] = {}
    for keys in (100_000, 1_000_000):
        say(f"listing {keys:,} keys")
        with stub_aws(keys) as endpoint:
            environment = {
                "AWS_ENDPOINT_URL": endpoint,
                "AWS_ACCESS_KEY_ID": "test",
                "AWS_SECRET_ACCESS_KEY": "test",
                "AWS_DEFAULT_REGION": "us-east-1",
                "AWS_EC2_METADATA_DISABLED": "true",
                "NO_PROXY": "127.0.0.1",
            }
            command = [sys.executable, "-m", "benchmarks.pipeline", "--one", "list"]
            usages[keys] = measure.run(command, env=environment)
        listed = json.loads((WORK / "one.json").read_text())["documents"]
        if listed != keys:
            raise BenchmarkError(f"{listed} of {keys} keys were listed")
    part = Part("Listing")
    for keys, usage in usages.items():
        part.add(f"{keys:,} keys, wall", round(usage.wall_s, 1), "s")
        part.add(f"{keys:,} keys, CPU", round(usage.cpu_s, 1), "s")
        part.add(f"{keys:,} keys, peak memory", round(usage.peak_rss_bytes / 1e6), "MB", TASK_LIMIT_MB)
    few, many = (usage.peak_rss_bytes for usage in usages.values())
    part.add("peak memory, ten times the keys", round(many / few, 3), "times", LISTING_LIMIT)
    part.details = {str(keys): vars_of(usage) for keys, usage in usages.items()}
    yield part


@contextmanager
def stub_aws(keys: int) -> Iterator[str]:
    """The address of a stub, in a process of its own so that only we are measured."""
    command = [sys.executable, "-m", "benchmarks.stub_aws", "--keys", str(keys)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            if process.stdout is None:
                raise BenchmarkError("the stub says nothing")
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def _list_stub() -> int:
    from pdf_ops.operators.listing import PdfListOperator

    now = datetime.now(UTC)
    run = SimpleNamespace(run_type="manual", run_after=now, data_interval_start=None, data_interval_end=None)
    pushed: dict[str, Any] = {}
    context: Any = {
        "ti": SimpleNamespace(xcom_push=lambda key, value: pushed.update({key: value})),
        "dag_run": run,
    }
    PdfListOperator(
        task_id="list",
        bucket="bench-input",
        prefix=PREFIX,
        output_bucket="bench-output",
        state_table="state",
        runs_table="runs",
        run_id="manual__2026-03-01T00:00:00+00:00",
        aws_conn_id=None,
    ).execute(context)
    return int(pushed["summary"]["documents"])


# --- merge -----------------------------------------------------------------------------------


def merging(documents: int, workers: int, rounds: int, *, python: Path) -> Iterator[Part]:
    """A million manifest lines against DuckDB; see ``benchmarks.merge``."""
    del documents, workers
    found = subprocess.run([str(python), "-c", "import duckdb"], capture_output=True, check=False)
    if found.returncode:
        say(f"merge: left out, since {python} has no duckdb")
        return
    usages: dict[str, dict[str, float]] = {}
    for lines in (merge.LINES // 10, merge.LINES):
        compared = merge.compare(
            lines=lines, part_lines=merge.PART_LINES, rounds=rounds, duckdb_python=python
        )
        for name, found_usages in compared.items():
            usages[f"{name}, {lines:,} lines"] = {
                figure: median(getattr(usage, figure) for usage in found_usages)
                for figure in ("wall_s", "cpu_s", "peak_rss_bytes")
            }
    part = Part(f"Merging {merge.LINES:,} manifest lines")
    few, many = (usages[f"ours, {lines:,} lines"] for lines in (merge.LINES // 10, merge.LINES))
    duckdb = usages[f"duckdb, {merge.LINES:,} lines"]
    part.add("ours, wall", round(many["wall_s"], 2), "s")
    part.add("DuckDB, wall", round(duckdb["wall_s"], 2), "s")
    part.add("ours ÷ DuckDB, wall", round(many["wall_s"] / duckdb["wall_s"], 3), "times", MERGE_LIMIT)
    part.add("ours ÷ DuckDB, CPU", round(many["cpu_s"] / duckdb["cpu_s"], 3), "times")
    part.add("ours, peak memory", round(many["peak_rss_bytes"] / 1e6), "MB", TASK_LIMIT_MB)
    part.add("DuckDB, peak memory", round(duckdb["peak_rss_bytes"] / 1e6), "MB")
    part.add(
        "peak memory, ten times the lines", round(many["peak_rss_bytes"] / few["peak_rss_bytes"], 3), "times"
    )
    part.details = dict(usages)
    yield part


# --- the command -----------------------------------------------------------------------------


def vars_of(usage: measure.Usage) -> dict[str, float]:
    return {"wall_s": usage.wall_s, "cpu_s": usage.cpu_s, "peak_rss_bytes": usage.peak_rss_bytes}


def say(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


def run_one(name: str, arguments: list[str]) -> int:
    """One contender, here and now, for a process of its own."""
    work: Callable[[], int]
    sending: list[float] = []
    if name == "list":
        work = _list_stub
    elif name in BARE_OPERATORS:
        work = lambda: _run_operator(name, arguments[0])  # noqa: E731
    elif name == "enqueue-ours":
        # Imports are not what is measured: those of the bare calls are over by then, too.
        import airflow.providers.amazon.aws.hooks.base_aws  # noqa: F401

        import pdf_ops.operators.enqueue  # noqa: F401

        work = lambda: _enqueue_ours(arguments[0], arguments[1:], sending)  # noqa: E731
    else:
        bodies = _bodies(arguments[1:])
        work = lambda: _enqueue_bare(arguments[0], bodies, sending)  # noqa: E731
    wall, cpu = time.perf_counter(), time.process_time()
    done = work()
    figures = {
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
        "sending_s": sum(sending),
    }
    (WORK / "one.json").write_text(json.dumps(figures | {"sent": done, "documents": done}))
    return 0


def main() -> int:
    """Measure, print the tables, write everything as JSON, and fail if a limit is not kept."""
    parts: dict[str, Callable[..., Iterator[Part]]] = {
        "run": whole_run,
        "enqueue": enqueue,
        "listing": listing,
        "merge": merging,
    }
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline", description=__doc__)
    parser.add_argument("--documents", type=int, default=20_000, help="of the run, and messages to enqueue")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3, help="of what is compared (default: 3)")
    parser.add_argument("--only", nargs="+", choices=parts, default=list(parts), metavar="PART")
    parser.add_argument("--duckdb-python", type=Path, default=Path(".venv-bench/bin/python"))
    parser.add_argument("--json", type=Path, default=Path(".build/bench/pipeline.json"))
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    if options.one:
        return run_one(options.one[0], options.one[1:])
    done: list[Part] = []
    for name in options.only:
        more = {"python": options.duckdb_python} if name == "merge" else {}
        for part in parts[name](options.documents, options.workers, options.rounds, **more):
            done.append(part)
            print(part.table(), end="\n\n", flush=True)
    machine = {"cpus": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()}
    options.json.write_text(
        json.dumps({"machine": machine, "parts": [part.as_json() for part in done]}, indent=1, default=str)
    )
    broken = [f"{part.title}: {line.name}" for part in done for line in part.lines if not line.is_met]
    for name in broken:
        print(f"over its limit: {name}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
