from __future__ import annotations

import json
import logging
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest
from tests.support.runs import FakeTaskInstance, WrittenRun, moto_server

from pdf_ops.notifications.slack import slack_callbacks

if TYPE_CHECKING:
    from collections.abc import Iterator

SUMMARY = {
    "headline": "All 10 documents have an outcome; 2 failed and 1 are partial.",
    "outcomes": {"ok": 7, "partial": 1, "failed": 2, "skipped": 0},
    "page_rows": 31,
    "worst_errors": [{"label": "CORRUPT/truncated", "documents": 2}],
    "failed_tasks": [],
    "dead_letters": 2,
    "report_console_url": "https://console.example/report",
    "cost": {"total": 0.5, "waste": 0.1},
}


class Endpoint:
    """Slack's side: records what is posted, and answers what it is told to."""

    def __init__(self) -> None:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                endpoint.messages.append((self.path, json.loads(body)))
                self.send_response(endpoint.status)
                self.end_headers()
                self.wfile.write(b"ok" if endpoint.status == 200 else b"invalid_payload")

            def log_message(self, *_: object) -> None:
                pass

        self.messages: list[tuple[str, dict]] = []
        self.status = 200
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    @property
    def text(self) -> str:
        """All that a reader of the one message sees."""
        [(_, message)] = self.messages
        return message["text"] + "\n" + json.dumps(message["blocks"], ensure_ascii=False)


@pytest.fixture
def slack(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    endpoint = Endpoint()
    endpoint.thread.start()
    host, port = endpoint.server.server_address[:2]
    connection = {
        "conn_type": "slackwebhook",
        "host": f"http://{host}:{port}/services",
        "password": "T0/B0/secret",
    }
    monkeypatch.setenv("AIRFLOW_CONN_SLACK_TEST", json.dumps(connection))
    try:
        yield endpoint
    finally:
        endpoint.server.shutdown()
        endpoint.server.server_close()


class TaskInstanceWithXCom(FakeTaskInstance):
    def xcom_pull(self, *, task_ids: str) -> dict:
        assert task_ids == "report"
        return self.pushed


def context(summary: dict | None = None, **more) -> dict:
    ti = (
        TaskInstanceWithXCom("run <1>", pushed=summary)
        if summary is not None
        else FakeTaskInstance("run <1>")
    )
    return {"ti": ti, "run_id": "run <1>", **more}


def test_a_failure_is_told_once_with_reason_tasks_worst_errors_and_links(slack):
    callbacks = slack_callbacks(slack_conn_id="slack_test")

    callbacks.alert_on_failure(context(SUMMARY | {"failed_tasks": ["fleet (1 of 3)"]}, reason="task_failure"))

    assert slack.messages[0][0] == "/services/T0/B0/secret"
    for text in (
        "Failed: pdf_ocr",
        "2 failed and 1 are partial",
        "fleet (1 of 3)",
        "`CORRUPT/truncated` 2",
        "2 messages of this run",
        "<https://console.example/report|Report>",
        "<http://airflow.example/log|Logs>",
    ):
        assert text in slack.text
    assert "run &lt;1&gt;" in json.dumps(slack.messages[0][1]["blocks"])


def test_a_success_is_summed_up_once(slack):
    slack_callbacks(slack_conn_id="slack_test").summarise_on_success(context(SUMMARY))

    assert "Done: pdf_ocr" in slack.text
    assert "7 ok, 1 partial, 2 failed, 0 skipped; 31 page rows" in slack.text
    assert "$0.5000, of which $0.1000 wasted" in slack.text


def test_without_xcom_and_report_the_failing_task_and_the_reason_are_still_told(slack):
    callbacks = slack_callbacks(slack_conn_id="slack_test")

    callbacks.alert_on_failure(context(reason="task_failure", exception=ValueError("no such bucket")))

    for text in ("some_task", "task_failure", "no such bucket", "|Logs>"):
        assert text in slack.text


def test_a_context_without_a_task_instance_is_enough(slack):
    dag = type("Dag", (), {"dag_id": "pdf_ocr"})()

    slack_callbacks(slack_conn_id="slack_test").alert_on_failure(
        {"dag": dag, "run_id": "run-1", "reason": "timed_out"}
    )

    assert "Failed: pdf_ocr, run run-1" in slack.text
    assert "timed_out" in slack.text


def test_where_xcom_cannot_be_read_the_figures_come_from_the_report_in_s3(slack):
    with moto_server():
        run = WrittenRun("run <1>").create()
        report = {
            **dict.fromkeys(("state", "sent", "failed_ratio", "failure_threshold", "is_over_threshold")),
            "headline": "Read from S3.",
            "outcomes": {"ok": 3},
            "worst_errors": [],
            "failed_tasks": ["wait"],
            "links": {
                "report_html": "s3://b/r.html",
                "report_json": "s3://b/r",
                "report_console": "https://c",
            },
            "pages": {"rows": 9},
            "dead_letters": None,
            "cost": {"currency": "USD", "basis": "tasks", "total": 1.0, "waste": 0.0},
        }
        uri = run.layout.report_json(run.run_id)
        run.s3.put_object(Bucket=uri.bucket, Key=uri.key, Body=json.dumps(report).encode())
        callbacks = slack_callbacks(slack_conn_id="slack_test", layout=run.layout, aws_conn_id=None)

        callbacks.alert_on_failure(context())

    for text in ("Read from S3.", "wait", "3 ok; 9 page rows"):
        assert text in slack.text


@pytest.mark.parametrize("conn_id", [None, "", "no_such_connection"])
def test_nothing_is_sent_and_one_line_is_logged_when_slack_is_not_set_up(slack, caplog, conn_id):
    caplog.set_level(logging.INFO, "pdf_ops.notifications.slack")

    slack_callbacks(slack_conn_id=conn_id).summarise_on_success(context(SUMMARY))

    assert slack.messages == []
    ours = [record for record in caplog.records if record.name == "pdf_ops.notifications.slack"]
    assert len(ours) == 1
    assert "No Slack message" in ours[0].getMessage()


def test_slack_that_refuses_or_is_away_never_raises_and_its_secret_is_not_logged(slack, caplog):
    callbacks = slack_callbacks(slack_conn_id="slack_test")
    slack.status = 500
    callbacks.alert_on_failure(context(SUMMARY))
    slack.server.shutdown()
    slack.server.server_close()

    callbacks.alert_on_failure(context(SUMMARY))

    assert len(slack.messages) == 1
    assert caplog.text.count("could not be sent") == 2
    assert "secret" not in "".join(
        record.getMessage() for record in caplog.records if record.name.startswith("pdf_ops")
    )


def test_a_message_that_cannot_be_composed_never_raises(slack):
    slack_callbacks(slack_conn_id="slack_test").alert_on_failure(context({"outcomes": {"ok": "many"}}))

    assert slack.messages == []
