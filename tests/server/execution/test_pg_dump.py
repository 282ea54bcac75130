"""A dump of pg_dump 16 is restored with psql: tests/data/pg_dump/dump.sql, which make_pg_dump.py wrote.

pg_dump then dumps the server, and PostgreSQL and the server restore these dumps.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.data.make_pg_dump import DUMP
from tests.fix_postgres import PostgresServer, binaries
from tests.fix_server import ServerThread

_TABLES = ("customers", "products", "orders", "tags", "empty", "archive.orders")
_VIEWS = ("happy", "spending", "archive.ids")
_CATALOG_QUERIES = (
    "SELECT c.conrelid::regclass::text, c.conname, c.contype, c.conkey, c.confkey, c.confdeltype, c.confupdtype"
    " FROM pg_constraint c JOIN pg_namespace n ON n.oid = c.connamespace WHERE n.nspname IN ('public', 'archive')"
    " AND c.conrelid <> 0 ORDER BY 1, 2",
    "SELECT n.nspname, c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,"
    " a.attgenerated, a.atthasdef FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n"
    " ON n.oid = c.relnamespace WHERE n.nspname IN ('public', 'archive') AND c.relkind IN ('r', 'v') AND a.attnum > 0"
    " AND NOT (c.relkind = 'v' AND a.attname = 'never') ORDER BY 1, 2, a.attnum",
    "SELECT c.relname, i.indkey, i.indoption, i.indisunique, i.indisprimary, i.indnkeyatts, c.relam FROM pg_index i"
    " JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE n.nspname IN ('public', 'archive') ORDER BY 1",
    "SELECT sequencename, data_type::text, start_value, increment_by, max_value, cycle, last_value FROM pg_sequences"
    " WHERE schemaname = 'public' ORDER BY 1",
    "SELECT pg_get_serial_sequence('public.customers', 'id'), pg_get_serial_sequence('public.products', 'id')",
    "SELECT obj_description('public.customers'::regclass, 'pg_class'),"
    " col_description('public.customers'::regclass, 3), obj_description('public.happy'::regclass, 'pg_class'),"
    " obj_description('public.orders_product_idx'::regclass, 'pg_class')",
    "SELECT t.typname, e.enumlabel FROM pg_type t JOIN pg_enum e ON e.enumtypid = t.oid ORDER BY 1, e.enumsortorder",
    "SELECT typname, typnotnull, typdefault FROM pg_type WHERE typtype = 'd' AND typnamespace = 'public'::regnamespace"
    " ORDER BY 1",
)
_REFUSED = (
    "INSERT INTO customers (name, address) VALUES ('x', 'ada@example.org')",
    "INSERT INTO customers (name, address) VALUES ('x', 'nowhere')",
    "INSERT INTO customers (id, name) VALUES (1, 'x')",
    "INSERT INTO customers (name, born) VALUES ('x', '1800-01-01')",
    "INSERT INTO products (id, sku) VALUES (7, 'C')",
    "INSERT INTO orders (customer, product, amount) VALUES (1, 100, 0)",
)
_CONTINUED = (
    "INSERT INTO customers (name, token) VALUES ('Cleo', NULL) RETURNING id, feeling, balance, settings, active",
    "INSERT INTO products (sku, price) VALUES ('C', 0.5) RETURNING id, cents",
    "INSERT INTO orders (customer, product) VALUES (2, 100) RETURNING id, amount",
    "SELECT nextval('tickets')",
)


@pytest.fixture(scope="module")
def theirs() -> Iterator[str]:
    """A PostgreSQL with the restored dump."""
    server = PostgresServer()
    try:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("CREATE ROLE materialize SUPERUSER LOGIN")
        dsn = server.dsn.replace("postgres@", "materialize@")
        _restore(dsn, DUMP.read_text())
        yield dsn
    finally:
        server.stop()


def _restore(dsn: str, dump: str) -> None:
    command = [binaries() / "psql", dsn, "-X", "-q", "-v", "ON_ERROR_STOP=1", "-o", "/dev/null"]
    restored = subprocess.run(command, input=dump, text=True, capture_output=True)
    assert (restored.returncode, restored.stderr) == (0, "")


def _outcome(connection: psycopg.Connection[Any], statement: str) -> Any:
    try:
        return connection.execute(statement.encode()).fetchall()
    except psycopg.Error as error:
        return error.sqlstate


def _compare(ours: psycopg.Connection[Any], postgres: psycopg.Connection[Any], names: Sequence[str]) -> None:
    """Asserts that relations have the rows that they have in PostgreSQL."""
    for name in names:
        query = sql.SQL("TABLE {}").format(sql.Identifier(*name.split("."))).as_string()
        assert sorted(map(repr, _outcome(ours, query))) == sorted(map(repr, _outcome(postgres, query))), query


def test_a_dump_is_restored(theirs: str, passing_server: ServerThread) -> None:
    _restore(passing_server.dsn(), DUMP.read_text())
    with (
        psycopg.connect(passing_server.dsn(), autocommit=True) as ours,
        psycopg.connect(theirs, autocommit=True) as postgres,
    ):
        for query in _CATALOG_QUERIES:
            assert _outcome(ours, query) == _outcome(postgres, query), query
        _compare(ours, postgres, _TABLES)
        for statement in _REFUSED:
            assert _outcome(ours, statement) == _outcome(postgres, statement), statement
        with ours.transaction(force_rollback=True), postgres.transaction(force_rollback=True):
            for statement in _CONTINUED:
                assert _outcome(ours, statement) == _outcome(postgres, statement), statement


def test_views_of_a_dump_have_the_same_rows(theirs: str, dsn: str) -> None:
    _restore(dsn, DUMP.read_text())
    with psycopg.connect(dsn, autocommit=True) as ours, psycopg.connect(theirs, autocommit=True) as postgres:
        _compare(ours, postgres, _VIEWS)


_MORE = (
    "CREATE ROLE reader",
    "CREATE MATERIALIZED VIEW known AS SELECT id, name FROM customers",
    "CREATE VIEW a_view_of_a_view AS SELECT name FROM happy",
    "CREATE TABLE a_number (n bigint DEFAULT nextval('tickets'), feelings mood[], CHECK ((n > 0)))",
    "CREATE DOMAIN archive.good AS mood CHECK (VALUE <> 'sad')",
    "COMMENT ON SCHEMA archive IS 'old rows'",
    "COMMENT ON MATERIALIZED VIEW known IS 'known ones'",
    "GRANT SELECT ON customers TO reader",
    "GRANT SELECT (id), UPDATE (price) ON products TO reader WITH GRANT OPTION",
    "GRANT USAGE ON SCHEMA archive TO reader",
    "GRANT USAGE ON SEQUENCE tickets TO reader",
    "REVOKE USAGE ON TYPE mood FROM PUBLIC",
    "ALTER DEFAULT PRIVILEGES IN SCHEMA archive GRANT SELECT ON TABLES TO reader",
)
_MORE_QUERIES = (
    *_CATALOG_QUERIES,
    "SELECT c.relname, c.relkind, replace(c.relacl::text, 'Dxtm', 'Dxt') FROM pg_class c"
    " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname IN ('public', 'archive') ORDER BY 1, 2",
    "SELECT attrelid::regclass::text, attname, attacl::text FROM pg_attribute WHERE attacl IS NOT NULL"
    " AND attrelid >= 16384 ORDER BY 1, 2",
    "SELECT nspacl::text FROM pg_namespace WHERE nspname = 'archive'",
    "SELECT typacl::text, obj_description(oid, 'pg_type') FROM pg_type WHERE typname = 'mood'",
    "SELECT defaclobjtype, defaclacl::text FROM pg_default_acl",
    "SELECT tgt.relname FROM pg_depend d JOIN pg_rewrite r ON r.oid = d.objid JOIN pg_class v ON v.oid = r.ev_class"
    " JOIN pg_class tgt ON tgt.oid = d.refobjid WHERE d.classid = 'pg_rewrite'::regclass AND d.refclassid ="
    " 'pg_class'::regclass AND d.deptype = 'n' AND v.relname IN ('known', 'happy', 'a_view_of_a_view', 'spending')"
    " GROUP BY 1 ORDER BY 1",
)


def _dump(dsn: str, *options: str) -> str:
    """What pg_dump writes, without the lines that differ from run to run."""
    done = subprocess.run([binaries() / "pg_dump", dsn, *options], text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")
    return re.sub(r"^\\(un)?restrict .*\n", "", done.stdout, flags=re.MULTILINE)


def _new_database(dsn: str, name: str) -> str:
    """The DSN of a new database of the same server."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return f"{dsn.rpartition('/')[0]}/{name}"


