from __future__ import annotations

import inspect
import re
from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdf_ops.contract import layout as layout_module
from pdf_ops.contract.layout import (
    MANIFEST_FOLDERS,
    MAX_PREFIX_CHARS,
    OUTPUT_FOLDERS,
    Layout,
    LayoutError,
    S3Uri,
    decode_segment,
    encode_segment,
    parse_bucket,
)

LAYOUT = Layout(output_bucket="out", output_prefix="ocr", manifest_bucket="state", manifest_prefix="ops/pdf")
RUN = "manual__2026-01-01T00:00:00+00:00"
DAY = date(2026, 1, 2)

# Any text, surrogates and all, but often one that is close to another.
IDS = st.one_of(
    st.text(min_size=1),
    st.text(alphabet="a-_.:/+0x~é", min_size=1, max_size=8),
    st.text(alphabet="a.:", min_size=190, max_size=300),
)
NUMBERS = st.integers(0, 10**7)


def objects(layout, run_id, worker_id, number, day):
    """Every object of a run, by what decides its key."""
    return {
        ("listing", run_id, number): layout.listing_shard(run_id, number),
        ("part", run_id, worker_id, number): layout.manifest_part(run_id, worker_id, number),
        ("manifest", run_id): layout.run_manifest(run_id),
        ("plan", run_id): layout.merge_plan(run_id),
        ("shard", run_id, number): layout.merge_shard(run_id, number),
        ("merged", run_id, number): layout.merged_shard(run_id, number),
        ("staged", run_id, number): layout.staged_part(run_id, number),
        ("json", run_id): layout.report_json(run_id),
        ("html", run_id): layout.report_html(run_id),
        ("pages", day, run_id, number): layout.pages_part(day, run_id, number),
        ("documents", day, run_id, number): layout.documents_part(day, run_id, number),
        ("document", run_id, worker_id): layout.document_pages(
            bucket="in", key=run_id, etag="e", config_hash=worker_id
        ),
    }


def test_the_keys_are_where_they_always_were():
    """Moving an object breaks readers and the repair of runs that are under way."""
    assert {str(uri) for uri in objects(LAYOUT, RUN, "w-1", 7, DAY).values()} == {
        "s3://state/ops/pdf/runs/run-manual__2026-01-01T00.3A00.3A00.2B00.3A00/listing/shard-00007.jsonl.gz",
        "s3://state/ops/pdf/runs/run-manual__2026-01-01T00.3A00.3A00.2B00.3A00/parts/worker-w-1/part-00007.parquet",
        "s3://state/ops/pdf/runs/run-manual__2026-01-01T00.3A00.3A00.2B00.3A00/manifest.parquet",
        "s3://state/ops/pdf/runs/run-manual__2026-01-01T00.3A00.3A00.2B00.3A00/merge/plan.json",
        "s3://state/ops/pdf/runs/run-manual__2026-01-01T00.3A00.3A00.2B00.3A00/merge/shard-00007.parquet",
        "s3://state/ops/pdf/runs/run-manual__2026-01-01T00.3A00.3A00.2B00.3A00/merge/shard-00007.json",
        "s3://out/ocr/staged/run-manual__2026-01-01T00.3A00.3A00.2B00.3A00/pages-00007.parquet",
        "s3://state/ops/pdf/runs/run-manual__2026-01-01T00.3A00.3A00.2B00.3A00/report.json",
        "s3://state/ops/pdf/runs/run-manual__2026-01-01T00.3A00.3A00.2B00.3A00/report.html",
        "s3://out/ocr/pages/run_date=2026-01-02/run-manual__2026-01-01T00.3A00.3A00.2B00.3A00-00007.parquet",
        "s3://out/ocr/documents/run_date=2026-01-02/run-manual__2026-01-01T00.3A00.3A00.2B00.3A00-00007.parquet",
        str(LAYOUT.document_pages(bucket="in", key=RUN, etag="e", config_hash="w-1")),
    }
    assert (
        str(LAYOUT.document_pages(bucket="in", key="a.pdf", etag="e", config_hash="0" * 16)) == PINNED_PAGES
    )


PINNED_PAGES = (
    "s3://out/ocr/by_document/7e/7e533e089b93dd355515ed752480044f96d29f84795effb6b2f8f08af742aaa7.parquet"
)


@given(st.lists(st.tuples(IDS, IDS, NUMBERS, st.dates()), min_size=2, max_size=6))
def test_different_inputs_never_share_a_key(inputs):
    owner = {}
    for run_id, worker_id, number, day in inputs:
        for identity, uri in objects(LAYOUT, run_id, worker_id, number, day).items():
            assert owner.setdefault(uri, identity) == identity


