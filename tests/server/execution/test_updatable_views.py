"""INSERT, UPDATE and DELETE of views change tables as in PostgreSQL, and subscribers of the views see the changes."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.examples import seeds
from tests.fix_postgres import own_schema
from tests.fix_server import ServerThread
from tests.polling import HANG_S, until
from tests.server.execution.test_subscribe import Follower, now
from tests.server.execution.test_write import done
from tests.server.slow_engine import PassingEngine

VIEWS = (
    "CREATE TABLE t (id int PRIMARY KEY, a int, b text DEFAULT 'none', CHECK (a < 1000))",
    "CREATE VIEW v AS SELECT b, id AS k, a, a * 2 AS twice FROM t WHERE a IS NULL OR a % 2 = 0",
    "CREATE VIEW w AS SELECT twice + 1 AS next, k, a AS x FROM v WHERE k > 3 ORDER BY k DESC",
)


@pytest.fixture
def ours(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in VIEWS:
            connection.execute(statement.encode())
        yield connection


def random_statement(dice: random.Random) -> str:
    key, value = dice.randrange(8), dice.choice(["NULL", *map(str, range(8))])
    where_v = dice.choice([f"k = {key}", f"a = {value}", f"twice > {key}", f"k IN ({key}, {key + 1})", "b <> 'x'"])
    where_w = dice.choice([f"k = {key}", f"x = {value}", f"next > {key}", f"k > {key} AND next IS NULL"])
    return dice.choice(
        (
            f"INSERT INTO v (k, a) VALUES ({key}, {value}) RETURNING *",
            f"INSERT INTO v VALUES ('x', {key}, {value}), (DEFAULT, {key + 8}, DEFAULT)",
            f"INSERT INTO w (k, x) SELECT k + 8, {value} FROM v WHERE k = {key} RETURNING next",
            f"INSERT INTO w (k, x) VALUES ({key}, {value}) ON CONFLICT (k) DO NOTHING RETURNING *",
            f"INSERT INTO v (k, a, b) VALUES ({key}, {value}, 'c') ON CONFLICT (k)"
            " DO UPDATE SET a = excluded.twice, b = v.b || excluded.b WHERE v.twice IS NOT NULL RETURNING *",
            f"UPDATE v SET a = {value} WHERE {where_v} RETURNING *",
            f"UPDATE w SET x = next WHERE {where_w}",
            f"UPDATE w SET x = x + {key} WHERE {where_w} RETURNING *",
            f"UPDATE v SET b = t.b, a = t.a FROM t WHERE t.id = v.k + 1 AND {where_v.replace('b <>', 'v.b <>')}"
            if " a " not in where_v and not where_v.startswith("a")
            else f"UPDATE v SET b = 'y' WHERE {where_v}",
            f"DELETE FROM v WHERE {where_v} RETURNING *",
            f"DELETE FROM w WHERE {where_w} RETURNING k, next",
            f"DELETE FROM w USING t WHERE t.id = w.k AND t.id = {key} RETURNING w.*, t.b",
        )
    )


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(1))
def test_random_writes_change_the_same_rows_as_in_postgresql(
    ours: psycopg.Connection[Any], postgres: str, seed: int
) -> None:
    dice = random.Random(seed)
    with own_schema(postgres, "views") as theirs:
        for statement in VIEWS:
            theirs.execute(statement.encode())
        for _ in range(60):
            statement = random_statement(dice)
            assert done(ours, statement) == done(theirs, statement), statement
            if dice.random() < 0.3:
                assert done(ours, "TABLE t") == done(theirs, "TABLE t"), statement


def test_subscribers_follow_writes_through_a_view(ours: psycopg.Connection[Any], dsn: str) -> None:
    follower = Follower(dsn, "SELECT k, x, next FROM w")
    try:
        ours.execute("INSERT INTO w (k, x) VALUES (4, 2), (5, 3), (1, 2)")
        assert follower.at(now(ours)) == Counter({(4, 2, 5): 1})
        ours.execute("UPDATE w SET x = x + 2 WHERE next = 5")
        assert follower.at(now(ours)) == Counter({(4, 4, 9): 1})
        with ours.transaction():
            ours.execute("UPDATE w SET k = 6 WHERE k = 4")
            ours.execute("INSERT INTO v (k, a, b) VALUES (7, NULL, 'x')")
            assert ours.execute("SELECT k FROM w").fetchall() == [(7,), (6,)]
        assert follower.at(now(ours)) == Counter({(6, 4, 9): 1, (7, None, None): 1})
        assert ours.execute("DELETE FROM w").rowcount == 2
        assert follower.at(now(ours)) == Counter()
        assert ours.execute("SELECT id FROM t ORDER BY id").fetchall() == [(1,), (5,)]
        changes = [message[2] for message in follower.messages if not message[1]]
        assert sorted(changes) == [-1] * 4 + [1] * 4, "nothing but the changes of the rows that the view has"
    finally:
        follower.stop()


def test_merge_into_a_view(ours: psycopg.Connection[Any]) -> None:
    ours.execute("INSERT INTO t VALUES (1, 2, 'x'), (2, 3, 'hidden'), (3, 4, 'y')")
    found = ours.execute(
        "MERGE INTO v USING (VALUES (1, 10), (3, 20), (4, 30)) AS s (k, n) ON v.k = s.k"
        " WHEN MATCHED AND v.twice > 4 THEN DELETE WHEN MATCHED THEN UPDATE SET a = v.twice + s.n"
        " WHEN NOT MATCHED THEN INSERT (k, a) VALUES (s.k, s.n) RETURNING merge_action(), v.*"
    ).fetchall()
    assert sorted(found) == [
        ("DELETE", "y", 3, 4, 8),
        ("INSERT", "none", 4, 30, 60),
        ("UPDATE", "x", 1, 14, 28),
    ]
    assert ours.execute("SELECT id, a FROM t ORDER BY id").fetchall() == [(1, 14), (2, 3), (4, 30)]


def test_many_rows_are_checked(ours: psycopg.Connection[Any]) -> None:
    ours.execute("CREATE VIEW even AS SELECT k, a FROM v WITH CASCADED CHECK OPTION")
    ours.execute("CREATE VIEW named AS SELECT k, b FROM v WHERE b = current_user WITH LOCAL CHECK OPTION")
    many = ", ".join(f"({key}, {key % 300 * 2})" for key in range(2_000))
    assert ours.execute(f"INSERT INTO even VALUES {many}".encode()).rowcount == 2_000
    for statement, name in (
        (f"INSERT INTO even VALUES {many.replace('(1999, 398)', '(1999, 399)')}", "v"),
        ("UPDATE even SET a = k + 1 WHERE k < 10", "v"),
        ("INSERT INTO even SELECT k + 5000, twice / 4 FROM v", "v"),
        ("INSERT INTO named VALUES (-1, 'nobody')", "named"),
        ("MERGE INTO even USING t ON t.id = even.k WHEN MATCHED THEN UPDATE SET a = 5", "v"),
    ):
        with pytest.raises(psycopg.Error, match=f'new row violates check option for view "{name}"'):
            ours.execute(statement.encode())
    ours.execute("INSERT INTO named VALUES (-1, current_user)")
    assert ours.execute("SELECT count(*) FROM t WHERE a % 2 = 1 OR id > 2000").fetchall() == [(0,)]


def test_a_statement_that_waited_uses_the_view_that_replaced_its_own(ours: psycopg.Connection[Any], dsn: str) -> None:
    ours.execute("INSERT INTO t VALUES (1, 2), (2, 4)")
    found: list[int] = []

    def delete() -> None:
        with psycopg.connect(dsn, autocommit=True) as other:
            found.append(other.execute("DELETE FROM v").rowcount)

    with psycopg.connect(dsn, autocommit=True) as holder:
        holder.execute("BEGIN")
        holder.execute("UPDATE t SET b = 'held'")
        thread = threading.Thread(target=delete)
        thread.start()
        until(lambda: ours.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchall())
        ours.execute("CREATE OR REPLACE VIEW v AS SELECT b, id AS k, a, a * 2 AS twice FROM t WHERE id = 2")
        holder.execute("COMMIT")
        thread.join(HANG_S)
    assert found == [1]
    assert ours.execute("SELECT id, b FROM t").fetchall() == [(1, "held")]


def test_what_views_refuse(passing_server: ServerThread) -> None:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as connection:
        for statement in VIEWS:
            connection.execute(statement.encode())
        connection.execute("CREATE MATERIALIZED VIEW m AS SELECT id FROM t")
        for statement, sqlstate, message, hint in (
            ("COPY v FROM STDIN", "42809", 'cannot copy to view "v"', "Use INSERT, or copy to the table"),
            ("DELETE FROM m", "42809", 'cannot delete from materialized view "m"', None),
            ("INSERT INTO m VALUES (1)", "42809", 'cannot insert into materialized view "m"', None),
            ("DELETE FROM pg_class", "42809", "cannot delete from", None),
            ("UPDATE w SET next = 1", "0A000", 'cannot update column "next" of view "w"', None),
        ):
            with pytest.raises(psycopg.Error) as caught:
                connection.execute(statement.encode())
            diagnosis = caught.value.diag
            assert caught.value.sqlstate == sqlstate
            assert str(diagnosis.message_primary).startswith(message), statement
            assert hint is None or str(diagnosis.message_hint).startswith(hint), statement


def test_rows_of_a_cursor_are_not_written_through_a_view(passing_server: ServerThread) -> None:
    with psycopg.connect(passing_server.dsn()) as connection:
        for statement in VIEWS:
            connection.execute(statement.encode())
        connection.execute("INSERT INTO v (k, a) VALUES (1, 2)")
        connection.commit()
        connection.execute("DECLARE c CURSOR FOR SELECT * FROM t FOR UPDATE")
        connection.execute("FETCH c")
        with pytest.raises(psycopg.Error, match="WHERE CURRENT OF on a view is not implemented") as caught:
            connection.execute("DELETE FROM v WHERE CURRENT OF c")
        assert caught.value.sqlstate == "0A000"


def test_constants_are_inserted_without_spark(passing_server: ServerThread) -> None:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as connection:
        for statement in VIEWS:
            connection.execute(statement.encode())
        connection.execute("INSERT INTO w (k, x) VALUES (1, 2)")
        for key in (2, 3):
            connection.execute("INSERT INTO v (b, k) VALUES (%s, %s)", ("x", key), prepare=True)
        connection.execute("CREATE TABLE plain (a int, b text DEFAULT 'd', c int)")
        connection.execute("CREATE VIEW p AS SELECT c, a, a + 1 AS s FROM plain")
        many = ", ".join(f"({key}, {-key})" for key in range(1_000))
        assert connection.execute(f"INSERT INTO p VALUES {many}".encode()).rowcount == 1_000
        assert connection.execute("TABLE plain").fetchall() == [(-key, "d", key) for key in range(1_000)]
        with pytest.raises(psycopg.Error, match='cannot insert into column "s" of view "p"'):
            connection.execute(f"INSERT INTO p (c, s) VALUES {many}".encode())
        with pytest.raises(psycopg.Error, match='violates check constraint "t_a_check"'):
            connection.execute("INSERT INTO w (k, x) VALUES (1, 2000)")
        assert connection.execute("TABLE t").fetchall() == [(1, 2, "none"), (2, None, "x"), (3, None, "x")]


def test_check_options_survive_a_restart_and_are_shown(tmp_path: Path) -> None:
    server = ServerThread(tmp_path, PassingEngine())
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE TABLE t (a int, b text)")
        connection.execute("CREATE VIEW v AS SELECT a FROM t WHERE a > 0 WITH LOCAL CHECK OPTION")
        connection.execute("CREATE VIEW w WITH (check_option = cascaded) AS SELECT a FROM v")
        with pytest.raises(psycopg.Error, match="a subquery in the condition"):
            connection.execute("CREATE VIEW x AS SELECT a FROM t WHERE a IN (SELECT a FROM t) WITH CHECK OPTION")
        with pytest.raises(psycopg.Error, match="only on automatically updatable views") as caught:
            connection.execute("CREATE VIEW x AS SELECT a FROM t LIMIT 1 WITH CHECK OPTION")
        assert caught.value.diag.message_hint == "Views containing LIMIT or OFFSET are not automatically updatable."
    server.stop()
    server = ServerThread(tmp_path, PassingEngine())
    try:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            for name, ending in (("v", "WITH LOCAL CHECK OPTION"), ("w", "WITH CASCADED CHECK OPTION")):
                ((_, text),) = connection.execute(f"SHOW CREATE VIEW {name}".encode()).fetchall()
                assert text.endswith(ending)
                with pytest.raises(psycopg.Error, match='violates check option for view "v"') as refused:
                    connection.execute(f"INSERT INTO {name} VALUES (0)".encode())
                assert refused.value.sqlstate == "44000"
                assert refused.value.diag.message_detail == "Failing row contains (0, null)."
            connection.execute("ALTER TABLE t RENAME a TO z")
            with pytest.raises(psycopg.Error, match='violates check option for view "v"'):
                connection.execute("INSERT INTO w VALUES (0)")
            connection.execute("CREATE OR REPLACE VIEW v AS SELECT z AS a FROM t WHERE z > 0")
            connection.execute("INSERT INTO v VALUES (0)")
    finally:
        server.stop()
