"""Queries whose temporary files would fill the disk: they fail, and the commits of others do not."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from psycopg import errors

from tests.attacks.clients import meanwhile, watched
from tests.attacks.test_runaway_queries import ROWS, await_removal, create_rows, disk_bytes
from tests.fix_server import ServerProcess
from tests.small_disk import small_disk

pytestmark = pytest.mark.attacks

DISK_BYTES = 512 << 20  # a tenth of it is reserved: what Spark writes in a second
COMMIT_BYTES = 60_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with small_disk(tmp_path_factory.mktemp("mounts") / "disk", DISK_BYTES) as disk:
        server = ServerProcess(disk / "data", "--spark-memory", "1GB")
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            create_rows(connection)
            connection.execute("CREATE TABLE writes (n int, v text)")
            connection.execute("CREATE TABLE copied (v text)")
            assert connection.execute("SELECT count(*) FROM t WHERE n > 0").fetchone() == (ROWS - 1,)
        yield server
        assert server.stop() == 0


def free_bytes(server: ServerProcess) -> int:
    found = os.statvfs(server.directory)
    return found.f_bavail * found.f_frsize


@contextmanager
def writing(server: ServerProcess) -> Iterator[None]:
    """Another session commits meanwhile, most often when there is little space.

    Fails if a commit fails, or is not there afterwards.
    """
    written = 0

    def write(done: threading.Event) -> None:
        nonlocal written
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            while not done.wait(0.02 if free_bytes(server) < DISK_BYTES // 5 else 0.2):
                value = os.urandom(COMMIT_BYTES // 2).hex()
                connection.execute("INSERT INTO writes VALUES (%s, %s)", (written, value))
                written += 1

    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("TRUNCATE writes")
        with meanwhile(write):
            yield
        found = connection.execute("SELECT n FROM writes").fetchall()
        assert sorted(found) == [(n,) for n in range(written)]


@pytest.mark.long
def test_temporary_files_of_spark_leave_space_for_commits(server: ServerProcess) -> None:
    before = disk_bytes(server.directory)
    with watched(server), writing(server), psycopg.connect(server.dsn, autocommit=True) as connection:
        with pytest.raises(errors.DiskFull) as caught:
            numbered = "SELECT row_number() OVER (PARTITION BY md5(a.v || b.v) ORDER BY a.n) AS r FROM t a, t b"
            connection.execute(f"SELECT max(r) FROM ({numbered}) x".encode())
        assert "no space left on device" in str(caught.value)
        assert connection.execute("SELECT sum(n) FROM t WHERE n % 7 = 1").fetchone() == (714_278_571,)
    await_removal(server.directory, before)


@pytest.mark.long
def test_rows_of_cursors_leave_space_for_commits(server: ServerProcess) -> None:
    query = "SELECT a.n, repeat(a.v, 50) AS v, b.n AS m FROM t a, t b WHERE b.n < 2"
    with watched(server), writing(server):
        with psycopg.connect(server.dsn) as connection:
            for number in range(60):
                connection.execute("SAVEPOINT s")
                try:
                    connection.execute(f"DECLARE c{number} CURSOR FOR {query}".encode())
                except errors.DiskFull:
                    break
            else:
                pytest.fail("the disk is not full")
            connection.execute("ROLLBACK TO s")  # the other cursors remain open
            with psycopg.connect(server.dsn, autocommit=True) as other:
                with other.cursor().copy("COPY copied FROM STDIN") as copy:
                    for _ in range(500):
                        copy.write(f"{os.urandom(COMMIT_BYTES // 2).hex()}\n")
        with psycopg.connect(server.dsn) as connection:  # the files of the other session are gone
            connection.execute(f"DECLARE c CURSOR FOR {query}".encode())
