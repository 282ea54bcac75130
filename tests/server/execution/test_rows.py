"""Rows as values: what clients receive, and where a row cannot be stored."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.fix_postgres import own_schema

ROW = "SELECT t FROM (SELECT 1 AS a, 'x y' AS b) AS t"


@pytest.fixture
def connection(dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


def test_a_driver_reads_a_row_as_a_tuple(connection: psycopg.Connection) -> None:
    assert connection.execute(ROW).fetchone() == (("1", "x y"),)


@pytest.mark.parametrize(
    "query",
    [
        ROW,
        "SELECT ROW(1, 2::int2, 3::int8, NULL::text, ''::text, true, 1.5::real, 0.1::float8, 2.30::numeric(6, 2), 1.5)",
        r"""SELECT ROW('say "a, b"'::text, E'c:\\d (e)'::text, '\x00ff'::bytea, 'x'::char(3), 'y'::varchar)""",
        "SELECT ROW(date '2024-02-29', time '12:30', timestamp 'infinity', timestamptz '2024-01-01 12:00+02')",
        "SELECT ROW(interval '1 mon -2 days', '{\"a\": [1, null]}'::jsonb, '[1]'::json, inet '10.0.0.1/8')",
        "SELECT ROW('6f9619ff-8b86-d011-b42d-00cf4fc964ff'::uuid, ARRAY[1, NULL], ARRAY['a b', NULL, 'null', ''])",
        "SELECT ROW(ROW(1, 'a b'::text), NULL::int), ROW(NULL::text), ROW(''::text)",
        "SELECT ROW(ARRAY[ROW(1, 'a \"b\"'::text), NULL, ROW(NULL::int, 'c'::text)])",
        "SELECT ARRAY[ROW(1, true), NULL], ARRAY[ROW(2)]",
        "SELECT ROW(pg_sleep(0), 1), ROW()",
        "SELECT t, array_agg(t) OVER (ORDER BY a) FROM (VALUES (1, 'x y'), (2, NULL), (3, '')) AS t (a, b) ORDER BY a",
        "SELECT u FROM (VALUES (1), (2)) AS t (a) LEFT JOIN (VALUES (1, 1.25::real)) AS u (a, b) USING (a) ORDER BY a",
    ],
)
def test_a_row_in_binary_format_is_that_of_postgresql(
    connection: psycopg.Connection, postgres: str, query: str
) -> None:
    connection.execute("SET TimeZone = 'Asia/Kolkata'; SET DateStyle = 'German'; SET IntervalStyle = 'sql_standard'")
    with psycopg.connect(postgres, autocommit=True) as reference:
        answers = [
            [[result.get_value(row, column) for column in range(result.nfields)] for row in range(result.ntuples)]
            for session in (reference, connection)
            for result in [session.pgconn.exec_params(query.encode(), None, result_format=1)]
        ]
    assert answers[1] == answers[0] != []


def test_a_driver_reads_an_array_of_rows_as_a_list_of_tuples(connection: psycopg.Connection) -> None:
    rows = connection.execute("SELECT array_agg(t ORDER BY t) FROM (VALUES (2, 'x y'), (1, NULL)) AS t (a, b)")
    assert rows.fetchone() == ([("1", None), ("2", "x y")],)


@pytest.mark.parametrize("create", ["VIEW", "MATERIALIZED VIEW", "TABLE"])
@pytest.mark.parametrize(("query", "type"), [(ROW, "record"), (f"SELECT ARRAY({ROW}) AS t", r"record\[\]")])
def test_a_row_cannot_be_a_column(connection: psycopg.Connection, create: str, query: str, type: str) -> None:
    with pytest.raises(psycopg.errors.InvalidTableDefinition, match=f'column "t" has pseudo-type {type}'):
        connection.execute(f"CREATE {create} v AS {query}".encode())


@pytest.mark.parametrize("query", ["SELECT pg_sleep(0) AS t", "SELECT * FROM pg_sleep(0) AS t"])
@pytest.mark.parametrize("create", ["VIEW", "TABLE"])
def test_the_result_of_a_function_without_one_cannot_be_a_column(
    connection: psycopg.Connection, create: str, query: str
) -> None:
    with pytest.raises(psycopg.errors.InvalidTableDefinition, match='column "t" has pseudo-type void'):
        connection.execute(f"CREATE {create} v AS {query}".encode())


def test_a_written_row_is_returned(connection: psycopg.Connection) -> None:
    connection.execute("CREATE TABLE parts (id int, name text)")
    connection.execute("INSERT INTO parts VALUES (1, 'a')")
    assert connection.execute("INSERT INTO parts VALUES (2, 'b') RETURNING parts").fetchone() == (("2", "b"),)
    assert connection.execute("SELECT parts FROM parts WHERE id = 1").fetchone() == (("1", "a"),)


def test_a_view_cannot_have_the_columns_of_another_relation(connection: psycopg.Connection) -> None:
    connection.execute("CREATE TABLE parts (id int, name text)")
    query = "SELECT * FROM json_populate_record(NULL::parts, '{\"id\": 1}')"
    assert connection.execute(query).fetchall() == [(1, None)]
    connection.execute("ALTER TABLE parts ADD COLUMN size int")
    assert connection.execute(query).fetchall() == [(1, None, None)]
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="in the definition of an object"):
        connection.execute(f"CREATE VIEW v AS {query}")


def test_queries_that_pass_rows_on_are_maintained(connection: psycopg.Connection) -> None:
    connection.execute("CREATE TABLE parts (id int, of int)")
    connection.execute("INSERT INTO parts VALUES (1, 1), (2, 1)")
    query = "SELECT (p).of AS of, max((p).id) AS id FROM (SELECT DISTINCT p FROM parts AS p) AS x GROUP BY (p).of"
    connection.execute(f"CREATE MATERIALIZED VIEW latest AS {query}".encode())
    connection.execute("INSERT INTO parts VALUES (3, 2), (4, 2), (4, 2)")
    connection.execute("DELETE FROM parts WHERE id = 2")
    assert connection.execute("SELECT * FROM latest ORDER BY of").fetchall() == [(1, 1), (2, 4)]
    explained = "\n".join(line for (line,) in connection.execute(f"EXPLAIN {query}".encode()))
    assert "Distinct: id, of" in explained
    assert "recomputed" not in explained
    arrays = "EXPLAIN SELECT DISTINCT array_agg(p) FROM parts AS p GROUP BY p.of"
    explained = "\n".join(line for (line,) in connection.execute(arrays.encode()))
    assert "recomputed when an input changes, because there is no rule for rows between two operators" in explained


CHOSEN_AND_COUNTED = (
    "SELECT p.of, count(DISTINCT p) AS distinct, count(*) AS n, max(p.id) AS id FROM parts p GROUP BY p.of",
    "SELECT count(DISTINCT o) AS n, count(DISTINCT p) AS all FROM parts p LEFT JOIN parts o ON o.id = p.of",
    "SELECT count(DISTINCT CASE WHEN p.id > p.of THEN p END) FILTER (WHERE p.name IS NOT NULL) AS n FROM parts p",
    "SELECT (r).id AS id, r IS NULL AS absent, n FROM (SELECT CASE WHEN p.id < 4 THEN p END AS r, count(*) AS n "
    "FROM parts p GROUP BY 1) q",
    "SELECT row_to_json(r)::text AS r, n FROM (SELECT coalesce(o, p) AS r, count(*) AS n "
    "FROM parts p LEFT JOIN parts o ON o.id = p.of GROUP BY 1) q",
)


def test_rows_that_are_counted_and_chosen_are_maintained(connection: psycopg.Connection, postgres: str) -> None:
    """The materialized views have after each write the rows of PostgreSQL's queries."""
    changes = (
        "INSERT INTO parts VALUES (1, 1, 'a'), (2, 1, NULL), (2, 1, NULL), (NULL, NULL, NULL), (5, 2, 'e')",
        "INSERT INTO parts VALUES (3, 2, 'c'), (5, 2, 'e'), (NULL, NULL, NULL), (1, 1, 'a')",
        "UPDATE parts SET name = 'a', of = 5 WHERE id = 2",
        "DELETE FROM parts WHERE id = 1 OR id IS NULL",
        "DELETE FROM parts",
    )
    with own_schema(postgres, "counted_rows") as theirs:
        for side in (connection, theirs):
            side.execute("CREATE TABLE parts (id int, of int, name text)")
        for number, query in enumerate(CHOSEN_AND_COUNTED):
            explained = "\n".join(line for (line,) in connection.execute(f"EXPLAIN {query}".encode()))
            assert "recomputed" not in explained, query
            connection.execute(f"CREATE MATERIALIZED VIEW v{number} AS {query}".encode())
        for change in ("", *changes):
            for side in (connection, theirs):
                side.execute(change.encode())
            for number, query in enumerate(CHOSEN_AND_COUNTED):
                ours = connection.execute(f"SELECT * FROM v{number}".encode()).fetchall()
                expected = theirs.execute(query.encode()).fetchall()
                assert sorted(ours, key=str) == sorted(expected, key=str), (change, query)


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
