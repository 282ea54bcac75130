"""A snapshot much larger than the server's memory budget reaches a slow client completely, during writes."""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psycopg
import pytest

from protocol.pgwire.messages.frontend import Query
from protocol.pgwire.messages.startup import StartupMessage
from tests.fix_server import ServerProcess

ROW_BYTES = 200
TEXT = "y" * (ROW_BYTES - 20)
BATCH_ROWS = 10_000
READ_BYTES = 4 << 20  # the client reads this much between two commits of another session
LINE = re.compile(rb"(\d+)\t([tf])\t(\\N|-?\d+)\t(\\N|\d+)\t")


def anonymous_kib(pid: int) -> int:
    """Returns the process's anonymous memory in KiB, without page cache and mapped files."""
    (found,) = re.findall(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found)


class Watch:
    """Samples a process's anonymous memory. `grown_mib` is the peak minus `loaded_kib`, in MiB."""

    def __init__(self, pid: int, loaded_kib: int) -> None:
        self._loaded = self._most = loaded_kib
        self._pid = pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        while not self._ended.wait(0.01):
            self._most = max(self._most, anonymous_kib(self._pid))

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def grown_mib(self) -> int:
        return (self._most - self._loaded) // 1024


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path / "data")
    yield server
    assert server.stop() == 0


def load(server: ServerProcess, rows: int) -> None:
    """Inserts `rows` rows, then the first tenth of them again in a second commit."""
    with psycopg.connect(server.dsn, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE big (id int, filler text)")
        for count in (rows, rows // 10):
            with cursor.copy("COPY big FROM STDIN") as copy:
                for first in range(0, count, BATCH_ROWS):
                    copy.write("".join(f"{n}\t{n % 1_000}{TEXT}\n" for n in range(first, first + BATCH_ROWS)))


class SlowReader:
    """Subscribes over its own socket and counts the received rows without storing them."""

    def __init__(self, server: ServerProcess, statement: str, rows: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", server.port))
        self.socket.settimeout(120)
        self.socket.sendall(StartupMessage({"user": "slow", "database": "materialize"}).serialize())
        self.socket.sendall(Query(statement).serialize())
        self.diffs = np.zeros(rows, np.int64)
        self.last_id = -1
        self.in_order = True
        self.later = 0
        self.snapshot_is_complete = False
        seen = b""
        while (first := re.search(rb"(\d{13})\tt\t.*\n", seen)) is None:
            seen += self.socket.recv(1 << 16)
        self.as_of = int(first[1])
        self._rest = seen[first.end() :]

    def read(self, bytes: int) -> None:
        while bytes > 0 and not self.snapshot_is_complete:
            data = self.socket.recv(1 << 18)
            assert data, "the server hung up"
            assert b"fell too far behind" not in data
            bytes -= len(data)
            lines = (self._rest + data).split(b"\n")
            self._rest = lines.pop()
            for line in lines:
                self._take(line)

    def _take(self, line: bytes) -> None:
        found = LINE.search(line[:80])
        if found is None:
            return
        time, progressed, diff, id = found.groups()
        if progressed == b"t":
            self.snapshot_is_complete = True
        elif int(time) == self.as_of:
            self.in_order = self.in_order and int(id) >= self.last_id
            self.last_id = int(id)
            self.diffs[self.last_id] += int(diff)
        else:
            self.later += 1


def follow_slowly(server: ServerProcess, statement: str, rows: int) -> tuple[SlowReader, float, int]:
    """Reads a snapshot with a commit after each read.

    Returns the reader, the duration of the longest commit in seconds, and the number of commits.
    """
    longest, commits = 0.0, 0
    reader = SlowReader(server, statement, rows)
    with psycopg.connect(server.dsn, autocommit=True) as writer:
        while not reader.snapshot_is_complete:
            reader.read(READ_BYTES)
            begun = time.perf_counter()
            writer.execute("INSERT INTO big VALUES (0, 'late')")
            longest = max(longest, time.perf_counter() - begun)
            commits += 1
    reader.socket.close()
    return reader, longest, commits


def expected(rows: int) -> np.ndarray:
    found = np.ones(rows, np.int64)
    found[: rows // 10] += 1
    return found


def check(own_server: ServerProcess, rows: int, bound_mib: int) -> None:
    load(own_server, rows)
    pid = own_server.process.pid
    loaded = anonymous_kib(pid)
    print(f"table of {rows * ROW_BYTES >> 20} MiB")
    for statement in (
        "COPY (SUBSCRIBE big WITH (PROGRESS)) TO STDOUT",
        "COPY (SUBSCRIBE big WITHIN TIMESTAMP ORDER BY id WITH (PROGRESS)) TO STDOUT",
    ):
        with Watch(pid, loaded) as watch:
            reader, longest, commits = follow_slowly(own_server, statement, rows)
        print(f"{statement}: grew by {watch.grown_mib} MiB, {commits} commits, the longest {longest * 1e3:.0f} ms")
        before = np.zeros(rows, np.int64)  # rows with id 0 that earlier rounds inserted
        before[0] = reader.diffs[0] - expected(rows)[0]
        wrong = np.flatnonzero(reader.diffs != expected(rows) + before)
        assert not len(wrong), (len(wrong), wrong[:5], reader.diffs[wrong[:5]])
        assert reader.in_order or "ORDER BY" not in statement
        assert watch.grown_mib < bound_mib
        assert longest < 5
    with psycopg.connect(own_server.dsn, autocommit=True) as writer:
        writer.execute("DELETE FROM big WHERE id = 7")
    with Watch(pid, loaded) as watch:
        count = copied_rows(own_server)
    print(f"COPY of a table with deleted rows: grew by {watch.grown_mib} MiB")
    assert count == expected(rows).sum() - 2 + commits + before[0]
    assert watch.grown_mib < bound_mib
    assert not os.listdir(own_server.directory / "waiting")


def copied_rows(server: ServerProcess) -> int:
    """Returns the number of rows of `COPY big TO STDOUT`."""
    count = 0
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        with connection.cursor().copy("COPY big TO STDOUT") as copy:
            for _ in copy:
                count += 1
    return count


@pytest.mark.large
def test_a_snapshot_larger_than_the_memory_budget(own_server: ServerProcess) -> None:
    check(own_server, rows=2_000_000, bound_mib=330)


@pytest.mark.large
@pytest.mark.timeout(900)
def test_a_snapshot_of_two_gigabytes(own_server: ServerProcess) -> None:
    check(own_server, rows=10_000_000, bound_mib=330)
