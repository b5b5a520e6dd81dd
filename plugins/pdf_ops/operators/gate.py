"""The last task of a run: it decides whether the run succeeded.

The tasks before it run whatever happened, so that there is a report; without a gate their success
would hide a failure. Not for judging documents: the report has counted those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseOperator, TriggerRule
from airflow.sdk.exceptions import AirflowFailException

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from airflow.sdk import Context

REASONS_KEY = "reasons"


class RunFailedError(AirflowFailException):
    """The run did not do what it should; the reasons say why.

    Attributes:
        reasons: One sentence each.
    """

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__(list(reasons))
        self.reasons = list(reasons)

    def __str__(self) -> str:
        """Give all reasons."""
        return "the run failed: " + "; ".join(self.reasons)


class GateOperator(BaseOperator):
    """Fail the run if a task before this one failed, if too many documents did, or if it was ended by hand.

    Make it a teardown with ``on_failure_fail_dagrun``: Airflow skips every other task that has not started
    when a person marks a run as failed, and a run whose last task is skipped has succeeded.
    Teardown tasks do not count: that a container could not be stopped is no reason to distrust the rows.
    The reasons are also in the XCom ``reasons``.

    :param report: What the report task returned. (templated)
    :param optional: Tasks that may fail without failing the run.
    :param failure_threshold: The share of failed documents, 0 to 1, that the run may have; the report's
        own if not given. (templated)
    """

    template_fields: Sequence[str] = ("report", "failure_threshold")
    template_fields_renderers: ClassVar[dict[str, str]] = {"report": "json"}
    ui_color = "#ffe6cc"

    def __init__(
        self,
        *,
        report: Any = None,
        optional: Sequence[str] = (),
        failure_threshold: float | str | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("trigger_rule", TriggerRule.ALL_DONE)
        super().__init__(**kwargs)
        self.report = report
        self.optional = frozenset(optional)
        self.failure_threshold = failure_threshold

    def execute(self, context: Context) -> dict[str, Any]:
        """Look at the tasks before this one and at the report.

        Raises:
            RunFailedError: With every reason there is.
        """
        ti: Any = context["ti"]
        reasons = [f"task {name} failed" for name in failed_tasks(context, upstream_of(self) - self.optional)]
        for name in failed_tasks(context, self.optional):
            self.log.warning("Task %s failed; the run does not depend on it", name)
        reasons += self._ended_early(context) + self._failure() + self._too_many_failures()
        if reasons:
            ti.xcom_push(key=REASONS_KEY, value=reasons)
            raise RunFailedError(reasons)
        self.log.info("Every task before this one did its work, and failures are within the threshold")
        return {"is_successful": True}

    def _failure(self) -> list[str]:
        """What the failed wait said; its task's name alone would explain nothing."""
        failure = self.report.get("failure") if isinstance(self.report, dict) else None
        return [failure] if failure else []

    def _ended_early(self, context: Context) -> list[str]:
        """Say so if a task right before this one was skipped: only who ends a run by hand does that."""
        states = task_states(context)
        before = upstream_of(self) & self.upstream_task_ids
        skipped = sorted(name for name in before if states.get(name) == "skipped")
        return [f"the run was ended by hand, before {name}" for name in skipped]

    def _too_many_failures(self) -> list[str]:
        report = self.report if isinstance(self.report, dict) else {}
        outcomes: Mapping[str, int] = report.get("outcomes") or {}
        given = self.failure_threshold
        threshold = report.get("failure_threshold") if given in (None, "", "None") else float(str(given))
        total, failed = sum(outcomes.values()), outcomes.get("failed", 0)
        if threshold is None or not total or failed / total <= threshold:
            return []
        worst = ", ".join(f"{item['documents']} {item['label']}" for item in report.get("worst_errors", ()))
        return [
            f"{failed} of {total} documents failed ({failed / total:.1%}), "
            f"and the threshold is {threshold:.1%}" + (f": {worst}" if worst else "")
        ]


def upstream_of(task: Any) -> set[str]:
    """The ids of all tasks before a task, teardowns left out."""
    found: set[str] = set()
    waiting = list(task.upstream_task_ids)
    while waiting:
        task_id = waiting.pop()
        if task_id not in found:
            found.add(task_id)
            waiting += task.dag.get_task(task_id).upstream_task_ids
    return {task_id for task_id in found if not task.dag.get_task(task_id).is_teardown}


def task_states(context: Context | Mapping[str, Any]) -> dict[str, str]:
    """The states of this run's task instances; a mapped one is named ``task_id_<index>``."""
    ti: Any = context["ti"]
    states: Mapping[str, Any] = ti.get_task_states(dag_id=ti.dag_id, run_ids=[ti.run_id]).get(ti.run_id, {})
    return {name: str(getattr(state, "value", state)) for name, state in states.items()}


def failed_tasks(context: Context | Mapping[str, Any], task_ids: Iterable[str]) -> list[str]:
    """Which of these tasks failed in this run; mapped ones with how many of their instances.

    Tasks that could not start because another failed are named only if no other is.
    """
    wanted = set(task_ids)
    by_task: dict[str, list[str]] = {}
    for name, state in task_states(context).items():
        # A mapped instance is named task_id_<index>, and a task's own name may end in a number too.
        stem, _, index = name.rpartition("_")
        task_id = name if name in wanted else stem if stem in wanted and index.isdecimal() else None
        if task_id is not None:
            by_task.setdefault(task_id, []).append(state)
    found = _named(by_task, "failed")
    return found or _named(by_task, "upstream_failed")


def _named(by_task: Mapping[str, Sequence[str]], state: str) -> list[str]:
    named = []
    for task_id, states in sorted(by_task.items()):
        failed = sum(one == state for one in states)
        if failed:
            named.append(task_id if len(states) == 1 else f"{task_id} ({failed} of {len(states)})")
    return named
