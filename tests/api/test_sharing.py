"""Rate limits and caches: of one process by itself, and of two that share a real Redis."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from tests.api.test_requests import assert_problem
from tests.support.api import READ_KEY, Api, Redis, upload

from pdf_ops.api.ids import decode, encode
from pdf_ops.contract.attributes import attribute, item_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.world import World

    from local_aws import LocalAws

# A token comes back every ten seconds: on a slow machine, too, not while a test asks six times.
LIMITS = {"RATE_CAPACITY": 5, "RATE_REFILL_PER_MINUTE": 6}
needs_redis = pytest.mark.skipif(
    not Redis.is_there(), reason="redis-server is not installed: apt-get install redis-server"
)


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    with Redis(tmp_path) as redis:
        yield redis


def put_state(world: World, key: str, status: str, updated: str) -> None:
    item = {"s3_key": key, "status": status, "last_updated": updated}
    world.dynamodb.put_item(TableName=world.state_table, Item=item_of(item))


def status_of(api: Api, key: str) -> str:
    with api.client() as client:
        return str(client.get(f"/v1/jobs/{encode(key)}").json()["status"])


def test_a_client_that_asks_too_often_is_429_and_told_when_to_come_back(
    local_aws: LocalAws, world: World, tmp_path: Path
):
    with Api(local_aws, world, tmp_path, **LIMITS) as api, api.client() as client:
        answers = [client.get("/v1/runs") for _ in range(6)]
        refused = answers[-1]
        with api.client(READ_KEY) as other:
            other_status = other.get("/v1/runs").status_code
        time.sleep(int(refused.headers["retry-after"]))
        later = client.get("/v1/runs")

    assert [answer.status_code for answer in answers] == [200] * 5 + [429]
    assert_problem(refused, 429)
    assert refused.headers["x-ratelimit-limit"] == "5"
    assert [answer.headers["x-ratelimit-remaining"] for answer in answers[:5]] == ["4", "3", "2", "1", "0"]
    assert 1 <= int(refused.headers["retry-after"]) <= 10
    assert int(refused.headers["x-ratelimit-reset"]) >= 1
    assert (other_status, later.status_code) == (200, 200)


def test_guessing_keys_is_limited_too(local_aws: LocalAws, world: World, tmp_path: Path):
    with Api(local_aws, world, tmp_path, **LIMITS) as api:
        statuses = []
        for number in range(7):
            with api.client(f"pdfops_guess-{number}") as client:
                statuses.append(client.get("/v1/runs").status_code)

    assert (statuses[:5], set(statuses[5:])) == ([401] * 5, {429})


@needs_redis
def test_two_processes_share_one_bucket(local_aws: LocalAws, world: World, tmp_path: Path, redis: Redis):
    settings = LIMITS | {"REDIS_URL": redis.url}
    with (
        Api(local_aws, world, tmp_path, **settings) as one,
        Api(local_aws, world, tmp_path, **settings) as two,
    ):
        statuses = []
        for api in (one, two) * 5:
            with api.client() as client:
                statuses.append(client.get("/v1/runs").status_code)

    assert statuses == [200] * 5 + [429] * 5


@needs_redis
def test_without_its_redis_an_api_goes_on_by_itself(
    local_aws: LocalAws, world: World, tmp_path: Path, redis: Redis
):
    settings = LIMITS | {"REDIS_URL": redis.url}
    put_state(world, "alone.pdf", "done", "2026-01-01T00:00:00.000+00:00")
    with Api(local_aws, world, tmp_path, **settings) as api, api.client() as client:
        before = client.get("/v1/runs").status_code
        redis.stop()
        after = [client.get(f"/v1/jobs/{encode('alone.pdf')}").status_code for _ in range(6)]
        ready = client.get("/ready").json()
        redis.start()
        again = client.get("/v1/runs").status_code

    assert before == 200
    assert after == [200] * 5 + [429]
    assert (ready["status"], ready["checks"]["redis"]) == ("ok", "out of reach")
    assert again == 200


def test_a_status_is_read_once_for_all_who_ask_and_again_when_it_is_old(
    local_aws: LocalAws, world: World, tmp_path: Path
):
    put_state(world, "cached.pdf", "processing", "2026-01-01T00:00:00.000+00:00")
    with Api(local_aws, world, tmp_path, STATUS_CACHE_S=2) as api:
        first = status_of(api, "cached.pdf")
        put_state(world, "cached.pdf", "done", "2026-01-01T00:00:01.000+00:00")
        within = status_of(api, "cached.pdf")
        time.sleep(2.1)
        later = status_of(api, "cached.pdf")

    assert (first, within, later) == ("processing", "processing", "completed")


@needs_redis
def test_what_one_process_has_read_the_other_need_not_read(
    local_aws: LocalAws, world: World, tmp_path: Path, redis: Redis
):
    settings = {"REDIS_URL": redis.url, "STATUS_CACHE_S": 30}
    put_state(world, "shared.pdf", "processing", "2026-01-01T00:00:00.000+00:00")
    with (
        Api(local_aws, world, tmp_path, **settings) as one,
        Api(local_aws, world, tmp_path, **settings) as two,
    ):
        first = status_of(one, "shared.pdf")
        world.dynamodb.delete_item(TableName=world.state_table, Key={"s3_key": attribute("shared.pdf")})
        second = status_of(two, "shared.pdf")

    assert (first, second) == ("processing", "processing")


@needs_redis
def test_an_upload_at_one_process_is_known_to_the_other_at_once(
    local_aws: LocalAws, world: World, tmp_path: Path, redis: Redis, text: bytes
):
    settings = {"REDIS_URL": redis.url, "STATUS_CACHE_S": 30}
    with (
        Api(local_aws, world, tmp_path, **settings) as one,
        Api(local_aws, world, tmp_path, **settings) as two,
    ):
        with one.client() as client:
            job_id = upload(client, "a.pdf", text + b"% for two").json()["job_id"]
        found = status_of(two, decode(job_id))

    assert found == "pending"


@pytest.mark.parametrize("kind", ["memory", pytest.param("redis", marks=needs_redis)])
def test_an_older_state_never_replaces_a_newer_one(kind: str, tmp_path: Path):
    """Whoever read the table before a change cannot bring the past back after it."""
    import asyncio

    from pdf_ops.api.cache import MemoryCache, RedisCache

    async def race(cache: MemoryCache | RedisCache) -> bytes | None:
        await cache.put("key", "2026-01-01T00:00:02", b"new")
        await cache.put("key", "2026-01-01T00:00:01", b"old")
        return await cache.get("key")

    if kind == "memory":
        assert asyncio.run(race(MemoryCache(30))) == b"new"
    else:
        with Redis(tmp_path) as redis:
            assert asyncio.run(race(RedisCache(redis.url, 30))) == b"new"


def test_the_cache_of_a_process_has_an_end():
    import asyncio

    from pdf_ops.api.cache import Cache, MemoryCache

    async def fill() -> int:
        store = MemoryCache(30)
        cache = Cache(store, 30)
        for number in range(100):

            async def load() -> tuple[str, bytes]:
                return "1", bytes(2**20)

            await cache.get(f"key-{number}", load)

        async def load_too_much() -> tuple[str, bytes]:
            return "1", bytes(2**20 + 1)

        await cache.get("large", load_too_much)
        assert await store.get("large") is None
        return sum([await store.get(f"key-{number}") is not None for number in range(100)])

    assert 50 <= asyncio.run(fill()) < 64


def test_many_who_ask_at_once_cost_one_read():
    import asyncio

    from pdf_ops.api.cache import Cache, MemoryCache

    loads = []

    async def load() -> tuple[str, bytes]:
        loads.append(1)
        await asyncio.sleep(0.05)
        return "1", b"found"

    async def ask() -> set[bytes | None]:
        cache = Cache(MemoryCache(30), 30)
        return set(await asyncio.gather(*(cache.get("key", load) for _ in range(100))))

    assert asyncio.run(ask()) == {b"found"}
    assert len(loads) == 1
