"""The task that proves that nothing was lost: every listed document has exactly one outcome.

Listing and manifest are held against each other partition by partition, so that their size does not
matter. Not for repairing anything: it counts, names what is wrong, and fails.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from collections import Counter
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.exceptions import AirflowFailException

from pdf_ops.contract.documents import DocumentStatus
from pdf_ops.contract.listing import Decision
from pdf_ops.objects import ObjectStore, Wanted
from pdf_ops.operators.publish import dataset_files
from pdf_ops.operators.run_outputs import RunOutputsOperator
from pdf_ops.partitions import Partitions, partitions_for, return_freed_memory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from airflow.sdk import Context

    from pdf_ops.contract.layout import Layout, S3Uri

MAX_NAMED = 20
# Compressed listing and manifest together; some 20,000 documents.
_PARTITION_BYTES = 2 * 1024 * 1024
_FOOTER_BYTES = 64 * 1024
_OUTCOMES = {
    DocumentStatus.DONE.value: "ok",
    DocumentStatus.PARTIAL.value: "partial",
    DocumentStatus.FAILED.value: "failed",
    DocumentStatus.SKIPPED.value: "skipped",
}


class ReconciliationError(AirflowFailException):
    """The outcomes of a run do not add up to what it listed.

    Attributes:
        counts: The figures.
        samples: Documents that are wrong, at most twenty, each with what is wrong with it.
        discrepancies_uri: Where all of them are.
    """

    def __init__(
        self, counts: Mapping[str, Any], samples: Sequence[Mapping[str, str]], discrepancies_uri: str
    ) -> None:
        super().__init__(dict(counts), [dict(sample) for sample in samples], discrepancies_uri)
        self.counts = dict(counts)
        self.samples = [dict(sample) for sample in samples]
        self.discrepancies_uri = discrepancies_uri

    def __str__(self) -> str:
        """Give the equation, the page counts and the documents."""
        named = ", ".join(f"{sample['source_uri']} ({sample['problem']})" for sample in self.samples)
        return (
            f"the run does not add up: {equation(self.counts)}; "
            f"page rows: {self.counts['page_rows']} of {self.counts['pages_expected']}"
            + (f"; {named}" if named else "")
            + f". All of them: {self.discrepancies_uri}"
        )


def equation(counts: Mapping[str, Any]) -> str:
    """The reconciliation as one line: ``3 listed = 1 ok + 0 partial + 2 failed + …``."""
    parts = ("ok", "partial", "failed", "skipped", "duplicate")
    total = sum(counts[part] for part in parts)
    sign = "=" if total == counts["listed"] else "≠"
    line = f"{counts['listed']} listed {sign} " + " + ".join(f"{counts[part]} {part}" for part in parts)
    wrong = [f"{counts[part]} {part}" for part in ("missing", "unexpected", "repeated") if counts[part]]
    return line + (f" ({', '.join(wrong)})" if wrong else "")


class ReconcileOperator(RunOutputsOperator):
    """Hold the run's manifest against its frozen listing, and the dataset against the manifest.

    ``listed = ok + partial + failed + skipped + duplicate``, every document in exactly one set, and page
    rows = sum of page counts. Otherwise the task fails, names up to twenty documents and writes all of
    them to the run's prefix. An outlet asset gets the counts as metadata.

    The arguments of :class:`~pdf_ops.operators.run_outputs.RunOutputsOperator`, and:

    :param listing: What the listing task returned; if it counts decisions, these are checked too. (templated)
    """

    template_fields: Sequence[str] = (
        *RunOutputsOperator.template_fields,
        "listing",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"listing": "json"}
    ui_color = "#d5e8d4"

    def __init__(
        self,
        *,
        listing: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.listing = listing

    def execute(self, context: Context) -> dict[str, Any]:
        """Count, compare, and fail if it does not add up.

        Raises:
            ReconciliationError: If it does not.
        """
        return_freed_memory()
        layout, store = self.layout, self.store
        with tempfile.TemporaryDirectory(prefix="pdf_ops-reconcile-") as folder:
            counts, samples = _Reconciliation(layout, store, self.run_id, Path(folder)).run()
        problems = counts.pop("problems")
        summary = counts | {"is_reconciled": problems == 0, "equation": equation(counts)}
        discrepancies = str(layout.discrepancies(self.run_id))
        store.put(
            layout.reconciliation_json(self.run_id),
            json.dumps(
                summary
                | {
                    "samples": samples,
                    "discrepancies_uri": discrepancies if problems else None,
                    "reconciled_at": datetime.now(UTC).isoformat(timespec="seconds"),
                },
                indent=1,
            ).encode(),
            "application/json",
        )
        self.log.info("%s; %d page rows", summary["equation"], counts["page_rows"])
        if problems:
            raise ReconciliationError(counts, samples, discrepancies)
        self._describe_assets(context, summary)
        return summary

    def _describe_assets(self, context: Context, summary: Mapping[str, Any]) -> None:
        events: Any = context.get("outlet_events")
        for outlet in self.outlets or ():
            if events is not None:
                events[outlet].extra.update({"run_id": self.run_id, **summary})


class _Reconciliation:
    """One execution."""

    def __init__(self, layout: Layout, store: ObjectStore, run_id: str, folder: Path) -> None:
        self.layout = layout
        self.store = store
        self.run_id = run_id
        self.folder = folder
        self.counts: Counter[str] = Counter()
        self.decisions: Counter[str] = Counter()
        self.samples: list[dict[str, str]] = []
        self.problems = 0
        self._discrepancies: Any = None

    def run(self) -> tuple[dict[str, Any], list[dict[str, str]]]:
        import pyarrow as pa

        shards = list(self.store.list(self.layout.listing_prefix(self.run_id)))
        manifest_path = self._download(self.layout.run_manifest(self.run_id))
        size_bytes = sum(shard.size_bytes for shard in shards)
        size_bytes += manifest_path.stat().st_size if manifest_path else 0
        count = partitions_for(size_bytes, _PARTITION_BYTES)
        listed_schema = pa.schema([("source_uri", pa.string())])
        manifest_schema = pa.schema(
            [
                ("source_uri", pa.string()),
                ("status", pa.string()),
                ("run_id", pa.string()),
                ("page_count", pa.int32()),
                ("pages_written", pa.int32()),
            ]
        )
        path = self.folder / "discrepancies.jsonl.gz"
        with (
            Partitions(
                self.folder, name="listed", count=count, schema=listed_schema, key="source_uri"
            ) as listed,
            Partitions(
                self.folder, name="manifest", count=count, schema=manifest_schema, key="source_uri"
            ) as manifest,
            gzip.open(path, "wt", encoding="utf-8") as self._discrepancies,
        ):
            for uris in self._sent(Wanted(shard.uri, shard.size_bytes) for shard in shards):
                listed.add(pa.table([uris], schema=listed_schema))
            listed.finish()
            for rows in _read_manifest(manifest_path, manifest_schema):
                manifest.add(rows)
            manifest.finish()
            for number in range(count):
                self._compare(listed.read_keys(number), manifest.read(number))
        return self._conclude(path), self.samples

    def _download(self, uri: S3Uri) -> Path | None:
        """To disk: the manifest of a million documents is larger than a task's memory."""
        for found in self.store.list(uri):
            if found.uri == uri:
                path = self.folder / "manifest.parquet"
                self.store.download(uri, path)
                return path
        return None

    def _sent(self, shards: Iterable[Wanted]) -> Iterator[pa.Array]:
        import pyarrow as pa
        import pyarrow.compute as pc
        from pyarrow import json as pa_json

        # One schema for all, or a shard of numbers would be read as numbers.
        names = ("bucket", "key", "decision")
        options = pa_json.ParseOptions(
            explicit_schema=pa.schema([(name, pa.string()) for name in names]),
            unexpected_field_behavior="ignore",
        )
        for shard in self.store.read_many(shards, self.folder, convert=lambda shard: shard, parallel=8):
            data = gzip.decompress(shard.data if shard.data is not None else _read_file(shard.path))
            if not data.strip():
                continue
            block = pa_json.ReadOptions(use_threads=False, block_size=max(len(data) + 1, 1024))
            table = pa_json.read_json(pa.BufferReader(data), read_options=block, parse_options=options)
            for item in pc.value_counts(table["decision"]).to_pylist():
                self.decisions[item["values"]] += item["counts"]
            sent = pa.array([decision.value for decision in Decision if decision.is_sent])
            table = table.filter(pc.is_in(table["decision"], sent)).combine_chunks()
            if table.num_rows:
                uris = pc.binary_join_element_wise("s3://", table["bucket"], "/", table["key"], "")
                yield uris.combine_chunks()

    def _compare(self, listed: pa.ChunkedArray, manifest: pa.Table) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        self.counts["listed"] += len(listed)
        documents = pc.unique(listed)
        self.counts["duplicate"] += len(listed) - len(documents)
        uris = manifest["source_uri"]
        known = pc.unique(uris)
        self._note("missing", documents.filter(pc.invert(pc.is_in(documents, known))))
        is_expected = pc.is_in(uris, documents)
        self._note("unexpected", known.filter(pc.invert(pc.is_in(known, documents))))
        if len(known) != len(uris):
            times = pc.value_counts(uris)
            repeated = times.field("values").filter(pc.greater(times.field("counts"), 1))
            self._note("repeated", repeated)
        expected = manifest.filter(is_expected)
        for item in pc.value_counts(expected["status"]).to_pylist():
            self.counts[_OUTCOMES[item["values"]]] += item["counts"]
        read_here = manifest.filter(
            pc.fill_null(
                pc.and_(
                    pc.is_in(
                        manifest["status"],
                        pa.array([DocumentStatus.DONE.value, DocumentStatus.PARTIAL.value]),
                    ),
                    pc.equal(manifest["run_id"], self.run_id),
                ),
                False,
            )
        )
        pages = pc.coalesce(read_here["page_count"], read_here["pages_written"])
        self.counts["pages_expected"] += pc.sum(pages).as_py() or 0
        self._note(
            "pages_differ",
            read_here["source_uri"].filter(pc.not_equal(pages, read_here["pages_written"])),
        )

    def _note(self, problem: str, uris: pa.Array | pa.ChunkedArray) -> None:
        self.counts[problem] += len(uris)
        self.problems += len(uris)
        for uri in uris.to_pylist():
            line = {"problem": problem, "source_uri": uri}
            self._discrepancies.write(json.dumps(line) + "\n")
            if len(self.samples) < MAX_NAMED:
                self.samples.append(line)

    def _conclude(self, path: Path) -> dict[str, Any]:
        statistics = json.loads(self.store.read(self.layout.statistics_json(self.run_id)) or b"{}")
        unreadable = statistics.get("unreadable", {})
        self.problems += unreadable.get("documents", 0)
        for item in unreadable.get("samples", ()):
            line = {"problem": item["reason"], "source_uri": item["source_uri"]}
            if len(self.samples) < MAX_NAMED:
                self.samples.append(line)
        rows = self._dataset_rows(statistics.get("run_date"))
        if rows != self.counts["pages_expected"]:
            self.problems += 1
        if self.problems:
            self.store.upload(path, self.layout.discrepancies(self.run_id))
        names = (
            *("listed", "ok", "partial", "failed", "skipped", "duplicate"),
            *("missing", "unexpected", "repeated", "pages_differ", "pages_expected"),
        )
        return {
            **{name: self.counts[name] for name in names},
            "page_rows": rows,
            "unreadable": unreadable.get("documents", 0),
            "decisions": dict(sorted(self.decisions.items())),
            "problems": self.problems,
        }

    def _dataset_rows(self, run_date: str | None) -> int:
        """Count the dataset's rows where a reader would: in the files' own footers."""
        if run_date is None:
            return 0
        first = self.layout.pages_part(date.fromisoformat(run_date), self.run_id, 0)
        return sum(_rows_of(self.store, uri) for _, uri, _ in dataset_files(self.store, first, self.run_id))


def _read_file(path: Path | None) -> bytes:
    return path.read_bytes() if path is not None else b""


def _read_manifest(path: Path | None, schema: pa.Schema) -> Iterator[pa.Table]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path is None:
        return
    with pq.ParquetFile(str(path)) as file:
        for batch in file.iter_batches(batch_size=5_000, columns=schema.names, use_threads=False):
            yield pa.Table.from_batches([batch]).select(schema.names).cast(schema)


def _rows_of(store: ObjectStore, uri: S3Uri) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    tail = store.read_tail(uri, _FOOTER_BYTES)
    footer_bytes = int.from_bytes(tail[-8:-4], "little") + 8
    if footer_bytes > len(tail):
        tail = store.read_tail(uri, footer_bytes)
    return int(pq.read_metadata(pa.BufferReader(tail)).num_rows)
