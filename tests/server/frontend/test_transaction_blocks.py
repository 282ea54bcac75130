"""Transaction blocks that read, write, change definitions and have savepoints, compared with PostgreSQL's."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import errors

from server.session_state.transaction import MERGED_TABLES
from tests.examples import examples
from tests.fix_postgres import own_schema
from tests.fix_server import Connect
from tests.polling import HANG_S
from tests.server.execution.test_write import done

Connection = psycopg.Connection[Any]

TABLES = "CREATE TABLE a (k int, v int); CREATE TABLE b (k int, s text); INSERT INTO a VALUES (1, 1), (2, 2), (2, 3)"
VIEWS = (
    "CREATE VIEW doubled AS SELECT k, v * 2 AS v FROM a",
    "CREATE MATERIALIZED VIEW sums AS SELECT k, sum(v) AS v FROM a GROUP BY k",
    "CREATE MATERIALIZED VIEW joined AS SELECT sums.k, v, s FROM sums JOIN b ON sums.k = b.k",
)
KEYS = st.integers(0, 3)
NAMES = st.sampled_from(("x", "y"))
WRITES = st.one_of(
    st.builds("INSERT INTO a VALUES ({}, {})".format, KEYS, KEYS),
    st.builds("INSERT INTO b VALUES ({0}, 'of {0}') RETURNING *".format, KEYS),
    st.builds("INSERT INTO a SELECT k + 1, v FROM a WHERE k = {}".format, KEYS),
    st.builds("UPDATE a SET v = v + 1 WHERE k = {} RETURNING k, v".format, KEYS),
    st.builds("UPDATE a SET k = v, v = k WHERE v > {}".format, KEYS),
    st.builds("UPDATE b SET s = s || a.v FROM a WHERE a.k = b.k AND a.v = {} AND a.k = 1".format, KEYS),
    st.builds("DELETE FROM a WHERE k IN ({}, {})".format, KEYS, KEYS),
    st.builds("DELETE FROM b WHERE k = {} RETURNING s".format, KEYS),
    st.just("TRUNCATE a"),
    st.just("INSERT INTO a SELECT k, v FROM sums"),
)
READS = st.one_of(
    st.builds("SELECT * FROM a WHERE k = {}".format, KEYS),
    st.sampled_from([f"SELECT * FROM {name}" for name in ("a", "b", "doubled", "sums", "joined")]),
    st.just("SELECT a.k, v, s FROM a LEFT JOIN b ON a.k = b.k"),
    st.just("SELECT count(*), sum(v) FROM a WHERE k > (SELECT min(k) FROM b)"),
)
ENDS = st.one_of(
    st.builds("SAVEPOINT {}".format, NAMES),
    st.just("ROLLBACK TO x"),
    st.builds("ROLLBACK TO {}".format, NAMES),
    st.builds("RELEASE {}".format, NAMES),
    st.just("SELECT 1 / 0"),
)
BLOCKS = st.tuples(
    st.lists(st.one_of(WRITES, WRITES, READS, READS, ENDS), max_size=12), st.sampled_from(("COMMIT", "ROLLBACK"))
)


@pytest.fixture(scope="module")
def theirs(postgres: str) -> Iterator[Connection]:
    with own_schema(postgres, "blocks") as connection:
        yield connection


def test_blocks_do_what_they_do_in_postgresql(theirs: Connection, connect: Connect) -> None:
    ours, prepared = connect(), connect()

    @examples(20)
    @given(st.lists(BLOCKS, min_size=1, max_size=3), st.booleans())
    def compare(blocks: list[tuple[list[str], str]], has_index: bool) -> None:
        for connection in (theirs, ours):
            connection.execute("ROLLBACK")  # after a failed example
        theirs.execute("DROP TABLE IF EXISTS a, b CASCADE")
        ours.execute("DROP TABLE IF EXISTS a CASCADE; DROP TABLE IF EXISTS b CASCADE")
        for connection in (theirs, ours):
            connection.execute(TABLES)
        for view in VIEWS:
            theirs.execute(view.replace("MATERIALIZED ", "").encode())
            ours.execute(view.encode())
        if has_index:
            ours.execute("CREATE INDEX ON a (k); CREATE INDEX ON doubled (k)")
        for statements, end in blocks:
            for statement in ("BEGIN", "SAVEPOINT x", *statements, end, "SELECT * FROM a", "SELECT * FROM joined"):
                assert done(ours, statement) == done(theirs, statement), statement
            assert done(prepared, "SELECT * FROM a") == done(theirs, "SELECT * FROM a"), "another session"

    compare()


ROWS = [
    "INSERT INTO a VALUES (1, 5)",
    "DELETE FROM a WHERE k = 2",
    "INSERT INTO b SELECT k, 'of ' || v FROM a",
    "UPDATE a SET v = v + 10",
    "INSERT INTO keyed VALUES (1, 'new'), (7, 'new') ON CONFLICT (k) DO UPDATE SET v = excluded.v",
    "WITH gone AS (DELETE FROM keyed WHERE k = 2 RETURNING *) INSERT INTO b SELECT * FROM gone",
    "MERGE INTO a USING b ON a.k = b.k WHEN MATCHED AND s = 'of 5' THEN DELETE",
    "TRUNCATE keyed",
    "INSERT INTO keyed VALUES (1, 'again')",
]
CONTENTS = [f"SELECT * FROM {name}" for name in ("a", "b", "keyed")]
KEYED = (
    "DROP TABLE IF EXISTS keyed; CREATE TABLE keyed (k int PRIMARY KEY, v text);"
    "INSERT INTO keyed VALUES (1, 'one'), (2, 'two')"
)


@pytest.fixture
def rows(theirs: Connection, connect: Connect) -> tuple[Connection, Connection]:
    """Sessions of PostgreSQL and of Tidewire, with the same tables `a`, `b` and `keyed`."""
    ours = connect()
    theirs.execute("DROP TABLE IF EXISTS a, b CASCADE")
    for connection in (theirs, ours):
        connection.execute(TABLES)
        connection.execute(KEYED)
    return theirs, ours


@pytest.mark.parametrize("ending", ["", "; INSERT INTO keyed VALUES (1, 'one')", "; SELECT 1 / (k - k) FROM a"])
def test_the_statements_of_a_query_string_are_one_transaction(rows: tuple[Connection, Connection], ending: str) -> None:
    theirs, ours = rows
    for count in (2, len(ROWS) - 2, len(ROWS)):
        text = "; ".join(ROWS[-count:]) + ending
        assert done(ours, text) == done(theirs, text)
        for statement in CONTENTS:
            assert done(ours, statement) == done(theirs, statement), text


def all_results(connection: Connection, text: str) -> list[tuple[str | None, Any]] | str | None:
    """The command tag and the rows of each statement of a query string, or the SQLSTATE of the error."""
    try:
        cursor = connection.execute(text.encode())
    except psycopg.Error as error:
        return error.sqlstate
    found = []
    while True:
        rows = sorted(map(repr, cursor.fetchall())) if cursor.description else None
        found.append((cursor.statusmessage, rows))
        if not cursor.nextset():
            return found


def test_query_strings_do_what_they_do_in_postgresql(rows: tuple[Connection, Connection]) -> None:
    theirs, ours = rows
    for view in VIEWS:
        theirs.execute(view.replace("MATERIALIZED ", "").encode())
        ours.execute(view.encode())

    @examples(20)
    @given(
        st.lists(st.one_of(WRITES, READS), min_size=2, max_size=6),
        st.sampled_from(("SELECT * FROM joined", "INSERT INTO keyed VALUES (1, 'one'), (1, 'two')")),
    )
    def compare(statements: list[str], last: str) -> None:
        text = "; ".join([*statements, last])
        assert all_results(ours, text) == all_results(theirs, text), text
        for statement in CONTENTS:
            assert done(ours, statement) == done(theirs, statement), text

    compare()


@pytest.mark.parametrize("fails", [False, True])
def test_the_statements_of_a_pipeline_are_one_transaction(rows: tuple[Connection, Connection], fails: bool) -> None:
    theirs, ours = rows
    for connection in rows:
        try:
            with connection.pipeline():
                for statement in [*ROWS, *CONTENTS, *["SELECT 1 / (k - k) FROM a"] * fails]:
                    connection.execute(statement.encode())
        except errors.DivisionByZero:
            assert fails
    for statement in CONTENTS:
        assert done(ours, statement) == done(theirs, statement)


@pytest.mark.parametrize("in_pipeline", [False, True])
def test_the_writes_of_a_query_string_or_pipeline_have_one_time(connect: Connect, in_pipeline: bool) -> None:
    connection = connect()
    connection.execute("CREATE TABLE a (k int) WITH (RETAIN HISTORY FOR '1h')")
    connection.execute("CREATE TABLE b (k int) WITH (RETAIN HISTORY FOR '1h')")
    row = connection.execute("SELECT mz_now() FROM (SELECT count(*) FROM a) AS counted").fetchone()
    assert row is not None
    writes = [
        "INSERT INTO a VALUES (1)",
        "INSERT INTO b SELECT k FROM a",
        "UPDATE a SET k = 2",
        "DELETE FROM b WHERE k = 5",
    ]
    if in_pipeline:
        with connection.pipeline():
            for write in writes:
                connection.execute(write.encode())
    else:
        connection.execute("; ".join(writes).encode())
    ((end,),) = connection.execute("SELECT mz_now() + 1 FROM (SELECT count(*) FROM a) AS counted").fetchall()
    changes = [
        change
        for name in ("a", "b")
        for change in connection.cursor().stream(
            f"SUBSCRIBE {name} WITH (SNAPSHOT false) AS OF {row[0]} UP TO {end}".encode()
        )
    ]
    assert [change[1:] for change in changes] == [(1, 2), (1, 1)]
    assert len({change[0] for change in changes}) == 1


def test_a_definition_commits_the_statements_of_a_query_string_before_it(connect: Connect) -> None:
    connection = connect()
    connection.execute("CREATE TABLE a (k int)")
    with pytest.raises(errors.DivisionByZero):
        connection.execute("INSERT INTO a VALUES (1); CREATE TABLE b (k int); INSERT INTO a VALUES (2); SELECT 1 / 0")
    assert connection.execute("SELECT * FROM a").fetchall() == [(1,)]
    assert connection.execute("SELECT * FROM b").fetchall() == []


def test_later_reads_of_a_query_string_are_at_the_time_of_the_first(connect: Connect) -> None:
    """Also if that is longer ago than the history that tables retain, and the table was written meanwhile."""
    connection, other = connect(), connect()
    connection.execute("CREATE TABLE a (k int)")
    connection.execute("CREATE TABLE b (k int)")
    connection.execute("INSERT INTO b VALUES (1)")
    writing = threading.Timer(0.3, lambda: other.execute("UPDATE b SET k = 2"))
    writing.start()
    cursor = connection.execute("SELECT k FROM a; SELECT pg_sleep(2); SELECT k FROM b")
    writing.join()
    while cursor.nextset():
        pass
    assert cursor.fetchall() == [(1,)]
    assert connection.execute("SELECT k FROM b").fetchall() == [(2,)]


def test_definitions_and_rows_change_together(connect: Connect) -> None:
    ours, other = connect(), connect()
    for end in ("ROLLBACK", "COMMIT"):
        ours.execute("BEGIN; CREATE TABLE n (k int, v text); INSERT INTO n VALUES (1, 'one'), (2, 'two')")
        with ours.cursor().copy("COPY n FROM STDIN") as copy:
            copy.write("3\tthree\n")
        ours.execute("CREATE MATERIALIZED VIEW lengths AS SELECT k, length(v) AS l FROM n; CREATE INDEX by_k ON n (k)")
        ours.execute("UPDATE n SET v = v || '!' WHERE k = 1; DELETE FROM n WHERE k = 2")
        expected = [(1, "one!"), (3, "three")]
        assert ours.execute("SELECT * FROM n ORDER BY k").fetchall() == expected
        assert ours.execute("SELECT v FROM n WHERE k = 1").fetchall() == [("one!",)]
        assert ours.execute("SELECT * FROM lengths ORDER BY k").fetchall() == [(1, 4), (3, 5)]
        with pytest.raises(errors.UndefinedTable):
            other.execute("SELECT * FROM n")
        ours.execute(end)
    assert other.execute("SELECT * FROM n ORDER BY k").fetchall() == expected
    assert other.execute("SELECT * FROM lengths ORDER BY k").fetchall() == [(1, 4), (3, 5)]
    ours.execute("BEGIN; INSERT INTO n VALUES (9, 'nine'); DROP TABLE n CASCADE; CREATE TABLE n (a int)")
    ours.execute("INSERT INTO n VALUES (7); COMMIT")
    assert other.execute("SELECT * FROM n").fetchall() == [(7,)]


def test_savepoints_are_as_in_postgresql(theirs: Connection, connect: Connect) -> None:
    ours = connect()
    for statement in (
        *("SAVEPOINT s", "RELEASE s", "ROLLBACK TO SAVEPOINT s"),
        *("BEGIN", "SAVEPOINT s", "RELEASE t", "SELECT 1", "RELEASE SAVEPOINT s", "ROLLBACK TO s", "ROLLBACK TO s"),
        *("COMMIT", "BEGIN", "SAVEPOINT s", "SET application_name = 'inner'", "SAVEPOINT t", "SELECT 1 / 0"),
        *("ROLLBACK TO t", "SHOW application_name", "ROLLBACK TO s", "SHOW application_name", "ROLLBACK TO t"),
        *("ROLLBACK", "BEGIN", "DECLARE before CURSOR FOR VALUES (1), (2)", "FETCH before", "SAVEPOINT s"),
        *("DECLARE after CURSOR FOR VALUES (3)", "FETCH after", "SELECT 1 / 0", "ROLLBACK TO s", "FETCH before"),
        *("FETCH after", "COMMIT", "BEGIN", "CREATE TABLE created (a int)", "SAVEPOINT s", "DROP TABLE created"),
        *("ROLLBACK TO s", "INSERT INTO created VALUES (1)", "SAVEPOINT s", "INSERT INTO created VALUES (2)"),
        *("ROLLBACK TO s", "RELEASE s", "ROLLBACK TO s", "SELECT * FROM created", "COMMIT"),
        *("TABLE created", "DROP TABLE created"),
    ):
        for connection in (theirs, ours):
            connection.execute("SET application_name = 'outer'") if statement == "BEGIN" else None
        assert done(ours, statement) == done(theirs, statement), statement


def test_psycopg_nests_transactions(connect: Connect) -> None:
    connection = connect()
    connection.execute("CREATE TABLE t (a int)")
    with connection.transaction():
        connection.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(errors.DivisionByZero), connection.transaction():
            connection.execute("INSERT INTO t VALUES (2)")
            connection.execute("SELECT a / 0 FROM t")
        with connection.transaction():
            connection.execute("UPDATE t SET a = a + 10")
    assert connection.execute("SELECT * FROM t").fetchall() == [(11,)]


def test_many_changes_are_merged_before_they_are_read_again(connect: Connect) -> None:
    connection = connect()
    connection.execute("CREATE TABLE t (k int, v int); INSERT INTO t VALUES (1, 0); BEGIN")
    with connection.pipeline():
        for _ in range(2 * MERGED_TABLES):
            connection.execute("UPDATE t SET v = v + 1 WHERE k = 1")
    connection.execute("SAVEPOINT s; UPDATE t SET v = -1")
    assert connection.execute("SELECT * FROM t").fetchall() == [(1, -1)]
    connection.execute("ROLLBACK TO s")
    assert connection.execute("SELECT * FROM t").fetchall() == [(1, 2 * MERGED_TABLES)]
    connection.execute("UPDATE t SET v = v + 1; COMMIT")
    assert connection.execute("SELECT * FROM t").fetchall() == [(1, 2 * MERGED_TABLES + 1)]


def test_large_changes_are_not_kept_in_memory(connect: Connect, monkeypatch: Any) -> None:
    monkeypatch.setattr("server.session_state.context.IN_MEMORY_BYTES_MAX", 1_000)
    monkeypatch.setattr("server.session_state.transaction.BYTES_MAX", 3_000)
    connection = connect()
    connection.execute("CREATE TABLE t (k int, v int); INSERT INTO t SELECT g, 0 FROM generate_series(1, 1000) g")
    for end in ("ROLLBACK", "COMMIT"):
        connection.execute("BEGIN")
        for _ in range(4):
            connection.execute("UPDATE t SET v = v + 1; UPDATE t SET v = v + 1 WHERE k = 7; DELETE FROM t WHERE k = 9")
        expected = (999, 4_000)
        assert connection.execute("SELECT count(*), sum(v) FROM t").fetchone() == expected
        connection.execute(end)
    assert connection.execute("SELECT count(*), sum(v) FROM t").fetchone() == expected
    connection.execute("BEGIN; SAVEPOINT s")
    with pytest.raises(errors.OutOfMemory, match="0 MiB of small changes"):
        for _ in range(100):
            connection.execute("UPDATE t SET v = 0 WHERE k < 10")
    connection.execute("ROLLBACK TO s; UPDATE t SET v = 1 WHERE k < 10; COMMIT")
    assert connection.execute("SELECT sum(v) FROM t WHERE k < 10").fetchone() == (8,)


def test_a_copied_file_is_removed_with_its_savepoint(connect: Connect, monkeypatch: Any) -> None:
    monkeypatch.setattr("server.execution.write.COPY_CHUNK_BYTES", 100)
    connection = connect()
    connection.execute("CREATE TABLE t (a int); BEGIN; INSERT INTO t VALUES (-1); SAVEPOINT s")
    for _ in range(2):
        with connection.cursor().copy("COPY t FROM STDIN") as copy:
            copy.write("".join(f"{a}\n" for a in range(1_000)))
        assert connection.execute("SELECT count(*), sum(a) FROM t").fetchone() == (1_001, 499_499)
        connection.execute("ROLLBACK TO s")
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (1,)
    connection.execute("COMMIT")
    assert connection.execute("SELECT * FROM t").fetchall() == [(-1,)]


def test_a_transaction_fails_if_what_it_read_was_written(connect: Connect) -> None:
    """Two transactions read both rows, and each changes one of them: one after the other, a row would differ."""
    first, second = connect(), connect()
    first.execute("CREATE TABLE on_call (name text, here bool); INSERT INTO on_call VALUES ('a', true), ('b', true)")
    for connection in (first, second):
        connection.execute("BEGIN")
        assert connection.execute("SELECT count(*) FROM on_call WHERE here").fetchone() == (2,)
    first.execute("INSERT INTO on_call VALUES ('c', false)")
    first.execute("COMMIT")
    with pytest.raises(errors.SerializationFailure) as failure:
        second.execute("UPDATE on_call SET here = false WHERE name = 'b'")
    assert failure.value.diag.message_detail == (
        'Table "on_call" was changed by another transaction after this one had read it.'
    )
    second.execute("ROLLBACK; BEGIN; SELECT * FROM on_call")
    first.execute("DELETE FROM on_call WHERE name = 'c'")
    assert second.execute("SELECT count(*) FROM on_call").fetchone() == (3,), "all reads are at one time"
    second.execute("INSERT INTO on_call VALUES ('d', true)")
    with pytest.raises(errors.SerializationFailure):
        second.execute("COMMIT")
    assert second.execute("SELECT count(*) FROM on_call").fetchone() == (2,)


def test_a_deadlock_fails_one_transaction(connect: Connect) -> None:
    first, second = connect(), connect()
    first.execute("CREATE TABLE t (k int, v int); INSERT INTO t VALUES (1, 0), (2, 0)")
    update = "UPDATE t SET v = v + 1 WHERE k = %s"
    first.execute("BEGIN")
    first.execute(update, (1,))
    second.execute("BEGIN")
    second.execute(update, (2,))
    waiting = threading.Thread(target=lambda: first.execute(update, (2,)))
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    with pytest.raises(errors.DeadlockDetected):
        second.execute(update, (1,))
    waiting.join(HANG_S)  # the failed transaction has released its locks
    first.execute("COMMIT")
    second.execute("ROLLBACK")
    assert first.execute("SELECT * FROM t ORDER BY k").fetchall() == [(1, 1), (2, 1)]


@pytest.mark.parametrize("locks_first", [True, False])
@pytest.mark.long
def test_no_update_is_lost(connect: Connect, locks_first: bool) -> None:
    """Transfers as pgbench's: they change three tables by key. Those that begin with a write never fail."""
    admin = connect()
    admin.execute("CREATE TABLE accounts (k int, v int); CREATE TABLE branches (k int, v int); CREATE TABLE h (k int)")
    admin.execute("INSERT INTO accounts SELECT g, 0 FROM generate_series(0, 9) g; INSERT INTO branches VALUES (1, 0)")
    sessions, done_by, failed = [connect() for _ in range(4)], [0] * 4, []

    def transfer(number: int) -> None:
        session = sessions[number]
        while done_by[number] < 15:
            k = (number * 7 + done_by[number]) % 10
            try:
                with session.transaction():
                    if not locks_first:
                        session.execute("SELECT v FROM branches WHERE k = 1")
                    session.execute("UPDATE accounts SET v = v + 1 WHERE k = %s", (k,))
                    read = session.execute("SELECT v FROM accounts WHERE k = %s", (k,)).fetchone()
                    session.execute("UPDATE branches SET v = v + 1 WHERE k = 1")
                    session.execute("UPDATE accounts SET v = %s WHERE k = %s", (read[0] + 1 if read else None, k))
                    session.execute("INSERT INTO h VALUES (%s)", (k,))
            except (errors.SerializationFailure, errors.DeadlockDetected) as error:
                failed.append(error)
            else:
                done_by[number] += 1

    threads = [threading.Thread(target=transfer, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done_by == [15] * 4
    assert admin.execute("SELECT sum(v), (SELECT v FROM branches) FROM accounts").fetchone() == (120, 60)
    assert admin.execute("SELECT count(*) FROM h").fetchone() == (60,)
    if locks_first:
        assert not failed


def test_locks_of_rows_are_as_in_postgresql(theirs: Connection, connect: Connect) -> None:
    ours = connect()
    for statement in (
        "DROP TABLE IF EXISTS l, m CASCADE",
        *("CREATE TABLE l (k int, v int)", "CREATE TABLE m (k int)", "INSERT INTO l VALUES (1, 1), (2, 2)"),
        *("SELECT * FROM l FOR UPDATE", "SELECT * FROM l WHERE k = 1 FOR NO KEY UPDATE", "SELECT k FROM l FOR SHARE"),
        *("SELECT v FROM l ORDER BY v LIMIT 1 FOR KEY SHARE", "SELECT * FROM l JOIN m USING (k) FOR UPDATE OF m, l"),
        *(
            "BEGIN",
            "SELECT * FROM l WHERE k = 2 FOR UPDATE NOWAIT",
            "SELECT * FROM l FOR UPDATE SKIP LOCKED",
            "UPDATE l SET v = 5 WHERE k = 2",
            "TABLE l",
        ),
        *(
            "SELECT * FROM l FOR UPDATE",
            "COMMIT",
            "SELECT * FROM l x FOR UPDATE OF x",
            "SELECT * FROM l FOR UPDATE OF y",
            "SELECT * FROM l FOR UPDATE WAIT 5",
        ),
        *("SELECT * FROM l x FOR UPDATE OF l", "SELECT DISTINCT k FROM l FOR UPDATE", "SELECT 1 FOR UPDATE"),
        *("SELECT k FROM l GROUP BY k FOR SHARE", "SELECT count(*) FROM l FOR UPDATE", "SELECT 1 FROM m, l FOR UPDATE"),
        *("SELECT row_number() OVER () FROM l FOR UPDATE", "SELECT generate_series(1, 2) FROM l FOR UPDATE"),
        *("SELECT 1 FROM l HAVING true FOR UPDATE", "START TRANSACTION READ ONLY", "SELECT * FROM l FOR UPDATE"),
        "ROLLBACK",
        *("SELECT * FROM (SELECT * FROM l FOR UPDATE) x", "SELECT count(*) FROM (SELECT k FROM l FOR SHARE NOWAIT) x"),
        "SELECT * FROM l WHERE k IN (SELECT k FROM l WHERE v < 5 FOR UPDATE)",
        "WITH n AS (SELECT k FROM l ORDER BY k LIMIT 1 FOR UPDATE) SELECT l.* FROM l, n WHERE l.k = n.k",
        "SELECT EXISTS (SELECT 1 FROM l FOR KEY SHARE)",
        "VALUES (1) FOR UPDATE",
    ):
        assert done(ours, statement) == done(theirs, statement), statement
    for statement in (
        *(
            "SELECT * FROM (SELECT v FROM l FOR UPDATE SKIP LOCKED) x",
            "SUBSCRIBE (SELECT * FROM l FOR UPDATE)",
            "CREATE VIEW w AS SELECT * FROM l FOR UPDATE",
        ),
        "CREATE MATERIALIZED VIEW w AS SELECT * FROM l FOR UPDATE",
    ):
        assert done(ours, statement) == ("0A000", None), statement


def test_locked_rows_do_not_change_before_the_commit(connect: Connect) -> None:
    first, second = connect(), connect()
    first.execute("CREATE TABLE t (k int, v int); INSERT INTO t VALUES (1, 0), (2, 0)")
    first.execute("BEGIN")
    assert first.execute("SELECT v FROM t WHERE k = 1 FOR UPDATE").fetchall() == [(0,)]
    second.execute("UPDATE t SET v = 7 WHERE k = 2")
    second.execute("BEGIN")
    with pytest.raises(errors.LockNotAvailable, match='could not obtain lock on row in relation "t"'):
        second.execute("SELECT * FROM t WHERE k = 1 FOR UPDATE NOWAIT")
    second.execute("ROLLBACK; BEGIN")
    assert second.execute("SELECT * FROM t WHERE k = 1 FOR UPDATE SKIP LOCKED").fetchall() == []
    assert second.execute("SELECT * FROM t WHERE k = 2 FOR UPDATE SKIP LOCKED").fetchall() == [(2, 7)]
    second.execute("ROLLBACK; BEGIN; SELECT count(*) FROM t WHERE k = 3")
    waiting = threading.Thread(target=lambda: second.execute("SELECT v FROM t WHERE k = 1 FOR UPDATE"))
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    first.execute("UPDATE t SET v = v + 1 WHERE k = 1; COMMIT")
    waiting.join(HANG_S)
    second.execute("UPDATE t SET v = v + 10 WHERE k = 1; COMMIT")
    assert first.execute("SELECT * FROM t ORDER BY k").fetchall() == [(1, 11), (2, 7)]


def test_workers_take_each_job_once(connect: Connect) -> None:
    """Each worker takes the next job by an UPDATE with a subquery that has FOR UPDATE SKIP LOCKED."""
    admin, jobs, taken = connect(), 12, list[int]()
    admin.execute("CREATE TABLE jobs (id int PRIMARY KEY, state text NOT NULL)")
    admin.execute("INSERT INTO jobs SELECT n, 'new' FROM generate_series(1, %s) n", (jobs,))
    next_job = "SELECT id FROM jobs WHERE state = 'new' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED"

    def work(session: psycopg.Connection, in_block: bool) -> None:
        while True:
            with session.transaction() if in_block else nullcontext():
                job = session.execute(
                    f"UPDATE jobs SET state = 'done' WHERE id = ({next_job}) RETURNING id".encode()
                ).fetchone()
            if job is None:
                return
            taken.append(job[0])

    threads = [threading.Thread(target=work, args=(connect(), number == 0)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)
    assert sorted(taken) == list(range(1, jobs + 1))


NEXT_JOB = "SELECT id FROM jobs WHERE state = 'new' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED"


@pytest.mark.parametrize(
    ("statement", "first"),
    [
        (NEXT_JOB, [(3,)]),
        (NEXT_JOB.replace("SELECT id", "SELECT state"), [("new",)]),
        (
            NEXT_JOB.replace("FROM jobs", "FROM jobs JOIN owners USING (owner)").replace("UPDATE", "UPDATE OF jobs"),
            [(3,)],
        ),
        (f"UPDATE jobs SET state = 'done' WHERE id = ({NEXT_JOB}) RETURNING id", [(3,)]),
        (f"UPDATE jobs j SET state = 'done' WHERE j.id IN ({NEXT_JOB}) RETURNING id", [(3,)]),
        (f"UPDATE jobs SET state = 'done' FROM ({NEXT_JOB}) n WHERE n.id = jobs.id RETURNING jobs.id", [(3,)]),
        (
            f"WITH n AS ({NEXT_JOB.replace('SELECT id', 'SELECT *')}) UPDATE jobs SET state = 'done' FROM n "
            "WHERE jobs.id = n.id RETURNING jobs.id",
            [(3,)],
        ),
        (f"WITH n AS ({NEXT_JOB}) DELETE FROM jobs WHERE id IN (SELECT id FROM n) RETURNING id", [(3,)]),
        ("SELECT id FROM jobs WHERE id < 4 ORDER BY id DESC FOR UPDATE SKIP LOCKED", [(3,)]),
        (f"SELECT state, n.id FROM ({NEXT_JOB.replace('SELECT id', 'SELECT *')}) n", [("new", 3)]),
        (f"WITH n AS ({NEXT_JOB}) SELECT * FROM n", [(3,)]),
        ("SELECT id FROM jobs WHERE id = 1 FOR UPDATE SKIP LOCKED", []),
    ],
)
def test_rows_that_others_have_locked_are_skipped(connect: Connect, statement: str, first: list[object]) -> None:
    """Two blocks take jobs, and another session the next ones, in a block or not. New jobs do not wait."""
    admin, one, two, other = connect(), connect(), connect(), connect()
    admin.execute("CREATE TABLE jobs (id int PRIMARY KEY, state text NOT NULL, owner int)")
    admin.execute("CREATE TABLE owners (owner int PRIMARY KEY)")
    admin.execute("INSERT INTO owners VALUES (1)")
    admin.execute("INSERT INTO jobs SELECT n, 'new', 1 FROM generate_series(1, 9) n")
    for number, block in enumerate((one, two), 1):
        block.execute("BEGIN; SET lock_timeout = '10s'")
        assert block.execute(NEXT_JOB).fetchall() == [(number,)]
    other.execute("SET lock_timeout = '10s'")
    assert other.execute(statement.encode()).fetchall() == first
    with other.transaction(force_rollback=True):
        assert other.execute(NEXT_JOB).fetchone() == (4 if "done" in statement or "DELETE" in statement else 3,)
        admin.execute("INSERT INTO jobs VALUES (10, 'new', 1)")
    one.execute("UPDATE jobs SET state = 'done' WHERE id = 1; INSERT INTO jobs VALUES (11, 'new', 1); COMMIT")
    two.execute("DELETE FROM jobs WHERE id = 2; COMMIT")
    left = admin.execute("SELECT count(*), min(id), max(id) FROM jobs WHERE state = 'new'").fetchone()
    assert left == ((8, 4, 11) if "done" in statement or "DELETE" in statement else (9, 3, 11))
    assert admin.execute("SELECT count(*) FROM pg_locks").fetchone() == (0,)


def test_workers_in_blocks_take_each_job_once(connect: Connect) -> None:
    """Six workers choose a job, work, and mark it in one transaction. None of them fails or stays idle."""
    admin, jobs, taken = connect(), 30, dict[int, list[int]]()
    admin.execute("CREATE TABLE jobs (id int PRIMARY KEY, state text NOT NULL)")
    admin.execute("INSERT INTO jobs SELECT n, 'new' FROM generate_series(1, %s) n", (jobs,))

    def work(session: psycopg.Connection, own: list[int]) -> None:
        while True:
            with session.transaction():
                job = session.execute(NEXT_JOB.encode()).fetchone()
                if job is None:
                    return
                time.sleep(0.05)
                session.execute("UPDATE jobs SET state = 'done' WHERE id = %s", job)
            own.append(job[0])

    threads = [threading.Thread(target=work, args=(connect(), taken.setdefault(number, []))) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)
    assert sorted(job for own in taken.values() for job in own) == list(range(1, jobs + 1))
    assert all(taken.values())


def test_rows_are_skipped_if_the_whole_table_is_locked(connect: Connect) -> None:
    """A SELECT returns no rows, and a write waits. More rows than can be locked one by one lock the table."""
    first, second = connect(), connect()
    first.execute("CREATE TABLE jobs (id int PRIMARY KEY, state text); INSERT INTO jobs VALUES (1, 'new'), (2, 'new')")
    first.execute("BEGIN; UPDATE jobs SET state = 'old' WHERE state = 'old'")
    assert second.execute(NEXT_JOB).fetchall() == []
    second.execute("SET lock_timeout = '100ms'")
    with pytest.raises(errors.LockNotAvailable):
        second.execute(f"DELETE FROM jobs WHERE id = ({NEXT_JOB})".encode())
    first.execute("ROLLBACK; INSERT INTO jobs SELECT n, 'new' FROM generate_series(3, 100) n; BEGIN")
    assert len(first.execute("SELECT id FROM jobs FOR UPDATE SKIP LOCKED").fetchall()) == 100
    assert second.execute(NEXT_JOB).fetchall() == []
    first.execute("COMMIT")
    assert second.execute(NEXT_JOB).fetchall() == [(1,)]


@pytest.mark.parametrize("rows", ["v FOR UPDATE", "w FOR UPDATE", "v FOR UPDATE OF v", "w, u FOR UPDATE OF w"])
def test_the_tables_of_views_are_locked(connect: Connect, rows: str) -> None:
    """Also if the view has an index, and if the clause names the view."""
    first, second = connect(), connect()
    first.execute("CREATE TABLE t (k int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 1); CREATE TABLE u (k int)")
    first.execute("CREATE VIEW v AS SELECT k, n FROM t; CREATE INDEX ON v (k); CREATE VIEW w AS SELECT k, n FROM t")
    first.execute(f"BEGIN; SELECT * FROM {rows}".encode())
    second.execute("SET lock_timeout = '50ms'")
    second.execute("INSERT INTO u VALUES (1)")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        second.execute("UPDATE t SET n = 2 WHERE k = 1")
    first.execute("COMMIT")


def test_only_rows_of_the_locked_table_are_skipped(connect: Connect) -> None:
    """Other parts of a query have all rows. It locks the table if it reads it twice, also by an index of a view."""
    first, second = connect(), connect()
    first.execute("CREATE TABLE jobs (id int PRIMARY KEY, owner int); INSERT INTO jobs VALUES (1, 1), (2, 1), (3, 2)")
    first.execute("CREATE TABLE owners (owner int); INSERT INTO owners VALUES (1), (2)")
    first.execute("CREATE VIEW known AS SELECT owner FROM owners; CREATE INDEX ON known (owner)")
    first.execute("CREATE VIEW seen AS SELECT id FROM jobs; CREATE INDEX ON seen (id)")
    first.execute("CREATE MATERIALIZED VIEW kept AS SELECT id FROM jobs")
    by_owner = "SELECT id FROM jobs JOIN known USING (owner) ORDER BY id LIMIT 1 FOR UPDATE OF jobs SKIP LOCKED"
    lowest = (
        "SELECT id FROM jobs j WHERE NOT EXISTS (SELECT FROM jobs k WHERE k.owner = j.owner AND k.id < j.id) "
        "ORDER BY id FOR UPDATE OF j SKIP LOCKED"
    )
    by_view = "SELECT id FROM jobs JOIN seen USING (id) ORDER BY id LIMIT 1 FOR UPDATE OF jobs SKIP LOCKED"
    assert first.execute(lowest).fetchall() == [(1,), (3,)]
    first.execute("BEGIN")
    assert first.execute(by_owner).fetchall() == [(1,)]
    for change in ("", "INSERT INTO owners VALUES (3); UPDATE jobs SET owner = 2 WHERE id = 3"):
        with second.transaction(force_rollback=True):
            second.execute(change.encode())
            assert second.execute(by_owner).fetchall() == [(2,)]
            assert second.execute(lowest).fetchall() == []
            assert second.execute(by_view).fetchall() == []
    for query in ("SELECT 1", "SELECT id FROM kept WHERE id = 1", "SELECT * FROM (SELECT 1 FOR UPDATE SKIP LOCKED) x"):
        assert len(second.execute(f"{query} FOR UPDATE SKIP LOCKED".encode()).fetchall()) == 1
    first.execute("COMMIT")


def test_subqueries_lock_rows(connect: Connect) -> None:
    first, second = connect(), connect()
    first.execute("CREATE TABLE t (k int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 0), (2, 0)")
    first.execute("BEGIN")
    assert first.execute("SELECT count(*) FROM (SELECT 1 FROM t WHERE k = 1 FOR UPDATE) x").fetchall() == [(1,)]
    with pytest.raises(errors.LockNotAvailable, match='could not obtain lock on row in relation "t"'):
        second.execute("SELECT * FROM (SELECT * FROM t WHERE k = 1 FOR UPDATE NOWAIT) x")
    assert second.execute("SELECT * FROM (SELECT * FROM t WHERE k = 2 FOR UPDATE NOWAIT) x").fetchall() == [(2, 0)]
    first.execute("COMMIT")


def test_rows_are_locked_outside_of_blocks(connect: Connect) -> None:
    first, second = connect(), connect()
    first.execute("CREATE TABLE t (k int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 0), (2, 0)")
    first.execute("BEGIN; UPDATE t SET v = 1 WHERE k = 1")
    with pytest.raises(errors.LockNotAvailable, match='could not obtain lock on row in relation "t"'):
        second.execute("SELECT * FROM t WHERE k = 1 FOR UPDATE NOWAIT")
    assert second.execute("SELECT * FROM t FOR UPDATE SKIP LOCKED").fetchall() == [(2, 0)]
    second.execute("SET lock_timeout = '100ms'")
    with pytest.raises(errors.LockNotAvailable, match="canceling statement due to lock timeout"):
        second.execute("SELECT * FROM t WHERE k = 1 FOR UPDATE")
    first.execute("COMMIT")
    assert second.execute("SELECT * FROM t WHERE k = 1 FOR UPDATE").fetchall() == [(1, 1)]
    assert first.execute("SELECT count(*) FROM pg_locks").fetchone() == (0,)


def test_a_write_with_nowait_does_not_wait(connect: Connect) -> None:
    first, second = connect(), connect()
    first.execute("CREATE TABLE t (k int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 0), (2, 0)")
    first.execute("BEGIN; UPDATE t SET v = 1 WHERE k = 1")
    for statement in (
        "DELETE FROM t WHERE k IN (SELECT k FROM t FOR UPDATE NOWAIT)",
        "INSERT INTO t SELECT k + 10, v FROM t FOR SHARE NOWAIT",
        "INSERT INTO t SELECT k + 10, v FROM t FOR UPDATE NOWAIT ON CONFLICT DO NOTHING",
        "WITH n AS (SELECT k FROM t FOR UPDATE NOWAIT) UPDATE t SET v = 2 FROM n WHERE n.k = t.k",
    ):
        with pytest.raises(errors.LockNotAvailable, match='could not obtain lock on row in relation "t"'):
            second.execute(statement.encode())
    first.execute("COMMIT")
    second.execute("DELETE FROM t WHERE k IN (SELECT k FROM t WHERE v = 1 FOR UPDATE NOWAIT)")
    assert second.execute("TABLE t").fetchall() == [(2, 0)]


def test_a_session_of_sqlalchemy(dsn: str) -> None:
    """With the default engine and isolation level: flush, query what was flushed, nest, commit and refresh."""
    import sqlalchemy as sa
    from sqlalchemy import orm

    class Base(orm.DeclarativeBase):
        pass

    class Person(Base):
        __tablename__ = "people"
        id = sa.Column(sa.Integer, primary_key=True, autoincrement=False)
        name = sa.Column(sa.Text)

    engine = sa.create_engine(dsn.replace("postgresql://", "postgresql+psycopg://"))
    Base.metadata.create_all(engine)
    with orm.Session(engine) as session:
        session.add_all([Person(id=1, name="ann"), Person(id=2, name="bob")])
        session.flush()
        assert session.scalars(sa.select(Person.name).order_by(Person.id)).all() == ["ann", "bob"]
        ann = session.get_one(Person, 1)
        ann.name = "anna"  # type: ignore[assignment]
        with pytest.raises(sa.exc.DBAPIError), session.begin_nested():
            session.delete(ann)
            session.flush()
            session.execute(sa.text("SELECT 1 / 0"))
        session.commit()
        assert session.get_one(Person, 1).name == "anna"
        session.delete(session.get_one(Person, 2, with_for_update=True))
        session.commit()
        assert session.scalars(sa.select(Person.name)).all() == ["anna"]
    Base.metadata.drop_all(engine)
    engine.dispose()
