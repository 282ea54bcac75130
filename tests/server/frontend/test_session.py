"""Sessions of a complete server with Spark, through psycopg, asyncpg and psql."""

from __future__ import annotations

import asyncio
import select
import subprocess
import sys
import threading
from pathlib import Path

import asyncpg
import psycopg
import pytest
from psycopg import errors

from tests.fix_server import ServerThread

SCRIPTS = Path(__file__).parents[2] / "scripts"


def connect(dsn: str, **options: object) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(dsn, autocommit=True, **options)  # type: ignore[arg-type]


def run_script(script: Path, dsn: str) -> None:
    """Runs testdrive in a process of its own: libpq's connect would block the server's thread in this process."""
    command = [sys.executable, "-m", "testdrive", "--url", dsn, "--no-reset", "--default-timeout", "60s", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("wire/*.pt")), ids=lambda path: path.stem)
def test_wire_scripts(script: Path, dsn: str) -> None:
    run_script(script, dsn)


@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("subscribe/*")), ids=lambda path: path.name)
def test_subscribe_scripts(script: Path, dsn: str) -> None:
    """The rules of SUBSCRIBE. Each script covers one group of rules."""
    run_script(script, dsn)


@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("td/*.td")), ids=lambda path: path.stem)
def test_testdrive_scripts(script: Path, dsn: str) -> None:
    run_script(script, dsn)


def test_acknowledged_writes_are_visible_to_all_sessions(dsn: str) -> None:
    with connect(dsn) as one, connect(dsn) as other:
        one.execute("CREATE TABLE t (a int)")
        for number in range(20):
            one.execute("INSERT INTO t VALUES (%s)", (number,))
            assert other.execute("SELECT * FROM t").fetchall() == [(n,) for n in range(number + 1)]


def test_a_read_of_a_materialized_view_reflects_all_acknowledged_writes(dsn: str) -> None:
    with connect(dsn) as connection:
        connection.execute("CREATE TABLE t (a int)")
        connection.execute("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n, sum(a) AS s FROM t")
        connection.execute("CREATE MATERIALIZED VIEW w AS SELECT s * 2 AS d FROM v")
        for number in range(1, 5):
            connection.execute("INSERT INTO t VALUES (%s)", (number,))
            total = number * (number + 1) // 2
            assert connection.execute("SELECT * FROM v").fetchone() == (number, total)
            assert connection.execute("SELECT * FROM w").fetchone() == (2 * total,)


def test_transactions_are_atomic(dsn: str) -> None:
    with connect(dsn) as setup:
        setup.execute("CREATE TABLE t (a int)")
        with psycopg.connect(dsn) as connection:
            connection.execute("INSERT INTO t VALUES (1)")
            connection.execute("INSERT INTO t VALUES (2)")
            assert setup.execute("SELECT * FROM t").fetchall() == []
            connection.rollback()
            connection.execute("INSERT INTO t VALUES (3)")
            connection.execute("INSERT INTO t VALUES (4)")
            connection.commit()
        assert sorted(setup.execute("SELECT * FROM t").fetchall()) == [(3,), (4,)]


def test_a_transaction_reads_at_one_timestamp(dsn: str) -> None:
    """mz_now() is the transaction's read time. It depends neither on the query nor on commits of other sessions."""
    with connect(dsn) as other, psycopg.connect(dsn) as connection:
        other.execute("CREATE TABLE t (a int)")
        ((time, rows),) = connection.execute("SELECT mz_now(), count(*) FROM t").fetchall()
        other.execute("INSERT INTO t VALUES (1)")
        for prepare in (False, True):
            assert connection.execute("SELECT mz_now()", prepare=prepare).fetchone() == (time,)
        assert connection.execute("SELECT mz_now(), count(*) FROM t").fetchall() == [(time, rows)]
        assert connection.execute("SELECT mz_now() + s FROM generate_series(1, 2) s ORDER BY 1").fetchall() == [
            (time + 1,),
            (time + 2,),
        ]
        connection.commit()
        ((later,),) = connection.execute("SELECT mz_now()").fetchall()
        assert later > time
        assert connection.execute("SELECT mz_now() AS OF 42").fetchone() == (42,)


