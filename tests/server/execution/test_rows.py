"""Rows as values: what clients receive, and where a row cannot be stored."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

ROW = "SELECT t FROM (SELECT 1 AS a, 'x y' AS b) AS t"


@pytest.fixture
def connection(dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


def test_a_driver_reads_a_row_as_a_tuple(connection: psycopg.Connection) -> None:
    assert connection.execute(ROW).fetchone() == (("1", "x y"),)


def test_a_row_has_no_binary_format(connection: psycopg.Connection) -> None:
    with pytest.raises(psycopg.errors.UndefinedFunction, match="no binary output function available for type record"):
        connection.cursor(binary=True).execute(ROW)
    assert connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize("create", ["VIEW", "MATERIALIZED VIEW", "TABLE"])
def test_a_row_cannot_be_a_column(connection: psycopg.Connection, create: str) -> None:
    with pytest.raises(psycopg.errors.InvalidTableDefinition, match='column "t" has pseudo-type record'):
        connection.execute(f"CREATE {create} v AS {ROW}".encode())


def test_rows_in_json_are_maintained(connection: psycopg.Connection) -> None:
    connection.execute("CREATE TABLE parts (id int, of int, name text)")
    connection.execute("INSERT INTO parts VALUES (1, 1, 'a'), (2, 1, NULL)")
    query = "SELECT of, jsonb_agg(p ORDER BY p.id) AS parts FROM parts AS p GROUP BY of"
    connection.execute(f"CREATE MATERIALIZED VIEW whole AS {query}".encode())
    connection.execute("INSERT INTO parts VALUES (3, 2, 'c')")
    connection.execute("DELETE FROM parts WHERE id = 2")
    assert connection.execute("SELECT * FROM whole ORDER BY of").fetchall() == [
        (1, [{"id": 1, "of": 1, "name": "a"}]),
        (2, [{"id": 3, "of": 2, "name": "c"}]),
    ]
