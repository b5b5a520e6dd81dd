"""S3's events on the local AWS: each new document is told to the queue of events, as a deployment does it.

The same as ``include/terraform/modules/events``. Not for what follows: that is the DAG ``pdf_doorbell``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from local_aws import LocalAws


def tell_of_uploads(aws: LocalAws, *, bucket: str, queue_url: str) -> None:
    """Have S3 tell a queue about each new object of a bucket."""
    sqs = aws.client("sqs")
    found = sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=["QueueArn"])
    arn = found["Attributes"]["QueueArn"]
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": "s3.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": arn,
    }
    policy = {"Version": "2012-10-17", "Statement": [statement]}
    sqs.set_queue_attributes(QueueUrl=queue_url, Attributes={"Policy": json.dumps(policy)})
    aws.client("s3").put_bucket_notification_configuration(
        Bucket=bucket,
        NotificationConfiguration={
            "QueueConfigurations": [{"QueueArn": arn, "Events": ["s3:ObjectCreated:*"]}]
        },
    )


def doorbell_variables(aws: LocalAws) -> dict[str, str]:
    """What Airflow must know for runs that uploads start, and no clock."""
    name = aws.resources.queues["events"].name
    return {
        "AIRFLOW__PDF_OPS__EVENTS_SQS_QUEUE_URL": aws.client("sqs").get_queue_url(QueueName=name)["QueueUrl"],
        "AIRFLOW__PDF_OPS__EVENTS_QUIET_S": "3",
        "AIRFLOW__PDF_OPS__SCHEDULE": "none",
        "AIRFLOW__SCHEDULER__USE_JOB_SCHEDULE": "True",
    }
