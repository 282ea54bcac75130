"""SUBSCRIBE through the cursors of psycopg and asyncpg. Each driver uses the protocol differently."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import asyncpg
import psycopg
import pytest
from psycopg import errors, sql
from psycopg.rows import namedtuple_row

from testdrive.wire import Connection, encode
from tests.fix_server import ServerThread
from tests.polling import HANG_S

Row = tuple[Any, ...]


@pytest.fixture
def connection(dsn: str) -> Iterator[psycopg.Connection[Row]]:
    """A connection for writes, with a table t of two rows."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (a int, b text)")
        connection.execute("INSERT INTO t VALUES (1, 'x'), (2, 'y')")
        yield connection


# -- psycopg ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("binary", [False, True])
def test_a_psycopg_stream_accepts_parameters(dsn: str, connection: psycopg.Connection[Row], binary: bool) -> None:
    with psycopg.connect(dsn, autocommit=True) as reader:
        query = "SUBSCRIBE (SELECT b, a + %s AS c FROM t WHERE a >= %s)"
        stream = reader.cursor().stream(query, [10, 2], binary=binary)
        assert next(stream)[1:] == (1, "y", 12)
        connection.execute("INSERT INTO t VALUES (1, 'not seen')")
        connection.execute("INSERT INTO t VALUES (3, 'z')")
        assert next(stream)[1:] == (1, "z", 13)
        stream.close()
        assert reader.execute("SELECT 1").fetchone() == (1,), "closing the stream cancels it, the session lives"


def test_special_characters_in_a_parameter_are_data(dsn: str, connection: psycopg.Connection[Row]) -> None:
    texts = ["it's", 'a "b"', "\\n ${x}", "%s $1", "é\U0001f600", ""]
    for text in texts:
        connection.execute("INSERT INTO t VALUES (7, %s)", [text])
    with psycopg.connect(dsn, autocommit=True) as reader:
        for text in texts:
            stream = reader.cursor().stream("SUBSCRIBE (SELECT b, %s AS c FROM t WHERE b = %s)", [text, text])
            assert next(stream)[1:] == (1, text, text)
            stream.close()


def test_a_parameter_in_as_of_is_refused(dsn: str, connection: psycopg.Connection[Row]) -> None:
    with psycopg.connect(dsn, autocommit=True) as reader:
        with pytest.raises(errors.UndefinedParameter, match=r"there is no parameter \$1"):
            next(reader.cursor().stream("SUBSCRIBE t AS OF %s", [5]))
        now = reader.execute("SELECT mz_now()").fetchone() or (0,)
        composed = sql.SQL("SUBSCRIBE t AS OF AT LEAST {} UP TO {}").format(int(now[0]), int(now[0]) + 1)
        assert [row[1:] for row in reader.execute(composed)] == [(1, 1, "x"), (1, 2, "y")]


@pytest.mark.parametrize("binary", [False, True])
def test_a_psycopg_server_cursor(dsn: str, connection: psycopg.Connection[Row], binary: bool) -> None:
    with psycopg.connect(dsn) as reader, reader.cursor("c", row_factory=namedtuple_row) as cursor:
        cursor.execute("SUBSCRIBE (SELECT a, b FROM t WHERE a > %s) WITH (SNAPSHOT)", [1], binary=binary)
        first = cursor.fetchone()
        assert first is not None
        assert first._fields == ("mz_timestamp", "mz_diff", "a", "b")
        assert first[1:] == (1, 2, "y")
        connection.execute("INSERT INTO t VALUES (3, 'z'), (4, NULL)")
        assert sorted(row[1:] for row in cursor.fetchmany(5)) == [(1, 3, "z"), (1, 4, None)]
    with psycopg.connect(dsn) as reader, reader.cursor("c") as cursor:
        cursor.itersize = 1
        cursor.execute("SUBSCRIBE (VALUES (1), (2)) ENVELOPE UPSERT (KEY (column1))")
        assert [row[1:] for row in cursor] == [("upsert", 1), ("upsert", 2)]


def test_several_psycopg_server_cursors(dsn: str, connection: psycopg.Connection[Row]) -> None:
    (now,) = connection.execute("SELECT mz_now()").fetchone() or (0,)
    with psycopg.connect(dsn) as reader, reader.cursor("low") as low, reader.cursor("high") as high:
        query = sql.SQL("SUBSCRIBE (SELECT a FROM t WHERE a > %s) AS OF AT LEAST {}").format(int(now))
        low.execute(query, [0])
        high.execute(query, [1])
        first = low.fetchmany(1)
        assert [row[1:] for row in high.fetchmany(9)] == [(1, 2)]
        assert sorted(row[1:] for row in first + low.fetchmany(9)) == [(1, 1), (1, 2)]


