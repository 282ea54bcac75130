"""Commits of small writes, for which sessions wait without a task: acknowledged rows are there once, and no others."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any

import psycopg
import pytest
from psycopg import errors

from protocol.pgwire.messages.frontend import Bind, Execute, Parse, Query, Sync
from protocol.pgwire.messages.startup import StartupMessage
from tests.fix_server import ServerThread
from tests.polling import HANG_S
from tests.server.frontend.raw_client import RawClient

PREPARED = Parse("", "INSERT INTO t VALUES ($1)").serialize() + Bind("", "", (), (b"1",)).serialize()
MESSAGES = {
    "simple": Query("INSERT INTO t VALUES (1)").serialize(),
    "extended": PREPARED + Execute("").serialize() + Sync().serialize(),
}


@contextmanager
def blocked_writer(server: ServerThread) -> Iterator[None]:
    """While it is open, no commit reaches the disk."""
    is_blocked, ends = threading.Event(), threading.Event()

    def block(_: object) -> None:
        is_blocked.set()
        assert ends.wait(HANG_S)

    thread = threading.Thread(target=lambda: server.app.coordinator.store.transact(block))
    thread.start()
    assert is_blocked.wait(HANG_S)
    try:
        yield
    finally:
        ends.set()
        thread.join()


@pytest.fixture
def admin(passing_server: ServerThread) -> Iterator[psycopg.Connection]:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE TABLE t (a int NOT NULL)")
        yield connection


@pytest.fixture
def connected(passing_server: ServerThread) -> Iterator[Callable[[], RawClient]]:
    """Opens connections, which are closed at the end."""
    with ExitStack() as stack:

        def connect() -> RawClient:
            client = RawClient(passing_server.port)
            stack.callback(client.socket.close)
            client.start("materialize")
            return client

        yield connect


def rows(connection: psycopg.Connection) -> list[Any]:
    return connection.execute("SELECT * FROM t").fetchall()


def await_condition(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.005)


def check_unlocked(admin: psycopg.Connection) -> None:
    """TRUNCATE needs the table's lock, which the commit of an INSERT holds."""
    admin.execute("TRUNCATE t")
    assert rows(admin) == []


@pytest.mark.parametrize("protocol", MESSAGES)
@pytest.mark.parametrize("by", ["cancel", "timeout"])
def test_a_statement_whose_commit_waits_can_be_cancelled(
    passing_server: ServerThread,
    admin: psycopg.Connection,
    connected: Callable[[], RawClient],
    protocol: str,
    by: str,
) -> None:
    client = connected()
    (process_id,) = passing_server.app.coordinator.activity.sessions.keys() - {admin.info.backend_pid}
    with blocked_writer(passing_server):
        if by == "timeout":
            client.send(Query("SET statement_timeout = '20ms'").serialize())
            client.until_ready()
        client.send(MESSAGES[protocol])
        if by == "cancel":
            answered = False
            while not answered:  # a request that comes before the statement has no effect
                admin.execute("SELECT pg_cancel_backend(%s)", [process_id])
                client.socket.settimeout(0.05)
                with suppress(TimeoutError):
                    answer = client.until_ready()
                    answered = True
            client.socket.settimeout(30)
        else:
            answer = client.until_ready()
        ((_, error),) = [message for message in answer if message[0] == "E"]
        reason = "statement timeout" if by == "timeout" else "user request"
        assert error == ("ERROR", "57014", f"canceling statement due to {reason}")
        client.send(Query("SELECT 7").serialize())
        assert [message[0] for message in client.until_ready()] == ["T", "D", "C", "Z"]
    await_condition(lambda: rows(admin) == [(1,)])  # as in PostgreSQL, a commit that has begun is not undone
    check_unlocked(admin)


