"""Progress messages that close a commit."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.fix_server import ServerThread
from tests.server.slow_engine import PassingEngine

INTERVAL_S = 60.0  # longer than the test: no periodic progress


@pytest.fixture
def dsn(tmp_path: Path) -> Iterator[str]:
    server = ServerThread(tmp_path, PassingEngine(), INTERVAL_S)
    yield server.dsn()
    server.stop()


@pytest.mark.parametrize("relation", ["t", "m", "(SELECT a FROM t)"])
def test_a_commit_is_closed_without_periodic_progress(dsn: str, relation: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as writer, psycopg.connect(dsn, autocommit=True) as reader:
        writer.execute("CREATE TABLE t (a int)")
        writer.execute("CREATE MATERIALIZED VIEW m AS SELECT a FROM t")
        writer.execute("INSERT INTO t VALUES (0)")
        rows = reader.cursor().stream(f"SUBSCRIBE {relation} WITH (PROGRESS)".encode())
        assert next(row for row in rows if not row[1])[3] == 0
        for a in range(1, 4):
            writer.execute("INSERT INTO t VALUES (%s)", (a,))
            acknowledged_ms = time.time() * 1_000
            written = next(row for row in rows if not row[1])
            assert written[3] == a
            closing = next(rows)
            assert closing[1], "progress follows the rows"
            assert closing[0] > written[0]
            while closing[0] <= acknowledged_ms:
                closing = next(rows)
        rows.close()
