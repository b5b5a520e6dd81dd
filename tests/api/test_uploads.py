"""Uploads: taken as they come, stored once, read at once; and what is refused."""

from __future__ import annotations

import json
import os
import random
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from tests.api.test_requests import assert_problem
from tests.support.api import KEY, AirflowDouble, Api, upload

from pdf_ops.api.ids import decode
from pdf_ops.contract.messages import parse_message

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx
    from tests.support.world import World

    from local_aws import LocalAws

PNG = b"\x89PNG\r\n\x1a\n"
PATH = "/v1/documents/upload-document"
BOUNDARY = b"a-boundary"


def fresh_pdf(size: int = 2_000) -> bytes:
    """Bytes that begin like a PDF and that nobody has uploaded before."""
    return b"%PDF-1.7\n" + random.randbytes(size)


def messages(world: World) -> list[Any]:
    found = []
    while received := world.sqs.receive_message(QueueUrl=world.queue, MaxNumberOfMessages=10).get("Messages"):
        for message in received:
            found += parse_message(message["Body"])
            world.sqs.delete_message(QueueUrl=world.queue, ReceiptHandle=message["ReceiptHandle"])
    return found


def open_uploads(world: World) -> list[Any]:
    return list(world.s3.list_multipart_uploads(Bucket=world.input).get("Uploads", []))


def objects(world: World) -> set[str]:
    listed = world.s3.list_objects_v2(Bucket=world.input).get("Contents", [])
    return {item["Key"] for item in listed}


def test_an_upload_is_stored_known_and_queued(client: httpx.Client, world: World):
    body = fresh_pdf()
    messages(world)

    answer = upload(client, "My letter.pdf", body)

    assert answer.status_code == 202, answer.text
    taken = answer.json()
    assert (taken["status"], taken["is_new"], taken["filename"]) == ("pending", True, "My letter.pdf")
    assert (taken["content_type"], taken["size_bytes"]) == ("application/pdf", len(body))
    key = decode(taken["job_id"])
    assert world.s3.get_object(Bucket=world.input, Key=key)["Body"].read() == body
    [message] = messages(world)
    assert (message.bucket, message.key, message.size) == (world.input, key, len(body))
    assert message.etag == world.s3.head_object(Bucket=world.input, Key=key)["ETag"].strip('"')
    job = client.get(f"/v1/jobs/{taken['job_id']}").json()
    assert (job["status"], job["pages_done"], job["pages_total"], job["error"]) == ("pending", 0, None, None)


@pytest.mark.parametrize(
    ("head", "content_type", "suffix"),
    [
        (b"%PDF-1.4", "application/pdf", ".pdf"),
        (PNG, "image/png", ".png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg", ".jpg"),
        (b"II*\x00", "image/tiff", ".tiff"),
    ],
)
def test_what_a_file_is_goes_by_its_bytes_and_not_by_its_name(
    client: httpx.Client, head: bytes, content_type: str, suffix: str
):
    taken = upload(client, "misleading.txt", head + random.randbytes(50)).json()

    assert taken["content_type"] == content_type
    assert decode(taken["job_id"]).endswith(suffix)


def test_anything_else_is_415_and_not_stored(client: httpx.Client, world: World):
    before = objects(world)

    assert_problem(upload(client, "page.pdf", b"<html>" + random.randbytes(3_000)), 415)
    assert_problem(client.post(PATH, content=b"%PDF-", headers={"Content-Type": "application/pdf"}), 415)

    assert objects(world) == before


def test_a_form_without_a_file_or_with_an_empty_one_is_422(client: httpx.Client):
    assert_problem(client.post(PATH, files={"other": ("a.pdf", b"%PDF-")}), 422)
    assert_problem(upload(client, "empty.pdf", b""), 422)
    broken = client.post(
        PATH, content=b"no form", headers={"Content-Type": "multipart/form-data; boundary=x"}
    )
    assert_problem(broken, 422)


def test_too_large_is_413_whether_the_length_is_told_or_not(client: httpx.Client, world: World):
    body = fresh_pdf(14 * 2**20)
    told = upload(client, "large.pdf", body)
    part = b"--%s\r\nContent-Disposition: form-data; name=file; filename=a.pdf\r\n\r\n" % BOUNDARY
    headers = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY.decode()}"}

    def stream() -> Iterator[bytes]:
        yield part
        for start in range(0, len(body), 2**20):
            yield body[start : start + 2**20]
        yield b"\r\n--%s--\r\n" % BOUNDARY

    untold = client.post(PATH, content=stream(), headers=headers)

    assert_problem(told, 413)
    assert_problem(untold, 413)
    assert open_uploads(world) == []


