"""The statements of docs/replication.md, executed on two servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import sleep

import psycopg
import pytest

import tidewire
from server.spark.engine import SparkEngine
from tests.docs.pages import examples, executes
from tests.fix_server import ServerThread

TIME = "1764000000000"


@pytest.fixture
def servers(engine: SparkEngine, tmp_path: Path) -> Iterator[list[psycopg.Connection]]:
    """Sessions on two servers."""
    found = [ServerThread(tmp_path / name, engine) for name in ("first", "second")]
    try:
        with psycopg.connect(found[0].dsn(), autocommit=True) as first:
            with psycopg.connect(found[1].dsn(), autocommit=True) as second:
                yield [first, second]
    finally:
        for server in found:
            server.stop()


def until(connection: psycopg.Connection, query: str, expected: list[tuple[object, ...]]) -> None:
    """Waits until a query has these rows."""
    while connection.execute(query.encode()).fetchall() != expected:
        sleep(0.05)


@executes("replication.md", "sql", section="Replication")
@executes("replication.md", "sql", section="Handover")
def test_the_page_shows_statements_that_work(servers: list[psycopg.Connection], tmp_path: Path) -> None:
    first, second = servers
    blocks = [*examples("replication.md", "sql", "Replication"), *examples("replication.md", "sql", "Handover")]
    places, texts = zip(*(block.replace("/data/", f"{tmp_path}/").split("\n", 1) for block in blocks), strict=True)
    assert places == tuple(f"-- in server {number}" for number in (1, 2, 1, 1, 1, 2, 2))
    define, follow, view, query, take_over, read, passed = texts
    first.execute(define.encode())
    while not (tmp_path / "orders.json").exists():
        sleep(0.05)
    second.execute(follow.encode())
    first.execute("INSERT INTO orders VALUES (3, 7.50)")
    ids = "SELECT id FROM orders ORDER BY id"
    until(second, ids, [(1,), (2,), (3,)])
    ((time,),) = first.execute("SELECT mz_now()").fetchall()
    changes = f"COPY (SUBSCRIBE orders AS OF {int(time) - 1} UP TO {time}) TO STDOUT".encode()
    copies = []
    for connection in servers:
        with connection.cursor().copy(changes) as rows:
            copies.append(sorted(rows.rows()))
    assert copies[0] == copies[1]
    assert len(copies[0]) == 3

    first.execute(view.encode())
    while True:
        ((frontier, since),) = first.execute(query.encode()).fetchall()
        if int(frontier or 0) > int(since):
            break
        sleep(0.05)
    assert take_over.count(TIME) == 1
    first.execute(take_over.replace(TIME, str(int(frontier) - 1)).encode())
    second.execute(read.encode())
    first.execute("INSERT INTO orders VALUES (4, 1.00), (5, 11.00)")
    until(second, "SELECT id FROM cheap ORDER BY id", [(2,), (3,), (4,)])
    assert len(second.execute(passed.encode()).fetchall()) == 2  # of `orders` and of `cheap`
    assert first.execute("SHOW SINKS").fetchall() == [
        ("cheap_out_2", "file", "cheap_2"),
        ("orders_out", "file", "orders"),
    ]


@executes("replication.md", "python")
def test_a_client_connects_to_the_first_server_that_accepts(servers: list[psycopg.Connection]) -> None:
    _, second = servers
    second.execute("CREATE TABLE t (a int)")
    second.execute("INSERT INTO t VALUES (1)")
    names: dict[str, str] = {}
    (block,) = examples("replication.md", "python")
    exec(block, names)
    dsn = names["dsn"].replace("db1,db2", "127.0.0.1,127.0.0.1").replace("6875,6875", f"1,{second.info.port}")
    with tidewire.subscribe(dsn, "t") as batches:
        while not isinstance(batch := next(batches), tidewire.Snapshot):
            pass
    assert [change.row for change in batch.changes] == [(1,)]
