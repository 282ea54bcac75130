"""The board as it is drawn."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import date, datetime, timedelta

import check
import pytest
from board import Scene, visible
from rich.console import Console

NOW = datetime(2013, 7, 10, 18)


def row(minutes: int, status: str, delay: int | None = None) -> tuple[object, ...]:
    return NOW + timedelta(minutes=minutes), "UA 1", "United", "EWR", "Chicago", status, delay


def test_flights_linger_and_then_leave() -> None:
    fresh, gone = row(-50, "departed", 40), row(-50, "departed", 10)
    cancelled, forgotten = row(-5, "cancelled"), row(-25, "cancelled")
    next_, overdue = row(30, "scheduled"), row(-21, "scheduled")
    assert visible([next_, gone, overdue, cancelled, fresh, forgotten], NOW) == ([fresh, cancelled, next_], 1)


@pytest.fixture(scope="module")
def scene() -> Scene:
    departures = check.departures_at(date(2013, 7, 10), NOW)
    return Scene(
        now=NOW,
        done=500,
        total=1000,
        board=list(check.board(departures)),
        traffic=list(check.traffic(departures)),
        frontier=1_373_479_200_123,
        clock=1_373_479_200_200,
        updates=12_345,
        updates_per_s=67.8,
        url="postgres://materialize@127.0.0.1:6875/materialize",
    )


@pytest.mark.parametrize(("width", "height"), [(80, 24), (140, 50)])
def test_it_fits_the_terminal(scene: Scene, width: int, height: int) -> None:
    out = io.StringIO()
    Console(file=out, width=width, height=height).print(scene)
    lines = out.getvalue().splitlines()
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    text = " ".join(out.getvalue().split())
    assert "2013-07-10 18:00" in text
    assert "frontier 18:00:00.123 UTC, 77 ms ago 12,345 updates, 68/s" in text
    assert "should have left over 20 minutes ago" in text
    assert "cancelled" in text


def test_an_empty_board_is_drawn(scene: Scene) -> None:
    Console(file=io.StringIO()).print(replace(scene, board=[], traffic=[], done=0))
