"""Computes with pandas what both subscriptions must contain at a time of the day, and compares."""

from __future__ import annotations

from collections import Counter
from datetime import date, datetime

import pandas as pd
from flights import AIRLINES, AIRPORTS, ANNOUNCED_AHEAD, FLIGHTS, Status
from replay import Departure, Traffic
from subscription import Row

LINES_MAX = 20


def flights_at(day: date, until: datetime) -> pd.DataFrame:
    """The flights of `day` that are announced by `until`, as known at that time."""
    flights = pd.read_csv(FLIGHTS.path)
    flights = flights[(flights.year == day.year) & (flights.month == day.month) & (flights.day == day.day)].copy()
    airports = pd.read_csv(AIRPORTS.path).set_index("faa")
    midnight = pd.Timestamp(day)

    flights["scheduled"] = midnight + _minutes(flights.hour * 60 + flights.minute)
    departed = flights.scheduled + _minutes(flights.dep_delay)
    utc = pd.to_datetime(flights.time_hour).dt.tz_localize(None)
    offset = (midnight + _minutes(flights.hour * 60) - utc).dt.total_seconds() / 3600
    # airports.csv lacks the Caribbean airports, which are at UTC-4 all year
    there = flights.dest.map(airports.tz).fillna(-4) + ((offset == -4) & (flights.dest.map(airports.dst) == "A"))
    elapsed = (_clock(flights.arr_time) - _clock(flights.dep_time) - 60 * (there - offset)) % (24 * 60)
    arrived = (departed + _minutes(elapsed)).where(flights.arr_delay.notna())

    flights["status"] = Status.SCHEDULED
    flights.loc[departed <= until, "status"] = Status.DEPARTED
    flights.loc[arrived <= until, "status"] = Status.ARRIVED
    flights.loc[departed.isna() & (flights.scheduled <= until), "status"] = Status.CANCELLED
    flights["departed"] = departed.where(departed <= until)
    flights["delay"] = flights.dep_delay.where(departed <= until).astype("Int64")
    flights["arrived"] = arrived.where(arrived <= until)
    flights["id"] = range(1, len(flights) + 1)
    flights["airline"] = flights.carrier.map(pd.read_csv(AIRLINES.path).set_index("carrier").name)
    return flights[flights.scheduled - ANNOUNCED_AHEAD <= until]


def departures(frame: pd.DataFrame) -> Counter[Row]:
    """The expected rows of `nyc.departures`."""
    columns = [[None if pd.isna(value) else value for value in frame[name].tolist()] for name in Departure._fields]
    return Counter(zip(*columns, strict=True))


def traffic(frame: pd.DataFrame) -> Counter[Row]:
    """The expected rows of `replay.TRAFFIC`."""
    rows: Counter[Row] = Counter()
    for (origin, airline), group in frame.groupby(["origin", "airline"]):
        delays = group.delay.dropna().tolist()
        rows[
            Traffic(
                origin=origin,
                airline=airline,
                flights=len(group),
                departed=len(delays),
                arrived=int((group.status == Status.ARRIVED).sum()),
                cancelled=int((group.status == Status.CANCELLED).sum()),
                delay=sum(delays) if delays else None,
                worst=max(delays, default=None),
            )
        ] += 1
    return rows


def differences(expected: Counter[Row], found: Counter[Row]) -> list[str]:
    """One line for each missing or surplus row, at most LINES_MAX; empty if both are equal."""
    lines = [f"missing  {count} x {_shown(row)}" for row, count in (expected - found).items()]
    lines += [f"surplus  {count} x {_shown(row)}" for row, count in (found - expected).items()]
    rest = len(lines) - LINES_MAX
    return lines if rest <= 0 else [*lines[:LINES_MAX], f"and {rest} more"]


def _shown(row: Row) -> str:
    return "(" + ", ".join("NULL" if value is None else str(value) for value in row) + ")"


def _minutes(count: pd.Series) -> pd.Series:
    return pd.to_timedelta(count, unit="min")


def _clock(hhmm: pd.Series) -> pd.Series:
    return hhmm // 100 * 60 + hhmm % 100
