"""A client process: `python -m tests.faults.subscriber DSN FILE RELATION RESUME HOLD`.

It subscribes to the relation. It stores every update, and the progress that made it final, in an SQLite file, with one
transaction for each progress, as an application would store its own results. After any interruption, including that of
this process, it resumes from the last progress that it stored (RESUME is `resume`) or with a new snapshot (`snapshot`).
It advances HOLD to one before its progress, unless HOLD is `-`. It records what a correct server never does in the
table `broken`. It exits when its parent process does.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import sqlite3
import sys
import threading
import time
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg

SCHEMA = """
CREATE TABLE IF NOT EXISTS segments (id INTEGER PRIMARY KEY, as_of INTEGER);
CREATE TABLE IF NOT EXISTS updates (segment INTEGER, time INTEGER, diff INTEGER, row TEXT);
CREATE TABLE IF NOT EXISTS progress (segment INTEGER, time INTEGER, received_ns INTEGER);
CREATE TABLE IF NOT EXISTS advances (time INTEGER, acknowledged_ns INTEGER);
CREATE TABLE IF NOT EXISTS broken (what TEXT);
"""
LONG = 40  # longer texts are replaced by their length and checksum
ADVANCE_EVERY = 5  # progresses


def kept(value: Any) -> Any:
    if isinstance(value, str) and len(value) > LONG:
        return f"{len(value)} bytes {zlib.crc32(value.encode()):08x}"
    return value if value is None or isinstance(value, int) else str(value)


def passes(error: BaseException) -> bool:
    """Whether a fault of the run explains the error: a lost connection or server, or a disk that is full or fails."""
    state = getattr(error, "sqlstate", None)
    return isinstance(error, OSError) or (
        isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        and (state is None or state[:2] in ("08", "53", "57", "58"))
    )


class Broken(Exception):
    """The server did what a correct server never does."""


class Subscriber:
    def __init__(self, dsn: str, file: Path, relation: str, resumes: bool, hold: str | None) -> None:
        self._dsn = dsn
        self._relation = relation
        self._resumes = resumes
        self._hold = hold
        self._parent = os.getppid()
        self._holding: psycopg.Connection[Any] | None = None
        self._store = sqlite3.connect(file, isolation_level=None)
        self._store.execute("PRAGMA synchronous = OFF")  # the process is killed, but the machine is not
        self._store.executescript(SCHEMA)

    def run(self) -> None:
        while os.getppid() == self._parent:
            try:
                with closing(psycopg.connect(self._dsn, autocommit=True, connect_timeout=10)) as connection:
                    self._follow(connection)
            except Exception as error:
                if not passes(error):
                    self._broke(f"{type(error).__name__}: {error}")
                time.sleep(0.05)

    def _broke(self, what: str) -> None:
        self._store.execute("INSERT INTO broken VALUES (?)", (f"{self._relation}: {what}",))

    def _place(self) -> tuple[int, int] | None:
        """The segment that can be resumed, and its last progress."""
        if not self._resumes:
            return None
        query = "SELECT segment, max(time) FROM progress GROUP BY segment ORDER BY segment DESC LIMIT 1"
        row = self._store.execute(query).fetchone()
        return None if row is None else (int(row[0]), int(row[1]))

    def _follow(self, connection: psycopg.Connection[Any]) -> None:
        place = self._place()
        resumed = "" if place is None else f", SNAPSHOT false) AS OF {place[1] - 1}"
        stream = connection.cursor().stream(f"SUBSCRIBE {self._relation} WITH (PROGRESS{resumed or ')'}".encode())
        first = next(stream)
        as_of = int(first[0])
        if not first[1]:
            raise Broken(f"the first row of a stream is {first}")
        if place is None:
            segment, last = None, as_of
        else:
            segment, last = place
            if as_of != last - 1:
                raise Broken(f"the stream AS OF {last - 1} begins with progress at {as_of}")
        waiting: list[tuple[int, int, str]] = []
        for count in itertools.count():
            for timestamp, progressed, diff, *values in stream:
                at = int(timestamp)
                if at < last or (progressed and at == last and count):
                    raise Broken(f"a row at {at} came after progress at {last}, progressed {progressed}")
                if progressed:
                    break
                waiting.append((at, int(diff), json.dumps([kept(value) for value in values])))
            else:
                raise Broken("the stream came to an end")
            last = at
            final = [update for update in waiting if update[0] < last]
            waiting = [update for update in waiting if update[0] >= last]
            segment = self._keep(segment, as_of, last, final)
            if self._hold is not None and count % ADVANCE_EVERY == 0:
                self._advance(last - 1)
            if os.getppid() != self._parent:
                return

    def _keep(self, segment: int | None, as_of: int, progress: int, final: list[tuple[int, int, str]]) -> int:
        store = self._store
        store.execute("BEGIN")
        if segment is None:
            segment = store.execute("INSERT INTO segments (as_of) VALUES (?)", (as_of,)).lastrowid
        store.executemany("INSERT INTO updates VALUES (?, ?, ?, ?)", [(segment, *update) for update in final])
        store.execute("INSERT INTO progress VALUES (?, ?, ?)", (segment, progress, time.monotonic_ns()))
        store.execute("COMMIT")
        assert segment is not None
        return segment

    def _advance(self, to: int) -> None:
        row = self._store.execute("INSERT INTO advances VALUES (?, NULL)", (to,)).lastrowid
        try:
            if self._holding is None:
                self._holding = psycopg.connect(self._dsn, autocommit=True, connect_timeout=10)
            self._holding.execute(f"ALTER HOLD {self._hold} ADVANCE TO {to}".encode())
            acknowledged = time.monotonic_ns(), row
            self._store.execute("UPDATE advances SET acknowledged_ns = ? WHERE rowid = ?", acknowledged)
        except Exception as error:
            if self._holding is not None:
                self._holding.close()
                self._holding = None
            if not passes(error):
                self._broke(f"advancing to {to}: {type(error).__name__}: {error}")


def main() -> None:
    dsn, file, relation, resume, hold = sys.argv[1:]
    subscriber = Subscriber(dsn, Path(file), relation, resume == "resume", None if hold == "-" else hold)

    def orphaned() -> None:
        parent = os.getppid()
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    logging.getLogger("psycopg").setLevel(logging.CRITICAL)  # a stream whose connection is lost cannot be cancelled
    threading.Thread(target=orphaned, daemon=True).start()
    subscriber.run()


if __name__ == "__main__":
    main()
