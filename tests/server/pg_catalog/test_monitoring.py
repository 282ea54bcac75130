"""Queries of administrators over pg_stat_activity and other system relations, with functions of all kinds."""

from __future__ import annotations

from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import errors

from tests.polling import until

# The catalog engine lacks a function or form of each of these queries, so that Spark computes them.
ON_SPARK: tuple[tuple[LiteralString, LiteralString], ...] = (
    ("SELECT age(now(), query_start) < '1 minute' FROM pg_stat_activity WHERE pid = pg_backend_pid()", "true"),
    ("SELECT clock_timestamp() >= query_start FROM pg_stat_activity WHERE pid = pg_backend_pid()", "true"),
    ("SELECT date_trunc('day', backend_start) <= now() FROM pg_stat_activity WHERE pid = pg_backend_pid()", "true"),
    ("SELECT to_char(now(), 'YYYY') > '2025' FROM pg_namespace WHERE nspname = 'public'", "true"),
    ("SELECT initcap(nspname) FROM pg_namespace WHERE nspname = 'public'", "Public"),
    ("SELECT format('%-8s|', nspname) FROM pg_namespace WHERE nspname = 'public'", "public  |"),
    ("SELECT (regexp_matches(relname, '^pg_(.*)$'))[1] FROM pg_class WHERE relname = 'pg_class'", "class"),
    ("SELECT n::text FROM (SELECT nspname, 1 FROM pg_namespace WHERE nspname = 'public') n", "(public,1)"),
    ("SELECT jsonb_object_agg(nspname, 1) ->> 'public' FROM pg_namespace", "1"),
    ("SELECT random() < 2 FROM pg_namespace WHERE nspname = $1", "true"),
)


@pytest.mark.parametrize(("query", "expected"), ON_SPARK)
def test_functions_that_the_catalog_engine_lacks(dsn: str, query: LiteralString, expected: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        parameters = ("public",) if "$1" in query else ()
        found = psycopg.RawCursor(connection).execute(query, parameters).fetchone()
    assert found is not None
    assert (str(found[0]).lower() if isinstance(found[0], bool) else found[0]) == expected


def sessions(connection: psycopg.Connection[Any], name: str) -> int:
    counted = connection.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", (name,))
    row = counted.fetchone()
    assert row is not None
    return int(row[0])


def test_termination_of_the_sessions_of_pg_stat_activity(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as administrator:
        idle = [psycopg.connect(dsn, application_name=name) for name in ("idle", "idle", "other")]
        found = administrator.execute(
            "SELECT pid, pg_terminate_backend(pid), application_name FROM pg_stat_activity "
            "WHERE application_name = 'idle' AND state = 'idle' AND pid <> pg_backend_pid() ORDER BY pid"
        ).fetchall()
        assert found == [(each.info.backend_pid, True, "idle") for each in idle[:2]]
        until(lambda: sessions(administrator, "idle") == 0)
        assert sessions(administrator, "other") == 1
        for ended in idle[:2]:
            with pytest.raises(psycopg.OperationalError, match="terminating connection due to administrator command"):
                ended.execute("SELECT 1")
        assert idle[2].execute("SELECT 1").fetchone() == (1,)
        idle[2].close()


def test_cancellation_describes_a_boolean(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(
            "SELECT pg_catalog.pg_cancel_backend(pid), pid FROM pg_stat_activity WHERE pid < %s", (0,)
        )
        assert [(column.name, column.type_code) for column in cursor.description or ()] == [
            ("pg_cancel_backend", 16),
            ("pid", 23),
        ]


def test_signals_elsewhere_are_refused(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for query in (
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity",
            "SELECT DISTINCT pg_terminate_backend(pid) FROM pg_stat_activity",
            "SELECT 1 FROM pg_stat_activity WHERE pg_terminate_backend(pid)",
        ):
            with pytest.raises(errors.FeatureNotSupported) as refused:
                connection.execute(query.encode())
            assert "pg_stat_activity" in str(refused.value.diag.message_hint)
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_the_error_names_the_function_that_nothing_has(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        with pytest.raises(errors.UndefinedFunction, match="no_such_function"):
            connection.execute("SELECT no_such_function(oid) FROM pg_class")
