"""The demo's SQL: its tables, the transaction of each minute, and the subscribed query.

All objects are in the schema `nyc`. The board is a subscription to the table `departures`, the airlines' figures are a
subscription to the query `TRAFFIC` over it, which is maintained incrementally.
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
    """A row of `nyc.departures`. `delay` is in minutes; times are New York's local time."""

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
    """A row of `TRAFFIC`: an airline's figures at one airport. `delay` is the sum of the delays, in minutes."""

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

# A statement for users to run in psql.
EXAMPLE = "COPY (SUBSCRIBE (SELECT origin, status, count(*) FROM nyc.departures GROUP BY origin, status)) TO STDOUT;"

_REMOVE = "DELETE FROM nyc.departures WHERE id = ANY (%s::int[])"
_ADD = f"INSERT INTO nyc.departures VALUES ({', '.join(['%s'] * len(Departure._fields))})"


class NotOurs(Exception):
    """A table with a name that the demo uses has other contents. The message says what to do."""


def load(connection: Connection[Any], table: Table, advance: Callable[[int, int], None]) -> bool:
    """Creates and fills one table unless it has its rows already. Returns whether it was filled.

    Calls `advance(sent, size)`, both in bytes, while it sends the file. COPY is atomic, so a table has all of its rows
    or none. NotOurs if it has another number of rows.
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
    """Creates the schema and the tables, and empties `nyc.departures`. Returns those of `tables` that it filled."""
    connection.execute("CREATE SCHEMA IF NOT EXISTS nyc")
    filled = [table for table in tables if load(connection, table, partial(advance, table))]
    connection.execute(DEPARTURES)
    connection.execute("TRUNCATE nyc.departures")
    return filled


def commit(connection: Connection[Any], minute: Minute) -> None:
    """Commits the events of one minute as one transaction. Replaces the rows of changed flights by DELETE and INSERT.

    Subscribers receive the consolidated changes at the transaction's timestamp: the old and the new row of each
    changed flight.
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
    """The row of `nyc.departures` for a flight in this status."""
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
    """The names of airlines (two-letter codes) and airports (three-letter codes) by code."""
    rows = connection.execute("SELECT carrier, name FROM nyc.airlines").fetchall()
    rows += connection.execute("SELECT faa, name FROM nyc.airports").fetchall()
    return dict(rows)


def latest_time(connection: Connection[Any]) -> int:
    """A time, in ms since 1970, that is greater than or equal to that of every commit so far."""
    row = connection.execute("SELECT mz_now()::text").fetchone()
    assert row is not None
    return int(row[0])
