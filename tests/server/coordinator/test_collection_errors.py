"""Reads of a collection with an error, by every way of reading, at the times before, at and after the error."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from catalog.collection_errors import CollectionError
from catalog.ids import ObjectId
from catalog.store import FILE
from server.coordinator.committer import Conflict, Request
from tests.fix_server import ServerThread
from tests.server.slow_engine import PassingEngine

ERROR = CollectionError("Decode error: x", 'Topic "t", partition 0, offset 3.', "Produce it again.")
READS = (
    "SELECT * FROM t",
    "SELECT * FROM t WHERE k = 1",
    "SELECT * FROM t WHERE v = 'a'",
    "SELECT * FROM of_t",
    "SELECT * FROM of_t WHERE v = 'a'",
    "SELECT * FROM kept",
    "SELECT * FROM over_kept",
    "COPY (SELECT * FROM t) TO STDOUT",
    "INSERT INTO other SELECT k, v FROM t",
)


class Run:
    """A server with the table `t`, which a test gives an error, and what reads it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.start()

    def start(self) -> None:
        self.server = ServerThread(self._directory, PassingEngine(), interval_s=0.02)
        self.coordinator = self.server.app.coordinator
        self.connection = psycopg.connect(self.server.dsn(), autocommit=True)

    def execute(self, *statements: str) -> None:
        for statement in statements:
            self.connection.execute(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        if query.startswith("COPY"):
            with self.connection.cursor().copy(query) as copy:
                return list(copy.rows())
        cursor = self.connection.execute(query)
        return cursor.fetchall() if cursor.description else []

    def id(self, name: str) -> ObjectId:
        return next(item.id for item in self.coordinator.state.items.values() if item.name == name)

    def commit(self, request: Request) -> int:
        return int(self.server.call(self._commit(request)).time)

    async def _commit(self, request: Request) -> Any:
        return await self.coordinator.commit(request)

    def hydrated(self) -> None:
        """Waits until the indexes can be used: without them the engine would have to compute."""

        async def hydrated() -> None:
            while not all(index.hydrated for index in self.coordinator.indexes.arranged.values()):
                await self.coordinator.frontiers.moved.wait()

        self.server.call(hydrated())

    def set_error(self, error: CollectionError | None) -> int:
        """Returns the time from which on the table has the error."""
        return self.commit(self.request({"t": error}))

    def request(self, errors: Mapping[str, CollectionError | None]) -> Request:
        async def request() -> Request:  # it makes a future of the server's loop
            return Request(errors={self.id(name): error for name, error in errors.items()})

        found: Request = self.server.call(request())
        return found

    def fails(self, query: str) -> None:
        with pytest.raises(psycopg.errors.DataException) as caught:
            self.rows(query)
        diagnostic = caught.value.diag
        assert (diagnostic.message_primary, diagnostic.message_detail) == (ERROR.message, ERROR.detail)
        assert (diagnostic.message_hint, diagnostic.sqlstate) == (ERROR.hint, "22000")

    def close(self) -> None:
        self.connection.close()
        self.server.stop()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path)
    run.execute(
        "CREATE TABLE t (k int, v text) WITH (RETAIN HISTORY FOR '1h')",
        "CREATE TABLE other (k int, v text)",
        "CREATE INDEX ON t (v)",
        "CREATE VIEW of_t AS SELECT * FROM t",
        "CREATE INDEX ON of_t (v)",
        "CREATE MATERIALIZED VIEW kept WITH (RETAIN HISTORY FOR '1h') AS SELECT * FROM t",
        "CREATE MATERIALIZED VIEW over_kept AS SELECT * FROM kept",
        "INSERT INTO t VALUES (1, 'a')",
    )
    run.hydrated()
    yield run
    run.close()


@pytest.mark.parametrize("query", READS)
def test_every_read_fails_while_the_error_is_live(run: Run, query: str) -> None:
    expected = run.rows(query)
    run.set_error(ERROR)
    run.fails(query)
    assert run.rows("SELECT k FROM other WHERE k = 99") == []
    run.set_error(None)
    assert run.rows(query) == expected


