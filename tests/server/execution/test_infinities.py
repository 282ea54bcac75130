"""Infinite dates and timestamps as a client sees them: formats, keys, checks, indexes, views and temporal filters.

tests/sql/infinity.sql has the functions, and tests/ivm/ has maintained queries over random histories.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import date, datetime
from typing import Any

import asyncpg
import psycopg
import pytest
from psycopg import errors

Connection = psycopg.Connection[Any]

TABLE = """
CREATE TABLE validity (id int PRIMARY KEY, since timestamptz NOT NULL DEFAULT '-infinity',
    until timestamptz NOT NULL DEFAULT 'infinity', day date DEFAULT 'infinity', noon timestamp)
"""
ROWS = """
1\t-infinity\tinfinity\tinfinity\t\\N
2\t2020-01-01 00:00:00+00\tinfinity\t-infinity\tinfinity
3\t2020-01-01 00:00:00+00\t2999-01-01 00:00:00+00\t\\N\t-infinity
"""[1:]


@pytest.fixture
def db(dsn: str) -> Iterator[Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(TABLE)
        yield connection


def copied_in(db: Connection, statement: str, data: bytes) -> None:
    with db.cursor() as cursor, cursor.copy(statement.encode()) as copy:
        copy.write(data)


def copied_out(db: Connection, statement: str) -> bytes:
    with db.cursor() as cursor, cursor.copy(statement.encode()) as copy:
        return b"".join(bytes(part) for part in copy)


def texts(db: Connection, query: str) -> list[tuple[str | None, ...]]:
    """The rows as texts: psycopg has no infinite dates."""
    lines = copied_out(db, f"COPY ({query}) TO STDOUT").decode().splitlines()
    return [tuple(None if cell == "\\N" else cell for cell in line.split("\t")) for line in lines]


@pytest.mark.parametrize("format", ["text", "csv", "binary"])
def test_copy_returns_what_it_was_given(db: Connection, postgres: str, format: str) -> None:
    order = "SELECT * FROM validity ORDER BY id"
    with psycopg.connect(postgres, autocommit=True) as theirs:
        theirs.execute(f"DROP TABLE IF EXISTS validity; {TABLE}".encode())
        copied_in(theirs, "COPY validity FROM STDIN", ROWS.encode())
        data = copied_out(theirs, f"COPY ({order}) TO STDOUT (FORMAT {format})")
        theirs.execute("DROP TABLE validity")
    copied_in(db, f"COPY validity FROM STDIN (FORMAT {format})", data)
    assert copied_out(db, f"COPY ({order}) TO STDOUT (FORMAT {format})") == data
    assert copied_out(db, f"COPY ({order}) TO STDOUT").decode() == ROWS


@pytest.mark.parametrize("style", ["ISO", "SQL", "Postgres", "German"])
@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata"])
def test_every_datestyle_has_the_same_names(db: Connection, style: str, zone: str) -> None:
    db.execute(f"SET DateStyle = '{style}'; SET TimeZone = '{zone}'".encode())
    constants = "date 'infinity', timestamp '-infinity', timestamptz 'infinity', '{-infinity}'::timestamptz[]"
    assert texts(db, f"SELECT {constants}") == [("infinity", "-infinity", "infinity", "{-infinity}")]


def test_asyncpg_sends_and_receives_them(dsn: str, db: Connection) -> None:
    """asyncpg uses the binary format. Its infinities are the limits of Python's types."""
    limits = (datetime.max, datetime.min, date.max, datetime.min)

    async def run() -> tuple[Any, ...]:
        connection = await asyncpg.connect(dsn)
        try:
            await connection.execute("INSERT INTO validity VALUES (1, $1, $2, $3, $4)", *limits[1::-1], *limits[2:])
            return tuple(await connection.fetchrow("SELECT until, since, day, noon FROM validity"))
        finally:
            await connection.close()

    assert asyncio.run(run()) == limits
    assert texts(db, "SELECT * FROM validity") == [("1", "-infinity", "infinity", "infinity", "-infinity")]


