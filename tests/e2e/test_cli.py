"""``pdf-ops`` as an operator uses it: real processes on the local AWS, after real runs of the DAG."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.api import AirflowDouble
from tests.support.pipeline import Install, Pipeline, Run
from tests.support.slack import SlackEndpoint

from local_airflow.environment import airflow_environment
from local_aws.resources import load_resources
from pdf_ops.dead_letters import count_letters
from pdf_ops.doctor import MIN_RECEIVES, MIN_RETENTION_S, MIN_VISIBILITY_S
from samples.documents import text_pdf

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from local_aws import LocalAws

pytestmark = [pytest.mark.timeout(900), pytest.mark.xdist_group("pipeline")]

TIMEOUT_S = 120


@dataclass(frozen=True)
class Answer:
    """What a command said, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Operator:
    """Somebody with a terminal, beside a world in which one run has ended."""

    aws: LocalAws
    world: Pipeline
    run: Run
    environment: Mapping[str, str]

    def __call__(self, *arguments: str, answer: str = "", **variables: str | None) -> Answer:
        changed = {name: value for name, value in variables.items() if value is not None}
        environment = {name: value for name, value in self.environment.items() if name not in variables}
        ran = subprocess.run(
            [sys.executable, "-m", "pdf_ops.cli", *arguments],
            env=environment | changed,
            input=answer,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        return Answer(ran.returncode, ran.stdout, ran.stderr)


def setting(name: str, value: str | None) -> dict[str, str | None]:
    return {f"AIRFLOW__PDF_OPS__{name}": value}


@pytest.fixture(scope="module")
def operator(local_aws: LocalAws, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    folder = tmp_path_factory.mktemp("cli")
    text = text_pdf(folder / "text.pdf", 2).read_bytes()
    with SlackEndpoint() as slack, Pipeline(local_aws, Install.ours(folder), slack) as world:
        for key in ("a/1.pdf", "a/2.pdf", "b/3.pdf"):
            world.put(key, text + key.encode())
        world.put("a/bad.pdf", b"<html>503</html>")
        world.put("b/empty.pdf", b"")
        run = world.run(failure_threshold=1.0)
        assert run.exit_code == 0, run.output[-5_000:]
        table = world.runs_table
        world.dynamodb.update_time_to_live(
            TableName=table, TimeToLiveSpecification={"Enabled": True, "AttributeName": "expires_at"}
        )
        world.sqs.set_queue_attributes(QueueUrl=world.queue, Attributes={"VisibilityTimeout": "300"})
        world.sqs.set_queue_attributes(QueueUrl=world.dlq, Attributes={"MessageRetentionPeriod": "1209600"})
        environment = airflow_environment(folder / "home", local_aws.environment(), **world.settings)
        yield Operator(local_aws, world, run, environment)


# What is there --------------------------------------------------------------------------------------


def test_help_is_there_at_once_and_loads_neither_airflow_nor_the_api():
    script = (
        "import sys\nfrom pdf_ops.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'airflow', 'fastapi', 'boto3', 'botocore', 'pyarrow', 'httpx'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )

    assert ran.stderr.strip() == "[]"
    for command in ("status", "failed", "redrive", "report", "cost", "doctor", "api", "api-key"):
        assert re.search(rf"^ +{command} +\S", ran.stdout, re.MULTILINE), ran.stdout


@pytest.mark.parametrize("command", ["status", "failed", "redrive", "report", "cost", "doctor", "api"])
def test_every_command_explains_itself(operator: Operator, command: str):
    answer = operator(command, "--help")

    assert answer.code == 0
    assert answer.out.startswith(f"usage: pdf-ops {command}")


def test_status_lists_runs_and_describes_one(operator: Operator):
    listed, one, as_json = (
        operator("status"),
        operator("status", operator.run.run_id),
        operator("status", "--json"),
    )

    assert (listed.code, one.code) == (0, 0)
    [row] = [line for line in listed.out.splitlines() if operator.run.run_id in line]
    assert re.search(r" 5 +100% +3 +0 +2 +0 ", row)
    assert "100%" in one.out
    assert re.search(r"^ +failed +2$", one.out, re.MULTILINE)
    assert "report.json" in one.out
    [entry] = [entry for entry in as_json.json if entry["run_id"] == operator.run.run_id]
    assert (entry["documents"], entry["is_finished"], entry["outcomes"]["failed"]) == (5, True, 2)


def test_status_watches_a_run_to_its_end(operator: Operator):
    operator.world.start_run("watched", 1)
    watching = subprocess.Popen(
        [sys.executable, "-m", "pdf_ops.cli", "status", "watched", "--watch", "--interval", "1"],
        env=dict(operator.environment),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert watching.stdout is not None
    first = watching.stdout.readline()
    operator.world.order("watched", "watched.pdf", b"no pdf")
    operator.world.work(OUTPUT_S3_PREFIX="data")
    rest, _ = watching.communicate(timeout=TIMEOUT_S)

    assert " 0% " in first
    assert "100%" in rest.splitlines()[-1]
    assert "1 failed" in rest.splitlines()[-1]
    assert watching.returncode == 0


def test_failed_names_documents_errors_and_what_to_do(operator: Operator):
    of_run = operator("failed", "--run", operator.run.run_id)
    of_class = operator("failed", "--class", "corrupt", "--limit", "1", "--json")

    assert of_run.code == 0
    assert re.search(r"a/bad\.pdf +CORRUPT/not_a_pdf", of_run.out)
    assert re.search(r"b/empty\.pdf +CORRUPT/empty_file", of_run.out)
    assert "Upload it again" in of_run.out
    assert len(of_class.json["documents"]) == 1
    assert of_class.json["is_complete"] is False
    assert (
        operator("failed", "--run", operator.run.run_id, "--class", "TIMEOUT").out == "No document failed.\n"
    )
    assert "CORRUPT" in operator("failed", "--class", "NONE").err


def test_report_and_cost_say_what_the_report_says(operator: Operator, tmp_path: Path):
    page = tmp_path / "report.html"
    report = operator("report", operator.run.run_id, "--html", str(page))
    cost = operator("cost", operator.run.run_id, "--json").json

    assert report.code == 0
    assert operator.run.report["headline"] in report.out
    assert "CORRUPT/not_a_pdf" in report.out
    assert page.read_text() == operator.run.report_page
    assert cost["is_final"]
    assert cost["total"] == operator.run.report["cost"]["total"]
    assert cost["waste"] == operator.run.report["cost"]["waste"]
    assert cost["per_million_pages"] == operator.run.report["cost"]["per_million_pages"]
    assert "a million pages" in operator("cost", operator.run.run_id).out


@pytest.mark.parametrize("command", ["status", "report", "cost", "failed --run"])
def test_a_run_that_is_not_there_is_told(operator: Operator, command: str):
    answer = operator(*command.split(), "no-such-run")

    assert answer.code == 1
    assert "there is no run 'no-such-run'" in answer.err


# Redrive --------------------------------------------------------------------------------------------


def test_redrive_counts_asks_and_starts_the_dag(operator: Operator):
    with AirflowDouble() as airflow:
        variables = {f"PDF_OPS_{name}": value for name, value in airflow.settings.items()}
        criteria = ("redrive", "--class", "CORRUPT", "--run", operator.run.run_id, "--prefix", "a/")

        counted = operator(*criteria, "--dry-run", "--json")
        refused = operator(*criteria, answer="n\n", **variables)
        nobody = operator(*criteria, answer="", **variables)
        assert airflow.runs == []
        asked = operator(*criteria, answer="y\n", **variables)
        [started] = airflow.runs
        told = operator(*criteria, "--yes", "--approval", "--json", **variables)

    assert (counted.code, counted.json["documents"]) == (0, 1)
    assert counted.json["by_error"] == {"CORRUPT/not_a_pdf": 1}
    assert (refused.code, nobody.code) == (1, 1)
    assert "Send 1 documents round again? [y/N]" in refused.err
    assert asked.code == 0, asked.err
    assert started["path"] == "/api/v2/dags/pdf_redrive/dagRuns"
    assert started["dag_run_id"] in asked.out
    assert started["conf"] == {
        "error_class": "CORRUPT",
        "run_id": operator.run.run_id,
        "prefix": "a/",
        "limit": 10_000,
        "dry_run": False,
        "approval": False,
    }
    assert told.json["run_id"] == airflow.runs[1]["dag_run_id"]
    assert airflow.runs[1]["conf"]["approval"] is True
    assert count_letters(operator.world.sqs, operator.world.dlq) >= 2  # Nothing was deleted here.


def test_redrive_without_airflow_says_what_to_set_and_one_that_airflow_refuses_says_so(operator: Operator):
    unset = operator("redrive", "--yes")
    with AirflowDouble() as airflow:
        variables = {f"PDF_OPS_{name}": value for name, value in airflow.settings.items()}
        refused = operator("redrive", "--yes", **(variables | {"PDF_OPS_AIRFLOW_PASSWORD": "wrong"}))
    gone = operator("redrive", "--yes", **variables)

    assert unset.code == 2
    for name in ("PDF_OPS_AIRFLOW_URL", "PDF_OPS_AIRFLOW_TOKEN", "PDF_OPS_AIRFLOW_USERNAME"):
        assert name in unset.err
    assert (refused.code, gone.code) == (1, 1)
    assert "did not let us in: 401" in refused.err
    assert "cannot be reached" in gone.err


# What is wrong --------------------------------------------------------------------------------------


def test_settings_that_are_missing_are_all_named(operator: Operator):
    missing = setting("SQS_QUEUE_URL", None) | setting("DYNAMO_TABLE_NAME", None)

    for command in ("status", "failed", "report", "cost"):
        answer = operator(command, **missing)
        assert answer.code == 2
        assert "AIRFLOW__PDF_OPS__SQS_QUEUE_URL is missing" in answer.err
        assert "AIRFLOW__PDF_OPS__DYNAMO_TABLE_NAME is missing" in answer.err
    found = operator("doctor", **missing)
    assert found.code == 1
    assert "AIRFLOW__PDF_OPS__SQS_QUEUE_URL is missing" in found.out


def test_a_table_or_an_aws_that_is_not_there_is_told_without_a_traceback(operator: Operator):
    table = operator("status", **setting("DYNAMO_RUNS_TABLE_NAME", "no-such-table"))
    aws = operator("status", AWS_ENDPOINT_URL="http://127.0.0.1:1", AWS_MAX_ATTEMPTS="1")

    assert (table.code, aws.code) == (2, 2)
    assert "does not exist" in table.err
    assert "cannot be reached" in aws.err
    assert "Traceback" not in table.err + aws.err


def verdicts(answer: Answer) -> dict[str, str]:
    return {finding["what"]: finding["verdict"] for finding in answer.json["findings"]}


def problems(answer: Answer) -> list[dict[str, str]]:
    return [finding for finding in answer.json["findings"] if finding["verdict"] == "problem"]


def test_the_doctor_finds_nothing_wrong_with_a_deployment_that_works(operator: Operator):
    with AirflowDouble() as airflow:
        variables = {f"PDF_OPS_{name}": value for name, value in airflow.settings.items()}
        found = operator("doctor", "--json", **variables, **setting("SLACK_CONN_ID", "slack_alerts"))
        slack = operator(
            "doctor",
            "--json",
            **setting("SLACK_CONN_ID", "slack_alerts"),
            AIRFLOW_CONN_SLACK_ALERTS='{"conn_type": "slackwebhook", "password": "T/B/X"}',
        )
    for_people = operator("doctor", **setting("SLACK_CONN_ID", ""))

    assert [one["what"] for one in problems(found)] == ["Slack connection slack_alerts"]
    assert verdicts(found)["DAG pdf_redrive"] == "ok"
    assert (slack.code, problems(slack)) == (0, [])
    assert for_people.code == 0, for_people.out
    assert "0 problems" in for_people.out


def test_the_doctor_names_each_fault_and_what_mends_it(operator: Operator, local_aws: LocalAws):
    sqs, dynamodb = operator.world.sqs, operator.world.dynamodb
    other = sqs.create_queue(
        QueueName=f"{operator.world.input}-plain",
        Attributes={"VisibilityTimeout": "30", "MessageRetentionPeriod": "1209600"},
    )["QueueUrl"]
    dynamodb.create_table(
        TableName=f"{operator.world.input}-old",
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "s3_key", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "s3_key", "AttributeType": "S"}],
    )

    found = operator(
        "doctor",
        "--json",
        **setting("SQS_QUEUE_URL", other),
        **setting("DYNAMO_TABLE_NAME", f"{operator.world.input}-old"),
        **setting("DYNAMO_RUNS_TABLE_NAME", operator.world.state_table),
        **setting("OUTPUT_S3_BUCKET", "no-such-bucket"),
        **setting("ECS_CLUSTER", "no-such-cluster"),
        **setting("ECS_TASK_DEFINITION", "no-such-task"),
        **setting("SLACK_CONN_ID", ""),
    )

    assert found.code == 1
    wrong = {one["what"].split()[0] for one in problems(found)}
    assert wrong == {
        *("redrive", "visibility", "retention"),
        *("output", "index", "runs", "cluster", "task"),
    }
    assert all(one["fix"] for one in problems(found))


def test_the_doctor_asks_no_less_of_queues_than_the_worker_and_accepts_our_own():
    from ocr_worker.options import settings_of
    from ocr_worker.settings import ServiceSettings

    queues = load_resources().queues
    unfinished = {one.name: one.default for one in settings_of(ServiceSettings)}["max_unfinished"]

    assert unfinished + 1 == MIN_RECEIVES
    assert queues["documents"].max_receive_count >= MIN_RECEIVES
    assert queues["documents"].visibility_timeout_s >= MIN_VISIBILITY_S
    assert queues["dead_letters"].retention_s > queues["documents"].retention_s >= MIN_RETENTION_S


def test_output_into_a_pipe_that_closes_is_no_error(operator: Operator):
    ran = subprocess.run(
        f"{sys.executable} -m pdf_ops.cli failed --json | head -1",
        shell=True,
        env=dict(operator.environment),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )

    assert ran.stdout == "{\n"
    assert "Traceback" not in ran.stderr
