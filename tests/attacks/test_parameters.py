"""Parameters with millions of values, with numbers that are longer than their text, and tens of thousands of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors

from protocol.pgwire.json_values import VALUES_MAX
from protocol.pgwire.messages.frontend import Bind, Parse, Sync
from protocol.pgwire.types import INTERVAL, JSONB, PgType
from tests.attacks.clients import bounded_session, resident_bytes, watched
from tests.fix_server import ServerProcess, server_without_spark
from tests.server.frontend.raw_client import raw_client

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


@pytest.mark.parametrize(
    ("type", "number", "value"),
    [(JSONB, 20_000, "[" + "1," * 200 + "1]"), (INTERVAL, 65_535, "1 year 2 mons 3 days 04:05:06.789")],
    ids=["jsonb", "interval"],
)
def test_many_parameters_delay_no_other_session(server: ServerProcess, type: PgType, number: int, value: str) -> None:
    """A Bind may have 65,535 parameters, each of them short."""
    with watched(server, 0.3), raw_client(server.port) as client:
        client.start("materialize", "materialize")
        assert client.exchange(_bound(type, number, value)) == [("1", b""), ("2", b""), ("Z", b"I")]


def test_numbers_of_many_parameters_take_bounded_memory(server: ServerProcess) -> None:
    """Each of the parameters would take 160 KB."""
    with bounded_session(server, GROWTH_MAX) as client:
        answer = client.exchange(_bound(JSONB, 65_535, "[" + "1e999," * 160 + "1]"))
        assert answer == [("1", b""), ("E", ("ERROR", "53200", "out of memory")), ("Z", b"I")]


def _bound(type: PgType, number: int, value: str) -> bytes:
    """A statement with `number` parameters of this type, which have the same value."""
    bind = Bind("", "", parameters=(value.encode(),) * number)
    return Parse("", "SELECT 1", (type.oid,) * number).serialize() + bind.serialize() + Sync().serialize()


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
