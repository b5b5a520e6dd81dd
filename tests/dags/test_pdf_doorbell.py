"""The doorbell's DAG file: nothing unless it is configured, and one run at a time if it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.dags.test_pdf_ocr import PARSE, run

FILE = str(Path(__file__).resolve().parents[2] / "dags" / "pdf_doorbell.py")
QUEUES = {
    "AIRFLOW__PDF_OPS__SQS_QUEUE_URL": "https://sqs.eu-central-1.amazonaws.com/1/documents",
    "AIRFLOW__PDF_OPS__DLQ_SQS_QUEUE_URL": "https://sqs.eu-central-1.amazonaws.com/1/letters",
}
EVENTS = "AIRFLOW__PDF_OPS__EVENTS_SQS_QUEUE_URL"

# What the file defines, and the trigger as the triggerer makes it from the serialized DAG.
DEFINED = """
import importlib.util, json, sys, time
import airflow.sdk
before = set(sys.modules)
spec = importlib.util.spec_from_file_location("pdf_doorbell", sys.argv[1])
module = importlib.util.module_from_spec(spec)
started = time.process_time()
spec.loader.exec_module(module)
elapsed = time.process_time() - started
dag = getattr(module, "dag", None)
found = {"elapsed": elapsed, "imported": sorted(set(sys.modules) - before), "dag": dag and dag.dag_id}
if dag:
    from airflow.sdk.module_loading import import_string
    [asset] = dag.timetable.asset_condition.objects
    [watcher] = asset.watchers
    name, arguments = watcher.trigger.serialize()
    again = import_string(name)(**arguments)
    found |= {
        "max_active_runs": dag.max_active_runs,
        "trigger": arguments,
        "is_same": again.serialize() == (name, arguments),
        "name": name,
    }
print(json.dumps(found))
"""


def test_it_defines_nothing_and_costs_nothing_without_a_queue():
    found = run(DEFINED, FILE)

    assert found["dag"] is None
    assert not [
        name for name in found["imported"] if name.startswith(("pdf_ops.operators", "airflow.providers"))
    ]
    assert found["elapsed"] < 0.2


@pytest.mark.parametrize("queue", ["documents", "letters"])
def test_it_never_takes_from_the_queues_of_documents_and_dead_letters(queue: str):
    url = f"https://sqs.eu-central-1.amazonaws.com/1/{queue}"

    assert run(DEFINED, FILE, **QUEUES, **{EVENTS: url})["dag"] is None


def test_it_is_one_run_at_a_time_started_by_events():
    url = "https://sqs.eu-central-1.amazonaws.com/1/events"
    found = run(DEFINED, FILE, **QUEUES, **{EVENTS: url, "AIRFLOW__PDF_OPS__EVENTS_QUIET_S": "3"})
    parsed = run(PARSE, FILE, **QUEUES, **{EVENTS: url})

    assert (found["dag"], found["max_active_runs"]) == ("pdf_doorbell", 1)
    assert (found["trigger"]["queue_url"], found["trigger"]["quiet_s"]) == (url, 3.0)
    assert found["is_same"]
    # Not below dags/: the triggerer loads no DAG files.
    assert found["name"] == "pdf_ops.triggers.doorbell.NewDocumentsTrigger"
    assert list(parsed["tasks"]) == ["start"]
    # Airflow's own operator brings Airflow's models along, which its DAG processor has loaded anyway.
    assert parsed["elapsed"] < 1
    assert json.dumps(parsed["timetable"]) == '"AssetTriggeredTimetable"'
