"""Sinks into tables of PostgreSQL: the table equals the collection, and what others do to it is detected."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import sleep
from typing import Any

import asyncpg
import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from structlog.testing import capture_logs

from catalog import updates
from catalog.objects.tables import Table
from server.coordinator.committer import Request
from server.coordinator.payloads import prepare_payloads
from server.egress.postgres import table as postgres_table
from server.egress.postgres.connection import Connection
from server.egress.postgres.statements import Statements
from server.ingest.postgres.connection import Server
from server.ingest.upstream import UpstreamError
from tests.fix_server import ServerThread
from tests.server.egress.postgres.conftest import create_connection
from tests.server.refusals import refused
from tests.server.slow_engine import PassingEngine

pytestmark = pytest.mark.slow

TYPES = """
    k bigint NOT NULL, a smallint, b integer, c real, d double precision, e boolean, f text, g varchar(9), h bytea,
    i date, j time, l timestamp, m timestamptz, n interval, o numeric(12,3), p numeric, q uuid, r json, s jsonb,
    u integer[], v text[]
"""
ROWS = """
    (1, 1, -2, 1.5, 'NaN', true, 'x', 'y', '\\x00ff', '2020-02-29', '01:02:03.000004', '1999-12-31 23:59:59.999999',
     '2001-01-01 00:00:00+00', '1 mon 2 days 3 us', 12.345, 0.000000000000000001,
     'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{"b": 1,  "a": 2}', '{"b": 1, "a": 2}', '{1,NULL}', '{"a,b",""}'),
    (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
     NULL, NULL),
    (3, 0, 0, '-0', '-Infinity', false, '', '', '', '0001-01-01', '00:00', '0001-01-01', '9999-12-31', '0', 0, 0,
     '00000000-0000-0000-0000-000000000000', 'null', 'null', '{}', '{}'),
    (4, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'infinity', NULL, '-infinity', 'infinity', NULL, NULL,
     NULL, NULL, NULL, NULL, NULL, NULL)
"""


def change(server: ServerThread, name: str, change: Callable[[pa.Table], pa.Table]) -> None:
    """Replaces the rows of a table by the result of `change`, in one commit: statements would need Spark."""

    async def commit() -> None:
        coordinator = server.app.coordinator
        (table,) = (item for item in coordinator.state.items_of(Table) if item.name == name)
        before = await coordinator.reads.rows(table.id, coordinator.latest_time())
        changes = updates.difference(change(before), before)
        await coordinator.commit(Request(writes=await prepare_payloads(coordinator.log, {table.id: [changes]})))

    server.call(commit())


def with_values(rows: pa.Table, **values: Any) -> pa.Table:
    """The rows with other values of some columns."""
    for name, value in values.items():
        at = rows.column_names.index(name)
        array = pa.array([value] * rows.num_rows, rows.schema.field(at).type)
        rows = rows.set_column(at, name, array)
    return rows


def rows(connection: psycopg.Connection, table: str) -> list[tuple[Any, ...]]:
    """The rows as texts, sorted."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table}".encode())
        assert cursor.pgresult is not None
        result = cursor.pgresult
        found = [[result.get_value(row, column) for column in range(result.nfields)] for row in range(result.ntuples)]
    return sorted(map(tuple, found), key=repr)


def wait_until_equal(connection: psycopg.Connection, view: str, target: psycopg.Connection, table: str) -> None:
    """Returns when the table has the rows of the collection, or fails if the sink is stalled."""
    expected = rows(connection, view)
    while not has_table(target, table) or rows(target, table) != expected:
        (status, error) = status_of(connection)
        assert status != "stalled", error
        sleep(0.005)


def has_table(target: psycopg.Connection, table: str) -> bool:
    row = target.execute("SELECT to_regclass(%s) IS NOT NULL", (table,)).fetchone()
    assert row is not None
    return bool(row[0])


