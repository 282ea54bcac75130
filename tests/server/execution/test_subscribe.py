"""SUBSCRIBE: for any history, the accumulated stream equals the result of running the query."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from psycopg import errors

from server.execution import subscribe
from tests.examples import examples
from tests.fix_server import ServerThread
from tests.polling import HANG_S

Row = tuple[Any, ...]


def connect(dsn: str) -> psycopg.Connection[Row]:
    return psycopg.connect(dsn, autocommit=True)


class Follower:
    """A subscriber on its own thread. It applies updates when progress passes their time."""

    def __init__(self, dsn: str, query: str, options: str = "") -> None:
        self._connection = connect(dsn)
        self._statement = f"SUBSCRIBE ({query}) WITH (PROGRESS) {options}"
        self.progress: list[int] = []
        self.rows: Counter[Row] = Counter()
        self.messages: list[Row] = []
        self._moved = threading.Condition()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        waiting: list[Row] = []
        try:
            for message in self._connection.cursor().stream(self._statement):
                time, progressed, diff, *row = message
                with self._moved:
                    self.messages.append(message)
                    if progressed:
                        for early in [m for m in waiting if m[0] < time]:
                            self.rows[early[3:]] += early[2]
                        waiting = [m for m in waiting if m[0] >= time]
                        self.progress.append(int(time))
                    else:
                        waiting.append((time, progressed, diff, *row))
                    self._moved.notify_all()
        except psycopg.Error as error:
            self._error = error
        with self._moved:
            self._moved.notify_all()

    def at(self, time: int) -> Counter[Row]:
        """Returns the accumulated rows after progress has reached `time`."""
        with self._moved:
            # The first progress is at AS OF and precedes the snapshot, so it completes nothing.
            done = lambda: bool(self.progress[1:] and self.progress[-1] >= time) or not self._thread.is_alive()
            assert self._moved.wait_for(done, HANG_S), (time, self.progress[-3:])
            assert self._error is None, self._error
            return Counter({row: count for row, count in self.rows.items() if count})

    def stop(self) -> None:
        self._connection.cancel_safe()
        self._thread.join(HANG_S)
        self._connection.close()


@pytest.fixture
def tables(dsn: str) -> Iterator[psycopg.Connection[Row]]:
    with connect(dsn) as connection:
        connection.execute("CREATE TABLE l (k int, v int)")
        connection.execute("CREATE TABLE r (k int, w text)")
        yield connection


def now(connection: psycopg.Connection[Row]) -> int:
    """Returns a time after all acknowledged commits."""
    (time,) = connection.execute("SELECT mz_now()").fetchone() or (0,)
    return int(time) + 1


QUERIES = (
    "SELECT k, v FROM l",
    "SELECT v, v AS w FROM l WHERE k = 1",
    "SELECT k, count(*) AS n, sum(v) AS s FROM l GROUP BY k",
    "SELECT l.k, l.v, r.w FROM l JOIN r ON l.k = r.k",
    "SELECT l.k, l.v, r.w FROM l LEFT JOIN r ON l.k = r.k WHERE l.v IS NOT NULL OR r.w = 'x'",
    "SELECT DISTINCT k FROM l UNION ALL SELECT k FROM r",
)

write = st.one_of(
    st.tuples(st.just("INSERT INTO l VALUES "), st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1)),
    st.tuples(
        st.just("INSERT INTO r VALUES "), st.lists(st.tuples(st.integers(0, 3), st.sampled_from("xy")), min_size=1)
    ),
    st.tuples(st.just("DELETE FROM l WHERE k = "), st.integers(0, 3)),
    st.tuples(st.just("UPDATE l SET v = v + 1, k = k + 1 WHERE v = "), st.integers(0, 4)),
    st.tuples(st.just("DELETE FROM r WHERE w = 'x' AND k = "), st.integers(0, 3)),
)


def statement(step: tuple[str, Any]) -> str:
    head, value = step
    if isinstance(value, list):
        literal = lambda v: f"'{v}'" if isinstance(v, str) else str(v)
        return head + ", ".join(f"({a}, {literal(b)})" for a, b in value)
    return head + str(value)


@examples(8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(query=st.sampled_from(QUERIES), history=st.lists(write, max_size=8), seed=st.integers(0, 2**16))
def test_the_accumulated_stream_equals_the_query(
    dsn: str, tables: psycopg.Connection[Row], query: str, history: list[tuple[str, Any]], seed: int
) -> None:
    """At random times of a random history, the accumulated stream equals the result of the query."""
    tables.execute("TRUNCATE l, r")
    tables.execute("INSERT INTO l VALUES (0, 0), (0, 0), (1, NULL)")
    follower = Follower(dsn, query)
    try:
        dice = random.Random(seed)
        for step in history:
            tables.execute(statement(step))
            if dice.random() < 0.5:
                check(tables, follower, query)
        check(tables, follower, query)
        assert follower.progress == sorted(set(follower.progress))
    finally:
        follower.stop()


def check(connection: psycopg.Connection[Row], follower: Follower, query: str) -> None:
    with connection.transaction():
        scratch = Counter(connection.execute(query).fetchall())
        (time,) = connection.execute("SELECT mz_now()").fetchone() or (0,)
    followed = follower.at(int(time) + 1)
    # There was no write in between, so the stream at the later time still equals the query's result.
    assert followed == scratch, (
        f"in the stream, not in the query: {followed - scratch}; the other: {scratch - followed}"
    )


def test_equal_rows_are_sent_as_one_update(dsn: str, tables: psycopg.Connection[Row]) -> None:
    tables.execute("INSERT INTO l VALUES (1, 1), (1, 1), (1, 1)")
    up_to = now(tables) + 1
    rows = list(tables.cursor().stream(f"SUBSCRIBE l AS OF {up_to - 1} UP TO {up_to}"))
    assert [row[1:] for row in rows] == [(3, 1, 1)]


def test_progress_precedes_and_completes_the_snapshot(dsn: str, tables: psycopg.Connection[Row]) -> None:
    up_to = now(tables) + 500
    messages = list(tables.cursor().stream(f"SUBSCRIBE l WITH (PROGRESS) UP TO {up_to}"))
    assert messages[0][1:] == (True, None, None, None)
    assert len(messages) > 1, "an empty snapshot is complete when the second progress row comes"
    times = [m[0] for m in messages]
    assert times == sorted(times)


def test_a_transaction_has_one_timestamp(dsn: str, tables: psycopg.Connection[Row]) -> None:
    follower = Follower(dsn, "SELECT k, v FROM l UNION ALL SELECT k, 0 FROM r")
    try:
        with tables.transaction():
            tables.execute("INSERT INTO l VALUES (1, 1)")
            tables.execute("INSERT INTO r VALUES (2, 'x')")
            tables.execute("INSERT INTO l VALUES (3, 3)")
        tables.execute("INSERT INTO l VALUES (4, 4)")
        follower.at(now(tables))
        data = [m for m in follower.messages if not m[1]]
        assert len({m[0] for m in data if m[3] != 4}) == 1
        assert len({m[0] for m in data}) == 2
    finally:
        follower.stop()


def test_resuming_after_progress(dsn: str, tables: psycopg.Connection[Row]) -> None:
    """WITH (PROGRESS, SNAPSHOT false) AS OF p - 1 returns exactly the updates at times `t >= p`."""
    follower = Follower(dsn, "SELECT k, v FROM l")
    tables.execute("INSERT INTO l VALUES (1, 1)")
    follower.at(now(tables))
    follower.stop()
    seen, at = Counter(follower.rows), follower.progress[-1]
    tables.execute("INSERT INTO l VALUES (2, 2)")
    tables.execute("DELETE FROM l WHERE k = 1")
    up_to = now(tables) + 1
    resume = f"SUBSCRIBE l WITH (PROGRESS, SNAPSHOT false) AS OF {at - 1} UP TO {up_to}"
    for time, progressed, diff, *row in tables.cursor().stream(resume):
        assert time >= at - 1
        if not progressed:
            seen[tuple(row)] += diff
    assert {row: count for row, count in seen.items() if count} == {(2, 2): 1}


def test_a_query_is_subscribed_to_as_of_a_past_time(dsn: str, tables: psycopg.Connection[Row]) -> None:
    tables.execute("INSERT INTO l VALUES (1, 1)")
    past = now(tables) - 1
    tables.execute("INSERT INTO l VALUES (1, 5)")
    up_to = now(tables) + 1
    rows = list(tables.cursor().stream(f"SUBSCRIBE (SELECT sum(v) AS s FROM l) AS OF {past} UP TO {up_to}"))
    assert [(diff, s) for _, diff, s in rows[:1]] == [(1, 1)]
    assert Counter((diff, s) for _, diff, s in rows[1:]) == Counter([(-1, 1), (1, 6)])


def test_as_of_before_the_read_frontier_is_refused(dsn: str, tables: psycopg.Connection[Row]) -> None:
    with pytest.raises(errors.DataException, match="could not find a valid timestamp") as refused:
        list(tables.cursor().stream("SUBSCRIBE l AS OF 1"))
    assert "earliest readable time" in (refused.value.diag.message_detail or "")


def test_up_to_must_not_precede_as_of(dsn: str, tables: psycopg.Connection[Row]) -> None:
    at = now(tables)
    with pytest.raises(errors.DataException, match="is greater than its upper bound"):
        list(tables.cursor().stream(f"SUBSCRIBE l AS OF {at + 10} UP TO {at}"))
    notices: list[str] = []
    tables.add_notice_handler(lambda diagnostic: notices.append(diagnostic.message_primary or ""))
    assert list(tables.cursor().stream(f"SUBSCRIBE l AS OF {at} UP TO {at}")) == []
    assert any("guaranteed to be empty" in notice for notice in notices)


def test_a_subscription_that_begins_late_does_not_skip_its_snapshot(
    dsn: str, tables: psycopg.Connection[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    """UP TO has passed when the query's rows have been computed, and another subscriber has reached a later time."""
    started = subscribe._started

    async def late(*args: Any, **named: Any) -> Any:
        await asyncio.sleep(1.5)
        return await started(*args, **named)

    tables.execute("INSERT INTO l VALUES (1, 1)")
    for query, is_readable in (("SELECT count(*) AS n FROM l", True), ("SELECT 1 FROM mz_catalog.mz_databases", False)):
        with connect(dsn) as first, closing(first.cursor().stream(f"SUBSCRIBE ({query}) WITH (PROGRESS)")) as stream:
            next(stream)
            with monkeypatch.context() as patch:
                patch.setattr(subscribe, "_started", late)
                statement = f"SUBSCRIBE ({query}) UP TO {now(tables) + 500}".encode()
                if is_readable:
                    assert [row[1:] for row in tables.execute(statement).fetchall()] == [(1, 1)]
                else:  # a system table has no history from before the stream begins
                    with pytest.raises(errors.DataException, match="not before its upper bound"):
                        tables.execute(statement)


