"""A time reported as progress stays valid for holds and AS OF, after a restart and while Spark computes nothing.

The tests need no Spark, because they only check which times are accepted.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.fix_server import ServerThread
from tests.polling import HANG_S
from tests.server.slow_engine import PassingEngine, SlowEngine

INTERVAL_S = 0.05


def connect(server: ServerThread) -> psycopg.Connection[Any]:
    return psycopg.connect(server.dsn(), autocommit=True)


def now(connection: psycopg.Connection[Any]) -> int:
    ((moment,),) = connection.execute("SELECT mz_now()").fetchall()
    return int(moment)


def write_frontier(server: ServerThread, name: str) -> int:
    coordinator = server.app.coordinator
    (item,) = (item for item in coordinator.state.items.values() if item.name == name)
    return coordinator.frontiers.upper(item.id)


def progress_beyond(connection: psycopg.Connection[Any], relation: str, time: int) -> int:
    """Returns the first progress after `time` of a new subscription, without the one that precedes the snapshot."""
    with connection.transaction():
        connection.execute(f"DECLARE c CURSOR FOR SUBSCRIBE {relation} WITH (PROGRESS)".encode())
        first = int(connection.execute("FETCH 1 c").fetchall()[0][0])
        while True:
            for moment, progressed, *_ in connection.execute("FETCH ALL c").fetchall():
                if progressed and moment > max(first, time):
                    return int(moment)


@pytest.mark.parametrize("held", ["m", "t, m", "i"])
def test_a_hold_advances_to_reported_progress_while_its_view_recovers(tmp_path: Path, held: str) -> None:
    """A view's `upper` is written to disk only with updates. After a restart it is less than the reported progress."""
    server = ServerThread(tmp_path, PassingEngine(), INTERVAL_S)
    with connect(server) as connection:
        connection.execute("CREATE TABLE t (a int)")
        connection.execute("CREATE MATERIALIZED VIEW m AS SELECT a + 1 AS b FROM t")
        connection.execute("CREATE INDEX i ON m (b)")
        connection.execute(f"CREATE HOLD h ON {held}".encode())
        connection.execute("INSERT INTO t VALUES (1)")
        changed = now(connection)
        progress = progress_beyond(connection, "m", changed + 1)
    server.stop()

    engine = SlowEngine(PassingEngine(), "")
    with engine.shut_gate():
        server = ServerThread(tmp_path, engine, INTERVAL_S)
        try:
            with connect(server) as connection, connect(server) as reader, ThreadPoolExecutor(1) as thread:
                assert write_frontier(server, "i" if held == "i" else "m") < progress
                connection.execute(f"ALTER HOLD h ADVANCE TO {progress - 1}".encode())
                connection.execute(f"ALTER HOLD h ADVANCE TO {progress}".encode())
                connection.execute(f"CREATE HOLD other ON m AT {progress}".encode())
                with connection.transaction():
                    connection.execute("CREATE MATERIALIZED VIEW n AS SELECT b + 1 AS c FROM m")
                    connection.execute(f"CREATE HOLD on_n ON n AT {progress}".encode())
                positions = server.app.coordinator.holds.positions.values()
                assert [position.at for position in positions] == [progress] * 3
                query = f"SUBSCRIBE m WITH (PROGRESS) AS OF {progress} UP TO {progress + 1}"
                read = thread.submit(lambda: reader.execute(query.encode()).fetchall())
                with pytest.raises(psycopg.errors.InvalidParameterValue, match="beyond the write frontier") as refused:
                    connection.execute(f"ALTER HOLD h ADVANCE TO {now(connection) + 100_000}".encode())
                assert "The greatest allowed time is" in str(refused.value.diag.message_detail)
                assert not read.done(), "a read waits for the view"
                engine.open()
                assert [row[2:] for row in read.result(HANG_S) if not row[1]] == [(1, 1)]
        finally:
            server.stop()