@given(IDS, IDS, NUMBERS, st.dates(), st.integers(0, MAX_PREFIX_CHARS))
def test_every_key_is_ascii_short_and_without_dot_dot(run_id, worker_id, number, day, prefix_chars):
    prefix = "p" * prefix_chars
    layout = Layout(
        output_bucket="out", output_prefix=prefix, manifest_bucket="state", manifest_prefix=prefix
    )
    for uri in objects(layout, run_id, worker_id, number, day).values():
        assert uri.key.isascii()
        assert uri.key.isprintable()
        assert len(uri.key) <= 1024
        assert ".." not in uri.key
        assert "//" not in uri.key
        assert not uri.key.startswith("/")
        assert S3Uri.parse(str(uri)) == uri


@given(IDS, NUMBERS, st.dates())
def test_no_file_of_a_dataset_is_hidden_from_readers(run_id, number, day):
    """Spark, Hive and pyarrow skip what starts with an underscore or a dot."""
    for identity, uri in objects(LAYOUT, run_id, run_id, number, day).items():
        assert not any(part.startswith(("_", ".")) for part in uri.key.split("/")), identity


@given(IDS, IDS)
def test_the_objects_of_a_run_are_below_its_prefixes_and_no_other_runs_are(run_id, other):
    shard, part = LAYOUT.listing_shard(run_id, 0), LAYOUT.manifest_part(run_id, other, 0)
    assert shard.key.startswith(LAYOUT.listing_prefix(run_id).key)
    assert part.key.startswith(LAYOUT.manifest_parts_prefix(run_id).key)
    assert shard.key.startswith(LAYOUT.run_prefix(run_id).key)
    assert shard.key.startswith(LAYOUT.run_prefix(other).key) == (run_id == other)


def test_the_folders_that_a_listing_leaves_out_are_all_that_is_written():
    source = inspect.getsource(layout_module)

    for prefix, folders in (("output", OUTPUT_FOLDERS), ("manifest", MANIFEST_FOLDERS)):
        assert set(re.findall(rf"{{self\.{prefix}_prefix}}([a-z_]+/)", source)) == set(folders)


def test_datasets_hold_their_parts():
    assert LAYOUT.pages_part(DAY, RUN, 0).key.startswith(LAYOUT.pages_dataset().key)
    assert LAYOUT.documents_part(DAY, RUN, 0).key.startswith(LAYOUT.documents_dataset().key)


@pytest.mark.parametrize("field", ["bucket", "key", "etag", "config_hash"])
def test_a_documents_file_moves_with_each_part_of_its_identity(field):
    identity = {"bucket": "in", "key": "a.pdf", "etag": "e", "config_hash": "0" * 16}
    other = {**identity, field: "changed"}
    assert LAYOUT.document_pages(**identity) != LAYOUT.document_pages(**other)


@given(
    st.tuples(st.text(), st.text(), st.text(), st.text()),
    st.tuples(st.text(), st.text(), st.text(), st.text()),
)
def test_documents_share_a_file_only_when_they_are_the_same(one, other):
    def pages(identity):
        bucket, key, etag, config_hash = identity
        return LAYOUT.document_pages(bucket=bucket, key=key, etag=etag, config_hash=config_hash)

    def bare(identity):
        return (*identity[:2], identity[2].strip('"'), identity[3])

    assert (pages(one) == pages(other)) == (bare(one) == bare(other))


def test_parts_of_an_identity_cannot_be_shifted_into_each_other():
    one = LAYOUT.document_pages(bucket="in", key="a", etag="b", config_hash="c")
    assert one != LAYOUT.document_pages(bucket="in", key="ab", etag="", config_hash="c")
    assert one != LAYOUT.document_pages(bucket="ina", key="", etag="b", config_hash="c")


def test_quotes_around_an_etag_do_not_matter():
    """S3's API sends them, its events do not, and both mean the same object."""
    identity = {"bucket": "in", "key": "a.pdf", "config_hash": "0" * 16}
    assert LAYOUT.document_pages(etag='"abc-3"', **identity) == LAYOUT.document_pages(
        etag="abc-3", **identity
    )


def test_documents_files_fan_out_by_two_hex_digits():
    uris = [LAYOUT.document_pages(bucket="in", key=str(i), etag="e", config_hash="0") for i in range(500)]
    folders = {uri.key.split("/")[-2] for uri in uris}
    assert len(folders) > 150
    assert all(len(folder) == 2 and int(folder, 16) < 256 for folder in folders)


@given(st.text(min_size=1, max_size=30))
def test_an_id_of_ordinary_length_can_be_read_back_from_its_key(identifier):
    encoded = encode_segment(identifier)
    if ".x" not in encoded:
        assert decode_segment(encoded) == identifier
    assert len(identifier) > 10 or ".x" not in encoded


