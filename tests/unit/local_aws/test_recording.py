"""Requests as the IAM actions that AWS would check."""

from __future__ import annotations

import json
from typing import Any

import pytest

from local_aws.recording import Call, Recorder, Request, calls_of, read_calls

ACCOUNT = "000000000000"


def signed(service: str, *, method: str = "POST", path: str = "/", query: str = "", **extra: Any) -> Request:
    credential = f"Credential=worker/20260101/eu-west-1/{service}/aws4_request"
    headers = {"authorization": f"AWS4-HMAC-SHA256 {credential}, SignedHeaders=host, Signature=0"}
    headers |= {name.replace("_", "-"): value for name, value in extra.pop("headers", {}).items()}
    return Request(method=method, path=path, query=query, headers=headers, **extra)


def operation(service: str, target: str, **content: Any) -> Request:
    return signed(service, headers={"x-amz-target": target}, body=json.dumps(content).encode())


def pairs(request: Request) -> list[tuple[str, str]]:
    return [(call.action, call.resource) for call in calls_of(request)]


@pytest.mark.parametrize(
    ("method", "path", "query", "action", "resource"),
    [
        ("GET", "/b", "list-type=2&prefix=in%2F", "s3:ListBucket", "b"),
        ("HEAD", "/b", "", "s3:ListBucket", "b"),
        ("GET", "/b/a%20b.pdf", "", "s3:GetObject", "b/a b.pdf"),
        ("HEAD", "/b/a.pdf", "", "s3:GetObject", "b/a.pdf"),
        ("GET", "/b/a.pdf", "versionId=1", "s3:GetObjectVersion", "b/a.pdf"),
        ("PUT", "/b/a.pdf", "", "s3:PutObject", "b/a.pdf"),
        ("POST", "/b/a.pdf", "uploads=", "s3:PutObject", "b/a.pdf"),
        ("PUT", "/b/a.pdf", "uploadId=1&partNumber=2", "s3:PutObject", "b/a.pdf"),
        ("DELETE", "/b/a.pdf", "uploadId=1", "s3:AbortMultipartUpload", "b/a.pdf"),
        ("DELETE", "/b/a.pdf", "", "s3:DeleteObject", "b/a.pdf"),
    ],
)
def test_a_request_to_s3_is_the_action_that_its_policy_must_allow(method, path, query, action, resource):
    request = signed("s3", method=method, path=path, query=query)

    assert pairs(request) == [(action, f"arn:aws:s3:::{resource}")]


def test_a_copy_also_reads_its_source() -> None:
    request = signed("s3", method="PUT", path="/b/new", headers={"x-amz-copy-source": "/other/old%2B"})

    assert pairs(request) == [
        ("s3:GetObject", "arn:aws:s3:::other/old+"),
        ("s3:PutObject", "arn:aws:s3:::b/new"),
    ]


def test_a_query_of_an_index_is_checked_on_the_index() -> None:
    target = "DynamoDB_20120810.Query"
    table = f"arn:aws:dynamodb:eu-west-1:{ACCOUNT}:table/state"

    assert pairs(operation("dynamodb", target, TableName="state")) == [("dynamodb:Query", table)]
    assert pairs(operation("dynamodb", target, TableName="state", IndexName="listing")) == [
        ("dynamodb:Query", f"{table}/index/listing")
    ]


def test_what_is_not_known_of_s3_is_no_action_that_a_policy_could_allow() -> None:
    assert pairs(signed("s3", method="PUT", path="/b", query="policy="))[0][0] == "s3:PUT bucket?policy="


def test_a_batch_is_checked_as_what_it_is_made_of() -> None:
    request = operation("sqs", "AmazonSQS.SendMessageBatch", QueueUrl="http://host/0/q")

    assert pairs(request) == [("sqs:SendMessage", f"arn:aws:sqs:eu-west-1:{ACCOUNT}:q")]


def test_a_transaction_is_checked_item_by_item() -> None:
    items = [{"Put": {"TableName": "runs"}}, {"Update": {"TableName": "state"}}]
    request = operation("dynamodb", "DynamoDB_20120810.TransactWriteItems", TransactItems=items)

    assert pairs(request) == [
        ("dynamodb:PutItem", f"arn:aws:dynamodb:eu-west-1:{ACCOUNT}:table/runs"),
        ("dynamodb:UpdateItem", f"arn:aws:dynamodb:eu-west-1:{ACCOUNT}:table/state"),
    ]


def test_tags_on_new_tasks_are_an_action_of_their_own() -> None:
    request = operation(
        "ecs", "AmazonEC2ContainerServiceV20141113.RunTask", cluster="c", taskDefinition="f", tags=[{}]
    )

    assert [action for action, _ in pairs(request)] == ["ecs:RunTask", "ecs:TagResource"]


def test_who_calls_is_told_by_the_key_and_an_unsigned_request_is_nobodys() -> None:
    (call,) = calls_of(operation("sqs", "AmazonSQS.ReceiveMessage", QueueUrl="http://host/0/q"))

    assert call.caller == "worker"
    assert list(calls_of(Request(method="GET", path="/health", query="", headers={}))) == []


def test_what_is_called_again_and_again_is_written_once(tmp_path) -> None:
    recorder = Recorder(tmp_path / "calls.jsonl")
    for _ in range(3):
        recorder.record(signed("s3", method="GET", path="/b/a.pdf"))

    assert len((tmp_path / "calls.jsonl").read_text().splitlines()) == 1
    assert read_calls(tmp_path / "calls.jsonl") == {Call("worker", "s3:GetObject", "arn:aws:s3:::b/a.pdf")}