def status_of(connection: psycopg.Connection) -> tuple[str, str | None]:
    row = connection.execute("SELECT status, error FROM mz_internal.mz_sink_statuses").fetchone()
    assert row is not None
    return row


def wait_until_stalled(connection: psycopg.Connection) -> str:
    """The reason."""
    while (found := status_of(connection))[0] != "stalled":
        sleep(0.005)
    assert found[1] is not None
    return found[1]


@pytest.mark.parametrize("key", ["", "KEY (k)"])
def test_a_table_is_created_and_follows_the_collection(
    server: ServerThread, connection: psycopg.Connection, target: psycopg.Connection, key: str
) -> None:
    connection.execute(f"CREATE TABLE t ({TYPES})".encode())
    connection.execute(f"INSERT INTO t VALUES {ROWS}".encode())
    connection.execute(f"CREATE SINK s FROM t INTO POSTGRES CONNECTION pg TABLE kept {key}".encode())
    wait_until_equal(connection, "t", target, "kept")
    columns = "SELECT format_type(atttypid, atttypmod), attnotnull FROM pg_attribute WHERE attnum > 0 AND attrelid = "
    found = target.execute(f"{columns} 'kept'::regclass ORDER BY attnum".encode()).fetchall()
    target.execute(f"CREATE TABLE expected ({TYPES})".encode())
    assert found == target.execute(f"{columns} 'expected'::regclass ORDER BY attnum".encode()).fetchall()
    changes: list[Callable[[pa.Table], pa.Table]] = [
        lambda rows: rows.filter(pc.less(rows["c0"], 3)),
        lambda rows: with_values(rows, c6="changed", c17="[]", c14=None),
        lambda rows: rows.set_column(0, "c0", pc.add(rows["c0"], 1)),
        lambda rows: rows.slice(0, 0),
    ]
    for each in changes:
        change(server, "t", each)
        wait_until_equal(connection, "t", target, "kept")


def test_equal_rows_are_kept_and_deleted_one_by_one(
    server: ServerThread, connection: psycopg.Connection, target: psycopg.Connection
) -> None:
    connection.execute("CREATE TABLE t (a int, b text)")
    connection.execute("INSERT INTO t VALUES (1, NULL), (1, NULL), (1, NULL), (NULL, NULL), (2, 'x'), (2, 'x')")
    connection.execute("CREATE SINK s FROM t INTO POSTGRES CONNECTION pg TABLE kept")
    wait_until_equal(connection, "t", target, "kept")
    kept = [(1, None), (2, "x"), (2, "x"), (2, "x"), (3, "y")]
    for count in (5, 4, 2, 0):
        new = pa.table([[a for a, _ in kept[:count]], [b for _, b in kept[:count]]], ["c0", "c1"])
        change(server, "t", lambda rows, new=new: new.cast(rows.schema))  # type: ignore[misc]
        wait_until_equal(connection, "t", target, "kept")


def test_a_sink_is_shown_and_dropped(connection: psycopg.Connection, target: psycopg.Connection) -> None:
    connection.execute('CREATE TABLE t (a int NOT NULL, "B c" int NOT NULL)')
    target.execute('CREATE SCHEMA "S"')
    create = 'CREATE SINK materialize.public.s FROM materialize.public.t INTO POSTGRES CONNECTION materialize.public.pg TABLE "S".kept KEY (a, "B c") WITH (SNAPSHOT = false)'  # noqa: E501
    connection.execute(create.encode())
    assert connection.execute("SHOW CREATE SINK s").fetchall()[0][-1] == create
    assert connection.execute("SHOW SINKS").fetchall() == [("s", "postgres", "t")]
    found = connection.execute("SELECT type, envelope_type, format FROM mz_sinks").fetchall()
    assert found == [("postgres", None, None)]
    refused(connection, "DROP CONNECTION pg", "2BP01", "cannot drop connection pg because other objects depend on it")
    while not has_table(target, "tidewire.sinks") or not target.execute("TABLE tidewire.sinks").fetchall():
        sleep(0.005)
    ((_, name, table, frontier, *_),) = target.execute("TABLE tidewire.sinks").fetchall()
    assert (name, table) == ("s", "S.kept")
    assert frontier > 0
    connection.execute("DROP SINK s")
    while target.execute("TABLE tidewire.sinks").fetchall():
        sleep(0.005)
    assert has_table(target, '"S".kept')