@pytest.fixture
def dumped(passing_server: ServerThread) -> str:
    """A server with the restored dump and more objects."""
    _restore(passing_server.dsn(), DUMP.read_text())
    with psycopg.connect(passing_server.dsn(), autocommit=True) as connection:
        for statement in _MORE:
            connection.execute(statement.encode())
    return passing_server.dsn()


def test_postgresql_restores_a_dump_of_the_server(theirs: str, dumped: str) -> None:
    """Foreign keys are NOT ENFORCED in the dump, which PostgreSQL understands from 18 on."""
    text = _dump(dumped)
    assert text.count(" NOT ENFORCED;") == 2
    with psycopg.connect(theirs, autocommit=True) as connection:
        connection.execute("CREATE ROLE reader")
    restored = _new_database(theirs, "restored")
    _restore(restored, text.replace(" NOT ENFORCED;", ";"))
    with psycopg.connect(dumped, autocommit=True) as ours, psycopg.connect(restored, autocommit=True) as postgres:
        for query in _MORE_QUERIES:
            assert _outcome(ours, query) == _outcome(postgres, query), query
        _compare(ours, postgres, _TABLES)


@pytest.mark.long
def test_the_server_restores_its_own_dumps(dumped: str, tmp_path: Path) -> None:
    text = _dump(dumped)
    plain = _new_database(dumped, "plain")
    _restore(plain, text)
    assert _dump(plain) == text
    custom, archive = _new_database(dumped, "custom"), str(tmp_path / "archive")
    _dump(dumped, "--format=custom", f"--file={archive}")
    done = subprocess.run([binaries() / "pg_restore", "-d", custom, archive], text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert _dump(custom) == text
    parts = _new_database(dumped, "parts")
    _restore(parts, _dump(dumped, "--schema-only"))
    _restore(parts, _dump(dumped, "--data-only", "--inserts"))
    assert _dump(parts) == text
    _restore(parts, _dump(dumped, "--clean", "--if-exists"))
    assert _dump(parts) == text
    table = _new_database(dumped, "single")
    _restore(table, _dump(dumped, "--table=tags", "--column-inserts"))
    with psycopg.connect(dumped, autocommit=True) as ours, psycopg.connect(table, autocommit=True) as copy:
        _compare(copy, ours, ["public.tags"])


@pytest.mark.long
def test_a_dump_keeps_the_dimensions_of_arrays(passing_server: ServerThread) -> None:
    dsn = passing_server.dsn()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE matrices (m int[][], n numeric(6,2)[][][], plain int[])")
        connection.execute("INSERT INTO matrices VALUES ('{{1,2},{3,4}}', '{{{1.5}}}', '{1}'), ('{}', NULL, '{}')")
    text = _dump(dsn)
    other = _new_database(dsn, "other")
    _restore(other, text)
    assert _dump(other) == text
    with psycopg.connect(dsn, autocommit=True) as ours, psycopg.connect(other, autocommit=True) as copy:
        _compare(copy, ours, ["public.matrices"])


def test_a_refresh_checks_its_view(postgres: str, dsn: str) -> None:
    statements = (
        "CREATE TABLE t (a int)",
        "CREATE VIEW v AS SELECT a FROM t",
        "CREATE MATERIALIZED VIEW m AS SELECT a FROM t WITH NO DATA",
        "REFRESH MATERIALIZED VIEW m",
        "REFRESH MATERIALIZED VIEW m WITH DATA",
        "REFRESH MATERIALIZED VIEW t",
        "REFRESH MATERIALIZED VIEW v",
        "REFRESH MATERIALIZED VIEW missing",
        "REFRESH MATERIALIZED VIEW CONCURRENTLY m WITH NO DATA",
        "REFRESH VIEW m",
    )
    found = []
    for server in (postgres, dsn):
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute("CREATE SCHEMA refreshed; SET search_path = refreshed")
            try:
                found.append([_tag_or_error(connection, statement) for statement in statements])
            finally:
                connection.execute("DROP SCHEMA refreshed CASCADE")
    assert found[0] == found[1]


def _tag_or_error(connection: psycopg.Connection[Any], statement: str) -> Any:
    try:
        return connection.execute(statement.encode()).statusmessage
    except psycopg.Error as error:
        return error.sqlstate, error.diag.message_primary
