"""The window: params, then the data interval, then now; never a window that holds nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdf_ops.exceptions import WindowError
from pdf_ops.window import Window, parse_instant, resolve_window

NOW = datetime(2026, 3, 10, 15, 0, tzinfo=UTC)
INTERVAL = (datetime(2026, 3, 9, 2, 0, tzinfo=UTC), datetime(2026, 3, 10, 2, 0, tzinfo=UTC))
INSTANTS = st.integers(946_684_800, 4_102_444_800).map(lambda second: datetime.fromtimestamp(second, UTC))


def test_a_scheduled_run_takes_everything_up_to_its_intervals_end():
    window = resolve_window(run_type="scheduled", run_after=NOW, data_interval=INTERVAL)

    assert (window.start, window.end) == (None, INTERVAL[1])


def test_a_backfill_takes_its_interval_alone():
    window = resolve_window(run_type="backfill", run_after=NOW, data_interval=INTERVAL)

    assert (window.start, window.end) == INTERVAL


@pytest.mark.parametrize("interval", [None, INTERVAL])
@pytest.mark.parametrize("run_type", ["manual", "asset_triggered"])
def test_any_other_run_takes_everything_until_it_was_started(run_type, interval):
    # A person who uploads at noon and presses Trigger does not mean last night's interval.
    window = resolve_window(run_type=run_type, run_after=NOW, data_interval=interval)

    assert (window.start, window.end) == (None, NOW)


def test_what_a_person_asked_for_wins():
    window = resolve_window(
        run_type="backfill",
        run_after=NOW,
        data_interval=INTERVAL,
        window_start="2026-01-01",
        window_end="2026-02-01T00:00:00+01:00",
        lookback_days=3,
    )

    assert (window.start, window.end) == (
        datetime(2026, 1, 1, tzinfo=UTC),
        datetime(2026, 1, 31, 23, tzinfo=UTC),
    )


def test_a_lookback_bounds_the_start():
    window = resolve_window(run_type="scheduled", run_after=NOW, data_interval=INTERVAL, lookback_days=7)

    assert window.start == INTERVAL[1] - timedelta(days=7)


@pytest.mark.parametrize("text", ["yesterday", "2026-13-01", "10.3.2026"])
def test_what_is_no_instant_is_refused_with_its_name(text):
    with pytest.raises(WindowError, match=r"window_end.*ISO 8601"):
        resolve_window(run_type="manual", run_after=NOW, window_end=text)


@given(
    run_type=st.sampled_from(["scheduled", "backfill", "manual", "asset_triggered"]),
    run_after=INSTANTS,
    interval=st.none() | st.tuples(INSTANTS, INSTANTS).filter(lambda pair: pair[0] < pair[1]),
    start=st.none() | INSTANTS,
    end=st.none() | INSTANTS,
    lookback=st.integers(0, 400),
    changed=INSTANTS,
)
def test_a_window_includes_its_start_and_not_its_end(
    run_type, run_after, interval, start, end, lookback, changed
):
    try:
        window = resolve_window(
            run_type=run_type,
            run_after=run_after,
            data_interval=interval,
            window_start=start.isoformat() if start else "",
            window_end=end.isoformat() if end else "",
            lookback_days=lookback,
        )
    except WindowError:
        assert start is not None
        return
    assert window.start is None or window.start < window.end
    assert end is None or window.end == end
    assert start is None or window.start == start
    is_inside = (window.start is None or window.start <= changed) and changed < window.end
    assert (window.why_outside(changed) is None) is is_inside
    assert window.why_outside(window.end) is not None
    assert window.start is None or window.why_outside(window.start) is None


@given(INSTANTS)
def test_an_instant_survives_being_written(instant):
    assert parse_instant(instant.isoformat(), "x") == instant
    assert parse_instant("", "x") is None


def test_a_window_without_extent_is_refused():
    with pytest.raises(WindowError):
        Window(start=NOW, end=NOW, origin="x")