def test_a_table_of_the_user_is_checked(connection: psycopg.Connection, target: psycopg.Connection) -> None:
    connection.execute("CREATE TABLE t (a int, n numeric(10,2), b text)")
    create = "CREATE SINK s FROM t INTO POSTGRES CONNECTION pg TABLE kept"
    target.execute("CREATE VIEW kept AS SELECT 1 AS a")
    refused(connection, create, "42809", '"public.kept" is not a table')
    target.execute("DROP VIEW kept; CREATE TABLE kept (a int, n numeric(10,2))")
    refused(connection, create, "42703", 'column "b" of table "public.kept" does not exist')
    target.execute("ALTER TABLE kept ADD b int")
    refused(connection, create, "42804", 'column "b" of table "public.kept" is of type integer, not text')
    target.execute("ALTER TABLE kept ALTER b TYPE varchar(5), ALTER n TYPE numeric(9,2)")
    refused(connection, create, "42804", 'column "n" of table "public.kept" is of type numeric(9,2), not numeric(10,2)')
    target.execute("ALTER TABLE kept ALTER n TYPE numeric, ADD o int NOT NULL, ADD p int DEFAULT 7")
    message = 'column "o" of table "public.kept" is NOT NULL without a default, and the collection has no such column'
    refused(connection, create, "23502", message)
    target.execute("ALTER TABLE kept DROP o; INSERT INTO kept (a) VALUES (1)")
    refused(connection, create, "55000", 'table "public.kept" is not empty')
    message = 'there is no unique constraint matching the key of the sink for table "public.kept"'
    refused(connection, f"{create} KEY (a)", "42P10", message)
    refused(connection, f"{create} KEY (z)", "42703", 'column "z" named in key does not exist')
    refused(connection, f"{create} KEY (a, a)", "42701", 'column "a" specified more than once')
    target.execute("DELETE FROM kept")
    connection.execute(create.encode())
    connection.execute("INSERT INTO t VALUES (1, 2.5, 'x')")
    while target.execute("TABLE kept").fetchall() != [(1, 2.5, "x", 7)]:
        sleep(0.005)
    target.execute("ALTER TABLE kept DROP b")
    connection.execute("INSERT INTO t VALUES (2, 2.5, 'x')")
    assert 'column "b" of relation "kept" does not exist' in wait_until_stalled(connection)
    target.execute("ALTER TABLE kept ADD b text")
    target.execute("UPDATE kept SET b = 'x'")
    while len(target.execute("SELECT a, n, b FROM kept").fetchall()) != 2:
        sleep(0.005)


def test_privileges_are_checked(connection: psycopg.Connection, target: psycopg.Connection) -> None:
    connection.execute("CREATE TABLE t (a int)")
    target.execute("DROP ROLE IF EXISTS poor")
    target.execute("CREATE ROLE poor LOGIN")
    connection.execute("ALTER CONNECTION pg SET (USER = poor)")
    create = "CREATE SINK s FROM t INTO POSTGRES CONNECTION pg TABLE kept"
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="to create schema tidewire"):
        connection.execute(create.encode())
    target.execute("CREATE SCHEMA tidewire AUTHORIZATION poor")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="to create schema tidewire"):
        connection.execute(create.encode())
    target.execute(f"GRANT CREATE ON DATABASE {target.info.dbname} TO poor".encode())
    refused(connection, create, "42501", 'permission denied to create table "public.kept"')
    target.execute("CREATE TABLE kept (a int); GRANT SELECT, INSERT ON kept TO poor")
    refused(connection, create, "42501", 'permission denied for table "public.kept"')
    target.execute("GRANT ALL ON kept TO poor")
    connection.execute(create.encode())
    connection.execute("INSERT INTO t VALUES (1)")
    wait_until_equal(connection, "t", target, "kept")
    connection.execute("CREATE ROLE engineer")
    connection.execute("SET ROLE engineer")
    refused(connection, create.replace(" s ", " r "), "42501", "permission denied for schema public")


