"""Queries of administrators over pg_stat_activity and other system relations, with functions of all kinds."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import errors

from tests.polling import HANG_S, until

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


def test_locks_and_the_sessions_that_block_others(dsn: str) -> None:
    with (
        psycopg.connect(dsn, autocommit=True) as administrator,
        psycopg.connect(dsn) as holder,
        psycopg.connect(dsn) as waiter,
        ThreadPoolExecutor(1) as threads,
    ):
        administrator.execute("CREATE TABLE locked (k int)")
        first, second = holder.info.backend_pid, waiter.info.backend_pid
        holder.execute("LOCK TABLE locked IN EXCLUSIVE MODE")
        holder.execute("SELECT pg_advisory_xact_lock(-2), pg_advisory_xact_lock_shared(3, -4)")
        waiting = threads.submit(waiter.execute, "LOCK TABLE locked IN EXCLUSIVE MODE")
        blocking = "SELECT pid, pg_blocking_pids(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        assert until(lambda: administrator.execute(blocking).fetchall()) == [(second, [first])]
        assert administrator.execute("SELECT pg_blocking_pids(%s)", (first,)).fetchone() == ([],)
        found = administrator.execute(
            "SELECT pid, locktype, relation::regclass::text, classid, objid, objsubid, mode, granted FROM pg_locks "
            "WHERE pid IN (%s, %s) ORDER BY locktype DESC, granted DESC, objsubid",
            (first, second),
        ).fetchall()
        assert found == [
            (first, "relation", "locked", None, None, None, "ExclusiveLock", True),
            (second, "relation", "locked", None, None, None, "ExclusiveLock", False),
            (first, "advisory", None, 2**32 - 1, 2**32 - 2, 1, "ExclusiveLock", True),
            (first, "advisory", None, 3, 2**32 - 4, 2, "ShareLock", True),
        ]
        holder.rollback()
        waiting.result(HANG_S)
        assert administrator.execute(blocking).fetchall() == []


def test_the_numbers_of_sessions_of_databases(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        counted = "SELECT numbackends, xact_commit FROM pg_stat_database WHERE datname = current_database()"
        assert connection.execute(counted).fetchone() == (1, None)
        with psycopg.connect(dsn):
            assert connection.execute(counted).fetchone() == (2, None)


NAMED = """
SELECT pg_total_relation_size(schemaname || '.' || tablename) > 0 FROM pg_tables WHERE tablename = 'Sized';
SELECT pg_relation_size('"' || table_schema || '"."' || table_name || '"') > 0
    FROM information_schema.tables WHERE table_name = 'Sized';
SELECT pg_total_relation_size(quote_ident(schemaname) || '.' || quote_ident(tablename)) > 0
    FROM pg_tables WHERE tablename IN ('sized', 'Sized');
SELECT format('%I.%I', table_schema, table_name)::regclass FROM information_schema.tables WHERE table_name = 'Sized';
SELECT obj_description((table_schema || '.' || table_name)::regclass) FROM information_schema.tables
    WHERE table_name = 'sized';
SELECT col_description((table_schema || '.' || table_name)::regclass, ordinal_position), data_type::regtype,
    data_type::regtype::oid FROM information_schema.columns WHERE table_name = 'sized' ORDER BY ordinal_position;
SELECT attname FROM pg_attribute JOIN information_schema.columns c
    ON attrelid = (c.table_schema || '.' || c.table_name)::regclass AND attname = c.column_name
    WHERE c.table_name = 'sized' ORDER BY attnum;
SELECT nspname::regnamespace, (SELECT typname::regtype FROM pg_type WHERE typname = '_int4')
    FROM pg_namespace WHERE nspname = 'pg_catalog';
SELECT (rolname || 'x')::regrole FROM pg_roles WHERE rolname = current_user;
SELECT (relname || 'x')::regclass FROM pg_class WHERE relname = 'sized';
SELECT (typname || 'x')::regtype FROM pg_type WHERE typname = 'int4';
SELECT (nspname || 'x')::regnamespace FROM pg_namespace WHERE nspname = 'pg_catalog';
SELECT NULLIF(relname, 'sized')::regclass FROM pg_class WHERE relname = 'sized';
SELECT oid::int4::text::regtype, typlen::numeric(5, 2), typname::varchar(3) FROM pg_type WHERE typname = 'int4';
SELECT schemaname, relname FROM pg_statio_user_tables WHERE relname = 'sized'
"""


def test_texts_that_name_objects_as_in_postgresql(dsn: str, postgres: str) -> None:
    objects = 'CREATE TABLE sized (k int, v varchar(5)); CREATE TABLE "Sized" (k int);'
    objects += "COMMENT ON TABLE sized IS 'a table'; COMMENT ON COLUMN sized.v IS 'a value';"
    objects += """INSERT INTO sized VALUES (1, 'a'); INSERT INTO "Sized" VALUES (1)"""
    with psycopg.connect(dsn, autocommit=True) as ours, psycopg.connect(postgres, autocommit=True) as theirs:
        for statement in ('DROP TABLE IF EXISTS sized, "Sized"', *objects.split(";")):
            ours.execute(statement.encode())
            theirs.execute(statement.encode())
        for query in NAMED.split(";"):
            assert _outcome(ours, query) == _outcome(theirs, query), query
        theirs.execute('DROP TABLE sized, "Sized"')


def _outcome(connection: psycopg.Connection[Any], query: str) -> object:
    try:
        return connection.execute(query.encode()).fetchall()
    except psycopg.Error as error:
        role = connection.info.user
        return error.sqlstate, str(error.diag.message_primary).replace(role, "user")
