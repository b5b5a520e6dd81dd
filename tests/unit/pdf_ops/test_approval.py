"""A person's word, where a run asks for one."""

from __future__ import annotations

from typing import Any

import pytest

from pdf_ops.operators.approval import OptionalApprovalOperator


@pytest.mark.parametrize("given", [False, "False", ""])
def test_a_run_that_does_not_ask_goes_on_at_once(given: Any, context: dict[str, Any]):
    operator = OptionalApprovalOperator(task_id="approve", subject="Go?", is_required=given)

    assert operator.execute(context) is None
