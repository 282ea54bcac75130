"""Arrays of several dimensions: parameters of drivers, COPY, maintained queries, and the number of dimensions of types.

Results are compared with PostgreSQL where it has the same.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
from psycopg import errors

from tests.fix_postgres import own_schema
from tests.fix_server import ServerProcess

Connection = psycopg.Connection[Any]

TABLE = "CREATE TABLE matrices (id int, m int[][], t text[][], a int[])"
SQUARE = [[1, 2], [3, 4]]


@contextmanager
def connected(dsn: str) -> Iterator[Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
def both(dsn: str, postgres: str) -> Iterator[tuple[Connection, Connection]]:
    """Tidewire and PostgreSQL, each with the table."""
    with connected(dsn) as ours, own_schema(postgres, "matrices") as theirs:
        for connection in (ours, theirs):
            connection.execute(TABLE)
        yield ours, theirs


STATEMENTS: list[tuple[str, list[Any]]] = [
    ("INSERT INTO matrices VALUES (1, %s, %s, '{1}')", [SQUARE, [["a", None], ["b c", ""]]]),
    ("INSERT INTO matrices VALUES (2, %s, %s, %s)", [[], None, [7]]),
    ("INSERT INTO matrices (id, m) VALUES (3, %s), (4, %s)", [[[5]], [[6, 7]]]),
    ("SELECT %s::int[]", [SQUARE]),
    ("SELECT %s::int[][]", [SQUARE]),
    ("SELECT %s::int[], array_dims(%s::int[])", [[[[1], [2]]], [[[1], [2]]]]),
    ("SELECT (%s::int[])[2][1], (%s::int[])[2]", [SQUARE, [8, 9]]),
    ("SELECT id FROM matrices WHERE id = ANY (%s) ORDER BY id", [[[1, 2], [7, 8]]]),
    ("SELECT id FROM matrices WHERE m = %s::int[]", [SQUARE]),
    ("SELECT unnest(%s::int[])", [SQUARE]),
    ("UPDATE matrices SET m = m || %s::int[] WHERE id = 4", [[8, 9]]),
    ("SELECT id, m, t, a FROM matrices ORDER BY id", []),
    ("DELETE FROM matrices WHERE m @> %s::int[]", [[[6], [9]]]),
    ("SELECT count(*) FROM matrices", []),
]


@pytest.mark.parametrize("form", ["%s", "%b", "%t"])
@pytest.mark.parametrize("prepare", [False, True])
def test_psycopg_sends_nested_lists(both: tuple[Connection, Connection], form: str, prepare: bool) -> None:
    for sql, parameters in STATEMENTS:
        answers = []
        for connection in both:
            cursor = connection.execute(sql.replace("%s", form), parameters, prepare=prepare, binary=form == "%b")
            answers.append(cursor.fetchall() if cursor.description else cursor.statusmessage)
        assert answers[0] == answers[1], sql


def with_asyncpg(dsn: str, work: Callable[[Any], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        connection = await asyncpg.connect(dsn)
        try:
            return await work(connection)
        finally:
            await connection.close()

    return asyncio.run(run())


def test_asyncpg_sends_nested_lists(dsn: str) -> None:
    async def work(connection: Any) -> None:
        await connection.execute(TABLE)
        assert await connection.fetchval("SELECT $1::int[][]", SQUARE) == SQUARE
        statement = await connection.prepare("SELECT $1::int[]")  # planned again for values of other dimensions
        for value in ([1, 2], SQUARE, [[[1]], [[2]]], [], None, [3]):
            assert await statement.fetchval(value) == value
        rows = [(1, SQUARE, [["a", None]], [1]), (2, [], None, None), (3, None, [], [])]
        await connection.executemany("INSERT INTO matrices VALUES ($1, $2, $3, $4)", rows)
        await connection.copy_records_to_table("matrices", records=[(4, [[5], [6]], [["x"]], [2])])
        found = await connection.fetch("SELECT * FROM matrices ORDER BY id")
        assert list(map(tuple, found)) == [*rows, (4, [[5], [6]], [["x"]], [2])]
        assert await connection.fetchval("SELECT id FROM matrices WHERE m = $1", [[5], [6]]) == 4

    with_asyncpg(dsn, work)


@pytest.mark.parametrize(
    ("sql", "value", "wanted"),
    [
        ("INSERT INTO matrices (m) VALUES (%s)", [1, 2], "[]"),
        ("INSERT INTO matrices (a) VALUES (%s)", SQUARE, "[][]"),
        ("INSERT INTO matrices (m) VALUES (%s)", [SQUARE], "[][][]"),
        ("UPDATE matrices SET a = %s", SQUARE, "[][]"),
        ("INSERT INTO matrices (m) SELECT a || %s FROM matrices", [1, 2], "[]"),
    ],
)
def test_a_value_of_other_dimensions_than_its_column_is_refused(
    dsn: str, sql: str, value: list[Any], wanted: str
) -> None:
    with connected(dsn) as connection:
        connection.execute(TABLE)
        with pytest.raises(errors.FeatureNotSupported) as refused:
            connection.execute(sql, [value])
        assert f"{wanted}: the number of dimensions is a part of the type" in (refused.value.diag.message_hint or "")
        assert connection.execute("SELECT count(*) FROM matrices").fetchone() == (0,)


@pytest.mark.parametrize("options", ["", "(FORMAT csv)", "(FORMAT binary)"])
def test_a_copy_is_read_back_by_both_servers(both: tuple[Connection, Connection], options: str) -> None:
    for connection in both:
        connection.execute(
            "INSERT INTO matrices VALUES (1, '{{1,2},{3,NULL}}', '{{a,\"b,c\"},{NULL,\"\"}}', '{1}'), "
            "(2, '{}', NULL, NULL), (3, NULL, '{{\"\\\\\",\"{}\"}}', '{}')"
        )
    copies = []
    for source, target in (both, both[::-1]):
        with source.cursor().copy(f"COPY (SELECT * FROM matrices ORDER BY id) TO STDOUT {options}") as copy:
            copies.append(b"".join(map(bytes, copy)))
        target.execute("CREATE TABLE copied (LIKE matrices)")
        with target.cursor().copy(f"COPY copied FROM STDIN {options}") as copy:
            copy.write(copies[-1])
    assert copies[0] == copies[1]
    for connection in both:
        rows = [connection.execute(f"SELECT * FROM {name} ORDER BY id").fetchall() for name in ("matrices", "copied")]
        assert rows[0] == rows[1]


@pytest.mark.parametrize("text", ["{1,2}", "{{1,2},{3}}", "{{1,2},{3,4}"])
def test_copy_refuses_values_that_the_column_cannot_have(dsn: str, text: str) -> None:
    with connected(dsn) as connection:
        connection.execute("CREATE TABLE t (m int[][])")
        with pytest.raises(errors.Error), connection.cursor().copy("COPY t FROM STDIN") as copy:
            copy.write("{{1}}\n" + text + "\n")
        assert connection.execute("SELECT * FROM t").fetchall() == []


MAINTAINED = (
    "SELECT id, m, m[1:1] AS first, cardinality(m) AS size FROM matrices WHERE 3 = ANY (m)",
    "SELECT m, count(*) AS n, min(id) AS low FROM matrices GROUP BY m",
    "SELECT x, count(*) AS n FROM matrices, unnest(m) x GROUP BY x",
    "SELECT max(m) AS most, min(m) AS least, count(DISTINCT m) AS n FROM matrices",
    "SELECT DISTINCT m || m AS m, to_jsonb(m) AS j FROM matrices",
    "SELECT a.id, b.id AS other FROM matrices a JOIN matrices b ON a.m = b.m AND a.id < b.id",
    "SELECT id, m FROM matrices ORDER BY m DESC NULLS LAST, id LIMIT 3",
    "SELECT array_length(m, 2) AS width, array_agg(m ORDER BY id) AS all FROM matrices "
    "WHERE array_length(m, 1) = 1 AND array_length(m, 2) = 2 GROUP BY 1",
)


def changes(seed: int) -> Iterator[tuple[str, list[Any]]]:
    """Statements that insert, update and delete matrices."""
    chosen = random.Random(seed)

    def matrix() -> list[Any] | None:
        height, width = chosen.randint(0, 2), chosen.randint(1, 2)
        return None if chosen.random() < 0.1 else [[chosen.choice([1, 2, 3, None]) for _ in range(width)]
                                                   for _ in range(height)]  # fmt: skip

    for number in range(25):
        match chosen.choice(["insert", "insert", "update", "delete"]):
            case "insert":
                yield "INSERT INTO matrices (id, m) VALUES (%s, %s::int[][])", [number, matrix()]
            case "update":
                yield "UPDATE matrices SET m = %s::int[][] WHERE id = %s", [matrix(), chosen.randrange(number + 1)]
            case _:
                yield "DELETE FROM matrices WHERE id = %s", [chosen.randrange(number + 1)]


@pytest.mark.long
def test_maintained_queries_of_matrices_have_the_rows_of_postgresql(both: tuple[Connection, Connection]) -> None:
    ours, theirs = both
    for number, sql in enumerate(MAINTAINED):
        ours.execute(f"CREATE MATERIALIZED VIEW v{number} AS {sql}")
    for sql, parameters in changes(3):
        for connection in both:
            connection.execute(sql, parameters)
        for number, query in enumerate(MAINTAINED):
            expected = sorted(map(repr, theirs.execute(query.replace(" AS all", ' AS "all"')).fetchall()))
            assert sorted(map(repr, ours.execute(f"SELECT * FROM v{number}").fetchall())) == expected, query


def test_a_subscription_sorts_matrices_as_queries_do(both: tuple[Connection, Connection]) -> None:
    ours, theirs = both
    values = ["{{1,2},{9,9}}", "{{1,2,3},{4,5,6}}", "{{1},{2}}", "{{1,2}}", "{}", "{{1,NULL}}", "{{0,7}}"]
    for connection in both:
        with connection.transaction():
            for value in values:
                connection.execute("INSERT INTO matrices (m) VALUES (%s::int[][])", [value])
    expected = [m for (m,) in theirs.execute("SELECT m FROM matrices ORDER BY m").fetchall()]
    with psycopg.connect(ours.info.dsn) as reader:
        query = "SUBSCRIBE (SELECT m FROM matrices) WITHIN TIMESTAMP ORDER BY m"
        stream = reader.cursor().stream(query)
        assert [next(stream)[-1] for _ in values] == expected
        stream.close()


@pytest.mark.crash
def test_matrices_and_views_of_them_survive_kills(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, "--timestamp-interval", "100ms")
    with connected(server.dsn) as db:
        db.execute(TABLE)
        db.execute("CREATE MATERIALIZED VIEW by_matrix AS SELECT m, count(*) AS n FROM matrices GROUP BY m")
        for number in range(4):
            db.execute("INSERT INTO matrices (id, m) VALUES (%s, %s)", [number, [[number % 2, 2]]])
        assert db.execute("SELECT * FROM by_matrix ORDER BY m").fetchall() == [([[0, 2]], 2), ([[1, 2]], 2)]
    for number in range(1, 3):
        server.kill()
        server = ServerProcess(tmp_path, "--timestamp-interval", "100ms")
        with connected(server.dsn) as db:
            assert db.execute("SELECT m FROM matrices WHERE id = 3").fetchall() == [([[1, 2]],)]
            db.execute("INSERT INTO matrices (id, m) VALUES (9, %s)", [[[0, 2]]])
            rows = db.execute("SELECT * FROM by_matrix ORDER BY m").fetchall()
            assert rows == [([[0, 2]], 2 + number), ([[1, 2]], 2)]
    server.kill()


def test_execute_refuses_an_argument_of_other_dimensions_than_its_parameter(dsn: str) -> None:
    with connected(dsn) as connection:
        connection.execute("PREPARE one (int[]) AS SELECT array_dims($1)")
        connection.execute("PREPARE two (int[][]) AS SELECT array_dims($1)")
        assert connection.execute("EXECUTE two('{{1,2}}')").fetchone() == ("[1:1][1:2]",)
        assert connection.execute("EXECUTE two('{}')").fetchone() == (None,)
        for call in ("one('{{1,2}}')", "one(ARRAY[[1]])", "two('{1,2}')"):
            with pytest.raises(errors.FeatureNotSupported, match="as a value of type"):
                connection.execute(f"EXECUTE {call}".encode())


@pytest.mark.parametrize(
    "items",
    ["ARRAY[[1,2]]", "'{{1,2}}'::int[]", "'{{1,2}}'::int[][]", "unnest(ARRAY[[1,2]])", "ARRAY[ARRAY[oid = 0]]",
     "cardinality(ARRAY[[1,2]])"],
)  # fmt: skip
def test_queries_over_catalogs_have_arrays_of_several_dimensions(dsn: str, postgres: str, items: str) -> None:
    query = f"SELECT {items}, relname::text FROM pg_class WHERE relname = 'pg_class'".encode()
    with connected(dsn) as ours, connected(postgres) as theirs:
        assert ours.execute(query).fetchall() == theirs.execute(query).fetchall()