@pytest.mark.parametrize(
    ("damage", "wanted"),
    [
        ("UPDATE kept SET v = 'other' WHERE k = 1", "the row (1,a) is now (1,other)"),
        ("DELETE FROM kept WHERE k = 1", "the row (1,a) is missing"),
        ("INSERT INTO kept VALUES (9, 'b')", "Key (k)=(9) already exists"),
    ],
)
def test_a_change_by_others_is_detected_and_not_overwritten(
    server: ServerThread, connection: psycopg.Connection, target: psycopg.Connection, damage: str, wanted: str
) -> None:
    connection.execute("CREATE TABLE t (k int NOT NULL, v text)")
    connection.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    connection.execute("CREATE SINK s FROM t INTO POSTGRES CONNECTION pg TABLE kept KEY (k)")
    wait_until_equal(connection, "t", target, "kept")
    target.execute(damage.encode())
    damaged = rows(target, "kept")
    new = pa.table([[1, 2, 9], ["c", "c", "d"]], ["c0", "c1"])
    change(server, "t", lambda rows: new.cast(rows.schema))
    assert wanted in wait_until_stalled(connection)
    assert connection.execute("SELECT hint FROM mz_internal.mz_sink_statuses").fetchall() != [(None,)]
    assert rows(target, "kept") == damaged
    target.execute("BEGIN; DELETE FROM kept; INSERT INTO kept VALUES (1, 'a'), (2, 'b'); COMMIT")
    while rows(target, "kept") != rows(connection, "t"):
        sleep(0.005)


@pytest.mark.parametrize(
    ("type", "value", "other"),
    [
        ("double precision", "-0", "0"),
        ("numeric", "1.5", "1.50"),
        ("text", None, ""),
        ("varchar", "a", "a "),
        ("interval", "30 days", "1 mon"),
        ("json", "[1]", "[ 1]"),
        ("real[]", "{0}", "{-0}"),
        ("timestamp", "1999-12-31 23:59:59.999999", "2000-01-01"),
    ],
)
def test_values_that_look_different_are_a_change_by_others(
    server: ServerThread, connection: psycopg.Connection, target: psycopg.Connection, type: str, value: Any, other: str
) -> None:
    """Some of them are equal for the operator = of the type."""
    connection.execute(f"CREATE TABLE t (k int NOT NULL, v {type}, w int)".encode())
    connection.execute("INSERT INTO t VALUES (1, %s, 1)", [value])
    connection.execute("CREATE SINK s FROM t INTO POSTGRES CONNECTION pg TABLE kept KEY (k)")
    wait_until_equal(connection, "t", target, "kept")
    target.execute(f"UPDATE kept SET v = '{other}'".encode())
    change(server, "t", lambda rows: with_values(rows, c2=2))
    assert "was changed by somebody else: the row (1," in wait_until_stalled(connection)
    target.execute(f"UPDATE kept SET v = {'NULL' if value is None else f'{value!r}'}".encode())
    while rows(target, "kept") != rows(connection, "t"):
        sleep(0.005)


