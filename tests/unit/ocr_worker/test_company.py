from __future__ import annotations

import asyncio
import contextlib

from ocr_worker.company import Company


def watch(*visitors):
    """Let visitors in, in this order; gives how many were inside with each."""

    async def visit(company, is_alone, inside, seen):
        async with company.join(is_alone=is_alone):
            inside.append(is_alone)
            await asyncio.sleep(0.01)
            seen.append((is_alone, len(inside)))
            inside.pop()

    async def run():
        company, inside, seen = Company(), [], []
        await asyncio.gather(*(visit(company, is_alone, inside, seen) for is_alone in visitors))
        return seen

    return asyncio.run(run())


def test_documents_are_read_side_by_side():
    assert max(count for _, count in watch(False, False, False)) == 3


def test_a_suspect_is_read_alone():
    seen = watch(False, True, False, True, False)

    assert [count for is_alone, count in seen if is_alone] == [1, 1]
    assert len(seen) == 5


def test_a_suspect_that_gives_up_waiting_keeps_nobody_out():
    async def run():
        company = Company()
        async with company.join(is_alone=False):
            suspect = asyncio.create_task(company.join(is_alone=True).__aenter__())
            await asyncio.sleep(0)
            other = asyncio.create_task(company.join(is_alone=False).__aenter__())
            await asyncio.sleep(0)
            suspect.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await suspect
            await asyncio.wait_for(other, 1)

    asyncio.run(run())


def test_a_suspect_does_not_wait_for_ever_for_one_that_takes_long():
    async def run():
        company = Company(patience_s=0.01)
        async with company.join(is_alone=False), asyncio.timeout(1), company.join(is_alone=True):
            pass

    asyncio.run(run())
