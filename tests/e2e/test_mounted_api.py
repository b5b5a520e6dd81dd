"""The API inside a real Airflow: its users and roles, and uploads that a real scheduler has read."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import httpx
import pytest

from local_airflow.demo import Place
from local_airflow.up import Up, airflow_up
from samples.documents import text_pdf

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.timeout(900)

USERS = {"admin": "admin", "looker": "viewer", "nobody": ""}
WAIT_S = 300.0
UPLOAD = "/pdf-ops/v1/documents/upload-document"


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    folder = tmp_path_factory.mktemp("up")
    users = ",".join(f"{name}:{role}" for name, role in USERS.items())
    variables = {
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": users,
        "PDF_OPS_DOORBELL_WINDOW_S": "2",
    }
    with airflow_up(folder, port=0, variables=variables) as up:
        yield up


def client(up: Up, user: str | None) -> httpx.Client:
    headers = {}
    if user is not None:
        passwords = json.loads(next(up.log.parent.glob("passwords.json")).read_text())
        answer = httpx.post(
            f"{up.api.url}/auth/token",
            json={"username": user, "password": passwords[user]},
            trust_env=False,
        )
        headers = {"Authorization": f"Bearer {answer.json()['access_token']}"}
    return httpx.Client(base_url=up.api.url, headers=headers, trust_env=False, timeout=60)


def test_who_may_read_the_dag_may_read_and_who_may_trigger_it_may_upload(up: Up, tmp_path: Path):
    body = text_pdf(tmp_path / "text.pdf", 1).read_bytes()
    asked = {}
    for user in (None, "nobody", "looker"):
        with client(up, user) as http:
            asked[user] = (
                http.get("/pdf-ops/v1/runs").status_code,
                http.post(UPLOAD, files={"file": ("a.pdf", body)}).status_code,
                http.post("/pdf-ops/v1/redrive", json={}).status_code,
            )

    assert asked == {None: (401, 401, 401), "nobody": (403, 403, 403), "looker": (200, 403, 403)}


def test_an_upload_is_read_at_once_and_its_run_publishes_it(up: Up, tmp_path: Path):
    body = text_pdf(tmp_path / "text.pdf", 2).read_bytes()
    with client(up, "admin") as http:
        answer = http.post(UPLOAD, files={"file": ("Brief.pdf", body)})
        assert answer.status_code == 202, answer.text
        taken = answer.json()
        assert taken["is_doorbell_rung"], up.log.read_text()[-3_000:]
        deadline = time.monotonic() + WAIT_S
        while http.get(f"/pdf-ops/v1/jobs/{taken['job_id']}").json()["status"] != "completed":
            assert time.monotonic() < deadline, up.log.read_text()[-5_000:]
            time.sleep(1)
        text = http.get(f"/pdf-ops/v1/documents/{taken['job_id']}/text").text
        run = f"/api/v2/dags/pdf_ocr/dagRuns/{taken['run_id']}"
        while (state := http.get(run).json()["state"]) not in ("success", "failed"):
            assert time.monotonic() < deadline
            time.sleep(1)
        described = http.get(f"/pdf-ops/v1/runs/{taken['run_id']}").json()
        details = http.get(f"/pdf-ops/v1/runs/{taken['run_id']}/details").json()
        report = http.get(f"/pdf-ops/v1/runs/{taken['run_id']}/report")
        history = http.get(f"/pdf-ops/v1/documents/{taken['job_id']}/runs").json()["runs"]

    assert text.count("\f") == 1
    assert state == "success"
    # The API's message and the run's own are one document.
    assert described["outcomes"] == {"done": 1, "partial": 0, "failed": 0, "skipped": 0}
    assert (details["state"], details["is_live"], details["errors"]) == ("complete", False, [])
    assert sum(one["pages"] for one in details["throughput"]) == 2
    assert details["stages"]["total_ms"]["count"] == 2
    assert [one["pages"] for one in details["fleet"]] == [2]
    assert len(details["containers"]) == 1
    assert report.headers["content-type"].startswith("text/html")
    assert "sandbox" in report.headers["content-security-policy"]
    assert [(one["run_id"], one["status"], one["pages"]) for one in history] == [(taken["run_id"], "done", 2)]
    root = Place(up.aws.environment()).layout.pages_dataset()
    listed = up.aws.client("s3").list_objects_v2(Bucket=root.bucket, Prefix=root.key)["Contents"]
    assert len(listed) == 1


def test_a_redrive_starts_its_dag_in_the_callers_name(up: Up):
    with client(up, "admin") as http:
        counted = http.post("/pdf-ops/v1/redrive", json={"error_class": "TIMEOUT"})
        started = http.post("/pdf-ops/v1/redrive", json={"error_class": "TIMEOUT", "is_dry_run": False})
        assert started.status_code == 202, started.text
        run = http.get(f"/api/v2/dags/pdf_redrive/dagRuns/{started.json()['run_id']}").json()

    assert (counted.status_code, counted.json()["documents"]) == (200, 0)
    assert run["conf"] == {"error_class": "TIMEOUT", "limit": 10_000, "dry_run": False}
    assert run["triggering_user_name"] == "admin"


def test_a_redrive_that_asks_first_waits_for_a_person_and_ends_when_they_refuse(up: Up):
    run = {"logical_date": None, "conf": {"dry_run": False, "approval": True}}
    with client(up, "admin") as http:
        run_id = http.post("/api/v2/dags/pdf_redrive/dagRuns", json=run).json()["dag_run_id"]
        path = f"/api/v2/dags/pdf_redrive/dagRuns/{run_id}"
        asked = f"{path}/taskInstances/approve/-1/hitlDetails"
        deadline = time.monotonic() + WAIT_S
        while http.get(asked).status_code != 200:
            assert time.monotonic() < deadline, up.log.read_text()[-5_000:]
            time.sleep(1)
        subject = http.get(asked).json()["subject"]
        tasks = http.get(f"{path}/taskInstances").json()["task_instances"]
        before = {task["task_id"]: task["state"] for task in tasks}
        refused = http.patch(asked, json={"chosen_options": ["Reject"], "params_input": {}})
        assert refused.status_code == 200, refused.text
        while (state := http.get(path).json()["state"]) not in ("success", "failed"):
            assert time.monotonic() < deadline, up.log.read_text()[-5_000:]
            time.sleep(1)

    assert subject == "Send 0 documents round again?"
    assert before["enqueue"] is None
    assert state == "failed"


def test_pages_are_shown_to_whoever_may_read_the_dag(up: Up):
    shown = {}
    for user in (None, "nobody", "looker"):
        with client(up, user) as http:
            answer = http.get("/pdf-ops/pages/documents")
            shown[user] = answer.status_code
            assert answer.headers["content-type"].startswith("text/html")

    assert shown == {None: 401, "nobody": 403, "looker": 200}


def test_airflows_cookie_alone_starts_nothing(up: Up):
    with client(up, "admin") as http:
        token = str(http.headers.pop("Authorization")).partition(" ")[2]
        http.cookies.set("_token", token)
        looked = http.get("/pdf-ops/pages/runs").status_code
        alone = http.post("/pdf-ops/v1/redrive", json={})
        ours = http.post("/pdf-ops/v1/redrive", json={}, headers={"X-PDF-Ops-Page": "1"})

    assert (looked, alone.status_code, ours.status_code) == (200, 403, 200)


def test_the_documentation_is_served_below_the_prefix(up: Up):
    with client(up, None) as http:
        assert http.get("/pdf-ops/docs").status_code == 200
        assert http.get("/pdf-ops/health").json()["status"] == "ok"
        assert "/v1/redrive" in http.get("/pdf-ops/openapi.json").json()["paths"]