def test_values_that_others_wrote_as_texts_are_found(
    server: ServerThread, connection: psycopg.Connection, target: psycopg.Connection
) -> None:
    """The bytes that PostgreSQL stores for a text are those of the sink's binary value, or are not compared."""
    connection.execute(f"CREATE TABLE t ({TYPES})".encode())
    connection.execute(f"INSERT INTO t VALUES {ROWS}".encode())
    nan = pa.array(np.array([0xFFF8000000000001], np.uint64).view(np.float64))[0].as_py()
    change(server, "t", lambda rows: with_values(rows, c4=nan))
    target.execute(f"CREATE TABLE kept ({TYPES}, PRIMARY KEY (k)); INSERT INTO kept VALUES {ROWS}".encode())
    target.execute("UPDATE kept SET d = 'NaN'")
    connection.execute("CREATE SINK s FROM t INTO POSTGRES CONNECTION pg TABLE kept KEY (k) WITH (SNAPSHOT = false)")
    change(server, "t", lambda rows: with_values(rows, c2=5))
    wait_until_equal(connection, "t", target, "kept")
    change(server, "t", lambda rows: rows.slice(0, 1))
    wait_until_equal(connection, "t", target, "kept")


def test_many_rows_are_updated_by_a_join_of_the_keys(
    server: ServerThread, connection: psycopg.Connection, target: psycopg.Connection
) -> None:
    """A condition on other columns would be hashed, too, for all rows of the table."""
    connection.execute("CREATE TABLE t (k bigint NOT NULL, a text, b double precision)")
    connection.execute("CREATE SINK s FROM t INTO POSTGRES CONNECTION pg TABLE kept KEY (k)")
    wait_until_equal(connection, "t", target, "kept")
    found = Statements('"kept"', ("k", "a", "b"), (0,), frozenset((0,)), frozenset())
    target.execute(found.create_staging.encode())
    target.execute("SET enable_nestloop = off; SET enable_mergejoin = off")
    for statement in (found.update, found.delete):
        plan = [str(line).strip() for (line,) in target.execute(f"EXPLAIN {statement}".encode())]
        assert "Hash Cond: (t.k = s.c0)" in plan or "Hash Cond: (s.c0 = t.k)" in plan


def test_a_change_by_others_is_detected_without_a_key(
    server: ServerThread, connection: psycopg.Connection, target: psycopg.Connection
) -> None:
    connection.execute("CREATE TABLE t (k int, v text)")
    connection.execute("INSERT INTO t VALUES (1, 'a'), (1, 'a'), (2, 'b')")
    connection.execute("CREATE SINK s FROM t INTO POSTGRES CONNECTION pg TABLE kept")
    wait_until_equal(connection, "t", target, "kept")
    target.execute("DELETE FROM kept WHERE ctid = (SELECT min(ctid) FROM kept WHERE k = 1)")
    change(server, "t", lambda rows: rows.slice(0, 0))
    assert "the row (1,a) is missing" in wait_until_stalled(connection)
    assert len(rows(target, "kept")) == 2


@pytest.mark.parametrize("key", ["", "KEY (k)"])
@pytest.mark.parametrize("divided", [False, True])
def test_a_truncated_table_is_detected_by_the_next_write(
    server: ServerThread, connection: psycopg.Connection, target: psycopg.Connection, key: str, divided: bool
) -> None:
    """Nothing is written, and the sink continues when the rows are restored. Nobody counts meanwhile."""
    connection.execute("CREATE TABLE t (k int NOT NULL, v text)")
    if divided:
        target.execute("CREATE TABLE kept (k int PRIMARY KEY, v text) PARTITION BY RANGE (k)")
        target.execute("CREATE TABLE low PARTITION OF kept FOR VALUES FROM (0) TO (2)")
        target.execute("CREATE TABLE high PARTITION OF kept FOR VALUES FROM (2) TO (9)")
    connection.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    connection.execute(f"CREATE SINK s FROM t INTO POSTGRES CONNECTION pg TABLE kept {key}".encode())
    wait_until_equal(connection, "t", target, "kept")
    target.execute("TRUNCATE low" if divided else "TRUNCATE kept")
    left = rows(target, "kept")
    connection.execute("INSERT INTO t VALUES (3, 'c')")
    found = f"was changed by somebody else: it has {len(left) + 1} rows instead of 3"
    assert found in wait_until_stalled(connection)
    assert rows(target, "kept") == left
    target.execute(
        "INSERT INTO kept SELECT * FROM (VALUES (1, 'a'), (2, 'b')) r WHERE column1 NOT IN (SELECT k FROM kept)"
    )
    while rows(target, "kept") != rows(connection, "t"):
        sleep(0.005)
    target.execute("VACUUM FULL kept")  # other files, with the same rows
    connection.execute("INSERT INTO t VALUES (4, 'd')")
    wait_until_equal(connection, "t", target, "kept")


