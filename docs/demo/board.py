"""The departures board, drawn for a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from replay import CANCELLED, DEPARTED, SCHEDULED
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from subscription import Row

LINGER = timedelta(minutes=20)  # how long a flight stays to be seen after it departed, or should have
ROWS_MIN = 4


@dataclass(frozen=True, slots=True)
class Scene:
    """What is to be drawn, as high as the terminal; `board` and `traffic` are rows of the queries in `replay.py`.

    `now` is the replay's time; `frontier` and `clock`, the time that it is here, are in ms since 1970.
    """

    now: datetime
    done: int
    total: int
    board: Iterable[Row]
    traffic: Iterable[Row]
    frontier: int
    clock: int
    updates: int
    updates_per_s: float
    url: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield _draw(self, options.max_height)


def _draw(scene: Scene, lines: int) -> Group:
    """The board above, the airlines' delays below, the subscriptions' state at the end."""
    rows = max(lines - 8, 2 * ROWS_MIN)
    traffic = max(rows // 3, ROWS_MIN)
    head = Table.grid(padding=(0, 2))
    head.add_row(
        Text(f"Departures from New York  {scene.now:%Y-%m-%d %H:%M}", style="bold yellow"),
        ProgressBar(total=scene.total, completed=scene.done, width=24),
        f"{scene.done} of {scene.total} transactions",
    )
    moment = datetime.fromtimestamp(scene.frontier / 1000, UTC)
    foot = Text(
        f"frontier {moment:%H:%M:%S.%f}"[:-3]
        + f" UTC, {max(scene.clock - scene.frontier, 0):,} ms ago    "
        + f"{scene.updates:,} updates, {scene.updates_per_s:,.0f}/s\npsql {scene.url}",
        style="dim",
    )
    return Group(head, _departures(scene, rows - traffic), _airlines(scene, traffic), foot)


def visible(board: Iterable[Row], now: datetime) -> tuple[list[Row], int]:
    """The rows to show, soonest first; and how many more wait that should have left long ago."""
    shown, overdue = [], 0
    for row in board:
        scheduled, status, delay = row[0], row[5], row[6]
        if scheduled + timedelta(minutes=delay or 0) >= now - LINGER:
            shown.append(row)
        elif status == SCHEDULED:
            overdue += 1
    return sorted(shown, key=lambda row: (row[0], row[1])), overdue


def _departures(scene: Scene, lines: int) -> Table:
    shown, overdue = visible(scene.board, scene.now)
    caption = f"{overdue} more should have left over {LINGER.seconds // 60} minutes ago" if overdue else ""
    table = Table(box=None, expand=True, caption=caption, caption_justify="left", header_style="bold")
    table.add_column("time", width=5)
    table.add_column("flight", width=8)
    table.add_column("to", ratio=2, no_wrap=True)
    table.add_column("airline", ratio=1, no_wrap=True)
    table.add_column("from", width=4)
    table.add_column("", width=14)
    for scheduled, flight, airline, origin, destination, status, delay in shown[:lines]:
        table.add_row(
            f"{scheduled:%H:%M}", flight, destination, airline, origin, _remark(status, delay, scheduled < scene.now)
        )
    return table


def _remark(status: str, delay: int | None, overdue: bool) -> Text:
    if status == CANCELLED:
        return Text("cancelled", style="bold red")
    if status == DEPARTED and delay is not None:
        return Text(f"departed {delay:+d}", style="green" if delay <= 15 else "yellow")
    return Text("late", style="yellow") if overdue else Text("")


def _airlines(scene: Scene, lines: int) -> Table:
    """Those with the worst mean delay first."""
    table = Table(box=None, expand=True, header_style="bold")
    table.add_column("airport", ratio=2, no_wrap=True)
    table.add_column("airline", ratio=2, no_wrap=True)
    for name in ("flights", "departed", "arrived", "cancelled", "mean delay", "worst"):
        table.add_column(name, justify="right", no_wrap=True)
    rows = sorted(scene.traffic, key=lambda row: (row[6] is None, -(row[6] or 0), row[0], row[1]))
    for airport, airline, *figures in rows[:lines]:
        table.add_row(airport, airline, *("" if figure is None else str(figure) for figure in figures))
    return table
