"""INSERT ... ON CONFLICT, compared with PostgreSQL, and under concurrency."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import asyncpg
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import errors

from tests.examples import examples
from tests.fix_postgres import own_schema
from tests.fix_server import ServerThread
from tests.server.execution.test_keys import outcomes

Connection = psycopg.Connection[Any]

TABLES = """
    CREATE TABLE k (id int PRIMARY KEY, a text, b numeric(6,2) DEFAULT 7, n int, CONSTRAINT ab UNIQUE (a, b));
    CREATE UNIQUE INDEX by_n ON k (n);
    CREATE TABLE plain (id int, a text)
"""
IDS = st.integers(0, 4)
TEXTS = st.sampled_from(("'a'", "'b'", "NULL"))
NUMBERS = st.sampled_from(("1", "1.0", "2", "NULL", "DEFAULT"))
ROWS = st.builds("({}, {}, {}, {})".format, IDS, TEXTS, NUMBERS, st.integers(0, 9))
VALUES = st.lists(ROWS, min_size=1, max_size=4).map(lambda rows: f"VALUES {', '.join(rows)}")
SOURCES = VALUES | st.just("SELECT id + 1, a, b, n + 1 FROM k") | st.just("SELECT id, a, 3, id FROM plain")
CLAUSES = st.sampled_from(
    (
        "DO NOTHING",
        "(id) DO NOTHING",
        "(b, a) DO NOTHING",
        "ON CONSTRAINT ab DO NOTHING",
        "(id) DO UPDATE SET a = excluded.a",
        "(id) DO UPDATE SET a = excluded.a, b = excluded.b, n = k.n + excluded.n",
        "(id) DO UPDATE SET b = k.b + 1 WHERE k.n < excluded.n",
        "(id) DO UPDATE SET (a, b) = (excluded.a, DEFAULT) WHERE excluded.a IS NOT NULL AND k.a <> excluded.a",
        "(id) DO UPDATE SET id = excluded.id + 1",
        "(a, b) DO UPDATE SET n = excluded.n",
        "ON CONSTRAINT ab DO UPDATE SET id = excluded.id",
        "(n) DO UPDATE SET a = (SELECT max(plain.a) FROM plain)",
        "(n) WHERE n > 3 DO UPDATE SET id = NULL",
    )
)
RETURNING = st.sampled_from(
    ("", "", " RETURNING *", " RETURNING id, n + 1, a || '!' AS x", " RETURNING id, xmax = 0 AS added, row_to_json(k)")
)
STATEMENTS = st.one_of(
    st.builds("INSERT INTO k {} ON CONFLICT {}{}".format, SOURCES, CLAUSES, RETURNING),
    st.builds("INSERT INTO k {} ON CONFLICT {}{}".format, SOURCES, CLAUSES, RETURNING),
    st.builds("INSERT INTO k AS k {} ON CONFLICT {}{}".format, VALUES, CLAUSES, RETURNING),
    st.builds("INSERT INTO plain VALUES ({}, {}) ON CONFLICT DO NOTHING".format, IDS, TEXTS),
    st.builds("DELETE FROM k WHERE id = {}".format, IDS),
)
BLOCKS = st.one_of(
    st.lists(STATEMENTS, min_size=1, max_size=5),
    st.lists(st.one_of(STATEMENTS, STATEMENTS, st.just("ROLLBACK TO x")), min_size=1, max_size=6).map(
        lambda found: ["BEGIN", "SAVEPOINT x", *found, "COMMIT"]
    ),
)


@pytest.fixture(scope="module")
def theirs(postgres: str) -> Iterator[Connection]:
    with own_schema(postgres, "conflicts") as connection:
        yield connection


def kind(found: object) -> object:
    """An outcome without the kind of error: PostgreSQL reports that of the first row, in its own order."""
    is_refused = found in ("21000", "23502") or (isinstance(found, tuple) and found[0] == "23505")
    return "refused" if is_refused else found


def test_conflicts_are_those_of_postgresql(theirs: Connection, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as ours:

        @examples(12)
        @given(st.lists(BLOCKS, min_size=1, max_size=4))
        def compare(blocks: list[list[str]]) -> None:
            definitions = ("DROP TABLE IF EXISTS k; DROP TABLE IF EXISTS plain", TABLES)
            for statement, *both in outcomes(ours, theirs, definitions, blocks, "SELECT * FROM k"):
                found, expected = map(kind, both)
                if expected == "refused" != found and ("SELECT" in statement or "), (" in statement):
                    return  # a duplicate that a later row of the statement has removed
                assert found == expected, statement

        compare()


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO k VALUES (1) ON CONFLICT (a) DO NOTHING",
        "INSERT INTO k VALUES (1) ON CONFLICT (nothing) DO NOTHING",
        "INSERT INTO k VALUES (1) ON CONFLICT ON CONSTRAINT by_n DO NOTHING",
        "INSERT INTO k VALUES (1) ON CONFLICT DO UPDATE SET a = 'x'",
        "INSERT INTO k VALUES (1) ON CONFLICT (id) DO UPDATE SET a = a",
        "INSERT INTO k VALUES (1) ON CONFLICT (id) DO UPDATE SET nothing = 1",
        "INSERT INTO k VALUES (1) ON CONFLICT (id) DO UPDATE SET a = 'x', a = 'y'",
        "INSERT INTO k VALUES (1) ON CONFLICT (id) DO UPDATE SET a = 'x' WHERE 1",
        "INSERT INTO k AS o VALUES (1) ON CONFLICT (id) DO UPDATE SET a = k.a",
        "INSERT INTO k VALUES (1) ON CONFLICT (id) DO UPDATE",
        "INSERT INTO k VALUES (1) ON CONFLICT (id)",
        "INSERT INTO k VALUES (1, 'a'), (1, 'b') ON CONFLICT (id) DO UPDATE SET a = excluded.a",
    ],
)
def test_errors_are_those_of_postgresql(theirs: Connection, passing_server: ServerThread, statement: str) -> None:
    theirs.execute("DROP TABLE IF EXISTS k, plain")
    with psycopg.connect(passing_server.dsn(), autocommit=True) as ours:
        caught = []
        for connection in (ours, theirs):
            connection.execute(TABLES)
            with pytest.raises(psycopg.Error) as error:
                connection.execute(statement.encode())
            diagnosis = error.value.diag
            caught.append((error.value.sqlstate, diagnosis.message_primary, diagnosis.message_hint))
        assert caught[0][:2] == caught[1][:2]


def in_threads(dsn: str, clients: int, work: Callable[[Connection, int], None]) -> None:
    unexpected: list[BaseException] = []

    def run(client: int) -> None:
        try:
            with psycopg.connect(dsn, autocommit=True) as connection:
                work(connection, client)
        except BaseException as error:
            unexpected.append(error)

    threads = [threading.Thread(target=run, args=(client,)) for client in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not unexpected


@pytest.mark.parametrize("prepare", [False, True])
def test_concurrent_statements_do_not_fail(passing_server: ServerThread, prepare: bool) -> None:
    """Also while other clients insert and delete the same keys."""
    with psycopg.connect(passing_server.dsn(), autocommit=True) as admin:
        admin.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")

    def work(connection: Connection, client: int) -> None:
        for number in range(60):
            key = number % 7
            match client % 4:
                case 0:
                    sql = "INSERT INTO t VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET v = excluded.v"
                    assert connection.execute(sql, (key, number), prepare=prepare).rowcount == 1
                case 1:
                    sql = "INSERT INTO t VALUES (%s, %s) ON CONFLICT DO NOTHING"
                    connection.execute(sql, (key, number), prepare=prepare)
                case 2:
                    connection.execute("TRUNCATE t")
                case _:
                    with suppress(errors.UniqueViolation):
                        connection.execute("INSERT INTO t VALUES (%s, %s)", (key, number), prepare=prepare)

    in_threads(passing_server.dsn(), 8, work)
    with psycopg.connect(passing_server.dsn(), autocommit=True) as admin:
        found = [key for (key,) in admin.execute("SELECT id FROM t").fetchall()]
        assert len(found) == len(set(found))


def test_no_increment_is_lost(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute("CREATE TABLE counts (id int PRIMARY KEY, n int)")

    def work(connection: Connection, client: int) -> None:
        for number in range(15):
            sql = "INSERT INTO counts VALUES (%s, 1) ON CONFLICT (id) DO UPDATE SET n = counts.n + excluded.n"
            connection.execute(sql, (number % 3,), prepare=client % 2 == 0)

    in_threads(dsn, 4, work)
    with psycopg.connect(dsn, autocommit=True) as admin:
        assert admin.execute("SELECT * FROM counts ORDER BY id").fetchall() == [(0, 20), (1, 20), (2, 20)]


def test_executemany_and_prepared_statements_of_drivers(passing_server: ServerThread) -> None:
    sql = "INSERT INTO t VALUES ({}, {}) ON CONFLICT (id) DO UPDATE SET v = excluded.v"
    with psycopg.connect(passing_server.dsn()) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
        connection.commit()
        with connection.cursor() as cursor:
            cursor.executemany(sql.format("%s", "%s"), [(number % 3, f"v{number}") for number in range(9)])
            assert cursor.rowcount == 9
        connection.commit()
        assert sorted(connection.execute("SELECT * FROM t").fetchall()) == [(0, "v6"), (1, "v7"), (2, "v8")]

    async def with_asyncpg() -> None:
        connection = await asyncpg.connect(passing_server.dsn())
        try:
            statement = await connection.prepare(sql.format("$1", "$2") + " RETURNING id, v")
            for number in range(3):
                assert [tuple(row) for row in await statement.fetch(number, "w")] == [(number, "w")]
            await connection.executemany(sql.format("$1", "$2"), [(number, "x") for number in range(4)])
            assert await connection.fetchval("SELECT v FROM t WHERE id = 3") == "x"
            done = await connection.execute("INSERT INTO t VALUES (3, 'y'), (4, 'y') ON CONFLICT DO NOTHING")
            assert done == "INSERT 0 1"
        finally:
            await connection.close()

    asyncio.run(with_asyncpg())


def test_a_key_that_is_not_enforced_does_not_conflict(passing_server: ServerThread) -> None:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as ours:
        ours.execute("CREATE TABLE t (id int PRIMARY KEY NOT ENFORCED)")
        with pytest.raises(errors.InvalidColumnReference):
            ours.execute("INSERT INTO t VALUES (1) ON CONFLICT (id) DO NOTHING")
        with pytest.raises(errors.WrongObjectType, match="is not enforced"):
            ours.execute("INSERT INTO t VALUES (1) ON CONFLICT ON CONSTRAINT t_pkey DO NOTHING")
        for _ in range(2):
            assert ours.execute("INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING").rowcount == 1


def test_privileges(passing_server: ServerThread) -> None:
    nothing, update = "INSERT INTO t VALUES (1, 1) ON CONFLICT DO NOTHING", "(id) DO UPDATE SET v = excluded.v"
    with psycopg.connect(passing_server.dsn(), autocommit=True) as ours:
        ours.execute("CREATE TABLE t (id int PRIMARY KEY, v int); CREATE ROLE r; GRANT INSERT ON t TO r")
        ours.execute("GRANT USAGE ON CLUSTER quickstart TO r")
        ours.execute("SET ROLE r")
        ours.execute(nothing)
        statement = nothing.replace("DO NOTHING", update)
        for privilege in ("UPDATE", "SELECT"):
            with pytest.raises(errors.InsufficientPrivilege):
                ours.execute(statement)
            ours.execute("RESET ROLE")
            ours.execute(f"GRANT {privilege} ON t TO r".encode())
            ours.execute("SET ROLE r")
        ours.execute(statement)
