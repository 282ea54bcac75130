"""now() is the time of the transaction, clock_timestamp() that of the statement."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import psycopg
import pytest
from psycopg import errors


def row(connection: psycopg.Connection[Any], sql: str) -> tuple[datetime, datetime]:
    found = connection.execute(sql.encode()).fetchone()
    assert found is not None
    return found


def test_clock_timestamp_advances_in_a_transaction(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (k int, written timestamptz DEFAULT clock_timestamp())")
        connection.execute("BEGIN")
        nows, clocks = zip(*(row(connection, "SELECT now(), clock_timestamp()") for _ in range(3)), strict=True)
        assert len(set(nows)) == 1
        assert nows[0] <= clocks[0] < clocks[1] < clocks[2]
        for _ in range(2):
            connection.execute("INSERT INTO t (k) SELECT g FROM generate_series(1, 3) g")
        first, second = row(connection, "SELECT min(written), max(written) FROM t")
        assert clocks[2] < first < second, "a statement writes one time"
        assert connection.execute("SELECT count(DISTINCT written) FROM t").fetchone() == (2,)
        now, clock = row(connection, "SELECT now(), clock_timestamp() FROM t LIMIT 1")
        assert (now, clock > second) == (nows[0], True)
        connection.execute("COMMIT")


def test_clock_timestamp_cannot_be_maintained(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (k int)")
        with pytest.raises(errors.FeatureNotSupported, match="cannot materialize call to clock_timestamp") as refused:
            connection.execute("CREATE MATERIALIZED VIEW v AS SELECT k, clock_timestamp() AS c FROM t")
        assert refused.value.diag.message_hint


def test_now_in_queries_of_system_catalogs(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET statement_timeout = '20s'")
        ages = "SELECT now() - query_start, now() FROM pg_stat_activity WHERE pid = pg_backend_pid()"
        age, now = connection.execute(ages).fetchone() or ()
        assert age.total_seconds() < 1
        assert abs(now.timestamp() - time.time()) < 60
        with connection.transaction():
            first = connection.execute("SELECT now()").fetchone()
            assert connection.execute("SELECT now() FROM pg_namespace LIMIT 1").fetchone() == first
            assert connection.execute("SELECT now() FROM pg_namespace WHERE %s LIMIT 1", (True,)).fetchone() == first
