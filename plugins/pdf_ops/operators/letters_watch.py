"""The task that tells when dead letters come that no run reports. Not for finding that out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from pdf_ops.contract.layout import Layout
from pdf_ops.hooks.clients import aws_client
from pdf_ops.letters_watch import LettersWatch
from pdf_ops.notifications.slack import send_growth

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context


class WatchLettersOperator(BaseOperator):
    """Compare the dead-letter queue with the last look, and tell Slack once about each growth.

    Without a Slack connection nothing is looked at. A growth that could not be told is found again by the
    next look. Returns how many letters were told of.

    :param dlq_url: The dead-letter queue; its messages are looked at, never hidden or deleted. (templated)
    :param slack_conn_id: The Slack webhook connection. (templated)
    :param output_bucket: As for the pipeline. (templated)
    :param output_prefix: As for the pipeline. (templated)
    :param manifest_bucket: As for the pipeline. (templated)
    :param manifest_prefix: As for the pipeline. (templated)
    :param runs_table: The runs table, where the last look is remembered. (templated)
    :param aws_conn_id: The Airflow connection used for AWS credentials.
    :param region_name: The AWS region, if not the connection's own.
    """

    template_fields: Sequence[str] = (
        "dlq_url",
        "slack_conn_id",
        "output_bucket",
        "output_prefix",
        "manifest_bucket",
        "manifest_prefix",
        "runs_table",
    )
    ui_color = "#fde8d9"

    def __init__(
        self,
        *,
        dlq_url: str,
        slack_conn_id: str,
        output_bucket: str,
        output_prefix: str = "",
        manifest_bucket: str = "",
        manifest_prefix: str = "",
        runs_table: str,
        aws_conn_id: str | None = "aws_default",
        region_name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.dlq_url = dlq_url
        self.slack_conn_id = slack_conn_id
        self.output_bucket = output_bucket
        self.output_prefix = output_prefix
        self.manifest_bucket = manifest_bucket
        self.manifest_prefix = manifest_prefix
        self.runs_table = runs_table
        self.aws_conn_id = aws_conn_id
        self.region_name = region_name

    def execute(self, context: Context) -> int:
        """Look, and tell."""
        if not self.slack_conn_id:
            self.log.info(
                "no Slack connection is configured, so nobody would hear of it: nothing is looked at"
            )
            return 0
        sqs, dynamodb, s3 = (
            aws_client(service, aws_conn_id=self.aws_conn_id, region_name=self.region_name)
            for service in ("sqs", "dynamodb", "s3")
        )
        layout = Layout(
            output_bucket=self.output_bucket,
            output_prefix=self.output_prefix,
            manifest_bucket=self.manifest_bucket or self.output_bucket,
            manifest_prefix=self.manifest_prefix,
        )
        watch = LettersWatch(
            queue_url=self.dlq_url,
            runs_table=self.runs_table,
            layout=layout,
            sqs=sqs,
            dynamodb=dynamodb,
            s3=s3,
        )
        growth = watch.look()
        if growth is None:
            self.log.info("no dead letter has come that no run reports")
        elif send_growth(self.slack_conn_id, growth):
            self.log.info("%d dead letters came that no run reports: told", growth.unexplained)
        else:
            self.log.warning(
                "%d dead letters came that no run reports; the next look tells", growth.unexplained
            )
            return 0
        watch.remember()
        return growth.unexplained if growth else 0
