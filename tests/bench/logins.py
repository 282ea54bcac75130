"""Connections per second: connect with SCRAM and TLS, `SELECT 1`, close. Measured by pgbench, also for PostgreSQL.

It needs a PostgreSQL with OpenSSL, which the wheel of the tests is not: the newest one below /usr/lib/postgresql.
Both servers have the same certificate, rules and password.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.pgbench import pgbench
from tests.bench.servers import Line, Servers
from tests.fix_postgres import PostgresServer
from tests.fix_server import ServerProcess
from tests.server.authentication.certificates import Authority

ROUNDS = 3
PASSWORD = "s3cret"
SECURE = "sslmode=require channel_binding=require"
KINDS = {
    "SCRAM and TLS 1.3": SECURE,
    "SCRAM and TLS 1.2": f"{SECURE} ssl_max_protocol_version=TLSv1.2",
    "SCRAM": "sslmode=disable",
}


def programs() -> Path:
    """The directory of a PostgreSQL with OpenSSL. RuntimeError if there is none."""
    for directory in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        options = subprocess.run([directory / "pg_config", "--configure"], capture_output=True, text=True).stdout
        if "openssl" in options and (directory / "initdb").exists() and (directory / "pgbench").exists():
            return directory
    raise RuntimeError("no PostgreSQL with OpenSSL below /usr/lib/postgresql")


@contextmanager
def secured() -> Iterator[tuple[Path, int, int]]:
    """Yields PostgreSQL's programs, and the ports of Tidewire and PostgreSQL."""
    directory = Path(tempfile.mkdtemp(prefix="tidewire-bench-"))
    certificate, key = Authority(directory).server()
    (directory / "password").write_text(f"{PASSWORD}\n")
    path = programs()
    postgres = PostgresServer("autovacuum=off\njit=off\n", path)
    tidewire = None
    try:
        for source in (certificate, key):
            copy = postgres.data / source.name
            copy.write_bytes(source.read_bytes())
            shutil.chown(copy, postgres.data.owner(), postgres.data.group())
            copy.chmod(0o600)
        with (postgres.data / "postgresql.conf").open("a") as conf:
            conf.write("ssl=on\nssl_cert_file='server.crt'\nssl_key_file='server.key'\n")
        admin = ["psql", "-X", "-q", postgres.dsn, "-c"]
        subprocess.run([*admin, f"CREATE ROLE materialize LOGIN SUPERUSER PASSWORD '{PASSWORD}'"], check=True)
        subprocess.run([*admin, "CREATE DATABASE materialize"], check=True)
        (postgres.data / "pg_hba.conf").write_text("host all all all scram-sha-256\n")
        postgres.shut_down()
        postgres.start()
        tidewire = ServerProcess(
            directory / "data",
            *("--auth", "scram-sha-256", "--tls-cert", str(certificate), "--tls-key", str(key)),
            *("--superuser-password-file", str(directory / "password")),
        )
        tidewire.await_event("Spark warmed up")
        yield path, tidewire.port, postgres.port
    finally:
        if tidewire is not None:
            tidewire.stop()
        postgres.stop()
        shutil.rmtree(directory)


def run(servers: Servers) -> list[Line]:
    with secured() as (path, ours, theirs):
        return [
            line(f"connect + SELECT 1 + close, {name}, {clients} at once", path, (ours, theirs), options, clients)
            for name, options in KINDS.items()
            for clients in (1, 8)
        ]


def line(name: str, path: Path, ports: tuple[int, int], options: str, clients: int) -> Line:
    rates: tuple[list[float], list[float]] = [], []
    for number in range(ROUNDS):
        for side in (0, 1) if number % 2 else (1, 0):
            dsn = f"host=127.0.0.1 port={ports[side]} user=materialize password={PASSWORD} dbname=materialize {options}"
            outcome = pgbench(dsn, "SELECT 1;\n", clients=clients, seconds=2, programs=path, reconnect=True)
            rates[side].append(outcome.rate)
    ratio = statistics.median(a / b for a, b in zip(*rates, strict=True))
    our_rate, their_rate = map(statistics.median, rates)
    return Line(name, f"{our_rate:,.0f}/s", f"{their_rate:,.0f}/s", f"{ratio:.2f} x", "at least 0.5 x PostgreSQL")
