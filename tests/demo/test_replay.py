"""The demo's SQL on a real PostgreSQL, compared with pandas: the table and the query at several times of a day."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import date
from typing import Any

import check
import psycopg
import pytest
import replay
from flights import AIRLINES, AIRPORTS, PLANES, WEATHER, minutes, read_day
from subscription import Row

DAY = date(2013, 7, 10)


@pytest.fixture(scope="module")
def connection(postgres: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS nyc CASCADE")
        yield connection
        connection.execute("DROP SCHEMA nyc CASCADE")


def rows(connection: psycopg.Connection[Any], query: str) -> Counter[Row]:
    return Counter(connection.execute(query).fetchall())


def test_tables_are_filled_once(connection: psycopg.Connection[Any]) -> None:
    tables, sent = [AIRLINES, AIRPORTS, PLANES, WEATHER], []
    assert replay.prepare(connection, tables, lambda *step: sent.append(step)) == tables
    assert {table.name for table, done, size in sent if done == size} == {table.name for table in tables}
    assert replay.prepare(connection, tables, lambda *step: None) == []
    assert rows(connection, "SELECT count(*), count(wind_gust) FROM nyc.weather") == Counter([(26_115, 5_337)])


def test_a_table_with_other_rows_is_left_unchanged(connection: psycopg.Connection[Any]) -> None:
    replay.prepare(connection, [AIRLINES], lambda *step: None)
    connection.execute("INSERT INTO nyc.airlines VALUES ('XX', 'Nobody')")
    with pytest.raises(replay.NotOurs, match=r"nyc.airlines has 17 rows and should have 16; DROP TABLE nyc.airlines"):
        replay.prepare(connection, [AIRLINES], lambda *step: None)
    connection.execute("DELETE FROM nyc.airlines WHERE carrier = 'XX'")


@pytest.mark.slow
def test_table_and_query_have_the_rows_that_pandas_computes(connection: psycopg.Connection[Any]) -> None:
    replay.prepare(connection, [AIRLINES, AIRPORTS], lambda *step: None)
    day = minutes(read_day(DAY))[:600]
    for number, minute in enumerate(day):
        replay.commit(connection, minute)
        if number in (0, 60, len(day) - 1):
            frame = check.flights_at(DAY, minute.at)
            table = rows(connection, "SELECT * FROM nyc.departures")
            assert check.differences(check.departures(frame), table) == []
            assert check.differences(check.traffic(frame), rows(connection, replay.TRAFFIC)) == []


def test_names_are_found_by_code(connection: psycopg.Connection[Any]) -> None:
    replay.prepare(connection, [AIRLINES, AIRPORTS], lambda *step: None)
    names = replay.names(connection)
    assert (names["UA"], names["JFK"]) == ("United Air Lines Inc.", "John F Kennedy Intl")
    assert len(names) == AIRLINES.rows + AIRPORTS.rows


def test_a_change_of_a_missing_flight_is_detected(connection: psycopg.Connection[Any]) -> None:
    replay.prepare(connection, [], lambda *step: None)
    minute = next(minute for minute in minutes(read_day(DAY)) if minute.changed)
    with pytest.raises(replay.NotOurs, match=r"nyc.departures has 0: another program writes to it"):
        replay.commit(connection, minute)
    assert rows(connection, "SELECT count(*) FROM nyc.departures") == Counter([(0,)])
