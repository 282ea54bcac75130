"""MERGE, compared with PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import errors

from tests.examples import examples
from tests.fix_postgres import own_schema
from tests.server.execution.test_keys import outcome

Connection = psycopg.Connection[Any]

TABLES = """
    CREATE TABLE t (id int PRIMARY KEY, a text DEFAULT 'none', n int NOT NULL);
    CREATE TABLE s (id int, a text, n int);
    INSERT INTO t VALUES (1, 'one', 1), (2, NULL, 2), (3, 'three', 3)
"""
IDS = st.integers(1, 5)
ROWS = st.builds("({}, {}, {})".format, IDS, st.sampled_from(("'x'", "'y'", "NULL")), st.integers(0, 4))
SOURCES = st.sampled_from(
    ("s", "s AS u", "(SELECT DISTINCT ON (id) * FROM s ORDER BY id, n, a) u", "(VALUES (1, 'v', 9)) u (id, a, n)")
)
CONDITIONS = st.sampled_from(
    ("", "", " AND {}.n > 1", " AND {}.a IS NOT NULL", " AND CASE WHEN {}.n = 1 THEN true END")
)
MATCHED = st.builds(
    "WHEN MATCHED{} THEN {}".format,
    st.one_of(
        CONDITIONS.map(lambda c: c.format("t")), CONDITIONS.map(lambda c: c.format("{s}")), st.just(" AND t.n < {s}.n")
    ),
    st.sampled_from(
        (
            "UPDATE SET a = {s}.a",
            "UPDATE SET n = t.n + {s}.n, a = CASE WHEN {s}.a = 'x' THEN t.a ELSE 'other' END",
            "UPDATE SET (a, n) = (DEFAULT, {s}.n)",
            "UPDATE SET id = {s}.id + 1",
            "DELETE",
            "DO NOTHING",
        )
    ),
)
UNMATCHED = st.builds(
    "WHEN NOT MATCHED{} THEN {}".format,
    CONDITIONS.map(lambda c: c.format("{s}")),
    st.sampled_from(
        (
            "INSERT VALUES ({s}.id, {s}.a, {s}.n)",
            "INSERT (n, id) VALUES ({s}.n, {s}.id)",
            "INSERT (id, a, n) VALUES ({s}.id, DEFAULT, 1)",
            "INSERT (id) VALUES ({s}.id)",
            "DO NOTHING",
        )
    ),
)
CLAUSES = st.lists(st.one_of(MATCHED, UNMATCHED), min_size=1, max_size=3).map(" ".join)


def merge(source: str, on: str, clauses: str) -> str:
    name = "s" if source == "s" else "u"
    return f"MERGE INTO t USING {source} ON {on.format(s=name)} {clauses.format(s=name)}"


ON = st.sampled_from(("t.id = {s}.id", "t.id = {s}.id AND t.n <> 4", "t.n = {s}.n AND {s}.a = 'x'"))
MERGES = st.builds(merge, SOURCES, ON, CLAUSES)
STATEMENTS = st.one_of(
    MERGES,
    MERGES,
    MERGES,
    st.builds("INSERT INTO s VALUES {}".format, ROWS),
    st.builds("DELETE FROM s WHERE id = {}".format, IDS),
)


@pytest.fixture(scope="module")
def theirs(postgres: str) -> Iterator[Connection]:
    with own_schema(postgres, "merges") as connection:
        yield connection


def kind(found: object) -> object:
    """An outcome without the kind of error: PostgreSQL reports that of the first row, in its own order."""
    error = found if isinstance(found, str) else found[0] if isinstance(found, tuple) else None
    return "failed" if error in ("21000", "23505", "23502") else found


@pytest.mark.sql
def test_merges_are_those_of_postgresql(theirs: Connection, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as ours:

        @examples(12)
        @given(st.lists(ROWS, min_size=1, max_size=4), st.lists(STATEMENTS, min_size=1, max_size=4), st.booleans())
        def compare(rows: list[str], statements: list[str], is_block: bool) -> None:
            for connection in (theirs, ours):
                connection.execute("ROLLBACK")  # after a failed example
                connection.execute("DROP TABLE IF EXISTS t; DROP TABLE IF EXISTS s")
                connection.execute(TABLES)
            block = ["BEGIN", *statements, "COMMIT"] if is_block else statements
            for statement in (f"INSERT INTO s VALUES {', '.join(rows)}", *block, "SELECT * FROM t"):
                found, expected = kind(outcome(ours, statement)), kind(outcome(theirs, statement))
                if expected == "failed" != found and "SET id" in statement:
                    return  # a duplicate that a later row of the statement has removed
                assert found == expected, statement

        compare()


def test_rows_that_the_source_lacks(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as ours:
        ours.execute(TABLES)
        ours.execute("INSERT INTO s VALUES (1, 'new', 1), (4, 'four', 4)")
        done = ours.execute(
            "MERGE INTO t AS x USING s ON x.id = s.id WHEN MATCHED THEN UPDATE SET a = s.a "
            "WHEN NOT MATCHED BY SOURCE AND x.n > 2 THEN DELETE WHEN NOT MATCHED BY SOURCE THEN UPDATE SET n = -x.n "
            "WHEN NOT MATCHED BY TARGET THEN INSERT VALUES (s.id, s.a, s.n)"
        )
        assert done.statusmessage == "MERGE 4"
        found = ours.execute("SELECT * FROM t ORDER BY id").fetchall()
        assert found == [(1, "new", 1), (2, None, -2), (4, "four", 4)]
        merged = "MERGE INTO t USING (SELECT %s::int AS id) u ON t.id = u.id WHEN MATCHED THEN DELETE"
        assert ours.execute(merged, (4,), prepare=True).statusmessage == "MERGE 1"
        ours.execute("CREATE ROLE merger; GRANT SELECT, UPDATE ON t TO merger; SET ROLE merger")
        with pytest.raises(errors.InsufficientPrivilege):
            ours.execute("MERGE INTO t USING (VALUES (1)) u (id) ON t.id = u.id WHEN MATCHED THEN DELETE")
        ours.execute("RESET ROLE; REVOKE ALL ON t FROM merger; DROP ROLE merger")