def test_a_large_upload_goes_in_parts_and_arrives_whole(client: httpx.Client, world: World):
    body = fresh_pdf(10 * 2**20)

    taken = upload(client, "large.pdf", body).json()

    key = decode(taken["job_id"])
    assert world.s3.get_object(Bucket=world.input, Key=key)["Body"].read() == body
    assert open_uploads(world) == []


def test_the_same_content_is_the_same_job_and_is_read_once(client: httpx.Client, world: World):
    body = fresh_pdf()
    first = upload(client, "first.pdf", body).json()
    messages(world)
    before = objects(world)

    again = upload(client, "second.pdf", body).json()

    assert (again["job_id"], again["is_new"], again["filename"]) == (first["job_id"], False, "first.pdf")
    assert objects(world) == before
    assert messages(world) == []


def test_a_document_that_was_removed_can_be_uploaded_again(client: httpx.Client, world: World):
    body = fresh_pdf()
    first = upload(client, "a.pdf", body).json()
    key = {"s3_key": {"S": decode(first["job_id"])}}
    world.dynamodb.delete_item(TableName=world.state_table, Key=key)

    again = upload(client, "a.pdf", body)

    assert (again.status_code, again.json()["is_new"]) == (202, True)
    assert again.json()["job_id"] != first["job_id"]


def test_the_same_content_by_many_at_once_is_one_job(api: Api, world: World):
    body = fresh_pdf()
    before = objects(world)
    messages(world)

    def send(_: int) -> httpx.Response:
        with api.client() as one:
            return upload(one, "twin.pdf", body)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(send, range(8)))

    assert [answer.status_code for answer in answers] == [202] * 8
    assert len({answer.json()["job_id"] for answer in answers}) == 1
    assert sum(answer.json()["is_new"] for answer in answers) == 1
    assert len(objects(world) - before) == 1
    assert len(messages(world)) == 1


def test_an_idempotency_key_gives_the_same_job_and_is_409_with_another_content(client: httpx.Client):
    name, body = os.urandom(8).hex(), fresh_pdf()

    first = upload(client, "a.pdf", body, **{"Idempotency-Key": name})
    again = upload(client, "a.pdf", body, **{"Idempotency-Key": name})
    other = upload(client, "a.pdf", fresh_pdf(), **{"Idempotency-Key": name})

    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json()["job_id"] == again.json()["job_id"]
    assert_problem(other, 409)


def test_an_upload_that_was_refused_does_not_use_up_its_idempotency_key(client: httpx.Client):
    name = os.urandom(8).hex()

    assert_problem(upload(client, "a.pdf", b"nonsense", **{"Idempotency-Key": name}), 415)
    assert upload(client, "a.pdf", fresh_pdf(), **{"Idempotency-Key": name}).status_code == 202


def test_a_client_that_vanishes_leaves_nothing_and_the_api_goes_on(
    api: Api, client: httpx.Client, world: World
):
    before = objects(world)
    name = os.urandom(8).hex()
    with socket.create_connection(("127.0.0.1", api.port)) as connection:
        connection.sendall(head_of(12_000_000, f"Idempotency-Key: {name}\r\n") + fresh_pdf(9 * 2**20))
        wait_until(lambda: open_uploads(world) != [])

    wait_until(lambda: open_uploads(world) == [])
    assert objects(world) == before
    assert upload(client, "a.pdf", fresh_pdf(), **{"Idempotency-Key": name}).status_code == 202


def test_a_client_that_hangs_up_before_the_answer_has_its_whole_document_or_nothing(api: Api, world: World):
    """Whether the API still hears the end of what was sent is chance; half a document is not."""
    messages(world)
    before, answered, hang_ups = objects(world), len(upload_requests(api)), 12
    for number in range(hang_ups):
        body = fresh_pdf() + b"\r\n--%s--\r\n" % BOUNDARY
        around = head_of(0).split(b"\r\n\r\n", 1)[1]
        with socket.create_connection(("127.0.0.1", api.port)) as connection:
            connection.sendall(head_of(len(around) + len(body)) + body)
            time.sleep(number * 0.005)
            if number == hang_ups - 1:
                connection.recv(1)
    wait_until(lambda: len(upload_requests(api)) == answered + hang_ups)

    made = objects(world) - before
    assert made
    assert {message.key for message in messages(world)} == made
    assert {state.s3_key for state in world.states().values() if state.s3_key in made} == made
    assert open_uploads(world) == []


def upload_requests(api: Api) -> list[dict[str, Any]]:
    return [request for request in api.requests() if request["route"] == PATH]


def head_of(length: int, headers: str = "") -> bytes:
    """The beginning of an upload, up to its file's first byte."""
    return (
        f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n"
        f"Content-Type: multipart/form-data; boundary={BOUNDARY.decode()}\r\n"
        f"{headers}Content-Length: {length}\r\n\r\n"
        f'--{BOUNDARY.decode()}\r\nContent-Disposition: form-data; name="file"; filename="a.pdf"\r\n\r\n'
    ).encode()


