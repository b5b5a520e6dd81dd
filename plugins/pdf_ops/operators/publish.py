"""The task that makes the merged rows of a run visible: all files of the dataset at once.

They were staged by the merging tasks, and are copied within S3. Not for judging the rows: the
reconciliation does that, right after.
"""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from pdf_ops.contract.layout import S3Uri, encode_segment
from pdf_ops.merge_plan import MAX_NAMED, MergedShard, MergePlan
from pdf_ops.operators.merge import MergeError
from pdf_ops.operators.run_outputs import RunOutputsOperator
from pdf_ops.run_statistics import RunStatistics

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow.sdk import Context

    from pdf_ops.objects import ObjectStore

_PARALLEL_COPIES = 8


class PublishOperator(RunOutputsOperator):
    """Publish what the merging tasks of a run staged, and add up what they counted.

    Nothing is published unless every shard is merged. A retry publishes the same files, and removes what
    an attempt with more of them had published.

    The arguments of :class:`~pdf_ops.operators.run_outputs.RunOutputsOperator`.
    """

    ui_color = "#d5e8d4"

    def execute(self, context: Context) -> dict[str, Any]:
        """Publish, and say where everything is.

        Raises:
            MergeError: If a shard is not merged, or its files are gone.
        """
        plan, shards = self._merged()
        run_date = date.fromisoformat(plan.run_date)
        statistics = RunStatistics()
        for state in (plan.statistics, *(shard.statistics for shard in shards)):
            statistics.add_state(state)
        documents = sum(statistics.documents.values())
        self._publish_pages(run_date, dict(file for shard in shards for file in shard.files))
        self._publish_documents(run_date, documents)
        result = self._conclude(plan, shards, statistics)
        # Last, since a retry of anything before this needs them.
        self.store.remove(found.uri for found in self.store.list(self.layout.staged_prefix(self.run_id)))
        self.log.info(
            "Published %d documents (%d repeated lines dropped, %d rebuilt) and %d page rows in %d files",
            documents,
            plan.repeated,
            plan.repaired,
            result["page_rows"],
            result["page_files"],
        )
        return result

    def _merged(self) -> tuple[MergePlan, list[MergedShard]]:
        """The plan, and every shard's result."""
        data = self.store.read(self.layout.merge_plan(self.run_id))
        if data is None:
            raise MergeError("there is no plan of the merging; clear plan_merge, and all after it")
        plan = MergePlan.from_json(data)
        shards, missing = [], []
        for number, documents in enumerate(plan.shard_documents):
            data = self.store.read(self.layout.merged_shard(self.run_id, number))
            shard = None if data is None else MergedShard.from_json(data)
            if shard is None or shard.documents != documents:
                missing.append(number)
            else:
                shards.append(shard)
        if missing:
            named = ", ".join(map(str, missing[:MAX_NAMED]))
            raise MergeError(
                f"{len(missing)} of {len(plan.shard_documents)} shards are not merged ({named}); "
                "clear merge, and all after it"
            )
        return plan, shards

    def _publish_pages(self, run_date: date, files: dict[int, int]) -> None:
        """Copy the files, given the numbers and sizes; and then remove those that are not among them."""

        def publish(number: int) -> int | None:
            source = self.layout.staged_part(self.run_id, number)
            target = self.layout.pages_part(run_date, self.run_id, number)
            return None if self.store.copy(source, target) else number

        with ThreadPoolExecutor(_PARALLEL_COPIES, thread_name_prefix="publish") as pool:
            not_staged = {number for number in pool.map(publish, files) if number is not None}
        published = list(self._published(self.layout.pages_part(run_date, self.run_id, 0)))
        # An attempt that got to its end has removed what it had published.
        there = {number for number, _, size_bytes in published if files.get(number) == size_bytes}
        if not_staged - there:
            raise MergeError(
                f"{len(not_staged - there)} files are neither staged nor published; "
                "clear merge, and all after it"
            )
        self._remove_stale([uri for number, uri, _ in published if number not in files])

    def _publish_documents(self, run_date: date, documents: int) -> None:
        """The documents dataset's file is the run's manifest."""
        part = self.layout.documents_part(run_date, self.run_id, 0)
        if documents and not self.store.copy(self.layout.run_manifest(self.run_id), part):
            raise MergeError("the run's manifest is not there; clear plan_merge, and all after it")
        kept = {0} if documents else set()
        self._remove_stale([uri for number, uri, _ in self._published(part) if number not in kept])

    def _published(self, first: S3Uri) -> Iterator[tuple[int, S3Uri, int]]:
        return dataset_files(self.store, first, self.run_id)

    def _remove_stale(self, uris: Sequence[S3Uri]) -> None:
        if uris:
            self.log.info("Removing %d files that an earlier attempt left", len(uris))
            self.store.remove(uris)

    def _conclude(
        self, plan: MergePlan, shards: Sequence[MergedShard], counted: RunStatistics
    ) -> dict[str, Any]:
        unreadable = sum(shard.unreadable for shard in shards)
        samples = [sample for shard in shards for sample in shard.samples][:MAX_NAMED]
        files = [size_bytes for shard in shards for _, size_bytes in shard.files]
        statistics = counted.as_json()
        statistics |= {
            "run_id": self.run_id,
            "run_date": plan.run_date,
            "merged_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "manifest": {
                "lines": plan.lines,
                "repeated": plan.repeated,
                "repaired": plan.repaired,
            },
            "unreadable": {"documents": unreadable, "samples": samples},
        }
        statistics["pages"] |= {
            "expected": sum(shard.expected_pages for shard in shards),
            "files": len(files),
            "size_bytes": sum(files),
        }
        uri = self.layout.statistics_json(self.run_id)
        self.store.put(uri, json.dumps(statistics, indent=1).encode(), "application/json")
        return {
            "manifest_uri": str(self.layout.run_manifest(self.run_id)),
            "statistics_uri": str(uri),
            "pages_uri": str(self.layout.pages_dataset()),
            "documents_uri": str(self.layout.documents_dataset()),
            "run_date": plan.run_date,
            "documents": statistics["documents"],
            "page_rows": sum(shard.rows for shard in shards),
            "page_files": len(files),
            "repeated": plan.repeated,
            "repaired": plan.repaired,
            "unreadable": unreadable,
        }


def dataset_files(store: ObjectStore, first: S3Uri, run_id: str) -> Iterator[tuple[int, S3Uri, int]]:
    """The files of one run in a dataset with numbers and sizes, given where the first one is or would be."""
    stem = first.key.rpartition("/")[0] + f"/run-{encode_segment(run_id)}-"
    # Another run's id may go on where this one ends, so the whole name must fit.
    name = re.compile(re.escape(stem) + r"(\d{5,})\.parquet", re.ASCII)
    for found in store.list(S3Uri(first.bucket, stem)):
        match = name.fullmatch(found.uri.key)
        if match:
            yield int(match[1]), found.uri, found.size_bytes