def test_a_delete_whose_commit_waits_can_be_cancelled(
    passing_server: ServerThread, admin: psycopg.Connection, connected: Callable[[], RawClient]
) -> None:
    admin.execute("INSERT INTO t VALUES (1)")
    client = connected()
    client.send(Query("SET statement_timeout = '500ms'").serialize())
    client.until_ready()
    delete = Parse("", "DELETE FROM t").serialize() + Bind("", "", (), ()).serialize()
    with blocked_writer(passing_server):
        client.send(delete + Execute("").serialize() + Sync().serialize())
        answer = client.until_ready()
    assert [message[0] for message in answer] == ["1", "2", "C", "E", "Z"], "the commit is at Sync"
    assert answer[3] == ("E", ("ERROR", "57014", "canceling statement due to statement timeout"))
    await_condition(lambda: rows(admin) == [])
    admin.execute("INSERT INTO t VALUES (2)")
    assert rows(admin) == [(2,)]
    check_unlocked(admin)


@pytest.mark.parametrize("protocol", MESSAGES)
def test_a_commit_whose_client_is_lost_releases_its_lock(
    passing_server: ServerThread, admin: psycopg.Connection, connected: Callable[[], RawClient], protocol: str
) -> None:
    sessions = passing_server.app.coordinator.activity.sessions
    with blocked_writer(passing_server):
        client = connected()
        client.send(MESSAGES[protocol])
        client.socket.close()
        await_condition(lambda: len(sessions) == 1)
    await_condition(lambda: rows(admin) == [(1,)])
    check_unlocked(admin)


@pytest.mark.usefixtures("admin")
def test_messages_that_follow_wait_for_the_commit(
    passing_server: ServerThread, connected: Callable[[], RawClient]
) -> None:
    client = connected()
    with blocked_writer(passing_server):
        client.send(MESSAGES["extended"] + MESSAGES["simple"] + Query("SELECT * FROM t").serialize())
    assert [message[0] for message in client.until_ready()] == ["1", "2", "C", "Z"]
    assert [message[0] for message in client.until_ready()] == ["C", "Z"]
    assert [message[0] for message in client.until_ready()] == ["T", "D", "D", "C", "Z"]


def test_an_insert_into_a_table_that_is_dropped_meanwhile_fails_alone(
    passing_server: ServerThread, admin: psycopg.Connection, connected: Callable[[], RawClient]
) -> None:
    admin.execute("CREATE TABLE other (a int)")
    first, dropping, second, third = (connected() for _ in range(4))
    with blocked_writer(passing_server):
        # The first commit is in the writer's queue. The others are in the committer's, in the order of their arrival.
        first.send(MESSAGES["extended"])
        await_condition(lambda: is_locked(passing_server))
        dropping.send(Query("DROP TABLE other").serialize())
        await_condition(lambda: queued(passing_server) == 1)
        second.send(Query("INSERT INTO other VALUES (1)").serialize())
        await_condition(lambda: queued(passing_server) == 2)
        third.send(MESSAGES["simple"])
        await_condition(lambda: queued(passing_server) == 3)
    assert first.until_ready()[-1] == ("Z", b"I")
    assert dropping.until_ready()[0][0] == "C"
    assert second.until_ready()[0] == (
        "E",
        ("ERROR", "40001", "could not serialize access due to concurrent update"),
    )
    assert [message[0] for message in third.until_ready()] == ["C", "Z"]
    assert rows(admin) == [(1,), (1,)]


def queued(server: ServerThread) -> int:
    return len(server.app.coordinator._committer._queue)


def is_locked(server: ServerThread) -> bool:
    return bool(server.app.coordinator.locks._locks) and queued(server) == 0


