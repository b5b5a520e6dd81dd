"""What the routes work with, put together once per process. Not for requests."""

from __future__ import annotations

from dataclasses import dataclass

from pdf_ops.api.access import Access
from pdf_ops.api.aws import Aws
from pdf_ops.api.cache import Cache, MemoryCache, RedisCache
from pdf_ops.api.documents import Documents
from pdf_ops.api.doorbell import Doorbell
from pdf_ops.api.limiter import RateLimiter
from pdf_ops.api.search import make_index
from pdf_ops.api.settings import ApiSettings
from pdf_ops.api.uploads import Uploads
from pdf_ops.search.found import SearchIndex
from pdf_ops.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Everything that a route may use."""

    settings: ApiSettings
    pipeline: Settings
    access: Access
    aws: Aws
    limiter: RateLimiter
    results: Cache
    documents: Documents
    doorbell: Doorbell
    uploads: Uploads
    search: SearchIndex
    redis: RedisCache | None

    @classmethod
    def create(
        cls, settings: ApiSettings, pipeline: Settings, access: Access, aws: Aws, *, is_mounted: bool
    ) -> Services:
        """Put them together."""

        def cache(ttl_s: float) -> Cache:
            store = RedisCache(settings.redis_url, ttl_s) if settings.redis_url else MemoryCache(ttl_s)
            return Cache(store, ttl_s)

        states, results = cache(settings.status_cache_s), cache(settings.result_cache_s)
        documents = Documents(aws, pipeline.dynamo_table_name, states)
        doorbell = Doorbell(settings, is_mounted=is_mounted)
        return cls(
            settings=settings,
            pipeline=pipeline,
            access=access,
            aws=aws,
            limiter=RateLimiter(
                capacity=settings.rate_capacity,
                refill_per_minute=settings.rate_refill_per_minute,
                redis_url=settings.redis_url,
            ),
            results=results,
            documents=documents,
            doorbell=doorbell,
            uploads=Uploads(aws, pipeline, settings, documents, doorbell),
            search=make_index(settings, pipeline, aws),
            redis=states.store if isinstance(states.store, RedisCache) else None,
        )
