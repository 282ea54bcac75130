"""Enumerated types: definitions, catalogs, transfer of values, and the work that runs while labels change."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import errors
from psycopg.types.enum import EnumInfo, register_enum

from tests.examples import examples
from tests.fix_postgres import own_schema
from tests.fix_server import Connect, ServerThread
from tests.server.execution.test_write import done
from tests.server.slow_engine import PassingEngine

Connection = psycopg.Connection[Any]

DEFINITIONS = (
    "CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')",
    "CREATE TYPE mood AS ENUM ('sad')",
    "CREATE TYPE t AS ENUM ('0123456789012345678901234567890123456789012345678901234567890123')",
    "CREATE TYPE nothing AS ENUM ()",
    "SELECT enum_first(NULL::nothing)",
    "SELECT enum_range(NULL::nothing), NULL::nothing",
    "SELECT 'x'::nothing",
    "CREATE TYPE \"My Type\" AS ENUM ('A b', '', 'it''s {0}')",
    'SELECT \'A b\'::"My Type", \'{"A b",""}\'::"My Type"[], \'it\'\'s {0}\'::"My Type"::text',
    "SELECT 'x'::\"My Type\"",
    "CREATE TABLE person (name text PRIMARY KEY, m mood, ms mood[])",
    "INSERT INTO person VALUES ('Moe', 'happy', '{ok,NULL}'), ('Larry', 'sad', '{}'), ('Curly', 'ok', NULL)",
    "INSERT INTO person VALUES ('X', 'nope')",
    "INSERT INTO person VALUES ('X', 'ok'::text)",
    "SELECT * FROM person",
    "SELECT * FROM person WHERE m = 'happy'",
    "CREATE TABLE n (m nosuch)",
    "CREATE TABLE n (m other.nosuch[])",
    "CREATE TABLE n (m mood(3))",
    "ALTER TYPE mood ADD VALUE 'great'",
    "ALTER TYPE mood ADD VALUE 'meh' BEFORE 'ok'",
    "ALTER TYPE mood ADD VALUE 'awful' BEFORE 'sad'",
    "ALTER TYPE mood ADD VALUE 'good' AFTER 'ok'",
    "ALTER TYPE mood ADD VALUE 'good'",
    "ALTER TYPE mood ADD VALUE IF NOT EXISTS 'good'",
    "ALTER TYPE mood ADD VALUE 'x' AFTER 'zzz'",
    "ALTER TYPE mood RENAME VALUE 'ok' TO 'fine'",
    "ALTER TYPE mood RENAME VALUE 'ok' TO 'other'",
    "ALTER TYPE mood RENAME VALUE 'sad' TO 'fine'",
    "ALTER TYPE nosuch ADD VALUE 'x'",
    "SELECT enum_range(NULL::mood)",
    "SELECT * FROM person",
    "INSERT INTO person VALUES ('X', 'ok', '{}')",
    "INSERT INTO person VALUES ('X', 'meh', '{awful,great}')",
    "SELECT * FROM person",
    "SELECT 'mood'::regtype::text, '_mood'::regtype::text, to_regtype('mood')::text, to_regtype('nosuch')",
    "SELECT * FROM mood",
    "DROP TABLE mood",
    "ALTER TYPE mood RENAME TO feeling",
    "SELECT 'zzz'::feeling",
    "SELECT 'sad'::mood",
    "CREATE TABLE d (k feeling PRIMARY KEY, m feeling DEFAULT 'happy'::feeling, CHECK (m > 'awful'::feeling))",
    "INSERT INTO d (k) VALUES ('sad')",
    "INSERT INTO d (k) VALUES ('sad')",
    "INSERT INTO d VALUES ('good', 'awful')",
    "INSERT INTO d VALUES ('sad', 'good') ON CONFLICT (k) DO NOTHING",
    "ALTER TYPE feeling RENAME TO mood",
    "INSERT INTO d (k) VALUES ('fine')",
    "SELECT * FROM d",
    "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'd'::regclass AND contype = 'c'",
    "ALTER TABLE d ADD COLUMN z mood DEFAULT 'fine'",
    "SELECT * FROM d",
    "PREPARE p (mood) AS SELECT * FROM person WHERE m = $1",
    "EXECUTE p ('happy')",
    "EXECUTE p ('zzz')",
    "PREPARE p2 (nosuch) AS SELECT $1",
    "BEGIN",
    "CREATE TYPE inner_type AS ENUM ('p', 'q')",
    "CREATE TABLE inner_table (a inner_type)",
    "INSERT INTO inner_table VALUES ('q'), ('p')",
    "SELECT * FROM inner_table",
    "SAVEPOINT s",
    "ALTER TYPE inner_type RENAME VALUE 'p' TO 'r'",
    "SELECT * FROM inner_table",
    "ROLLBACK TO s",
    "SELECT * FROM inner_table",
    "ROLLBACK",
    "SELECT 'p'::inner_type",
    'DROP TYPE nothing, "My Type"',
    "DROP TYPE nothing",
    "DROP TYPE IF EXISTS nothing",
    "CREATE VIEW v AS SELECT * FROM person WHERE m = 'fine'::mood",
    "ALTER TYPE mood RENAME TO humour",
    "SELECT * FROM v",
    "DROP TABLE person CASCADE",
    "DROP TABLE d",
    "DROP TYPE humour",
    "SELECT 1 FROM pg_type WHERE typname = 'humour'",
)
"""Statements that do in Tidewire what they do in PostgreSQL. Reads are answered without Spark."""


def answer(connection: Connection, sql: str) -> tuple[str | None, Any]:
    """The command tag and the rows in order, or the SQLSTATE of the error."""
    try:
        cursor = connection.execute(sql.encode())
    except psycopg.Error as error:
        return error.sqlstate, None
    return cursor.statusmessage, cursor.fetchall() if cursor.description else None


@pytest.fixture
def theirs(postgres: str) -> Iterator[Connection]:
    with own_schema(postgres, "enums") as connection:
        connection.execute("SET search_path = enums, public")
        yield connection


@pytest.fixture
def passing(passing_server: ServerThread) -> Iterator[Connection]:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as connection:
        yield connection


def test_definitions_are_as_in_postgresql(theirs: Connection, passing: Connection) -> None:
    for statement in DEFINITIONS:
        ours = done(passing, statement)
        assert ours == done(theirs, statement), statement


def test_catalogs_show_types(theirs: Connection, passing: Connection) -> None:
    for connection in (theirs, passing):
        connection.execute("CREATE TYPE mood AS ENUM ('sad', 'happy')")
        connection.execute("ALTER TYPE mood ADD VALUE 'ok' AFTER 'sad'")
        connection.execute("CREATE TABLE t (m mood NOT NULL, ms mood[])")
    for query in (
        "SELECT enumlabel FROM pg_enum e JOIN pg_type t ON t.oid = enumtypid WHERE typname = 'mood'"
        " ORDER BY enumsortorder",
        "SELECT typname, typtype, typcategory, typlen, typbyval, typalign, typstorage,"
        " typarray::regtype::text, typelem::regtype::text FROM pg_type WHERE typname IN ('mood', '_mood') ORDER BY 1",
        "SELECT attname, format_type(atttypid, atttypmod), attlen, attbyval, attndims, attnotnull FROM pg_attribute"
        " WHERE attrelid = 't'::regclass AND attnum > 0 ORDER BY attnum",
        "SELECT column_name, data_type, udt_name FROM information_schema.columns WHERE table_name = 't' ORDER BY 1",
        "SELECT pg_type_is_visible(oid), oid = 'mood'::regtype::oid FROM pg_type WHERE typname = 'mood'",
    ):
        assert answer(passing, query) == answer(theirs, query), query


def test_show_lists_types(passing: Connection) -> None:
    passing.execute("CREATE TYPE mood AS ENUM ('sad'); CREATE DOMAIN age AS int; CREATE TYPE colour AS ENUM ()")
    assert passing.execute("SHOW TYPES").fetchall() == [("age",), ("colour",), ("mood",)]
    assert passing.execute("SHOW TYPES LIKE 'm%'").fetchall() == [("mood",)]


def test_values_are_transferred_in_all_formats(theirs: Connection, passing: Connection) -> None:
    """Parameters and results in text and binary, by psycopg's EnumInfo, and COPY."""
    received = []
    for connection in (theirs, passing):
        connection.execute("CREATE TYPE mood AS ENUM ('sad', 'ok', 'a \"b\"', 'C')")
        connection.execute("CREATE TABLE t (k int, m mood, ms mood[])")
        info = EnumInfo.fetch(connection, "mood")
        assert info is not None
        assert list(info.labels) == ["sad", "ok", 'a "b"', "C"]
        register_enum(info, connection)
        assert info.enum is not None
        sad, quoted = info.enum["sad"], info.enum['a "b"']
        for number, binary in enumerate((False, True)):
            cursor = connection.cursor(binary=binary)
            template = "INSERT INTO t VALUES (%b, %b, %b)" if binary else "INSERT INTO t VALUES (%t, %t, %t)"
            cursor.execute(template, (number, sad, [sad, quoted, None]))
            found = cursor.execute("SELECT m, ms FROM t WHERE k = %s", (number,)).fetchone()
            assert found == (sad, [sad, quoted, None])
            assert cursor.description is not None
            assert [column.type_code for column in cursor.description] == [info.oid, info.array_oid]
        for options in ("", "(FORMAT csv)", "(FORMAT binary)"):
            copied = b""
            with connection.cursor().copy(f"COPY t TO STDOUT {options}".encode()) as copy:
                copied = b"".join(bytes(data) for data in copy)
            if "binary" not in options:  # which contains the OID of the type
                received.append((connection is theirs, options, copied))
            with connection.cursor().copy(f"COPY t FROM STDIN {options}".encode()) as copy:
                copy.write(copied)
        with pytest.raises(errors.InvalidTextRepresentation, match='invalid input value for enum mood: "x"') as failed:
            with connection.cursor().copy("COPY t FROM STDIN") as copy:
                copy.write("1\tx\t{}\n")
        assert failed.value.diag.context is not None
        assert "COPY t, line 1, column m" in failed.value.diag.context
        assert connection.execute("SELECT m, ms FROM t").fetchall() == [(sad, [sad, quoted, None])] * 16
    assert {what[1:] for what in received if what[0]} == {what[1:] for what in received if not what[0]}


