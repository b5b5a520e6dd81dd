"""What the DAGs share: settings as templates, params, and every task between a listing and its gate.

A DAG decides what is listed; reading, publishing, proving and reporting are the same for all. Not for
what a task does: that is its operator's.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import Asset, Param, TaskGroup, TriggerRule

from pdf_ops.contract.fingerprint import OcrMode
from pdf_ops.contract.layout import Layout, LayoutError
from pdf_ops.notifications.slack import slack_callbacks
from pdf_ops.operators.enqueue import PdfEnqueueOperator
from pdf_ops.operators.fleet import PdfFleetOperator, PlanFleetOperator, StopFleetOperator
from pdf_ops.operators.gate import GateOperator
from pdf_ops.operators.index import SearchIndexOperator
from pdf_ops.operators.merge import MergeOperator
from pdf_ops.operators.plan_merge import PlanMergeOperator
from pdf_ops.operators.publish import PublishOperator
from pdf_ops.operators.reconcile import ReconcileOperator
from pdf_ops.operators.report import ReportOperator
from pdf_ops.sensors.completion import RunCompletionSensor
from pdf_ops.settings import Capacity, check_settings, setting

INDEX_TASK = "index"
PLACES: dict[str, Any] = {
    "output_bucket": "{{ setting('output_s3_bucket') }}",
    "output_prefix": "{{ setting('output_s3_prefix') }}",
    "manifest_bucket": "{{ setting('manifest_s3_bucket') or setting('output_s3_bucket') }}",
    "manifest_prefix": "{{ setting('manifest_s3_key') }}",
    "runs_table": "{{ setting('dynamo_runs_table_name') }}",
}
# What the workers must agree on with the control plane; the rest is the task definition's.
WORKER_ENVIRONMENT = {
    "INPUT_S3_BUCKET": "{{ setting('input_s3_bucket') }}",
    "OUTPUT_S3_BUCKET": PLACES["output_bucket"],
    "OUTPUT_S3_PREFIX": PLACES["output_prefix"],
    "MANIFEST_S3_BUCKET": PLACES["manifest_bucket"],
    "MANIFEST_S3_KEY": PLACES["manifest_prefix"],
    "SQS_QUEUE_URL": "{{ setting('sqs_queue_url') }}",
    "DLQ_SQS_QUEUE_URL": "{{ setting('dlq_sqs_queue_url') }}",
    "DYNAMO_TABLE_NAME": "{{ setting('dynamo_table_name') }}",
    "DYNAMO_RUNS_TABLE_NAME": PLACES["runs_table"],
    "OPENSEARCH_URL": "{{ setting('opensearch_url') }}",
    "OPENSEARCH_INDEX": "{{ setting('opensearch_index') }}",
}
# How documents are read, for whoever lists them.
READING: dict[str, Any] = {
    "languages": "{{ params.languages }}",
    "ocr_mode": "{{ params.ocr_mode }}",
    "dpi": "{{ setting('dpi') }}",
    "max_page_pixels": "{{ setting('max_page_pixels') }}",
    "trust_ocr_layer": "{{ setting('trust_ocr_layer') }}",
}


def connection() -> dict[str, Any]:
    """The arguments of every operator that talks to AWS."""
    return {"aws_conn_id": setting("aws_conn_id"), "region_name": setting("aws_region") or None}


def reading_params() -> dict[str, Param]:
    """The params of how documents are read, with what, and when to give up."""
    return {
        "ocr_mode": Param(
            setting("ocr_mode").value,
            type="string",
            enum=[mode.value for mode in OcrMode],
            values_display={
                "auto": "auto: where the text layer is not good enough",
                "force": "force: on every page",
                "off": "off: text layers only",
            },
            title="OCR",
            description="When pages are read by OCR.",
            section="How to read them",
        ),
        "languages": Param(
            setting("languages"),
            type="string",
            pattern=r"^[A-Za-z][A-Za-z0-9_/-]*(\+[A-Za-z][A-Za-z0-9_/-]*)*$",
            title="Languages",
            description="Tesseract's names, the leading one first: eng, eng+deu, script/Latin.",
            section="How to read them",
        ),
        "workers": Param(
            "auto",
            type="string",
            pattern="^(auto|[1-9][0-9]*)$",
            title="Workers",
            description="auto sizes the fleet by documents, bytes and the last run; "
            f"at most {setting('max_workers')}.",
            section="With what",
        ),
        "capacity": Param(
            setting("capacity").value,
            type="string",
            enum=[kind.value for kind in Capacity],
            values_display={"spot": "Spot, on-demand when there is none", "on_demand": "on-demand"},
            title="Machines",
            description="Spot costs about a third; a worker whose machine is taken back is replaced.",
            section="With what",
        ),
        "failure_threshold": Param(
            setting("failure_threshold"),
            type="number",
            minimum=0,
            maximum=1,
            title="Failure threshold",
            description="The run is ended, and fails, when more than this share of its documents fails.",
            section="Safety",
        ),
    }


def layout() -> Layout | None:
    """Where runs write, if the settings say so already."""
    bucket = setting("output_s3_bucket")
    try:
        return Layout(
            output_bucket=bucket,
            output_prefix=setting("output_s3_prefix"),
            manifest_bucket=setting("manifest_s3_bucket") or bucket,
            manifest_prefix=setting("manifest_s3_key"),
        )
    except LayoutError:
        return None


def dag_arguments() -> dict[str, Any]:
    """The arguments that all DAGs share."""
    slack = slack_callbacks(slack_conn_id=setting("slack_conn_id") or None, layout=layout(), **connection())
    return {
        "max_active_runs": setting("max_active_runs"),
        "dagrun_timeout": timedelta(hours=setting("run_timeout_h") + 1),
        "default_args": {
            "retries": setting("retries"),
            "retry_delay": timedelta(seconds=setting("retry_delay_s")),
            "retry_exponential_backoff": True,
        },
        "user_defined_macros": {"setting": setting},
        "on_failure_callback": slack.alert_on_failure,
        "on_success_callback": slack.summarise_on_success,
        "tags": ["pdf_ops"],
    }


def enqueue_listed(shards: Any) -> Any:
    """Send a message for each listed document; one mapped task a shard."""
    return PdfEnqueueOperator.partial(
        task_id="enqueue",
        queue_url="{{ setting('sqs_queue_url') }}",
        batches_in_flight="{{ setting('batches_in_flight') }}",
        **connection(),
    ).expand(shard_uri=shards)


def read_and_publish(sent: Any, listing: Any) -> None:
    """Add every task after the sending: workers, the wait for them, the dataset, its proof and the report.

    Args:
        sent: The task after which all messages are sent.
        listing: The summary of what was listed.
    """
    found = layout()
    pages = Asset("pdf_ops_pages", uri=str(found.pages_dataset())) if found else Asset("pdf_ops_pages")
    aws = connection()
    with TaskGroup("read", prefix_group_id=False, tooltip="Workers on ECS, and the wait for them"):
        plan_fleet = PlanFleetOperator(
            task_id="plan_fleet",
            **PLACES,
            listing=listing,
            workers="{{ params.workers }}",
            max_workers="{{ setting('max_workers') }}",
            documents_per_worker="{{ setting('documents_per_worker') }}",
            megabytes_per_worker="{{ setting('megabytes_per_worker') }}",
            target_minutes="{{ setting('target_minutes') }}",
            **aws,
        )
        fleet = PdfFleetOperator.partial(
            task_id="fleet",
            cluster="{{ setting('ecs_cluster') }}",
            task_definition="{{ setting('ecs_task_definition') }}",
            container_name="{{ setting('ecs_container_name') }}",
            capacity="{{ params.capacity }}",
            environment=WORKER_ENVIRONMENT,
            subnets="{{ setting('ecs_subnets') }}",
            security_groups="{{ setting('ecs_security_groups') }}",
            assign_public_ip="{{ setting('assign_public_ip') }}",
            log_group="{{ setting('log_group_name') }}",
            log_stream_prefix="{{ setting('log_stream_prefix') }}",
            waiter_delay=max(1, round(min(setting("poll_interval_s"), 15))),
            deferrable=True,
            **aws,
        ).expand(worker_index=plan_fleet.output)
        # Costs nothing under a scheduler, which never runs it. `airflow dags test` runs tasks one after
        # another in any order: with it, the fleet comes before the wait, which would wait for ever.
        fleet_is_due = EmptyOperator(task_id="fleet_is_due")
        wait = RunCompletionSensor(
            task_id="wait",
            runs_table=PLACES["runs_table"],
            state_table="{{ setting('dynamo_table_name') }}",
            dlq_url="{{ setting('dlq_sqs_queue_url') }}",
            input_bucket="{{ setting('input_s3_bucket') }}",
            failure_threshold="{{ params.failure_threshold }}",
            failure_minimum="{{ setting('failure_minimum') }}",
            stall_timeout_s="{{ setting('stall_timeout_s') }}",
            cluster="{{ setting('ecs_cluster') }}",
            fleet_timeout_s="{{ setting('fleet_timeout_s') }}",
            poke_interval=setting("poll_interval_s"),
            timeout=timedelta(hours=setting("run_timeout_h")).total_seconds(),
            deferrable=True,
            **aws,
        )
        stop_fleet = StopFleetOperator(
            task_id="stop_fleet", cluster="{{ setting('ecs_cluster') }}", **aws
        ).as_teardown(setups=plan_fleet)

    with TaskGroup("dataset", prefix_group_id=False, tooltip="One dataset, and the proof that it is whole"):
        # Also when the wait failed: what has been read is not read again, so this run must publish it.
        plan_merge = PlanMergeOperator(
            task_id="plan_merge",
            **PLACES,
            input_bucket="{{ setting('input_s3_bucket') }}",
            trigger_rule=TriggerRule.ALL_DONE_MIN_ONE_SUCCESS,
            **aws,
        )
        merge = MergeOperator.partial(task_id="merge", **PLACES, **aws).expand(shard_uri=plan_merge.output)
        publish = PublishOperator(task_id="publish", **PLACES, **aws)
        reconcile = ReconcileOperator(task_id="reconcile", **PLACES, listing=listing, outlets=[pages], **aws)
        index = None
        if setting("search_index"):
            # Beside the proof: the index is made from the dataset, and can be at any time.
            index = SearchIndexOperator(task_id=INDEX_TASK, **PLACES, **aws)

    report = ReportOperator(
        task_id="report",
        **PLACES,
        listing=listing,
        fleet=fleet.output,
        failure="{{ ti.xcom_pull(task_ids='wait', key='failure') or '' }}",
        dlq_url="{{ setting('dlq_sqs_queue_url') }}",
        failure_threshold="{{ params.failure_threshold }}",
        optional=[INDEX_TASK],
        # Whatever happened; but without settings there is nothing to report.
        pre_execute=check_settings,
        trigger_rule=TriggerRule.ALL_DONE,
        **aws,
    )
    # A teardown, as those still run when a person ends the run: without it, such a run would succeed.
    gate = GateOperator(task_id="gate", report=report.output, optional=[INDEX_TASK]).as_teardown(
        on_failure_fail_dagrun=True
    )

    # The report, too, waits for whoever sends: a fleet that is not needed ends while a person is still asked.
    sent >> [fleet, fleet_is_due, report]
    plan_fleet >> fleet_is_due >> wait >> stop_fleet
    [wait, stop_fleet] >> plan_merge
    merge >> publish >> reconcile >> report >> gate
    if index is not None:
        publish >> index >> report