def test_a_cursor_with_hold_of_subscribe_is_refused(dsn: str, connection: psycopg.Connection[Row]) -> None:
    with psycopg.connect(dsn) as reader, reader.cursor("c", withhold=True) as cursor:
        with pytest.raises(errors.FeatureNotSupported, match="WITH HOLD is unsupported for cursors"):
            cursor.execute("SUBSCRIBE t")


@pytest.mark.parametrize("how", ["direct", "copy", "cursor"])
def test_a_failed_stream_leaves_the_session_alive(dsn: str, connection: psycopg.Connection[Row], how: str) -> None:
    query = "SUBSCRIBE (SELECT 10 / a AS q FROM t) WITH (PROGRESS, SNAPSHOT false)"
    with psycopg.connect(dsn, autocommit=True) as reader:
        if how == "direct":
            stream = reader.cursor().stream(query)
            next(stream)
            connection.execute("INSERT INTO t VALUES (0, 'bad')")
            with pytest.raises(errors.DivisionByZero, match="Evaluation error: division by zero"):
                list(stream)
        elif how == "copy":
            with (
                pytest.raises(errors.DivisionByZero, match="Evaluation error: division by zero"),
                reader.cursor().copy(f"COPY ({query}) TO STDOUT".encode()) as copy,
            ):
                connection.execute("INSERT INTO t VALUES (0, 'bad')")
                list(copy)
        else:
            reader.execute("BEGIN")
            reader.execute(f"DECLARE c CURSOR FOR {query}".encode())
            reader.execute("FETCH 0 c")
            connection.execute("INSERT INTO t VALUES (0, 'bad')")
            with pytest.raises(errors.DivisionByZero, match="Evaluation error: division by zero"):
                while True:
                    reader.execute("FETCH 1 c")
            reader.execute("ROLLBACK")
        assert reader.execute("SELECT 1").fetchone() == (1,)
        connection.execute("DELETE FROM t WHERE a = 0")
        healthy = reader.cursor().stream("SUBSCRIBE (SELECT 10 / a AS q FROM t)")
        assert sorted(next(healthy)[1:] for _ in range(2)) == [(1, 5), (1, 10)]
        healthy.close()


# -- the protocol alone -----------------------------------------------------------------------------------------------


def test_a_cancel_with_another_secret_is_ignored(
    server: ServerThread, dsn: str, connection: psycopg.Connection[Row]
) -> None:
    """Uses testdrive's connection, because libpq does not expose the secret."""
    database = connection.info.dbname
    reader = Connection("127.0.0.1", server.port, {"user": "materialize", "database": database}, 30)
    try:
        reader.send(encode("Query", {"query": "COPY (SUBSCRIBE t WITH (SNAPSHOT false)) TO STDOUT"}))
        deadline = time.monotonic() + 30
        assert reader.receive(deadline).kind == "CopyOut"
        key = reader._key
        reader._key = key[:4] + bytes([key[4] ^ 1]) + key[5:]
        reader.cancel(30)
        connection.execute("INSERT INTO t VALUES (3, 'z')")
        assert reader.receive(deadline).kind == "CopyData"
        reader._key = key
        reader.cancel(30)
        error = reader.receive(deadline)
        assert error.kind == "ErrorResponse"
        assert ("C", "57014") in error.content  # type: ignore[operator]
    finally:
        reader.close()


# -- asyncpg ----------------------------------------------------------------------------------------------------------


def through_asyncpg(dsn: str, work: Callable[[Any], Awaitable[None]]) -> None:
    async def run() -> None:
        reader = await asyncpg.connect(dsn)
        try:
            await asyncio.wait_for(work(reader), HANG_S)
        finally:
            await reader.close()

    asyncio.run(run())


def test_an_asyncpg_cursor_suspends_its_portal(dsn: str, connection: psycopg.Connection[Row]) -> None:
    async def work(reader: Any) -> None:
        async with reader.transaction():
            cursor = await reader.cursor("SUBSCRIBE (SELECT a, b FROM t WHERE a >= $1)", 1)
            assert [tuple(row)[1:] for row in await cursor.fetch(2)] == [(1, 1, "x"), (1, 2, "y")]
            await asyncio.to_thread(connection.execute, "INSERT INTO t VALUES (3, 'z')")
            row = await cursor.fetchrow()
            assert list(row.keys()) == ["mz_timestamp", "mz_diff", "a", "b"]
            assert tuple(row)[1:] == (1, 3, "z")
        assert await reader.fetchval("SELECT 1") == 1

    through_asyncpg(dsn, work)