def test_run_ids_can_be_read_back():
    for run_id in (RUN, "scheduled__2026-01-01T00:00:00+00:00", "..", "a/b", "größe", "\ud800"):
        assert decode_segment(encode_segment(run_id)) == run_id


def test_very_long_ids_stay_apart_though_they_are_shortened():
    one, other = encode_segment("r" * 500 + "1"), encode_segment("r" * 500 + "2")
    assert one != other
    assert max(len(one), len(other)) <= 200
    with pytest.raises(LayoutError, match="shortened"):
        decode_segment(one)


@pytest.mark.parametrize("segment", ["", ".", "..", ".3a", "a.x", "a/b", ".FF", "é", "a\n"])
def test_what_is_no_encoded_id_is_not_decoded(segment):
    with pytest.raises(LayoutError):
        decode_segment(segment)


def test_an_empty_id_is_refused():
    with pytest.raises(LayoutError, match="empty"):
        LAYOUT.run_manifest("")


def test_a_negative_number_is_refused():
    with pytest.raises(LayoutError, match="negative"):
        LAYOUT.listing_shard(RUN, -1)


def test_a_datetime_partitions_by_its_day():
    moment = datetime(2026, 1, 2, 23, 59, tzinfo=UTC)
    assert LAYOUT.pages_part(moment, RUN, 0) == LAYOUT.pages_part(DAY, RUN, 0)


@pytest.mark.parametrize("given_as", ["my-bucket", "s3://my-bucket", "s3://my-bucket/", "my-bucket/"])
def test_a_bucket_may_be_given_with_or_without_its_scheme(given_as):
    assert parse_bucket(given_as) == "my-bucket"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "s3://",
        "s3:///",
        "a/b",
        "s3://a-b/key",
        "has space",
        "a..b",
        "-ab",
        "ab-",
        "ab",
        "é-bucket",
        "abc\n",
    ],
)
def test_what_is_no_bucket_is_refused(name):
    with pytest.raises(LayoutError, match="is not a bucket"):
        parse_bucket(name)


@pytest.mark.parametrize("prefix", ["ops/pdf", "/ops/pdf", "ops/pdf/", "//ops/pdf//"])
def test_slashes_around_a_prefix_do_not_matter(prefix):
    layout = Layout(
        output_bucket="s3://out/", output_prefix="ocr/", manifest_bucket="state", manifest_prefix=prefix
    )
    assert layout == LAYOUT


def test_without_a_prefix_keys_start_at_the_root():
    layout = Layout(output_bucket="out", output_prefix="", manifest_bucket="out", manifest_prefix="/")
    assert layout.pages_dataset().key == "pages/"
    assert layout.run_manifest("r").key == "runs/run-r/manifest.parquet"


@pytest.mark.parametrize(
    "prefix", ["a/../b", "..", ".", "a//b", "é", "a b", "a\nb", "a%2e", "p" * (MAX_PREFIX_CHARS + 1)]
)
def test_a_prefix_that_would_make_odd_keys_is_refused(prefix):
    for field in ("output_prefix", "manifest_prefix"):
        with pytest.raises(LayoutError, match="is not a usable prefix"):
            Layout(**{
                "output_bucket": "out", "manifest_bucket": "out", "output_prefix": "", "manifest_prefix": "",
                field: prefix,
            })  # fmt: skip


def test_an_uri_keeps_its_key_as_it_is():
    uri = S3Uri.parse("s3://my-bucket/a b/ü//c?d#e.pdf")
    assert uri == S3Uri("my-bucket", "a b/ü//c?d#e.pdf")
    assert str(uri) == "s3://my-bucket/a b/ü//c?d#e.pdf"


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "s3://",
        "s3://bucket",
        "s3://bucket/",
        "bucket/key",
        "https://bucket/key",
        "S3://bucket/key",
        "s3:///key",
    ],
)
def test_what_is_no_s3_uri_is_refused(uri):
    with pytest.raises(LayoutError):
        S3Uri.parse(uri)


def test_a_key_has_1_to_1024_bytes_of_valid_utf_8():
    assert S3Uri("bucket", "é" * 512).key == "é" * 512
    for key in ("", "é" * 512 + "a", "\ud800"):
        with pytest.raises(LayoutError):
            S3Uri("bucket", key)


@given(st.text())
def test_any_text_is_an_uri_or_refused(text):
    for candidate in (text, f"s3://{text}", f"s3://bucket/{text}"):
        try:
            uri = S3Uri.parse(candidate)
        except LayoutError:
            continue
        assert str(uri) == candidate


def test_numbers_beyond_five_digits_stay_apart():
    assert LAYOUT.listing_shard(RUN, 7) != LAYOUT.listing_shard(RUN, 100_007)