def test_a_constant_ends_at_once(dsn: str, tables: psycopg.Connection[Row]) -> None:
    rows = list(tables.cursor().stream("SUBSCRIBE (SELECT 1 AS x) WITH (PROGRESS)"))
    assert [(int(r[0]), *r[1:]) for r in rows] == [
        (18446744073709551615, True, None, None),
        (18446744073709551615, False, 1, 1),
    ]


def test_cursors_wait_and_leave_rows_for_the_next_fetch(dsn: str, tables: psycopg.Connection[Row]) -> None:
    tables.execute("INSERT INTO l VALUES (1, 1), (2, 2), (3, 3)")
    with connect(dsn) as reader, reader.transaction():
        reader.execute("DECLARE c CURSOR FOR SUBSCRIBE l")
        first = reader.execute("FETCH 2 c").fetchall()
        assert len(first) == 2
        assert len(reader.execute("FETCH ALL c").fetchall()) == 1
        assert reader.execute("FETCH ALL c WITH (TIMEOUT '50ms')").fetchall() == []
        tables.execute("INSERT INTO l VALUES (4, 4)")
        assert [row[1:] for row in reader.execute("FETCH 1 c WITH (TIMEOUT '10s')").fetchall()] == [(1, 4, 4)]


def test_a_dropped_relation_ends_the_stream(dsn: str, tables: psycopg.Connection[Row]) -> None:
    with connect(dsn) as reader:
        stream = reader.cursor().stream("SUBSCRIBE (SELECT count(*) FROM r) WITH (PROGRESS)")
        next(stream)
        tables.execute("DROP TABLE r")
        with pytest.raises(errors.UndefinedObject, match=r"relation '.*\.public\.r' was dropped"):
            for _ in stream:
                pass


