"""A dump of pg_dump 16 is restored with psql: tests/data/pg_dump/dump.sql, which make_pg_dump.py wrote."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
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
