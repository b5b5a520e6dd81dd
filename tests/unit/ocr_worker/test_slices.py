from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.ocr_worker.builders import STEADY, error_page, good_page

from ocr_worker import slices
from ocr_worker.slices import FIRST_SLICE_PAGES, MAX_SLICE_PAGES, DocumentStream, Slice
from pdf_ops.contract.errors import ErrorClass, ErrorKind, PdfOpsError
from pdf_ops.contract.media import MediaType

DEATHS = [ErrorClass.TIMEOUT, ErrorClass.OOM, ErrorClass.CRASH, ErrorClass.ENGINE]


class Wakes:
    """Counts how often the stream asked for processes."""

    def __init__(self):
        self.count = 0

    async def __call__(self):
        self.count += 1


def stream_of(*, processes=1, max_pages=1_000, timeout_s=3_600.0, wake=None):
    return DocumentStream(
        path=Path("a.pdf"),
        media_type=MediaType.PDF,
        password=None,
        timeout_s=timeout_s,
        processes=processes,
        max_pages=max_pages,
        wake=wake or Wakes(),
    )


def opened_stream(page_count, **options):
    """A stream whose first slice is out, and whose document is open."""
    stream = stream_of(**options)
    first = stream.take()
    assert stream.opened(page_count, 1.0)
    return stream, first


def pages_of(stream):
    async def read():
        return [page async for page in stream.pages()]

    assert stream.is_finished
    return asyncio.run(read())


def answer(stream, taken, page_count):
    """Read a slice as a page process does, to its end."""
    stream.opened(page_count, 1.0)
    stream.deliver(taken, [good_page(index) for index in indexes(taken, page_count)])
    stream.slice_done(taken)


def finish(stream, page_count, in_flight=()):
    """Read everything that is left."""
    for taken in in_flight:
        answer(stream, taken, page_count)
    while (taken := stream.take()) is not None:
        answer(stream, taken, page_count)


def indexes(taken, page_count):
    return range(taken.first, min(taken.last, page_count))


def kinds(pages):
    return [None if page.error is None else page.error.kind for page in pages]


# Giving out ----------------------------------------------------------------------------------


def test_only_one_process_opens_a_document_and_the_others_wait_for_it():
    stream = stream_of()
    assert stream.take() == Slice(first=0, last=FIRST_SLICE_PAGES)
    assert stream.take() is None
    assert stream.opened(100, 7.5)
    assert stream.open_ms == 7.5
    assert stream.take().first == FIRST_SLICE_PAGES


def test_a_document_that_is_alone_is_shared_out_after_its_first_page():
    stream = stream_of(processes=4)
    assert stream.take(is_alone=True) == Slice(first=0, last=1)
    stream.opened(9, 1.0)
    assert [stream.take(), stream.take()] == [Slice(first=1, last=2), Slice(first=2, last=3)]


def test_opening_it_again_is_no_news_and_changes_nothing():
    stream, first = opened_stream(6)
    assert not stream.opened(99, 5.0)
    assert stream.page_count == 6
    assert stream.open_ms == 1.0
    finish(stream, 6, [first])
    assert len(pages_of(stream)) == 6


@pytest.mark.parametrize("processes", [1, 2, 8])
@pytest.mark.parametrize("page_count", [1, 3, FIRST_SLICE_PAGES, 5, 100, 300])
def test_every_page_is_given_out_once(page_count, processes):
    stream, first = opened_stream(page_count, processes=processes)
    given_out = [first]
    while (taken := stream.take()) is not None:
        given_out.append(taken)
    covered = [index for taken in given_out for index in indexes(taken, page_count)]
    assert covered == list(range(page_count))


@pytest.mark.parametrize(
    ("total_ms", "pages"), [(0.0, MAX_SLICE_PAGES), (10.0, 100), (250.0, 4), (9_000.0, 1)]
)
def test_a_slice_holds_as_many_pages_as_take_about_a_second(total_ms, pages):
    stream, first = opened_stream(1_000)
    stream.deliver(first, [good_page(index, total_ms=total_ms) for index in range(4)])
    taken = stream.take()
    assert taken.last - taken.first == pages


