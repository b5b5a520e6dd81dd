"""OpenSearch beside the embedded index: filled from the dataset and searched, over HTTP."""

from __future__ import annotations

import pytest
from tests.support.opensearch import OpenSearchDouble
from tests.support.search import page_rows as rows_for
from tests.support.search import write_rows, write_run
from tests.unit.pdf_ops.search.test_command import pdf_ops

from pdf_ops.contract.opensearch import (
    MAX_BULK_BYTES,
    Action,
    IndexNames,
    OpenSearchClient,
    OpenSearchError,
    file_id_of,
)
from pdf_ops.search.building import LocalDataset
from pdf_ops.search.found import IndexKind, NoIndexError
from pdf_ops.search.opensearch import OpenSearchIndex, reindex
from pdf_ops.search.query import parse

NAMES = IndexNames("pdf-ops")


@pytest.fixture
def server():
    with OpenSearchDouble() as double:
        yield double
        assert double.mistakes == []


@pytest.fixture
def client(server):
    return OpenSearchClient(server.url, timeout_s=5)


def fill(client, dataset):
    return reindex(client, NAMES, LocalDataset(dataset))


def test_the_whole_dataset_is_there_and_the_names_without_a_version_stand_for_it(server, client, tmp_path):
    write_run(tmp_path, "one", {"a.pdf": ["red apples", "pears"], "b.pdf": ["wine"]})

    done = fill(client, tmp_path)

    assert (done.rows, done.indexed, done.refused) == (3, 5, {})
    assert server.aliases == {"pdf-ops-files": {NAMES.files}, "pdf-ops-pages": {NAMES.pages}}
    whole = server.sources(NAMES.files)[file_id_of("s3://documents/a.pdf")]
    assert whole["extracted_text"] == "red apples\n\fpears"
    assert (whole["text_length"], whole["mime_type"], whole["file_name"]) == (15, "application/pdf", "a.pdf")


def test_filling_it_again_changes_nothing(server, client, tmp_path):
    write_run(tmp_path, "one", {"a.pdf": ["red apples", "pears"]})
    write_run(tmp_path, "two", {"a.pdf": ["green apples"]}, day=1)
    fill(client, tmp_path)
    first = {identity: page["text"] for identity, page in server.sources(NAMES.pages).items()}

    fill(client, tmp_path)

    assert {identity: page["text"] for identity, page in server.sources(NAMES.pages).items()} == first
    # The second page is of the older reading, and the newer has none.
    assert set(first.values()) == {"green apples"}


def test_what_a_worker_wrote_meanwhile_is_not_replaced_by_what_is_older(server, client, tmp_path):
    write_run(tmp_path / "now", "now", {"a.pdf": ["newest"]}, day=9)
    write_run(tmp_path / "then", "then", {"a.pdf": ["older"]})
    fill(client, tmp_path / "now")

    done = fill(client, tmp_path / "then")

    assert done.refused == {}
    assert {page["text"] for page in server.sources(NAMES.pages).values()} == {"newest"}


def test_a_document_that_goes_on_in_the_next_file_is_one(server, client, tmp_path):
    rows = rows_for("one", {"long.pdf": ["first", "second", "third"]})
    write_rows(tmp_path / "run-one-00000.parquet", rows[:2])
    write_rows(tmp_path / "run-one-00001.parquet", rows[2:])

    fill(client, tmp_path)

    [whole] = server.sources(NAMES.files).values()
    assert whole["extracted_text"] == "first\n\fsecond\n\fthird"


def test_a_domain_that_goes_away_is_an_error_and_nothing_is_switched(server, client, tmp_path, monkeypatch):
    monkeypatch.setattr("pdf_ops.contract.opensearch.BACKOFF_S", 0.001)
    write_run(tmp_path, "one", {"a.pdf": ["red apples"]})
    server.bad_request = lambda path: 503 if path == "/_bulk" else 200

    with pytest.raises(OpenSearchError, match="2 documents could not be written: POST /_bulk: 503"):
        fill(client, tmp_path)

    assert server.aliases == {}


