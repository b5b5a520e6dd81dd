"""The real redrive DAG, run by ``airflow dags test`` against the local AWS with real workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.pipeline import Install, Pipeline
from tests.support.slack import SlackEndpoint

from samples.documents import text_pdf

if TYPE_CHECKING:
    from pathlib import Path

    from local_aws import LocalAws

pytestmark = [pytest.mark.timeout(900), pytest.mark.xdist_group("pipeline")]


@pytest.mark.parametrize("install", [Install.ours, Install.other])
def test_a_document_that_was_repaired_goes_round_again_and_the_report_says_what_became_of_it(
    local_aws: LocalAws, tmp_path: Path, install: type[Install]
):
    with SlackEndpoint() as slack, Pipeline(local_aws, install(tmp_path / "airflow"), slack) as world:
        world.order("run-1", "in/repaired.pdf", b"this is no PDF")
        world.order("run-1", "in/still-bad.pdf", b"this is no PDF either")
        world.start_run("run-1", 2)
        world.work(OUTPUT_S3_PREFIX="data")
        world.put("in/repaired.pdf", text_pdf(tmp_path / "text.pdf", 2).read_bytes())

        counted = world.run(dag_id="pdf_redrive", error_class="CORRUPT")
        sent = world.run(dag_id="pdf_redrive", error_class="CORRUPT", dry_run=False, failure_threshold=1.0)

        assert (counted.exit_code, counted.tasks["enqueue"]) == (0, "skipped"), counted.output[-3_000:]
        assert counted.report["would_send"] == 2
        assert sent.exit_code == 0, sent.output[-5_000:]
        assert sent.reconciliation["is_reconciled"]
        assert sent.report["outcomes"] == {"ok": 1, "partial": 0, "failed": 1, "skipped": 0}
        assert sent.pages == [("in/repaired.pdf", 1, "ok"), ("in/repaired.pdf", 2, "ok")]
        # The old letters are gone; the one that is there is the new failure's.
        [letter] = world.dead_letters()
        assert (letter["s3_key"], letter["run_id"]) == ("in/still-bad.pdf", sent.run_id)
