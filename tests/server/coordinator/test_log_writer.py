"""Writes of materialized views whose dataflows are restarted meanwhile."""

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

pytestmark = pytest.mark.spark

DEADLINE_S = 30
VIEW = "SELECT k, n FROM m ORDER BY k"


class HeldTransactions:
    """Keeps the transactions of views, which are on disk already, from returning."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.are_held = False
        self.committed = threading.Event()
        self.released = asyncio.Event()
        transaction = Store.transaction

        async def held(store: Store, act: Callable[..., Any]) -> Any:
            result = await transaction(store, act)
            if self.are_held and "LogWriter" in act.__qualname__:
                self.committed.set()
                await self.released.wait()
            return result

        monkeypatch.setattr(Store, "transaction", held)


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
            assert transactions.committed.wait(DEADLINE_S)
            transactions.are_held = False
            connection.execute("ALTER TABLE t ADD COLUMN w int")

            async def release() -> None:
                transactions.released.set()

            server.call(release())
            assert connection.execute(VIEW.encode()).fetchall() == [(1, 1), (2, 1)]
    finally:
        server.stop()
    server = ServerThread(tmp_path, engine)
    try:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            assert connection.execute(VIEW.encode()).fetchall() == [(1, 1), (2, 1)]
    finally:
        server.stop()
