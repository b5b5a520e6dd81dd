from __future__ import annotations

import pickle

import pytest
from airflow.sdk import DAG, BaseOperator, TriggerRule
from tests.support.runs import FakeTaskInstance

from pdf_ops.operators.gate import GateOperator, RunFailedError, failed_tasks, upstream_of


def pipeline(**gate) -> GateOperator:
    with DAG("pdf_ocr", schedule=None):
        first = BaseOperator(task_id="list")
        fleet = BaseOperator(task_id="fleet_2")
        stop = BaseOperator(task_id="stop_fleet").as_teardown(setups=None)
        report = BaseOperator(task_id="report")
        last = GateOperator(task_id="gate", **gate)
        first >> fleet >> [stop, report] >> last
        BaseOperator(task_id="elsewhere")
    return last


def execute(gate: GateOperator, states: dict[str, str]) -> FakeTaskInstance:
    ti = FakeTaskInstance("run-1", states)
    gate.execute({"ti": ti})
    return ti


GOOD = {"list": "success", "fleet_2_0": "success", "report": "success", "gate": "running"}


def test_a_run_whose_tasks_all_succeeded_passes():
    execute(pipeline(), GOOD | {"skipped_branch": "skipped"})


def test_a_failed_task_fails_the_run_and_is_named():
    with pytest.raises(RunFailedError, match="task list failed"):
        execute(pipeline(), GOOD | {"list": "failed"})


def test_what_the_failed_wait_said_is_among_the_reasons():
    gate = pipeline(report={"failure": "no document was finished for 9 s"})

    with pytest.raises(RunFailedError, match="task list failed; no document was finished for 9 s"):
        execute(gate, GOOD | {"list": "failed"})


def test_mapped_instances_are_counted_though_their_names_end_in_a_number():
    states = GOOD | {"fleet_2_0": "failed", "fleet_2_1": "success", "fleet_2_2": "failed"}

    with pytest.raises(RunFailedError, match=r"task fleet_2 \(2 of 3\) failed"):
        execute(pipeline(), states)


def test_a_failed_teardown_or_a_task_that_is_not_upstream_does_not_fail_the_run():
    execute(pipeline(), GOOD | {"stop_fleet": "failed", "elsewhere": "failed"})


def test_a_task_that_the_run_does_not_depend_on_may_fail():
    gate = pipeline()
    gate.optional = frozenset({"list"})

    execute(gate, GOOD | {"list": "failed"})


def test_the_cause_is_named_and_not_the_tasks_that_it_kept_from_starting():
    states = GOOD | {"list": "failed", "fleet_2": "upstream_failed", "report": "success"}
    ti = FakeTaskInstance("run-1", states)
    gate = pipeline()

    assert failed_tasks({"ti": ti}, upstream_of(gate)) == ["list"]


def test_a_task_that_could_not_start_fails_the_run_even_if_no_cause_is_upstream():
    with pytest.raises(RunFailedError, match="task report failed"):
        execute(pipeline(), GOOD | {"report": "upstream_failed"})


def test_a_run_that_was_ended_by_hand_fails_even_if_no_task_did():
    # Airflow skips what had not started, the report too, which nothing else skips.
    with pytest.raises(RunFailedError, match="ended by hand, before report"):
        execute(pipeline(), GOOD | {"fleet_2_0": "skipped", "report": "skipped", "stop_fleet": "skipped"})


def test_more_failures_than_the_threshold_fail_the_run():
    report = {
        "outcomes": {"ok": 80, "failed": 20},
        "failure_threshold": 0.1,
        "worst_errors": [{"label": "CORRUPT/truncated", "documents": 12}],
    }

    with pytest.raises(RunFailedError, match=r"20 of 100 documents failed \(20.0%\).*12 CORRUPT/truncated"):
        execute(pipeline(report=report), GOOD)
    execute(pipeline(report=report, failure_threshold="0.25"), GOOD)
    execute(pipeline(report=report | {"failure_threshold": 0.2}), GOOD)


def test_every_reason_is_given_and_kept_for_others():
    gate = pipeline(report={"outcomes": {"ok": 1, "failed": 1}}, failure_threshold=0)
    ti = FakeTaskInstance("run-1", GOOD | {"list": "failed"})

    with pytest.raises(RunFailedError) as caught:
        gate.execute({"ti": ti})

    assert len(caught.value.reasons) == 2
    assert ti.pushed == {"reasons": caught.value.reasons}
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_the_gate_runs_whatever_happened_before_it():
    assert pipeline().trigger_rule == TriggerRule.ALL_DONE