class Client:
    """Executes random statements, each with rows of its own. `acknowledged` rows must be there, `possible` ones may."""

    def __init__(self, server: ServerThread, number: int, seed: int) -> None:
        self._server = server
        self._random = random.Random(f"{seed} {number}")
        self._next = number * 1_000_000
        self._actions = [
            *[self._prepared, self._literal, self._null, self._overflow] * 2,
            *(
                self._block,
                self._rollback,
                self._pipeline,
                self._cancelled,
                self._timed_out,
                self._lost,
                self._truncate,
            ),
        ]
        self.acknowledged: set[int] = set()
        self.possible: set[int] = set()

    async def run(self, statements: int) -> None:
        self._connection = await self._connect()
        for _ in range(statements):
            await self._random.choice(self._actions)()
        await self._connection.close()

    async def _connect(self) -> psycopg.AsyncConnection:
        return await psycopg.AsyncConnection.connect(self._server.dsn(), autocommit=True, prepare_threshold=0)

    def _row(self) -> int:
        self._next += 1
        return self._next

    async def _insert(self, row: int) -> None:
        await self._connection.execute("INSERT INTO t VALUES (%s)", [row])

    async def _prepared(self) -> None:
        await self._insert(row := self._row())
        self.acknowledged.add(row)

    async def _literal(self) -> None:
        row = self._row()
        await self._connection.execute(f"INSERT INTO t VALUES ({row})".encode(), prepare=False)
        self.acknowledged.add(row)

    async def _null(self) -> None:
        with pytest.raises(errors.NotNullViolation):
            await self._connection.execute("INSERT INTO t VALUES (%s), (%s::int)", [self._row(), None])

    async def _overflow(self) -> None:
        with pytest.raises(errors.NumericValueOutOfRange):
            await self._connection.execute(f"INSERT INTO t VALUES ({self._row()}), ({2**31})".encode())

    async def _block(self) -> None:
        made = {self._row(), self._row()}
        async with self._connection.transaction():
            for row in made:
                await self._insert(row)
        self.acknowledged |= made

    async def _rollback(self) -> None:
        with suppress(psycopg.Rollback):
            async with self._connection.transaction():
                await self._insert(self._row())
                raise psycopg.Rollback

    async def _pipeline(self) -> None:
        made, fails = [self._row() for _ in range(3)], self._random.random() < 0.5
        with suppress(errors.NotNullViolation):
            async with self._connection.pipeline():
                for row in made:
                    await self._insert(row)
                if fails:
                    await self._connection.execute("INSERT INTO t VALUES (%s::int)", [None])
        if not fails:
            self.acknowledged |= set(made)

    async def _cancelled(self) -> None:
        self.possible.add(row := self._row())
        inserting = asyncio.create_task(self._insert(row))
        await asyncio.sleep(self._random.random() / 500)
        await self._connection.cancel_safe()
        with suppress(errors.QueryCanceled):
            await inserting
            self.acknowledged.add(row)

    async def _timed_out(self) -> None:
        self.possible.add(row := self._row())
        await self._connection.execute("SET statement_timeout = '1ms'")
        with suppress(errors.QueryCanceled):
            await self._insert(row)
            self.acknowledged.add(row)
        await self._connection.execute("SET statement_timeout = 0")

    async def _lost(self) -> None:
        self.possible.add(row := self._row())
        with closing(RawClient(self._server.port).socket) as lost:
            lost.sendall(StartupMessage({"user": "materialize"}).serialize())
            lost.sendall(Query(f"INSERT INTO t VALUES ({row})").serialize())
            await asyncio.sleep(self._random.random() / 500)

    async def _truncate(self) -> None:
        await self._connection.execute("TRUNCATE other")  # other sessions' locks do not matter


@pytest.mark.parametrize("seed", range(3))
def test_random_inserts_of_many_clients(passing_server: ServerThread, admin: psycopg.Connection, seed: int) -> None:
    admin.execute("CREATE TABLE other (a int)")
    clients = [Client(passing_server, number, seed) for number in range(8)]

    async def run() -> None:
        async with asyncio.timeout(HANG_S):
            await asyncio.gather(*(client.run(60) for client in clients))

    asyncio.run(run())
    admin.execute("INSERT INTO other VALUES (1)")
    found = [row for (row,) in rows(admin)]
    acknowledged, possible = (
        set[int]().union(*parts) for parts in zip(*((c.acknowledged, c.possible) for c in clients), strict=True)
    )
    assert len(found) == len(set(found))
    assert acknowledged <= set(found) <= acknowledged | possible
    assert len(acknowledged) > 100
    check_unlocked(admin)
