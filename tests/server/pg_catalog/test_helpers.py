"""Queries over system catalogs can call functions of PostgreSQL, and not the helpers that implement them."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import errors

from server.pg_catalog.database import definitions
from tests.fix_server import ServerThread

FUNCTIONS, HELPERS = (sorted(name for of, name in definitions() if of == schema) for schema in ("fn", "tw"))


def test_the_functions_that_can_be_called_are_those_of_postgresql(postgres: str) -> None:
    with psycopg.connect(postgres) as connection:
        found = {name for (name,) in connection.execute("SELECT proname FROM pg_proc")}
    assert set(FUNCTIONS) - found == set()


def test_helpers_cannot_be_called(passing_server: ServerThread) -> None:
    assert HELPERS
    with psycopg.connect(passing_server.dsn(), autocommit=True) as connection:
        for name in HELPERS:
            for called in (name, f"tw.{name}", f"pg_catalog.{name}", f"fn.{name}"):
                for text in (f"SELECT {called}(1) FROM pg_class", f"SELECT * FROM pg_class, {called}(1)"):
                    with pytest.raises(errors.UndefinedFunction):
                        connection.execute(text.encode())


def test_schemas_of_the_catalog_engine_cannot_be_named(passing_server: ServerThread) -> None:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as connection:
        with pytest.raises(errors.UndefinedFunction, match=r"function fn\.quote_ident does not exist"):
            connection.execute("SELECT fn.quote_ident('a') FROM pg_class")
        for name in ("pg.pg_class", "pg.tw_grants", "tw_grants", "pg_catalog.tw_grants", "info.tables"):
            with pytest.raises((errors.UndefinedTable, errors.InvalidSchemaName)):
                connection.execute(f"SELECT * FROM {name}".encode())
        aliased = connection.execute("SELECT tw.oid = fn.oid FROM pg_class tw JOIN pg_class fn USING (oid) LIMIT 1")
        assert aliased.fetchone() == (True,)
