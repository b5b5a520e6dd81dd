"""Redrive: which documents are chosen, and that no letter is lost on the way."""

from __future__ import annotations

import gzip
import io
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from pdf_ops.contract.attributes import item_of
from pdf_ops.contract.documents import DocumentRow, DocumentStatus, document_schema, to_record_batch
from pdf_ops.contract.fingerprint import ReadingConfig
from pdf_ops.contract.layout import Layout, S3Uri
from pdf_ops.contract.listing import read_lines
from pdf_ops.contract.messages import DocumentMessage
from pdf_ops.dead_letters import Letter, LetterReader
from pdf_ops.hooks.tables import RunsTable
from pdf_ops.operators.enqueue import PdfEnqueueOperator
from pdf_ops.operators.redrive import ClearLettersOperator, RedriveListOperator

if TYPE_CHECKING:
    from tests.unit.pdf_ops.conftest import Aws

RUN = "redrive-1"


def bury(aws: Aws, key: str, *, error: str | None = "TIMEOUT/page", run_id: str = "run-1") -> None:
    """A letter as a worker leaves it, or, without an error, as SQS does after a crash loop."""
    body = DocumentMessage(bucket=aws.input, key=key, etag="old", size=1, run_id=run_id).to_json()
    said = {}
    if error is not None:
        error_class, _, code = error.partition("/")
        said = {"error_class": error_class, "error_code": code, "run_id": run_id, "s3_key": key}
    aws.client("sqs").send_message(
        QueueUrl=aws.dlq_url,
        MessageBody=body,
        MessageAttributes={
            name: {"DataType": "String", "StringValue": value} for name, value in said.items()
        },
    )


def left_in(aws: Aws, queue_url: str) -> list[str]:
    """The keys of a queue's messages; looking does not hide them for long."""
    sqs, found = aws.client("sqs"), []
    receipts = []
    while received := sqs.receive_message(QueueUrl=queue_url, MaxNumberOfMessages=10).get("Messages"):
        for message in received:
            found.append(json.loads(message["Body"])["s3_key"])
            receipts.append(message["ReceiptHandle"])
    for receipt in receipts:
        sqs.change_message_visibility(QueueUrl=queue_url, ReceiptHandle=receipt, VisibilityTimeout=0)
    return sorted(found)


def select(aws: Aws, context: dict[str, Any], **criteria: Any) -> tuple[list[str], list[str]]:
    """Run the list task; gives its shards and the keys that are to be sent."""
    operator = RedriveListOperator(
        task_id="list",
        bucket=aws.input,
        state_table=aws.state_table,
        run_id=RUN,
        dlq_url=aws.dlq_url,
        **aws.places,
        **criteria,
    )
    shards = operator.execute(context)
    keys = []
    for shard in map(S3Uri.parse, shards):
        body = aws.client("s3").get_object(Bucket=shard.bucket, Key=shard.key)["Body"].read()
        with gzip.open(io.BytesIO(body)) as lines:
            keys += [listed.key for listed in read_lines(lines) if listed.decision.is_sent]
    return shards, sorted(keys)


def send(aws: Aws, context: dict[str, Any], shards: list[str]) -> None:
    for shard in shards:
        PdfEnqueueOperator(task_id="enqueue", shard_uri=shard, queue_url=aws.queue_url, run_id=RUN).execute(
            context
        )


def clear(aws: Aws, context: dict[str, Any]) -> int:
    places = {name: value for name, value in aws.places.items() if name != "runs_table"}
    return ClearLettersOperator(
        task_id="clear", dlq_url=aws.dlq_url, input_bucket=aws.input, run_id=RUN, **places
    ).execute(context)


@pytest.fixture
def letters(aws: Aws) -> None:
    aws.put("a/1.pdf", "a/2.pdf", "b/3.pdf", "b/4.pdf")
    bury(aws, "a/1.pdf")
    bury(aws, "a/2.pdf", error="CORRUPT/truncated")
    bury(aws, "b/3.pdf", run_id="run-2")
    bury(aws, "b/4.pdf", error=None)


@pytest.mark.usefixtures("letters")
@pytest.mark.parametrize(
    ("criteria", "wanted"),
    [
        ({}, ["a/1.pdf", "a/2.pdf", "b/3.pdf", "b/4.pdf"]),
        ({"error_class": "TIMEOUT"}, ["a/1.pdf", "b/3.pdf"]),
        ({"source_run_id": "run-1"}, ["a/1.pdf", "a/2.pdf", "b/4.pdf"]),
        ({"prefix": "b/"}, ["b/3.pdf", "b/4.pdf"]),
        ({"error_class": "TIMEOUT", "source_run_id": "run-2", "prefix": "b/"}, ["b/3.pdf"]),
        ({"error_class": "OOM"}, []),
    ],
)
def test_letters_are_chosen_by_class_run_and_prefix_and_all_stay(
    aws: Aws, context: dict[str, Any], criteria: dict[str, str], wanted: list[str]
):
    _, keys = select(aws, context, **criteria)

    assert keys == wanted
    assert len(left_in(aws, aws.dlq_url)) == 4
    assert left_in(aws, aws.queue_url) == []


@pytest.mark.usefixtures("letters")
def test_no_more_than_the_limit_is_chosen(aws: Aws, context: dict[str, Any]):
    assert len(select(aws, context, limit=3)[1]) == 3