def test_the_end_of_a_document_is_cut_fine_so_that_all_processes_end_together():
    stream, first = opened_stream(44, processes=4)
    stream.deliver(first, [good_page(index, total_ms=0.1) for index in range(4)])
    sizes = []
    while (taken := stream.take()) is not None:
        sizes.append(taken.last - taken.first)
    assert sizes[0] == 5
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 1


# Order ---------------------------------------------------------------------------------------


@STEADY
@given(order=st.permutations(range(12)))
def test_pages_come_out_in_order_whatever_the_order_of_answers(order):
    stream, first = opened_stream(12)
    given_out = [first]
    while (taken := stream.take()) is not None:
        given_out.append(taken)
    for index in order:
        (taken,) = [taken for taken in given_out if taken.first <= index < taken.last]
        stream.deliver(taken, [good_page(index, f"text {index}")])
    assert [page.reading.text for page in pages_of(stream)] == [f"text {index}" for index in range(12)]


def test_a_page_comes_out_as_soon_as_those_before_it_have():
    async def read():
        stream, first = opened_stream(3)
        pages = stream.pages()
        stream.deliver(first, [good_page(1), good_page(2)])
        waiting = asyncio.ensure_future(anext(pages))
        for _ in range(3):
            await asyncio.sleep(0)
        assert not waiting.done()
        stream.deliver(first, [good_page(0)])
        assert (await waiting).index == 0
        assert [page.index async for page in pages] == [1, 2]

    asyncio.run(read())


# Not believed --------------------------------------------------------------------------------


def test_a_page_outside_its_slice_is_not_believed():
    stream, first = opened_stream(10)
    second = stream.take()
    forged = [good_page(index, "forged") for index in (second.first, second.first + 1, 9, 10, 2**31 - 1)]
    stream.deliver(first, forged)
    finish(stream, 10, [first, second])
    assert [page.reading.text for page in pages_of(stream)] == ["some text"] * 10


def test_a_page_beyond_the_end_of_the_document_is_not_believed():
    stream, first = opened_stream(2)
    stream.deliver(first, [good_page(index) for index in range(4)])
    assert [page.index for page in pages_of(stream)] == [0, 1]


def test_a_second_answer_for_a_page_is_not_believed():
    stream, first = opened_stream(3)
    stream.deliver(first, [good_page(0, "true"), good_page(0, "forged"), good_page(2, "true")])
    stream.deliver(first, [good_page(0, "forged"), good_page(2, "forged"), good_page(1, "true")])
    assert [page.reading.text for page in pages_of(stream)] == ["true"] * 3


def test_pages_before_the_document_is_open_are_not_believed():
    stream = stream_of()
    first = stream.take()
    stream.deliver(first, [good_page(0, "forged")])
    finish(stream, 2, [first])
    assert [page.reading.text for page in pages_of(stream)] == ["some text"] * 2


def test_pages_that_the_process_left_out_become_errors():
    stream, first = opened_stream(4)
    stream.deliver(first, [good_page(0), good_page(2)])
    stream.slice_done(first)
    bad = ErrorKind.ENGINE_BAD_ANSWER
    assert kinds(pages_of(stream)) == [None, bad, None, bad]


def test_a_slice_that_ends_without_opening_the_document_is_tried_again_and_then_fails_it():
    stream = stream_of()
    stream.slice_done(stream.take())
    again = stream.take()
    assert again == Slice(first=0, last=FIRST_SLICE_PAGES, is_careful=True)
    stream.slice_done(again)
    assert stream.error.kind is ErrorKind.ENGINE_BAD_ANSWER
    assert pages_of(stream) == []


# Deaths --------------------------------------------------------------------------------------


def test_the_page_at_which_a_process_died_is_read_again_alone_and_carefully():
    stream, first = opened_stream(4)
    stream.deliver(first, [good_page(0)])
    stream.slice_died(first, ErrorClass.CRASH, "ended by SIGSEGV", 2)
    assert stream.take() == Slice(first=2, last=3, is_careful=True)


def test_the_other_pages_of_its_slice_are_read_on_in_the_ordinary_way():
    stream, first = opened_stream(4)
    stream.deliver(first, [good_page(0)])
    stream.slice_died(first, ErrorClass.CRASH, "", 2)
    stream.take()
    assert stream.take() == Slice(first=1, last=2)
    assert stream.take() == Slice(first=3, last=4)


