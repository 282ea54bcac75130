"""Runs the demo: starts the server, loads the tables, subscribes, replays the day, and checks the result."""

from __future__ import annotations

import tempfile
import time
from collections import deque
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import psycopg
import replay
from board import Scene
from flights import FLIGHTS, TABLES, Minute, Table, minutes, read_day
from interrupts import Interrupts
from local_server import LocalServer
from replay import Departure, Traffic
from rich.console import Console
from rich.live import Live
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from subscription import Subscription

DATA_DIR = Path("tidewire-data/demo")
CATCH_UP_S = 300.0
REPORT_S = 2.0  # interval between two progress lines without a terminal
RATE_S = 5.0  # window over which updates per second are computed
LOOK_S = 0.2  # interval of the checks of server and subscriptions while idle


@dataclass(frozen=True, slots=True)
class Options:
    """The command-line options; `departures.py --help` describes them."""

    day: date
    speed: float
    once: bool
    minutes: int | None
    history: bool
    url: str | None
    data_dir: Path | None


class Demo:
    """One run. `doing` describes the current step, `remains` what is left behind if the run ends now."""

    def __init__(self, options: Options, interrupts: Interrupts) -> None:
        self._options = options
        self._interrupts = interrupts
        self._console = Console(highlight=False, force_terminal=False if options.once else None)
        self._server: LocalServer | None = None
        self._subscriptions: tuple[Subscription, ...] = ()
        self.doing = "starting"
        self.remains = "Nothing was changed."

    def run(self) -> int:
        """Returns the exit code. Stops everything that it started, also after an exception or KeyboardInterrupt."""
        with ExitStack() as stack:
            try:
                return self._run(stack)
            except psycopg.OperationalError:
                if self._server is not None:
                    self._server.check(grace_s=1.0)
                raise
            finally:
                self._interrupts.hold()

    def _run(self, stack: ExitStack) -> int:
        options = self._options
        started = time.monotonic()
        self.doing = "reading the day"
        day = minutes(read_day(options.day))[: options.minutes]
        url = options.url or self._start_server(stack)
        self.doing = "connecting"
        connection = psycopg.connect(url, autocommit=True, application_name="demo")
        stack.callback(connection.close)
        self._load(connection)
        self.doing = "subscribing"
        departures = stack.enter_context(Subscription(url, "nyc.departures", "departures"))
        traffic = stack.enter_context(Subscription(url, f"({replay.TRAFFIC})", "traffic"))
        self._subscriptions = (departures, traffic)
        self._say_lines(url)
        began = time.monotonic()
        self._replay(connection, day, Watch(departures, traffic, replay.names(connection), day, url))
        self.doing = "waiting for the subscriptions"
        latest = replay.latest_time(connection)
        for subscription in self._subscriptions:
            subscription.wait_beyond(latest, CATCH_UP_S)
        ended = time.monotonic()
        equal = self._check(day)
        changes = sum(len(minute.announced) + len(minute.changed) for minute in day)
        self._say(
            f"{len(day):,} transactions with {changes:,} changes, to the last row: {ended - began:.1f} s; "
            f"with start and loading: {ended - started:.1f} s"
        )
        if not options.once and self._server is not None:
            self._stay(url)
        return 0 if equal else 1

    def _start_server(self, stack: ExitStack) -> str:
        options = self._options
        if options.data_dir is None and options.once:
            data_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidewire-demo-")))
            self.remains = "Its server is stopped and its temporary directory removed: nothing remains."
        else:
            data_dir = options.data_dir or DATA_DIR
            self.remains = (
                f"Its server is stopped; what was loaded stays in {data_dir}. Started again, it loads only what is "
                "missing and replays the day from the beginning."
            )
        self.doing = "starting the server"
        with self._interrupts.held():
            self._server = LocalServer(data_dir)
            stack.callback(self._server.stop)
        self._server.wait_until_listening()
        self._say(f"tidewire listens on 127.0.0.1:{self._server.port}, its data are in {data_dir}")
        return self._server.url

    def _load(self, connection: psycopg.Connection[Any]) -> None:
        if self._options.url is not None:
            self.remains = "Its tables are in the server's schema nyc; DROP SCHEMA nyc CASCADE removes them."
        tables = [table for table in TABLES if table is not FLIGHTS or self._options.history]
        self.doing = "loading (each table whole or not at all)"
        self._say("loading the tables, as soon as Spark has started")
        began = time.monotonic()
        columns = TextColumn("{task.description:9}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
        with Progress(
            SpinnerColumn(), *columns, console=self._console, disable=not self._console.is_terminal
        ) as progress:
            waiting = progress.add_task("waiting for Spark", total=None)
            bars: dict[str, TaskID] = {}  # the tables whose loading has begun

            def advance(table: Table, sent: int, size: int) -> None:
                progress.update(waiting, visible=False)
                if table.name not in bars:
                    bars[table.name] = progress.add_task(table.name)
                progress.update(bars[table.name], completed=sent, total=size)

            filled = replay.prepare(connection, tables, advance)
        rows = sum(table.rows for table in filled)
        names = ", ".join(table.name for table in filled)
        took = f"{time.monotonic() - began:.1f} s"
        self._say(f"loaded {rows:,} rows in {took}: {names}" if filled else f"the tables were there already ({took})")

    def _replay(self, connection: psycopg.Connection[Any], day: list[Minute], watch: Watch) -> None:
        live = Live(get_renderable=watch.scene, console=self._console) if self._console.is_terminal else nullcontext()
        began = reported = time.monotonic()
        with live:
            for minute in day:
                self.doing = f"replaying {minute.at:%Y-%m-%d %H:%M}"
                if not self._options.once:
                    self._sleep_until(began + (minute.at - day[0].at).total_seconds() / self._options.speed)
                self._look()
                replay.commit(connection, minute)
                watch.done += 1
                if not self._console.is_terminal and time.monotonic() >= reported + REPORT_S:
                    reported = time.monotonic()
                    self._say(watch.line())

    def _check(self, day: list[Minute]) -> bool:
        """Whether the subscriptions' rows, which are complete, equal those that pandas computes from the file."""
        import check  # imports pandas, which takes a second

        self.doing = "checking"
        flights = check.flights_at(self._options.day, day[-1].at)
        equal = True
        both = (check.departures(flights), check.traffic(flights))
        for subscription, expected in zip(self._subscriptions, both, strict=True):
            state = subscription.state()
            differences = check.differences(expected, state.rows)
            verdict = (
                "they DIFFER from pandas over the same file" if differences else "equal to pandas over the same file"
            )
            self._say(
                f"{subscription.name}: {state.rows.total():,} rows from {state.updates:,} updates and "
                f"{state.progresses:,} progress messages; {verdict}"
            )
            for line in differences:
                self._say(f"    {line}")
            equal = equal and not differences
        return equal

    def _stay(self, url: str) -> None:
        """Keeps the server running until Ctrl-C, the normal end of the demo."""
        self._say_lines(url)
        self._say("The server runs until Ctrl-C.")
        with suppress(KeyboardInterrupt):
            self._sleep_until(float("inf"))
        self._say(f"\n{self.remains}")

    def _say_lines(self, url: str) -> None:
        self._say(f"\nSubscribe too, in another terminal:\n\n    psql {url}\n    {replay.EXAMPLE}\n")

    def _say(self, line: str) -> None:
        self._console.print(line, markup=False, soft_wrap=True)

    def _look(self) -> None:
        """Raises if the server or a subscription has ended."""
        if self._server is not None:
            self._server.check()
        for subscription in self._subscriptions:
            subscription.check()

    def _sleep_until(self, moment: float) -> None:
        while (left := moment - time.monotonic()) > 0:
            self._look()
            time.sleep(min(left, LOOK_S))


class Watch:
    """The state of a running replay, for display. Rows are as of the frontier of their subscription."""

    def __init__(
        self, departures: Subscription, traffic: Subscription, names: dict[str, str], day: list[Minute], url: str
    ) -> None:
        self.done = 0
        self._departures = departures
        self._traffic = traffic
        self._names = names
        self._day = day
        self._url = url
        self._counts: deque[tuple[float, int]] = deque([(time.monotonic(), 0)])

    def scene(self) -> Scene:
        departures, traffic = self._departures.state(), self._traffic.state()
        updates = departures.updates + traffic.updates
        return Scene(
            now=self._now.at,
            done=self.done,
            total=len(self._day),
            departures=[Departure(*row) for row in departures.rows.elements()],
            traffic=[Traffic(*row) for row in traffic.rows.elements()],
            names=self._names,
            frontier=traffic.frontier,
            clock=int(time.time() * 1000),
            updates=updates,
            updates_per_s=self._rate(updates),
            url=self._url,
        )

    def line(self) -> str:
        departures, traffic = self._departures.state(), self._traffic.state()
        updates = departures.updates + traffic.updates
        behind = max(int(time.time() * 1000) - traffic.frontier, 0)
        return (
            f"{self._now.at:%H:%M}  {self.done:,} of {len(self._day):,} transactions  {updates:,} updates, "
            f"{self._rate(updates):,.0f}/s  frontier {behind:,} ms ago"
        )

    @property
    def _now(self) -> Minute:
        return self._day[max(self.done - 1, 0)]

    def _rate(self, updates: int) -> float:
        now = time.monotonic()
        self._counts.append((now, updates))
        while len(self._counts) > 2 and self._counts[0][0] < now - RATE_S:
            self._counts.popleft()
        since, before = self._counts[0]
        return (updates - before) / max(now - since, 0.001)
