"""A person's word before something is done, where the run asks for one: Airflow's own approval.

Needs the triggerer and Airflow's UI or API to answer. Not for deciding what is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context


class OptionalApprovalOperator(ApprovalOperator):
    """Wait for a person to approve, if that is required; a rejection fails the task.

    :param is_required: Whether to ask at all. (templated)
    """

    template_fields: Sequence[str] = (*ApprovalOperator.template_fields, "is_required")

    def __init__(self, *, is_required: bool | str = True, **kwargs: Any) -> None:
        super().__init__(fail_on_reject=True, **kwargs)
        self.is_required = is_required

    def execute(self, context: Context) -> Any:
        """Ask, or go on."""
        if str(self.is_required).strip().lower() != "true":
            self.log.info("nobody has to approve this run")
            return None
        return super().execute(context)