@pytest.mark.parametrize("name", ["t", "kept"])
def test_reads_at_earlier_times_follow_the_error_of_the_time(run: Run, name: str) -> None:
    run.rows(f"SELECT * FROM {name}")
    begin = run.set_error(ERROR)
    run.execute("INSERT INTO t VALUES (2, 'b')")
    end = run.set_error(None)
    run.execute("INSERT INTO t VALUES (3, 'c')")
    assert len(run.rows(f"SELECT * FROM {name}")) == 3
    assert run.rows(f"SELECT * FROM {name} AS OF {begin - 1}") == [(1, "a")]
    run.fails(f"SELECT * FROM {name} AS OF {begin}")
    run.fails(f"SELECT * FROM {name} AS OF {end - 1}")
    assert len(run.rows(f"SELECT * FROM {name} AS OF {end}")) == 2


@contextmanager
def subscribed(run: Run, subscribe: str) -> Iterator[Iterator[tuple[Any, ...]]]:
    with psycopg.connect(run.server.dsn()) as connection:
        connection.execute(f"DECLARE c CURSOR FOR {subscribe}")

        def rows() -> Iterator[tuple[Any, ...]]:
            while fetched := connection.execute("FETCH 1 c").fetchall():
                yield from fetched

        yield rows()


def received(rows: Iterator[tuple[Any, ...]]) -> tuple[list[tuple[Any, ...]], int]:
    """The rows and the last progress before the error with which the subscription ends."""
    found: list[tuple[Any, ...]] = []
    progress = 0
    with pytest.raises(psycopg.errors.DataException, match=ERROR.message):
        for time, is_progress, _, *row in rows:
            if is_progress:
                progress = int(time)
            else:
                found.append((int(time), *row))
    return found, progress


QUERIES = (
    "t",
    "(SELECT * FROM t WHERE k = 1)",
    "(SELECT * FROM t WHERE k > 0)",
    "(SELECT * FROM of_t)",
    "kept",
    "over_kept",
)


@pytest.mark.parametrize("query", QUERIES)
def test_a_subscription_ends_at_the_time_of_the_error(run: Run, query: str) -> None:
    with subscribed(run, f"SUBSCRIBE {query} WITH (PROGRESS)") as rows:
        next(rows)
        next(row for row in rows if row[3:] == (1, "a"))
        begin = run.set_error(ERROR)
        run.execute("INSERT INTO t VALUES (1, 'b')")
        found, progress = received(rows)
        assert found == []
        assert progress <= begin
    run.set_error(None)
    with subscribed(run, f"SUBSCRIBE {query} WITH (PROGRESS)") as rows:
        assert {next(row for row in rows if not row[1])[3:] for _ in range(2)} == {(1, "a"), (1, "b")}


@pytest.mark.parametrize("query", QUERIES[:-1])
def test_a_subscription_to_earlier_times_ends_at_the_error(run: Run, query: str) -> None:
    run.rows("SELECT * FROM kept")
    good = run.commit(run.request({}))
    run.execute("INSERT INTO t VALUES (1, 'b')")
    begin = run.set_error(ERROR)
    run.set_error(None)
    run.execute("INSERT INTO t VALUES (1, 'c')")
    run.rows("SELECT * FROM kept")
    with subscribed(run, f"SUBSCRIBE {query} WITH (PROGRESS) AS OF {good}") as rows:
        found, progress = received(rows)
        assert sorted(row[1:] for row in found) in ([(1, "a"), (1, "b")], [(1, "a")])
        assert all(time < begin for time, *_ in found)
        assert progress <= begin
    with subscribed(run, f"SUBSCRIBE {query} AS OF {begin}") as rows:
        assert received(rows) == ([], 0)
    with subscribed(run, f"SUBSCRIBE {query} AS OF {good} UP TO {begin}") as rows:
        assert sorted(row[2:] for row in rows) == [(1, "a"), (1, "b")]


def test_rows_of_the_commit_with_the_error_are_not_sent(run: Run) -> None:
    with subscribed(run, "SUBSCRIBE t WITH (PROGRESS)") as rows:
        next(row for row in rows if row[3:] == (1, "a"))

        async def both() -> None:
            coordinator = run.coordinator
            row = await coordinator.reads.rows(run.id("t"), coordinator.latest_time())
            payload = coordinator.log.prepare(row)
            await coordinator.commit(Request(writes=[(run.id("t"), payload)], errors={run.id("t"): ERROR}))

        run.server.call(both())
        assert received(rows)[0] == []
    run.set_error(None)
    assert run.rows("SELECT * FROM t") == [(1, "a"), (1, "a")]


