"""The local AWS refuses what a role may not do: else runs on it would prove nothing about the policies."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError
from tests.support.permissions import give, load_permissions, names_of
from tests.support.pipeline import Install, Pipeline
from tests.support.slack import SlackEndpoint

from local_aws import LocalAws
from local_aws.enforcing import SECRET
from local_aws.recording import Caller
from samples.documents import text_pdf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

RUN = "manual__2026-01-01T00:00:00+00:00"


@dataclass(frozen=True)
class Enforced:
    """A local AWS that refuses, and a pipeline's resources in it."""

    aws: LocalAws
    world: Pipeline

    def allow(self, *, but: tuple[str, str] | None = None) -> None:
        """Give all roles what they are to have, but for an action of the worker's on one kind of resource."""
        permissions = load_permissions(names_of(self.aws, self.world))
        kept = [one for one in permissions if ("worker", but) != (one.role, (one.action, one.resource))]
        assert len(kept) == len(permissions) - (but is not None)
        give(self.aws.client("iam"), kept)

    def as_(self, caller: Caller, service: str) -> Any:
        import boto3

        return boto3.client(
            service,
            endpoint_url=self.aws.endpoint_url,
            region_name=self.aws.region,
            aws_access_key_id=caller.value,
            aws_secret_access_key=SECRET,
        )

    def read(self, key: str, body: bytes) -> str:
        """What becomes of a document that a worker reads, with its error."""
        self.world.order(RUN, key, body)
        self.world.work(MAX_RETRIES=1, OUTPUT_S3_PREFIX=self.world.layout.output_prefix)
        state = self.world.state(key)
        assert state is not None
        error = f" {state.error_class}/{state.error_code}" if state.error_class else ""
        return f"{state.status.value}{error}"


@pytest.fixture(scope="module")
def enforced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Enforced]:
    folder = tmp_path_factory.mktemp("enforced")
    with (
        LocalAws(folder / "aws", port=0, ecs_port=0, is_enforced=True) as aws,
        SlackEndpoint() as slack,
        Pipeline(aws, Install.ours(folder), slack) as world,
    ):
        world.start_run(RUN, 3)
        yield Enforced(aws, world)


@pytest.mark.parametrize(
    ("missing", "becomes"),
    [
        (None, "done"),
        (("s3:PutObject", "page_files"), "failed TARGET/s3_put"),
        (("s3:GetObject", "input_objects"), "failed SOURCE/access_denied"),
    ],
    ids=["all", "without writing rows", "without reading documents"],
)
def test_a_worker_reads_with_its_permissions_and_not_without_one_of_them(
    enforced: Enforced, tmp_path: Path, missing: tuple[str, str] | None, becomes: str
) -> None:
    enforced.allow(but=missing)

    key = f"{becomes.replace('/', ' ')}.pdf"
    assert enforced.read(key, text_pdf(tmp_path / "a.pdf").read_bytes()) == becomes


REFUSED: dict[str, tuple[Caller, str, Callable[[Any, Pipeline], object]]] = {
    "change a document": (
        Caller.WORKER,
        "s3",
        lambda s3, world: s3.put_object(Bucket=world.input, Key="a.pdf", Body=b""),
    ),
    "write over the dataset": (
        Caller.WORKER,
        "s3",
        lambda s3, world: s3.put_object(Bucket=world.output, Key="data/pages/a.parquet", Body=b""),
    ),
    "read another's rows": (
        Caller.WORKER,
        "s3",
        lambda s3, world: s3.get_object(Bucket=world.output, Key="data/by_document/a.parquet"),
    ),
    "send itself documents": (
        Caller.WORKER,
        "sqs",
        lambda sqs, world: sqs.send_message(QueueUrl=world.queue, MessageBody="{}"),
    ),
    "send itself a batch of documents": (
        Caller.WORKER,
        "sqs",
        lambda sqs, world: sqs.send_message_batch(
            QueueUrl=world.queue, Entries=[{"Id": "1", "MessageBody": "{}"}]
        ),
    ),
    "read the whole state": (
        Caller.WORKER,
        "dynamodb",
        lambda dynamodb, world: dynamodb.scan(TableName=world.state_table),
    ),
    "delete an outcome in a transaction": (
        Caller.WORKER,
        "dynamodb",
        lambda dynamodb, world: dynamodb.transact_write_items(
            TransactItems=[
                {"Delete": {"TableName": world.runs_table, "Key": {name: {"S": "x"} for name in KEY}}}
            ]
        ),
    ),
    "give itself more": (
        Caller.WORKER,
        "iam",
        lambda iam, _: iam.put_user_policy(
            UserName="worker", PolicyName="more", PolicyDocument=json.dumps(EVERYTHING)
        ),
    ),
    "delete a document": (
        Caller.CONTROL_PLANE,
        "s3",
        lambda s3, world: s3.delete_object(Bucket=world.input, Key="a.pdf"),
    ),
    "take documents from the queue": (
        Caller.CONTROL_PLANE,
        "sqs",
        lambda sqs, world: sqs.receive_message(QueueUrl=world.queue),
    ),
    "read a document on ECS's behalf": (
        Caller.EXECUTION,
        "s3",
        lambda s3, world: s3.get_object(Bucket=world.input, Key="a.pdf"),
    ),
}
KEY = ("run_shard", "part")
EVERYTHING = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}],
}


@pytest.mark.parametrize("attempt", REFUSED)
def test_a_role_is_refused_what_it_is_not_allowed(enforced: Enforced, attempt: str) -> None:
    caller, service, call = REFUSED[attempt]
    enforced.allow()

    with pytest.raises(ClientError, match=r"AccessDenied|not authorized"):
        call(enforced.as_(caller, service), enforced.world)


def test_a_caller_with_a_wrong_secret_is_nobody(enforced: Enforced) -> None:
    import boto3

    enforced.allow()
    stranger = boto3.client(
        "sqs",
        endpoint_url=enforced.aws.endpoint_url,
        region_name=enforced.aws.region,
        aws_access_key_id=Caller.WORKER.value,
        aws_secret_access_key="guessed",
    )

    with pytest.raises(ClientError, match="signature"):
        stranger.receive_message(QueueUrl=enforced.world.queue)


def test_after_a_reset_policies_are_enforced_as_before(tmp_path: Path) -> None:
    with LocalAws(tmp_path / "aws", port=0, ecs_port=0, is_enforced=True) as aws:
        aws.reset()
        there = {user["UserName"] for user in aws.client("iam").list_users()["Users"]}

    assert there == set(Caller) - {Caller.ADMINISTRATOR}
