"""A PostgreSQL of the attacker, on ordinary connections: queries of catalogs, and the COPY of a snapshot.

The statement, the source or the sink that reads it fails with a reason. Others notice nothing.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import struct
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors

from protocol.pgwire.errors import PgError
from server.ingest.postgres import snapshot
from server.ingest.postgres.connection import TEXT_MAX
from server.ingest.postgres.kind import PostgresSource
from server.ingest.postgres.protocol_guard import COPY_BYTES_MAX
from server.ingest.upstream import UpstreamError
from tests.attacks.clients import meanwhile, resident_bytes, watched
from tests.attacks.fake_postgres import (
    BOOL,
    CHAR,
    INT4,
    INT8,
    NAME,
    OID,
    TEXT,
    Answer,
    FakePostgres,
    error,
    message,
    row,
    rows,
)
from tests.attacks.liar import Liar, Say
from tests.attacks.test_lying_postgres import Attack, bounded_growth
from tests.fix_postgres import PostgresServer
from tests.fix_server import ServerProcess
from tests.polling import HANG_S
from tests.server.ingest.postgres.harness import database, definition, running

pytestmark = pytest.mark.attacks

MIB = 1024 * 1024
GROWTH_MAX = 320 * MIB  # an answer, and its rows as asyncpg has them
PAUSE_MAX_S = 0.4
SECRET = "correct horse battery staple"

YES, ONE = b"\x01", struct.pack(">i", 1)
WAL_LEVEL, PUBLICATION, TABLES, COLUMNS = (
    "wal_level",
    "FROM pg_publication ",
    "pg_publication_tables",
    "FROM pg_attribute",
)
MAY_CREATE, FRONTIERS, TARGET = "has_database_privilege", "to_regclass", "relkind::text"
TABLE_COLUMNS = (
    ("oid", OID), ("schema", NAME), ("name", NAME), ("identity", CHAR), ("filter", TEXT), ("published", TEXT),
    ("rows", INT8), ("readable", BOOL),
)  # fmt: skip
COLUMN_COLUMNS = (
    ("table", OID), ("name", NAME), ("never_null", BOOL), ("type", OID), ("typmod", INT4), ("spelling", TEXT),
    ("dimensions", INT4), ("is_key", BOOL), ("number", INT4),
)  # fmt: skip
TABLE = [ONE, b"public", b"t", b"d", None, None, None, YES]
COLUMN = [ONE, b"a", YES, struct.pack(">i", 23), b"\xff" * 4, b"integer", bytes(4), YES, ONE]

TRUTH = {
    WAL_LEVEL: rows([("level", TEXT)], [b"logical"]),
    PUBLICATION: rows([("complete", BOOL)], [YES]),
    TABLES: rows(TABLE_COLUMNS, TABLE),
    COLUMNS: rows(COLUMN_COLUMNS, COLUMN),
    MAY_CREATE: rows([("schemas", BOOL), ("staging", BOOL)], [YES, YES]),
    FRONTIERS: rows([("exist", BOOL)], [b"\0"]),
    TARGET: rows([("oid", OID), ("kind", TEXT), ("missing", TEXT)]),
}
"""What a PostgreSQL with a publication of one table answers; it has no table for a sink."""


def endless(part: bytes, columns: Iterable[tuple[str, int]] = (("level", TEXT),)) -> Answer:
    return Answer(tuple(columns), lambda: itertools.repeat(part * (MIB // len(part) or 1)))


def said(*parts: bytes, columns: Iterable[tuple[str, int]] = (("level", TEXT),)) -> Answer:
    return Answer(tuple(columns), lambda: parts)


def statuses() -> Iterator[bytes]:
    for number in itertools.count():
        yield b"".join(message(b"S", b"setting %d.%d\0value\0" % (number, each)) for each in range(10_000))


def a_row() -> Iterator[bytes]:
    yield b"D" + struct.pack(">i", 2**31 - 1)
    yield from itertools.repeat(bytes(MIB))


FLOODS = {
    "rows": endless(row(b"logical")),
    "empty rows": endless(row(), columns=()),
    "a row": Answer((("level", TEXT),), a_row),
    "notices": endless(message(b"N", b"SNOTICE\0C00000\0Mnotice\0\0")),
    "settings": Answer((("level", TEXT),), statuses),
    "notifications": endless(message(b"A", struct.pack(">i", 1) + b"channel\0payload\0")),
}  # fmt: skip


def size_of_value(size: int) -> bytes:
    """A row whose first value says that it has this size."""
    return message(b"D", struct.pack(">Hi", 8, size))


LIES = {
    "an error with a huge text": (WAL_LEVEL, said(error("x" * (10 * MIB)))),
    "a fatal error with a huge text": (WAL_LEVEL, said(error("x" * (10 * MIB), "42501"))),
    "no rows": (WAL_LEVEL, rows([("level", TEXT)])),
    "a level that is NULL": (WAL_LEVEL, rows([("level", TEXT)], [None])),
    "no columns": (WAL_LEVEL, rows([], [])),
    "a type that does not exist": (WAL_LEVEL, rows([("level", 4_000_000)], [b"logical"])),
    "fewer values than columns": (TABLES, said(row(ONE), columns=TABLE_COLUMNS)),
    "more values than columns": (TABLES, said(row(*[ONE] * 60_000), columns=TABLE_COLUMNS)),
    "a value beyond its message": (TABLES, said(size_of_value(2**31 - 1), columns=TABLE_COLUMNS)),
    "a value of negative size": (TABLES, said(size_of_value(-2), columns=TABLE_COLUMNS)),
    "an integer of three bytes": (TABLES, rows(TABLE_COLUMNS, [b"123", *TABLE[1:]])),
    "a message of negative size": (TABLES, said(b"D" + struct.pack(">i", -1), columns=TABLE_COLUMNS)),
    "random bytes": (TABLES, said(random.Random(1).randbytes(100_000), columns=TABLE_COLUMNS)),
    "a copy": (TABLES, said(message(b"H", bytes(3)) + message(b"d", bytes(100)), columns=TABLE_COLUMNS)),
    "a text that is not UTF-8": (TABLES, rows(TABLE_COLUMNS, [*TABLE[:1], b"\xff\xfe", *TABLE[2:]])),
    "tables that are NULL": (TABLES, rows(TABLE_COLUMNS, [None] * 8)),
    "tables of another type": (TABLES, rows([(name, TEXT) for name, _ in TABLE_COLUMNS], [b"1"] * 8)),
    "other columns": (TABLES, rows([("x", TEXT)], [b"1"])),
    "a name without an end": (TABLES, rows(TABLE_COLUMNS, [ONE, b"public", b"t" * (8 * MIB), *TABLE[3:]])),
    "an empty name": (TABLES, rows(TABLE_COLUMNS, [ONE, b"public", b"", *TABLE[3:]])),
    "nested columns": (TABLES, rows(TABLE_COLUMNS, [*TABLE[:5], b"[" * 1_000_000, *TABLE[6:]])),
    "a number of columns": (TABLES, rows(TABLE_COLUMNS, [*TABLE[:5], b"1", *TABLE[6:]])),
    "a replica identity": (TABLES, rows(TABLE_COLUMNS, [*TABLE[:3], b"?", *TABLE[4:]])),
    "columns that are NULL": (COLUMNS, rows(COLUMN_COLUMNS, [ONE, *[None] * 7])),
    "a hundred thousand columns": (COLUMNS, rows(COLUMN_COLUMNS, *[COLUMN] * 100_000)),
    "a column without an end": (COLUMNS, rows(COLUMN_COLUMNS, [ONE, b"a" * (8 * MIB), *COLUMN[2:]])),
}  # fmt: skip


@pytest.fixture
def fake() -> Iterator[FakePostgres]:
    fake = FakePostgres()
    yield fake
    fake.close()


@pytest.fixture
def sql(own_server: ServerProcess, fake: FakePostgres) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(own_server.dsn, autocommit=True) as connection:
        connection.execute("SET statement_timeout = '10s'")
        connection.execute("CREATE TABLE mine (a int)")
        connection.execute(f"CREATE SECRET hidden AS '{SECRET}'".encode())
        address = f"HOST '127.0.0.1', PORT {fake.port}, USER u, PASSWORD SECRET hidden, DATABASE d"
        connection.execute(f"CREATE CONNECTION c TO POSTGRES ({address})".encode())
        yield connection
        connection.execute("DROP TABLE mine CASCADE")
        connection.execute("DROP CONNECTION c CASCADE")
        connection.execute("DROP SECRET hidden")


SOURCE = "CREATE SOURCE s FROM POSTGRES CONNECTION c (PUBLICATION 'p') FOR ALL TABLES"
SINK = "CREATE SINK k FROM mine INTO POSTGRES CONNECTION c TABLE public.t"


def test_the_truth_is_believed(sql: psycopg.Connection[Any], fake: FakePostgres) -> None:
    """Otherwise the lies would not be those that make the statements fail."""
    fake.answers = dict(TRUTH)
    sql.execute(SOURCE)
    assert any(COLUMNS in query for query in fake.asked)
    sql.execute("DROP SOURCE s")
    fake.answers |= {"may_create": rows([("may_create", BOOL)])}
    with pytest.raises(errors.InvalidSchemaName):  # the schema of the table, which is asked for at the end
        sql.execute(SINK)


@pytest.mark.parametrize("statement", [SOURCE, SINK], ids=["source", "sink"])
@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_an_answer_without_an_end(
    own_server: ServerProcess, sql: psycopg.Connection[Any], fake: FakePostgres, statement: str, flood: Answer
) -> None:
    fake.answers = {**TRUTH, WAL_LEVEL: flood, MAY_CREATE: flood}
    before, most = resident_bytes(own_server.process.pid), 0

    def sample(done: Any) -> None:
        nonlocal most
        while not done.wait(0.02):
            most = max(most, resident_bytes(own_server.process.pid))

    with watched(own_server, PAUSE_MAX_S), meanwhile(sample), pytest.raises(errors.ConnectionFailure) as refused:
        sql.execute(statement.encode())
    assert "the answer to a query has more than" in str(refused.value)
    assert most - before < GROWTH_MAX, f"{(most - before) / MIB:.0f} MiB"


@pytest.mark.parametrize(("about", "lie"), LIES.values(), ids=LIES)
def test_an_answer_that_postgresql_does_not_give(
    own_server: ServerProcess, sql: psycopg.Connection[Any], fake: FakePostgres, about: str, lie: Answer
) -> None:
    fake.answers = {**TRUTH, about: lie}
    with watched(own_server), pytest.raises(psycopg.Error) as refused:
        sql.execute(SOURCE)
    assert refused.value.sqlstate != "XX000", refused.value
    assert len(str(refused.value)) < 3 * TEXT_MAX


@pytest.mark.parametrize("values", [[], [[]], [[None]], [[None, None]]], ids=str)
@pytest.mark.parametrize("about", [MAY_CREATE, FRONTIERS, TARGET])
def test_an_answer_about_the_table_of_a_sink(
    own_server: ServerProcess, sql: psycopg.Connection[Any], fake: FakePostgres, about: str, values: Any
) -> None:
    columns = [(f"c{number}", TEXT) for number in range(len(values[0]) if values else 1)]
    fake.answers = {"may_create": rows([("may_create", BOOL)]), **TRUTH, about: rows(columns, *values)}
    with watched(own_server), pytest.raises(psycopg.Error) as refused:
        sql.execute(SINK)
    assert refused.value.sqlstate != "XX000", refused.value


@pytest.mark.parametrize("sqlstate", ["28P01", "42501", "57P03"])
def test_a_secret_in_an_error_is_not_shown(
    own_server: ServerProcess, sql: psycopg.Connection[Any], fake: FakePostgres, sqlstate: str
) -> None:
    """The server knows the password if it has asked for it, and a role that may not see it may see the error."""
    fake.answers = {**TRUTH, WAL_LEVEL: said(error(f"your password is {SECRET}", sqlstate))}
    with pytest.raises(psycopg.Error, match=r"your password is \*{8}") as refused:
        sql.execute(SOURCE)
    assert SECRET not in str(refused.value)
    assert SECRET not in own_server.log_path.read_text()


def test_answers_that_are_slow_can_be_cancelled(
    own_server: ServerProcess, sql: psycopg.Connection[Any], fake: FakePostgres
) -> None:
    def slow() -> Iterator[bytes]:
        while True:
            time.sleep(0.01)
            yield row(b"logical")

    sql.execute("SET statement_timeout = '500ms'")
    for statement, about in ((SOURCE, WAL_LEVEL), (SINK, MAY_CREATE)):
        fake.answers = {**TRUTH, about: Answer([("level", TEXT)], slow)}
        begun = time.monotonic()
        with watched(own_server), pytest.raises(errors.QueryCanceled):
            sql.execute(statement.encode())
        assert time.monotonic() - begun < 5


# -- a source that runs -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def logical() -> Iterator[PostgresServer]:
    server = PostgresServer("wal_level=logical")
    yield server
    server.stop()


@pytest.fixture
async def through(logical: PostgresServer) -> AsyncIterator[tuple[Any, Liar, Any]]:
    """The definition of a source of the tables `t` and `u` through the liar, the liar, and a connection."""
    async with database(logical.dsn, "hostile") as (dsn, sql):
        await sql.execute("CREATE TABLE t (id int4 PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'true')")
        await sql.execute("CREATE TABLE u (id int4 PRIMARY KEY); INSERT INTO u VALUES (2)")
        await sql.execute("CREATE PUBLICATION pub FOR ALL TABLES")
        liar = Liar(logical.port)
        try:
            found = definition(dsn)
            yield replace(found, connection={**found.connection, "port": str(liar.port)}), liar, sql
        finally:
            liar.close()


def copied(data: bytes) -> bytes:
    return message(b"d", data)


def rows_without_end(say: Say) -> None:
    say(copied(b"1\tx\n"))
    while True:
        say(copied(b"not a number\tx\n") * 10_000)


def a_row_without_end(say: Say) -> None:
    while True:
        say(copied(b"x" * 65_000))


def a_message_without_end(say: Say) -> None:
    say(b"d" + struct.pack(">i", 2**31 - 1))
    while True:
        say(b"x" * MIB)


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        (rows_without_end, "invalid input syntax for type integer"),
        (a_row_without_end, "out of memory"),
        (a_message_without_end, "out of memory"),
    ],
)
async def test_rows_of_a_snapshot_that_cannot_be_used(
    through: Any, tmp_path: Path, lie: Callable[[Say], None], reason: str
) -> None:
    """Only their table fails. The rest of what the server would send is not read."""
    source, liar, sql = through
    liar.about, liar.lie = b"FROM ONLY public.t", lie
    with bounded_growth(12 * COPY_BYTES_MAX):
        async with running(tmp_path, source) as running_source, asyncio.timeout(HANG_S):
            while running_source.ids["t"] not in running_source.statistics.errors:
                assert running_source.ingestion.error is None, running_source.ingestion.error
                await asyncio.sleep(0.01)
            assert reason in running_source.statistics.errors[running_source.ids["t"]].message
            await sql.execute("INSERT INTO u VALUES (3)")
            await running_source.reached(sql)
            await running_source.same(sql, "u")
            assert await running_source.rows("t") == []


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        (lambda say: None, 'does not send the rows of table "public.t"'),
        (lambda say: say(error("x" * (MIB // 2), "57P01") + message(b"Z", b"I")), "xxx..."),
        (
            lambda say: say(error("x" * (64 * MIB), "57P01") + message(b"Z", b"I")),
            "more than 1048576 without being data",
        ),
        (lambda say: say(message(b"N", b"x" * (64 * MIB))), "more than 1048576 without being data"),
        (lambda say: say(b"d" + struct.pack(">i", -5) * 1_000), "a length of less than 4 bytes"),
        (lambda say: say(random.Random(2).randbytes(10_000)), ""),
        (lambda say: say(copied(b"1\tx\n") + message(b"Z", b"I")), ""),
    ],
    ids=["silence", "an error", "a long error", "a long notice", "a negative length", "random bytes", "ready"],
)
async def test_a_snapshot_that_is_interrupted(
    through: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: Callable[[Say], None], reason: str
) -> None:
    """The source says so, and has all rows when the server tells the truth."""
    monkeypatch.setattr(snapshot, "SILENT_S", 1.0)
    source, liar, sql = through
    liar.about, liar.lie = b"FROM ONLY public.t", lie
    with bounded_growth(4 * COPY_BYTES_MAX):
        async with running(tmp_path, source) as running_source, asyncio.timeout(HANG_S):
            attack = Attack(running_source, liar, sql, 0)
            await attack.status("stalled", reason)
            assert len(str(running_source.ingestion.error)) < 2 * TEXT_MAX
            liar.lie = None
            liar.cut()
            await attack.status("running", "")
            await running_source.reached(sql)
            await running_source.same(sql, "t")


async def test_a_server_that_closes_at_each_byte(through: Any, tmp_path: Path) -> None:
    """Each failure names the server."""
    source, liar, sql = through
    kind, failures = PostgresSource(), list[str]()
    for size in itertools.count(0, 13):
        liar.answered_max = size
        try:
            async with asyncio.timeout(HANG_S):
                outputs = await kind.outputs(source)
        except (PgError, UpstreamError) as failure:
            failures.append(failure.message)
            continue
        assert [output.name for output in outputs] == ["t", "u"]
        break
    assert len(failures) > 50
    assert not [message for message in failures if not message.startswith(("could not connect to P", "PostgreSQL"))]
    async with running(tmp_path, source) as running_source, asyncio.timeout(HANG_S):
        attack = Attack(running_source, liar, sql, 0)
        for size in range(0, 2_000, 97):
            liar.answered_max = size
            liar.cut()
            await attack.status("stalled", "PostgreSQL")
        liar.answered_max = None
        liar.cut()
        await attack.status("running", "")
        await running_source.reached(sql)
        await running_source.same(sql, "t")
