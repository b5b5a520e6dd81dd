"""The listing: what is sent, what is left out and why, and that it is frozen once."""

from __future__ import annotations

import gzip
import hashlib
from datetime import UTC, datetime, timedelta

import pytest

from pdf_ops import frozen_listing
from pdf_ops.bucket_pages import folders_of, raw_pages
from pdf_ops.contract.attributes import item_of
from pdf_ops.contract.fingerprint import ReadingConfig
from pdf_ops.contract.layout import Layout, S3Uri
from pdf_ops.contract.listing import Decision, read_lines
from pdf_ops.contract.runs import total_key
from pdf_ops.exceptions import SettingsError, WindowError
from pdf_ops.frozen_listing import summary_of
from pdf_ops.hooks.tables import RunsTable, StateTable
from pdf_ops.judging import own_prefixes
from pdf_ops.objects import ObjectStore
from pdf_ops.operators import listing
from pdf_ops.operators.listing import PdfListOperator

RUN = "manual__2026-01-01T00:00:00+00:00"
BODY = b"%PDF-1.7 "
ETAG = hashlib.md5(BODY, usedforsecurity=False).hexdigest()
CONFIG = ReadingConfig().config_hash


def operator(aws, **kwargs):
    usual = {"bucket": aws.input, "state_table": aws.state_table, "run_id": RUN}
    return PdfListOperator(task_id="list", **usual | aws.places | kwargs)


def put_state(aws, key, **values):
    defaults = {"status": "done", "etag": ETAG, "config_hash": CONFIG}
    item = item_of({"s3_key": key} | defaults | values)
    aws.client("dynamodb").put_item(TableName=aws.state_table, Item=item)


def lines_of(aws, uris):
    for uri in map(S3Uri.parse, uris):
        body = aws.client("s3").get_object(Bucket=uri.bucket, Key=uri.key)["Body"].read()
        yield from read_lines(gzip.decompress(body).splitlines())


def decisions(aws, context):
    summary = context["ti"].pushed["summary"]
    return {found.key: (found.decision, found.reason) for found in lines_of(aws, summary["all_shards"])}


def test_every_object_gets_a_decision(aws, context):
    aws.put("new.pdf", "read.pdf", "old-bytes.pdf", "old-settings.pdf", "processing.pdf", body=BODY)
    aws.put("folder/", body=b"")
    aws.put("empty.pdf", body=b"")
    put_state(aws, "read.pdf")
    put_state(aws, "old-bytes.pdf", etag="another")
    put_state(aws, "old-settings.pdf", config_hash="another")
    put_state(aws, "processing.pdf", status="processing")

    shards = operator(aws).execute(context)

    assert decisions(aws, context) == {
        "new.pdf": (Decision.NEW, None),
        "read.pdf": (Decision.UNCHANGED, None),
        "old-bytes.pdf": (Decision.CHANGED, None),
        "old-settings.pdf": (Decision.CHANGED, None),
        "processing.pdf": (Decision.NEW, None),
        "empty.pdf": (Decision.NEW, None),
        "folder/": (Decision.EXCLUDED, "a folder marker"),
    }
    summary = context["ti"].pushed["summary"]
    assert shards == summary["shards"]
    assert summary["documents"] == 5
    assert summary["size_bytes"] == 4 * len(BODY)
    assert summary["counts"] == {"new": 3, "changed": 2, "forced": 0, "unchanged": 1, "excluded": 1}


@pytest.mark.parametrize(
    ("error_class", "is_sent"),
    [("CORRUPT", False), ("ENCRYPTED", False), ("CRASH", False), ("SOURCE", True), ("TARGET", True)],
)
def test_a_document_that_failed_by_its_own_bytes_is_not_sent_again(aws, context, error_class, is_sent):
    aws.put("bad.pdf", body=BODY)
    put_state(aws, "bad.pdf", status="failed", error_class=error_class, error_code="x")

    shards = operator(aws).execute(context)

    assert bool(shards) is is_sent
    if not is_sent:
        assert decisions(aws, context)["bad.pdf"] == (
            Decision.EXCLUDED,
            f"failed before with {error_class}/x",
        )


def test_force_sends_what_was_read_and_what_failed(aws, context):
    aws.put("read.pdf", "bad.pdf", body=BODY)
    put_state(aws, "read.pdf")
    put_state(aws, "bad.pdf", status="failed", error_class="CORRUPT", error_code="x")

    operator(aws, is_forced="True").execute(context)

    assert {decision for decision, _ in decisions(aws, context).values()} == {Decision.FORCED}


