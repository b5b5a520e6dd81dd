"""The pipeline: every new PDF below an S3 prefix becomes page rows in Parquet. Wiring only."""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import DAG, CronDataIntervalTimetable, Param, TaskGroup

from pdf_ops.operators.listing import PdfListOperator
from pdf_ops.pipeline import (
    PLACES,
    READING,
    connection,
    dag_arguments,
    enqueue_listed,
    read_and_publish,
    reading_params,
)
from pdf_ops.settings import setting

DOC = """
### Every new PDF below a prefix becomes page rows in Parquet

Press **Trigger** to read everything that is new; the form narrows it down. A run may be repeated at any
time: what has been read with the same bytes and settings is not read again.

| task | what it does |
|---|---|
| `list` | freezes the listing: what is new, changed, unchanged, left out and why |
| `enqueue` | one message per document |
| `plan_fleet`, `fleet`, `stop_fleet` | workers on ECS; always stopped in the end |
| `wait` | progress, rate and time left; ends a run that stalls or fails too much |
| `plan_merge`, `merge`, `publish` | one dataset, merged shard by shard and published at once |
| `reconcile` | the proof that no document is missing |
| `index` | brings the search index up to date; the run does not depend on it |
| `report`, `gate` | what happened, what it cost, and whether the run succeeded |

A run with nothing to do, and a dry run, skip everything between `list` and `report`.
"""

PARAMS = {
    "prefix": Param(
        setting("input_s3_prefix") or None,
        # The form refuses to send an empty text; null it takes.
        type=["null", "string"],
        title="Prefix",
        description="Only documents below it; empty for the whole bucket.",
        section="Which documents",
    ),
    "window_start": Param(
        None,
        type=["null", "string"],
        format="date-time",
        title="Changed from",
        description="Only documents that changed from then on; empty for all that are not read yet.",
        section="Which documents",
    ),
    "window_end": Param(
        None,
        type=["null", "string"],
        format="date-time",
        title="Changed before",
        description="Only documents that changed before then; empty for up to now.",
        section="Which documents",
    ),
    "limit": Param(
        None,
        type=["null", "integer"],
        minimum=1,
        title="At most",
        description="So many documents at most; empty for all. A good first run has 100.",
        section="Which documents",
    ),
    "force": Param(
        False,
        type="boolean",
        title="Read again",
        description="Also those that have been read, or have failed, with the same bytes and settings.",
        section="Which documents",
    ),
    **reading_params(),
    "dry_run": Param(
        False,
        type="boolean",
        title="Dry run",
        description="Only write the listing, and say what would be sent.",
        section="Safety",
    ),
}

with DAG(
    dag_id="pdf_ocr",
    description="PDFs below an S3 prefix become page rows in Parquet.",
    doc_md=DOC,
    schedule=(
        None
        if setting("schedule") == "none"
        else CronDataIntervalTimetable(setting("schedule"), timezone="UTC")
    ),
    start_date=datetime(2025, 1, 1, tzinfo=UTC),
    catchup=False,
    params=PARAMS,
    **dag_arguments(),
) as dag:
    with TaskGroup("send", prefix_group_id=False, tooltip="Freeze the listing, send the messages"):
        list_documents = PdfListOperator(
            task_id="list",
            is_first=True,
            bucket="{{ setting('input_s3_bucket') }}",
            prefix="{{ params.prefix or '' }}",
            **PLACES,
            **READING,
            state_table="{{ setting('dynamo_table_name') }}",
            window_start="{{ params.window_start or '' }}",
            window_end="{{ params.window_end or '' }}",
            lookback_days="{{ setting('lookback_days') }}",
            is_forced="{{ params.force }}",
            limit="{{ params.limit or '' }}",
            is_dry_run="{{ params.dry_run }}",
            suffixes="{{ setting('input_suffixes') }}",
            threads="{{ setting('list_threads') }}",
            **connection(),
        )
        listing = list_documents.output["summary"]
        enqueue = enqueue_listed(list_documents.output)

    read_and_publish(enqueue, listing)
