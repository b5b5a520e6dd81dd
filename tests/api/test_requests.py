"""Every request: who may, how errors look, what is logged, and that the API does what it documents."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.api import KEY, READ_ENTRY, READ_KEY, AirflowDouble, Api, upload

from pdf_ops.api.ids import encode

if TYPE_CHECKING:
    import httpx
    from tests.support.world import World

    from local_aws import LocalAws

CONFORMANCE = ("status_code", "content_type", "response_schema", "response_headers")
MISSING = encode("there/is/no.pdf")


def assert_problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert problem["status"] == status
    assert problem["request_id"] == answer.headers["x-request-id"]
    assert problem["detail"]
    return problem


@pytest.mark.parametrize("key", [None, "pdfops_not-a-key", "é".encode("latin-1").decode("latin-1")])
def test_without_a_known_key_it_is_401_and_says_how(api: Api, key: str | None):
    with api.client(None) as client:
        headers = {"Authorization": f"Bearer {key}".encode()} if key else {}
        answer = client.get("/v1/runs", headers=headers)

    assert_problem(answer, 401)
    assert answer.headers["www-authenticate"] == "Bearer"


def test_a_key_that_may_only_read_is_403_for_uploads_and_redrives(api: Api, text: bytes):
    with api.client(READ_KEY) as client:
        assert client.get("/v1/runs").status_code == 200
        assert_problem(upload(client, "a.pdf", text), 403)
        assert_problem(client.post("/v1/redrive", json={}), 403)


@pytest.mark.parametrize(
    "path",
    [
        f"/v1/jobs/{MISSING}",
        f"/v1/jobs/{MISSING}/events",
        f"/v1/documents/{MISSING}",
        f"/v1/documents/{MISSING}/pages",
        f"/v1/documents/{MISSING}/text",
        f"/v1/documents/{MISSING}/content",
        f"/v1/documents/{MISSING}/download",
        "/v1/documents/AAA",
        "/v1/runs/no-such-run",
        "/v1/nothing",
    ],
)
def test_what_is_not_there_is_404(client: httpx.Client, path: str):
    assert_problem(client.get(path), 404)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/documents/list-document?limit=0",
        "/v1/documents/list-document?limit=ten",
        "/v1/documents/list-document?status=lost",
        "/v1/documents/list-document?cursor=nonsense",
        "/v1/documents/list-document?offset=10001",
        "/v1/documents/list-document?date_from=yesterday",
        f"/v1/documents/{MISSING}/pages?from=3&to=2",
        f"/v1/documents/{MISSING}/pages?from=1&to=101",
    ],
)
def test_a_wrong_parameter_is_422_and_named(client: httpx.Client, path: str):
    name = path.partition("?")[2].partition("=")[0]

    assert name in assert_problem(client.get(path), 422)["detail"]


def test_an_id_of_the_callers_own_is_kept_if_it_is_harmless(client: httpx.Client):
    assert client.get("/health", headers={"X-Request-ID": "mine-1"}).headers["x-request-id"] == "mine-1"
    forged = client.get("/health", headers={"X-Request-ID": 'a","event":"forged'})
    assert "forged" not in forged.headers["x-request-id"]


def test_each_request_is_one_json_line_without_keys_or_queries(api: Api, client: httpx.Client):
    client.get("/v1/documents/list-document?filename=secret-name", headers={"X-Request-ID": "logged-1"})
    time.sleep(0.2)

    [line] = [line for line in api.requests() if line["request_id"] == "logged-1"]
    assert (line["service"], line["event"], line["method"]) == ("api", "request", "GET")
    assert (line["route"], line["status"]) == ("/v1/documents/list-document", 200)
    assert line["client"] == "key:tester"
    assert line["ms"] > 0
    assert KEY not in api.log.read_text()
    assert "secret-name" not in api.log.read_text()


def test_it_is_healthy_and_ready_without_a_key(api: Api):
    with api.client(None) as client:
        assert client.get("/health").json()["status"] == "ok"
        ready = client.get("/ready")

    assert (ready.status_code, set(ready.json()["checks"].values())) == (200, {"ok"})


def test_the_documentation_has_examples_and_names_every_route(client: httpx.Client):
    schema = client.get("/openapi.json").json()

    assert client.get("/docs").status_code == 200
    assert {
        "/v1/documents/upload-document",
        "/v1/documents/list-document",
        "/v1/jobs/{job_id}",
        "/v1/jobs/{job_id}/events",
        "/v1/documents/{document_id}/content",
        "/v1/runs/{run_id}",
        "/v1/redrive",
    } <= set(schema["paths"])
    assert schema["components"]["schemas"]["Job"]["properties"]["job_id"]["examples"]


@pytest.mark.parametrize("name", ["job_id", "document_id"])
def test_no_answer_may_be_sniffed_or_framed_by_others(client: httpx.Client, name: str):
    path = f"/v1/jobs/{MISSING}" if name == "job_id" else f"/v1/documents/{MISSING}"
    headers = client.get(path).headers

    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-security-policy"] == "frame-ancestors 'self'"


def serve(*arguments: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pdf_ops.cli", "api", "--port", "1", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("arguments", "keys", "said"),
    [
        ((), "", "there is no API key"),
        ((), "tester:read:not-a-hash", "cannot be used"),
        (("--insecure-local", "--host", "0.0.0.0"), "", "for this machine only"),
    ],
)
def test_it_refuses_to_start_where_anybody_could_ask(
    api: Api, arguments: tuple[str, ...], keys: str, said: str
):
    ended = serve(*arguments, environment=api._environment | {"PDF_OPS_API_KEYS": keys})

    assert ended.returncode == 2
    assert said in ended.stderr
    assert "not-a-hash" not in ended.stderr


def test_settings_that_cannot_be_used_are_all_named_at_once(api: Api):
    wrong = {"PDF_OPS_RATE_CAPACITY": "0", "PDF_OPS_REDIS_URL": "localhost"}

    ended = serve(environment=api._environment | wrong)

    assert ended.returncode == 2
    assert all(name in ended.stderr for name in wrong)


def test_keys_may_be_in_secrets_manager(local_aws: LocalAws, world: World, tmp_path: Path):
    secret = f"{world.input}-keys"
    local_aws.client("secretsmanager").create_secret(Name=secret, SecretString=f"# ours\n{READ_ENTRY}\n")
    with Api(local_aws, world, tmp_path, API_KEYS="", API_KEYS_SECRET=secret) as api:
        with api.client(READ_KEY) as client:
            assert client.get("/v1/runs").status_code == 200
        with api.client(KEY) as client:
            assert_problem(client.get("/v1/runs"), 401)


def test_when_aws_does_not_play_along_it_is_503_and_not_ready(
    local_aws: LocalAws, world: World, tmp_path: Path
):
    api = Api(local_aws, world, tmp_path)
    api._environment["AIRFLOW__PDF_OPS__DYNAMO_TABLE_NAME"] = "no-such-table"
    with api, api.client() as client:
        answer = client.get(f"/v1/jobs/{MISSING}")
        ready = client.get("/ready")

    problem = assert_problem(answer, 503)
    assert f"request {problem['request_id']}: AWS refused a call" in api.log.read_text()
    assert ready.status_code == 503
    assert ready.json()["checks"]["queue"] == "ok"
    assert ready.json()["checks"]["state_table"] != "ok"


def run_schemathesis(api: Api, *arguments: str) -> None:
    """Have schemathesis make requests from the OpenAPI document, right and wrong ones."""
    ran = subprocess.run(
        [
            str(Path(sys.executable).with_name("schemathesis")),
            "run",
            f"{api.url}/openapi.json",
            "--header",
            f"Authorization: Bearer {KEY}",
            "--max-examples",
            "15",
            "--seed",
            "1",
            "--checks",
            "not_a_server_error," + ",".join(f"{name}_conformance" for name in CONFORMANCE),
            "--no-color",
            *arguments,
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
        env={name: value for name, value in api._environment.items() if not name.lower().endswith("_proxy")},
        cwd=api.log.parent,
    )
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]


@pytest.mark.timeout(600)
def test_it_does_what_its_documentation_says_whatever_it_is_asked(
    local_aws: LocalAws, world: World, tmp_path: Path, text: bytes
):
    with (
        AirflowDouble() as airflow,
        # Events of a job that is pending go on for an hour.
        Api(local_aws, world, tmp_path, **airflow.settings) as api,
        api.client() as client,
    ):
        document = upload(client, "known.pdf", text).json()["job_id"]
        run_schemathesis(api, "--exclude-path-regex", "events$")
        world.work()
        # And about a document that has been read.
        settings = f'[parameters]\n"path.document_id" = "{document}"\n"path.job_id" = "{document}"\n'
        (tmp_path / "schemathesis.toml").write_text(settings)
        assert client.get(f"/v1/documents/{document}/pages").status_code == 200
        run_schemathesis(api, "--include-path-regex", "document_id|job_id")