def test_a_type_in_use_is_not_dropped(passing: Connection) -> None:
    passing.execute("CREATE SCHEMA a; CREATE TYPE a.mood AS ENUM ('x'); CREATE TABLE t (k int, m a.mood)")
    passing.execute("CREATE VIEW v AS SELECT 'x'::a.mood AS m")
    for statement in ("DROP TYPE a.mood", "DROP TYPE a.mood CASCADE", "DROP SCHEMA a CASCADE"):
        with pytest.raises(errors.DependentObjectsStillExist, match="cannot drop type mood because") as failed:
            passing.execute(statement)
        assert failed.value.diag.message_detail == (
            "column m of table t depends on type mood\nview v depends on type mood"
        )
        assert failed.value.diag.message_hint == "Drop these columns and constraints first."
    passing.execute("ALTER TABLE t DROP COLUMN m; DROP TYPE a.mood CASCADE; DROP SCHEMA a")
    assert passing.execute("SELECT 1 FROM pg_class WHERE relname = 'v'").fetchall() == []


def test_a_value_that_stored_text_names_is_not_renamed(passing: Connection) -> None:
    passing.execute(
        "CREATE TYPE mood AS ENUM ('a', 'b', 'c', 'd'); CREATE TABLE t (m mood DEFAULT 'a', CHECK (m <> 'b'))"
    )
    passing.execute("CREATE VIEW v AS SELECT * FROM t WHERE m = 'c'")
    for label, what in (("a", "table t"), ("b", "table t"), ("c", "view v")):
        with pytest.raises(errors.FeatureNotSupported, match=f"of type mood because {what} names it"):
            passing.execute(f"ALTER TYPE mood RENAME VALUE '{label}' TO 'z'".encode())
    passing.execute("ALTER TYPE mood RENAME VALUE 'd' TO 'z'; INSERT INTO t VALUES ('z')")
    assert passing.execute("SELECT * FROM t").fetchall() == [("z",)]


