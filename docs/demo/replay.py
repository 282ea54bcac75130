"""The demo's SQL: its tables, what each minute writes, and what is subscribed to.

Everything lies in a schema of its own, `nyc`. The board is the table `departures`: its changes come as they are
committed. How the airlines do is a query over it, which Spark computes anew, and subtracts, at each of these times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from flights import NULL, Flight, Minute, Status, Table
from psycopg import Connection

CHUNK_BYTES = 256 * 1024


class Departure(NamedTuple):
    """A row of `nyc.departures`; `delay` in minutes, times as New York's clocks show them."""

    id: int
    carrier: str
    flight: int
    tailnum: str | None
    origin: str
    dest: str
    scheduled: datetime
    status: str
    departed: datetime | None
    delay: int | None
    arrived: datetime | None


DEPARTURES = """
    CREATE TABLE IF NOT EXISTS nyc.departures (
        id int NOT NULL, carrier text NOT NULL, flight int NOT NULL, tailnum text, origin text NOT NULL,
        dest text NOT NULL, scheduled timestamp NOT NULL, status text NOT NULL,
        departed timestamp, delay int, arrived timestamp)
"""


class Traffic(NamedTuple):
    """A row of `TRAFFIC`: how an airline does at one of the airports; `delay` is the sum, in minutes."""

    origin: str
    airline: str
    flights: int
    departed: int
    arrived: int
    cancelled: int
    delay: int | None
    worst: int | None


TRAFFIC = """
    SELECT d.origin, a.name AS airline, count(*) AS flights, count(d.departed) AS departed,
           count(d.arrived) AS arrived, count(*) FILTER (WHERE d.status = 'cancelled') AS cancelled,
           sum(d.delay) AS delay, max(d.delay) AS worst
    FROM nyc.departures d JOIN nyc.airlines a ON a.carrier = d.carrier
    GROUP BY d.origin, a.name
"""

# To paste into psql.
EXAMPLE = "COPY (SUBSCRIBE (SELECT origin, status, count(*) FROM nyc.departures GROUP BY origin, status)) TO STDOUT;"

_REMOVE = "DELETE FROM nyc.departures WHERE id = ANY (%s::int[])"
_ADD = f"INSERT INTO nyc.departures VALUES ({', '.join(['%s'] * len(Departure._fields))})"


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
    """One minute of the day as one transaction. A flight that changed is taken out and put in as it is now.

    The DELETE stands first because it also reads, which in a transaction of writes only the first statement may.
    Subscribers see what is left of all this at the transaction's one timestamp: for each flight the old row and the
    new.
    """
    changed = [flight.id for flight, _ in minute.changed]
    rows = [departure(*change) for change in minute.changed]
    rows += [departure(flight, Status.SCHEDULED) for flight in minute.announced]
    with connection.transaction(), connection.cursor() as cursor:
        if changed:
            cursor.execute(_REMOVE, [changed])
            if cursor.rowcount != len(changed):
                raise NotOurs(
                    f"of {len(changed)} flights that changed at {minute.at}, nyc.departures has {cursor.rowcount}: "
                    "another program writes to it"
                )
        cursor.executemany(_ADD, rows)


def departure(flight: Flight, status: Status) -> Departure:
    """The flight's row when it has come to that status."""
    left = flight.departed if status in (Status.DEPARTED, Status.ARRIVED) else None
    return Departure(
        id=flight.id,
        carrier=flight.carrier,
        flight=flight.number,
        tailnum=flight.tailnum,
        origin=flight.origin,
        dest=flight.dest,
        scheduled=flight.scheduled,
        status=status.value,
        departed=left,
        delay=None if left is None else (left - flight.scheduled) // timedelta(minutes=1),
        arrived=flight.arrived if status is Status.ARRIVED else None,
    )


def names(connection: Connection[Any]) -> dict[str, str]:
    """The names of airlines and airports by their codes, which are of two and of three letters."""
    rows = connection.execute("SELECT carrier, name FROM nyc.airlines").fetchall()
    rows += connection.execute("SELECT faa, name FROM nyc.airports").fetchall()
    return dict(rows)


def latest_time(connection: Connection[Any]) -> int:
    """A time, in ms since 1970, that is not before any commit so far."""
    row = connection.execute("SELECT mz_now()::text").fetchone()
    assert row is not None
    return int(row[0])
