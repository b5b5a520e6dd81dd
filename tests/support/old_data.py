"""Writes what a run leaves behind in the present schemas: `python -m tests.support.old_data`.

Run it once after a schema version was raised, and commit the new folder below tests/fixtures/; it is
never written again, so that later releases are held against it. A real worker writes the rows.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from tests.support.world import World

from local_aws import LocalAws
from pdf_ops.contract.documents import DOCUMENT_SCHEMA_VERSION
from pdf_ops.contract.fingerprint import ReadingConfig
from pdf_ops.contract.listing import Decision, ListedObject
from pdf_ops.contract.pages import PAGE_SCHEMA_VERSION
from samples.documents import huge_page_pdf, text_pdf

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
RUN_ID = "manual__2026-01-02T03:04:05+00:00"


def folder_of(page_version: int, document_version: int) -> Path:
    return FIXTURES / f"pages-{page_version}-documents-{document_version}"


def write(folder: Path) -> None:
    with (
        tempfile.TemporaryDirectory() as scratch,
        LocalAws(Path(scratch) / "aws", port=0, ecs_port=0) as aws,
        World(aws) as world,
    ):
        text_pdf(Path(scratch) / "text.pdf")
        huge_page_pdf(Path(scratch) / "half.pdf")
        documents = {name: (Path(scratch) / name).read_bytes() for name in ("text.pdf", "half.pdf")}
        documents["broken.pdf"] = b"<html>503 Service Unavailable</html>"
        world.start_run(RUN_ID, len(documents), reading=ReadingConfig(languages=("eng",)))
        messages = [world.order(RUN_ID, name, body) for name, body in documents.items()]
        world.work(WORKER_ID="fixture")
        folder.mkdir(parents=True)
        for item in world.s3.list_objects_v2(Bucket=world.output)["Contents"]:
            kind = "pages" if "by_document" in item["Key"] else "documents"
            number = len(list(folder.glob(f"{kind}-*.parquet")))
            body = world.s3.get_object(Bucket=world.output, Key=item["Key"])["Body"].read()
            (folder / f"{kind}-{number}.parquet").write_bytes(body)
        listed = [
            ListedObject(
                bucket=message.bucket or "",
                key=message.key,
                etag=message.etag or "",
                size=message.size or 0,
                last_modified="2026-01-01T00:00:00+00:00",
                decision=Decision.NEW,
            )
            for message in messages
        ]
        (folder / "listing.jsonl").write_text("".join(line.to_line() for line in listed), encoding="utf-8")
        (folder / "messages.jsonl").write_text(
            "".join(f"{message.to_json()}\n" for message in messages), encoding="utf-8"
        )
        for name, table in (("state", world.state_table), ("runs", world.runs_table)):
            items = world.dynamodb.scan(TableName=table)["Items"]
            lines = sorted(json.dumps(item, sort_keys=True) + "\n" for item in items)
            (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    target = folder_of(PAGE_SCHEMA_VERSION, DOCUMENT_SCHEMA_VERSION)
    if target.exists():
        sys.exit(f"{target} is there already, and must stay as it is")
    write(target)
    print(target)
