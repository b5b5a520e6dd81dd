"""The index that the API asks, chosen by the settings. Not for what is asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pdf_ops.api.aws import Aws
from pdf_ops.api.settings import ApiSettings
from pdf_ops.contract.opensearch import IndexNames
from pdf_ops.objects import ObjectStore
from pdf_ops.search.fetched import FetchedIndex, default_cache
from pdf_ops.search.found import SearchIndex
from pdf_ops.search.opensearch import OpenSearchIndex, client_of
from pdf_ops.search.publishing import Publisher
from pdf_ops.settings import Settings

# Not for longer: a request that waits has a thread that other requests need.
_WAIT_S = 3.0


def make_index(
    settings: ApiSettings, pipeline: Settings, aws: Aws, *, wait_s: float | None = _WAIT_S
) -> SearchIndex:
    """The index; nobody is talked to before the first search.

    Args:
        settings: The API's.
        pipeline: The pipeline's.
        aws: How AWS is reached.
        wait_s: How long the first search waits for an index that is not here yet; until it is if None.
    """
    if pipeline.opensearch_url:
        reached = replace(pipeline, aws_conn_id=aws.aws_conn_id or "")
        return OpenSearchIndex(client_of(reached), IndexNames(pipeline.opensearch_index))
    store = ObjectStore(aws_conn_id=aws.aws_conn_id, region_name=aws.region_name)
    return FetchedIndex(
        Publisher(store, pipeline.layout),
        Path(settings.search_cache_dir) if settings.search_cache_dir else default_cache(),
        max_bytes=settings.search_cache_mb * 2**20,
        wait_s=wait_s,
    )
