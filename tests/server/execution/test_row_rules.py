"""CHECK constraints and generated columns, compared with PostgreSQL's."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import errors

from tests.fix_postgres import own_schema
from tests.fix_server import ServerThread
from tests.server.execution.test_sequences import differences

COMMANDS = (
    "CREATE TABLE t (k int CHECK (k > 0), v int CONSTRAINT small CHECK (v < 10), s text, CHECK (k <> v), "
    "CONSTRAINT named CHECK (length(s) < 5 AND s <> 'bad'))",
    "INSERT INTO t VALUES (1, 2, 'a')",
    "INSERT INTO t VALUES (0, 2, 'a')",
    "INSERT INTO t VALUES (1, 2, 'a'), (2, 20, 'b')",
    "INSERT INTO t VALUES (3, 3, 'a')",
    "INSERT INTO t VALUES (1, 2, 'too long')",
    "INSERT INTO t VALUES (-1, 20, 'bad')",
    "INSERT INTO t VALUES (NULL, NULL, NULL) RETURNING *",
    "INSERT INTO t SELECT 1, 50, 'x'",
    "INSERT INTO t SELECT 1, 5, 'x' RETURNING v",
    "INSERT INTO t VALUES (1, 2, '1'), (1, 2, '2'), (1, 2, '3'), (1, 2, '4'), (1, 2, '5'), (1, 2, '6'), "
    "(1, 2, '7'), (1, 2, 'bad'), (1, 2, '9')",
    "CREATE TABLE bad (k int CHECK (k + 1))",
    "CREATE TABLE bad (k int CHECK (none > 1))",
    "CREATE TABLE bad (k int CHECK (sum(k) > 1))",
    "CREATE TABLE bad (k int CHECK ((SELECT true)))",
    "CREATE TABLE bad (k int, CONSTRAINT c CHECK (k > 1), CONSTRAINT c CHECK (k > 2))",
    "ALTER TABLE t DROP CONSTRAINT t_k_check",
    "INSERT INTO t VALUES (0, 2, 'a')",
    "ALTER TABLE t DROP CONSTRAINT t_k_check",
    "ALTER TABLE t DROP CONSTRAINT IF EXISTS t_k_check",
    "ALTER TABLE t ADD CONSTRAINT small CHECK (v > 0)",
    "ALTER TABLE t VALIDATE CONSTRAINT small",
    "ALTER TABLE t VALIDATE CONSTRAINT none",
    "ALTER TABLE t ADD CHECK (k > 0)",
    "ALTER TABLE t ADD CHECK (k > 0) NOT VALID",
    "ALTER TABLE t VALIDATE CONSTRAINT t_k_check",
    "INSERT INTO t VALUES (0, 2, 'b')",
    "ALTER TABLE t ADD CHECK (k >= 0)",
    "SELECT * FROM t",
    "CREATE TABLE g (a int, b int GENERATED ALWAYS AS (a * 2) STORED, c text GENERATED ALWAYS AS ('n' || a) STORED "
    "CHECK (c <> 'n9'), d int DEFAULT 5)",
    "INSERT INTO g (a) VALUES (1), (2) RETURNING *",
    "INSERT INTO g VALUES (3, DEFAULT, DEFAULT, 6) RETURNING b, c, d",
    "INSERT INTO g VALUES (4)",
    "INSERT INTO g VALUES (5, 10)",
    "INSERT INTO g (a, b) VALUES (5, 10)",
    "INSERT INTO g (b) SELECT 1",
    "INSERT INTO g (a) VALUES (9)",
    "INSERT INTO g (a) VALUES (2000000000)",
    "INSERT INTO g (a) VALUES (11), (12), (13), (14), (15), (16), (17), (18), (19), (20)",
    "INSERT INTO g DEFAULT VALUES RETURNING *",
    "UPDATE g SET b = 5",
    "SELECT * FROM g",
    "CREATE TABLE bad (a int, b int DEFAULT 1 GENERATED ALWAYS AS (a) STORED)",
    "CREATE TABLE bad (a int, b int GENERATED ALWAYS AS (a) STORED, c int GENERATED ALWAYS AS (b) STORED)",
    "CREATE TABLE bad (a int, b int GENERATED ALWAYS AS (b + 1) STORED)",
    "CREATE TABLE bad (a int, b timestamptz GENERATED ALWAYS AS (now()) STORED)",
    "CREATE TABLE bad (a int, b float8 GENERATED ALWAYS AS (random()) STORED)",
    "CREATE TABLE bad (a int, b text GENERATED ALWAYS AS (a) STORED GENERATED ALWAYS AS (a) STORED)",
    "CREATE TABLE bad (a int, b boolean GENERATED ALWAYS AS ('2020-01-01'::date) STORED)",
    "CREATE TABLE s (id serial, twice int GENERATED ALWAYS AS (id * 2) STORED, v int CHECK (v > 0))",
    "INSERT INTO s (v) VALUES (1), (2) RETURNING *",
    "INSERT INTO s (v) VALUES (0)",
)

COMPUTED = (
    "CREATE TABLE t (k int, v numeric(10, 2) CHECK (v < 1000), w int GENERATED ALWAYS AS (k % 7) STORED)",
    "INSERT INTO t SELECT i, i / 2.0 FROM generate_series(1, 1000) AS g (i)",
    "INSERT INTO t SELECT i, i * 2 FROM generate_series(1, 1000) AS g (i) WHERE i IN (499, 500, 501)",
    "SELECT count(*), sum(w), max(v) FROM t",
    "UPDATE t SET k = k + 1 WHERE k = 13 RETURNING *",
    "UPDATE t SET v = v * 3 WHERE k > 990",
    "UPDATE t SET w = DEFAULT, k = 7 WHERE k = 1 RETURNING *",
    "ALTER TABLE t ADD CONSTRAINT below CHECK (v < 100)",
    "DELETE FROM t WHERE v >= 100",
    "ALTER TABLE t ADD CONSTRAINT below CHECK (v < 100)",
    "UPDATE t SET v = 100 WHERE k = 20",
    "SELECT count(*), sum(w), max(v) FROM t",
)


def test_rules_are_those_of_postgresql(postgres: str, passing_server: ServerThread) -> None:
    with own_schema(postgres, "rules") as theirs, psycopg.connect(passing_server.dsn(), autocommit=True) as ours:
        found = differences(ours, theirs, COMMANDS)
        assert not found, found


def test_computed_rows_follow_the_rules_as_in_postgresql(postgres: str, dsn: str) -> None:
    with own_schema(postgres, "computed_rules") as theirs, psycopg.connect(dsn, autocommit=True) as ours:
        found = differences(ours, theirs, COMPUTED)
        assert not found, found


def test_copy_follows_the_rules(passing_server: ServerThread) -> None:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE TABLE t (a int CHECK (a < 100), b int GENERATED ALWAYS AS (a + 1) STORED, c text)")
        with connection.cursor().copy("COPY t FROM STDIN") as copy:
            for number in range(100):
                copy.write_row((number, f"c{number}"))
        assert sorted(connection.execute("SELECT * FROM t")) == [(n, n + 1, f"c{n}") for n in range(100)]
        with pytest.raises(errors.CheckViolation) as raised, connection.cursor().copy("COPY t FROM STDIN") as copy:
            copy.write("5\tx\n100\ty\n")
        assert raised.value.diag.message_detail == "Failing row contains (100, 101, y)."
        with pytest.raises(psycopg.Error, match='column "b" is a generated column'):
            connection.execute("COPY t (a, b) FROM STDIN")
        with connection.cursor().copy("COPY t TO STDOUT") as copy:
            assert sorted(bytes(data) for data in copy)[0] == b"0\tc0\n"


@pytest.mark.parametrize("later", ["COPY t FROM STDIN", "CREATE TABLE other (k int)", None])
@pytest.mark.parametrize("alteration", ["ADD CHECK (k > 0)", "ALTER COLUMN v SET NOT NULL"])
def test_rows_from_before_an_alteration_are_not_committed_after_it(
    passing_server: ServerThread, alteration: str, later: str | None
) -> None:
    """The block has computed its first row for the old definition, whatever else it does afterwards."""
    with (
        psycopg.connect(passing_server.dsn(), autocommit=True) as one,
        psycopg.connect(passing_server.dsn(), autocommit=True) as other,
    ):
        one.execute("CREATE TABLE t (k int, v int)")
        one.execute("BEGIN; INSERT INTO t VALUES (-1, NULL)")
        other.execute(f"ALTER TABLE t {alteration}".encode())
        with pytest.raises(errors.SerializationFailure):
            if later is not None and later.startswith("COPY"):
                with one.cursor().copy(later) as copy:
                    copy.write_row((5, 5))
            elif later is not None:
                one.execute(later.encode())
            one.execute("COMMIT")
        one.execute("ROLLBACK")
        assert one.execute("SELECT * FROM t").fetchall() == []
        one.execute("BEGIN; INSERT INTO t VALUES (1, 1)")
        one.execute("COMMIT")
        assert one.execute("SELECT * FROM t").fetchall() == [(1, 1)]


SECONDS = (
    "CREATE TABLE t (a timestamp(3), b time(0), c timestamptz(1), d interval(2), e timestamp, "
    "f timestamp(0) DEFAULT '2024-01-01 00:00:00.6')",
    "INSERT INTO t VALUES ('2024-01-01 12:00:00.123456', '12:00:00.5', '1999-12-31 23:59:59.95', '1.235 s', "
    "'2024-01-01 12:00:00.123456') RETURNING *",
    "INSERT INTO t VALUES ('1999-01-01 12:00:00.0005', '12:00:00.4', '2024-01-01 12:00:00.05', '-1.235 s', NULL, NULL)",
    "INSERT INTO t (a) VALUES ('2024-01-01 00:00:00.9996'), (NULL), ('2024-01-01'), ('2024-01-01'), ('2024-01-01'), "
    "('2024-01-01'), ('2024-01-01'), ('2024-01-01 00:00:00.12345'), ('2024-01-01 00:00:00.12355')",
    "SELECT * FROM t",
    "SELECT '2024-01-01 12:00:00.123456'::timestamp(3), '12:00:00.5'::time(0), '1.235 s'::interval(2)",
    "CREATE TABLE u (a timestamp(9))",
    "INSERT INTO u VALUES ('2024-01-01 12:00:00.123456') RETURNING a",
    "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 0",
    "SELECT column_name, datetime_precision FROM information_schema.columns WHERE table_name = 't'",
)


def test_seconds_are_rounded_as_in_postgresql(postgres: str, passing_server: ServerThread) -> None:
    with own_schema(postgres, "seconds") as theirs, psycopg.connect(passing_server.dsn(), autocommit=True) as ours:
        ours.execute("SET TimeZone = 'UTC'")
        found = differences(ours, theirs, SECONDS)
        assert not found, found
        for connection in (ours, theirs):
            connection.execute("TRUNCATE t")
            with connection.cursor().copy("COPY t (a, b, c, d) FROM STDIN") as copy:
                copy.write_row(("1999-01-01 12:00:00.0005", "12:00:00.5", "2024-01-01 12:00:00.05", "-1.235 s"))
                copy.write_row(("2024-01-01 12:00:00.0005", None, "1999-01-01 12:00:00.05", "1.235 s"))
        assert sorted(ours.execute("SELECT * FROM t")) == sorted(theirs.execute("SELECT * FROM t"))


CONFLICTS = (
    "CREATE TABLE t (id serial PRIMARY KEY, k int UNIQUE, v int CHECK (v < 10), "
    "g int GENERATED ALWAYS AS (v * 2) STORED)",
    "INSERT INTO t (k, v) VALUES (1, 1), (2, 2)",
    "INSERT INTO t (k, v) VALUES (1, 5) ON CONFLICT (k) DO UPDATE SET v = excluded.v RETURNING *",
    "INSERT INTO t (k, v) VALUES (1, 50) ON CONFLICT (k) DO NOTHING",
    "INSERT INTO t (k, v) VALUES (2, 7), (3, 8) ON CONFLICT (k) DO NOTHING RETURNING *",
    "INSERT INTO t (k, v) VALUES (4, 4) RETURNING id",
    "ALTER TABLE t DROP CONSTRAINT t_v_check",
    "INSERT INTO t (k, v) VALUES (4, 44) ON CONFLICT (k) DO UPDATE SET v = excluded.v RETURNING *",
    "SELECT * FROM t",
)


def test_on_conflict_follows_the_rules_as_in_postgresql(postgres: str, dsn: str) -> None:
    with own_schema(postgres, "conflict_rules") as theirs, psycopg.connect(dsn, autocommit=True) as ours:
        found = differences(ours, theirs, CONFLICTS)
        assert not found, found


LENGTHS = (
    "CREATE TABLE t (e varchar(3), g text GENERATED ALWAYS AS (coalesce(e, '-')) STORED)",
    "INSERT INTO t (e) VALUES ('abc')",
    "INSERT INTO t (e) VALUES ('abcd')",
    "INSERT INTO t (e) VALUES ('ab'), (NULL), ('a  ' || ' ')",
    "SELECT * FROM t ORDER BY e",
)


def test_lengths_of_rows_that_spark_computes_are_those_of_postgresql(postgres: str, dsn: str) -> None:
    with own_schema(postgres, "lengths") as theirs, psycopg.connect(dsn, autocommit=True) as ours:
        found = differences(ours, theirs, LENGTHS)
        assert not found, found
