"""The demonstration: load samples, run the real DAG with ``airflow dags test``, and show what came out.

What Airflow itself says goes to a file; a person sees the tasks, the outcome of every document, the
proof that none is missing, and where everything is.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from local_airflow.background import ensure_local_aws, stop_local_aws
from local_airflow.environment import airflow_environment, airflow_program, migrate_database
from pdf_ops.contract.errors import ErrorKind
from pdf_ops.contract.layout import Layout

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import Console

FOLDER = Path(".build/demo")
SAMPLES_PREFIX = "samples/"
DAG_ID = "pdf_ocr"
PAGES = {
    "a run": f"/dags/{DAG_ID}/runs (open one, tab PDF run)",
    "documents": "/plugin/pdf_documents",
}
"""Where Airflow shows them."""

_TASK = re.compile(r"\[DAG TEST\] (starting|end task) task_id=(\S+) map_index=(-?\d+)")
_RUN_ID = re.compile(r"DagRun Finished: .*?run_id=([^,\s]+),.*?state=(\w+)")
_EXPLAINED = {
    "list": "freezing the listing",
    "enqueue": "sending a message per document",
    "plan_fleet": "sizing the fleet",
    "fleet": "workers are reading (real processes, as ECS tasks)",
    "wait": "every document has an outcome",
    "stop_fleet": "no worker left behind",
    "plan_merge": "one manifest from all workers",
    "merge": "large files from one per document",
    "publish": "the dataset has the run's rows, all at once",
    "reconcile": "proving that no document is missing",
    "index": "making the pages searchable",
    "report": "writing the report",
    "gate": "did the run succeed?",
}


class DemoError(Exception):
    """The demonstration cannot go on; the message says what to look at."""


@dataclass(frozen=True, slots=True)
class Place:
    """The local AWS, as the demonstration uses it."""

    environment: Mapping[str, str]

    def client(self, service: str) -> Any:
        """A client for one of its services."""
        import boto3

        return boto3.client(
            service,
            endpoint_url=self.environment["AWS_ENDPOINT_URL"],
            region_name=self.environment["AWS_REGION"],
            aws_access_key_id=self.environment["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=self.environment["AWS_SECRET_ACCESS_KEY"],
        )

    @property
    def layout(self) -> Layout:
        """Where a run writes."""
        return Layout(
            output_bucket=self.environment["OUTPUT_S3_BUCKET"],
            output_prefix=self.environment.get("OUTPUT_S3_PREFIX", ""),
            manifest_bucket=self.environment["MANIFEST_S3_BUCKET"],
            manifest_prefix=self.environment["MANIFEST_S3_KEY"],
        )


def load_samples(place: Place) -> tuple[int, int]:
    """Put the samples into the bucket that are not there; returns how many are new, and the number of all."""
    from samples.sample_set import sample_set

    s3, bucket = place.client("s3"), place.environment["INPUT_S3_BUCKET"]
    listed = s3.list_objects_v2(Bucket=bucket, Prefix=SAMPLES_PREFIX).get("Contents", [])
    present = {item["Key"] for item in listed}
    samples = sample_set()
    new = [sample for sample in samples if SAMPLES_PREFIX + sample.key not in present]
    for sample in new:
        s3.put_object(Bucket=bucket, Key=SAMPLES_PREFIX + sample.key, Body=sample.body)
    return len(new), len(samples)


def run_demo(console: Console) -> int:
    """All of it; returns the exit code."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    log = FOLDER / "airflow.log"
    log.unlink(missing_ok=True)
    with _step(console, "local AWS"):
        aws, is_new = ensure_local_aws((FOLDER / "aws").resolve())
    console.print(f"[green]✓[/] local AWS {'started' if is_new else 'is running'}: {aws['AWS_ENDPOINT_URL']}")
    place = Place(aws)
    with _step(console, "samples"):
        new, total = load_samples(place)
    console.print(
        f"[green]✓[/] {total} sample documents in s3://{aws['INPUT_S3_BUCKET']}/ ({new} of them new)"
    )
    environment = airflow_environment((FOLDER / "airflow").resolve(), aws)
    with _step(console, "Airflow's database"):
        migrate_database(environment, log)
    console.print(f"[green]✓[/] Airflow is ready; [bold]airflow dags test {DAG_ID}[/]")
    run_id, is_success = _run_dag(console, environment, log)
    if run_id is None:
        raise DemoError(f"the run did not end; see {log}")
    _show(console, place, run_id, is_success=is_success, log=log)
    return 0 if is_success else 1


def clean(console: Console) -> int:
    """Stop the local AWS and remove all that the demonstration made."""
    import shutil

    was_running = stop_local_aws((FOLDER / "aws").resolve())
    shutil.rmtree(FOLDER, ignore_errors=True)
    console.print(
        "stopped the local AWS, removed the demonstration" if was_running else "nothing was running"
    )
    return 0


@contextmanager
def _step(console: Console, name: str) -> Iterator[None]:
    with console.status(f"{name} …"):
        yield


