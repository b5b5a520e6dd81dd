"""One Slack message a run: an alert when it failed, a summary when it succeeded. One when dead letters grow.

Plain functions for the DAG's own callbacks: a notifier object there breaks ``airflow dags test``.
A message that cannot be sent is logged and forgotten, so that it never hides what it reports.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pdf_ops.contract.layout import Layout
    from pdf_ops.letters_watch import Growth

    Callback = Callable[[Mapping[str, Any]], None]

log = logging.getLogger(__name__)

TIMEOUT_S = 10
MAX_TEXT_CHARS = 2_900
"""A section of a Slack message takes 3,000 characters."""


class SlackCallbacks(NamedTuple):
    """What a DAG takes as ``on_failure_callback`` and ``on_success_callback``."""

    alert_on_failure: Callback
    summarise_on_success: Callback


def slack_callbacks(
    *,
    slack_conn_id: str | None,
    layout: Layout | None = None,
    aws_conn_id: str | None = "aws_default",
    region_name: str | None = None,
    report_task_id: str = "report",
) -> SlackCallbacks:
    """Make the two callbacks of a DAG.

    :param slack_conn_id: The Slack webhook connection; without one, nothing is sent.
    :param layout: Where runs write; the report is read from there where XCom cannot be, as in
        ``airflow dags test``.
    :param aws_conn_id: The Airflow connection used to read the report.
    :param region_name: The AWS region, if not the connection's.
    :param report_task_id: The task that returns the report's summary.
    """

    def summary_of(context: Mapping[str, Any]) -> dict[str, Any]:
        return _from_xcom(context, report_task_id) or _from_s3(context, layout, aws_conn_id, region_name)

    def alert_on_failure(context: Mapping[str, Any]) -> None:
        """Say that the run failed, why, and where to look."""
        _send(slack_conn_id, lambda: failure_message(context, summary_of(context)))

    def summarise_on_success(context: Mapping[str, Any]) -> None:
        """Say what the run did."""
        _send(slack_conn_id, lambda: success_message(context, summary_of(context)))

    return SlackCallbacks(alert_on_failure, summarise_on_success)


def send_growth(slack_conn_id: str | None, growth: Growth) -> bool:
    """Say that the dead-letter queue has grown; False if that could not be said."""
    return _send(slack_conn_id, lambda: growth_message(growth))


def _send(slack_conn_id: str | None, compose: Callable[[], tuple[str, list[dict[str, Any]]]]) -> bool:
    if not slack_conn_id:
        log.info("No Slack message: no connection is configured")
        return False
    try:
        from airflow.providers.slack.hooks.slack_webhook import SlackWebhookHook
        from airflow.sdk.exceptions import AirflowNotFoundException

        text, blocks = compose()
        hook: Any = SlackWebhookHook(slack_webhook_conn_id=slack_conn_id, timeout=TIMEOUT_S)
        try:
            hook.get_conn()
        except AirflowNotFoundException:
            log.info("No Slack message: there is no connection %r", slack_conn_id)
            return False
        hook.send(text=text, blocks=blocks)
    except Exception as error:  # noqa: BLE001 -- whatever is wrong with Slack, the run's own state counts
        # The URL in an error holds the webhook's secret, hence its type alone.
        log.warning("The Slack message could not be sent: %s", type(error).__name__)
        return False
    return True


def failure_message(
    context: Mapping[str, Any], summary: Mapping[str, Any]
) -> tuple[str, list[dict[str, Any]]]:
    """The text and the blocks of an alert."""
    dag_id, run_id = _names(context)
    tasks = list(summary.get("failed_tasks", ())) or _task_of(context)
    text = f"Failed: {dag_id}, run {run_id}"
    reason = summary.get("headline") or _gate_reasons(context) or context.get("reason") or "a task failed"
    lines = [f"*Reason:* {_safe(str(reason))}"]
    if context.get("exception"):
        lines.append(f"*Error:* {_safe(str(context['exception']))}")
    if tasks:
        lines.append(f"*Failed:* {_safe(', '.join(tasks))}")
    return text, _blocks(f":red_circle: {text}", lines, context, summary)


def success_message(
    context: Mapping[str, Any], summary: Mapping[str, Any]
) -> tuple[str, list[dict[str, Any]]]:
    """The text and the blocks of a summary."""
    dag_id, run_id = _names(context)
    text = f"Done: {dag_id}, run {run_id}"
    lines = [_safe(summary["headline"])] if summary.get("headline") else []
    return text, _blocks(f":white_check_mark: {text}", lines, context, summary)


def growth_message(growth: Growth) -> tuple[str, list[dict[str, Any]]]:
    """The text and the blocks of an alert about dead letters."""
    text = f"Dead letters: {growth.unexplained:,} more that no run has reported, {growth.letters:,} in all"
    lines = []
    if growth.by_error:
        worst = ", ".join(f"`{label}` {count:,}" for label, count in growth.by_error)
        lines.append(f"*Errors:* {_safe(worst)} (of {growth.looked_at:,} looked at)")
    if growth.explained:
        lines.append(f"*Besides:* {growth.explained:,} that runs report")
    lines.append("*What to do:* `pdf-ops failed`, then `pdf-ops redrive`, or the DAG `pdf_redrive`")
    blocks = [
        {"type": "section", "text": {"type": "mrkdwn", "text": f"*:envelope: {text}*"}},
        {"type": "section", "text": {"type": "mrkdwn", "text": "\n".join(lines)[:MAX_TEXT_CHARS]}},
    ]
    return text, blocks


def _blocks(
    title: str, lines: list[str], context: Mapping[str, Any], summary: Mapping[str, Any]
) -> list[dict[str, Any]]:
    lines = [*lines, *_figures(summary)]
    links = []
    if summary.get("report_console_url"):
        links.append(f"<{summary['report_console_url']}|Report>")
    log_url = getattr(context.get("ti"), "log_url", None)
    if log_url:
        links.append(f"<{log_url}|Logs>")
    blocks: list[dict[str, Any]] = [
        {"type": "section", "text": {"type": "mrkdwn", "text": f"*{_safe(title)}*"[:MAX_TEXT_CHARS]}}
    ]
    if lines:
        text = "\n".join(lines)[:MAX_TEXT_CHARS]
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": text}})
    if links:
        blocks.append({"type": "context", "elements": [{"type": "mrkdwn", "text": " · ".join(links)}]})
    return blocks


def _figures(summary: Mapping[str, Any]) -> list[str]:
    lines = []
    if any((summary.get("outcomes") or {}).values()):
        counts = ", ".join(f"{count:,} {name}" for name, count in summary["outcomes"].items())
        lines.append(f"*Documents:* {counts}; {summary.get('page_rows', 0):,} page rows")
    if summary.get("worst_errors"):
        worst = ", ".join(f"`{item['label']}` {item['documents']:,}" for item in summary["worst_errors"])
        lines.append(f"*Worst errors:* {worst}")
    if summary.get("dead_letters"):
        lines.append(f"*Dead-letter queue:* {summary['dead_letters']:,} messages of this run")
    cost = summary.get("cost")
    if cost and cost["total"]:
        lines.append(f"*Cost:* ${cost['total']:,.4f}, of which ${cost['waste']:,.4f} wasted")
    return lines


def _safe(text: str) -> str:
    """Slack's own control characters, which a key may hold."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _names(context: Mapping[str, Any]) -> tuple[str, str]:
    dag, ti = context.get("dag"), context.get("ti")
    dag_id = getattr(dag, "dag_id", None) or getattr(ti, "dag_id", "")
    return str(dag_id), _run_id(context)


