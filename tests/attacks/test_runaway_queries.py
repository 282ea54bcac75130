"""A query that needs more than the server has: it fails with a documented error, and others lose nothing.

Others may wait: while Spark's JVM is short of memory, or is started again because it had none, their statements take
longer. They do not fail, and writers and readers that need no Spark go on.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import psycopg
import pytest
from psycopg import errors

from tests.attacks.clients import meanwhile, resident_bytes, watched
from tests.fix_server import ServerProcess

pytestmark = [
    pytest.mark.attacks,
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc"),
]

ROWS = 100_000
TIMEOUT_S = 6
CANCELLED_WITHIN_S = 20.0
"""How long Spark may take to end a statement after its timeout, on a busy machine."""
GROWTH_MAX = 300 << 20  # of the server's memory
DISK_MAX = 64 << 20  # of what remains in the data directory
REMOVED_WITHIN_S = 60.0
"""How long Spark may take to remove its temporary files after a statement has ended: when its last task has noticed."""

ENDLESS = [
    "SELECT count(*) FROM t a, t b WHERE a.n + b.n < 0",
    "SELECT a.n + b.n FROM t a, t b",
    "SELECT a.n, b.n FROM t a, t b ORDER BY a.n * b.n, a.v",
    "SELECT count(*) FROM (SELECT DISTINCT a.n * 100000 + b.n FROM t a, t b) x",
    "SELECT g FROM t, generate_series(1, 1000000000) g ORDER BY g DESC",
    "SELECT sum(a.n) OVER (ORDER BY b.n) FROM t a, t b",
    "WITH RECURSIVE r AS (SELECT n FROM t UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r",
]
TOO_LONG = [
    "SELECT sum(length(repeat(v, 1000000000))) FROM t",
    "SELECT length(lpad(v, 2000000000, 'x')) FROM t",
    "SELECT md5(rpad(v, 2000000000, v)) FROM t",
    "SELECT array_length(array_fill(n, ARRAY[1000000000]), 1) FROM t",
]
EXHAUSTING = [
    "SELECT n, (SELECT array_agg(repeat('x', 1000) || g) FROM generate_series(1, 1000000000) g) FROM t WHERE n < 3",
    "SELECT repeat(v, 10000000) FROM t",
    "SELECT length(replace(repeat(v, 100000), '1', repeat(v, 100000))) FROM t",
]

LINGERING = [  # their tasks notice only at their end, or when an allocation fails, that the statement is cancelled
    "SELECT * FROM generate_series(1, 100000000)",
    "SELECT generate_series(1, 100000000)",
    "SELECT array_agg(g) FROM generate_series(1, 100000000) g",
]
RELEASED_WITHIN_S = 90.0
"""How long others may wait for memory that tasks of cancelled statements have: 35 s, and a start of Spark."""


def create_rows(connection: psycopg.Connection) -> None:
    """Creates the table t with ROWS rows."""
    connection.execute("CREATE TABLE t (n int, v text)")
    with connection.cursor().copy("COPY t FROM STDIN") as copy:
        copy.write("".join(f"{n}\tvalue {n}\n" for n in range(ROWS)))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path_factory.mktemp("server"), "--spark-memory", "1GB")
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        create_rows(connection)
        connection.execute("CREATE TABLE writes (n int)")
        connection.execute("CREATE MATERIALIZED VIEW total AS SELECT count(*) AS n FROM writes")
        connection.execute("SELECT * FROM total")  # it is hydrated
    yield server
    server.stop()


@contextmanager
def neighbours(server: ServerProcess) -> Iterator[None]:
    """Others read, write and subscribe meanwhile. Fails if a statement of theirs fails, or a write is not received."""
    written = 0

    def read(done: threading.Event) -> None:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            while not done.wait(0.05):
                query = "SELECT count(*), sum(n) FROM t WHERE n % 7 = 1"
                assert connection.execute(query.encode()).fetchone() == (14_286, 714_278_571)

    def write(done: threading.Event) -> None:
        nonlocal written
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            while not (written and done.wait(0.05)):
                connection.execute("INSERT INTO writes VALUES (1)")
                written += 1

    with psycopg.connect(server.dsn, autocommit=True) as connection:
        ((before,),) = connection.execute("SELECT n FROM total").fetchall()
    with meanwhile(read, write):
        yield
    assert written
    with psycopg.connect(server.dsn) as connection:
        connection.execute("DECLARE c CURSOR FOR SUBSCRIBE total")
        total = 0
        while total != before + written:
            for _, diff, n in connection.execute("FETCH ALL c").fetchall():
                total += diff * n
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        assert connection.execute("SELECT n FROM total").fetchall() == [(before + written,)]


def disk_bytes(directory: Path) -> int:
    """The size of all files in `directory`, from which others may meanwhile remove files and directories."""
    total = 0
    for path, _, files in os.walk(directory):  # unlike rglob, it continues when a directory is removed
        for file in files:
            with suppress(FileNotFoundError):
                total += os.stat(os.path.join(path, file)).st_size
    return total


def await_removal(directory: Path, before: int) -> None:
    """Waits until `directory` has less than DISK_MAX more than `before`."""
    deadline = time.monotonic() + REMOVED_WITHIN_S
    while (size := disk_bytes(directory) - before) >= DISK_MAX:
        assert time.monotonic() < deadline, size
        time.sleep(0.5)


@pytest.mark.parametrize("statement", ENDLESS)
def test_an_endless_query_ends_at_its_timeout(server: ServerProcess, statement: str) -> None:
    memory, disk = resident_bytes(server.process.pid), disk_bytes(server.directory)
    with watched(server), neighbours(server), psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute(f"SET statement_timeout = '{TIMEOUT_S}s'".encode())
        begun = time.monotonic()
        with pytest.raises((errors.QueryCanceled, errors.OutOfMemory, errors.ProgramLimitExceeded)):
            connection.execute(statement.encode())
        assert time.monotonic() - begun < TIMEOUT_S + CANCELLED_WITHIN_S
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert resident_bytes(server.process.pid) - memory < GROWTH_MAX
    await_removal(server.directory, disk)


@pytest.mark.parametrize("statement", TOO_LONG)
def test_a_value_that_is_too_long_is_refused(server: ServerProcess, statement: str) -> None:
    with watched(server), neighbours(server), psycopg.connect(server.dsn, autocommit=True) as connection:
        with pytest.raises((errors.ProgramLimitExceeded, errors.OutOfMemory)):
            connection.execute(statement.encode())


@pytest.mark.long
@pytest.mark.parametrize("statement", EXHAUSTING)
def test_a_query_that_needs_too_much_memory_fails(server: ServerProcess, statement: str) -> None:
    memory, disk = resident_bytes(server.process.pid), disk_bytes(server.directory)
    with watched(server), neighbours(server), psycopg.connect(server.dsn, autocommit=True) as connection:
        with pytest.raises(errors.OutOfMemory):
            connection.execute(statement.encode())
    assert resident_bytes(server.process.pid) - memory < GROWTH_MAX
    await_removal(server.directory, disk)


@pytest.mark.long
def test_tasks_of_cancelled_queries_do_not_keep_the_memory(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, "--spark-memory", "2GB")
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("SET statement_timeout = '2s'")
        for statement in LINGERING * 3:
            with pytest.raises((errors.QueryCanceled, errors.OutOfMemory)):
                connection.execute(statement.encode())
        connection.execute(f"SET statement_timeout = '{RELEASED_WITHIN_S}s'".encode())
        assert connection.execute("SELECT count(*) FROM generate_series(1, 50000) g WHERE g % 3 = 1").fetchall() == [
            (16_667,)
        ]
    server.stop()


@pytest.mark.long
def test_many_long_queries_do_not_fill_the_memory(tmp_path: Path) -> None:
    """Spark's plan of each takes 9 MB of the heap, and the code that it generates 6 MB. It keeps both."""
    server = ServerProcess(tmp_path, "--spark-memory", "512MB")

    def jvms() -> set[int]:
        return {child.pid for child in psutil.Process(server.process.pid).children() if child.name() == "java"}

    try:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("CREATE TABLE narrow (a int, b int, c int)")
            connection.execute("INSERT INTO narrow VALUES (1, 2, 3)")
            before = jvms()
            for number in range(35):
                columns = ", ".join(f"a + b * {n} + c * {number}" for n in range(1_500))
                for _ in range(2):
                    found = connection.execute(f"SELECT {columns} FROM narrow WHERE b > a".encode()).fetchall()
                    assert len(found) == 1
            assert jvms() == before
    finally:
        server.stop()