def test_the_error_survives_a_restart(run: Run) -> None:
    begin = run.set_error(ERROR)
    run.close()
    run.start()
    for query in READS:
        run.fails(query)
    run.fails(f"SELECT * FROM t AS OF {begin}")
    assert run.rows(f"SELECT * FROM t AS OF {begin - 1}") == [(1, "a")]
    run.set_error(None)
    run.hydrated()
    for query in READS[:8]:
        assert len(run.rows(query)) == 1


def entries(directory: Path) -> int:
    with closing(sqlite3.connect(f"file:{directory / FILE}?mode=ro", uri=True)) as connection:
        ((count,),) = connection.execute("SELECT count(*) FROM collection_errors").fetchall()
        return int(count)


def test_errors_are_compacted_when_no_reader_needs_their_times(run: Run, tmp_path: Path) -> None:
    for error in (ERROR, None, ERROR, None):
        run.set_error(error)
    assert entries(tmp_path) == 4

    async def compacted() -> None:
        while run.coordinator.errors.collections:
            await run.coordinator.frontiers.moved.wait()

    run.execute("ALTER TABLE t SET (RETAIN HISTORY FOR '10ms')")
    run.execute("ALTER MATERIALIZED VIEW kept SET (RETAIN HISTORY FOR '10ms')")
    run.server.call(compacted())
    assert entries(tmp_path) == 0


def test_errors_are_kept_for_a_view_with_more_history(run: Run) -> None:
    run.rows("SELECT * FROM kept")
    begin = run.set_error(ERROR)
    run.set_error(None)
    run.rows("SELECT * FROM kept")
    run.execute("ALTER TABLE t SET (RETAIN HISTORY FOR '10ms')")

    async def passed() -> None:
        while run.coordinator.frontiers.since(run.id("t")) <= begin + 1:
            await run.coordinator.frontiers.moved.wait()

    run.server.call(passed())
    run.fails(f"SELECT * FROM kept AS OF {begin}")


def test_a_dropped_table_leaves_no_errors(run: Run, tmp_path: Path) -> None:
    run.set_error(ERROR)
    late = run.request({"t": None})
    run.execute("DROP TABLE t CASCADE")
    assert entries(tmp_path) == 0
    with pytest.raises(Conflict):
        run.commit(late)


def test_a_write_that_read_the_table_before_the_error_is_refused(run: Run) -> None:
    async def refused() -> None:
        coordinator = run.coordinator
        t, other = run.id("t"), run.id("other")
        time = coordinator.latest_time()
        payload = coordinator.log.prepare(await coordinator.reads.rows(t, time))
        await coordinator.commit(Request(errors={t: ERROR}))
        with pytest.raises(Conflict):
            await coordinator.commit(Request(writes=[(other, payload)], unchanged={t: time}))

    run.server.call(refused())


def test_views_that_are_created_during_the_error_have_rows_after_it(run: Run) -> None:
    run.set_error(ERROR)
    run.execute("CREATE MATERIALIZED VIEW late AS SELECT * FROM t", "CREATE INDEX late_index ON late (v)")
    run.execute("INSERT INTO t VALUES (2, 'b')")
    for query in ("SELECT * FROM late", "SELECT * FROM late WHERE v = 'b'"):
        run.fails(query)
    run.set_error(None)
    run.hydrated()
    assert sorted(run.rows("SELECT * FROM late")) == [(1, "a"), (2, "b")]
    assert run.rows("SELECT * FROM late WHERE v = 'b'") == [(2, "b")]


def test_an_error_during_a_restart_concerns_the_changes_before_it(run: Run) -> None:
    run.rows("SELECT * FROM over_kept")
    run.execute("INSERT INTO t VALUES (2, 'b')")
    run.set_error(ERROR)
    run.execute("INSERT INTO t VALUES (3, 'c')")
    run.close()
    run.start()
    run.execute("INSERT INTO t VALUES (4, 'd')")
    run.fails("SELECT * FROM kept")
    run.set_error(None)
    for relation in ("t", "kept", "over_kept"):
        assert sorted(run.rows(f"SELECT * FROM {relation}")) == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
