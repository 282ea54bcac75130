"""A subscriber that resumes after each end of its server, and checks every progress that it receives."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg

WAIT_S = 120
Updates = Counter[tuple[int, tuple[Any, ...]]]  # the diff of each (time, row)


class Subscriber:
    """Follows a relation in one life after another. `received`: the updates whose times a progress has closed."""

    def __init__(self, relation: str) -> None:
        self._relation = relation
        self.as_of = 0
        self.last: int | None = None  # the last progress after `as_of`
        self.received: Updates = Counter()
        self.failure: Exception | None = None
        self._moved = threading.Condition()
        self._count = 0
        self._thread: threading.Thread | None = None

    def start(self, dsn: str) -> None:
        self._thread = threading.Thread(target=self._run, args=(dsn,), daemon=True)
        self._thread.start()

    def join(self) -> None:
        assert self._thread is not None
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        if self.failure is not None:
            raise self.failure

    def wait(self, condition: Callable[[], bool]) -> None:
        with self._moved:
            reached = self._moved.wait_for(lambda: self.failure is not None or condition(), WAIT_S)
        if self.failure is not None:
            raise self.failure
        assert reached, f"{self._relation}: no progress after {self.last}"

    def wait_for_progress(self, messages: int) -> None:
        count = self._count + messages
        self.wait(lambda: self._count >= count)

    def _run(self, dsn: str) -> None:
        try:
            # A connection's own `with` would wait for the end of the stream after an error.
            with closing(psycopg.connect(dsn, autocommit=True)) as connection:
                self._follow(connection)
        except psycopg.OperationalError:
            pass  # the server was killed
        except Exception as error:
            with self._moved:
                self.failure = error
                self._moved.notify_all()

    def _follow(self, connection: psycopg.Connection[Any]) -> None:
        resumed = "" if self.last is None else f", SNAPSHOT false) AS OF {self.last - 1}"
        stream = connection.cursor().stream(f"SUBSCRIBE {self._relation} WITH (PROGRESS{resumed or ')'}".encode())
        first, progressed, *_ = next(stream)
        assert progressed
        if self.last is None:
            self.as_of = int(first)
        else:
            assert first == self.last - 1
        reported = int(first)  # a resumed stream may report `last` again, after `last - 1`
        unclosed: Updates = Counter()
        for time, progressed, diff, *row in stream:
            closed = self.as_of if self.last is None else self.last
            assert time >= closed, f"{self._relation}: a row at {time} after progress at {closed}"
            if not progressed:
                unclosed[int(time), tuple(row)] += diff
                continue
            assert time > reported, f"{self._relation}: progress at {time} after {reported}"
            reported = int(time)
            closed_now = {update: diff for update, diff in unclosed.items() if update[0] < time}
            unclosed = Counter({update: diff for update, diff in unclosed.items() if update[0] >= time})
            with self._moved:
                self.received.update(closed_now)
                self.last = int(time)
                self._count += 1
                self._moved.notify_all()

    def check(self, connection: psycopg.Connection[Any]) -> None:
        """The received updates are the history that is stored, from AS OF to the last progress."""
        sql = f"SUBSCRIBE {self._relation} AS OF {self.as_of} UP TO {self.last}"
        stored: Updates = Counter()
        for time, diff, *row in connection.cursor().stream(sql.encode()):
            stored[int(time), tuple(row)] += diff
        assert self.received == stored, self._relation