def wait_until(condition: Any, timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.timeout(300)
def test_a_large_upload_does_not_grow_the_process(
    local_aws: LocalAws, world: World, tmp_path: Path, pytestconfig: pytest.Config
):
    """The emulator holds what it is given in memory; 300 MB are 37 parts, of which none may stay."""
    size = 300 * 2**20
    block = random.randbytes(2**20)
    with Api(local_aws, world, tmp_path) as api, api.client() as client:
        upload(client, "warm.pdf", fresh_pdf(17 * 2**20))
        process = api.process()
        before = peak = process.memory_info().rss
        part = b"--%s\r\nContent-Disposition: form-data; name=file; filename=a.pdf\r\n\r\n" % BOUNDARY

        def stream() -> Iterator[bytes]:
            nonlocal peak
            yield part + b"%PDF-1.7\n" + os.urandom(16)
            for _ in range(size // len(block)):
                yield block
                peak = max(peak, process.memory_info().rss)
            yield b"\r\n--%s--\r\n" % BOUNDARY

        answer = client.post(
            PATH,
            content=stream(),
            headers={"Content-Type": f"multipart/form-data; boundary={BOUNDARY.decode()}"},
            timeout=250,
        )
        peak = max(peak, process.memory_info().rss)
        key = decode(answer.json()["job_id"])
        stored = world.s3.head_object(Bucket=world.input, Key=key)["ContentLength"]
        world.s3.delete_object(Bucket=world.input, Key=key)

    assert stored == size + 25
    assert peak - before < 50 * 2**20, f"{(peak - before) / 2**20:.0f} MB"


# --- the doorbell --------------------------------------------------------------


def test_uploads_of_a_window_share_one_run_that_begins_after_it(
    local_aws: LocalAws, world: World, tmp_path: Path
):
    messages(world)
    with (
        AirflowDouble() as airflow,
        Api(local_aws, world, tmp_path, DOORBELL_WINDOW_S=3_600, **airflow.settings) as api,
        api.client() as client,
    ):
        taken = [upload(client, f"{number}.pdf", fresh_pdf()).json() for number in range(3)]

    [run] = airflow.runs
    assert run["path"] == "/api/v2/dags/pdf_ocr/dagRuns"
    assert {one["run_id"] for one in taken} == {run["dag_run_id"]}
    assert all(one["is_doorbell_rung"] for one in taken)
    assert all(decode(one["job_id"]).startswith(run["conf"]["prefix"]) for one in taken)
    # Forced: the run also publishes what a worker has read by the time it lists.
    assert run["conf"]["force"] is True
    assert datetime.fromisoformat(run["run_after"]) > datetime.now(UTC)
    assert {message.run_id for message in messages(world)} == {run["dag_run_id"]}
    assert airflow.logins == 1


def test_a_large_upload_has_a_run_of_its_own(local_aws: LocalAws, world: World, tmp_path: Path):
    with (
        AirflowDouble() as airflow,
        Api(local_aws, world, tmp_path, DOORBELL_WINDOW_S=3_600, **airflow.settings) as api,
        api.client() as client,
    ):
        small = upload(client, "small.pdf", fresh_pdf()).json()
        large = upload(client, "large.pdf", fresh_pdf(9 * 2**20)).json()

    assert small["run_id"] != large["run_id"]
    assert airflow.runs[1]["conf"]["prefix"] == decode(large["job_id"])


def test_a_login_that_has_expired_is_renewed(local_aws: LocalAws, world: World, tmp_path: Path):
    with (
        AirflowDouble() as airflow,
        Api(local_aws, world, tmp_path, DOORBELL_WINDOW_S=1, **airflow.settings) as api,
        api.client() as client,
    ):
        upload(client, "a.pdf", fresh_pdf())
        airflow.is_token_expired = True
        time.sleep(1.1)
        taken = upload(client, "b.pdf", fresh_pdf()).json()

    assert (taken["is_doorbell_rung"], airflow.logins) == (True, 2)


@pytest.mark.parametrize("is_up", [True, False])
def test_without_airflow_an_upload_is_taken_all_the_same_and_counted_in_no_run(
    local_aws: LocalAws, world: World, tmp_path: Path, is_up: bool
):
    messages(world)
    with AirflowDouble(status=500) as airflow:
        settings = airflow.settings if is_up else airflow.settings | {"AIRFLOW_URL": "http://127.0.0.1:9"}
        with Api(local_aws, world, tmp_path, **settings) as api, api.client() as client:
            answer = upload(client, "a.pdf", fresh_pdf())

    assert (answer.status_code, answer.json()["is_doorbell_rung"]) == (202, False)
    [message] = messages(world)
    assert message.run_id is None
    assert json.loads(message.to_json())["s3_key"] == decode(answer.json()["job_id"])
