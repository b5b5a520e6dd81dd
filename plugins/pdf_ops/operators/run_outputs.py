"""What tasks have in common that work on what runs wrote: where it is, and how to get at it.

Not for anything that a task does with it.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from pdf_ops.contract.layout import Layout
from pdf_ops.objects import ObjectStore
from pdf_ops.run_items import RunItems

if TYPE_CHECKING:
    from collections.abc import Sequence


class RunOutputsOperator(BaseOperator):
    """The base of operators that work on what runs wrote.

    :param output_bucket: The bucket of the datasets. (templated)
    :param output_prefix: The prefix of the datasets. (templated)
    :param manifest_bucket: The bucket of the runs' own objects. (templated)
    :param manifest_prefix: The prefix of the runs' own objects. (templated)
    :param runs_table: The DynamoDB table of runs. (templated)
    :param run_id: The run. (templated)
    :param aws_conn_id: The Airflow connection used for AWS credentials.
    :param region_name: The AWS region, if not the connection's. (templated)
    """

    template_fields: Sequence[str] = (
        "output_bucket",
        "output_prefix",
        "manifest_bucket",
        "manifest_prefix",
        "runs_table",
        "run_id",
        "region_name",
    )

    def __init__(
        self,
        *,
        output_bucket: str,
        output_prefix: str,
        manifest_bucket: str,
        manifest_prefix: str,
        runs_table: str,
        run_id: str = "{{ run_id }}",
        aws_conn_id: str | None = "aws_default",
        region_name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.output_bucket = output_bucket
        self.output_prefix = output_prefix
        self.manifest_bucket = manifest_bucket
        self.manifest_prefix = manifest_prefix
        self.runs_table = runs_table
        self.run_id = run_id
        self.aws_conn_id = aws_conn_id
        self.region_name = region_name

    @property
    def layout(self) -> Layout:
        """Where everything lives in S3."""
        return Layout(
            output_bucket=self.output_bucket,
            output_prefix=self.output_prefix,
            manifest_bucket=self.manifest_bucket,
            manifest_prefix=self.manifest_prefix,
        )

    @cached_property
    def store(self) -> ObjectStore:
        """S3."""
        return ObjectStore(aws_conn_id=self.aws_conn_id, region_name=self.region_name)

    @cached_property
    def items(self) -> RunItems:
        """The run's items in DynamoDB."""
        return RunItems(
            table=self.runs_table,
            run_id=self.run_id,
            aws_conn_id=self.aws_conn_id,
            region_name=self.region_name,
        )