@pytest.mark.usefixtures("letters")
def test_a_dry_run_counts_and_sends_nothing(aws: Aws, context: dict[str, Any]):
    shards, _ = select(aws, context, is_dry_run="True")

    assert shards == []
    assert context["ti"].pushed["summary"]["documents"] == 4
    assert RunsTable(aws.runs_table).get_record(RUN).documents == 0
    assert len(left_in(aws, aws.dlq_url)) == 4


@pytest.mark.usefixtures("letters")
def test_letters_go_only_after_their_documents_were_sent(aws: Aws, context: dict[str, Any]):
    shards, keys = select(aws, context, error_class="TIMEOUT")
    send(aws, context, shards)
    assert len(left_in(aws, aws.dlq_url)) == 4

    assert clear(aws, context) == 2

    assert left_in(aws, aws.queue_url) == keys == ["a/1.pdf", "b/3.pdf"]
    assert left_in(aws, aws.dlq_url) == ["a/2.pdf", "b/4.pdf"]
    assert RunsTable(aws.runs_table).get_record(RUN).documents == 2


@pytest.mark.usefixtures("letters")
def test_a_redrive_that_is_killed_half_way_loses_nothing_when_it_is_tried_again(
    aws: Aws, context: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    class KilledError(Exception):
        pass

    shards, keys = select(aws, context)
    send(aws, context, shards)
    delete = LetterReader.delete

    def delete_one_and_die(reader: LetterReader, letters: list[Letter]) -> int:
        delete(reader, letters[:1])
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(LetterReader, "delete", delete_one_and_die)
        with pytest.raises(KilledError):
            clear(aws, context)
    assert len(left_in(aws, aws.dlq_url)) == 3
    # What is not in the dead-letter queue any more is in the queue: nothing is in neither.
    assert set(keys) <= set(left_in(aws, aws.queue_url)) | set(left_in(aws, aws.dlq_url))

    again, same_keys = select(aws, context)  # The frozen listing, whatever the letters are now.
    send(aws, context, again)
    clear(aws, context)

    assert (again, same_keys) == (shards, keys)
    assert set(left_in(aws, aws.queue_url)) == set(keys)
    assert left_in(aws, aws.dlq_url) == []


@pytest.mark.usefixtures("letters")
def test_a_letter_that_came_after_the_choice_stays(aws: Aws, context: dict[str, Any]):
    shards, _ = select(aws, context)
    send(aws, context, shards)
    bury(aws, "a/1.pdf", run_id=RUN)  # Read again at once, and failed again.

    clear(aws, context)

    assert left_in(aws, aws.dlq_url) == ["a/1.pdf"]


def test_what_is_gone_or_read_meanwhile_is_not_sent(aws: Aws, context: dict[str, Any]):
    aws.put("read.pdf")
    bury(aws, "read.pdf")
    bury(aws, "gone.pdf")
    etag = aws.client("s3").head_object(Bucket=aws.input, Key="read.pdf")["ETag"].strip('"')
    state = {
        "s3_key": "read.pdf",
        "status": "done",
        "etag": etag,
        "config_hash": ReadingConfig().config_hash,
    }
    aws.client("dynamodb").put_item(TableName=aws.state_table, Item=item_of(state))

    shards, _ = select(aws, context)

    assert shards == []
    summary = context["ti"].pushed["summary"]
    assert (summary["counts"]["unchanged"], summary["counts"]["excluded"]) == (1, 1)
    assert summary["reasons"] == {"is not in S3 any more": 1}


def test_a_letter_that_names_no_document_stays_where_it_is(aws: Aws, context: dict[str, Any]):
    aws.client("sqs").send_message(QueueUrl=aws.dlq_url, MessageBody='{"s3_key": ""}')

    assert select(aws, context)[1] == []
    clear(aws, context)

    assert left_in(aws, aws.dlq_url) == [""]


def test_documents_are_chosen_by_how_sure_their_last_reading_is(aws: Aws, context: dict[str, Any]):
    layout = Layout(
        output_bucket=aws.output,
        output_prefix=aws.places.get("output_prefix", ""),
        manifest_bucket=aws.places.get("manifest_bucket", aws.output),
        manifest_prefix=aws.places.get("manifest_prefix", ""),
    )
    aws.put("low.pdf", "high.pdf", "better-now.pdf", "text.pdf")
    first, later = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    rows = [("low.pdf", 40.0, first), ("high.pdf", 90.0, first), ("better-now.pdf", 30.0, first)]
    write_documents(aws, layout, 0, [*rows, ("text.pdf", None, first)])
    write_documents(aws, layout, 1, [("better-now.pdf", 95.0, later)])

    _, keys = select(aws, context, confidence_below="60")

    assert keys == ["low.pdf"]
    # They have been read, so the run must read again what it finds read.
    assert RunsTable(aws.runs_table).get_record(RUN).is_forced


def write_documents(
    aws: Aws, layout: Layout, number: int, rows: list[tuple[str, float | None, datetime]]
) -> None:
    batch = to_record_batch(
        [
            DocumentRow(
                source_uri=f"s3://{aws.input}/{key}",
                status=DocumentStatus.DONE,
                ocr_confidence=confidence,
                run_id=f"run-{number}",
                languages="eng",
                config_hash="c",
                read_at=read_at,
            )
            for key, confidence, read_at in rows
        ]
    )
    file = io.BytesIO()
    with pq.ParquetWriter(file, document_schema()) as writer:
        writer.write_batch(batch)
    day = (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=number)).date()
    uri = layout.documents_part(day, f"run-{number}", 0)
    aws.client("s3").put_object(Bucket=uri.bucket, Key=uri.key, Body=file.getvalue())
