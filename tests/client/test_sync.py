"""`tidewire.subscribe` with a server: the batches that it returns, and the interruptions that it survives."""

from __future__ import annotations

import gc
import itertools
import random
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from psycopg import errors

import tidewire
from tests.client.conftest import Execute
from tests.client.proxy import Proxy
from tests.polling import HANG_S
from tidewire import Change, KeyChange, Progress, Retry, Snapshot, Update

pytestmark = pytest.mark.usefixtures("released")

QUICK = Retry(attempts=50, first_s=0.001, longest_s=0.01)


def changed(batches: Iterator[Any], count: int) -> list[Any]:
    """The next batches other than Progress."""
    return list(itertools.islice((batch for batch in batches if not isinstance(batch, Progress)), count))


def test_snapshot_then_updates(dsn: str, table: str, execute: Execute) -> None:
    execute("INSERT INTO t VALUES (1, 10), (2, 20), (2, 20)")
    with tidewire.subscribe(dsn, table) as batches:
        snapshot = next(batches)
        assert isinstance(snapshot, Snapshot)
        assert snapshot.columns == ("k", "v")
        assert sorted(snapshot.changes) == [Change((1, 10), 1), Change((2, 20), 2)]
        execute("BEGIN; DELETE FROM t WHERE k = 1; INSERT INTO t VALUES (1, 11); COMMIT")
        (update,) = changed(batches, 1)
        assert isinstance(update, Update)
        assert sorted(update.changes) == [Change((1, 10), -1), Change((1, 11), 1)]
        assert snapshot.progress < update.time + 1 == update.progress
        assert batches.token == update.token


def test_an_empty_table_has_a_snapshot_and_then_progress(dsn: str, table: str) -> None:
    with tidewire.subscribe(dsn, table, key=("k",)) as batches:
        snapshot, *others = itertools.islice(batches, 4)
    assert isinstance(snapshot, Snapshot)
    assert snapshot.rows == {}
    assert all(isinstance(batch, Progress) for batch in others)
    assert snapshot.progress < others[0].progress < others[1].progress < others[2].progress


def test_rows_are_kept_by_key(dsn: str, table: str, execute: Execute) -> None:
    execute("INSERT INTO t VALUES (1, 10), (2, 20)")
    with tidewire.subscribe(dsn, table, key=("k",)) as batches:
        assert next(batches).rows == {(1,): (10,), (2,): (20,)}  # type: ignore[union-attr]
        execute("BEGIN; DELETE FROM t WHERE k = 1; INSERT INTO t VALUES (1, 11); COMMIT")
        assert changed(batches, 1)[0].rows == {(1,): (11,), (2,): (20,)}
        execute("INSERT INTO t VALUES (1, 12)")
        with pytest.raises(tidewire.KeyViolation):
            changed(batches, 1)


def test_envelopes(dsn: str, table: str, execute: Execute) -> None:
    execute("INSERT INTO t VALUES (1, 10), (2, 20)")
    with (
        tidewire.subscribe(dsn, table, key=("k",), envelope="upsert") as upserts,
        tidewire.subscribe(dsn, table, key=("k",), envelope="debezium") as debezium,
    ):
        assert next(upserts).key_changes == [  # type: ignore[union-attr]
            KeyChange("upsert", (1,), None, (10,)),
            KeyChange("upsert", (2,), None, (20,)),
        ]
        assert next(debezium).key_changes[0] == KeyChange("insert", (1,), None, (10,))  # type: ignore[union-attr]
        execute("BEGIN; DELETE FROM t WHERE k = 1; INSERT INTO t VALUES (1, 11); COMMIT")
        execute("DELETE FROM t WHERE k = 2")
        execute("INSERT INTO t VALUES (3, 1), (3, 2)")
        one, two, three = changed(upserts, 3)
        assert one.key_changes == [KeyChange("upsert", (1,), None, (11,))]
        assert two.key_changes == [KeyChange("delete", (2,), None, None)]
        assert three.key_changes == [KeyChange("key_violation", (3,), None, None)]
        assert three.rows == {(1,): (11,)}
        one, two, three = changed(debezium, 3)
        assert one.key_changes == [KeyChange("upsert", (1,), (10,), (11,))]
        assert two.key_changes == [KeyChange("delete", (2,), (20,), None)]
        assert three.key_changes == [KeyChange("key_violation", (3,), None, None)]
        assert three.columns == ("k", "v")