def _run_id(context: Mapping[str, Any]) -> str:
    return str(context.get("run_id") or getattr(context.get("ti"), "run_id", ""))


def _task_of(context: Mapping[str, Any]) -> list[str]:
    task_id = getattr(context.get("ti"), "task_id", None)
    return [str(task_id)] if task_id else []


def _from_xcom(context: Mapping[str, Any], task_id: str) -> dict[str, Any]:
    """What the report task returned; nothing where a callback cannot ask for it."""
    try:
        found = context["ti"].xcom_pull(task_ids=task_id)
    except Exception as error:  # noqa: BLE001 -- in `airflow dags test` there is nobody to ask
        log.debug("No XCom here: %s", error)
        return {}
    return found if isinstance(found, dict) else {}


def _gate_reasons(context: Mapping[str, Any]) -> str:
    """What the gate found, where there is no report: a run that a person ended has none."""
    from pdf_ops.operators.gate import REASONS_KEY

    try:
        ti = context["ti"]
        found = ti.xcom_pull(task_ids=ti.task_id, key=REASONS_KEY)
    except Exception as error:  # noqa: BLE001 -- as above
        log.debug("No XCom here: %s", error)
        return ""
    return "; ".join(map(str, found)) if isinstance(found, list) else ""


def _from_s3(
    context: Mapping[str, Any], layout: Layout | None, aws_conn_id: str | None, region_name: str | None
) -> dict[str, Any]:
    """The same figures from the report itself."""
    if layout is None:
        return {}
    try:
        from pdf_ops.objects import ObjectStore
        from pdf_ops.reporting.content import summarise

        store = ObjectStore(aws_conn_id=aws_conn_id, region_name=region_name)
        data = store.read(layout.report_json(_run_id(context)))
        report: dict[str, Any] = json.loads(data or b"{}")
    except Exception as error:  # noqa: BLE001 -- a shorter message is better than none
        log.warning("The report could not be read: %s", error)
        return {}
    return summarise(report) if report else {}