def test_an_evaluation_error_ends_only_its_stream(dsn: str, tables: psycopg.Connection[Row]) -> None:
    with connect(dsn) as reader, connect(dsn) as neighbour:
        other = Follower(dsn, "SELECT k, v FROM l")
        stream = reader.cursor().stream("SUBSCRIBE (SELECT 10 / v AS q FROM l) WITH (PROGRESS)")
        next(stream)
        tables.execute("INSERT INTO l VALUES (1, 0)")
        with pytest.raises(errors.DivisionByZero):
            for _ in stream:
                pass
        assert other.at(now(neighbour)) == {(1, 0): 1}
        other.stop()


def test_a_disconnected_client_releases_its_dataflow_and_holds(
    server: ServerThread, dsn: str, tables: psycopg.Connection[Row]
) -> None:
    coordinator = server.app.coordinator
    before = len(coordinator.queries)
    reader = connect(dsn)
    stream = reader.cursor().stream("SUBSCRIBE (SELECT max(v) FROM l) WITH (PROGRESS)")
    next(stream)
    assert len(coordinator.queries) == before + 1
    reader.pgconn.finish()
    deadline = threading.Event()
    for _ in range(100):
        if len(coordinator.queries) == before:
            break
        deadline.wait(0.05)
    assert len(coordinator.queries) == before
    assert not any("max" in str(h) for h in coordinator.frontiers.holders)