def test_defaults_keys_checks_and_columns(db: Connection) -> None:
    db.execute("INSERT INTO validity (id) VALUES (1)")
    db.execute("ALTER TABLE validity ADD COLUMN checked date DEFAULT 'infinity'")
    assert texts(db, "SELECT * FROM validity") == [("1", "-infinity", "infinity", "infinity", None, "infinity")]
    db.execute("CREATE TABLE k (k timestamptz(0) PRIMARY KEY, v int, CHECK (k > '-infinity'))")
    db.execute("INSERT INTO k VALUES ('infinity', 1)")
    with pytest.raises(errors.UniqueViolation, match="k_pkey"):
        db.execute("INSERT INTO k VALUES ('infinity', 2)")
    with pytest.raises(errors.CheckViolation, match="k_check"):
        db.execute("INSERT INTO k VALUES ('-infinity', 2)")
    db.execute("INSERT INTO k VALUES ('infinity', 3) ON CONFLICT (k) DO UPDATE SET v = excluded.v")
    assert texts(db, "SELECT * FROM k") == [("infinity", "3")]
    db.execute("UPDATE k SET v = 4 WHERE k = 'infinity'")
    assert texts(db, "SELECT * FROM k WHERE k = 'infinity'") == [("infinity", "4")]
    db.execute("DELETE FROM k WHERE k = 'infinity'")
    assert texts(db, "SELECT * FROM k") == []


def test_views_and_indexes_follow(db: Connection) -> None:
    copied_in(db, "COPY validity FROM STDIN", ROWS.encode())
    db.execute("CREATE INDEX ends ON validity (until)")
    db.execute(
        "CREATE MATERIALIZED VIEW counts AS SELECT until, count(*), min(day), max(noon) FROM validity GROUP BY 1"
    )
    db.execute("CREATE MATERIALIZED VIEW computed AS SELECT id, until + interval '1 day' AS later, since::date AS day,"
               " noon::time AS noon, date_part('epoch', day) AS epoch FROM validity")  # fmt: skip
    assert texts(db, "SELECT id FROM validity WHERE until = 'infinity' ORDER BY id") == [("1",), ("2",)]
    db.execute("UPDATE validity SET until = '2999-01-01' WHERE id = 1")
    db.execute("INSERT INTO validity VALUES (4, 'infinity', '-infinity', '2024-02-29', '2024-02-29 12:00')")
    assert texts(db, "SELECT id FROM validity WHERE until = 'infinity'") == [("2",)]
    assert texts(db, "SELECT * FROM counts ORDER BY until") == [
        ("-infinity", "1", "2024-02-29", "2024-02-29 12:00:00"),
        ("2999-01-01 00:00:00+00", "2", "infinity", "-infinity"),
        ("infinity", "1", "-infinity", "infinity"),
    ]
    assert texts(db, "SELECT * FROM computed ORDER BY id") == [
        ("1", "2999-01-02 00:00:00+00", "-infinity", None, "Infinity"),
        ("2", "infinity", "2020-01-01", None, "-Infinity"),
        ("3", "2999-01-02 00:00:00+00", "2020-01-01", None, None),
        ("4", "-infinity", "infinity", "12:00:00", "1709164800"),
    ]


def test_temporal_filters(db: Connection) -> None:
    """-infinity is before and infinity after every value of mz_now()."""
    db.execute("INSERT INTO validity VALUES (1, '-infinity', 'infinity'), (2, 'infinity', 'infinity'),"
               " (3, '-infinity', '-infinity')")  # fmt: skip
    valid = "SELECT id FROM validity WHERE mz_now() {} since AND mz_now() {} until"
    for number, (after, before) in enumerate(((">=", "<"), (">", "<="))):
        query = valid.format(after, before)
        assert texts(db, query) == [("1",)]
        db.execute(f"CREATE MATERIALIZED VIEW valid{number} AS {query}".encode())
        assert texts(db, f"SELECT id FROM valid{number}") == [("1",)]
    db.execute("UPDATE validity SET until = 'infinity' WHERE id = 3")
    for number in (0, 1):
        assert texts(db, f"SELECT id FROM valid{number} ORDER BY id") == [("1",), ("3",)]


def test_there_is_no_infinite_mz_timestamp(db: Connection) -> None:
    db.execute("INSERT INTO validity (id) VALUES (1)")
    for value in ("until", "day", "timestamptz 'infinity'"):
        with pytest.raises(errors.FeatureNotSupported, match="of an infinite date or timestamp is not supported"):
            db.execute(f"SELECT {value}::mz_timestamp FROM validity".encode())
    with pytest.raises(errors.NumericValueOutOfRange):
        db.execute("SELECT 'infinity'::mz_timestamp")
    for time in ("'infinity'", "timestamp '-infinity'"):
        with pytest.raises(errors.InvalidParameterValue, match="should be castable to a"):
            copied_out(db, f"COPY (SUBSCRIBE validity AS OF {time}) TO STDOUT")


def test_queries_over_system_catalogs(db: Connection) -> None:
    query = "SELECT timestamptz '-infinity', timestamp 'infinity', date '-infinity' FROM pg_class LIMIT 1"
    result = db.execute(query).pgresult
    assert result is not None
    assert [result.get_value(0, n) for n in range(3)] == [b"-infinity", b"infinity", b"-infinity"]
