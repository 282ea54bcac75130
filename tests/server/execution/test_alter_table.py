"""ALTER TABLE of columns: what becomes of rows, views, indexes, subscriptions and history."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import errors

from server.spark.engine import SparkEngine
from tests.examples import examples
from tests.fix_postgres import own_schema
from tests.fix_server import Connect, ServerThread
from tests.polling import HANG_S
from tests.server.execution.test_sequences import differences
from tests.server.execution.test_write import done

Connection = psycopg.Connection[Any]


@pytest.fixture
def ours(connect: Connect) -> Connection:
    return connect()


def rows(connection: Connection, query: str) -> list[Any]:
    return sorted(connection.execute(query.encode()).fetchall(), key=repr)


def test_added_columns_have_their_default_in_existing_rows(ours: Connection) -> None:
    ours.execute("CREATE TABLE t (k int, v text); INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    ours.execute(
        "ALTER TABLE t ADD COLUMN n int DEFAULT 7, ADD COLUMN IF NOT EXISTS s numeric(6, 2) DEFAULT 1.5, ADD x date"
    )
    ours.execute("INSERT INTO t (k, v) VALUES (3, 'c'); INSERT INTO t VALUES (4, 'd', 0, 2.25, '2024-02-01')")
    found = (
        "[(1, 'a', 7, Decimal('1.50'), None), (2, 'b', 7, Decimal('1.50'), None), (3, 'c', 7, Decimal('1.50'), None), "
    )
    assert repr(rows(ours, "SELECT * FROM t")) == found + "(4, 'd', 0, Decimal('2.25'), datetime.date(2024, 2, 1))]"
    ours.execute("UPDATE t SET n = n + 1 WHERE k = 1; DELETE FROM t WHERE k = 2; ALTER TABLE t DROP COLUMN v")
    assert rows(ours, "SELECT k, n FROM t") == [(1, 8), (3, 7), (4, 0)]
    ours.execute("ALTER TABLE t ADD COLUMN v text")
    assert rows(ours, "SELECT v, k FROM t") == [(None, 1), (None, 3), (None, 4)]
    assert rows(ours, "SELECT sum(n), max(s) FROM t WHERE v IS NULL")[0][0] == 15


def test_long_values_of_added_columns_are_written_to_the_rows(ours: Connection) -> None:
    """Many of them, and a single one, also of a domain and without NULL."""
    ours.execute("CREATE DOMAIN long AS text CHECK (length(value) > 2); CREATE TABLE t (k int)")
    ours.execute("INSERT INTO t VALUES (1), (2)")
    ours.execute("ALTER TABLE t ADD COLUMN a long NOT NULL DEFAULT repeat('a', 50000)")
    many = ", ".join(f"ADD COLUMN b{number} text DEFAULT '{number}{'b' * 10_000}'" for number in range(5))
    ours.execute(f"ALTER TABLE t {many}".encode())
    ours.execute("INSERT INTO t (k) VALUES (3)")
    lengths = ", ".join(f"length(b{number}), left(b{number}, 1)" for number in range(5))
    expected = (50_000, *(part for number in range(5) for part in (10_001, str(number))))
    assert rows(ours, f"SELECT k, length(a), {lengths} FROM t") == [(k, *expected) for k in (1, 2, 3)]
    with pytest.raises(psycopg.errors.CheckViolation):
        ours.execute(f"ALTER TABLE t ADD COLUMN c text DEFAULT '{'c' * 50_000}' CHECK (length(c) < 10)".encode())


def test_views_keep_their_columns(ours: Connection) -> None:
    ours.execute("CREATE TABLE t (a int, b int, c int); INSERT INTO t VALUES (1, 2, 3), (4, 5, 6)")
    ours.execute(
        "CREATE VIEW every AS SELECT * FROM t; CREATE VIEW two AS SELECT x.a, t.b FROM t AS x JOIN t USING (a)"
    )
    ours.execute("CREATE MATERIALIZED VIEW sums AS SELECT a, sum(b) AS s FROM t GROUP BY a; CREATE INDEX by_b ON t (b)")
    ours.execute("CREATE VIEW added AS SELECT a + b AS ab FROM every")
    ours.execute("ALTER TABLE t RENAME COLUMN b TO d; ALTER TABLE t ADD COLUMN b text DEFAULT 'new'")
    ours.execute("ALTER TABLE t RENAME COLUMN a TO k; ALTER TABLE t RENAME b TO a")
    ours.execute("INSERT INTO t VALUES (7, 8, 9, 'x')")
    assert rows(ours, "SELECT * FROM t") == [(1, 2, 3, "new"), (4, 5, 6, "new"), (7, 8, 9, "x")]
    assert rows(ours, "SELECT * FROM every") == [(1, 2, 3), (4, 5, 6), (7, 8, 9)]
    assert rows(ours, "SELECT * FROM two") == [(1, 2), (4, 5), (7, 8)]
    assert rows(ours, "SELECT * FROM sums") == [(1, 2), (4, 5), (7, 8)]
    assert rows(ours, "SELECT * FROM added") == [(15,), (3,), (9,)]
    assert rows(ours, "SELECT k FROM t WHERE d = 5") == [(4,)]
    assert [
        r[0]
        for r in ours.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 0 ORDER BY attnum"
        )
    ] == ["k", "d", "c", "a"]
    with pytest.raises(errors.DependentObjectsStillExist) as refused:
        ours.execute("ALTER TABLE t DROP COLUMN c")
    assert refused.value.diag.message_primary == "cannot drop column c of table t because other objects depend on it"
    assert (
        refused.value.diag.message_detail
        == "view every depends on column c of table t\nview added depends on view every"
    )
    assert refused.value.diag.message_hint == "Use DROP ... CASCADE to drop the dependent objects too."
    with pytest.raises(errors.FeatureNotSupported) as refused:
        ours.execute("ALTER TABLE t ALTER COLUMN d TYPE text")
    assert refused.value.diag.message_primary == "cannot alter type of a column used by a view or rule"
    ours.execute("ALTER TABLE t DROP COLUMN c CASCADE")
    assert rows(ours, "SELECT name FROM mz_views WHERE id LIKE 'u%'") == [("two",)]
    assert rows(ours, "SELECT * FROM two") == [(1, 2), (4, 5), (7, 8)]
    ours.execute("DELETE FROM t WHERE k = 4")
    assert rows(ours, "SELECT * FROM sums") == [(1, 2), (7, 8)]
    shown = ours.execute("SHOW CREATE VIEW two").fetchone()
    assert shown is not None
    ours.execute("DROP VIEW two")
    ours.execute(shown[1].encode())
    assert rows(ours, "SELECT * FROM two") == [(1, 2), (7, 8)]


def test_not_null_and_types(ours: Connection) -> None:
    ours.execute("CREATE TABLE t (k int, v text); INSERT INTO t VALUES (1, '10'), (2, NULL)")
    with pytest.raises(errors.NotNullViolation, match='column "v" of relation "t" contains null values'):
        ours.execute("ALTER TABLE t ALTER COLUMN v SET NOT NULL")
    ours.execute("UPDATE t SET v = '20' WHERE k = 2; ALTER TABLE t ALTER v SET NOT NULL, ALTER v SET DEFAULT '5'")
    with pytest.raises(errors.NotNullViolation):
        ours.execute("INSERT INTO t VALUES (3, NULL)")
    ours.execute("INSERT INTO t VALUES (3)")
    with pytest.raises(errors.DatatypeMismatch) as refused:
        ours.execute("ALTER TABLE t ALTER COLUMN v TYPE int")
    assert refused.value.diag.message_primary == 'column "v" cannot be cast automatically to type integer'
    assert refused.value.diag.message_hint == 'You might need to specify "USING v::integer".'
    ours.execute("ALTER TABLE t ALTER v DROP DEFAULT, ALTER v TYPE int USING v::int * 2, ALTER k TYPE bigint")
    assert rows(ours, "SELECT k, v FROM t") == [(1, 20), (2, 40), (3, 10)]
    assert rows(ours, "SELECT max(v) FROM t WHERE k > 1") == [(40,)]
    ours.execute("ALTER TABLE t ALTER v DROP NOT NULL; INSERT INTO t VALUES (4, NULL)")
    assert rows(ours, "SELECT v FROM t WHERE k = 4") == [(None,)]


def test_blocks_roll_back(connect: Connect) -> None:
    ours, other = connect(), connect()
    ours.execute("CREATE TABLE t (k int, v text); INSERT INTO t VALUES (1, 'a')")
    ours.execute("CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t")
    for end in ("ROLLBACK", "COMMIT"):
        ours.execute(
            "BEGIN; INSERT INTO t VALUES (2, 'b'); SAVEPOINT s; ALTER TABLE t ADD n int DEFAULT 3, DROP COLUMN v"
        )
        ours.execute("INSERT INTO t VALUES (4, 5)")
        assert rows(ours, "SELECT * FROM t") == [(1, 3), (2, 3), (4, 5)]
        ours.execute("ROLLBACK TO s")
        assert rows(ours, "SELECT * FROM t") == [(1, "a"), (2, "b")]
        ours.execute(
            "ALTER TABLE t ADD COLUMN w int DEFAULT 9; UPDATE t SET w = 8 WHERE k = 2;"
            "ALTER TABLE t ALTER v TYPE int USING k"
        )
        assert rows(ours, "SELECT * FROM t") == [(1, 1, 9), (2, 2, 8)]
        assert rows(ours, "SELECT * FROM m") == [(2,)]
        assert rows(other, "SELECT * FROM t") == [(1, "a")]
        ours.execute(end)
        if end == "ROLLBACK":
            assert rows(ours, "SELECT * FROM t") == rows(other, "SELECT * FROM t") == [(1, "a")]
    assert rows(other, "SELECT * FROM t") == [(1, 1, 9), (2, 2, 8)]
    assert rows(other, "SELECT * FROM m") == [(2,)]


def test_subscriptions_end_and_history_stays(connect: Connect) -> None:
    ours, other = connect(), connect()
    ours.execute("CREATE TABLE t (k int, v text) WITH (RETAIN HISTORY FOR '1h'); CREATE HOLD h ON t")
    ours.execute("CREATE MATERIALIZED VIEW m WITH (RETAIN HISTORY FOR '1h') AS SELECT k FROM t WHERE k > 0")
    ours.execute("INSERT INTO t VALUES (1, 'a')")
    before = ours.execute("SELECT mz_now()::text, k FROM t").fetchone()
    assert before is not None
    for query in ("t", "(SELECT v, count(*) FROM t GROUP BY v)", "(SELECT k FROM t WHERE k = 1)"):
        with connect().cursor() as cursor:
            stream = cursor.stream(f"SUBSCRIBE {query}".encode())
            next(stream)
            ours.execute("ALTER TABLE t ADD COLUMN n int DEFAULT 7")
            with pytest.raises(psycopg.Error, match=r'relation ".*\.public\.t" was altered'):
                for _ in stream:
                    pass
        ours.execute("ALTER TABLE t DROP COLUMN n")
    with connect().cursor() as cursor:
        stream = cursor.stream("SUBSCRIBE m")
        assert next(stream)[1:] == (1, 1)
        ours.execute("ALTER TABLE t ADD COLUMN n int DEFAULT 7; INSERT INTO t VALUES (2, 'b', 8)")
        assert next(stream)[1:] == (1, 2)
        ours.execute("ALTER TABLE t ALTER COLUMN v TYPE int USING length(v); INSERT INTO t VALUES (3, 5, 9)")
        assert next(stream)[1:] == (1, 3)
        stream.close()
    assert rows(other, "SELECT * FROM t") == [(1, 1, 7), (2, 1, 8), (3, 5, 9)]
    with pytest.raises(psycopg.Error, match="could not find a valid timestamp"):
        ours.execute(f"SELECT * FROM t AS OF {before[0]}".encode())
    assert rows(ours, f"SELECT * FROM m AS OF {before[0]}") == [(1,)]


def test_old_rows_are_read_with_the_columns_of_today(ours: Connection) -> None:
    ours.execute("CREATE TABLE t (k int, v text) WITH (RETAIN HISTORY FOR '1h'); INSERT INTO t VALUES (1, 'a')")
    before = ours.execute("SELECT mz_now()::text, k FROM t").fetchone()
    assert before is not None
    ours.execute("ALTER TABLE t ADD COLUMN n int DEFAULT 7, DROP COLUMN v; DELETE FROM t; INSERT INTO t VALUES (2, 8)")
    assert rows(ours, f"SELECT * FROM t AS OF {before[0]}") == [(1, 7)]
    assert rows(ours, "SELECT * FROM t") == [(2, 8)]
    stream = ours.cursor().stream(f"SUBSCRIBE t AS OF {before[0]}".encode())
    assert sorted(next(stream)[1:] for _ in range(3)) == [(-1, 1, 7), (1, 1, 7), (1, 2, 8)]
    stream.close()


NAMES = st.sampled_from(("a", "b", "c", "d"))
NUMBERS = st.integers(0, 3)
ACTIONS = st.one_of(
    st.builds("ADD COLUMN {} int DEFAULT {}".format, NAMES, NUMBERS),
    st.builds("ADD COLUMN IF NOT EXISTS {} text".format, NAMES),
    st.builds("ADD {} int NOT NULL".format, NAMES),
    st.builds("DROP COLUMN {}".format, NAMES),
    st.builds("DROP COLUMN IF EXISTS {} CASCADE".format, NAMES),
    st.builds("ALTER {} SET DEFAULT {}".format, NAMES, NUMBERS),
    st.builds("ALTER {} DROP DEFAULT".format, NAMES),
    st.builds("ALTER {} SET NOT NULL".format, NAMES),
    st.builds("ALTER {} DROP NOT NULL".format, NAMES),
    st.builds("ALTER {} TYPE text".format, NAMES),
    st.builds("ALTER {} TYPE bigint".format, NAMES),
    st.builds("ALTER {0} TYPE int USING length({0}::text) + {1}".format, NAMES, NUMBERS),
)
ALTERATIONS = st.one_of(
    st.builds(lambda actions: f"ALTER TABLE t {', '.join(actions)}", st.lists(ACTIONS, min_size=1, max_size=3)),
    st.builds("ALTER TABLE t RENAME COLUMN {} TO {}".format, NAMES, NAMES),
    st.builds("ALTER TABLE IF EXISTS t RENAME {} TO {}".format, NAMES, NAMES),
)
CHANGES = st.one_of(
    st.builds("INSERT INTO t (k, {}) VALUES ({}, {})".format, NAMES, NUMBERS, NUMBERS),
    st.builds("INSERT INTO t (k) VALUES ({})".format, NUMBERS),
    st.builds("UPDATE t SET {} = DEFAULT WHERE k = {} RETURNING *".format, NAMES, NUMBERS),
    st.builds("UPDATE t SET k = k + 1 WHERE k < {}".format, NUMBERS),
    st.builds("DELETE FROM t WHERE k = {}".format, NUMBERS),
    st.builds("SAVEPOINT x".format),
    st.builds("ROLLBACK TO x".format),
)
READ_VIEWS = ("SELECT * FROM v", "SELECT * FROM m")
READS = st.sampled_from(("SELECT * FROM t", *READ_VIEWS))
BLOCKS = st.tuples(
    st.sampled_from(("BEGIN", "")),
    st.lists(st.one_of(ALTERATIONS, ALTERATIONS, CHANGES, CHANGES, READS), max_size=8),
    st.sampled_from(("COMMIT", "ROLLBACK")),
)
VIEWS = (
    "CREATE VIEW v AS SELECT k, a FROM t WHERE k > 0",
    "CREATE VIEW m AS SELECT k, count(a) AS n FROM t GROUP BY k",
)
COLUMNS = """SELECT column_name, is_nullable, data_type, ordinal_position > 0 FROM information_schema.columns
    WHERE table_name = 't' AND table_schema = current_schema()"""


@pytest.fixture(scope="module")
def theirs(postgres: str) -> Iterator[Connection]:
    with own_schema(postgres, "alterations") as connection:
        yield connection
        connection.execute("ROLLBACK")


@pytest.mark.sql
def test_tables_are_altered_as_in_postgresql(theirs: Connection, connect: Connect) -> None:
    ours, other = connect(), connect()
    for connection in (ours, other, theirs):
        connection.prepare_threshold = None  # a prepared statement fails after the columns have changed

    @examples(60)
    @given(st.lists(BLOCKS, min_size=1, max_size=4), st.sampled_from(("", *VIEWS)), st.booleans(), st.booleans())
    def compare(blocks: list[tuple[str, list[str], str]], view: str, has_index: bool, has_key: bool) -> None:
        for connection in (theirs, ours):
            connection.execute("ROLLBACK")
            connection.execute("DROP TABLE IF EXISTS t CASCADE")
            connection.execute("CREATE TABLE t (k int, a int, b text); INSERT INTO t VALUES (1, 2, 'x'), (2, 3, NULL)")
            if has_index:
                connection.execute("CREATE INDEX ON t (b); CREATE INDEX ON t (k)")
            if has_key:
                connection.execute("ALTER TABLE t ADD UNIQUE (b)")
        if view:
            theirs.execute(view.encode())
            ours.execute(view.replace("VIEW m", "MATERIALIZED VIEW m").encode())
        for begin, statements, end in blocks:
            for statement in (begin, "SAVEPOINT x", *statements, end, "SELECT * FROM t", COLUMNS, *READ_VIEWS):
                result, expected = done(ours, statement), done(theirs, statement)
                if statement.startswith("ALTER") and "," in statement and expected[1] is None:
                    # PostgreSQL checks some actions before it applies others, so the first error may be another one.
                    assert (result[0] == "ALTER TABLE") == (expected[0] == "ALTER TABLE"), (statement, blocks)
                else:
                    assert result == expected, (statement, blocks)
            assert done(other, "SELECT * FROM t") == done(theirs, "SELECT * FROM t"), "another session"

    compare()


def test_a_restart_keeps_altered_tables(engine: SparkEngine, tmp_path: Path) -> None:
    server = ServerThread(tmp_path, engine)
    try:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute(
                "CREATE TABLE t (k int, v text) WITH (RETAIN HISTORY FOR '1h'); INSERT INTO t VALUES (1, 'a')"
            )
            connection.execute(
                "CREATE MATERIALIZED VIEW m AS SELECT k, count(*) AS n FROM t GROUP BY k; CREATE INDEX ON t (k)"
            )
            connection.execute("ALTER TABLE t ADD COLUMN n int DEFAULT 7; INSERT INTO t VALUES (2, 'b', 8)")
            connection.execute(
                "ALTER TABLE t ALTER v TYPE int USING n; ALTER TABLE t DROP COLUMN n; INSERT INTO t VALUES (3, 9)"
            )
    finally:
        server.stop()
    server = ServerThread(tmp_path, engine)
    try:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute("ALTER TABLE t ADD COLUMN w text DEFAULT 'w'; DELETE FROM t WHERE k = 1")
            assert rows(connection, "SELECT * FROM t") == [(2, 8, "w"), (3, 9, "w")]
            assert rows(connection, "SELECT v FROM t WHERE k = 3") == [(9,)]
            assert rows(connection, "SELECT * FROM m") == [(2, 1), (3, 1)]
            with pytest.raises(psycopg.Error, match="could not find a valid timestamp"):
                connection.execute("SELECT * FROM t AS OF 1")
    finally:
        server.stop()


def test_writers_with_an_earlier_definition_fail(connect: Connect) -> None:
    ours, other = connect(), connect()
    ours.execute("CREATE TABLE t (k int, v int); INSERT INTO t VALUES (1, 2)")
    other.execute("BEGIN; INSERT INTO t VALUES (3, 4)")
    ours.execute("ALTER TABLE t DROP COLUMN k, ADD COLUMN k int")
    with pytest.raises(errors.SerializationFailure):
        other.execute("COMMIT")
    assert rows(ours, "SELECT * FROM t") == [(2, None)]
    ours.execute("BEGIN; ALTER TABLE t DROP COLUMN k, ADD COLUMN k int DEFAULT 5")
    waiting = threading.Thread(target=other.execute, args=("UPDATE t SET v = k WHERE v = 2",))
    waiting.start()  # it is planned for the old columns, and waits for the lock
    waiting.join(0.5)
    assert waiting.is_alive()
    ours.execute("COMMIT")
    waiting.join(HANG_S)
    assert rows(ours, "SELECT * FROM t") == [(5, 5)]


def test_other_relations_are_refused(ours: Connection) -> None:
    ours.execute(
        "CREATE TABLE t (k int); CREATE VIEW v AS SELECT k FROM t; CREATE MATERIALIZED VIEW m AS SELECT * FROM v"
    )
    for statement, code in (
        ("ALTER TABLE v ADD COLUMN a int", "42809"),
        ("ALTER TABLE t ADD COLUMN k int", "42701"),
        ("ALTER TABLE t DROP COLUMN k", "0A000"),
        ("ALTER TABLE missing ADD COLUMN k int", "42P01"),
        ("ALTER TABLE mz_tables ADD COLUMN k int", "42501"),
        ("ALTER TABLE t ADD COLUMN a int DEFAULT 'x'", "22P02"),
        ("ALTER TABLE t ALTER a SET NOT NULL", "42703"),
        ("ALTER TABLE t RENAME a TO b", "42703"),
        ("ALTER TABLE v RENAME COLUMN k TO b", "42809"),
        ("ALTER TABLE t ALTER k TYPE int USING (SELECT 1)", "0A000"),
    ):
        with pytest.raises(psycopg.Error) as refused:
            ours.execute(statement.encode())
        assert refused.value.sqlstate == code, statement
    ours.execute("ALTER TABLE IF EXISTS missing ADD COLUMN a int")
    ours.execute("ALTER VIEW v RENAME COLUMN k TO number; INSERT INTO t VALUES (1)")
    assert rows(ours, "SELECT number FROM v") == [(1,)]
    assert rows(ours, "SELECT k FROM m") == [(1,)]


def await_text(path: Path, part: str) -> None:
    """Waits until a file contains a text. Spaces are ignored."""
    deadline = time.monotonic() + 20
    while not path.exists() or part not in path.read_text().replace(" ", ""):
        assert time.monotonic() < deadline, part
        time.sleep(0.05)


def test_sinks_go_on(ours: Connection, tmp_path: Path) -> None:
    path = tmp_path / "changes"
    ours.execute("CREATE TABLE t (k int, v text); INSERT INTO t VALUES (1, 'a')")
    ours.execute(f"CREATE SINK s FROM t INTO FILE '{path}' FORMAT JSON ENVELOPE MATERIALIZE".encode())
    await_text(path, '"k":1,"v":"a"')
    ours.execute("ALTER TABLE t ADD COLUMN n int DEFAULT 7; INSERT INTO t (k) VALUES (2)")
    await_text(path, '"k":2,"v":null,"n":7')
    with pytest.raises(errors.FeatureNotSupported, match="cannot alter type of a column used by a sink"):
        ours.execute("ALTER TABLE t ALTER n TYPE text")
    ours.execute("DROP SINK s; ALTER TABLE t ALTER n TYPE text")
    assert rows(ours, "SELECT k, n FROM t WHERE k > 1") == [(2, "7")]


def test_keys_are_enforced_after_each_change(ours: Connection, theirs: Connection) -> None:
    theirs.execute("ROLLBACK; DROP TABLE IF EXISTS t CASCADE")
    for statement in (
        "CREATE TABLE t (a int, k int PRIMARY KEY, v int UNIQUE, w text)",
        "INSERT INTO t VALUES (1, 1, 1, 'a'), (1, 2, 2, 'b')",
        "ALTER TABLE t DROP COLUMN a",
        "INSERT INTO t VALUES (2, 3)",
        "ALTER TABLE t ALTER k TYPE bigint",
        "INSERT INTO t VALUES (2, 3)",
        "INSERT INTO t VALUES (3, 2)",
        "ALTER TABLE t ALTER v TYPE int USING 1",
        "ALTER TABLE t ALTER v TYPE text USING v + 10",
        "INSERT INTO t VALUES (3, '12')",
        "INSERT INTO t VALUES (3, '13')",
        "ALTER TABLE t ADD COLUMN u int UNIQUE DEFAULT 5",
        "ALTER TABLE t ADD COLUMN u int UNIQUE",
        "UPDATE t SET u = 1",
        "UPDATE t SET u = 1 WHERE k = 1",
        "INSERT INTO t VALUES (4, '14', 'd', 1)",
        "ALTER TABLE t RENAME k TO id",
        "INSERT INTO t VALUES (1, '14', 'd')",
        "ALTER TABLE t ALTER id DROP NOT NULL",
        "BEGIN",
        "INSERT INTO t VALUES (5, '15')",
        "ALTER TABLE t DROP COLUMN v",
        "SAVEPOINT s",
        "INSERT INTO t VALUES (6, 'x', 1)",
        "ROLLBACK TO s",
        "INSERT INTO t VALUES (6, 'x', 6)",
        "SAVEPOINT s",
        "INSERT INTO t VALUES (6, 'x', 7)",
        "ROLLBACK TO s",
        "COMMIT",
        "INSERT INTO t VALUES (5, 'x', 7)",
        "INSERT INTO t VALUES (7, 'x', 6)",
        "INSERT INTO t VALUES (7, 'x', 7)",
        "ALTER TABLE t ADD COLUMN p int PRIMARY KEY",
        "SELECT * FROM t",
    ):
        assert done(ours, statement) == done(theirs, statement), statement


ADDED = (
    "CREATE TABLE t (k int, v text)",
    "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, NULL)",
    "ALTER TABLE t ADD COLUMN twice int GENERATED ALWAYS AS (k * 2) STORED",
    "SELECT * FROM t",
    "ALTER TABLE t ADD COLUMN again int GENERATED ALWAYS AS (twice + 1) STORED",
    "ALTER TABLE t ADD COLUMN up text GENERATED ALWAYS AS (upper(v)) STORED NOT NULL",
    "ALTER TABLE t ADD COLUMN n int DEFAULT 7 CHECK (n > 7)",
    "ALTER TABLE t ADD COLUMN n int DEFAULT 7 CONSTRAINT above CHECK (n > 6 AND k < 10)",
    "INSERT INTO t (k, n) VALUES (4, 5)",
    "INSERT INTO t (k) VALUES (10)",
    "INSERT INTO t (k) VALUES (4) RETURNING *",
    "ALTER TABLE t ADD COLUMN id int GENERATED ALWAYS AS IDENTITY (START 10)",
    "SELECT count(DISTINCT id), min(id), max(id) FROM t",
    "INSERT INTO t (k) VALUES (5) RETURNING id",
    "INSERT INTO t (k, id) VALUES (5, 1)",
    "ALTER TABLE t ADD COLUMN s serial PRIMARY KEY, ADD COLUMN u uuid UNIQUE DEFAULT gen_random_uuid()",
    "SELECT count(DISTINCT s), min(s), max(s), count(DISTINCT u) FROM t",
    "ALTER TABLE t ADD COLUMN s2 bigserial UNIQUE CHECK (s2 < 3)",
    "SELECT k, v, twice, n FROM t",
    "BEGIN",
    "INSERT INTO t (k) VALUES (6)",
    "ALTER TABLE t ADD COLUMN thrice int NOT NULL GENERATED ALWAYS AS (k * 3) STORED",
    "UPDATE t SET k = k + 1 WHERE k = 6 RETURNING twice, thrice",
    "SELECT k, twice, thrice FROM t",
    "ROLLBACK",
    "SELECT k, twice, n FROM t",
)


def test_columns_with_a_value_of_each_row_are_added_as_in_postgresql(postgres: str, ours: Connection) -> None:
    with own_schema(postgres, "added_columns") as theirs:
        found = differences(ours, theirs, ADDED)
        assert not found, found


@pytest.mark.long
def test_writes_of_a_table_that_is_altered_all_the_time(dsn: str) -> None:
    """They succeed, or fail because of the concurrent change, and no column has the values of another."""
    statements = (
        "INSERT INTO t VALUES (%s, 2, 3) ON CONFLICT (id) DO UPDATE SET v = excluded.v",
        "UPDATE t SET v = 3 WHERE id = %s",
        "INSERT INTO t SELECT %s + 100, 2, 3",
        "DELETE FROM t WHERE id = %s",
        "INSERT INTO t SELECT n, 2, 3 FROM generate_series(%s, 5) n ON CONFLICT DO NOTHING",
        "MERGE INTO t USING (VALUES (%s, 2, 3)) s(id, k, v) ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT (id, k, v) VALUES (s.id, s.k, s.v)",
    )
    ended = threading.Event()

    def write(number: int) -> set[str | None]:
        failed = set()
        with psycopg.connect(dsn, autocommit=True) as writer:
            for turn in range(15):
                try:
                    with writer.transaction():
                        for at in range(1 + turn % 2):
                            writer.execute(statements[(number + turn + at) % len(statements)].encode(), (turn % 4,))
                except psycopg.Error as error:
                    failed.add(error.sqlstate)
        return failed

    def alter() -> None:
        with psycopg.connect(dsn, autocommit=True) as definer:
            while not ended.is_set():
                for actions in ("ADD COLUMN x int DEFAULT 9", "DROP COLUMN w, ADD COLUMN w int", "DROP COLUMN x"):
                    definer.execute(f"ALTER TABLE t {actions}".encode())

    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, k int, v int, w int)")
        definer = threading.Thread(target=alter)
        definer.start()
        try:
            with ThreadPoolExecutor(4) as writers:
                failed = set().union(*writers.map(write, range(4)))
        finally:
            ended.set()
            definer.join()
        assert failed <= {"40001", "40P01", "23505"}
        assert connection.execute("SELECT DISTINCT k, v, w FROM t").fetchall() in ([], [(2, 3, None)])