def test_a_cancelled_simple_query_releases_its_feed(
    server: ServerThread, dsn: str, tables: psycopg.Connection[Row]
) -> None:
    coordinator = server.app.coordinator
    before = coordinator.feeds.collections
    with connect(dsn) as reader:
        timer = threading.Timer(0.3, reader.cancel_safe)
        timer.start()
        with pytest.raises(errors.QueryCanceled):
            psycopg.ClientCursor(reader).execute("SUBSCRIBE l")
        assert coordinator.feeds.collections == before


def test_equal_queries_share_a_dataflow(server: ServerThread, dsn: str, tables: psycopg.Connection[Row]) -> None:
    coordinator = server.app.coordinator
    before = len(coordinator.queries)
    followers = [Follower(dsn, query) for query in ("SELECT k + 1 AS x FROM l", "select  k+1 as x from l")]
    try:
        tables.execute("INSERT INTO l VALUES (1, 1)")
        for follower in followers:
            assert follower.at(now(tables)) == {(2,): 1}
        assert len(coordinator.queries) == before + 1
    finally:
        for follower in followers:
            follower.stop()


OUTPUTS = (
    "",
    "WITHIN TIMESTAMP ORDER BY v DESC, t",
    "ENVELOPE UPSERT (KEY (v))",
    "ENVELOPE DEBEZIUM (KEY (v))",
)


def test_a_shared_plan_follows_the_catalog(dsn: str, tables: psycopg.Connection[Row]) -> None:
    """The plan of a text is kept for all sessions, as long as names and settings mean the same."""
    text = "SUBSCRIBE shared_plan ENVELOPE UPSERT (KEY (id)) WITH (PROGRESS)"

    def first_row() -> Row:
        with connect(dsn) as reader:
            for row in reader.cursor().stream(text):
                if not row[1]:
                    return row[2:]
        raise AssertionError

    try:
        for column in ("a", "b"):
            tables.execute(f"CREATE TABLE shared_plan (id int, {column} text)")
            tables.execute("INSERT INTO shared_plan VALUES (1, %s)", (column,))
            assert first_row() == first_row() == ("upsert", 1, column)
            tables.execute("DROP TABLE shared_plan")
        with pytest.raises(errors.UndefinedTable):
            first_row()
        tables.execute("CREATE TABLE shared_plan (id int)")
        tables.execute("INSERT INTO shared_plan VALUES (2)")
        assert first_row() == ("upsert", 2)
        tables.execute("ALTER SYSTEM SET enable_envelope_upsert_in_subscribe = off")
        with pytest.raises(errors.FeatureNotSupported):
            first_row()
    finally:
        tables.execute("ALTER SYSTEM RESET enable_envelope_upsert_in_subscribe")
        tables.execute("DROP TABLE IF EXISTS shared_plan")