def test_an_item_of_the_table_that_is_not_ours_does_not_stop_the_listing(aws, context):
    aws.put("new.pdf")
    aws.client("dynamodb").put_item(TableName=aws.state_table, Item={"s3_key": {"S": "new.pdf"}})

    assert len(operator(aws).execute(context)) == 1


def test_what_lies_outside_the_window_is_left_out_with_the_reason(aws, context):
    aws.put("a.pdf")
    day = datetime.now(UTC)

    operator(
        aws,
        window_start=(day - timedelta(days=3)).isoformat(),
        window_end=(day - timedelta(days=2)).isoformat(),
    ).execute(context)

    ((decision, reason),) = decisions(aws, context).values()
    assert decision is Decision.EXCLUDED
    assert reason.startswith("changed after the window's end")


def test_a_window_that_ends_before_it_starts_is_refused(aws, context):
    with pytest.raises(WindowError, match="before its end"):
        operator(aws, window_start="2026-01-02T00:00:00Z", window_end="2026-01-01T00:00:00Z").execute(context)


def test_the_suffix_filter_ignores_case_and_names_itself(aws, context):
    aws.put("a.PDF", "b.txt")

    operator(aws, suffixes=".pdf, .tiff").execute(context)

    assert decisions(aws, context) == {
        "a.PDF": (Decision.NEW, None),
        "b.txt": (Decision.EXCLUDED, "does not end with .pdf or .tiff"),
    }


def test_what_the_pipeline_writes_is_not_listed_as_a_document(aws, context):
    aws.put("in/a.pdf", "data/pages/x.parquet", "manifests/runs/y.json")

    operator(aws, output_bucket=aws.input, manifest_bucket=aws.input).execute(context)

    found = decisions(aws, context)
    assert found["in/a.pdf"] == (Decision.NEW, None)
    assert {reason for _, (_, reason) in found.items() if reason} == {"written by the pipeline itself"}


def test_documents_below_the_output_prefix_are_still_documents():
    layout = Layout(output_bucket="bucket", output_prefix="", manifest_bucket="bucket", manifest_prefix="all")

    ours = ("by_document/", "staged/", "pages/", "documents/", "search/")
    assert own_prefixes(layout, "bucket", "all/in/") == (*ours, "all/runs/", "all/pace/")
    assert own_prefixes(layout, "bucket", "in/") == (*ours, "all/")
    assert own_prefixes(layout, "another", "in/") == ()


def test_documents_over_the_limit_are_left_out_and_say_so(aws, context):
    aws.put(*(f"{number}.pdf" for number in range(5)))

    operator(aws, limit="2").execute(context)

    found = decisions(aws, context)
    assert sum(decision.is_sent for decision, _ in found.values()) == 2
    assert {reason for _, reason in found.values() if reason} == {"over the limit of 2"}


def test_a_second_try_returns_the_frozen_listing_and_lists_nothing(aws, context):
    aws.put("a.pdf")
    first = operator(aws).execute(context)
    before = context["ti"].pushed["summary"]
    aws.put("b.pdf")

    assert operator(aws).execute(context) == first
    assert context["ti"].pushed["summary"] == before


def test_a_try_that_died_before_its_summary_leaves_nothing_behind(aws, context):
    aws.put("a.pdf")
    layout = Layout(**{name: value for name, value in aws.places.items() if name != "runs_table"})
    stale = layout.listing_shard(RUN, 0)
    aws.put(stale.key, body=gzip.compress(b""), bucket=stale.bucket)

    shards = operator(aws).execute(context)

    assert shards == [str(layout.listing_shard(RUN, 1))]
    left = aws.client("s3").list_objects_v2(Bucket=stale.bucket, Prefix=layout.listing_prefix(RUN).key)
    assert [entry["Key"] for entry in left["Contents"]] == [layout.listing_shard(RUN, 1).key]


def test_of_two_tries_at_once_the_first_summary_counts(aws, context, monkeypatch):
    aws.put("a.pdf")
    layout = Layout(**{name: value for name, value in aws.places.items() if name != "runs_table"})
    real = listing.judged_pages
    other_context = context | {"ti": type(context["ti"])()}

    def slow_pages(*args):
        # The other try runs from start to end while this one is half-way.
        monkeypatch.setattr(listing, "judged_pages", real)
        operator(aws).execute(other_context)
        aws.put("late.pdf")
        yield from real(*args)

    monkeypatch.setattr(listing, "judged_pages", slow_pages)
    operator(aws).execute(context)

    assert context["ti"].pushed["summary"] == other_context["ti"].pushed["summary"]
    left = aws.client("s3").list_objects_v2(Bucket=aws.output, Prefix=layout.listing_prefix(RUN).key)
    assert [entry["Key"] for entry in left["Contents"]] == [layout.listing_shard(RUN, 0).key]