def test_types_survive_a_restart(tmp_path: Path) -> None:
    server = ServerThread(tmp_path, PassingEngine())
    try:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute("CREATE TYPE mood AS ENUM ('a', 'c'); ALTER TYPE mood ADD VALUE 'b' BEFORE 'c'")
            connection.execute("CREATE TABLE t (k int, m mood); INSERT INTO t VALUES (1, 'b'), (2, 'c')")
            connection.execute("CREATE VIEW v AS SELECT 'b'::mood AS m; ALTER TYPE mood RENAME VALUE 'c' TO 'd'")
    finally:
        server.stop()
    server = ServerThread(tmp_path, PassingEngine())
    try:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            assert connection.execute("SELECT * FROM t").fetchall() == [(1, "b"), (2, "d")]
            assert connection.execute("SELECT enum_range(NULL::mood)").fetchall() == [("{a,b,d}",)]
            assert connection.execute("SELECT * FROM v").fetchall() == [("b",)]
            with pytest.raises(errors.DependentObjectsStillExist):
                connection.execute("DROP TYPE mood")
    finally:
        server.stop()


def test_sinks_write_labels(passing: Connection, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("sink") / "changes"
    passing.execute("CREATE TYPE mood AS ENUM ('a', 'c'); CREATE TABLE t (k int, m mood, ms mood[])")
    passing.execute("INSERT INTO t VALUES (1, 'c', '{a,NULL}'), (2, NULL, NULL)")
    passing.execute(f"CREATE SINK s FROM t INTO FILE '{path}' FORMAT JSON ENVELOPE MATERIALIZE".encode())
    passing.execute("INSERT INTO t VALUES (3, 'a', '{}'); ALTER TYPE mood ADD VALUE 'b' BEFORE 'c'")
    passing.execute("INSERT INTO t VALUES (4, 'b', '{c,b}'); ALTER TYPE mood RENAME VALUE 'b' TO 'z'")
    passing.execute("INSERT INTO t VALUES (5, 'z', '{z}')")
    expected = [(1, "c", "{a,NULL}"), (2, None, None), (3, "a", "{}"), (4, "b", "{c,b}"), (5, "z", "{z}")]
    deadline = time.monotonic() + 20
    found: list[Any] = []
    while len(found) < len(expected) and time.monotonic() < deadline:
        time.sleep(0.05)
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        rows = [update["data"] for line in lines for update in line.get("array", ())]
        found = sorted((row["k"], row["m"], row["ms"]) for row in rows)
    assert [row for row in found if row[0] != 4] == [row for row in expected if row[0] != 4]
    assert found[3] in (expected[3], (4, "z", "{c,z}"))  # the sink may write it after the renaming


# -- with Spark -----------------------------------------------------------------------------------------------------


def test_dataflows_go_on_when_labels_change(connect: Connect) -> None:
    ours = connect()
    ours.execute("CREATE TYPE mood AS ENUM ('a', 'c'); CREATE TABLE t (k int, m mood)")
    ours.execute("CREATE MATERIALIZED VIEW counts AS SELECT m, count(*) AS n FROM t GROUP BY m")
    ours.execute("CREATE MATERIALIZED VIEW texts AS SELECT k, m::text AS s FROM t")
    ours.execute("CREATE INDEX ON t (m)")
    ours.execute("INSERT INTO t VALUES (1, 'a'), (2, 'c')")
    for query in ("t", "counts", "(SELECT m, min(k) FROM t GROUP BY m)"):
        with connect().cursor() as cursor:
            stream = cursor.stream(f"SUBSCRIBE {query} WITH (SNAPSHOT)".encode())
            assert "a" in next(stream)
            ours.execute(f"ALTER TYPE mood ADD VALUE 'of {query}' BEFORE 'c'".encode())
            with pytest.raises(psycopg.Error, match=r'relation ".*" was altered'):
                for _ in stream:
                    pass
    with connect().cursor() as cursor:
        stream = cursor.stream("SUBSCRIBE t")
        assert sorted(next(stream)[1:] for _ in range(2)) == [(1, 1, "a"), (1, 2, "c")]
        ours.execute("ALTER TYPE mood RENAME TO humour; INSERT INTO t VALUES (9, 'c')")
        assert next(stream)[1:] == (1, 9, "c")  # the name of a type is not part of its values
        ours.execute("ALTER TYPE humour RENAME TO mood; DELETE FROM t WHERE k = 9")
        assert next(stream)[1:] == (-1, 9, "c")
        stream.close()
    ours.execute("ALTER TYPE mood ADD VALUE 'b' AFTER 'a'; INSERT INTO t VALUES (3, 'b')")
    assert ours.execute("SELECT * FROM counts ORDER BY m").fetchall() == [("a", 1), ("b", 1), ("c", 1)]
    assert ours.execute("SELECT * FROM texts ORDER BY k").fetchall() == [(1, "a"), (2, "c"), (3, "b")]
    assert ours.execute("SELECT k FROM t WHERE m = 'b'").fetchall() == [(3,)]
    with pytest.raises(errors.FeatureNotSupported, match="materialized view texts has rows that were computed from it"):
        ours.execute("ALTER TYPE mood RENAME VALUE 'b' TO 'z'")
    ours.execute("DROP MATERIALIZED VIEW texts; ALTER TYPE mood RENAME VALUE 'b' TO 'z'")
    assert ours.execute("SELECT * FROM counts ORDER BY m").fetchall() == [("a", 1), ("z", 1), ("c", 1)]
    ours.execute("UPDATE t SET m = 'z' WHERE m = 'a'")
    assert ours.execute("SELECT * FROM counts ORDER BY m").fetchall() == [("z", 2), ("c", 1)]
    with connect().cursor() as cursor:
        stream = cursor.stream("SUBSCRIBE counts ENVELOPE UPSERT (KEY (m))")
        assert sorted(next(stream)[1:] for _ in range(2)) == [("upsert", "c", 1), ("upsert", "z", 2)]
        ours.execute("DELETE FROM t WHERE m = 'c'")
        assert next(stream)[1:] == ("delete", "c", None)
        stream.close()


LABELS = st.sampled_from("abcdefg")
CHANGES = st.one_of(
    st.builds("INSERT INTO t SELECT {}, '{}'".format, st.integers(0, 3), LABELS),
    st.builds("UPDATE t SET m = '{1}' WHERE k = {0}".format, st.integers(0, 3), LABELS),
    st.builds("DELETE FROM t WHERE m > '{}'".format, LABELS),
    st.builds("ALTER TYPE e ADD VALUE '{}'".format, LABELS),
    st.builds(
        "ALTER TYPE e ADD VALUE IF NOT EXISTS '{}' {} '{}'".format, LABELS, st.sampled_from(("BEFORE", "AFTER")), LABELS
    ),
    st.builds("ALTER TYPE e RENAME VALUE '{}' TO '{}'".format, LABELS, LABELS),
)
READS = (
    "SELECT m, k FROM t ORDER BY m, k",
    "SELECT * FROM by_key ORDER BY k",
    "SELECT * FROM counts ORDER BY m",
    "SELECT enum_range(NULL::e)",
)


def test_random_labels_are_as_in_postgresql(theirs: Connection, connect: Connect) -> None:
    """Materialized views, and a subscription that is started again when labels change, equal the query from scratch."""
    ours, other = connect(), connect()

    @examples(6)
    @given(st.lists(LABELS, min_size=1, max_size=4, unique=True), st.lists(CHANGES, min_size=4, max_size=12))
    def compare(labels: list[str], changes: list[str]) -> None:
        ours.execute("DROP TABLE IF EXISTS t CASCADE; DROP TYPE IF EXISTS e")
        theirs.execute("DROP TABLE IF EXISTS t CASCADE; DROP TYPE IF EXISTS e")
        for connection, kind in ((theirs, "VIEW"), (ours, "MATERIALIZED VIEW")):
            listed = ", ".join(f"'{label}'" for label in labels)
            connection.execute(f"CREATE TYPE e AS ENUM ({listed}); CREATE TABLE t (k int, m e)".encode())
            connection.execute(
                f"CREATE {kind} by_key AS SELECT k, min(m) AS low, max(m) AS high FROM t GROUP BY k".encode()
            )
            connection.execute(f"CREATE {kind} counts AS SELECT m, count(*) AS n FROM t GROUP BY m".encode())
        for change in changes:
            assert answer(ours, change) == answer(theirs, change), change
            for read in READS:
                assert answer(ours, read) == answer(theirs, read), (change, read)
        count = theirs.execute("SELECT count(*) FROM counts").fetchall()[0][0]
        with other.cursor() as cursor:
            stream = cursor.stream("SUBSCRIBE (SELECT m, count(*) FROM t GROUP BY m)")
            found = [next(stream)[2:] for _ in range(count)]
            stream.close()
        assert sorted(found) == sorted(theirs.execute("SELECT * FROM counts").fetchall())

    compare()
