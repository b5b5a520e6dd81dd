"""The real DAG, run by ``airflow dags test`` against the local AWS with real workers, in good times and bad.

A run costs Airflow's start and a dozen tasks, so one run serves many tests, and two runs that do not share a
world go on at a time: they sleep a good deal.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.pipeline import Install, Pipeline
from tests.support.slack import SlackEndpoint

from samples.documents import PARAGRAPH, encrypted_pdf, huge_page_pdf, text_pdf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future
    from pathlib import Path

    from tests.support.pipeline import Run

    from local_aws import LocalAws

# A test may be the one that waits for all runs before its own, and for the other Airflow's installation.
pytestmark = [pytest.mark.timeout(900), pytest.mark.xdist_group("pipeline")]

RUNS_AT_A_TIME = 2
SPOT_ATTEMPTS = 4
ODD_KEY = "in/Ünïcode & spaces + plus=100%.pdf"
READ = {"in/a.pdf": "done", ODD_KEY: "done", "in/half.pdf": "partial"}
FAILED = {"in/locked.pdf": "ENCRYPTED/password_required", "in/page.pdf": "CORRUPT/not_a_pdf"}
AWS_SECRET = "do-not-tell-4b1d"
SLACK_TOKEN = "T0/B0/"
NOT_A_PDF = b"<html>503 Service Unavailable</html>"
ALL_TASKS = {
    "list",
    "enqueue",
    "plan_fleet",
    "fleet_is_due",
    "fleet",
    "wait",
    "stop_fleet",
    "plan_merge",
    "merge",
    "publish",
    "reconcile",
    "index",
    "report",
    "gate",
}
WITHOUT_WORK = {"list", "report", "gate"}


# Runs --------------------------------------------------------------------------------------------


@dataclass
class Stage:
    """What runs are made of."""

    aws: LocalAws
    slack: SlackEndpoint
    ours: Install
    other: Install
    samples: Path

    def pipeline(self, install: Install | None = None, **settings: str) -> Pipeline:
        return Pipeline(self.aws, install or self.ours, self.slack, **settings)

    def sample(self, name: str) -> bytes:
        return (self.samples / name).read_bytes()


def first_and_later_runs(stage: Stage) -> dict[str, Run]:
    """One world, run after run: everything new, nothing new, a dry run, and two read again."""
    world = stage.pipeline(AWS_SECRET_ACCESS_KEY=AWS_SECRET)
    world.put("in/a.pdf", stage.sample("text.pdf"))
    world.put(ODD_KEY, stage.sample("text.pdf"))
    world.put("in/half.pdf", stage.sample("half.pdf"))
    world.put("in/locked.pdf", stage.sample("locked.pdf"))
    world.put("in/page.pdf", NOT_A_PDF)
    world.put("elsewhere/b.pdf", stage.sample("text.pdf"))
    runs = {"first": world.run(prefix="in/"), "again": world.run(prefix="in/")}
    world.put("in/new.pdf", stage.sample("text.pdf"))
    runs["dry"] = world.run(prefix="in/", dry_run=True)
    runs["forced"] = world.run(prefix="in/", force=True, limit=2)
    return runs


def run_without_spot(stage: Stage) -> Run:
    world = stage.pipeline(CAPACITY="spot")
    world.put("a.pdf", stage.sample("text.pdf"))
    # All other runs here are on demand, so that these failures are this one's.
    stage.aws.fail_capacity("FARGATE_SPOT", SPOT_ATTEMPTS)
    return world.run()


def run_with_idle_workers(stage: Stage) -> Run:
    world = stage.pipeline(STALL_TIMEOUT_S="2")
    world.put("a.pdf", stage.sample("text.pdf"))
    world.define_worker(image="shell", command=("true",))
    return world.run()


def run_over_threshold(stage: Stage) -> Run:
    world = stage.pipeline()
    world.put("good.pdf", stage.sample("text.pdf"))
    world.put("bad.pdf", NOT_A_PDF)
    return world.run(failure_threshold=0.1)


def run_without_logical_date(stage: Stage) -> Run:
    world = stage.pipeline()
    for name in ("a.pdf", "b.pdf", "c.pdf"):
        world.put(name, stage.sample("text.pdf"))
    return world.run(has_logical_date=False, limit=2)


def good_run_on_the_other_airflow(stage: Stage) -> Run:
    world = stage.pipeline(stage.other)
    world.put("a.pdf", stage.sample("text.pdf"))
    world.put("bad.pdf", NOT_A_PDF)
    return world.run()


def failing_run_on_the_other_airflow(stage: Stage) -> Run:
    world = stage.pipeline(stage.other, FAILURE_MINIMUM="1")
    world.put("bad.pdf", NOT_A_PDF)
    return world.run(failure_threshold=0)


SCENARIOS: dict[str, Callable[[Stage], Any]] = {
    "history": first_and_later_runs,
    "spotless_run": run_without_spot,
    "stalled_run": run_with_idle_workers,
    "breaching_run": run_over_threshold,
    "dateless_run": run_without_logical_date,
    "other_good_run": good_run_on_the_other_airflow,
    "other_failing_run": failing_run_on_the_other_airflow,
}


@pytest.fixture(scope="module")
def started(
    request: pytest.FixtureRequest, local_aws: LocalAws, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Any]]]:
    """The runs that the chosen tests ask for, begun ahead of them."""
    folder = tmp_path_factory.mktemp("pipeline")
    text_pdf(folder / "text.pdf")
    huge_page_pdf(folder / "half.pdf")
    encrypted_pdf(folder / "locked.pdf", "secret")
    asked = {name for item in request.session.items for name in getattr(item, "fixturenames", ())}
    with SlackEndpoint() as slack, ThreadPoolExecutor(RUNS_AT_A_TIME) as pool:
        stage = Stage(local_aws, slack, Install.ours(folder), Install.other(folder), folder)
        yield {name: pool.submit(scenario, stage) for name, scenario in SCENARIOS.items() if name in asked}
        pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="module")
def history(started: dict[str, Future[Any]]) -> dict[str, Run]:
    return started["history"].result()


@pytest.fixture
def first_run(history: dict[str, Run]) -> Run:
    return history["first"]


@pytest.fixture(scope="module")
def spotless_run(started: dict[str, Future[Any]]) -> Run:
    return started["spotless_run"].result()


@pytest.fixture(scope="module")
def stalled_run(started: dict[str, Future[Any]]) -> Run:
    return started["stalled_run"].result()


@pytest.fixture(scope="module")
def breaching_run(started: dict[str, Future[Any]]) -> Run:
    return started["breaching_run"].result()


@pytest.fixture(scope="module")
def dateless_run(started: dict[str, Future[Any]]) -> Run:
    return started["dateless_run"].result()


@pytest.fixture(scope="module")
def other_good_run(started: dict[str, Future[Any]]) -> Run:
    return started["other_good_run"].result()


@pytest.fixture(scope="module")
def other_failing_run(started: dict[str, Future[Any]]) -> Run:
    return started["other_failing_run"].result()


def assert_succeeded(run: Run) -> None:
    assert run.exit_code == 0, run.output[-10_000:]
    assert run.row["state"] == "success"


def assert_failed(run: Run) -> None:
    assert run.exit_code == 1, run.output[-10_000:]
    assert run.row["state"] == "failed"


def tasks_in(run: Run, state: str) -> set[str]:
    return {task_id for task_id, found in run.tasks.items() if found == state}


def assert_nothing_was_sent(run: Run) -> None:
    assert tasks_in(run, "success") == WITHOUT_WORK
    assert tasks_in(run, "skipped") == ALL_TASKS - WITHOUT_WORK
    assert run.world.outcomes(run.run_id) == {}
    assert run.documents == {}
    assert run.asset_events == []


# A run with documents that cannot be read --------------------------------------------------------


def test_a_run_with_a_few_bad_documents_succeeds_and_says_what_became_of_each(first_run):
    assert_succeeded(first_run)
    assert first_run.tasks == dict.fromkeys(ALL_TASKS, "success")
    documents = first_run.documents
    outcomes = {key: row["status"] for key, row in documents.items()}
    assert outcomes == READ | dict.fromkeys(FAILED, "failed")
    assert first_run.world.outcomes(first_run.run_id) == outcomes
    assert {
        key: f"{row['error_class']}/{row['error_code']}"
        for key, row in documents.items()
        if row["status"] == "failed"
    } == FAILED
    assert documents["in/half.pdf"]["page_count"] == 2


def test_what_cannot_be_read_is_in_the_dead_letter_queue_and_nothing_stays_in_the_other(first_run):
    letters = [letter for letter in first_run.world.dead_letters() if letter["run_id"] == first_run.run_id]

    assert {
        letter["s3_key"]: f"{letter['error_class']}/{letter['error_code']}" for letter in letters
    } == FAILED
    assert len(letters) == len(FAILED)
    assert {json.loads(letter["body"])["s3_key"] for letter in letters} == set(FAILED)
    assert first_run.world.messages_left() == 0
    state = first_run.world.state("in/locked.pdf")
    assert state is not None
    assert (state.status.value, state.error_class) == ("failed", "ENCRYPTED")


def test_the_dataset_has_a_row_for_every_page_also_for_one_that_failed(first_run):
    assert first_run.pages == sorted(
        [("in/a.pdf", 1, "ok"), (ODD_KEY, 1, "ok"), ("in/half.pdf", 1, "ok"), ("in/half.pdf", 2, "error")]
    )


def test_every_listed_document_is_accounted_for(first_run):
    found = first_run.reconciliation

    assert found["is_reconciled"]
    assert found["equation"] == "5 listed = 2 ok + 1 partial + 2 failed + 0 skipped + 0 duplicate"
    assert (found["page_rows"], found["pages_expected"], found["missing"]) == (4, 4, 0)


def test_those_who_follow_the_dataset_are_told_the_counts(first_run):
    [event] = first_run.asset_events

    counted = {name: event[name] for name in ("run_id", "ok", "partial", "failed", "page_rows")}
    assert counted == {"run_id": first_run.run_id, "ok": 2, "partial": 1, "failed": 2, "page_rows": 4}


def test_the_report_has_outcomes_errors_dead_letters_and_cost_in_both_files(first_run):
    report = first_run.report

    assert (report["state"], report["sent"], report["failed_tasks"]) == ("complete", 5, [])
    assert report["outcomes"] == {"ok": 2, "partial": 1, "failed": 2, "skipped": 0}
    assert {item["label"] for item in report["errors"]} == {*FAILED.values(), "BOMB/pixels"}
    assert report["dead_letters"]["of_this_run"] == len(FAILED)
    assert report["cost"]["total"] > 0
    for text in (report["headline"], "in/locked.pdf", "ENCRYPTED/password_required"):
        assert text in first_run.report_page


def test_a_good_run_is_summed_up_in_slack_once(first_run):
    [message] = first_run.slack_messages

    assert message.startswith(f"Done: pdf_ocr, run {first_run.run_id}")
    for text in ("2 ok, 1 partial, 2 failed", "4 page rows", "`CORRUPT/not_a_pdf` 1", "|Report>", "|Logs>"):
        assert text in message


# Later runs --------------------------------------------------------------------------------------


def test_no_document_text_and_no_secret_reaches_airflows_log_database_slack_or_report(first_run, local_aws):
    """XCom, rendered arguments and connections are all in the database."""
    said = {
        "log": first_run.output,
        "task logs": "".join(path.read_text() for path in first_run.home.rglob("*.log")),
        "database": (first_run.home / "airflow.db").read_bytes().decode("latin-1"),
        "slack": "".join(first_run.slack_messages),
        "report": json.dumps(first_run.report) + first_run.report_page,
        "reconciliation": json.dumps(first_run.reconciliation),
        "workers": "".join(path.read_text() for path in (local_aws.data / "tasks").glob("*.log")),
    }

    for place, words in said.items():
        assert words, place
        for canary in (PARAGRAPH[3][:30], "503 Service", AWS_SECRET, SLACK_TOKEN):
            assert canary not in words, place


def test_a_run_without_new_documents_starts_no_worker_and_says_so(history):
    run = history["again"]

    assert_succeeded(run)
    assert_nothing_was_sent(run)
    assert "nothing to do: every object is read or left out" in run.output
    assert run.report["headline"].startswith("Nothing to read: 5 objects were listed")
    assert (run.report["listed"]["unchanged"], run.report["listed"]["excluded"]) == (3, 2)
    [message] = run.slack_messages
    assert "Nothing to read" in message


def test_a_dry_run_sends_nothing_and_says_what_would_be_sent(history):
    run = history["dry"]

    assert_succeeded(run)
    assert_nothing_was_sent(run)
    assert "dry run: 1 documents" in run.output
    assert run.report["listed"]["new"] == 1
    assert run.report["headline"] == "Dry run: 1 documents would be read; nothing was sent."
    assert run.world.state("in/new.pdf") is None


def test_force_reads_again_what_was_read_and_the_limit_holds(history):
    first, run = history["first"], history["forced"]

    assert_succeeded(run)
    assert len(run.documents) == 2
    assert set(run.documents) < {*READ, *FAILED}, "the first two by key, both known from before"
    assert (run.report["listed"]["forced"], run.report["listed"]["excluded"]) == (2, 4)
    assert "excluded: 4, over the limit of 2" in run.output
    assert run.reconciliation["is_reconciled"]
    for key, row in run.documents.items():
        before = first.documents[key]
        assert (row["status"], row["run_id"]) == (before["status"], run.run_id), key
        assert row["output_uri"] == before["output_uri"], "the same bytes and settings give the same object"


# Trouble -----------------------------------------------------------------------------------------


def test_without_spot_capacity_the_workers_run_on_demand(spotless_run):
    assert_succeeded(spotless_run)
    assert "there is no capacity on spot" in spotless_run.output
    [container] = spotless_run.report["fleet"]["tasks"]
    assert container["capacity"] == "FARGATE"
    assert {key: row["status"] for key, row in spotless_run.documents.items()} == {"a.pdf": "done"}


def test_a_run_whose_workers_do_nothing_fails_and_says_why_everywhere(stalled_run):
    assert_failed(stalled_run)
    assert tasks_in(stalled_run, "failed") == {"wait", "reconcile", "gate"}
    why = "o document was finished for"
    assert f"RunStalledError: n{why}" in stalled_run.output
    assert "RunFailedError: the run failed: task reconcile failed; task wait failed; no document" in (
        stalled_run.output
    )
    assert why in stalled_run.report["headline"]
    assert stalled_run.report["failed_tasks"] == ["reconcile", "wait"]
    assert why in stalled_run.report_page
    [message] = stalled_run.slack_messages
    assert message.startswith(f"Failed: pdf_ocr, run {stalled_run.run_id}")
    assert why in message


def test_a_stalled_run_names_the_documents_without_an_outcome_and_publishes_no_event(stalled_run):
    assert stalled_run.reconciliation["missing"] == 1
    assert not stalled_run.reconciliation["is_reconciled"]
    assert stalled_run.reconciliation["samples"][0]["source_uri"].endswith("/a.pdf")
    assert stalled_run.asset_events == []


def test_no_worker_is_left_when_a_run_has_ended(first_run, stalled_run, local_aws):
    ecs = local_aws.client("ecs")

    for run in (first_run, stalled_run):
        family = f"{run.world.input}-worker"
        assert ecs.list_tasks(cluster=local_aws.resources.cluster.name, family=family)["taskArns"] == []


def test_a_run_with_too_many_failures_fails_at_the_gate_which_says_why(breaching_run):
    assert_failed(breaching_run)
    assert tasks_in(breaching_run, "failed") == {"gate"}
    assert (
        "the run failed: 1 of 2 documents failed (50.0%), and the threshold is 10.0%: 1 CORRUPT/not_a_pdf"
        in breaching_run.output
    )
    assert breaching_run.report["state"] == "over_threshold"


def test_what_a_failed_run_has_read_is_published_all_the_same(breaching_run):
    assert breaching_run.pages == [("good.pdf", 1, "ok")]
    assert breaching_run.reconciliation["is_reconciled"]


def test_a_failed_run_is_told_in_slack_once_with_reason_task_worst_errors_and_links(breaching_run):
    [message] = breaching_run.slack_messages

    assert message.startswith(f"Failed: pdf_ocr, run {breaching_run.run_id}")
    for text in (
        "*Reason:* 1 of 2 documents failed, more than the run allows.",
        "*Failed:* gate",
        "*Worst errors:* `CORRUPT/not_a_pdf` 1",
        "*Dead-letter queue:* 1 messages",
        "|Report>",
        "|Logs>",
    ):
        assert text in message


# Without a logical date --------------------------------------------------------------------------


def test_a_run_without_a_logical_date_reads_everything_until_its_start(dateless_run):
    assert_succeeded(dateless_run)
    assert dateless_run.row["logical_date"] is None
    assert dateless_run.row["data_interval_start"] is None
    assert dateless_run.tasks == dict.fromkeys(ALL_TASKS, "success")
    assert "changed from the beginning to" in dateless_run.output
    assert "(until the run was started)" in dateless_run.output


def test_the_limit_leaves_the_rest_to_the_next_run(dateless_run):
    assert sorted(dateless_run.documents) == ["a.pdf", "b.pdf"]
    assert (dateless_run.report["listed"]["new"], dateless_run.report["listed"]["excluded"]) == (2, 1)
    assert dateless_run.world.state("c.pdf") is None


# The other version of Airflow --------------------------------------------------------------------


def test_the_other_supported_airflow_runs_the_same_dag(other_good_run):
    assert_succeeded(other_good_run)
    assert other_good_run.tasks == dict.fromkeys(ALL_TASKS, "success")
    assert {key: row["status"] for key, row in other_good_run.documents.items()} == {
        "a.pdf": "done",
        "bad.pdf": "failed",
    }
    assert other_good_run.pages == [("a.pdf", 1, "ok")]
    assert other_good_run.reconciliation["is_reconciled"]
    assert other_good_run.asset_events[0]["page_rows"] == 1
    [message] = other_good_run.slack_messages
    assert "1 ok, 0 partial, 1 failed" in message


def test_the_other_supported_airflow_fails_a_run_that_fails(other_failing_run):
    assert_failed(other_failing_run)
    assert "FailureThresholdError: 1 of 1 documents failed" in other_failing_run.output
    assert tasks_in(other_failing_run, "failed") == {"wait", "gate"}
    assert other_failing_run.report["state"] == "over_threshold"
    [message] = other_failing_run.slack_messages
    assert message.startswith("Failed: pdf_ocr")
    assert "`CORRUPT/not_a_pdf` 1" in message
