"""What a run cost, and what of it was wasted.

Compute only: requests to S3, SQS and DynamoDB and storage are not in it. Not a bill: prices are
arguments, and AWS rounds in its own way.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pdf_ops.contract.runs import Counters

_MS_PER_HOUR = 3_600_000
# Fargate bills by the second, and at least one minute a task.
_MIN_TASK_S = 60
SPOT = "FARGATE_SPOT"


class PricesError(ValueError):
    """Prices that cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """US dollars an hour on Fargate; the defaults are Linux on x86 in us-east-1.

    Spot's price moves; the default is the usual 70 % off.

    Attributes:
        vcpu_hour: One vCPU on demand.
        gb_hour: One GB of memory on demand.
        spot_vcpu_hour: One vCPU on Spot.
        spot_gb_hour: One GB of memory on Spot.
        gb_per_vcpu: Memory that goes with a vCPU, where only CPU time is known.
    """

    vcpu_hour: float = 0.04048
    gb_hour: float = 0.004445
    spot_vcpu_hour: float = 0.012144
    spot_gb_hour: float = 0.0013335
    gb_per_vcpu: float = 2.0

    @classmethod
    def of(cls, given: Prices | Mapping[str, Any] | None) -> Prices:
        """Take prices as an argument gives them; those that are not given keep their default.

        Raises:
            PricesError: If a name is unknown or a price is not a number; the message lists the names.
        """
        if isinstance(given, Prices):
            return given
        names = [field.name for field in fields(cls)]
        values: dict[str, float] = {}
        for name, value in (given or {}).items():
            try:
                price = float(value)
            except (TypeError, ValueError):
                price = -1.0
            if name not in names or price < 0:
                raise PricesError(f"{name}={value!r} is not a price; accepted: {', '.join(names)}")
            values[name] = price
        return cls(**values)

    def hourly(self, *, vcpu: float, gb: float, is_spot: bool) -> float:
        """What a task of this size costs an hour."""
        if is_spot:
            return vcpu * self.spot_vcpu_hour + gb * self.spot_gb_hour
        return vcpu * self.vcpu_hour + gb * self.gb_hour


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRun:
    """One container's life, as ECS tells it.

    Attributes:
        vcpu: Its vCPUs.
        gb: Its memory.
        runtime_s: How long it ran.
        is_spot: Whether it ran on Spot.
    """

    vcpu: float
    gb: float
    runtime_s: float
    is_spot: bool

    @classmethod
    def of(cls, given: Mapping[str, Any], now: datetime) -> TaskRun | None:
        """Read ``{started_at, stopped_at, cpu, memory, capacity}``; None if it never started."""
        started = _moment(given.get("started_at"))
        if started is None:
            return None
        stopped = _moment(given.get("stopped_at")) or now
        return cls(
            vcpu=float(given.get("cpu") or 1024) / 1024,
            gb=float(given.get("memory") or 2048) / 1024,
            runtime_s=max(0.0, (stopped - started).total_seconds()),
            is_spot=str(given.get("capacity") or "").upper() == SPOT,
        )


def _moment(value: object) -> datetime | None:
    if isinstance(value, str) and value:
        value = datetime.fromisoformat(value)
    if not isinstance(value, datetime):
        return None
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def estimate(
    prices: Prices, counters: Counters, tasks: Iterable[Mapping[str, Any]], *, pages: int, now: datetime
) -> dict[str, Any]:
    """What the run cost: reading, waste (retries and duplicates), and the fleet's idle time.

    From the containers' runtimes where they are known; otherwise from the CPU time that the workers
    counted, which leaves idle time out.
    """
    useful_ms, wasted_ms = float(counters.cpu_ms), float(counters.wasted_ms)
    runs = [run for run in (TaskRun.of(task, now) for task in tasks) if run is not None]
    if runs:
        total = sum(
            prices.hourly(vcpu=run.vcpu, gb=run.gb, is_spot=run.is_spot)
            * max(run.runtime_s, _MIN_TASK_S)
            / 3600
            for run in runs
        )
        paid_ms = sum(run.vcpu * max(run.runtime_s, _MIN_TASK_S) * 1000 for run in runs)
        basis = "tasks"
    else:
        paid_ms = useful_ms + wasted_ms
        total = prices.hourly(vcpu=1, gb=prices.gb_per_vcpu, is_spot=False) * paid_ms / _MS_PER_HOUR
        basis = "cpu_time"
    # Two clocks: what a container used may come out above what it was paid for.
    scale = total / max(paid_ms, useful_ms + wasted_ms, 1.0)
    reading, waste = useful_ms * scale, wasted_ms * scale
    return {
        "currency": "USD",
        "basis": basis,
        "total": round(total, 6),
        "reading": round(reading, 6),
        "waste": round(waste, 6),
        "idle": round(max(0.0, total - reading - waste), 6),
        "per_million_pages": round(total / pages * 1_000_000, 2) if pages else None,
        "vcpu_hours": round(paid_ms / _MS_PER_HOUR, 4),
        "tasks": len(runs),
        "spot_tasks": sum(run.is_spot for run in runs),
        "prices": {field.name: getattr(prices, field.name) for field in fields(prices)},
    }
