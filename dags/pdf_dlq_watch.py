"""Tell when dead letters come that no run reports. Wiring only."""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import DAG, CronDataIntervalTimetable

from pdf_ops.operators.letters_watch import WatchLettersOperator
from pdf_ops.pipeline import PLACES, connection, dag_arguments
from pdf_ops.settings import setting

DOC = """
### Tell when dead letters come that no run reports

Runs report their own dead letters. Others come from workers that run by themselves, and from documents
that kill every worker that takes them.

| task | what it does |
|---|---|
| `watch` | compares the dead-letter queue with the last look; one Slack message for each growth |

It looks at nothing, and has no schedule, without a Slack connection.
"""

is_on = bool(setting("slack_conn_id")) and setting("dlq_watch_schedule") != "none"

with DAG(
    dag_id="pdf_dlq_watch",
    description="Tells when dead letters come that no run reports.",
    doc_md=DOC,
    schedule=CronDataIntervalTimetable(setting("dlq_watch_schedule"), timezone="UTC") if is_on else None,
    start_date=datetime(2025, 1, 1, tzinfo=UTC),
    catchup=False,
    **dag_arguments() | {"max_active_runs": 1, "on_success_callback": None},
) as dag:
    WatchLettersOperator(
        task_id="watch",
        dlq_url="{{ setting('dlq_sqs_queue_url') }}",
        slack_conn_id="{{ setting('slack_conn_id') }}",
        **PLACES,
        **connection(),
    )
