"""Which objects a run looks at, by the time of their last change: resolved in this one place.

What a person asked for comes first, then the data interval, then the moment of the run. Not for
deciding about a single object: that is the listing's.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pdf_ops.exceptions import WindowError

if TYPE_CHECKING:
    from airflow.sdk import Context

_BACKFILL = "backfill"
_INTERVAL_RUNS = ("scheduled", _BACKFILL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """From start (itself included) to end (itself not); None is open.

    Attributes:
        start: Objects that changed before it are left out.
        end: Objects that changed at it or later are left to the next run.
        origin: Where both come from, for the log.
    """

    start: datetime | None
    end: datetime
    origin: str

    def __post_init__(self) -> None:
        """Refuse a window that holds nothing.

        Raises:
            WindowError: If it does.
        """
        if self.start is not None and self.start >= self.end:
            raise WindowError(
                f"the window starts at {self.start.isoformat()} and ends at {self.end.isoformat()}; "
                "its start must be before its end"
            )

    def why_outside(self, changed_at: datetime) -> str | None:
        """Why an object that changed then is left out; None when it is in the window."""
        if self.start is not None and changed_at < self.start:
            return f"changed before the window's start {self.start.isoformat()}"
        if changed_at >= self.end:
            return f"changed after the window's end {self.end.isoformat()}"
        return None

    def __str__(self) -> str:
        """As the log shows it."""
        start = "the beginning" if self.start is None else self.start.isoformat()
        return f"{start} to {self.end.isoformat()} ({self.origin})"


def parse_instant(text: str, name: str) -> datetime | None:
    """Read an instant in ISO 8601; one without a zone is in UTC. An empty text is none.

    Raises:
        WindowError: If it is not an instant.
    """
    if not text.strip():
        return None
    try:
        instant = datetime.fromisoformat(text.strip())
    except ValueError:
        raise WindowError(
            f"{name}: {text!r:.50} is not an instant; accepted: ISO 8601 such as 2026-01-31T02:00:00Z"
        ) from None
    return _utc(instant)


def _utc(instant: datetime) -> datetime:
    return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)


def resolve_window(
    *,
    run_type: str,
    run_after: datetime,
    data_interval: tuple[datetime, datetime] | None = None,
    window_start: str = "",
    window_end: str = "",
    lookback_days: int = 0,
) -> Window:
    """Resolve the window of a run.

    A scheduled run looks at everything below the prefix that changed before its interval's end, and
    the state table tells what has been read: so a document that one run missed, whatever the
    reason, is in the next. A backfill looks at its interval alone, as its dates say. Every other run
    (a person's, REST's, an asset's; it may have no logical date) looks at everything until now. A
    lookback bounds the start of all but backfills, which saves asking the state table about old
    objects. A start or end that a person gave wins over all of these.

    Args:
        run_type: Airflow's type of the run.
        run_after: When the run was due; every run has that.
        data_interval: The run's data interval, if it has one.
        window_start: The start that was asked for, in ISO 8601, or empty.
        window_end: The end that was asked for, or empty.
        lookback_days: How far to look back from the end; 0 is without limit.

    Raises:
        WindowError: If the two make no window, or are no instants.
    """
    given_start, given_end = (
        parse_instant(window_start, "window_start"),
        parse_instant(window_end, "window_end"),
    )
    interval = data_interval if run_type in _INTERVAL_RUNS else None
    end = given_end or _utc(interval[1] if interval else run_after)
    if given_start or given_end:
        origin = "as asked for"
    elif interval:
        origin = f"the {run_type} run's data interval"
    else:
        origin = "until the run was started"
    start = given_start
    if start is None and interval and run_type == _BACKFILL and given_end is None:
        start = _utc(interval[0])
    elif start is None and lookback_days > 0:
        start = end - timedelta(days=lookback_days)
        origin += f", looking back {lookback_days} day(s)"
    return Window(start=start, end=end, origin=origin)


def window_of(context: Context, *, window_start: str, window_end: str, lookback_days: int) -> Window:
    """Resolve the window of the run that a task is in.

    Raises:
        WindowError: If there is none.
    """
    run = context["dag_run"]
    start, end = run.data_interval_start, run.data_interval_end
    return resolve_window(
        run_type=str(getattr(run.run_type, "value", run.run_type)),
        run_after=run.run_after,
        data_interval=(start, end) if start is not None and end is not None else None,
        window_start=window_start,
        window_end=window_end,
        lookback_days=lookback_days,
    )
