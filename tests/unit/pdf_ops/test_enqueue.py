"""Enqueue: each document's message is sent, whatever the queue refuses on the way."""

from __future__ import annotations

import gzip
import pickle

import pytest

from pdf_ops.contract.listing import Decision, ListedObject
from pdf_ops.contract.messages import DocumentMessage, parse_message
from pdf_ops.exceptions import EnqueueError
from pdf_ops.operators.enqueue import BatchSender, PdfEnqueueOperator, batches, send_all


def shard(aws, count, decision=Decision.NEW):
    lines = "".join(
        ListedObject(
            bucket=aws.input, key=f"{number}.pdf", etag="e", size=number, last_modified="x", decision=decision
        ).to_line()
        for number in range(count)
    )
    aws.put("listing/shard-00007.jsonl.gz", body=gzip.compress(lines.encode()), bucket=aws.output)
    return f"s3://{aws.output}/listing/shard-00007.jsonl.gz"


def received(aws):
    client, found = aws.client("sqs"), []
    while messages := client.receive_message(QueueUrl=aws.queue_url, MaxNumberOfMessages=10).get("Messages"):
        found += [document for message in messages for document in parse_message(message["Body"])]
    return found


class Queue:
    """A queue that refuses as it is told: each call takes the next list of refused positions."""

    def __init__(self, *refusals, is_senders_fault=False):
        self.refusals, self.fault, self.calls, self.taken = list(refusals), is_senders_fault, 0, []

    def send_message_batch(self, QueueUrl, Entries):  # noqa: N803
        self.calls += 1
        refused = self.refusals.pop(0) if self.refusals else []
        failed = [
            {"Id": entry["Id"], "Code": "InternalError", "Message": "later", "SenderFault": self.fault}
            for entry in Entries
            if int(entry["Id"]) in refused
        ]
        ids = {entry["Id"] for entry in failed}
        self.taken += [entry["MessageBody"] for entry in Entries if entry["Id"] not in ids]
        return {"Failed": failed}


def messages(count):
    return [DocumentMessage(bucket="bucket", key=f"{number}.pdf", run_id="run") for number in range(count)]


def test_every_document_to_be_read_gets_one_message_in_our_own_form(aws, context):
    operator = PdfEnqueueOperator(
        task_id="enqueue", shard_uri=shard(aws, 23), queue_url=aws.queue_url, run_id="run"
    )

    assert operator.execute(context) == 23

    found = sorted(received(aws), key=lambda message: message.size)
    assert [message.key for message in found] == [f"{number}.pdf" for number in range(23)]
    assert {(message.bucket, message.etag, message.run_id, message.shard) for message in found} == {
        (aws.input, "e", "run", "shard-00007")
    }


def test_what_is_unchanged_or_left_out_gets_no_message(aws, context):
    operator = PdfEnqueueOperator(
        task_id="enqueue",
        shard_uri=shard(aws, 3, Decision.UNCHANGED),
        queue_url=aws.queue_url,
        run_id="run",
    )

    assert operator.execute(context) == 0
    assert received(aws) == []


def test_only_what_was_refused_is_sent_again():
    queue = Queue([0, 9], [1])

    assert BatchSender(client=queue, queue_url="q", backoff_s=0.001).send(messages(10)) == 10

    assert queue.calls == 3
    assert len(queue.taken) == len(set(queue.taken)) == 10


def test_a_message_that_is_never_taken_is_named():
    queue = Queue(*([[3]] + [[0]] * 20))

    with pytest.raises(EnqueueError, match=r"3\.pdf") as raised:
        BatchSender(client=queue, queue_url="q", max_attempts=4, backoff_s=0.001).send(messages(10))

    assert queue.calls == 4
    assert raised.value.count == 1


def test_a_message_that_is_our_own_fault_is_not_tried_again():
    queue = Queue([3], is_senders_fault=True)

    with pytest.raises(EnqueueError):
        BatchSender(client=queue, queue_url="q", backoff_s=0.001).send(messages(10))

    assert queue.calls == 1


def test_the_other_messages_are_sent_when_one_batch_is_refused():
    queue = Queue([0])
    sender = BatchSender(client=queue, queue_url="q", max_attempts=1)

    with pytest.raises(EnqueueError) as raised:
        send_all(sender, messages(95), in_flight=2)

    assert raised.value.count == 1
    assert len(queue.taken) == 94


def test_a_queue_that_is_not_there_is_an_error_at_once(aws, context):
    operator = PdfEnqueueOperator(
        task_id="enqueue", shard_uri=shard(aws, 1), queue_url=aws.queue_url + "-gone", run_id="run"
    )

    with pytest.raises(EnqueueError, match=r"0\.pdf"):
        operator.execute(context)


def test_the_error_survives_pickling():
    error = EnqueueError("why", [f"{number}.pdf" for number in range(30)], 30)

    again = pickle.loads(pickle.dumps(error))

    assert str(again) == str(error)
    assert "and 20 more" in str(again)


def test_batches_keep_every_message():
    assert [len(batch) for batch in batches(messages(21), 10)] == [10, 10, 1]
