"""The cost of one client's text: bounded memory, bounded time, and no further work after it is cancelled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import errors

from catalog.objects.columns import Column
from server.sql.bind.tables import stored_query
from server.sql.computed_keys import computed_key
from server.sql.json_path.parser import parsed
from server.sql.regex.regex import compiled
from tests.attacks.clients import meanwhile
from tests.fix_server import ServerThread
from tests.server.frontend.raw_client import query, raw_client
from tests.server.slow_engine import PassingEngine

pytestmark = pytest.mark.attacks

MEMORY_MAX = 768 * 1024 * 1024  # in addition to the server's memory before; includes the client's own copies
WAIT_S = 60

TOO_LONG: dict[str, tuple[Callable[[], bytes], str]] = {  # made by the test: all tests are collected together
    "three million columns": (lambda: b"SELECT 1" + b",1" * 3_000_000, "54011"),
    "columns of a subquery": (lambda: b"SELECT * FROM (SELECT 1" + b",1" * 100_000 + b") s", "54011"),
    "commas": (lambda: b"," * 5_000_000, "54000"),
    "an IN list": (lambda: b"SELECT 1 WHERE 1 IN (1" + b",1" * 1_000_000 + b")", "54000"),
    "statements": (lambda: b"SELECT 1;" * 500_000, "54000"),
    "relations": (lambda: b"SELECT 1 FROM t" + b",t" * 20_000, "54000"),
    "comments": (lambda: b"/*" * 5_000_000, "42601"),
    "one message": (lambda: b"SELECT '" + b"x" * (100 * 1024 * 1024) + b"'", "54000"),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    server = ServerThread(tmp_path_factory.mktemp("data"), PassingEngine())
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE TABLE t (k int)")
    yield server
    server.stop()


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@contextmanager
def bounded_memory() -> Iterator[None]:
    """Fails if the process's memory exceeds its initial memory by more than MEMORY_MAX at any time."""
    before, most = resident_bytes(), 0

    def look(done: threading.Event) -> None:
        nonlocal most
        while not done.wait(0.01):
            most = max(most, resident_bytes())

    with meanwhile(look):
        yield
    assert most - before < MEMORY_MAX


@pytest.mark.parametrize(("make", "sqlstate"), TOO_LONG.values(), ids=TOO_LONG)
def test_a_text_beyond_the_limits_is_refused_in_bounded_memory(
    server: ServerThread, make: Callable[[], bytes], sqlstate: str
) -> None:
    text = make()
    with psycopg.connect(server.dsn(), autocommit=True) as connection, bounded_memory():
        connection.execute(f"SET statement_timeout = '{WAIT_S}s'")
        with pytest.raises(psycopg.Error) as refusal:
            connection.execute(text)
        assert refusal.value.sqlstate == sqlstate
        assert connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize("end", ["cancel", "timeout", "gone"])
def test_planning_of_a_long_text_stops_when_it_is_cancelled(
    server: ServerThread, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """The thread that plans it stops, and does not continue to the end."""
    from server.runtime import offload

    begun, ended = threading.Event(), threading.Event()
    original = offload.stoppable

    def watched(*args: object) -> object:
        begun.set()
        try:
            return original(*args)  # type: ignore[arg-type]
        except BaseException as error:
            if type(error).__name__ == "Stopped":
                ended.set()
            raise

    monkeypatch.setattr(offload, "stoppable", watched)
    text = f"SELECT 1 WHERE 1 IN ({','.join(['1'] * 120_000)})"
    with raw_client(server.port) as client:
        client.start("materialize", "materialize")
        if end == "timeout":
            client.exchange(query("SET statement_timeout = '50ms'"))
        client.send(query(text))
        assert begun.wait(WAIT_S)
        listener = server.app.listener
        if end == "cancel":
            pid = max(client.process_id for client in listener.clients)
            with psycopg.connect(server.dsn(), autocommit=True) as other:
                while not ended.is_set():
                    other.execute(f"SELECT pg_cancel_backend({pid})")
        elif end == "gone":
            client.socket.close()
        assert ended.wait(WAIT_S)


def test_cancelled_texts_do_not_accumulate(server: ServerThread) -> None:
    """A client that sends and cancels long texts repeatedly does not occupy more threads than the server has for
    them."""
    text = f"SELECT 1 WHERE 1 IN ({','.join(['1'] * 100_000)})".encode()
    with psycopg.connect(server.dsn(), autocommit=True) as connection, bounded_memory():
        connection.execute("SET statement_timeout = '30ms'")
        for _ in range(20):
            with pytest.raises(errors.QueryCanceled):
                connection.execute(text)
        assert connection.execute("SELECT 1").fetchone() == (1,)


def text_of(number: int) -> bytes:
    """A short text, with a plan of about 3 MB."""
    return b"SELECT " + b", ".join(b"k+%d+%d" % (number, column) for column in range(750)) + b" FROM t LIMIT 0"


@pytest.mark.long
def test_the_plans_of_many_different_texts_do_not_pile_up(server: ServerThread) -> None:
    with psycopg.connect(server.dsn(), autocommit=True) as connection, bounded_memory():
        for number in range(400):
            result = connection.pgconn.prepare(b"", text_of(number))
            assert result.status == psycopg.pq.ExecStatus.COMMAND_OK


@pytest.mark.long
def test_the_prepared_statements_of_a_session_are_limited(server: ServerThread) -> None:
    with psycopg.connect(server.dsn(), autocommit=True) as connection, bounded_memory():
        with pytest.raises(errors.ProgramLimitExceeded, match="too many prepared statements"):
            for number in range(400):
                connection.execute(b"PREPARE p%d AS %b" % (number, text_of(number)))
        connection.execute("DEALLOCATE p0")
        connection.execute(b"PREPARE p0 AS " + text_of(0))
        connection.execute("DEALLOCATE ALL")
        for number in range(50):
            connection.execute(b"PREPARE p%d AS %b" % (number, text_of(number)))


COLUMNS = (Column("n", "int4"),)
PARSED: dict[str, Callable[[int], object]] = {
    "JSON paths": lambda number: parsed(f"$.x{number}" + ".a" * 5_000),
    "regular expressions": lambda number: compiled(f"x{number}" + "a" * 10_000),
    "views": lambda number: stored_query(f"SELECT {number} AS " + "x" * 50_000),
    "conditions of indexes": lambda number: computed_key(COLUMNS, ("n",), f"n > {number}" + " " * 10_000),
}


@pytest.mark.parametrize("parse", PARSED.values(), ids=PARSED)
def test_what_is_parsed_of_long_texts_does_not_pile_up(parse: Callable[[int], object]) -> None:
    """Each has megabytes, and the garbage collector, which stops all sessions, would visit all of them."""
    first = parse(0)
    for number in range(1, 20):
        parse(number)
    assert parse(0) is not first