@pytest.mark.parametrize(
    ("statements", "code", "message"),
    [
        (["SELECT * FROM t", "SUBSCRIBE t"], "25006", "transaction in read-only mode"),
        (["INSERT INTO t VALUES (1)", "SELECT * FROM t", "SUBSCRIBE t"], "25000", "transaction in write-only mode"),
        (["CREATE TABLE u (a int)", "SUBSCRIBE t"], "25000", "this transaction can only execute a single statement"),
        (["SELECT a / 0 FROM (VALUES (1)) x (a)", "SELECT 1"], "22012", "division by zero"),
    ],
)
def test_statements_that_a_transaction_cannot_combine(dsn: str, statements: list[str], code: str, message: str) -> None:
    with connect(dsn) as connection:
        connection.execute("CREATE TABLE t (a int)")
        connection.execute("BEGIN")
        with pytest.raises(psycopg.Error) as refused:
            for statement in statements:
                connection.execute(statement)
        assert refused.value.sqlstate == code
        assert str(refused.value).splitlines()[0] == message
        with pytest.raises(errors.InFailedSqlTransaction):
            connection.execute("SELECT 1")
        connection.execute("ROLLBACK")
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_ddl_in_a_transaction_is_atomic(dsn: str) -> None:
    with connect(dsn) as other, psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE t (a int)")
        connection.execute("CREATE VIEW v AS SELECT a FROM t")
        with pytest.raises(errors.UndefinedTable):
            other.execute("SELECT * FROM t")
        connection.commit()
        assert other.execute("SELECT * FROM v").fetchall() == []


def test_drop_cascade_reports_the_dropped_objects(dsn: str) -> None:
    with connect(dsn) as connection:
        notices: list[tuple[str | None, str | None]] = []
        connection.add_notice_handler(lambda diag: notices.append((diag.message_primary, diag.message_detail)))
        for statement in (
            "CREATE TABLE t (a int)",
            "CREATE MATERIALIZED VIEW m AS SELECT a FROM t",
            "CREATE INDEX i ON m (a)",
            "CREATE VIEW v AS SELECT a FROM m",
            "CREATE VIEW w AS SELECT a FROM v",
            "CREATE VIEW x AS SELECT a FROM t",
        ):
            connection.execute(statement)
        with pytest.raises(errors.DependentObjectsStillExist):
            connection.execute("DROP VIEW v, x")
        connection.execute("DROP VIEW v, w")  # w depends on v, but is dropped as well
        assert not notices
        connection.execute("DROP MATERIALIZED VIEW m CASCADE")  # its index is part of it: no notice
        assert not notices
        connection.execute("CREATE VIEW y AS SELECT a FROM x")
        connection.execute("DROP VIEW x CASCADE")
        connection.execute("CREATE VIEW v AS SELECT a FROM t")
        connection.execute("CREATE VIEW w AS SELECT a FROM v")
        connection.execute("DROP TABLE t CASCADE")
        assert notices == [
            ("drop cascades to view y", None),
            ("drop cascades to 2 other objects", "drop cascades to view v\ndrop cascades to view w"),
        ]


def test_views_keep_working_after_a_rename(dsn: str) -> None:
    with connect(dsn) as connection:
        connection.execute('CREATE TABLE t ("A b" int)')
        connection.execute("CREATE VIEW v AS SELECT * FROM t")
        connection.execute("ALTER TABLE t RENAME TO u")
        connection.execute("INSERT INTO u VALUES (7)")
        assert connection.execute('SELECT "A b" FROM v').fetchall() == [(7,)]