def test_the_record_of_the_run_is_repaired_from_the_frozen_listing(aws, context):
    aws.put("a.pdf")
    operator(aws).execute(context)
    aws.client("dynamodb").delete_item(TableName=aws.runs_table, Key=total_key(RUN))

    operator(aws).execute(context)

    record = RunsTable(aws.runs_table).get_record(RUN)
    assert record.documents == 1
    assert record.run_date == "2100-01-01"
    assert record.reading == ReadingConfig()


def test_a_dry_run_writes_the_listing_and_sends_nothing(aws, context):
    aws.put("a.pdf")

    assert operator(aws, is_dry_run="True").execute(context) == []

    summary = context["ti"].pushed["summary"]
    assert summary["documents"] == 1
    assert len(list(lines_of(aws, summary["shards"]))) == 1
    assert RunsTable(aws.runs_table).get_record(RUN).documents == 0


def test_an_empty_prefix_is_a_run_with_nothing_to_do(aws, context):
    assert operator(aws, prefix="nothing/here/").execute(context) == []
    assert context["ti"].pushed["summary"]["documents"] == 0


def test_shards_end_after_so_many_sent_lines(aws, context, monkeypatch):
    monkeypatch.setattr(frozen_listing, "SHARD_LINES", 3)
    monkeypatch.setattr(frozen_listing, "DOUBLE_SHARDS_EVERY", 2)
    aws.put(*(f"{number:02}.pdf" for number in range(20)))
    put_state(aws, "00.pdf", etag=hashlib.md5(BODY, usedforsecurity=False).hexdigest())

    shards = operator(aws).execute(context)

    sent = [sum(found.decision.is_sent for found in lines_of(aws, [shard])) for shard in shards]
    assert sent == [3, 3, 6, 6, 1]


def test_folders_are_listed_side_by_side_and_nothing_twice(aws):
    keys = [f"root/{folder}/{number}.pdf" for folder in "abc" for number in range(4)] + ["root/top.pdf"]
    aws.put(*keys)
    client = aws.client("s3")

    assert folders_of(client, aws.input, "")[0] == ["root/a/", "root/b/", "root/c/"]
    found = [entry["Key"] for page in raw_pages(client, aws.input, "", 2) for entry in page]
    assert sorted(found) == sorted(keys)


def test_keys_that_do_not_fit_in_one_page_are_all_found(aws, context):
    keys = [f"flat/{number:04}.pdf" for number in range(1_001)]
    aws.put(*keys)

    operator(aws, prefix="flat/").execute(context)

    assert sorted(decisions(aws, context)) == keys


def test_a_key_with_spaces_plus_signs_and_unicode_is_listed_as_it_is(aws, context):
    key = "a folder/ü+ñ %20 &.pdf"
    aws.put(key)
    put_state(aws, key)

    operator(aws).execute(context)

    assert decisions(aws, context) == {key: (Decision.UNCHANGED, None)}


def test_an_error_while_listing_is_raised_and_not_swallowed(aws, context):
    with pytest.raises(Exception, match="NoSuchBucket"):
        operator(aws, bucket="no-such-bucket").execute(context)
    layout = Layout(**{name: value for name, value in aws.places.items() if name != "runs_table"})
    assert ObjectStore(client=aws.client("s3")).read(summary_of(layout, RUN)) is None


def test_the_first_task_of_a_run_names_the_settings_that_are_missing(aws, context, monkeypatch):
    monkeypatch.delenv("AIRFLOW__PDF_OPS__ECS_CLUSTER", raising=False)

    with pytest.raises(SettingsError, match="ECS_CLUSTER is missing"):
        operator(aws, is_first=True).execute(context)
    assert context["ti"].pushed["summary"] == {}


def test_keys_that_the_table_left_unread_are_asked_for_again(aws, monkeypatch):
    put_state(aws, "a.pdf")
    put_state(aws, "b.pdf")
    table = StateTable(aws.state_table)
    real = table.client.batch_get_item
    calls = []

    def throttled(**request):
        calls.append(request)
        if len(calls) > 1:
            return real(**request)
        keys = request["RequestItems"][aws.state_table]["Keys"]
        rest = {aws.state_table: request["RequestItems"][aws.state_table] | {"Keys": keys[1:]}}
        first = {aws.state_table: request["RequestItems"][aws.state_table] | {"Keys": keys[:1]}}
        return real(RequestItems=first) | {"UnprocessedKeys": rest}

    monkeypatch.setattr(table.client, "batch_get_item", throttled)

    assert set(table.get_many(["a.pdf", "b.pdf", "c.pdf"])) == {"a.pdf", "b.pdf"}
    assert len(calls) == 2