@pytest.mark.parametrize(
    "damage",
    ["DELETE FROM kept WHERE k = 2", pytest.param("INSERT INTO kept VALUES (9, 'x')", marks=pytest.mark.long)],
)
def test_rows_that_others_add_and_delete_are_counted(
    server: ServerThread,
    connection: psycopg.Connection,
    target: psycopg.Connection,
    monkeypatch: pytest.MonkeyPatch,
    damage: str,
) -> None:
    monkeypatch.setattr("server.egress.postgres.table.COUNT_S", 0.05)
    counts: list[tuple[int | None, int]] = []
    counted = postgres_table.Table._counted

    async def noted(table: postgres_table.Table, *arguments: Any) -> tuple[int | None, int]:
        counts.append(found := await counted(table, *arguments))
        return found

    monkeypatch.setattr(postgres_table.Table, "_counted", noted)
    connection.execute("CREATE TABLE t (k int NOT NULL, v text)")
    connection.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    connection.execute(
        "CREATE SINK s FROM t INTO POSTGRES CONNECTION pg TABLE kept KEY (k) WITH (PROGRESS INTERVAL = '50ms')"
    )
    wait_until_equal(connection, "t", target, "kept")
    for n in range(20):  # while the sink writes, the numbers agree
        connection.execute("INSERT INTO t VALUES (%s, 'n')", [100 + n])
    change(server, "t", lambda rows: rows.slice(0, 7))
    wait_until_equal(connection, "t", target, "kept")
    counts.clear()
    while len(counts) < 3:  # the first one may have begun before
        sleep(0.005)
    assert counts[1:] == [(7, 7)] * 2
    assert status_of(connection)[0] == "running"
    damaged_by = {"DELETE": "it has 6 rows instead of 7", "INSERT": "it has 8 rows instead of 7"}
    target.execute(damage.encode())
    assert damaged_by[damage[:6]] in wait_until_stalled(connection)
    target.execute("DELETE FROM kept WHERE k = 9; INSERT INTO kept VALUES (2, 'b') ON CONFLICT DO NOTHING")
    while status_of(connection)[0] != "running":
        sleep(0.005)
    change(server, "t", lambda rows: rows.slice(0, 1))
    wait_until_equal(connection, "t", target, "kept")


def test_an_unexpected_error_of_counting_is_logged(
    connection: psycopg.Connection, target: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any) -> tuple[int | None, int]:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(postgres_table.Table, "_counted", fail)
    with capture_logs() as logs:
        connection.execute("CREATE TABLE t (k int NOT NULL)")
        connection.execute("CREATE SINK s FROM t INTO POSTGRES CONNECTION pg TABLE kept KEY (k)")
        while not (failed := [entry for entry in logs if entry["log_level"] == "error"]):
            sleep(0.005)
    assert [(entry["task"], entry["error"]) for entry in failed] == [("rows of sink s", "division by zero")]
    connection.execute("INSERT INTO t VALUES (1)")
    wait_until_equal(connection, "t", target, "kept")


def test_a_table_that_changed_while_the_server_was_down_is_detected(tmp_path: Path, target: psycopg.Connection) -> None:
    server = ServerThread(tmp_path / "data", PassingEngine(), interval_s=0.02)
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute(create_connection(target))
        connection.execute("CREATE TABLE t (k int NOT NULL, v text)")
        connection.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        connection.execute("CREATE SINK s FROM t INTO POSTGRES CONNECTION pg TABLE kept KEY (k)")
        wait_until_equal(connection, "t", target, "kept")
    server.stop()
    target.execute("DROP TABLE kept; CREATE TABLE kept (k int PRIMARY KEY, v text)")
    server = ServerThread(tmp_path / "data", PassingEngine(), interval_s=0.02)
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        assert "it has 0 rows instead of 2" in wait_until_stalled(connection)
    server.stop()


