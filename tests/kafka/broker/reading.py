"""Servers and sessions that read sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from tests.fix_server import ServerProcess
from tests.kafka.broker.broker import KafkaBroker
from tests.kafka.registry import Registry

AVRO = "FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION registry"
Row = tuple[Any, ...]
MOMENTS = [
    "commit, before its transaction",
    "commit, a batch is inserted",
    "commit, on disk and not acknowledged",
    "commit, readable and not acknowledged",
]
"""When a server dies (FAULTS_DIE)."""


@contextmanager
def serving(
    directory: Path, die: str | None = None, module: str = "tests.kafka.broker.server"
) -> Iterator[ServerProcess]:
    """A server, by default one without Spark, which is killed at the end. `die`: when it dies before (FAULTS_DIE)."""
    env = {} if die is None else {"FAULTS_DIE": die}
    server = ServerProcess(directory, module=module, env=env)
    try:
        yield server
    finally:
        server.kill()


def connected(
    server: ServerProcess, kafka: KafkaBroker, registry: Registry, database: str = "materialize"
) -> psycopg.Connection:
    """A session in which connections `kafka` and `registry` exist."""
    dsn = server.dsn.replace("/materialize", f"/{database}")
    connection = psycopg.connect(dsn, autocommit=True)
    connection.execute(f"CREATE CONNECTION kafka TO KAFKA (BROKER '{kafka.address}')".encode())
    connection.execute(f"CREATE CONNECTION registry TO CONFLUENT SCHEMA REGISTRY (URL '{registry.url}')".encode())
    return connection


def until(connection: psycopg.Connection, relation: str, expected: Iterable[Row]) -> int:
    """Waits until a subscription to the relation has the expected rows, and returns the timestamp of the last change.

    AssertionError if a source fails before.
    """
    wanted, rows, last = Counter(expected), Counter[Row](), 0
    with psycopg.connect(connection.info.dsn, autocommit=True) as session, session.transaction():
        session.execute(f"DECLARE c CURSOR FOR SUBSCRIBE {relation}".encode())
        while rows != wanted:
            changes = session.execute("FETCH ALL c WITH (timeout = '1s')").fetchall()
            for time, diff, *row in changes:
                rows[tuple(row)] += diff
                last = int(time)
            rows = Counter({row: count for row, count in rows.items() if count})
            if not changes:
                failed = connection.execute(_FAILED).fetchall()
                assert not failed, failed
    return last


_FAILED = "SELECT name, status, error FROM mz_internal.mz_source_statuses WHERE status = 'failed'"


def until_status(connection: psycopg.Connection, source: str, status: str) -> str | None:
    """Waits until a source has this status, and returns its error."""
    query = "SELECT error FROM mz_internal.mz_source_statuses WHERE name = %s AND status = %s"
    while (found := connection.execute(query, (source, status)).fetchone()) is None:
        pass
    error: str | None = found[0]
    return error
