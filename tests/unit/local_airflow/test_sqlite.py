"""SQLite under several processes of Airflow."""

from __future__ import annotations

import threading

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from local_airflow.sqlite import CONNECT_ARGS


@pytest.fixture
def engine(tmp_path):
    engine = create_engine(f"sqlite:///{tmp_path}/airflow.db", connect_args=CONNECT_ARGS)
    with engine.begin() as connection:
        connection.execute(text("PRAGMA journal_mode=WAL"))
        connection.execute(text("CREATE TABLE runs (name TEXT)"))
    yield engine
    engine.dispose()


def names(engine):
    with engine.connect() as connection:
        return sorted(connection.execute(text("SELECT name FROM runs")).scalars())


def add(engine, name):
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO runs VALUES (:name)"), {"name": name})


def test_what_reads_and_then_writes_in_a_savepoint_is_not_refused_when_others_write_meanwhile(engine):
    other = threading.Thread(target=add, args=(engine, "other"))
    with Session(engine) as session:
        with session.begin_nested():
            session.execute(text("SELECT name FROM runs")).all()
            other.start()
            other.join(0.3)  # Without the savepoint's own turn, this is the write that makes ours fail.
            session.execute(text("INSERT INTO runs VALUES ('ours')"))
        session.commit()
    other.join()

    assert names(engine) == ["other", "ours"]


def test_a_savepoint_that_is_rolled_back_leaves_the_rest_of_its_transaction(engine):
    with Session(engine) as session:
        session.execute(text("INSERT INTO runs VALUES ('kept')"))
        with session.begin_nested() as nested:
            session.execute(text("INSERT INTO runs VALUES ('dropped')"))
            nested.rollback()
        session.commit()

    assert names(engine) == ["kept"]
