"""A server without Spark, and a database of its own in a PostgreSQL, with a connection `pg` to it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.fix_server import ServerThread
from tests.server.slow_engine import PassingEngine

_numbers = itertools.count()


@pytest.fixture
def target(postgres: str) -> Iterator[psycopg.Connection]:
    """A connection to a new database."""
    name = f"sink{next(_numbers)}"
    with psycopg.connect(postgres, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}".encode())
        try:
            with psycopg.connect(postgres.rsplit("/", 1)[0] + f"/{name}", autocommit=True) as connection:
                yield connection
        finally:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerThread]:
    server = ServerThread(tmp_path / "data", PassingEngine(), interval_s=0.02)
    yield server
    server.stop()


@pytest.fixture
def connection(server: ServerThread, target: psycopg.Connection) -> Iterator[psycopg.Connection]:
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute(create_connection(target))
        yield connection


def create_connection(target: psycopg.Connection) -> bytes:
    url = urlsplit(f"//{target.info.host}:{target.info.port}")
    address = f"HOST '{url.hostname}', PORT {url.port}, USER postgres, DATABASE '{target.info.dbname}'"
    return f"CREATE CONNECTION pg TO POSTGRES ({address})".encode()
