"""Reads a SUBSCRIBE and accumulates its messages to the rows of the query.

A message is (mz_timestamp, mz_progressed, mz_diff, columns...). Changes are buffered until progress passes their time
and are then applied together, so `rows` is always the query's result at one time, `frontier - 1`.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import psycopg

Row = tuple[Any, ...]


class SubscriptionFailed(Exception):
    """The stream ended, or contradicted an earlier message. The message says how."""


class Accumulated:
    """The rows of a query, accumulated from the messages of a subscription with PROGRESS.

    All changes at times less than `frontier`, in ms since 1970, are in `rows`. `updates` and `progresses` count
    messages.
    """

    def __init__(self) -> None:
        self.rows: Counter[Row] = Counter()
        self.frontier = 0
        self.updates = 0
        self.progresses = 0
        self._waiting: list[tuple[int, int, Row]] = []

    def take(self, message: Sequence[Any]) -> bool:
        """Processes the next message. Returns whether it was progress.

        SubscriptionFailed if it contradicts an earlier message.
        """
        at, progressed, diff, *columns = message
        if at < self.frontier:
            raise SubscriptionFailed(f"a message at {at} came after progress at {self.frontier}")
        if not progressed:
            self.updates += 1
            self._waiting.append((int(at), diff, tuple(columns)))
            return False
        self.progresses += 1
        self.frontier = int(at)
        waiting, self._waiting = self._waiting, []
        for change in waiting:
            if change[0] < self.frontier:
                self._apply(*change)
            else:
                self._waiting.append(change)
        if negative := [row for row, count in self.rows.items() if count < 0]:
            raise SubscriptionFailed(f"before {at} a row was taken away that was not there: {negative[0]}")
        return True

    def _apply(self, _at: int, diff: int, row: Row) -> None:
        self.rows[row] += diff
        if self.rows[row] == 0:
            del self.rows[row]


@dataclass(frozen=True, slots=True)
class State:
    """A copy of an `Accumulated`."""

    rows: Counter[Row]
    frontier: int
    updates: int
    progresses: int


class Subscription:
    """Follows `relation`, a name or `(query)`, on its own connection and thread until `close`."""

    def __init__(self, url: str, relation: str, name: str) -> None:
        self.name = name
        self._relation = relation
        self._connection = psycopg.connect(url, autocommit=True, application_name=f"demo {name}")
        self._accumulated = Accumulated()
        self._moved = threading.Condition()
        self._failure: SubscriptionFailed | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._follow, name=f"subscription-{name}", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def state(self) -> State:
        """A copy of the current state. Does not raise; see `check`."""
        with self._moved:
            now = self._accumulated
            return State(now.rows.copy(), now.frontier, now.updates, now.progresses)

    def check(self) -> None:
        """SubscriptionFailed if the stream has failed or ended."""
        if self._failure is not None:
            raise self._failure

    def wait_beyond(self, moment: int, timeout_s: float) -> None:
        """Waits until the rows include every change at times `<= moment`. SubscriptionFailed after the timeout."""
        deadline = time.monotonic() + timeout_s
        with self._moved:
            while self._accumulated.frontier <= moment:
                self.check()
                left = deadline - time.monotonic()
                if left <= 0:
                    behind = moment - self._accumulated.frontier
                    raise SubscriptionFailed(f"{self.name} is still {behind} ms behind after {timeout_s:.0f} s")
                self._moved.wait(min(left, 0.5))

    def close(self) -> None:
        """Cancels the SUBSCRIBE, as Ctrl-C in psql does, and closes the connection."""
        self._closing = True
        if self._thread.is_alive():
            self._connection.cancel_safe(timeout=5.0)
            self._thread.join(5.0)
        self._connection.close()

    def _follow(self) -> None:
        try:
            with self._connection.cursor() as cursor:
                for message in cursor.stream(f"SUBSCRIBE {self._relation} WITH (PROGRESS)"):
                    with self._moved:
                        if self._accumulated.take(message):
                            self._moved.notify_all()
            self._fail(f"the stream of {self.name} came to an end")
        except psycopg.Error as error:
            self._fail(f"the stream of {self.name} broke: {error}")
        except SubscriptionFailed as error:
            self._fail(f"the stream of {self.name} is wrong: {error}")

    def _fail(self, message: str) -> None:
        with self._moved:
            if not self._closing:
                self._failure = SubscriptionFailed(message)
            self._moved.notify_all()