@pytest.mark.parametrize("page", [None, 0, 99, -5])
def test_without_a_page_to_blame_it_is_the_first_that_is_missing(page):
    stream, first = opened_stream(4)
    stream.deliver(first, [good_page(0)])
    stream.slice_died(first, ErrorClass.CRASH, "", page)
    assert stream.take() == Slice(first=1, last=2, is_careful=True)
    assert stream.take() == Slice(first=2, last=4)


@pytest.mark.parametrize(
    ("error_class", "kind"),
    [
        (ErrorClass.TIMEOUT, ErrorKind.TIMEOUT_PAGE),
        (ErrorClass.OOM, ErrorKind.OOM_PAGE),
        (ErrorClass.CRASH, ErrorKind.CRASH_PAGE),
        (ErrorClass.ENGINE, ErrorKind.ENGINE_BAD_ANSWER),
    ],
)
def test_a_page_that_kills_twice_becomes_an_error_and_costs_no_other_page(error_class, kind):
    stream, first = opened_stream(6)
    stream.slice_died(first, error_class, "first death", 1)
    stream.slice_died(stream.take(), error_class, "second death", 1)
    finish(stream, 6)
    pages = pages_of(stream)
    assert kinds(pages) == [None, kind, None, None, None, None]
    assert pages[1].error.detail == "first death"


@pytest.mark.parametrize("ending", ["error", "left out", "not opened"])
def test_a_page_that_killed_and_cannot_be_read_carefully_either_says_how_it_killed(ending):
    stream, first = opened_stream(2)
    stream.slice_died(first, ErrorClass.OOM, "ended by SIGKILL", 0)
    again = stream.take()
    if ending == "error":
        stream.deliver(again, [error_page(0, ErrorKind.CORRUPT_PAGE_UNREADABLE, "the second parser, too")])
    elif ending == "not opened":
        stream.slice_failed(again, PdfOpsError(ErrorKind.CORRUPT_UNREADABLE, "the second parser"))
    stream.slice_done(again)
    finish(stream, 2)
    pages = pages_of(stream)
    assert kinds(pages) == [ErrorKind.OOM_PAGE, None]
    assert pages[0].error.detail == "ended by SIGKILL"


@pytest.mark.parametrize(
    ("second", "shown"),
    [
        (ErrorKind.CORRUPT_UNREADABLE, ErrorKind.CRASH_DOCUMENT),
        (ErrorKind.ENCRYPTED_PASSWORD_REQUIRED, ErrorKind.ENCRYPTED_PASSWORD_REQUIRED),
        (ErrorKind.BOMB_RECURSION, ErrorKind.BOMB_RECURSION),
    ],
)
def test_a_document_that_killed_and_cannot_be_opened_carefully_has_the_more_telling_error(second, shown):
    stream = stream_of()
    stream.slice_died(stream.take(), ErrorClass.CRASH, "ended by SIGSEGV", None)
    stream.slice_failed(stream.take(), PdfOpsError(second))
    assert stream.error.kind is shown


def test_a_page_that_can_be_read_carefully_is_a_page_like_any_other():
    stream, first = opened_stream(4)
    stream.slice_died(first, ErrorClass.CRASH, "", 3)
    finish(stream, 4)
    assert kinds(pages_of(stream)) == [None] * 4


def test_a_death_after_the_last_page_costs_nothing():
    stream, first = opened_stream(9)
    stream.deliver(first, [good_page(index) for index in range(4)])
    stream.slice_died(first, ErrorClass.CRASH, "", 3)
    assert stream.take().first == FIRST_SLICE_PAGES


@pytest.mark.parametrize(
    ("error_class", "kind"),
    [
        (ErrorClass.TIMEOUT, ErrorKind.TIMEOUT_OPEN),
        (ErrorClass.OOM, ErrorKind.OOM_DOCUMENT),
        (ErrorClass.CRASH, ErrorKind.CRASH_DOCUMENT),
        (ErrorClass.ENGINE, ErrorKind.ENGINE_BAD_ANSWER),
    ],
)
def test_a_document_that_kills_while_it_is_opened_is_tried_carefully_and_then_fails(error_class, kind):
    stream = stream_of()
    stream.slice_died(stream.take(), error_class, "first death", None)
    again = stream.take()
    assert again == Slice(first=0, last=FIRST_SLICE_PAGES, is_careful=True)
    assert stream.take() is None
    stream.slice_died(again, ErrorClass.CRASH, "second death", None)
    assert stream.error.kind is kind
    assert stream.error.detail == "first death"
    assert stream.page_count is None
    assert pages_of(stream) == []
    assert stream.take() is None


