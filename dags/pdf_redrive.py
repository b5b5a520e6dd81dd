"""Send documents round again: dead letters, or results that are not good enough. Wiring only."""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import DAG, Param, TaskGroup

from pdf_ops.contract.errors import ErrorClass
from pdf_ops.operators.approval import OptionalApprovalOperator
from pdf_ops.operators.redrive import ClearLettersOperator, RedriveListOperator
from pdf_ops.pipeline import (
    PLACES,
    READING,
    connection,
    dag_arguments,
    enqueue_listed,
    read_and_publish,
    reading_params,
)

DOC = """
### Send documents round again

Press **Trigger**: a dry run counts first. Everything that is given must hold; with nothing given, every
dead letter is meant.

| task | what it does |
|---|---|
| `list` | freezes which documents are meant; nothing is sent yet, every letter stays |
| `approve` | waits for a person, if the run says so |
| `enqueue`, `clear_letters` | sends, and only then deletes the letters of what was sent |
| the rest | as in `pdf_ocr`: workers, dataset, proof, and a report of what became of them |

A run that is killed half way loses nothing: clear its tasks, or run it again.
"""

PARAMS = {
    "error_class": Param(
        None,
        type=["null", "string"],
        enum=[None, *ErrorClass],
        title="Error class",
        description="Only documents that failed with it; empty for all.",
        section="Which documents",
    ),
    "run_id": Param(
        None,
        type=["null", "string"],
        title="Run",
        description="Only documents of this run; empty for all.",
        section="Which documents",
    ),
    "prefix": Param(
        None,
        type=["null", "string"],
        title="Prefix",
        description="Only keys that begin with it; empty for all.",
        section="Which documents",
    ),
    "confidence_below": Param(
        None,
        type=["null", "number"],
        minimum=0,
        maximum=100,
        title="Confidence below",
        description="Instead of dead letters: documents that OCR read with less confidence, read again.",
        section="Which documents",
    ),
    "limit": Param(
        10_000,
        type="integer",
        minimum=1,
        maximum=100_000,
        title="At most",
        description="So many documents at most.",
        section="Safety",
    ),
    "dry_run": Param(
        True,
        type="boolean",
        title="Dry run",
        description="Only count and list; nothing is sent or deleted.",
        section="Safety",
    ),
    "approval": Param(
        False,
        type="boolean",
        title="Ask first",
        description="Wait until a person has approved what was counted.",
        section="Safety",
    ),
    **reading_params(),
}

with DAG(
    dag_id="pdf_redrive",
    description="Failed documents, or badly read ones, go round again.",
    doc_md=DOC,
    schedule=None,
    start_date=datetime(2025, 1, 1, tzinfo=UTC),
    catchup=False,
    params=PARAMS,
    **dag_arguments(),
) as dag:
    with TaskGroup("send", prefix_group_id=False, tooltip="Choose, ask, send, and only then delete letters"):
        list_documents = RedriveListOperator(
            task_id="list",
            is_first=True,
            bucket="{{ setting('input_s3_bucket') }}",
            prefix="{{ params.prefix or '' }}",
            dlq_url="{{ setting('dlq_sqs_queue_url') }}",
            source_run_id="{{ params.run_id or '' }}",
            error_class="{{ params.error_class or '' }}",
            confidence_below="{{ '' if params.confidence_below is none else params.confidence_below }}",
            **PLACES,
            **READING,
            state_table="{{ setting('dynamo_table_name') }}",
            limit="{{ params.limit }}",
            is_dry_run="{{ params.dry_run }}",
            **connection(),
        )
        listing = list_documents.output["summary"]
        approve = OptionalApprovalOperator(
            task_id="approve",
            subject="Send {{ ti.xcom_pull(task_ids='list', key='summary').get('documents', 0) }} documents "
            "round again?",
            body="{{ ti.xcom_pull(task_ids='list', key='summary').get('window', '') }}",
            is_required="{{ params.approval and not params.dry_run }}",
            retries=0,  # A person who says no is not asked again.
        )
        enqueue = enqueue_listed(list_documents.output)
        clear_letters = ClearLettersOperator(
            task_id="clear_letters",
            dlq_url="{{ setting('dlq_sqs_queue_url') }}",
            input_bucket="{{ setting('input_s3_bucket') }}",
            **{name: value for name, value in PLACES.items() if name != "runs_table"},
            **connection(),
        )
        list_documents >> approve >> enqueue >> clear_letters

    read_and_publish(clear_letters, listing)
