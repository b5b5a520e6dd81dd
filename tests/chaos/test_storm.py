"""A small storm with a fixed seed; `make chaos` has larger ones."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.chaos.fleet import REPOSITORY
from tests.chaos.plan import Action, StepFault, WorkerPlan
from tests.chaos.storm import Storm

from ocr_worker import cli, faults
from ocr_worker.faults import Step

if TYPE_CHECKING:
    from pathlib import Path

    from local_aws import LocalAws


@pytest.mark.timeout(300)
def test_a_storm_over_the_whole_fleet_loses_nothing_and_doubles_nothing(
    local_aws: LocalAws, tmp_path: Path
) -> None:
    storm = Storm(local_aws, seed=11, documents=40, folder=tmp_path / "storm", step_faults=4)

    verdict = storm.run()

    assert verdict.problems == [], f"\n{storm.timeline}"
    assert verdict.equation.startswith("40 listed = ")


# `make chaos` after storms of which the second has lost something; what finds that out is in test_mutations.
LOST = """
import sys
from tests.chaos.__main__ import main
from tests.chaos.storm import Storm
from tests.chaos.verdict import Verdict
Storm.run = lambda self: Verdict(problems=["without an outcome: a.pdf"] if self.seed == 8 else [])
sys.argv[1:] = ["--seed", "7", "--seeds", "3"]
sys.exit(main())
"""


def test_storms_of_which_one_lost_something_end_with_an_error_that_names_it(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", LOST],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 1, ran.stderr
    assert "✓ seed 7" in ran.stdout
    assert "✗ without an outcome: a.pdf" in ran.stdout
    assert "1 of 3 storms lost or doubled something: [8]" in ran.stdout


def test_no_flag_or_variable_puts_a_fault_into_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the command line hands to the service is nothing, whatever is in the environment."""
    plan = WorkerPlan(faults=(StepFault(action=Action.KILL, step=Step.RECEIVE),))
    monkeypatch.setenv("CHAOS_PLAN", plan.to_json())
    handed: list[object] = []

    async def serve(settings: object, *, is_forever: bool, faults: object = faults.NO_FAULTS) -> None:
        del settings, is_forever
        handed.append(faults)

    monkeypatch.setattr("ocr_worker.service.serve", serve)
    required = {
        "INPUT_S3_BUCKET": "in-bucket",
        "SQS_QUEUE_URL": "http://127.0.0.1:1/queue",
        "OUTPUT_S3_BUCKET": "out-bucket",
        "MANIFEST_S3_BUCKET": "out-bucket",
        "DYNAMO_TABLE_NAME": "state",
        "DYNAMO_RUNS_TABLE_NAME": "runs",
        "OCR_MODE": "off",
    }
    for name, value in required.items():
        monkeypatch.setenv(name, value)

    assert cli.main(["run"]) == 0
    assert handed == [faults.NO_FAULTS]


def test_a_plan_travels_to_its_worker_unchanged() -> None:
    plan = WorkerPlan(
        faults=(StepFault(action=Action.FREEZE, step=Step.WRITE, nth=3, about="a.pdf"),), skew_s=-3600.0
    )

    assert WorkerPlan.from_json(plan.to_json()) == plan
