"""What became of a document in past runs, as far as the runs table remembers them.

A run's item is found by the run's name and the document's hash: the newest runs are asked, in one call.
"""

from __future__ import annotations

from typing import Any

from pdf_ops.api.models import DocumentRun
from pdf_ops.api.services import Services
from pdf_ops.contract.runs import HASH_KEY, Outcome, outcome_key
from pdf_ops.run_status import recent_runs

MAX_RUNS = 100
"""What DynamoDB gives in one call."""


async def find_runs(services: Services, s3_key: str, *, last_run_id: str | None) -> list[DocumentRun]:
    """The runs that have an outcome for a document, the newest first."""
    table = services.pipeline.dynamo_runs_table_name
    dynamodb = services.aws.client("dynamodb")
    newest, _ = await services.aws.run(recent_runs, dynamodb, table, limit=MAX_RUNS - 1)
    run_ids = [entry.run_id for entry in newest]
    if last_run_id and last_run_id not in run_ids:
        run_ids.append(last_run_id)
    if not run_ids:
        return []
    outcomes = await services.aws.run(_read, dynamodb, table, run_ids, s3_key)
    found = [outcomes[run_id] for run_id in run_ids if run_id in outcomes]
    return [
        DocumentRun(
            run_id=one.run_id,
            status=one.status.value,
            pages=one.pages,
            finished_at=one.committed_at,
            worker_id=one.worker_id,
            error=f"{one.error_class}/{one.error_code}" if one.error_class else None,
            done_by=one.done_by,
        )
        for one in sorted(found, key=lambda one: one.committed_at, reverse=True)
    ]


def _read(client: Any, table: str, run_ids: list[str], s3_key: str) -> dict[str, Outcome]:
    keys = [outcome_key(run_id, s3_key) for run_id in run_ids]
    wanted: dict[str, Any] = {table: {"Keys": keys}}
    found: dict[str, Outcome] = {}
    for _ in range(3):
        answer = client.batch_get_item(RequestItems=wanted)
        for item in answer["Responses"].get(table, []):
            if HASH_KEY in item:
                outcome = Outcome.from_item(item)
                found[outcome.run_id] = outcome
        wanted = answer.get("UnprocessedKeys") or {}
        if not wanted:
            break
    return found
