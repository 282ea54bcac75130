"""A MariaDB with a binary log: the upstream of Debezium's connectors for MySQL and for MariaDB."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

import pymysql

_PATH = os.pathsep.join([os.environ["PATH"], "/usr/sbin"])
_SERVER = shutil.which("mariadbd", path=_PATH)
_INSTALL = shutil.which("mariadb-install-db", path=_PATH)
IS_INSTALLED = _SERVER is not None and _INSTALL is not None
WITHOUT_GTIDS = "5.7.19"
"""The version that a MariaDB must claim for the connector of MySQL. This connector uses no GTIDs of a MariaDB."""


class MariaDbServer:
    """A server with database `bank`, on a free port. `version`: what it claims to be."""

    def __init__(self, version: str | None = None) -> None:
        assert _SERVER is not None
        assert _INSTALL is not None
        self._directory = Path(tempfile.mkdtemp(prefix="tidewire-mariadb-"))
        data = self._directory / "data"
        user = ["--user=root"] if os.geteuid() == 0 else []
        self._log = self._directory / "log"
        with self._log.open("ab") as log:
            subprocess.run(
                [_INSTALL, "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal", *user],
                check=True,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._command = [
            *(_SERVER, "--no-defaults", f"--datadir={data}", f"--socket={self._directory / 'socket'}"),
            *(f"--port={self.port}", "--bind-address=127.0.0.1", "--innodb-flush-log-at-trx-commit=0"),
            *("--server-id=1", "--log-bin=binlog", "--binlog-format=ROW", "--binlog-row-image=FULL", *user),
            *([] if version is None else [f"--version={version}"]),
        ]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        with self._as_root() as root, root.cursor() as cursor:
            cursor.execute("CREATE DATABASE bank")
            cursor.execute("CREATE USER postgres@'127.0.0.1' IDENTIFIED BY 'unused'")
            cursor.execute("GRANT ALL ON *.* TO postgres@'127.0.0.1'")

    def _as_root(self) -> pymysql.Connection:
        """A session, as soon as the server accepts connections."""
        address = str(self._directory / "socket")
        while True:
            with socket.socket(socket.AF_UNIX) as probe:  # pymysql does not close the socket of a failed attempt
                if probe.connect_ex(address) == 0:
                    return pymysql.connect(unix_socket=address, user="root")
            assert self._process.poll() is None, self._log.read_text()[-5_000:]

    def connect(self) -> pymysql.Connection:
        """A session whose statements are transactions of their own, unless it begins one."""
        return pymysql.connect(
            host="127.0.0.1", port=self.port, user="postgres", password="unused", database="bank", autocommit=True
        )

    def stop(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)