def test_a_frontier_of_an_earlier_version_is_continued(
    server: ServerThread, connection: psycopg.Connection, target: psycopg.Connection
) -> None:
    """Its table has no columns for the number of rows and the files. The sink begins with what it finds."""
    connection.execute("CREATE TABLE t (k int NOT NULL, v text)")
    connection.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    connection.execute("CREATE SINK s FROM t INTO POSTGRES CONNECTION pg TABLE kept KEY (k)")
    wait_until_equal(connection, "t", target, "kept")
    target.execute("ALTER TABLE tidewire.sinks DROP COLUMN row_count, DROP COLUMN files")
    connection.execute("INSERT INTO t VALUES (3, 'c')")
    while rows(target, "kept") != rows(connection, "t"):
        sleep(0.005)
    assert target.execute("SELECT row_count FROM tidewire.sinks").fetchall() == [(3,)]


def test_keys_that_are_not_unique_stall_the_sink(
    server: ServerThread, connection: psycopg.Connection, target: psycopg.Connection
) -> None:
    connection.execute("CREATE TABLE t (k int, v text)")
    connection.execute("CREATE SINK s FROM t INTO POSTGRES CONNECTION pg TABLE kept KEY (k)")
    wait_until_equal(connection, "t", target, "kept")
    connection.execute("INSERT INTO t VALUES (1, 'a'), (1, 'b')")
    assert wait_until_stalled(connection) == 'several rows of "t" have the key (k)=(1)'
    change(server, "t", lambda rows: with_values(rows.slice(0, 1), c0=None, c1="a"))
    while wait_until_stalled(connection) != 'a row of "t" has a null value in the key (k)=(null)':
        sleep(0.005)
    change(server, "t", lambda rows: with_values(rows, c0=5))
    while rows(target, "kept") != [(b"5", b"a")]:
        sleep(0.005)


def test_a_table_that_already_has_the_rows_is_continued(
    server: ServerThread, connection: psycopg.Connection, target: psycopg.Connection
) -> None:
    connection.execute("CREATE TABLE t (k int NOT NULL, v text)")
    connection.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    target.execute("CREATE TABLE kept (k int PRIMARY KEY, v text); INSERT INTO kept VALUES (1, 'a'), (2, 'b')")
    connection.execute("CREATE SINK s FROM t INTO POSTGRES CONNECTION pg TABLE kept KEY (k) WITH (SNAPSHOT = false)")
    change(server, "t", lambda rows: with_values(rows, c1="c"))
    wait_until_equal(connection, "t", target, "kept")


def test_a_frontier_that_went_back_stalls_the_sink(connection: psycopg.Connection, target: psycopg.Connection) -> None:
    connection.execute("CREATE TABLE t (k int NOT NULL)")
    connection.execute("CREATE SINK s FROM t INTO POSTGRES CONNECTION pg TABLE kept KEY (k)")
    wait_until_equal(connection, "t", target, "kept")
    target.execute("DELETE FROM tidewire.sinks")
    connection.execute("INSERT INTO t VALUES (1)")
    while "its frontier there is missing" not in wait_until_stalled(connection):
        sleep(0.005)
    assert rows(target, "kept") == []


async def test_a_connection_that_is_lost_within_copy_is_reported() -> None:
    """asyncpg reports some of these losses as errors of its own state."""

    class Lost:
        async def copy_to_table(self, *_: object, **__: object) -> None:
            raise asyncpg.InternalClientError("cannot switch to state 21")

    connection = Connection(Server.of({"host": "127.0.0.1", "database": "d"}), Lost())
    with pytest.raises(UpstreamError, match="cannot switch to state 21"):
        await connection.copy(pa.table({}), (), "public", "t", ())