def _run_dag(console: Console, environment: Mapping[str, str], log: Path) -> tuple[str | None, bool]:
    """Run the DAG, showing each task as it ends; returns the run's id and whether it succeeded."""
    run_id, state = None, ""
    began: dict[str, float] = {}
    with (
        log.open("a", encoding="utf-8") as file,
        subprocess.Popen(
            [airflow_program(), "dags", "test", DAG_ID],
            env=dict(environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process,
        console.status("Airflow starts …") as status,
    ):
        for line in process.stdout or ():
            file.write(line)
            if found := _TASK.search(line):
                what, task, index = found.groups()
                shown = task if index == "-1" else f"{task} {index}"
                if what == "starting":
                    began[shown] = time.monotonic()
                    status.update(f"[bold]{shown}[/] {_EXPLAINED.get(task, '')} …")
                elif task in _EXPLAINED:
                    spent_s = time.monotonic() - began.get(shown, time.monotonic())
                    console.print(f"  [green]✓[/] {shown:<12} {_EXPLAINED[task]:<52} {spent_s:5.1f} s")
            if found := _RUN_ID.search(line):
                run_id, state = found.groups()
    return run_id, process.returncode == 0 and state == "success"


def _show(console: Console, place: Place, run_id: str, *, is_success: bool, log: Path) -> None:
    """What came out: the documents, the proof, and where everything is."""
    s3, layout = place.client("s3"), place.layout
    report = json.loads(_read(s3, layout.report_json(run_id)))
    folder = FOLDER / "output"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.html").write_bytes(_read(s3, layout.report_html(run_id)))
    if report["sent"] == 0:
        console.print("\n[bold]Nothing new.[/] Every document has been read with these bytes and settings.")
        console.print("[dim]make demo-clean starts over; trigger with force to read again.[/]")
        return
    _download_dataset(s3, layout, folder)
    _documents_table(console, s3, layout, run_id)
    _reconciliation(console, s3, layout, run_id)
    outcome = "[green]succeeded[/]" if is_success else "[red]failed[/]"
    console.print(f"\nThe run {outcome}. Where everything is:")
    places = {
        "report": folder / "report.html",
        "dataset": folder / "pages",
        "the same in S3": layout.pages_dataset(),
        "worker logs": FOLDER / "aws" / "tasks",
        "Airflow's log": log,
    }
    for name, where in places.items():
        console.print(f"  {name:<15} {where}", highlight=False)
    console.print("\nA query to try:")
    query = (
        ".venv/bin/python -c \"import pyarrow.dataset as ds; print(ds.dataset('"
        + str(folder / "pages")
        + "').to_table(columns=['source_uri', 'page', 'method', 'ocr_confidence']).to_pandas())\""
    )
    console.print(f"  {query}", highlight=False, soft_wrap=True)
    console.print("\nThe same in Airflow's own pages, live: [bold]make up[/], and then")
    for name, where in PAGES.items():
        console.print(f"  {name:<15} http://localhost:8080{where}", highlight=False)
    console.print("\n[dim]make demo again finds nothing new; make demo-clean stops it all.[/]")


def _read(s3: Any, uri: Any) -> bytes:
    body: bytes = s3.get_object(Bucket=uri.bucket, Key=uri.key)["Body"].read()
    return body


def _download_dataset(s3: Any, layout: Layout, folder: Path) -> None:
    root = layout.pages_dataset()
    for item in s3.list_objects_v2(Bucket=root.bucket, Prefix=root.key).get("Contents", []):
        target = folder / "pages" / str(item["Key"]).removeprefix(root.key)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(s3.get_object(Bucket=root.bucket, Key=item["Key"])["Body"].read())


def _documents_table(console: Console, s3: Any, layout: Layout, run_id: str) -> None:
    import pyarrow.parquet as pq
    from rich.table import Table

    rows = pq.read_table(io.BytesIO(_read(s3, layout.run_manifest(run_id)))).to_pylist()
    table = Table(title="Every document and what became of it", title_justify="left", box=None)
    for name, justify in (("document", "left"), ("outcome", "left"), ("pages", "right"), ("", "left")):
        table.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    colours = {"done": "green", "partial": "yellow", "failed": "red", "skipped": "dim"}
    for row in sorted(rows, key=lambda row: str(row["source_uri"])):
        key = str(row["source_uri"]).split("/", 3)[3].removeprefix(SAMPLES_PREFIX)
        detail = _methods(row)
        if row["error_class"]:
            label = f"{row['error_class']}/{row['error_code']}"
            detail = f"{label}: {ErrorKind.parse(label).meaning}"
        table.add_row(
            key, f"[{colours[row['status']]}]{row['status']}[/]", str(row["page_count"] or ""), detail
        )
    console.print()
    console.print(table)


def _methods(row: Mapping[str, Any]) -> str:
    names = (("pages_text_layer", "text layer"), ("pages_ocr", "OCR"), ("pages_empty", "empty"))
    return ", ".join(f"{row[column]} {name}" for column, name in names if row[column])


def _reconciliation(console: Console, s3: Any, layout: Layout, run_id: str) -> None:
    found = json.loads(_read(s3, layout.reconciliation_json(run_id)))
    mark = "[green]✓[/]" if found["is_reconciled"] else "[red]✗[/]"
    console.print(f"\n{mark} [bold]{found['equation']}[/]", highlight=False)
    console.print(f"{mark} {found['page_rows']} page rows = {found['pages_expected']} pages", highlight=False)
