"""Optional: new documents start a run at once, by S3's events on a queue of their own. Wiring only.

Without the setting ``events_sqs_queue_url`` this file defines nothing.
"""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import DAG

from pdf_ops.settings import setting

DOC = """
### New documents start a run at once

S3 tells a queue about each new document. Events of a few seconds are one event here, and start one run of
`pdf_ocr`, which reads whatever its listing finds: an event that is lost, late or doubled does no harm.

| task | what it does |
|---|---|
| `start` | starts a run of `pdf_ocr` and waits for its end |

One run at a time: what comes meanwhile is read by the next one.
"""

EVENTS = setting("events_sqs_queue_url")

# Not a queue whose messages others need: what is told is deleted here. Checking the settings names that.
if EVENTS and EVENTS not in (setting("sqs_queue_url"), setting("dlq_sqs_queue_url")):
    from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
    from airflow.sdk import Asset, AssetWatcher

    from pdf_ops.pipeline import connection, dag_arguments
    from pdf_ops.triggers.doorbell import NewDocumentsTrigger

    events = NewDocumentsTrigger(queue_url=EVENTS, quiet_s=setting("events_quiet_s"), **connection())

    with DAG(
        dag_id="pdf_doorbell",
        description="New documents start a run of pdf_ocr at once.",
        doc_md=DOC,
        schedule=[Asset("pdf_ops_new_documents", watchers=[AssetWatcher(name="events", trigger=events)])],
        start_date=datetime(2025, 1, 1, tzinfo=UTC),
        catchup=False,
        **dag_arguments() | {"max_active_runs": 1, "on_success_callback": None},
    ) as dag:
        TriggerDagRunOperator(
            task_id="start",
            trigger_dag_id="pdf_ocr",
            trigger_run_id="doorbell__{{ run_id.removeprefix('asset_triggered__') }}",
            logical_date=None,
            # Tried again, it finds the run that it has started.
            skip_when_already_exists=True,
            fail_when_dag_is_paused=True,
            wait_for_completion=True,
            # A run that fails says so itself.
            allowed_states=["success", "failed"],
            failed_states=[],
            poke_interval=round(max(1, min(setting("poll_interval_s"), 30))),
            deferrable=True,
        )
