"""Draws the departures board in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from flights import Status
from replay import Departure, Traffic
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

LINGER = timedelta(minutes=20)  # how long a flight is shown after its departure, or its scheduled departure
ROWS_MIN = 4


@dataclass(frozen=True, slots=True)
class Scene:
    """The data of one frame. It is drawn with the height of the terminal.

    `now` is the replay's time. `frontier` is the frontier of the traffic query and `clock` the current time, both in
    ms since 1970. `names` maps codes of airlines and airports to names.
    """

    now: datetime
    done: int
    total: int
    departures: Iterable[Departure]
    traffic: Iterable[Traffic]
    names: Mapping[str, str]
    frontier: int
    clock: int
    updates: int
    updates_per_s: float
    url: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield _draw(self, options.max_height)


def _draw(scene: Scene, lines: int) -> Group:
    """From top to bottom: the board, the airlines' delays, the state of the subscriptions."""
    rows = max(lines - 8, 2 * ROWS_MIN)
    traffic = max(rows // 3, ROWS_MIN)
    head = Table.grid(padding=(0, 2))
    head.add_row(
        Text(f"Departures from New York  {scene.now:%Y-%m-%d %H:%M}", style="bold yellow"),
        ProgressBar(total=scene.total, completed=scene.done, width=16),
        f"{scene.done:,} of {scene.total:,}",
    )
    moment = datetime.fromtimestamp(scene.frontier / 1000, UTC)
    foot = Text(
        f"frontier {moment:%H:%M:%S.%f}"[:-3]
        + f" UTC, {max(scene.clock - scene.frontier, 0):,} ms ago    "
        + f"{scene.updates:,} updates, {scene.updates_per_s:,.0f}/s\npsql {scene.url}",
        style="dim",
    )
    return Group(head, _departures(scene, rows - traffic), _airlines(scene, traffic), foot)


def visible(departures: Iterable[Departure], now: datetime) -> tuple[list[Departure], int]:
    """The departures to show, earliest first, and the number of overdue flights that are not shown."""
    shown, overdue = [], 0
    for row in departures:
        if (row.departed or row.scheduled) >= now - LINGER:
            shown.append(row)
        elif row.status == Status.SCHEDULED:
            overdue += 1
    return sorted(shown, key=lambda row: (row.scheduled, row.id)), overdue


def _departures(scene: Scene, lines: int) -> Table:
    shown, overdue = visible(scene.departures, scene.now)
    caption = f"{overdue} more should have left over {LINGER.seconds // 60} minutes ago" if overdue else ""
    table = Table(box=None, expand=True, caption=caption, caption_justify="left", header_style="bold")
    table.add_column("time", width=5)
    table.add_column("flight", width=8)
    table.add_column("to", ratio=2, no_wrap=True)
    table.add_column("airline", ratio=1, no_wrap=True)
    table.add_column("from", width=4)
    table.add_column("", width=14)
    for row in shown[:lines]:
        table.add_row(
            f"{row.scheduled:%H:%M}",
            f"{row.carrier} {row.flight}",
            scene.names.get(row.dest, row.dest),
            scene.names.get(row.carrier, row.carrier),
            row.origin,
            _remark(row, scene.now),
        )
    return table


def _remark(row: Departure, now: datetime) -> Text:
    if row.status == Status.CANCELLED:
        return Text("cancelled", style="bold red")
    if row.delay is not None:
        text = f"departed {row.delay:+d}" if row.delay else "on time"
        return Text(text, style="green" if row.delay <= 15 else "yellow")
    return Text("late", style="yellow") if row.scheduled < now else Text("")


def _airlines(scene: Scene, lines: int) -> Table:
    """The airlines in descending order of their mean delay."""
    table = Table(box=None, expand=True, header_style="bold")
    table.add_column("from", width=4)
    table.add_column("airline", ratio=1, no_wrap=True)
    for name in ("flights", "departed", "arrived", "cancelled", "mean delay", "worst"):
        table.add_column(name, justify="right", no_wrap=True)
    means = {row: row.delay / row.departed for row in scene.traffic if row.delay is not None}
    for row in sorted(means, key=lambda row: (-means[row], row))[:lines]:
        figures = (
            row.flights,
            row.departed,
            row.arrived,
            row.cancelled,
            f"{round(means[row])} min",
            f"{row.worst} min",
        )
        table.add_row(row.origin, row.airline, *map(str, figures))
    return table