@pytest.mark.ivm
def test_constants_without_a_dataflow_return_what_a_dataflow_returns(
    server: ServerThread, dsn: str, tables: psycopg.Connection[Row]
) -> None:
    """`k = 1` is found by its hash, `k + 0 = 1` is computed by Spark."""
    tables.execute("CREATE TABLE c (k int, t text, v int) WITH (RETAIN HISTORY FOR '1h')")
    tables.execute("INSERT INTO c VALUES (1, 'a', 1), (2, 'b', 2), (NULL, 'c', 3)")
    begin = now(tables) - 1
    flows = server.call(_dataflows(server))
    live = connect(dsn)
    with live.cursor() as cursor, cursor.copy("COPY (SUBSCRIBE (SELECT t, v FROM c WHERE k = 1)) TO STDOUT") as rows:
        assert bytes(rows.read()).split()[1:] == [b"1", b"a", b"1"]
        for statement in (
            "INSERT INTO c VALUES (1, 'a', 1), (1, 'a', 2), (2, 'x', 1)",
            "UPDATE c SET v = v + 1 WHERE v = 2",
            "UPDATE c SET k = 1 WHERE k IS NULL",
            "DELETE FROM c WHERE t = 'a' AND v = 1",
        ):
            tables.execute(statement)
        assert server.call(_dataflows(server)) == flows, "no dataflow was started"
        live.cancel_safe()
    live.close()
    end = now(tables)
    for condition, other in (
        ("k = 1", "k + 0 = 1"),
        ("1 = k AND 'a' = t", "k + 0 = 1 AND t || '' = 'a'"),
        ("k = 3", "k + 0 = 3"),
        ("k = 1 AND k = 2", "k + 0 = 3"),
        ("k = NULL", "k + 0 = 3"),
    ):
        for output in OUTPUTS:
            for options in (f"AS OF {begin} UP TO {end}", f"WITH (SNAPSHOT false) AS OF {begin} UP TO {end}"):
                subscribed = [
                    sorted(
                        tables.cursor().stream(f"SUBSCRIBE (SELECT t, v FROM c WHERE {c}) {options} {output}"), key=repr
                    )
                    for c in (condition, other)
                ]
                assert subscribed[0] == subscribed[1], (condition, output, options)


async def _dataflows(server: ServerThread) -> set[str]:
    return set(server.app.coordinator.dataflows.running)


def test_a_parameter_selects_rows_of_the_live_stream(dsn: str, tables: psycopg.Connection[Row]) -> None:
    followers = [Follower(dsn, f"SELECT w FROM r WHERE w = '{text}'") for text in ("x", "y", "")]
    try:
        with connect(dsn) as reader, reader.transaction():
            reader.execute("DECLARE c CURSOR FOR SUBSCRIBE (SELECT k FROM r WHERE w = %s)", ("x",))
            tables.execute("INSERT INTO r VALUES (1, 'x'), (2, 'y'), (3, NULL), (4, 'x')")
            found = reader.execute("FETCH 2 c WITH (TIMEOUT '10s')").fetchall()
            assert [row[1:] for row in found] == [(1, 1), (1, 4)]
        assert [follower.at(now(tables)) for follower in followers] == [{("x",): 2}, {("y",): 1}, {}]
        assert all(follower.progress == sorted(set(follower.progress)) for follower in followers)
    finally:
        for follower in followers:
            follower.stop()


def test_a_dropped_table_ends_the_streams_of_its_constants(dsn: str, tables: psycopg.Connection[Row]) -> None:
    with connect(dsn) as reader:
        stream = reader.cursor().stream("SUBSCRIBE (SELECT w FROM r WHERE k = 1) WITH (PROGRESS)")
        next(stream)
        tables.execute("DROP TABLE r")
        with pytest.raises(errors.UndefinedObject, match=r"relation '.*\.public\.r' was dropped"):
            for _ in stream:
                pass


