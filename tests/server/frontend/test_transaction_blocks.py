"""Transaction blocks that read, write, change definitions and have savepoints, compared with PostgreSQL's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import errors

from tests.examples import examples
from tests.server.execution.test_write import done

Connection = psycopg.Connection[Any]

TABLES = "CREATE TABLE a (k int, v int); CREATE TABLE b (k int, s text); INSERT INTO a VALUES (1, 1), (2, 2), (2, 3)"
VIEWS = (
    "CREATE VIEW doubled AS SELECT k, v * 2 AS v FROM a",
    "CREATE MATERIALIZED VIEW sums AS SELECT k, sum(v) AS v FROM a GROUP BY k",
    "CREATE MATERIALIZED VIEW joined AS SELECT sums.k, v, s FROM sums JOIN b ON sums.k = b.k",
)
KEYS = st.integers(0, 3)
NAMES = st.sampled_from(("x", "y"))
WRITES = st.one_of(
    st.builds("INSERT INTO a VALUES ({}, {})".format, KEYS, KEYS),
    st.builds("INSERT INTO b VALUES ({0}, 'of {0}') RETURNING *".format, KEYS),
    st.builds("INSERT INTO a SELECT k + 1, v FROM a WHERE k = {}".format, KEYS),
    st.builds("UPDATE a SET v = v + 1 WHERE k = {} RETURNING k, v".format, KEYS),
    st.builds("UPDATE a SET k = v, v = k WHERE v > {}".format, KEYS),
    st.builds("UPDATE b SET s = s || a.v FROM a WHERE a.k = b.k AND a.v = {} AND a.k = 1".format, KEYS),
    st.builds("DELETE FROM a WHERE k IN ({}, {})".format, KEYS, KEYS),
    st.builds("DELETE FROM b WHERE k = {} RETURNING s".format, KEYS),
    st.just("TRUNCATE a"),
    st.just("INSERT INTO a SELECT k, v FROM sums"),
)
READS = st.one_of(
    st.builds("SELECT * FROM a WHERE k = {}".format, KEYS),
    st.sampled_from([f"SELECT * FROM {name}" for name in ("a", "b", "doubled", "sums", "joined")]),
    st.just("SELECT a.k, v, s FROM a LEFT JOIN b ON a.k = b.k"),
    st.just("SELECT count(*), sum(v) FROM a WHERE k > (SELECT min(k) FROM b)"),
)
ENDS = st.one_of(
    st.builds("SAVEPOINT {}".format, NAMES),
    st.just("ROLLBACK TO x"),
    st.builds("ROLLBACK TO {}".format, NAMES),
    st.builds("RELEASE {}".format, NAMES),
    st.just("SELECT 1 / 0"),
)
BLOCKS = st.tuples(
    st.lists(st.one_of(WRITES, WRITES, READS, READS, ENDS), max_size=12), st.sampled_from(("COMMIT", "ROLLBACK"))
)


@pytest.fixture(scope="module")
def theirs(postgres: str) -> Iterator[Connection]:
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS blocks CASCADE; CREATE SCHEMA blocks; SET search_path = blocks")
        yield connection
        connection.execute("DROP SCHEMA blocks CASCADE")


@pytest.fixture
def connect(dsn: str) -> Iterator[Callable[[], Connection]]:
    opened: list[Connection] = []

    def open() -> Connection:
        opened.append(psycopg.connect(dsn, autocommit=True))
        return opened[-1]

    yield open
    for connection in opened:
        connection.close()


def test_blocks_do_what_they_do_in_postgresql(theirs: Connection, connect: Callable[[], Connection]) -> None:
    ours, prepared = connect(), connect()

    @examples(20)
    @given(st.lists(BLOCKS, min_size=1, max_size=3), st.booleans())
    def compare(blocks: list[tuple[list[str], str]], has_index: bool) -> None:
        for connection in (theirs, ours):
            connection.execute("ROLLBACK")  # after a failed example
        theirs.execute("DROP TABLE IF EXISTS a, b CASCADE")
        ours.execute("DROP TABLE IF EXISTS a CASCADE; DROP TABLE IF EXISTS b CASCADE")
        for connection in (theirs, ours):
            connection.execute(TABLES)
        for view in VIEWS:
            theirs.execute(view.replace("MATERIALIZED ", "").encode())
            ours.execute(view.encode())
        if has_index:
            ours.execute("CREATE INDEX ON a (k); CREATE INDEX ON doubled (k)")
        for statements, end in blocks:
            for statement in ("BEGIN", "SAVEPOINT x", *statements, end, "SELECT * FROM a", "SELECT * FROM joined"):
                assert done(ours, statement) == done(theirs, statement), statement
            assert done(prepared, "SELECT * FROM a") == done(theirs, "SELECT * FROM a"), "another session"

    compare()
