"""A server without Spark that the tests with sockets share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fuzz.servers import FuzzedServer


@pytest.fixture(scope="session")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FuzzedServer]:
    server = FuzzedServer(tmp_path_factory.mktemp("fuzzed"))
    yield server
    server.stop()