def test_the_chosen_time_is_held_until_the_subscription_begins(
    server: ServerThread, dsn: str, tables: psycopg.Connection[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its task begins when `since` has advanced on a busy server, or is cancelled before."""
    started, holders = subscribe._started, server.app.coordinator.frontiers.holders

    async def late(*args: Any, **named: Any) -> Any:
        await asyncio.sleep(1.5)  # longer than a table keeps history
        return await started(*args, **named)

    monkeypatch.setattr(subscribe, "_started", late)
    tables.execute("INSERT INTO l VALUES (1, 1)")
    before = len(holders)
    with connect(dsn) as reader:
        with reader.transaction():
            reader.execute("DECLARE c CURSOR FOR SUBSCRIBE l")
            assert [row[1:] for row in reader.execute("FETCH 1 c").fetchall()] == [(1, 1, 1)]
        with reader.transaction():
            reader.execute("DECLARE c CURSOR FOR SUBSCRIBE (SELECT count(*) > 0 FROM mz_catalog.mz_objects)")
            assert [row[1:] for row in reader.execute("FETCH 1 c").fetchall()] == [(1, True)]
        reader.execute("SET statement_timeout = '100ms'")
        with pytest.raises(errors.QueryCanceled), reader.transaction():
            reader.execute("DECLARE c CURSOR FOR SUBSCRIBE l")
            reader.execute("FETCH 1 c")
        reader.execute("RESET statement_timeout")
        deadline = threading.Event()
        for _ in range(100):
            if len(holders) == before:
                break
            deadline.wait(0.05)
        assert len(holders) == before


@pytest.mark.parametrize("as_of", ["", "AS OF"])
def test_a_late_snapshot_has_the_time_of_the_first_progress(
    dsn: str, tables: psycopg.Connection[Row], monkeypatch: pytest.MonkeyPatch, as_of: str
) -> None:
    """Other subscribers of the query have reached a later time when the subscription begins."""
    started, begins = subscribe._started, threading.Event()

    async def late(*args: Any, **named: Any) -> Any:
        await asyncio.to_thread(begins.wait)
        return await started(*args, **named)

    query = "SELECT count(*) > 0 FROM mz_catalog.mz_objects"
    with (
        connect(dsn) as first,
        closing(first.cursor().stream(f"SUBSCRIBE ({query}) WITH (PROGRESS)")) as stream,
        connect(dsn) as reader,
    ):
        reached = int(next(stream)[0])
        monkeypatch.setattr(subscribe, "_started", late)
        monkeypatch.setattr(subscribe, "START_S", 0.0)
        with reader.transaction():
            at = f"AS OF {reached}" if as_of else ""
            reader.execute(f"DECLARE c CURSOR FOR SUBSCRIBE ({query}) WITH (PROGRESS) {at}".encode())
            messages = reader.execute("FETCH ALL c WITH (TIMEOUT '10ms')").fetchall()
            while int(next(stream)[0]) < reached + 2_000:
                pass
            begins.set()
            assert [(int(time), progressed) for time, progressed, *_ in messages] == ([(reached, True)] if at else [])
            messages += reader.execute(f"FETCH {2 - len(messages)} c").fetchall()
            (progress, progressed, *_), (snapshot, *_) = messages
            assert (progressed, snapshot) == (True, progress)


def test_subscriptions_begin_while_their_table_is_altered_and_dropped(dsn: str) -> None:
    """They begin, or fail with an error that says what happened."""
    ended = threading.Event()

    def define() -> None:
        with connect(dsn) as definer:
            while not ended.is_set():
                definer.execute("CREATE TABLE defined (a int)")
                for _ in range(3):
                    definer.execute("ALTER TABLE defined ADD COLUMN b int")
                    definer.execute("ALTER TABLE defined DROP COLUMN b")
                definer.execute("DROP TABLE defined")

    def subscribe() -> set[str | None]:
        begun, failed = 0, set()
        query = "SELECT d.a, count(*) FROM defined d JOIN defined e USING (a) GROUP BY d.a"
        with connect(dsn) as subscriber:
            while begun < 8:
                try:
                    with subscriber.transaction():
                        subscriber.execute(f"DECLARE c CURSOR FOR SUBSCRIBE ({query}) WITH (PROGRESS)".encode())
                        begun += len(subscriber.execute("FETCH 1 c").fetchall())
                except psycopg.Error as error:
                    failed.add(error.sqlstate)
        return failed

    thread = threading.Thread(target=define)
    thread.start()
    try:
        with ThreadPoolExecutor(8) as subscribers:
            failed = set().union(*(found.result() for found in [subscribers.submit(subscribe) for _ in range(8)]))
    finally:
        ended.set()
        thread.join()
    assert failed <= {"40001", "42P01", "42704"}
