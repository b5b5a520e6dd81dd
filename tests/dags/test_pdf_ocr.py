"""The DAG file: it parses anywhere, costs little, and is wired so that failures are seen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

PARSE = """
import json, sys, time

import airflow.sdk, airflow.providers.standard.operators.empty
import airflow.providers.amazon.aws.operators.ecs
import airflow.triggers.base

before = set(sys.modules)

def refuse(event, args):
    if event in ("socket.connect", "socket.getaddrinfo"):
        raise AssertionError(f"a DAG file must not use the network: {args}")

sys.addaudithook(refuse)
started = time.process_time()
import importlib.util
spec = importlib.util.spec_from_file_location("pdf_ocr", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
elapsed = time.process_time() - started

from airflow.serialization.serialized_objects import DagSerialization
dag = module.dag
DagSerialization.serialize_dag(dag)
tasks = {
    task.task_id: {
        "upstream": sorted(task.upstream_task_ids),
        "trigger_rule": task.trigger_rule.value,
        "is_teardown": task.is_teardown,
        "fails_run": task.on_failure_fail_dagrun,
        "type": task.task_type,
    }
    for task in dag.tasks
}
print(json.dumps({
    "elapsed": elapsed,
    "imported": sorted(set(sys.modules) - before),
    "tasks": tasks,
    "catchup": dag.catchup,
    "timetable": type(dag.timetable).__name__,
    "params": {name: dag.params.get_param(name).dump() for name in dag.params},
    "doc": dag.doc_md,
    "optional": {
        task.task_id: sorted(task.optional) for task in dag.tasks if getattr(task, "optional", None)
    },
}))
"""

LOAD_PLUGINS = """
import json, sys
names = ["types", "enum", "queue", "json", "operator", "errors", "window", "settings"]
before = {name: getattr(sys.modules.get(name), "__file__", None) for name in names}
import types, enum, queue, operator
from airflow import plugins_manager
try:
    plugins, errors = plugins_manager._get_plugins()
except (AttributeError, TypeError):
    plugins_manager.ensure_plugins_loaded()
    plugins, errors = plugins_manager.plugins, plugins_manager.import_errors
print(json.dumps({
    "plugins": [str(plugin.name) for plugin in plugins],
    "errors": {str(key): str(value) for key, value in (errors or {}).items()},
    "ours": [name for name in sys.modules if name == "pdf_ops" or name.startswith("pdf_ops.")],
    "stdlib": all(
        "plugins" not in (getattr(module, "__file__", None) or "")
        for module in (types, enum, queue, operator)
    ),
}))
"""


def run(script: str, *arguments: str, **variables: str):
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW__PDF_OPS")
    }
    environment |= {
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(REPOSITORY / "plugins"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(REPOSITORY / "dags"),
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
    }
    result = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        env=environment | variables,
        cwd=REPOSITORY,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def parsed():
    """The DAG file, parsed without any setting."""
    return run(PARSE, str(REPOSITORY / "dags" / "pdf_ocr.py"))


def test_it_parses_without_any_setting_and_without_the_network(parsed):
    assert "list" in parsed["tasks"]


def test_it_parses_with_settings_that_are_all_wrong():
    wrong = {f"AIRFLOW__PDF_OPS__{name}": "?? \\" for name in ("OUTPUT_S3_BUCKET", "SCHEDULE", "MAX_WORKERS")}

    assert run(PARSE, str(REPOSITORY / "dags" / "pdf_ocr.py"), **wrong)["tasks"]


def test_a_pipeline_without_a_schedule_runs_by_hand_only():
    found = run(PARSE, str(REPOSITORY / "dags" / "pdf_ocr.py"), AIRFLOW__PDF_OPS__SCHEDULE="none")

    assert found["timetable"] == "NullTimetable"


def test_parsing_imports_nothing_heavy_and_takes_less_than_half_a_second(parsed):
    heavy = ("pandas", "pyarrow", "numpy", "aiobotocore", "PIL", "pypdf", "ocr_worker")

    assert [name for name in parsed["imported"] if name.partition(".")[0] in heavy] == []
    assert parsed["elapsed"] < 0.5


def test_the_schedule_has_data_intervals_and_nothing_is_caught_up(parsed):
    assert parsed["timetable"] == "CronDataIntervalTimetable"
    assert parsed["catchup"] is False


def test_the_tasks_are_wired_as_the_design_says(parsed):
    upstream = {name: task["upstream"] for name, task in parsed["tasks"].items()}

    assert upstream == {
        "list": [],
        "enqueue": ["list"],
        "plan_fleet": ["list"],
        "fleet": ["enqueue", "plan_fleet"],
        "fleet_is_due": ["enqueue", "plan_fleet"],
        "wait": ["fleet_is_due"],
        "stop_fleet": ["plan_fleet", "wait"],
        "plan_merge": ["stop_fleet", "wait"],
        "merge": ["plan_merge"],
        "publish": ["merge"],
        "reconcile": ["list", "publish"],
        "index": ["publish"],
        "report": ["enqueue", "fleet", "index", "list", "reconcile"],
        "gate": ["report"],
    }


def test_the_fleet_is_stopped_however_the_run_ends(parsed):
    assert parsed["tasks"]["stop_fleet"]["is_teardown"]


def test_what_was_read_is_published_and_reported_also_when_the_wait_failed(parsed):
    # The planning's rule also skips it when the wait was skipped, so that a run without work ends early.
    assert parsed["tasks"]["plan_merge"]["trigger_rule"] == "all_done_min_one_success"
    assert parsed["tasks"]["report"]["trigger_rule"] == "all_done"


def test_a_search_index_that_fails_fails_no_run(parsed):
    assert parsed["optional"] == {"gate": ["index"], "report": ["index"]}


def test_without_search_there_is_no_such_task():
    found = run(PARSE, str(REPOSITORY / "dags" / "pdf_ocr.py"), AIRFLOW__PDF_OPS__SEARCH_INDEX="false")

    assert "index" not in found["tasks"]
    assert found["tasks"]["report"]["upstream"] == ["enqueue", "fleet", "list", "reconcile"]


def test_the_only_leaf_is_the_gate(parsed):
    upstream = {name for task in parsed["tasks"].values() for name in task["upstream"]}

    assert set(parsed["tasks"]) - upstream == {"gate"}


def test_the_gate_also_decides_when_a_person_ends_the_run(parsed):
    # Airflow skips all but teardowns then, and a run whose leaves are skipped has succeeded.
    assert parsed["tasks"]["gate"]["is_teardown"]
    assert parsed["tasks"]["gate"]["fails_run"]


def test_every_param_has_a_title_a_description_and_a_section(parsed):
    assert set(parsed["params"]) == {
        "prefix",
        "window_start",
        "window_end",
        "limit",
        "force",
        "ocr_mode",
        "languages",
        "workers",
        "capacity",
        "failure_threshold",
        "dry_run",
    }
    for name, param in parsed["params"].items():
        assert param["description"], name
        assert {"title", "section", "type"} <= set(param["schema"]), name


def test_the_form_can_be_sent_as_it_opens(parsed):
    # The UI takes an empty text for a missing value, and its button stays grey.
    for name, param in parsed["params"].items():
        assert param["value"] not in ("", None) or "null" in param["schema"]["type"], name


def test_the_dag_explains_each_of_its_tasks(parsed):
    for name in set(parsed["tasks"]) - {"fleet_is_due"}:
        assert f"`{name}`" in parsed["doc"]


def test_loading_the_plugins_harms_nothing_and_imports_nothing_of_ours():
    found = run(LOAD_PLUGINS)

    assert "pdf_ops" in found["plugins"]
    assert found["errors"] == {}
    assert found["ours"] == []
    assert found["stdlib"]