def test_an_asyncpg_cursor_is_iterable(dsn: str, connection: psycopg.Connection[Row]) -> None:
    async def work(reader: Any) -> None:
        seen = []
        async with reader.transaction():
            async for row in reader.cursor("SUBSCRIBE t WITHIN TIMESTAMP ORDER BY t.a DESC", prefetch=1):
                seen.append(tuple(row)[1:])
                if len(seen) == 2:
                    await asyncio.to_thread(connection.execute, "DELETE FROM t WHERE a = 1")
                if len(seen) == 3:
                    break
        assert seen == [(1, 2, "y"), (1, 1, "x"), (-1, 1, "x")]
        async with reader.transaction():
            ended = [tuple(row)[1:] async for row in reader.cursor("SUBSCRIBE (VALUES (1), (2))", prefetch=1)]
        assert ended == [(1, 1), (1, 2)]

    through_asyncpg(dsn, work)


def test_an_asyncpg_statement_can_be_bound_several_times(dsn: str, connection: psycopg.Connection[Row]) -> None:
    async def work(reader: Any) -> None:
        statement = await reader.prepare("SUBSCRIBE (SELECT a FROM t WHERE b = $1) ENVELOPE DEBEZIUM (KEY (a))")
        assert [parameter.name for parameter in statement.get_parameters()] == ["text"]
        assert [column.name for column in statement.get_attributes()] == ["mz_timestamp", "mz_state", "a"]
        for text, a in (("x", 1), ("y", 2)):
            async with reader.transaction():
                cursor = await statement.cursor(text)
                assert [tuple(row)[1:] for row in await cursor.fetch(1)] == [("insert", a)]

    through_asyncpg(dsn, work)


def test_asyncpg_copies_a_query_with_arguments(dsn: str, connection: psycopg.Connection[Row]) -> None:
    """asyncpg asks the server for the arguments as text and inserts them into the query."""

    async def work(reader: Any) -> None:
        chunks: list[bytes] = []

        async def write(data: bytes) -> None:
            chunks.append(data)

        (now,) = await reader.fetchrow("SELECT mz_now()::text")
        query = "SUBSCRIBE (SELECT a, b FROM t WHERE a = $1 AND b = $2) AS OF AT LEAST {0} UP TO {0} + 1"
        await reader.copy_from_query(query.format(now), 2, "y", output=write)
        assert b"".join(chunks).decode().split("\t")[1:] == ["1", "2", "y\n"]

    through_asyncpg(dsn, work)


@pytest.mark.parametrize("format", ["text", "csv", "binary"])
def test_asyncpg_copies_in_every_format(dsn: str, connection: psycopg.Connection[Row], format: str) -> None:
    """The third row has arrived when its last column, 'third', is in the data. This holds for every format."""

    async def work(reader: Any) -> None:
        chunks: list[bytes] = []
        third = asyncio.Event()

        async def write(data: bytes) -> None:
            chunks.append(data)
            if b"third" in data:
                third.set()

        copying = asyncio.create_task(
            reader.copy_from_query("SUBSCRIBE (SELECT a, b FROM t)", output=write, format=format)
        )
        await asyncio.to_thread(connection.execute, "INSERT INTO t VALUES (3, 'third')")
        await asyncio.wait_for(third.wait(), HANG_S)
        copying.cancel()
        with pytest.raises((asyncio.CancelledError, asyncpg.QueryCanceledError)):
            await copying
        if format == "binary":
            data = b"".join(chunks)
            assert data.startswith(b"PGCOPY\n\xff\r\n\0")
            for a, b in ((1, b"x"), (2, b"y"), (3, b"third")):
                assert struct.pack("!iqiii", 8, 1, 4, a, len(b)) + b in data
        else:
            separator = "," if format == "csv" else "\t"
            rows = [line.split(separator)[1:] for line in b"".join(chunks).decode().splitlines()]
            assert sorted(rows) == [["1", "1", "x"], ["1", "2", "y"], ["1", "3", "third"]]

    through_asyncpg(dsn, work)
