"""What lets several processes of Airflow share one SQLite: they wait for each other, and none is refused.

A savepoint outside a transaction begins one that only reads; its first write fails at once, "database is
locked", when another process has written since. ``airflow backfill create`` writes that way. Here such a
transaction begins as one that writes, so that it waits for its turn.

Airflow imports this from the ``airflow_local_settings`` of its home. Not for a deployment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import event
from sqlalchemy.engine import Engine

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy.engine import Connection

BUSY_TIMEOUT_S = 60.0
CONNECT_ARGS: dict[str, Any] = {"timeout": BUSY_TIMEOUT_S}
"""How long a process waits; the usual five seconds are too few on a busy machine."""


def begin_before_savepoint(connection: Connection, _name: str | None) -> None:
    """Begin a transaction that writes, unless one has begun."""
    if connection.dialect.name == "sqlite":
        driver: Any = connection.connection.driver_connection
        if not driver.in_transaction:
            connection.exec_driver_sql("BEGIN IMMEDIATE")


event.listen(Engine, "savepoint", begin_before_savepoint)


def use_in(home: Path) -> dict[str, str]:
    """Have the Airflow of a home use it; returns the variables that this takes."""
    settings = home / "config" / "airflow_local_settings.py"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(f"import {__name__}\n\n__all__ = []\n", encoding="utf-8")
    return {
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS": f"{__name__}.CONNECT_ARGS",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS_ASYNC": f"{__name__}.CONNECT_ARGS",
    }