@pytest.mark.parametrize(("status", "requests"), [(503, 5), (0, 5), (429, 5), (403, 1), (400, 1)])
def test_a_request_is_repeated_only_where_that_can_help(server, client, status, requests, monkeypatch):
    server.bad_request = lambda _: status

    result = client.bulk([Action("a", b"{}\n{}\n")], pause=lambda _: None)

    assert len(server.requests) == requests
    assert [one.id for one in result.unsent] == ["a"]
    assert "confidential" not in result.problem


def test_requests_are_not_larger_than_a_domain_takes(server, client):
    sizes = []
    server.bad_request = lambda path: sizes.append(path) or 503
    actions = [Action(str(number), b"x" * (MAX_BULK_BYTES // 2)) for number in range(5)]

    client.bulk(actions, attempts=1)

    assert len(sizes) == 3


def test_what_is_too_large_is_cut_in_two_and_only_the_rest_refused(server, client, tmp_path):
    write_run(tmp_path, "one", {f"{number}.pdf": ["apples"] for number in range(4)})
    large = []

    def refuse_several(path):
        if path == "/_bulk" and not large:
            large.append(path)
            return 413
        return 200

    server.bad_request = refuse_several

    done = fill(client, tmp_path)

    assert (done.indexed, done.refused) == (8, {})
    assert len(server.bulks) == 2


def test_a_search_gives_hits_as_the_embedded_index_does(server, client, tmp_path):
    write_run(tmp_path, "one", {"a.pdf": ["The Purchase order of May"], "b.pdf": ["nothing"]})
    fill(client, tmp_path)

    found = OpenSearchIndex(client, NAMES).search(parse("purchase"), limit=5)

    [hit] = found.hits
    assert (hit.source_uri, hit.page, hit.page_count) == ("s3://documents/a.pdf", 1, 1)
    assert [(piece.text, piece.is_hit) for piece in hit.snippet] == [
        ("The ", False),
        ("Purchase", True),
        (" order of May", False),
    ]
    assert (found.total, found.has_more) == (1, False)
    assert (found.index.kind, found.index.rows) == (IndexKind.OPENSEARCH, 2)


def test_a_query_is_put_into_clauses_and_never_into_opensearchs_own_syntax(server, client, tmp_path):
    write_run(tmp_path, "one", {"a.pdf": ["x"]})
    fill(client, tmp_path)

    OpenSearchIndex(client, NAMES).search(parse('a "b c" de* -f'), limit=5)

    query = server.searches[0]["query"]["bool"]
    assert query == {
        "must": [
            {"match": {"text": {"query": "a"}}},
            {"match_phrase": {"text": {"query": "b c"}}},
            {"prefix": {"text": {"value": "de"}}},
        ],
        "must_not": [{"match": {"text": {"query": "f"}}}],
    }


def test_without_an_index_or_a_server_it_says_what_to_do(server, client):
    with pytest.raises(NoIndexError, match="pdf-ops reindex"):
        OpenSearchIndex(client, NAMES).search(parse("x"), limit=5)
    server.bad_request = lambda _: 0
    with pytest.raises(NoIndexError, match="health"):
        OpenSearchIndex(client, NAMES).search(parse("x"), limit=5)


def test_the_command_fills_it_and_says_what_it_did(server, tmp_path):
    write_run(tmp_path, "one", {"a.pdf": ["red apples"]})
    names = (
        *("INPUT_S3_BUCKET", "OUTPUT_S3_BUCKET", "DYNAMO_TABLE_NAME", "DYNAMO_RUNS_TABLE_NAME"),
        *("ECS_CLUSTER", "ECS_TASK_DEFINITION", "ECS_SUBNETS"),
    )
    given = {f"AIRFLOW__PDF_OPS__{name}": "given" for name in names} | {
        f"AIRFLOW__PDF_OPS__{name}": "https://sqs.example/q"
        for name in ("SQS_QUEUE_URL", "DLQ_SQS_QUEUE_URL")
    }

    done = pdf_ops("reindex", "--dataset", tmp_path, AIRFLOW__PDF_OPS__OPENSEARCH_URL=server.url, **given)
    none = pdf_ops("reindex", "--dataset", tmp_path, **given)

    assert done.returncode == 0, done.stderr
    assert "1 pages of 1 files: 2 documents" in done.stdout
    assert none.returncode == 2
    assert "AIRFLOW__PDF_OPS__OPENSEARCH_URL" in none.stderr
