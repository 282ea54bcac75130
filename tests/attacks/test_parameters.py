"""Parameters with millions of values, and with numbers that are longer than their text."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors

from protocol.pgwire.json_values import VALUES_MAX
from tests.attacks.clients import resident_bytes, watched
from tests.fix_server import ServerProcess, server_without_spark

pytestmark = pytest.mark.attacks

SESSIONS = 6
GROWTH_MAX = 1 << 30


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server without Spark."""
    server = server_without_spark(tmp_path_factory.mktemp("server"))
    yield server
    assert server.stop() == 0


@pytest.mark.parametrize("type", ["json", "jsonb"])
@pytest.mark.parametrize(
    "text",
    [
        "[" + "1," * (2 * VALUES_MAX) + "1]",
        "[" + "{}," * (2 * VALUES_MAX) + "1]",
        "[[1]" + ",[1]" * (VALUES_MAX + 1) + "]",
    ],
    ids=["numbers", "objects", "arrays"],
)
def test_json_with_millions_of_values_is_refused(server: ServerProcess, type: str, text: str) -> None:
    """Each number would take a hundred bytes of memory."""
    assert _refused(server, f"SELECT length(%s::{type}::text)", text) == [errors.ProgramLimitExceeded] * SESSIONS


NUMBERS = {
    "positive exponents": ("1e131071", errors.NumericValueOutOfRange),
    "negative exponents": ("1e-16383", errors.NumericValueOutOfRange),
    "small exponents": ("1e999", errors.ProgramLimitExceeded),
    "small negative exponents": ("1e-999", errors.ProgramLimitExceeded),
}


@pytest.mark.parametrize(("number", "error"), NUMBERS.values(), ids=NUMBERS)
@pytest.mark.parametrize("query", ["SELECT length(%s::jsonb::text)", "INSERT INTO docs VALUES (%s)"])
def test_numbers_that_are_longer_than_their_text_are_refused(
    server: ServerProcess, query: str, number: str, error: type[psycopg.Error]
) -> None:
    """A megabyte of them would take up to 15 GB."""
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS docs (j jsonb)")
    assert _refused(server, query, "[" + f"{number}," * 100_000 + "1]") == [error] * SESSIONS


def test_numbers_of_many_copied_rows_take_bounded_memory(server: ServerProcess) -> None:
    def copy(connection: psycopg.Connection[Any], text: str) -> None:
        with connection.cursor().copy("COPY copied FROM STDIN") as copied:
            copied.write(text)

    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE copied (j jsonb)")
        before = resident_bytes(server.process.pid)
        with watched(server):
            with pytest.raises(errors.NumericValueOutOfRange):
                copy(connection, "1e131071\n" * 500_000)
            copy(connection, "1e999\n" * 100_000)
        assert resident_bytes(server.process.pid) - before < GROWTH_MAX
        rows = connection.execute("SELECT * FROM copied").fetchall()
        assert rows == [(10**999,)] * 100_000
        connection.execute("DROP TABLE copied")


def _refused(server: ServerProcess, query: str, text: str) -> list[type[psycopg.Error]]:
    """The errors of the query in SESSIONS sessions at the same time. Others must not wait, and memory is bounded."""
    before, greatest = resident_bytes(server.process.pid), 0
    refused = []

    def bind() -> None:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            try:
                connection.execute(query.encode(), [text])
            except psycopg.Error as error:
                refused.append(type(error))

    threads = [threading.Thread(target=bind) for _ in range(SESSIONS)]
    with watched(server):
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            greatest = max(greatest, resident_bytes(server.process.pid))
            threads[0].join(0.05)
            threads[-1].join(0.05)
    assert greatest - before < GROWTH_MAX
    return refused
