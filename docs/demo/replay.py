"""The demo's SQL: its tables, what each minute writes, and the two queries that are followed.

Everything lies in a schema of its own, `nyc`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from flights import NULL, Minute, Table
from psycopg import Connection

CHUNK_BYTES = 256 * 1024

SCHEDULED, DEPARTED, ARRIVED, CANCELLED = "scheduled", "departed", "arrived", "cancelled"

DEPARTURES = """
    CREATE TABLE IF NOT EXISTS nyc.departures (
        id int NOT NULL, carrier text NOT NULL, flight int NOT NULL, tailnum text, origin text NOT NULL,
        dest text NOT NULL, scheduled timestamp NOT NULL, status text NOT NULL,
        departed timestamp, delay int, arrived timestamp)
"""

# How each airline does at each of New York's airports; delays in minutes.
TRAFFIC = """
    SELECT p.name AS airport, l.name AS airline, count(*) AS flights, count(d.departed) AS departed,
           count(d.arrived) AS arrived, count(*) FILTER (WHERE d.status = 'cancelled') AS cancelled,
           round(avg(d.delay), 1) AS mean_delay, max(d.delay) AS worst_delay
    FROM nyc.departures d
    JOIN nyc.airlines l ON l.carrier = d.carrier
    JOIN nyc.airports p ON p.faa = d.origin
    GROUP BY p.name, l.name
"""

# Every flight that is known and has not arrived.
BOARD = """
    SELECT d.scheduled, d.carrier || ' ' || d.flight AS flight, l.name AS airline, d.origin,
           coalesce(p.name, d.dest) AS destination, d.status, d.delay
    FROM nyc.departures d
    JOIN nyc.airlines l ON l.carrier = d.carrier
    LEFT JOIN nyc.airports p ON p.faa = d.dest
    WHERE d.status <> 'arrived'
"""

# To paste into psql.
EXAMPLE = "COPY (SUBSCRIBE (SELECT origin, status, count(*) FROM nyc.departures GROUP BY origin, status)) TO STDOUT;"

_ANNOUNCE = """
    INSERT INTO nyc.departures (id, carrier, flight, tailnum, origin, dest, scheduled, status)
    VALUES (%s, %s, %s, %s, %s, %s, %s, 'scheduled')
"""

_CHANGE = """
    UPDATE nyc.departures SET
        status = CASE WHEN id = ANY (%(departed)s::int[]) THEN 'departed'
                      WHEN id = ANY (%(arrived)s::int[]) THEN 'arrived'
                      ELSE 'cancelled' END,
        departed = CASE WHEN id = ANY (%(departed)s::int[]) THEN %(at)s::timestamp ELSE departed END,
        delay = CASE WHEN id = ANY (%(departed)s::int[])
                     THEN (extract(epoch FROM %(at)s::timestamp) - extract(epoch FROM scheduled))::int / 60
                     ELSE delay END,
        arrived = CASE WHEN id = ANY (%(arrived)s::int[]) THEN %(at)s::timestamp ELSE arrived END
    WHERE id = ANY (%(changed)s::int[])
"""


class NotOurs(Exception):
    """A table of the demo's name holds something else; the message says what to do."""


def load(connection: Connection[Any], table: Table, advance: Callable[[int, int], None]) -> bool:
    """Creates and fills one table unless it is there already; whether it had to be filled.

    `advance(sent, size)`, both in bytes, is called as the file goes out. A COPY is whole or absent, so a table has all
    of its rows or none. NotOurs if it has others.
    """
    name = f"nyc.{table.name}"
    connection.execute(f"CREATE TABLE IF NOT EXISTS {name} ({table.columns})")
    found = connection.execute(f"SELECT count(*) FROM {name}").fetchone()
    assert found is not None
    if found[0] == table.rows:
        return False
    if found[0] != 0:
        raise NotOurs(
            f"table {name} has {found[0]:,} rows and should have {table.rows:,}; DROP TABLE {name}, then try again"
        )
    sent = 0
    copy_in = f"COPY {name} FROM STDIN WITH (FORMAT csv, HEADER match, NULL '{NULL}')"
    with table.open() as (text, size), connection.cursor() as cursor, cursor.copy(copy_in) as copy:
        while chunk := text.read(CHUNK_BYTES):
            copy.write(chunk)
            sent += len(chunk)
            advance(sent, size)
    return True


def prepare(
    connection: Connection[Any], tables: Iterable[Table], advance: Callable[[Table, int, int], None]
) -> list[Table]:
    """Everything that the replay needs, and an empty table for it; which of `tables` had to be filled."""
    connection.execute("CREATE SCHEMA IF NOT EXISTS nyc")
    filled = [table for table in tables if load(connection, table, partial(advance, table))]
    connection.execute(DEPARTURES)
    connection.execute("TRUNCATE nyc.departures")
    return filled


def commit(connection: Connection[Any], minute: Minute) -> None:
    """One minute of the day as one transaction: the flights that changed, then those that are new.

    The UPDATE stands first because it also reads, which in a transaction of writes only the first statement may.
    """
    changed = [*minute.departed, *minute.arrived, *minute.cancelled]
    with connection.transaction(), connection.cursor() as cursor:
        if changed:
            cursor.execute(
                _CHANGE,
                {"at": minute.at, "departed": minute.departed, "arrived": minute.arrived, "changed": changed},
            )
            if cursor.rowcount != len(changed):
                raise NotOurs(
                    f"{len(changed)} flights changed at {minute.at}, but nyc.departures has {cursor.rowcount}"
                )
        if minute.announced:
            cursor.executemany(
                _ANNOUNCE,
                [(f.id, f.carrier, f.number, f.tailnum, f.origin, f.dest, f.scheduled) for f in minute.announced],
            )


def latest_time(connection: Connection[Any]) -> int:
    """A time, in ms since 1970, that is not before any commit so far."""
    row = connection.execute("SELECT mz_now()::text").fetchone()
    assert row is not None
    return int(row[0])
