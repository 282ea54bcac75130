"""A broker and a schema registry for all tests of the process, and a server on them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import psycopg
import pytest

from tests.fix_server import ServerProcess
from tests.kafka.broker.broker import KafkaBroker
from tests.kafka.broker.reading import connected
from tests.kafka.registry import Registry, RegistryThread


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """Tests share it: each uses topics of its own."""
    broker = KafkaBroker(tmp_path_factory.mktemp("kafka"))
    yield broker
    broker.kill()


@pytest.fixture(scope="session")
def registry() -> Iterator[Registry]:
    with RegistryThread() as registry:
        yield registry


@pytest.fixture(scope="session")
def joining_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server without Spark."""
    server = ServerProcess(tmp_path_factory.mktemp("server"), module="tests.kafka.broker.server")
    yield server
    server.stop()


_numbers = itertools.count(1)


@pytest.fixture
def connection(joining_server: ServerProcess, kafka: KafkaBroker, registry: Registry) -> Iterator[psycopg.Connection]:
    """A session with connections `kafka` and `registry`, in a database that is dropped after the test."""
    name = f"test_{next(_numbers)}"
    with psycopg.connect(joining_server.dsn, autocommit=True) as main:
        main.execute(f"CREATE DATABASE {name}".encode())
        with connected(joining_server, kafka, registry, name) as connection:
            yield connection
        main.execute(f"DROP DATABASE {name} CASCADE".encode())
