"""What the two queries must give at a time of the day, worked out by pandas from the same file, and the comparison."""

from __future__ import annotations

from collections import Counter
from datetime import date, datetime
from decimal import ROUND_HALF_UP, Decimal

import pandas as pd  # type: ignore[import-untyped]
from flights import AIRLINES, AIRPORTS, ANNOUNCED_AHEAD, FLIGHTS
from replay import ARRIVED, CANCELLED, DEPARTED, SCHEDULED
from subscription import Row

LINES_MAX = 20


def departures_at(day: date, until: datetime) -> pd.DataFrame:
    """The flights of `day` that are announced by `until`, as they are then: with status and delay, and names."""
    flights = pd.read_csv(FLIGHTS.path)
    flights = flights[(flights.year == day.year) & (flights.month == day.month) & (flights.day == day.day)].copy()
    airports = pd.read_csv(AIRPORTS.path).set_index("faa")
    midnight = pd.Timestamp(day)

    flights["scheduled"] = midnight + _minutes(flights.hour * 60 + flights.minute)
    departed = flights.scheduled + _minutes(flights.dep_delay)
    utc = pd.to_datetime(flights.time_hour).dt.tz_localize(None)
    offset = (midnight + _minutes(flights.hour * 60) - utc).dt.total_seconds() / 3600
    # airports.csv knows none of the Caribbean ones, which are four hours behind UTC all year
    there = flights.dest.map(airports.tz).fillna(-4) + ((offset == -4) & (flights.dest.map(airports.dst) == "A"))
    elapsed = (_clock(flights.arr_time) - _clock(flights.dep_time) - 60 * (there - offset)) % (24 * 60)
    arrived = (departed + _minutes(elapsed)).where(flights.arr_delay.notna())

    flights["status"] = SCHEDULED
    flights.loc[departed <= until, "status"] = DEPARTED
    flights.loc[arrived <= until, "status"] = ARRIVED
    flights.loc[departed.isna() & (flights.scheduled <= until), "status"] = CANCELLED
    flights["delay"] = flights.dep_delay.where(departed <= until)
    flights["airline"] = flights.carrier.map(pd.read_csv(AIRLINES.path).set_index("carrier").name)
    flights["airport"] = flights.origin.map(airports.name)
    flights["destination"] = flights.dest.map(airports.name).fillna(flights.dest)
    return flights[flights.scheduled - ANNOUNCED_AHEAD <= until]


def traffic(departures: pd.DataFrame) -> Counter[Row]:
    """The rows of `replay.TRAFFIC`."""
    rows: Counter[Row] = Counter()
    for (airport, airline), group in departures.groupby(["airport", "airline"]):
        delays = group.delay.dropna()
        mean = Decimal(int(delays.sum())) / len(delays) if len(delays) else None
        rows[
            airport,
            airline,
            len(group),
            int(group.status.isin([DEPARTED, ARRIVED]).sum()),
            int((group.status == ARRIVED).sum()),
            int((group.status == CANCELLED).sum()),
            None if mean is None else mean.quantize(Decimal("0.1"), ROUND_HALF_UP),
            int(delays.max()) if len(delays) else None,
        ] += 1
    return rows


def board(departures: pd.DataFrame) -> Counter[Row]:
    """The rows of `replay.BOARD`."""
    there = departures[departures.status != ARRIVED]
    return Counter(
        (
            row.scheduled.to_pydatetime(),
            f"{row.carrier} {row.flight}",
            row.airline,
            row.origin,
            row.destination,
            row.status,
            None if pd.isna(row.delay) else int(row.delay),
        )
        for row in there.itertuples()
    )


def differences(expected: Counter[Row], found: Counter[Row]) -> list[str]:
    """One line for each row that is missing or too many, at most LINES_MAX of them; none if they are equal."""
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