def test_a_document_that_only_opens_carefully_is_read_carefully_to_its_end():
    stream = stream_of()
    stream.slice_died(stream.take(), ErrorClass.CRASH, "", None)
    again = stream.take()
    stream.opened(50, 1.0)
    taken = []
    while (one := stream.take()) is not None:
        taken.append(one)
    assert taken
    assert all(one.is_careful for one in taken)
    finish(stream, 50, [again, *taken])
    assert kinds(pages_of(stream)) == [None] * 50


def test_a_document_that_cannot_be_opened_has_no_pages_and_says_why():
    stream = stream_of()
    stream.slice_failed(stream.take(), PdfOpsError(ErrorKind.ENCRYPTED_PASSWORD_REQUIRED))
    assert stream.error.kind is ErrorKind.ENCRYPTED_PASSWORD_REQUIRED
    assert pages_of(stream) == []


def test_a_document_that_another_process_cannot_open_loses_only_that_slice():
    stream, first = opened_stream(9)
    second = stream.take()
    stream.slice_failed(second, PdfOpsError(ErrorKind.CORRUPT_UNREADABLE, "no luck"))
    stream.slice_done(second)
    finish(stream, 9, [first])
    pages = pages_of(stream)
    lost = list(indexes(second, 9))
    assert [page.index for page in pages if page.error is not None] == lost
    assert {page.error.kind for page in pages if page.error} == {ErrorKind.CORRUPT_PAGE_UNREADABLE}
    assert {page.error.detail for page in pages if page.error} == {"no luck"}


# Limits --------------------------------------------------------------------------------------


def test_a_document_with_too_many_pages_is_refused_without_reading_one():
    stream = stream_of(max_pages=10)
    first = stream.take()
    assert not stream.opened(11, 3.0)
    assert stream.error.kind is ErrorKind.POLICY_TOO_MANY_PAGES
    assert stream.error.detail == "11 pages, 10 are allowed"
    stream.slice_done(first)
    assert stream.take() is None
    assert pages_of(stream) == []


def test_a_document_with_just_as_many_pages_as_allowed_is_read():
    stream, first = opened_stream(10, max_pages=10)
    finish(stream, 10, [first])
    assert len(pages_of(stream)) == 10


def test_pages_not_read_by_the_deadline_are_timeouts_of_the_document_and_the_others_are_kept():
    stream, first = opened_stream(8, timeout_s=90)
    second = stream.take()
    stream.deliver(second, [good_page(second.first)])
    stream.deliver(first, [good_page(0), good_page(1)])
    stream.deadline = time.monotonic() - 1
    stream.slice_died(first, ErrorClass.TIMEOUT, "", 2)
    late = ErrorKind.TIMEOUT_DOCUMENT
    pages = pages_of(stream)
    assert kinds(pages) == [None, None, late, late, None, late, late, late]
    assert pages[2].error.detail == "not finished within 90 s"
    stream.deliver(second, [good_page(index) for index in range(8)])
    assert stream.take() is None


def test_a_document_not_even_open_by_the_deadline_fails_as_such():
    stream = stream_of(timeout_s=0)
    stream.slice_died(stream.take(), ErrorClass.TIMEOUT, "", None)
    assert stream.error.kind is ErrorKind.TIMEOUT_OPEN
    assert pages_of(stream) == []


def test_the_time_limit_runs_from_when_the_document_is_begun():
    stream = stream_of(timeout_s=1_000)
    assert stream.deadline == float("inf")
    before = time.monotonic()
    stream.take()
    assert before + 1_000 <= stream.deadline <= time.monotonic() + 1_000