def test_an_order_within_the_timestamp(dsn: str, table: str, execute: Execute) -> None:
    execute("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
    with tidewire.subscribe(dsn, table, order_by="v DESC") as batches:
        assert [change.row for change in next(batches).changes] == [(3, 3), (2, 2), (1, 1)]  # type: ignore[union-attr]


def test_values_have_the_drivers_types(dsn: str, execute: Execute) -> None:
    execute("CREATE TABLE v (n numeric(5,1), b bytea, d date, a int[])")
    execute("INSERT INTO v VALUES (1.5, '\\x00', '2020-01-02', ARRAY[1, NULL])")
    with tidewire.subscribe(dsn, "v") as batches:
        ((row, _),) = next(batches).changes  # type: ignore[union-attr]
    assert row[:2] == (Decimal("1.5"), b"\0")
    assert row[2].isoformat() == "2020-01-02"
    assert row[3] == [1, None]


def test_a_token_can_be_used_by_another_process(dsn: str, table: str, execute: Execute) -> None:
    execute("INSERT INTO t VALUES (1, 10)")
    with tidewire.subscribe(dsn, table, key=("k",)) as batches:
        snapshot = next(batches)
        rows = dict(snapshot.rows)  # type: ignore[union-attr]
    execute("INSERT INTO t VALUES (2, 20)")
    execute("BEGIN; DELETE FROM t WHERE k = 2; INSERT INTO t VALUES (2, 21); COMMIT")
    with tidewire.subscribe(dsn, table, key=("k",), token=str(snapshot.token), rows=rows) as batches:
        one, two = changed(batches, 2)
        assert one.changes == [Change((2, 20), 1)]
        assert two.rows == {(1,): (10,), (2,): (21,)}
    with pytest.raises(tidewire.WrongToken):
        tidewire.subscribe(dsn, "u", token=snapshot.token)


def test_as_of_and_up_to_bound_the_stream(dsn: str, table: str, execute: Execute) -> None:
    with tidewire.subscribe(dsn, table) as batches:
        empty = next(batches)
    execute("INSERT INTO t VALUES (1, 10)")
    with tidewire.subscribe(dsn, table) as batches:
        full = next(batches)
    bounded = tidewire.subscribe(dsn, table, as_of=empty.progress - 1, up_to=full.progress)
    snapshot, *others = bounded
    assert snapshot.changes == []  # type: ignore[union-attr]
    assert [batch.changes for batch in others if isinstance(batch, Update)] == [[Change((1, 10), 1)]]
    assert others[-1].progress == full.progress
    assert list(bounded) == []


def test_a_query_that_reads_no_relation_ends(dsn: str) -> None:
    (snapshot,) = tidewire.subscribe(dsn, "SELECT 1 AS one -- and only one\n;")
    assert isinstance(snapshot, Snapshot)
    assert snapshot.changes == [Change((1,), 1)]


def test_callbacks(dsn: str, table: str, execute: Execute) -> None:
    execute("INSERT INTO t VALUES (1, 10)")
    seen: list[object] = []
    subscription = tidewire.subscribe(dsn, table, key=("k",))

    def on_snapshot(snapshot: Snapshot) -> None:
        seen.append(dict(snapshot.rows))
        execute("DELETE FROM t")

    def on_update(update: Update) -> None:
        seen.append(dict(update.rows))
        subscription.close()

    subscription.run(on_snapshot, on_update)
    assert seen == [{(1,): (10,)}, {}]


def test_a_token_that_is_too_old(dsn: str, execute: Execute) -> None:
    execute("CREATE TABLE r (k int, v int)")
    execute("INSERT INTO r VALUES (1, 10)")
    token = tidewire.Token(tidewire.Query("r", ("k",)).fingerprint, 1000)
    with pytest.raises(tidewire.TokenTooOld) as raised:
        next(tidewire.subscribe(dsn, "r", key=("k",), token=token, rows={}))
    assert isinstance(raised.value.__cause__, errors.DataException)
    with tidewire.subscribe(dsn, "r", key=("k",), token=token, rows={(7,): (7,)}, on_too_old="reset") as batches:
        snapshot = next(batches)
        assert isinstance(snapshot, Snapshot)
        assert snapshot.reset
        assert snapshot.rows == {(1,): (10,)}
        assert snapshot.token.progress > token.progress


@pytest.mark.parametrize("query", ["missing", "SELECT nonsense FROM t", "SELEC 1"])
def test_errors_of_the_server_are_raised_immediately(
    dsn: str, table: str, query: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(psycopg.ProgrammingError) as raised:
        next(tidewire.subscribe(dsn, query))
    assert (raised.value.sqlstate or "").startswith("42")
    assert not caplog.records, "it was tried again"


def test_a_dropped_table_ends_the_iteration_with_its_error(dsn: str, execute: Execute) -> None:
    execute("CREATE TABLE gone (k int)")
    with tidewire.subscribe(dsn, "gone") as batches:
        next(batches)
        execute("DROP TABLE gone")
        with pytest.raises(errors.UndefinedObject):
            changed(batches, 1)


def test_attempts_are_bounded() -> None:
    with Proxy("postgresql://nobody@127.0.0.1:9/none", budget=lambda: 1) as proxy:
        dsn = proxy.dsn
    with pytest.raises(psycopg.OperationalError) as raised:
        next(tidewire.subscribe(dsn, "t", retry=Retry(attempts=2, first_s=0.001)))
    assert raised.value.__notes__ == ["tidewire gave up after 2 attempts to reconnect"]


def test_a_cancelled_subscription_raises_and_can_be_resumed(dsn: str, table: str, execute: Execute) -> None:
    """57014 is a user's request or a timeout: the application decides, and the subscription keeps its position."""
    with tidewire.subscribe(dsn, table) as batches:
        snapshot = next(batches)
        assert batches._connection is not None
        batches._connection.cancel_safe()
        with pytest.raises(errors.QueryCanceled):
            changed(batches, 1)
        execute("INSERT INTO t VALUES (1, 10)")
        (update,) = changed(batches, 1)
        assert update.changes == [Change((1, 10), 1)]
        assert update.time > snapshot.time  # type: ignore[union-attr]


def budgets(dice: random.Random) -> Callable[[], int]:
    """The numbers of bytes after which connections break. They grow, because the changes to catch up with grow, too."""
    numbers = itertools.count()
    return lambda: dice.randrange(300, 4_000 + 1_000 * next(numbers))


@contextmanager
def pinned(dsn: str) -> Iterator[None]:
    """Keeps the history of t readable by a transaction that reads it, however long a client is disconnected."""
    with psycopg.connect(dsn) as connection:
        connection.execute("SELECT k FROM t WHERE k = -1")
        yield


@pytest.mark.parametrize("seed", range(3))
def test_a_connection_that_breaks_at_any_byte_loses_no_change(
    dsn: str, table: str, execute: Execute, seed: int
) -> None:
    dice = random.Random(seed)
    execute("INSERT INTO t VALUES " + ", ".join(f"({k}, 0)" for k in range(1, 51)))
    writer = threading.Thread(target=write_history, args=(execute, random.Random(seed)))
    with (
        pinned(dsn),
        Proxy(dsn, budgets(dice)) as proxy,
        tidewire.subscribe(proxy.dsn, table, key=("k",), retry=QUICK) as batches,
    ):
        times: list[int] = []
        sums: list[int] = []
        for batch in batches:
            if isinstance(batch, Progress):
                continue
            if isinstance(batch, Snapshot):
                writer.start()
            times.append(batch.time)
            sums.append(sum(v for (v,) in batch.rows.values()))
            if (0,) in batch.rows:
                break
        writer.join()
        cuts = proxy.broken
    assert cuts > 3, "the test did not test"
    assert times == sorted(set(times))
    assert sums == [*range(0, TOTAL + 1, 2), TOTAL]
    assert len(batch.rows) == 51 + COMMITS  # type: ignore[union-attr]


COMMITS = 60
TOTAL = 2 * COMMITS


def write_history(execute: Execute, dice: random.Random) -> None:
    """Each commit adds 1 to the v of a row and inserts a row with v = 1. A divided commit would change the sum by
    another number than 2. The row with key 0 marks the end."""
    values = dict.fromkeys(range(1, 51), 0)
    for commit in range(COMMITS):
        k, new = dice.choice(sorted(values)), 100 + commit
        values[k], values[new] = values[k] + 1, 1
        execute(f"BEGIN; DELETE FROM t WHERE k = {k}; INSERT INTO t VALUES ({k}, {values[k]}), ({new}, 1); COMMIT")
    execute("INSERT INTO t VALUES (0, 0)")


def test_a_subscription_that_lagged_too_far_is_resumed(dsn: str, table: str, execute: Execute) -> None:
    """The client does not read while more changes wait than the server keeps. Afterwards it receives each change
    once."""
    execute("CREATE TABLE wide (k int, filler text)")
    with psycopg.connect(dsn, autocommit=True) as setting:
        setting.execute("ALTER SYSTEM SET subscription_waiting_bytes_max = 100000")
        try:
            with tidewire.subscribe(dsn, "wide", retry=QUICK) as batches:
                next(batches)
                for k in range(40):
                    execute("INSERT INTO wide VALUES " + ", ".join([f"({k}, '{'x' * 1000}')"] * 500))
                updates = changed(batches, 40)
                assert [update.changes[0].row[0] for update in updates] == list(range(40))
                assert all(update.changes[0].diff == 500 for update in updates)
        finally:
            setting.execute("ALTER SYSTEM RESET subscription_waiting_bytes_max")


def test_close_ends_the_iteration_of_another_thread(dsn: str, table: str) -> None:
    batches = tidewire.subscribe(dsn, "t", up_to=2**62)
    first, ended = threading.Event(), threading.Event()

    def follow() -> None:
        for _ in batches:
            first.set()
        ended.set()

    thread = threading.Thread(target=follow)
    thread.start()
    assert first.wait(HANG_S)
    batches.close()
    assert ended.wait(HANG_S)
    thread.join()
    assert list(batches) == []


def test_close_ends_the_wait_for_another_attempt() -> None:
    batches = tidewire.subscribe("postgresql://127.0.0.1:9/none", "t", retry=Retry(first_s=60, longest_s=60))
    timer = threading.Timer(0.1, batches.close)
    timer.start()
    assert list(batches) == []
    timer.join()


def test_an_iteration_that_is_left_leaves_no_connection(dsn: str, table: str) -> None:
    """This works without `close`: the last reference is sufficient."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for batch in tidewire.subscribe(dsn, table):
            assert isinstance(batch, Snapshot)
            break
        gc.collect()


def test_rows_are_read_only_when_a_batch_is_requested(dsn: str, table: str, execute: Execute) -> None:
    with tidewire.subscribe(dsn, table) as batches:
        next(batches)
        for k in range(10):
            execute("INSERT INTO t VALUES " + ", ".join(f"({k}, {v})" for v in range(1000)))
        assert not batches._stream.reader._received
        assert [len(update.changes) for update in changed(batches, 10)] == [1000] * 10


class FakeHolding:
    """A substitute for the connection that executes ALTER HOLD."""

    def __init__(self, statements: list[str], error: Exception | None = None) -> None:
        self.statements = statements
        self.error = error
        self.closed = False

    def execute(self, statement: bytes) -> None:
        if self.error is not None:
            raise self.error
        self.statements.append(statement.decode())

    def close(self) -> None:
        self.closed = True


def fake_holding(monkeypatch: pytest.MonkeyPatch, subscription: tidewire.Subscription, fake: FakeHolding) -> None:
    """The subscription's first connection is real. The one for the hold is the substitute."""
    from tidewire import sync

    real: Callable[[str], Any] = sync._connect
    monkeypatch.setattr(sync, "_connect", lambda dsn: real(dsn) if subscription._connection is None else fake)


def test_a_hold_is_advanced_by_acknowledgements(dsn: str, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = tidewire.subscribe(dsn, table, hold="h", hold_every_s=0.0)
    fake = FakeHolding([])
    fake_holding(monkeypatch, batches, fake)
    with batches:
        received = list(itertools.islice(batches, 4))
    assert fake.statements == [f"ALTER HOLD h ADVANCE TO {batch.progress - 1}" for batch in received[:-1]]
    assert fake.closed


def test_a_hold_is_advanced_by_explicit_acknowledgements(dsn: str, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = tidewire.subscribe(dsn, table, hold="h", hold_every_s=0.0, auto_ack=False)
    fake = FakeHolding([])
    fake_holding(monkeypatch, batches, fake)
    with batches:
        one, two, _ = itertools.islice(batches, 3)
        assert fake.statements == []
        two.ack()
        one.ack()
        next(batches)
    assert fake.statements == [f"ALTER HOLD h ADVANCE TO {two.progress - 1}"]


def test_a_hold_that_does_not_exist_is_an_error(dsn: str, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = tidewire.subscribe(dsn, table, hold="h")
    fake_holding(monkeypatch, batches, FakeHolding([], errors.UndefinedObject("unknown hold")))
    with batches:
        next(batches)
        with pytest.raises(errors.UndefinedObject):
            next(batches)


def test_a_hold_keeps_the_changes_for_a_client_that_resumes(dsn: str, execute: Execute) -> None:
    execute("CREATE TABLE t (k int, v int)")
    execute("CREATE HOLD h ON t")
    try:
        with tidewire.subscribe(dsn, "t", hold="h", hold_every_s=0.0) as batches:
            snapshot = next(batches)
            execute("INSERT INTO t VALUES (1, 10)")
            (update,) = changed(batches, 1)
        execute("INSERT INTO t VALUES (2, 20)")
        with psycopg.connect(dsn, autocommit=True) as connection:
            ((at,),) = connection.execute("SELECT at FROM mz_holds WHERE name = 'h'").fetchall()
            assert snapshot.progress - 1 <= at < update.progress, "it follows what has been acknowledged"
            while connection.execute("SELECT mz_now()").fetchall() < [(update.progress + 1_500,)]:
                threading.Event().wait(0.02)  # until RETAIN HISTORY alone would have released the changes
        with tidewire.subscribe(dsn, "t", token=update.token, hold="h") as batches:
            (missed,) = changed(batches, 1)
        assert missed.changes == [Change((2, 20), 1)]
    finally:
        execute("DROP HOLD h")