def test_concurrent_increments_are_serializable(dsn: str) -> None:
    """8 sessions increment one row, and no increment is lost."""
    sessions, increments = 8, 125
    with connect(dsn) as connection:
        connection.execute("CREATE TABLE counter (n int)")
        connection.execute("INSERT INTO counter VALUES (0)")

        def work() -> None:
            with connect(dsn) as own:
                for _ in range(increments):
                    own.execute("UPDATE counter SET n = n + 1")

        threads = [threading.Thread(target=work) for _ in range(sessions)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert connection.execute("SELECT n FROM counter").fetchall() == [(sessions * increments,)]


def test_inserts_during_an_update_are_not_lost(dsn: str) -> None:
    """Inserts succeed while UPDATE statements read and write the same table, and no row is lost."""
    with connect(dsn) as connection:
        connection.execute("CREATE TABLE t (a int)")

        def insert() -> None:
            with connect(dsn) as own:
                for number in range(50):
                    own.execute("INSERT INTO t VALUES (%s)", (number,))

        threads = [threading.Thread(target=insert) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(5):
            connection.execute("UPDATE t SET a = a + 1000 WHERE a < 1000")
        for thread in threads:
            thread.join()
        assert connection.execute("SELECT count(*), sum(a % 1000) FROM t").fetchone() == (150, 3 * sum(range(50)))


def test_parameters_of_many_types(dsn: str) -> None:
    import datetime as dt
    import decimal
    import uuid

    row = (
        True,
        -5,
        2**40,
        1.5,
        decimal.Decimal("12.34"),
        "o'clock\\n",
        b"\x00\xff",
        dt.date(2024, 2, 29),
        dt.datetime(2024, 2, 29, 12, 30, 0, 5),
        uuid.UUID(int=7),
        [1, 2],
    )
    with connect(dsn) as connection:
        connection.execute(
            "CREATE TABLE t (a bool, b int, c bigint, d float8, e numeric(10,2), f text, g bytea, h date, i timestamp,"
            " j uuid, k int[])"
        )
        connection.execute(f"INSERT INTO t VALUES ({', '.join(['%s'] * len(row))})", row)
        assert connection.execute("SELECT * FROM t").fetchone() == row
        with connection.cursor(binary=True) as binary:
            assert binary.execute("SELECT * FROM t").fetchone() == row


def test_writes_return_rows(dsn: str) -> None:
    with connect(dsn) as connection:
        connection.execute("CREATE TABLE t (a int, b text DEFAULT 'x')")
        assert connection.execute("INSERT INTO t (a) VALUES (1), (2) RETURNING a, b").fetchall() == [(1, "x"), (2, "x")]
        assert connection.execute("UPDATE t SET b = 'y' WHERE a = 2 RETURNING b").fetchall() == [("y",)]
        assert connection.execute("DELETE FROM t RETURNING a").rowcount == 2
        assert connection.execute("SELECT * FROM t").fetchall() == []


def test_copy_in_and_out(dsn: str) -> None:
    with connect(dsn) as connection:
        connection.execute("CREATE TABLE t (a int, b text)")
        with connection.cursor() as cursor:
            with cursor.copy("COPY t FROM STDIN") as copy:
                for number in range(10_000):
                    copy.write_row((number, None if number % 7 == 0 else f"row\t{number}"))
            assert cursor.rowcount == 10_000
            with cursor.copy("COPY t TO STDOUT (FORMAT binary)") as copy:
                copy.set_types(["int4", "text"])
                rows = list(copy.rows())
        assert sorted(rows) == [(n, None if n % 7 == 0 else f"row\t{n}") for n in range(10_000)]


def test_copy_in_fills_in_defaults(dsn: str) -> None:
    with connect(dsn) as connection:
        connection.execute("CREATE TABLE t (a int, b text DEFAULT 'none', c int, d timestamp DEFAULT '2013-07-10')")
        with connection.cursor().copy("COPY t (c, a) FROM STDIN") as copy:
            copy.write("10\t1\n20\t2\n")
        rows = connection.execute("SELECT a, b, c, d::text FROM t ORDER BY a").fetchall()
        assert rows == [(1, "none", 10, "2013-07-10 00:00:00"), (2, "none", 20, "2013-07-10 00:00:00")]


def test_a_malformed_copy_inserts_nothing(dsn: str) -> None:
    with connect(dsn) as connection:
        connection.execute("CREATE TABLE t (a int, b text)")
        with pytest.raises(errors.InvalidTextRepresentation) as refused, connection.cursor() as cursor:
            with cursor.copy("COPY t FROM STDIN") as copy:
                copy.write("1\tone\n2\ttwo\nx\tthree\n")
        assert refused.value.diag.context == 'COPY t, line 3, column a: "x"'
        assert connection.execute("SELECT * FROM t").fetchall() == []


def test_cancel_ends_the_statement_and_keeps_the_session(dsn: str) -> None:
    with connect(dsn) as connection:
        connection.execute("CREATE TABLE t (a int)")
        timer = threading.Timer(0.3, connection.cancel_safe)
        timer.start()
        with pytest.raises(errors.QueryCanceled) as canceled:
            for _ in connection.cursor().stream("SUBSCRIBE t"):
                pass
        assert str(canceled.value) == "canceling statement due to user request"
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_cancel_of_a_spark_query(dsn: str) -> None:
    with connect(dsn) as connection:
        timer = threading.Timer(1.0, connection.cancel_safe)
        timer.start()
        with pytest.raises(errors.QueryCanceled):
            connection.execute(
                "SELECT sum(a.g * b.g) FROM generate_series(1, 3000000) a (g), generate_series(1, 3000000) b (g)"
            )
        assert connection.execute("SELECT count(*) FROM (VALUES (1), (2)) v (a)").fetchone() == (2,)


def test_statement_timeout(dsn: str) -> None:
    with connect(dsn) as connection:
        connection.execute("CREATE TABLE t (a int)")
        connection.execute("SET statement_timeout = '200ms'")
        with pytest.raises(errors.QueryCanceled, match="statement timeout"):
            list(connection.cursor().stream("SUBSCRIBE t"))
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_idle_in_transaction_timeout(dsn: str) -> None:
    with connect(dsn) as connection:
        connection.execute("SET idle_in_transaction_session_timeout = '100ms'")
        connection.execute("BEGIN")
        assert select.select([connection.pgconn.socket], [], [], 10)[0], "the server says why it closes"
        with pytest.raises(errors.IdleInTransactionSessionTimeout):
            connection.execute("SELECT 1")


@pytest.mark.parametrize(
    "statements",
    [
        ["SELECT pg_sleep(60)"],
        ["SUBSCRIBE t"],
        ["BEGIN"],
        ["BEGIN", "SELECT pg_sleep(60)"],
        ["BEGIN", "DECLARE c CURSOR FOR SUBSCRIBE t", "FETCH ALL c"],
    ],
)
def test_transaction_timeout(dsn: str, statements: list[str]) -> None:
    with connect(dsn) as connection:
        connection.execute("DROP TABLE IF EXISTS t")
        connection.execute("CREATE TABLE t (a int)")
        connection.execute("SET transaction_timeout = '300ms'")
        for _ in range(3):
            connection.execute("SELECT pg_sleep(0.15)")  # each is a transaction of its own
        with pytest.raises(errors.TransactionTimeout, match="terminating connection due to"):
            for statement in statements:
                connection.execute(statement.encode())
            assert select.select([connection.pgconn.socket], [], [], 10)[0], "the server says why it closes"
            connection.execute("SELECT 1")
        assert connection.closed


def test_settings(dsn: str) -> None:
    with connect(dsn) as connection:
        connection.execute("SET TIME ZONE 'America/New_York'")
        assert connection.execute("SHOW timezone").fetchone() == ("America/New_York",)
        assert connection.info.parameter_status("TimeZone") == "America/New_York"
        with connection.cursor().copy("COPY (SELECT '2013-07-04 12:00:00+00'::timestamptz) TO STDOUT") as copy:
            assert b"".join(copy) == b"2013-07-04 08:00:00-04\n"
        with pytest.raises(errors.UndefinedObject):
            connection.execute("SET no_such_thing = 1")
        connection.execute("BEGIN")
        connection.execute("SET application_name = 'inside'")
        connection.execute("ROLLBACK")
        assert connection.execute("SHOW application_name").fetchone() == ("",)


async def test_asyncpg(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("CREATE TABLE t (a int, b text)")
        await connection.executemany("INSERT INTO t VALUES ($1, $2)", [(1, "x"), (2, None)])
        rows = await connection.fetch("SELECT a, b FROM t WHERE a >= $1", 1)
        assert sorted((r["a"], r["b"]) for r in rows) == [(1, "x"), (2, None)]
        received = bytearray()

        async def write(data: bytes) -> None:
            received.extend(data)

        latest = await connection.fetchval("SELECT mz_now()")
        await connection.copy_from_query(f"SUBSCRIBE t UP TO {int(latest) + 1000}", output=write)
        assert sorted(line.split("\t")[1:] for line in received.decode().splitlines()) == [
            ["1", "1", "x"],
            ["1", "2", "\\N"],
        ]
    finally:
        await connection.close()


def test_psql(dsn: str) -> None:
    script = (
        "CREATE TABLE t (a int, b numeric(5,2));\nINSERT INTO t VALUES (1, 1.5), (2, NULL);\n"
        "SELECT * FROM t ORDER BY a;\n"
    )
    done = subprocess.run(["psql", dsn, "-X", "-q", "-At"], input=script, capture_output=True, text=True, timeout=30)
    assert done.stdout == "1|1.50\n2|\n", done.stderr


def test_many_concurrent_sessions(server: ServerThread, dsn: str) -> None:
    async def one(number: int) -> int:
        connection = await asyncpg.connect(dsn)
        try:
            return int(await connection.fetchval(f"SELECT {number}"))
        finally:
            await connection.close()

    async def all_of_them() -> list[int]:
        return await asyncio.gather(*(one(number) for number in range(100)))

    assert asyncio.run(all_of_them()) == list(range(100))
    assert len(server.app.listener.clients) < 20
