"""HOLD through a client: the rules of docs/holds.md, RETAIN HISTORY, and EXPLAIN TIMESTAMP."""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from tests.fix_server import ServerThread
from tests.polling import HANG_S

Connection = psycopg.Connection[Any]


@pytest.fixture
def db(dsn: str) -> Iterator[Connection]:
    """A connection to a new database with a table `t` of one row and a table `probe` without holds."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE probe (a int)")
        connection.execute("CREATE TABLE t (a int)")
        connection.execute("INSERT INTO t VALUES (1)")
        yield connection


def refused(connection: Connection, statement: str, sqlstate: str, *parts: str) -> psycopg.Error:
    """Executes a statement that must fail with `sqlstate`; message, DETAIL and HINT together contain all `parts`."""
    with pytest.raises(psycopg.Error) as caught:
        connection.execute(statement)  # type: ignore[call-overload]
    error = caught.value
    text = f"{error} {error.diag.message_detail} {error.diag.message_hint}"
    assert error.sqlstate == sqlstate, text
    for part in parts:
        assert part in text
    return error


def now(connection: Connection) -> int:
    """Returns the greatest closed timestamp."""
    ((time,),) = connection.execute("SELECT mz_now()").fetchall()
    return int(time)


def hold_now(connection: Connection, name: str, on: str) -> int:
    """Creates a hold and advances it to the greatest closed timestamp, which it returns.

    Without the advance, the hold's time would depend on the machine's speed.
    """
    connection.execute(f"CREATE HOLD {name} ON {on}")  # type: ignore[call-overload]
    time = now(connection)
    connection.execute(f"ALTER HOLD {name} ADVANCE TO {time}")  # type: ignore[call-overload]
    return time


def place(connection: Connection, hold: str) -> int:
    ((at,),) = connection.execute("SELECT at FROM mz_holds WHERE name = %s", (hold,)).fetchall()
    assert isinstance(at, Decimal)
    return int(at)


def values(connection: Connection, relation: str, at: int) -> list[int]:
    return sorted(a for (a,) in connection.execute(f"SELECT * FROM {relation} AS OF {at}").fetchall())  # type: ignore[call-overload]


def awaited(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, what
        threading.Event().wait(0.02)


def since(connection: Connection, name: str) -> int:
    """Returns the read frontier of the only object with this name."""
    ((id,),) = connection.execute("SELECT id FROM mz_objects WHERE name = %s", (name,)).fetchall()
    frontiers = connection.execute("SELECT read_frontier FROM mz_internal.mz_frontiers WHERE object_id = %s", (id,))
    ((frontier,),) = frontiers.fetchall()
    return int(frontier)


def await_since(connection: Connection, name: str, time: int) -> None:
    awaited(lambda: since(connection, name) > time, f"the read frontier of {name} does not pass {time}")


def await_retention(connection: Connection, time: int) -> None:
    """Waits until retention alone no longer keeps `time`."""
    await_since(connection, "probe", time)


def test_what_can_be_held(db: Connection) -> None:
    db.execute("CREATE MATERIALIZED VIEW m AS SELECT a FROM t")
    db.execute("CREATE INDEX i ON t (a)")
    db.execute("CREATE VIEW v AS SELECT a FROM t")
    db.execute("CREATE HOLD h ON t, m, i")
    refused(db, "CREATE HOLD g ON v", "42809", 'cannot create hold on view "v"', "hold the tables")
    refused(db, "CREATE HOLD g ON h", "42809", 'cannot create hold on hold "h"')
    refused(db, "CREATE HOLD g ON mz_tables", "42809", 'cannot create hold on system table "mz_tables"')
    refused(db, "CREATE HOLD g ON t, nothing", "42P01", 'relation "nothing" does not exist')
    refused(db, "CREATE HOLD h ON t", "42710", 'hold "h" already exists')
    refused(db, "CREATE HOLD t ON t", "42P07", 'relation "t" already exists')
    db.execute("CREATE HOLD IF NOT EXISTS h ON t")
    refused(db, "SELECT * FROM h", "42809")
    refused(db, "SUBSCRIBE h", "42809", "because it is a hold")
    refused(db, "DROP TABLE h", "42809")
    refused(db, "DROP HOLD t", "42809")
    refused(db, "DROP HOLD nothing", "42704", 'hold "nothing" does not exist')
    db.execute("DROP HOLD IF EXISTS nothing, h CASCADE")


def test_a_hold_covers_objects_of_any_schema_and_database(db: Connection) -> None:
    other = f"{db.info.dbname}_other"
    db.execute(f"CREATE DATABASE {other}")
    try:
        db.execute(f"CREATE TABLE {other}.public.t (a int)")
        db.execute("CREATE SCHEMA s")
        db.execute(f"CREATE HOLD s.h ON t, {other}.public.t")
        assert [name for name, *_ in db.execute("SHOW HOLDS FROM s").fetchall()] == ["h"]
        assert db.execute("SHOW HOLDS").fetchall() == []
        ((_, create),) = db.execute("SHOW CREATE HOLD s.h").fetchall()
        assert create == (
            f"CREATE HOLD {db.info.dbname}.s.h ON {db.info.dbname}.public.t, {other}.public.t "
            f"AT {place(db, 'h')} WITH (MAX LAG = '10800s')"
        )
        refused(db, f"DROP DATABASE {other} RESTRICT", "2BP01")
        refused(db, "DROP SCHEMA s", "2BP01", "hold h")
    finally:
        db.execute(f"DROP DATABASE {other} CASCADE")
    assert db.execute("SHOW HOLDS FROM s").fetchall() == [], "the hold went with one of its objects"


def test_privileges_required_for_holds(dsn: str, db: Connection) -> None:
    """CREATE HOLD requires CREATE on the schema, SELECT on the objects, and USAGE on the cluster of maintained ones."""
    name = f"holder_of_{db.info.dbname}"
    db.execute("CREATE SCHEMA s")
    db.execute("CREATE MATERIALIZED VIEW m AS SELECT a FROM t")
    db.execute("CREATE INDEX i ON t (a)")
    db.execute(f"CREATE USER {name}")
    db.execute(f"CREATE USER other_{name}")
    try:
        with (
            psycopg.connect(dsn, autocommit=True, user=name) as holder,
            psycopg.connect(dsn, autocommit=True, user=f"other_{name}") as other,
        ):
            refused(holder, "CREATE HOLD s.h ON t", "42501", "permission denied for schema s")
            db.execute(f"GRANT USAGE, CREATE ON SCHEMA s TO {name}")
            refused(holder, "CREATE HOLD s.h ON t", "42501", "permission denied for table t")
            refused(holder, "CREATE HOLD s.h ON i", "42501", "permission denied for table t")
            db.execute(f"GRANT SELECT ON t TO {name}")
            refused(holder, "CREATE HOLD s.h ON t, m", "42501", "permission denied for materialized view m")
            holder.execute("CREATE HOLD s.h ON t, i")
            holder.execute("ALTER HOLD s.h ADVANCE")
            db.execute(f"GRANT USAGE ON SCHEMA s TO other_{name}")
            for statement in (
                "ALTER HOLD s.h ADVANCE",
                "ALTER HOLD s.h RENAME TO g",
                "ALTER HOLD s.h SET (MAX LAG '1h')",
                "DROP HOLD s.h",
                "COMMENT ON HOLD s.h IS 'mine'",
                "ALTER TABLE t SET (RETAIN HISTORY FOR '1h')",
            ):
                refused(other, statement, "42501", "must be owner of")
            db.execute("REVOKE USAGE ON CLUSTER quickstart FROM PUBLIC")
            try:
                refused(holder, "CREATE HOLD s.g ON i", "42501", "permission denied for cluster quickstart")
            finally:
                db.execute("GRANT USAGE ON CLUSTER quickstart TO PUBLIC")
            db.execute("ALTER HOLD s.h ADVANCE")
            holder.execute("DROP HOLD s.h")
    finally:
        for role in (name, f"other_{name}"):
            db.execute(f"DROP OWNED BY {role} CASCADE")
            db.execute(f"DROP ROLE {role}")


def test_a_hold_can_be_created_at_the_time_of_another_hold(db: Connection) -> None:
    start = hold_now(db, "first", "t")
    db.execute("INSERT INTO t VALUES (2)")
    db.execute("CREATE TABLE u (a int)")
    await_retention(db, start)
    refused(db, f"CREATE HOLD second ON t AT {start - 1}", "22023", "before the read frontier", f"{start}.")
    db.execute(f"CREATE HOLD second ON t AT {start}")
    db.execute("DROP HOLD first")
    assert values(db, "t", start) == [1]
    refused(db, f"CREATE HOLD third ON t, u AT {start}", "22023", '.public.u"')
    assert place(db, "second") == start


def test_at_must_lie_between_the_frontiers(db: Connection) -> None:
    refused(db, "CREATE HOLD h ON t AT 1", "22023", "before the read frontier")
    refused(
        db, "CREATE HOLD h ON t AT 18446744073709551615", "22023", "beyond the write frontier", "The greatest allowed"
    )
    for text in ("NULL", "-1", "1.5", "'soon'", "7/0"):
        refused(db, f"CREATE HOLD h ON t AT {text}", "22023", "AT should be castable to a (non-null) mz_timestamp")
    refused(db, "CREATE HOLD h ON t AT now()", "0A000", "unmaterializable function in AT")
    start = now(db)
    db.execute(f"CREATE HOLD h ON t AT '{start}'::numeric + 0")
    assert place(db, "h") == start


def test_without_at_a_hold_starts_at_the_greatest_read_frontier(db: Connection) -> None:
    start = now(db)
    db.execute("CREATE HOLD old ON t")
    await_retention(db, start)
    db.execute("CREATE HOLD one ON t")
    assert place(db, "one") > place(db, "old"), "a hold does not make another's beginning"
    db.execute("CREATE TABLE w (a int)")
    born = now(db)
    db.execute("CREATE HOLD two ON t, w")
    assert born - 100 <= place(db, "two") <= now(db), "the newer table's"


def test_held_times_are_readable(db: Connection) -> None:
    db.execute("CREATE MATERIALIZED VIEW m AS SELECT sum(a) AS a FROM t")
    assert db.execute("SELECT * FROM m").fetchall() == [(1,)]
    start = hold_now(db, "h", "t, m")
    db.execute("INSERT INTO t VALUES (2)")
    db.execute("DELETE FROM t WHERE a = 1")
    await_retention(db, start)
    assert values(db, "t", start) == [1]
    assert values(db, "m", start) == [1]
    assert db.execute(f"SELECT t.a, m.a FROM t, m AS OF {start}").fetchall() == [(1, 1)]
    end = now(db)
    rows = db.execute(f"SUBSCRIBE t AS OF {start} UP TO {end + 1}").fetchall()
    assert [(diff, a) for _, diff, a in rows] == [(1, 1), (1, 2), (-1, 1)]
    rows = db.execute(f"SUBSCRIBE (SELECT a + 1 AS a FROM t) AS OF {start} UP TO {end + 1}").fetchall()
    assert [(diff, a) for _, diff, a in rows] == [(1, 2), (1, 3), (-1, 2)]
    rows = db.execute(f"SUBSCRIBE m WITH (SNAPSHOT false) AS OF {start} UP TO {end + 1}").fetchall()
    assert sorted((diff, a) for _, diff, a in rows) == [(-1, 1), (-1, 3), (1, 2), (1, 3)]


def test_a_hold_on_an_index_serves_queries_through_the_index(db: Connection) -> None:
    db.execute("CREATE INDEX i ON t (a)")
    start = hold_now(db, "h", "i")
    db.execute("INSERT INTO t VALUES (2)")
    await_since(db, "t", start)
    assert since(db, "i") == start
    assert values(db, "t", start) == [1]
    (plan,) = db.execute(f"EXPLAIN TIMESTAMP FOR SELECT * FROM t AS OF {start}").fetchone() or ("",)
    assert re.search(r"source \S+\.t \(u\d+, storage\)", plan)
    assert re.search(rf"source \S+\.i \(u\d+, compute\):\n +read frontier:\[{start} ", plan)
    refused(db, "DROP INDEX i", "2BP01", "hold h")
    db.execute("DROP INDEX i CASCADE")
    refused(db, f"SELECT * FROM t AS OF {start}", "22000", "could not find a valid timestamp")
    assert db.execute("SHOW HOLDS").fetchall() == []


def test_a_hold_on_a_table_holds_no_index(db: Connection) -> None:
    db.execute("CREATE INDEX i ON t (a)")
    db.execute("CREATE HOLD h ON t")
    await_since(db, "i", place(db, "h"))
    assert since(db, "t") == place(db, "h")


def test_a_hold_is_renamed_and_swapped_in_a_transaction(db: Connection) -> None:
    db.execute("CREATE HOLD h ON t")
    db.execute("CREATE HOLD new ON t")
    ids = dict(db.execute("SELECT name, id FROM mz_holds WHERE name IN ('h', 'new')").fetchall())
    for statement in ("BEGIN", "ALTER HOLD h RENAME TO old", "ALTER HOLD new RENAME TO h", "DROP HOLD old", "COMMIT"):
        db.execute(statement)  # type: ignore[call-overload]
    assert dict(db.execute("SELECT name, id FROM mz_holds WHERE name = 'h'").fetchall()) == {"h": ids["new"]}
    refused(db, "ALTER HOLD h RENAME TO t", "42P07")
    refused(db, "ALTER HOLD h SET SCHEMA s", "0A000")


def test_a_hold_on_an_object_created_in_the_same_transaction(db: Connection) -> None:
    start = hold_now(db, "h", "t")
    db.execute("INSERT INTO t VALUES (2)")
    await_retention(db, start)
    for number, create in enumerate(
        ("CREATE INDEX x ON t (a)", "CREATE MATERIALIZED VIEW x AS SELECT a * 10 AS a FROM t")
    ):
        db.execute("BEGIN")
        db.execute(create)  # type: ignore[call-overload]
        db.execute("CREATE HOLD g ON x")
        db.execute("COMMIT")
        assert place(db, "g") == since(db, "x") == start, "as far back as what it is made from"
        if number:
            assert values(db, "x", start) == [10]
            assert values(db, "x", now(db)) == [10, 20]
            end = now(db)
            rows = db.execute(f"SUBSCRIBE x WITH (SNAPSHOT false) AS OF {start} UP TO {end}").fetchall()
            assert [a for _, _, a in rows] == [20], "its history is that of the table"
        db.execute("DROP INDEX x CASCADE" if not number else "DROP MATERIALIZED VIEW x CASCADE")
    db.execute("BEGIN")
    db.execute("CREATE MATERIALIZED VIEW x AS SELECT a FROM t")
    db.execute(f"CREATE HOLD g ON x AT {start + 1}")
    db.execute("COMMIT")
    assert place(db, "g") == start + 1
    db.execute("BEGIN")
    db.execute("CREATE TABLE y (a int)")
    db.execute("CREATE HOLD of_y ON y")
    db.execute("COMMIT")
    assert place(db, "of_y") == since(db, "y")


def test_a_transaction_allows_one_create_and_one_create_hold(db: Connection) -> None:
    def block(*statements: str) -> psycopg.Error | None:
        db.execute("BEGIN")
        try:
            for statement in statements:
                db.execute(statement)  # type: ignore[call-overload]
            db.execute("COMMIT")
        except psycopg.Error as error:
            db.execute("ROLLBACK")
            return error
        return None

    for statements in (
        ("CREATE TABLE x (a int)", "CREATE HOLD h ON t"),
        ("CREATE TABLE x (a int)", "CREATE HOLD h ON x, t"),
        ("CREATE TABLE x (a int)", "CREATE TABLE y (a int)", "CREATE HOLD h ON y"),
        ("CREATE TABLE x (a int)", "CREATE HOLD h ON x", "CREATE HOLD g ON x"),
        ("CREATE HOLD h ON t", "CREATE HOLD g ON t"),
        ("ALTER TABLE t RENAME TO x", "CREATE HOLD h ON x"),
    ):
        error = block(*statements)
        assert error is not None, statements
        assert error.sqlstate == "25000"
        assert "can only follow the one CREATE" in str(error)
    error = block("CREATE TABLE x (a int)", "CREATE HOLD h ON x AT 5")
    assert error is not None
    assert error.sqlstate == "22023"
    assert db.execute("SHOW HOLDS").fetchall() == []
    assert block("CREATE HOLD h ON t") is None, "drivers open a transaction by themselves"
    error = block("ALTER HOLD h ADVANCE")
    assert error is not None
    assert error.sqlstate == "25001"


def test_a_hold_moves_back_under_another_hold(db: Connection) -> None:
    start = hold_now(db, "h", "t")
    db.execute(f"CREATE HOLD g ON t AT {start}")
    await_retention(db, start)
    db.execute(f"ALTER HOLD h ADVANCE TO {now(db)}")
    db.execute(f"ALTER HOLD h ADVANCE TO {start}")
    assert place(db, "h") == start
    end = now(db)
    db.execute(f"ALTER HOLD h ADVANCE TO {end}")
    db.execute(f"ALTER HOLD g ADVANCE TO {end}")
    await_retention(db, end)
    error = refused(db, f"ALTER HOLD h ADVANCE TO {start}", "22023", "before the read frontier")
    assert str(end) in str(error.diag.message_detail)
    error = refused(db, f"ALTER HOLD h ADVANCE TO {now(db) + 100_000}", "22023", "beyond the write frontier")
    greatest = int(re.findall(r"\d+", str(error.diag.message_detail))[0])
    assert end < greatest
    db.execute(f"ALTER HOLD h ADVANCE TO {greatest}")
    assert place(db, "h") == greatest
    assert place(db, "g") == end


def test_advance_without_a_time_moves_to_the_retention_frontier(db: Connection) -> None:
    start = hold_now(db, "h", "t")
    db.execute("CREATE HOLD g ON t")
    await_retention(db, start)
    reader = psycopg.connect(db.info.dsn, autocommit=True)
    reader.execute(f"BEGIN; DECLARE c CURSOR FOR SUBSCRIBE (SELECT a + 1 FROM t) AS OF {start}; FETCH 1 c")
    db.execute("ALTER HOLD g ADVANCE")
    assert start < place(db, "g"), "neither holds nor running queries count"
    assert abs(place(db, "g") - since(db, "probe")) < 1_000
    refused(db, "ALTER HOLD nothing ADVANCE", "42704")
    db.execute("ALTER HOLD IF EXISTS nothing ADVANCE")
    refused(db, "ALTER HOLD t ADVANCE", "42809")
    reader.close()


def test_running_reads_keep_their_history(db: Connection) -> None:
    start = hold_now(db, "h", "t")
    db.execute("INSERT INTO t VALUES (2)")
    await_retention(db, start)
    with psycopg.connect(db.info.dsn, autocommit=True) as reader, psycopg.connect(db.info.dsn) as other:
        reader.execute("BEGIN")
        reader.execute(f"DECLARE c CURSOR FOR SUBSCRIBE t WITH (PROGRESS, SNAPSHOT false) AS OF {start}")
        (first,) = reader.execute("FETCH 1 c").fetchall()
        assert int(first[0]) == start
        other.execute("SELECT * FROM t")
        read_at = int((other.execute("SELECT mz_now()").fetchone() or (0,))[0])
        db.execute("ALTER HOLD h ADVANCE")
        db.execute("DROP HOLD h")
        refused(db, f"SELECT * FROM t AS OF {start}", "22000")
        db.execute("INSERT INTO t VALUES (3)")
        awaited(lambda: now(db) > read_at + 1_500, "time does not advance")
        assert other.execute("SELECT * FROM t").fetchall() == [(1,), (2,)]
        got: list[int] = []
        while 3 not in got:
            got += [row[-1] for row in reader.execute("FETCH ALL c").fetchall() if not row[1]]
        assert got == [2, 3]


def test_max_lag_is_checked_and_shown(db: Connection) -> None:
    seed = "CREATE HOLD h\nON t\nWITH (\nMAX LAG = '3h'::INTERVAL,\n)"
    db.execute(seed)
    db.execute("CREATE HOLD d ON t")
    db.execute("CREATE HOLD m ON t WITH (MAX LAG '1 day 90 min')")
    lags = {name: (lag, status) for name, _, lag, status in db.execute("SHOW HOLDS").fetchall()}
    hours = timedelta(hours=3)
    assert lags == {"d": (hours, "ok"), "h": (hours, "ok"), "m": (timedelta(days=1, minutes=90), "ok")}
    for lag, part in (
        ("'-1h'", "must be positive"),
        ("'0'", "must be positive"),
        ("interval '1000 years'", "above max_hold_lag"),
        ("NULL", "castable to a (non-null) interval"),
    ):
        refused(db, f"CREATE HOLD g ON t WITH (MAX LAG = {lag})", "22023", part)
    refused(db, "CREATE HOLD g ON t WITH (MAX LAG = 'often')", "22007", "invalid input syntax for type interval")
    db.execute("ALTER SYSTEM SET max_hold_lag = '1h'")
    try:
        refused(db, "CREATE HOLD g ON t WITH (MAX LAG = '61 min')", "22023", "above max_hold_lag, which is 1h")
        db.execute("CREATE HOLD g ON t")
        assert db.execute("SELECT max_lag FROM mz_holds WHERE name = 'g'").fetchall() == [(timedelta(hours=1),)]
        refused(db, "ALTER SYSTEM SET max_hold_lag = 0", "22023")
        refused(db, "SET max_hold_lag = '2h'", "55P02")
    finally:
        db.execute("ALTER SYSTEM RESET max_hold_lag")


def test_max_lag_can_be_changed(db: Connection) -> None:
    start = hold_now(db, "h", "t WITH (MAX LAG = '2s')")
    db.execute("ALTER HOLD h SET (MAX LAG = '1 day')")
    assert db.execute("SELECT max_lag, status FROM mz_holds").fetchall() == [(timedelta(days=1), "ok")]
    awaited(lambda: now(db) > start + 4_000, "time does not advance")
    assert db.execute(f"SELECT * FROM t AS OF {start}").fetchall() == [(1,)]  # type: ignore[call-overload]
    for statement in ("BEGIN", "ALTER HOLD h SET (MAX LAG '2 days')", "ALTER HOLD h RENAME TO g", "ROLLBACK"):
        db.execute(statement)  # type: ignore[call-overload]
    ((_, definition),) = db.execute("SHOW CREATE HOLD h").fetchall()
    assert definition.endswith("WITH (MAX LAG = '86400s')")
    refused(db, "ALTER HOLD h SET (MAX LAG = '8 days')", "22023", "above max_hold_lag, which is 7d")
    refused(db, "ALTER HOLD h SET (MAX LAG)", "42601", "Expected option value")
    refused(db, "ALTER HOLD h SET (RETAIN HISTORY FOR '1h')", "42601", "Expected MAX")
    refused(db, "ALTER HOLD nothing SET (MAX LAG '1h')", "42704")
    refused(db, "ALTER HOLD t SET (MAX LAG '1h')", "42809")
    db.execute("ALTER HOLD IF EXISTS nothing SET (MAX LAG '1h')")
    db.execute("ALTER HOLD h SET (MAX LAG '1s')")
    awaited(lambda: place(db, "h") > start, "the hold is not advanced")


def test_a_hold_beyond_max_lag_is_advanced_automatically(server: ServerThread, db: Connection) -> None:
    notices: list[tuple[str | None, str | None]] = []
    db.add_notice_handler(lambda diag: notices.append((diag.message_primary, diag.message_detail)))
    before = metric(server, "tidewire_holds_moved_by_max_lag_total")
    start = hold_now(db, "h", "t WITH (MAX LAG = '2s')")
    with psycopg.connect(db.info.dsn, autocommit=True) as reader:
        reader.execute("BEGIN")
        reader.execute(f"DECLARE c CURSOR FOR SUBSCRIBE (SELECT a * 2 FROM t) WITH (PROGRESS) AS OF {start}")
        reader.execute("FETCH 1 c")
        status = "SELECT status FROM mz_holds WHERE name = 'h'"
        awaited(lambda: db.execute(status).fetchall() == [("advanced",)], "the hold is not moved")
        assert start < place(db, "h") < now(db) - 1_000
        db.execute("INSERT INTO t VALUES (2)")
        got: list[int] = []
        while 4 not in got:
            got += [row[-1] for row in reader.execute("FETCH ALL c").fetchall() if not row[1]]
        assert got == [2, 4], "the running subscription is not touched"
    refused(db, f"SELECT * FROM t AS OF {start}", "22000", f'The hold "{db.info.dbname}.public.h" is at')
    assert metric(server, "tidewire_holds_moved_by_max_lag_total") > before
    assert not notices
    db.execute("ALTER HOLD h ADVANCE")
    ((message, detail),) = notices
    assert message is not None
    assert message.startswith('hold "h" had been advanced to ')
    assert detail == "History before that time may be gone."
    assert db.execute(status).fetchall() == [("ok",)]
    db.execute("ALTER HOLD h ADVANCE")
    assert len(notices) == 1


def metric(server: ServerThread, name: str) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = re.search(rf"(?m)^{re.escape(name)} (\S+)$", text)
    assert found is not None, text
    return float(found[1])


def test_dropping_a_held_object_requires_cascade(db: Connection) -> None:
    db.execute("CREATE TABLE u (a int)")
    db.execute("CREATE MATERIALIZED VIEW m AS SELECT a FROM t")
    db.execute("CREATE HOLD h ON t, u")
    db.execute("CREATE HOLD g ON m")
    error = refused(db, "DROP TABLE u", "2BP01", "hold h depends on table u", "CASCADE")
    assert "cannot drop table u because other objects depend on it" in str(error)
    refused(db, "DROP MATERIALIZED VIEW m", "2BP01", "hold g")
    refused(db, "CREATE OR REPLACE MATERIALIZED VIEW m AS SELECT a + 1 AS a FROM t", "2BP01")
    db.execute("DROP TABLE u CASCADE")
    assert [row[0] for row in db.execute("SHOW HOLDS").fetchall()] == ["g"]
    db.execute("DROP TABLE t CASCADE")
    assert db.execute("SHOW HOLDS").fetchall() == []


def test_the_error_names_the_hold_after_the_requested_time(db: Connection) -> None:
    start = now(db)
    db.execute("CREATE HOLD far ON t")
    await_retention(db, start)
    end = now(db)
    db.execute(f"CREATE HOLD near ON t AT {end}")
    db.execute(f"ALTER HOLD far ADVANCE TO {end + 1}")
    await_retention(db, end)
    for statement in ("SELECT * FROM t AS OF {}", "SUBSCRIBE t AS OF {}", "SUBSCRIBE (SELECT a + 1 FROM t) AS OF {}"):
        hint = f'The hold "{db.info.dbname}.public.near" is at {end}, after the requested time. Read at {end} or later.'
        refused(db, statement.format(start), "22000", "could not find a valid timestamp for the query", hint)
        refused(db, statement.format(1), "22000", "(Query's AS OF): [1 (1970-01-01", hint)
    db.execute("DROP HOLD near, far")
    error = refused(db, f"SELECT * FROM t AS OF {start}", "22000")
    assert "hold" not in str(error.diag.message_hint)


def test_a_readable_time_before_the_hold_can_be_read(db: Connection) -> None:
    db.execute("CREATE HOLD h ON t")
    start = now(db)
    db.execute(f"ALTER HOLD h ADVANCE TO {start + 1}")
    assert values(db, "t", start) == [1]


def test_concurrent_advances_share_transactions(server: ServerThread, db: Connection) -> None:
    """Each advance is decided separately: a refused one does not affect the others."""
    names = [f"h{n}" for n in range(64)]
    for name in names:
        db.execute(f"CREATE HOLD {name} ON t")
    end = now(db)
    connections = [psycopg.connect(db.info.dsn, autocommit=True) for _ in names]
    try:
        with ThreadPoolExecutor(len(names)) as threads:
            before = metric(server, "tidewire_catalog_transactions_total")

            def advance(number: int) -> str | None:
                connection, name = connections[number], names[number]
                try:
                    connection.execute(f"ALTER HOLD {name} ADVANCE TO {end if number % 8 else end + 10**9}")  # type: ignore[call-overload]
                except psycopg.Error as error:
                    return error.sqlstate
                return None

            outcomes = list(threads.map(advance, range(len(names))))
            used = metric(server, "tidewire_catalog_transactions_total") - before
    finally:
        for connection in connections:
            connection.close()
    assert outcomes == [None if number % 8 else "22023" for number in range(len(names))]
    assert used < len(names) / 2, "catalog transactions"
    for number, name in enumerate(names):
        assert (place(db, name) == end) == bool(number % 8)


def test_two_sessions_advance_one_hold(db: Connection) -> None:
    """The hold ends at the greatest accepted time. Advances to times that are no longer readable are refused."""
    start = hold_now(db, "h", "t")
    await_retention(db, start + 200)
    targets = [start + n for n in range(1, 41)]

    def advance(to: int) -> int | None:
        with psycopg.connect(db.info.dsn, autocommit=True) as connection:
            try:
                connection.execute(f"ALTER HOLD h ADVANCE TO {to}")  # type: ignore[call-overload]
            except psycopg.errors.InvalidParameterValue:
                return None
            return to

    with ThreadPoolExecutor(8) as threads:
        done = [to for to in threads.map(advance, targets) if to is not None]
    assert place(db, "h") == max(done)
    assert values(db, "t", max(done)) == [1]


def test_a_hold_is_dropped_while_a_reader_resumes(db: Connection) -> None:
    """The reader gets either all updates or an error."""
    for number in range(10):
        start = hold_now(db, f"h{number}", "t")
        db.execute(f"INSERT INTO t VALUES ({number + 100})")
        written = now(db)
        with ThreadPoolExecutor(2) as threads:
            reading = threads.submit(resumed, db.info.dsn, start, written)
            db.execute(f"DROP HOLD h{number}")
            assert reading.result(HANG_S) in ([number + 100], None)


def resumed(dsn: str, start: int, end: int) -> list[int] | None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        try:
            rows = connection.execute(f"SUBSCRIBE t WITH (SNAPSHOT false) AS OF {start} UP TO {end + 1}").fetchall()  # type: ignore[call-overload]
        except psycopg.errors.DataException:
            return None
        return [a for _, _, a in rows]


def test_holds_and_their_objects_are_in_system_tables(db: Connection) -> None:
    db.execute("CREATE TABLE u (a int)")
    db.execute("CREATE HOLD h ON t, u")
    columns = db.execute(
        "SELECT name, type FROM mz_columns WHERE id = (SELECT id FROM mz_objects WHERE name = 'mz_holds')"
    )
    assert columns.fetchall() == [
        ("id", "text"),
        ("schema_id", "text"),
        ("name", "text"),
        ("at", "numeric"),
        ("max_lag", "interval"),
        ("status", "text"),
    ]
    held = db.execute(
        "SELECT o.name FROM mz_holds h "
        "JOIN mz_hold_objects ho ON ho.hold_id = h.id JOIN mz_objects o ON o.id = ho.on_id "
        "JOIN mz_schemas s ON s.id = h.schema_id JOIN mz_databases d ON d.id = s.database_id "
        "WHERE d.name = current_database() ORDER BY 1"
    ).fetchall()
    assert held == [("t",), ("u",)]
    assert db.execute("SELECT type FROM mz_objects WHERE name = 'h'").fetchall() == [("hold",)]


def test_mz_holds_can_be_subscribed_to(db: Connection) -> None:
    db.execute("CREATE HOLD watched ON t")
    with psycopg.connect(db.info.dsn, autocommit=True) as reader:
        reader.execute("BEGIN")
        reader.execute("DECLARE c CURSOR FOR SUBSCRIBE (SHOW HOLDS)")
        ((_, diff, name, at, _, status),) = reader.execute("FETCH 1 c").fetchall()
        assert (diff, name, int(at), status) == (1, "watched", place(db, "watched"), "ok")
        end = now(db)
        db.execute(f"ALTER HOLD watched ADVANCE TO {end}")
        rows: list[tuple[Any, ...]] = []
        while len(rows) < 2:
            rows += reader.execute("FETCH ALL c").fetchall()
        assert sorted((diff, int(at)) for _, diff, _, at, *_ in rows) == [(-1, int(at)), (1, end)]


def test_metrics_of_holds(server: ServerThread, db: Connection) -> None:
    hold_now(db, "h", "t")
    for number in range(20):
        db.execute(f"INSERT INTO t VALUES ({number})")
    await_retention(db, now(db))
    label = f'{{hold="{db.info.dbname}.public.h"}}'
    assert metric(server, f"tidewire_hold_lag_seconds{label}") > 1
    assert metric(server, f"tidewire_hold_history_rows{label}") == 20
    assert metric(server, f"tidewire_hold_history_bytes{label}") > 20 * 4
    db.execute("ALTER HOLD h ADVANCE")
    assert metric(server, f"tidewire_hold_history_rows{label}") == 0


def test_disk_usage_depends_on_held_history(server: ServerThread, db: Connection) -> None:
    """The log keeps all versions of an updated row while they are held, and compacts them when the hold advances."""
    ((id,),) = db.execute("SELECT id FROM mz_objects WHERE name = 't'").fetchall()
    db.execute("CREATE HOLD h ON t")
    log = server.app.coordinator.log

    def held() -> tuple[int, int, int]:
        batches = log.batches(id)
        return len(batches), sum(b.rows for b in batches), sum(b.bytes for b in batches)

    for number in range(60):
        db.execute(f"UPDATE t SET a = {number}")
    await_retention(db, now(db))
    awaited(lambda: held()[0] < 20, "held history does not merge")
    _, rows, size = held()
    assert rows == 121
    db.execute("ALTER HOLD h ADVANCE")
    awaited(lambda: held()[1] < 20, "the log does not shrink")
    assert held()[2] < size
    assert db.execute("SELECT * FROM t").fetchall() == [(59,)]


def test_retain_history_keeps_a_length_of_history(db: Connection) -> None:
    db.execute("CREATE TABLE long (a int) WITH (RETAIN HISTORY FOR '1h')")
    db.execute("CREATE MATERIALIZED VIEW m WITH (RETAIN HISTORY = FOR '30 min') AS SELECT a FROM long")
    db.execute("CREATE INDEX i ON t (a) WITH (RETAIN HISTORY FOR '2h')")
    db.execute("INSERT INTO long VALUES (1)")
    start = now(db)
    db.execute("INSERT INTO long VALUES (2)")
    await_since(db, "t", start)
    assert values(db, "long", start) == values(db, "m", start) == [1]
    assert since(db, "i") <= start
    assert values(db, "t", start) == [1], "by way of the index"
    strategies = (
        "SELECT o.name, strategy, value FROM mz_internal.mz_history_retention_strategies r "
        "JOIN mz_objects o ON o.id = r.id JOIN mz_schemas s ON s.id = o.schema_id "
        "JOIN mz_databases d ON d.id = s.database_id WHERE d.name = current_database() ORDER BY 1"
    )
    said = [("i", "FOR", 7_200_000), ("long", "FOR", 3_600_000), ("m", "FOR", 1_800_000)]
    assert db.execute(strategies).fetchall() == [*said, ("probe", "FOR", 1_000), ("t", "FOR", 1_000)]
    ((_, create),) = db.execute("SHOW CREATE TABLE long").fetchall()
    assert create.endswith("WITH (RETAIN HISTORY FOR '3600s')")
    born = since(db, "long")
    db.execute("ALTER TABLE long SET (RETAIN HISTORY FOR '1s')")
    await_since(db, "long", born + 1)
    shortened = since(db, "long")
    db.execute("ALTER TABLE long SET (RETAIN HISTORY FOR '1h')")
    assert shortened <= since(db, "long"), "a longer window brings nothing back"
    db.execute("ALTER MATERIALIZED VIEW m RESET (RETAIN HISTORY)")
    db.execute("ALTER INDEX i RESET (RETAIN HISTORY)")
    await_since(db, "m", start)
    assert ("m", "FOR", 1_000) in db.execute(strategies).fetchall()
    refused(db, f"SELECT * FROM t AS OF {start}", "22000")


def test_retain_history_is_checked(db: Connection) -> None:
    refused(db, "CREATE TABLE x (a int) WITH (RETAIN HISTORY FOR '-1s')", "22023", "out of range")
    refused(db, "CREATE TABLE x (a int) WITH (RETAIN HISTORY FOR 'long')", "22007")
    refused(db, "CREATE TABLE x (a int) WITH (RETAIN HISTORY FOR '0')", "22023", "not enabled")
    db.execute("CREATE VIEW v AS SELECT 1")
    refused(db, "ALTER VIEW v SET (RETAIN HISTORY FOR '1s')", "42809", 'cannot set RETAIN HISTORY of view "v"')
    db.execute("ALTER SYSTEM SET enable_unlimited_retain_history = on")
    try:
        db.execute("CREATE TABLE x (a int) WITH (RETAIN HISTORY FOR '0')")
        start = now(db)
        await_retention(db, start)
        assert values(db, "x", start) == []
    finally:
        db.execute("ALTER SYSTEM RESET enable_unlimited_retain_history")


def test_a_hold_starts_at_the_retained_read_frontier(db: Connection) -> None:
    """On a table with RETAIN HISTORY, a hold starts at the read frontier that the retention window gives."""
    db.execute("CREATE TABLE long (a int) WITH (RETAIN HISTORY FOR '1h')")
    born = since(db, "long")
    awaited(lambda: since(db, "t") > born, "time does not advance")
    db.execute("CREATE HOLD h ON long")
    assert place(db, "h") == born
    db.execute(f"ALTER HOLD h ADVANCE TO {now(db)}")
    db.execute("ALTER HOLD h ADVANCE")
    assert place(db, "h") == born


def test_explain_timestamp(db: Connection) -> None:
    ((text,),) = db.execute("EXPLAIN TIMESTAMP FOR SELECT * FROM t").fetchall()
    lines = text.splitlines()
    labels = [line.partition(":")[0].strip() for line in lines[:8]]
    assert labels == [
        "query timestamp",
        "oracle read timestamp",
        "largest not in advance of upper",
        "upper",
        "since",
        "can respond immediately",
        "timeline",
        "session wall time",
    ]
    assert "       can respond immediately: true".strip() in text
    (query, oracle, largest, upper, low) = (int(re.findall(r"\d{13}", line)[0]) for line in lines[:5])
    assert query == oracle == largest == upper - 1
    assert low == upper - 1 - 1_000 or low == since(db, "t")
    assert re.search(rf"source {db.info.dbname}\.public\.t \(u\d+, storage\):\n +read frontier:\[\d+ ", text)
    ((text,),) = db.execute(f"EXPLAIN TIMESTAMP FOR SELECT * FROM t AS OF {upper + 10**9}").fetchall()
    assert "can respond immediately: false" in text
    ((text,),) = db.execute("EXPLAIN TIMESTAMP AS JSON FOR SELECT * FROM t").fetchall()
    shown = json.loads(text)
    assert shown["respond_immediately"] is True
    context = shown["determination"]["timestamp_context"]["TimelineTimestamp"]
    assert context["chosen_ts"] == shown["determination"]["oracle_read_ts"] >= query
    assert [source["name"].split(" ")[0] for source in shown["sources"]] == [f"{db.info.dbname}.public.t"]
    ((text,),) = db.execute("EXPLAIN TIMESTAMP FOR SELECT 1").fetchall()
    assert "timeline: None" in text
    refused(db, "EXPLAIN TIMESTAMP FOR SELECT * FROM t AS OF 1", "22000")
    refused(db, "EXPLAIN TIMESTAMP FOR INSERT INTO t VALUES (1)", "0A000")


def test_comments(db: Connection) -> None:
    db.execute("CREATE HOLD h ON t")
    db.execute("CREATE VIEW v AS SELECT a FROM t")
    for statement in (
        "COMMENT ON TABLE t IS 'payments, in cents'",
        "COMMENT ON COLUMN t.a IS 'the amount'",
        "COMMENT ON HOLD h IS 'the mailer''s'",
        "COMMENT ON VIEW v IS 'going'",
        "COMMENT ON SCHEMA public IS 'everything'",
    ):
        db.execute(statement)
    mine = (
        "SELECT object_type, object_sub_id, comment FROM mz_internal.mz_comments WHERE comment IN "
        "('payments, in cents', 'the amount', 'the mailer''s', 'going', 'everything', 'gone') ORDER BY comment"
    )
    assert db.execute(mine).fetchall() == [
        ("schema", None, "everything"),
        ("view", None, "going"),
        ("table", None, "payments, in cents"),
        ("table", 1, "the amount"),
        ("hold", None, "the mailer's"),
    ]
    db.execute("COMMENT ON SCHEMA public IS NULL")
    db.execute("COMMENT ON COLUMN t.a IS ''")
    db.execute("DROP VIEW v")
    assert [row[2] for row in db.execute(mine).fetchall()] == ["payments, in cents", "the mailer's"]
    db.execute("DROP HOLD h")
    db.execute("COMMENT ON TABLE t IS NULL")
    assert db.execute(mine).fetchall() == []
    refused(db, "COMMENT ON TABLE nothing IS 'x'", "42P01")
    refused(db, "COMMENT ON HOLD nothing IS 'x'", "42704")
    refused(db, "COMMENT ON VIEW t IS 'x'", "42809")
    refused(db, "COMMENT ON COLUMN t.b IS 'x'", "42703")
    refused(db, "COMMENT ON TABLE mz_tables IS 'x'", "42501")


def test_quickstart_is_the_only_cluster(db: Connection) -> None:
    db.execute("SET cluster = quickstart")
    assert db.execute("SHOW CLUSTERS").fetchall() == [("quickstart",)]
    assert db.execute("SELECT name FROM mz_clusters").fetchall() == [("quickstart",)]
    db.execute("CREATE MATERIALIZED VIEW m IN CLUSTER quickstart AS SELECT a FROM t")
    db.execute("CREATE INDEX i IN CLUSTER quickstart ON t (a)")
    refused(db, "CREATE INDEX j IN CLUSTER other ON t (a)", "42704", 'unknown cluster "other"')
    refused(db, "SET cluster = other", "22023")


def test_retention_values_are_json(db: Connection) -> None:
    ((value,),) = db.execute("SELECT value::text FROM mz_internal.mz_history_retention_strategies LIMIT 1").fetchall()
    assert json.loads(value) >= 0