def test_no_time_runs_while_nobody_reads_the_document(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(slices, "time", clock)
    stream, first = opened_stream(40, processes=2, timeout_s=100)
    second = stream.take()
    assert stream.is_out
    clock.now += 10
    stream.given_back()
    clock.now += 10
    stream.given_back()
    assert not stream.is_out
    assert stream.deadline == 100
    clock.now += 5_000
    third = stream.take()
    assert stream.is_out
    assert stream.deadline == 5_100
    clock.now += 79
    stream.slice_died(third, ErrorClass.CRASH, "", None)
    assert not stream.is_finished
    clock.now += 1
    stream.slice_died(first, ErrorClass.CRASH, "", None)
    assert set(kinds(pages_of(stream))) == {ErrorKind.TIMEOUT_DOCUMENT}
    assert second.first == FIRST_SLICE_PAGES


class Clock:
    """A clock that the test winds."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now


def test_a_document_that_is_failed_when_open_keeps_what_was_read_and_has_a_row_for_each_page():
    stream, first = opened_stream(4)
    stream.deliver(first, [good_page(0), good_page(2)])
    stream.fail(PdfOpsError(ErrorKind.ENGINE_MISCONFIGURED, "no page process starts"))
    lost = ErrorKind.ENGINE_MISCONFIGURED
    assert kinds(pages_of(stream)) == [None, lost, None, lost]
    assert stream.error is None


def test_cancelling_makes_every_unread_page_a_row_that_says_so():
    stream, first = opened_stream(20)
    stream.deliver(first, [good_page(0), good_page(2)])
    stream.cancel()
    pages = pages_of(stream)
    assert [page.index for page in pages] == list(range(20))
    lost = ErrorKind.LOST_CANCELLED
    assert kinds(pages) == [None, lost, None, *[lost] * 17]


def test_cancelling_before_the_document_is_open_fails_it():
    stream = stream_of()
    stream.take()
    stream.cancel()
    assert stream.error.kind is ErrorKind.LOST_CANCELLED
    assert pages_of(stream) == []


def test_what_comes_after_the_end_is_ignored():
    stream, first = opened_stream(3)
    finish(stream, 3, [first])
    stream.cancel()
    stream.fail(PdfOpsError(ErrorKind.ENGINE_MISCONFIGURED))
    stream.deliver(first, [good_page(0, "forged")])
    stream.slice_died(first, ErrorClass.CRASH, "", 0)
    stream.slice_done(first)
    assert not stream.opened(5, 1.0)
    assert stream.error is None
    assert stream.take() is None
    assert [page.reading.text for page in pages_of(stream)] == ["some text"] * 3


# Memory --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "text"),
    [("MAX_BUFFERED_CHARACTERS", "x" * 100), ("MAX_BUFFERED_PAGES", "")],
    ids=["text", "pages"],
)
@pytest.mark.parametrize("page_count", [21, 29, 200])
def test_a_slow_reader_stops_the_reading_and_wakes_it_when_there_is_room(
    limit, text, page_count, monkeypatch
):
    monkeypatch.setattr(slices, "MAX_SLICE_PAGES", 8)
    monkeypatch.setattr(slices, limit, 20 * max(1, len(text)))
    delivered, taken_out, buffered = 0, 0, []

    async def read_slices(stream, taken, woken):
        nonlocal delivered
        while not stream.is_finished:
            if taken is not None:
                delivered += len(indexes(taken, page_count))
                stream.deliver(taken, [good_page(index, text) for index in indexes(taken, page_count)])
                stream.slice_done(taken)
                buffered.append(delivered - taken_out)
            else:
                await woken.wait()
                woken.clear()
            taken = stream.take()

    async def run():
        nonlocal taken_out
        woken = asyncio.Event()

        async def wake():
            woken.set()

        stream, first = opened_stream(page_count, wake=wake)
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            tasks.create_task(read_slices(stream, first, woken))
            async for page in stream.pages():
                assert page.index == taken_out
                taken_out += 1

    asyncio.run(run())
    assert taken_out == page_count
    assert 20 < max(buffered) <= 20 + 8


def test_a_reader_that_keeps_up_wakes_nobody():
    async def run():
        wakes = Wakes()
        stream, first = opened_stream(10, wake=wakes)
        finish(stream, 10, [first])
        assert len([page async for page in stream.pages()]) == 10
        assert wakes.count == 0

    asyncio.run(run())


def test_pages_that_wait_for_an_earlier_one_count_as_buffered_and_the_earlier_one_is_still_given_out(
    monkeypatch,
):
    monkeypatch.setattr(slices, "MAX_BUFFERED_PAGES", 10)
    stream, first = opened_stream(100)
    for taken in [stream.take() for _ in range(3)]:
        stream.deliver(taken, [good_page(index) for index in indexes(taken, 100)])
    assert stream.take() is None
    stream.slice_died(first, ErrorClass.CRASH, "", 0)
    assert stream.take() == Slice(first=0, last=1, is_careful=True)
    assert stream.take() == Slice(first=1, last=4)


# All together --------------------------------------------------------------------------------

OUTCOMES = st.one_of(
    st.just(("take",)),
    st.tuples(st.just("opened"), st.integers(0, 9)),
    st.tuples(st.just("deliver"), st.integers(0, 9), st.lists(st.integers(0, 30), max_size=6)),
    st.tuples(st.just("died"), st.integers(0, 9), st.sampled_from(DEATHS), st.none() | st.integers(-1, 30)),
    st.tuples(st.just("failed"), st.integers(0, 9)),
    st.tuples(st.just("done"), st.integers(0, 9)),
)


def apply(stream, step, in_flight, page_count):
    """What one page process does to the stream; a slice that is over is in flight no more."""
    if step[0] == "take":
        if (taken := stream.take()) is not None:
            in_flight.append(taken)
        return
    if not in_flight:
        return
    position = step[1] % len(in_flight)
    taken = in_flight[position]
    match step:
        case ("opened", _):
            stream.opened(page_count, 1.0)
        case ("deliver", _, numbers):
            pages = [error_page(index) if index % 7 == 6 else good_page(index) for index in numbers]
            stream.deliver(taken, pages)
        case ("died", _, error_class, page):
            stream.slice_died(taken, error_class, "it died", page)
        case ("failed", _):
            stream.slice_failed(taken, PdfOpsError(ErrorKind.CORRUPT_UNREADABLE))
            stream.slice_done(taken)
        case ("done", _):
            stream.slice_done(taken)
    if step[0] in ("died", "failed", "done"):
        del in_flight[position]
        stream.given_back()


@STEADY
@given(page_count=st.integers(1, 30), processes=st.integers(1, 4), steps=st.lists(OUTCOMES, max_size=60))
def test_whatever_happens_a_document_that_opened_has_a_row_for_each_page_and_the_others_have_an_error(
    page_count, processes, steps
):
    stream = stream_of(processes=processes)
    in_flight = []
    for step in steps:
        apply(stream, step, in_flight, page_count)
        taken = [index for one in in_flight for index in indexes(one, page_count)]
        assert len(in_flight) == len({one.first for one in in_flight})
        assert stream.page_count is None or len(taken) == len(set(taken))
    finish(stream, page_count, in_flight)
    pages = pages_of(stream)
    if stream.error is not None:
        assert pages == []
        assert stream.page_count is None
    else:
        assert [page.index for page in pages] == list(range(page_count))
        assert all((page.reading is None) != (page.error is None) for page in pages)
    assert stream.take() is None


@STEADY
@given(page_count=st.integers(1, 30), steps=st.lists(OUTCOMES, max_size=40), is_late=st.booleans())
def test_a_document_that_is_stopped_at_any_moment_has_as_many_rows_as_pages(page_count, steps, is_late):
    stream = stream_of()
    in_flight = []
    for step in steps:
        apply(stream, step, in_flight, page_count)
    if is_late and in_flight:
        stream.deadline = 0.0
        stream.slice_died(in_flight[0], ErrorClass.TIMEOUT, "", None)
    else:
        stream.cancel()
    pages = pages_of(stream)
    assert [page.index for page in pages] == list(range(stream.page_count or 0))
    assert (stream.error is not None) == (stream.page_count is None)


@STEADY
@given(page_count=st.integers(1, 12), error_class=st.sampled_from(DEATHS))
def test_a_document_whose_every_page_kills_ends_with_nothing_but_error_rows(page_count, error_class):
    stream, first = opened_stream(page_count)
    in_flight, deaths = [first], 0
    while in_flight:
        stream.slice_died(in_flight.pop(), error_class, "", None)
        deaths += 1
        while (taken := stream.take()) is not None:
            in_flight.append(taken)
    pages = pages_of(stream)
    assert len(pages) == page_count
    assert None not in kinds(pages)
    assert deaths <= 2 * page_count
