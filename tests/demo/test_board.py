"""The drawing of the departures board."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import datetime, timedelta

import check
import pytest
from board import Scene, visible
from flights import Status
from replay import Departure, Traffic
from rich.console import Console

NOW = datetime(2013, 7, 10, 18)


def row(minutes: int, status: Status, delay: int | None = None) -> Departure:
    scheduled = NOW + timedelta(minutes=minutes)
    departed = None if delay is None else scheduled + timedelta(minutes=delay)
    return Departure(1, "UA", 1, None, "EWR", "ORD", scheduled, status, departed, delay, None)


def test_a_departed_flight_remains_for_some_minutes() -> None:
    fresh, gone = row(-50, Status.DEPARTED, 40), row(-50, Status.DEPARTED, 10)
    cancelled, forgotten = row(-5, Status.CANCELLED), row(-25, Status.CANCELLED)
    soon, overdue = row(30, Status.SCHEDULED), row(-21, Status.SCHEDULED)
    assert visible([soon, gone, overdue, cancelled, fresh, forgotten], NOW) == ([fresh, cancelled, soon], 1)


@pytest.fixture(scope="module")
def scene() -> Scene:
    frame = check.flights_at(NOW.date(), NOW)
    return Scene(
        now=NOW,
        done=500,
        total=1000,
        departures=[Departure(*row) for row in check.departures(frame)],
        traffic=[Traffic(*row) for row in check.traffic(frame)],
        names={"B6": "JetBlue Airways"},
        frontier=1_373_479_200_123,
        clock=1_373_479_200_200,
        updates=12_345,
        updates_per_s=67.8,
        url="postgres://materialize@127.0.0.1:6875/materialize",
    )


@pytest.mark.parametrize(("width", "height"), [(80, 24), (140, 50)])
def test_the_board_fits_the_terminal(scene: Scene, width: int, height: int) -> None:
    out = io.StringIO()
    Console(file=out, width=width, height=height).print(scene)
    lines = out.getvalue().splitlines()
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    text = " ".join(out.getvalue().split())
    assert "Departures from New York 2013-07-10 18:00 " in text
    assert "500 of 1,000" in text
    assert "frontier 18:00:00.123 UTC, 77 ms ago 12,345 updates, 68/s" in text
    assert "should have left over 20 minutes ago" in text
    assert "JetBlue" in text


def test_an_empty_board_is_drawn(scene: Scene) -> None:
    Console(file=io.StringIO()).print(replace(scene, departures=[], traffic=[], done=0))


def test_no_number_is_a_signed_zero(scene: Scene) -> None:
    """A mean of -0.3 minutes is shown as 0, and a flight without a delay as on time."""
    traffic = Traffic(origin="EWR", airline="X", flights=10, departed=10, arrived=0, cancelled=0, delay=-3, worst=0)
    out = io.StringIO()
    drawn = replace(scene, departures=[row(-5, Status.DEPARTED, 0)], traffic=[traffic])
    Console(file=out, width=140, height=40).print(drawn)
    assert "0 min" in out.getvalue()
    assert "-0" not in out.getvalue().replace("2013-07-10", "")
    assert "+0" not in out.getvalue()
    assert "on time" in out.getvalue()
