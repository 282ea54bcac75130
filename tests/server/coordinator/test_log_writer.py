"""Writes of materialized views: of many times together, and while their dataflows are restarted."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from catalog.store import Store
from server.spark.engine import SparkEngine
from tests.fix_server import ServerThread
from tests.polling import HANG_S

pytestmark = pytest.mark.spark

VIEW = "SELECT k, n FROM m ORDER BY k"


class HeldTransactions:
    """Keeps the transactions of views, which are on disk already, from returning."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.are_held = False
        self.count = 0
        self.committed = threading.Event()
        self.released = asyncio.Event()
        transaction = Store.transaction

        async def held(store: Store, act: Callable[..., Any]) -> Any:
            result = await transaction(store, act)
            is_of_view = "LogWriter" in act.__qualname__
            self.count += is_of_view
            if self.are_held and is_of_view:
                self.committed.set()
                await self.released.wait()
            return result

        monkeypatch.setattr(Store, "transaction", held)

    def release(self, server: ServerThread) -> None:
        """Lets the transaction that is held return."""

        async def release() -> None:
            self.released.set()

        server.call(release())


def test_changes_are_written_once_if_the_dataflow_is_restarted_during_the_write(
    engine: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transactions = HeldTransactions(monkeypatch)
    server = ServerThread(tmp_path, engine)
    try:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute("CREATE TABLE t (k int); INSERT INTO t VALUES (1)")
            connection.execute("CREATE MATERIALIZED VIEW m AS SELECT k, count(*) AS n FROM t GROUP BY k")
            assert connection.execute(VIEW.encode()).fetchall() == [(1, 1)]
            transactions.are_held = True
            connection.execute("INSERT INTO t VALUES (2)")
            assert transactions.committed.wait(HANG_S)
            transactions.are_held = False
            connection.execute("ALTER TABLE t ADD COLUMN w int")
            transactions.release(server)
            assert connection.execute(VIEW.encode()).fetchall() == [(1, 1), (2, 1)]
    finally:
        server.stop()
    server = ServerThread(tmp_path, engine)
    try:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            assert connection.execute(VIEW.encode()).fetchall() == [(1, 1), (2, 1)]
    finally:
        server.stop()


def test_a_lagging_view_writes_many_times_in_one_transaction(
    engine: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transactions = HeldTransactions(monkeypatch)
    server = ServerThread(tmp_path, engine)
    try:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute("CREATE TABLE t (k int)")
            query = "SELECT k, count(*) AS n FROM t GROUP BY k"
            connection.execute(f"CREATE MATERIALIZED VIEW m WITH (RETAIN HISTORY FOR '1 h') AS {query}".encode())
            assert connection.execute(VIEW.encode()).fetchall() == []
            transactions.are_held = True
            connection.execute("INSERT INTO t VALUES (0)")
            assert transactions.committed.wait(HANG_S)
            for number in range(1, 51):
                connection.execute(f"INSERT INTO t VALUES ({number % 7})".encode())
            transactions.are_held = False
            transactions.count = 0
            transactions.release(server)
            expected = [(k, len([n for n in range(51) if n % 7 == k])) for k in range(7)]
            assert connection.execute(VIEW.encode()).fetchall() == expected
            assert transactions.count == 1
            row = connection.execute("SELECT id FROM mz_materialized_views WHERE name = 'm'").fetchone()
            assert row is not None

            async def times() -> int:
                return len(server.app.coordinator.log.times(row[0], 0, 1 << 62))

            assert server.call(times()) == 51
    finally:
        server.stop()
