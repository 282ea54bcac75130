"""Thousands of objects in the catalog, or of names in a statement. The time is linear in their number."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors

from catalog.ids import ObjectId
from catalog.layout import Numbering
from catalog.objects.columns import Column
from catalog.objects.tables import Table
from server.coordinator.snapshot_cache import layout_of
from server.execution.ddl.comments import BYTES_MAX as COMMENT_BYTES_MAX
from server.sql.grammar.rules.objects import NAMES_MAX
from tests.attacks.clients import resident_bytes, watched
from tests.fix_server import ServerProcess, server_without_spark

pytestmark = pytest.mark.attacks

OBJECTS = 1_500


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server without Spark."""
    server = server_without_spark(tmp_path_factory.mktemp("server"))
    yield server
    assert server.stop() == 0


def create(connection: psycopg.Connection[Any], text: str) -> None:
    """Executes `text` for each number of an object, in one transaction."""
    connection.execute(f"BEGIN; {'; '.join(text.format(number) for number in range(OBJECTS))}; COMMIT".encode())


def relations(connection: psycopg.Connection[Any], prefix: str) -> int:
    names = connection.execute("SELECT count(*) FROM pg_class WHERE relname LIKE %s", [f"{prefix}%"]).fetchone()
    assert names is not None
    return int(names[0])


@pytest.mark.parametrize(
    ("kind", "drop"),
    [("SCHEMA", "DROP SCHEMA large CASCADE"), ("DATABASE", "DROP DATABASE large CASCADE")],
    ids=["schema", "database"],
)
@pytest.mark.parametrize(
    "text", ["CREATE TABLE {}.many{{0}} (a int)", "CREATE DOMAIN {}.many{{0}} AS int"], ids=["tables", "domains"]
)
def test_dropping_many_objects_delays_no_other_session(
    server: ServerProcess, connection: psycopg.Connection[Any], kind: str, drop: str, text: str
) -> None:
    connection.execute(f"CREATE {kind} large".encode())
    create(connection, text.format("large" if kind == "SCHEMA" else "large.public"))
    with watched(server):
        connection.execute(drop.encode())
    assert relations(connection, "many") == 0


def test_the_end_of_a_session_with_many_temporary_tables_delays_no_other_session(
    server: ServerProcess, connection: psycopg.Connection[Any]
) -> None:
    with watched(server):
        with psycopg.connect(server.dsn, autocommit=True) as other:
            create(other, "CREATE TEMPORARY TABLE own{} (a int)")
            assert relations(connection, "own") == OBJECTS
        deadline = time.monotonic() + 30
        while relations(connection, "own"):
            assert time.monotonic() < deadline


def test_temporary_tables_that_end_with_their_transaction_delay_no_other_session(
    server: ServerProcess, connection: psycopg.Connection[Any]
) -> None:
    with watched(server):
        create(connection, "CREATE TEMPORARY TABLE brief{} (a int) ON COMMIT DROP")
    assert relations(connection, "brief") == 0


def test_a_type_with_many_labels_delays_no_other_session(
    server: ServerProcess, connection: psycopg.Connection[Any]
) -> None:
    labels = ", ".join(f"'{number}'" for number in range(60_000))
    with watched(server), pytest.raises(errors.ProgramLimitExceeded, match="an enum can have at most"):
        connection.execute(f"CREATE TYPE large AS ENUM ({labels})".encode())


@pytest.mark.parametrize(
    "statement",
    [
        f"CREATE TABLE checked (a int, {', '.join(f'CHECK (a > {number})' for number in range(20_000))})",
        f"CREATE DOMAIN checked AS int {' '.join(f'CHECK (value > {number})' for number in range(20_000))}",
    ],
    ids=["table", "domain"],
)
def test_check_constraints_are_limited(
    server: ServerProcess, connection: psycopg.Connection[Any], statement: str
) -> None:
    with watched(server), pytest.raises(errors.ProgramLimitExceeded, match="can have at most 500 check constraints"):
        connection.execute(statement.encode())


def test_many_actions_of_an_alter_table_delay_no_other_session(
    server: ServerProcess, connection: psycopg.Connection[Any]
) -> None:
    connection.execute("CREATE TABLE altered (a int)")
    connection.execute("SET statement_timeout = '2s'")
    actions = ", ".join(f"ALTER a SET DEFAULT {number}" for number in range(20_000))
    with watched(server), pytest.raises(errors.QueryCanceled):
        connection.execute(f"ALTER TABLE altered {actions}".encode())


@pytest.mark.parametrize("name", ["search_path", "DateStyle", "application_name", "TimeZone"])
def test_long_values_of_settings_are_refused(
    server: ServerProcess, connection: psycopg.Connection[Any], name: str
) -> None:
    """Each statement searches the schemas of search_path."""
    before = connection.execute(f"SHOW {name}".encode()).fetchone()
    with watched(server):
        for statement in ("SET {} = '{}'", "SELECT set_config('{}', '{}', false)"):
            with pytest.raises(errors.ProgramLimitExceeded, match=f'value of parameter "{name}" is too long'):
                connection.execute(statement.format(name, "a, " * 100_000).encode())
    assert connection.execute(f"SHOW {name}".encode()).fetchone() == before


def test_long_comments_are_refused(server: ServerProcess, connection: psycopg.Connection[Any]) -> None:
    connection.execute("CREATE TABLE commented (a int)")
    for length, text in ((COMMENT_BYTES_MAX + 1, "x"), (COMMENT_BYTES_MAX // 2 + 1, "é")):
        for on in ("TABLE commented", "COLUMN commented.a"):
            with watched(server), pytest.raises(errors.ProgramLimitExceeded, match="comment is too long"):
                connection.execute(f"COMMENT ON {on} IS '{text * length}'".encode())
    connection.execute(f"COMMENT ON TABLE commented IS '{'x' * COMMENT_BYTES_MAX}'".encode())
    kept = connection.execute("SELECT length(obj_description('commented'::regclass))").fetchone()
    assert kept == (COMMENT_BYTES_MAX,)


def test_many_long_comments_are_refused(server: ServerProcess, connection: psycopg.Connection[Any]) -> None:
    """They are in memory. Short ones are accepted nevertheless."""
    columns = ", ".join(f"c{number} int" for number in range(20))
    connection.execute(f"CREATE TABLE much_commented ({columns})".encode())
    text = "x" * (COMMENT_BYTES_MAX - 1)
    with watched(server), pytest.raises(errors.ProgramLimitExceeded, match="too many long comments"):
        for number in range(20):
            connection.execute(f"COMMENT ON COLUMN much_commented.c{number} IS '{text}'".encode())
    assert number >= 10  # other tests have comments, too
    connection.execute("COMMENT ON TABLE much_commented IS 'short'")
    connection.execute("COMMENT ON COLUMN much_commented.c0 IS NULL")
    connection.execute(f"COMMENT ON COLUMN much_commented.c{number} IS '{text}'".encode())
    connection.execute("DROP TABLE much_commented")


LISTS = ("DROP TABLE IF EXISTS {}", "TRUNCATE {}", "BEGIN; LOCK TABLE {}", "ANALYZE {}", "VACUUM {}")


@pytest.mark.parametrize("statement", LISTS)
def test_long_lists_of_names_are_refused(
    server: ServerProcess, connection: psycopg.Connection[Any], statement: str
) -> None:
    connection.execute("CREATE TABLE IF NOT EXISTS named (a int)")
    for name in ("named", "nothing{}"):
        names = ", ".join(name.format(number) for number in range(60_000))
        with watched(server), pytest.raises(errors.ProgramLimitExceeded, match="too many objects in a statement"):
            connection.execute(statement.format(names).encode())
        connection.execute("ROLLBACK")


@pytest.mark.parametrize("statement", LISTS)
def test_lists_of_names_delay_no_other_session(
    server: ServerProcess, connection: psycopg.Connection[Any], statement: str
) -> None:
    connection.execute("CREATE TABLE IF NOT EXISTS named (a int)")
    missing = ", ".join(f"nothing{number}" for number in range(NAMES_MAX))
    with watched(server):
        connection.execute(statement.format(", ".join(["named"] * NAMES_MAX)).encode())
        connection.execute("ROLLBACK")
        if "IF EXISTS" in statement:
            connection.execute(statement.format(missing).encode())


USERS_PAUSE_MAX_S = 0.4  # a change whose cost is quadratic in the number of users takes longer


@pytest.mark.long
@pytest.mark.parametrize(
    "user",
    ["CREATE VIEW reader{} AS SELECT a, b FROM used", "CREATE INDEX reader{} ON used (a)"],
    ids=["views", "indexes"],
)
def test_a_table_with_many_users_delays_no_other_session(
    server: ServerProcess, connection: psycopg.Connection[Any], user: str
) -> None:
    connection.execute("DROP SCHEMA IF EXISTS crowded, other CASCADE; CREATE SCHEMA crowded; CREATE SCHEMA other")
    connection.execute("SET search_path = crowded, other")
    connection.execute("CREATE TABLE used (a int, b int, c int)")
    with watched(server, USERS_PAUSE_MAX_S):
        create(connection, user)
        connection.execute("ALTER TABLE used RENAME b TO renamed")
        for _ in range(2):  # the history that each index needs begins at another time
            connection.execute("INSERT INTO used VALUES (1, 2, 3)")
            connection.execute("ALTER TABLE used DROP COLUMN c")
            connection.execute("INSERT INTO used VALUES (1, 2)")
            connection.execute("ALTER TABLE used ADD COLUMN c int")
        connection.execute("ALTER TABLE used SET SCHEMA other")
        connection.execute("ALTER TABLE used DROP COLUMN c")
        connection.execute("ALTER TABLE used DROP COLUMN a CASCADE")
    assert relations(connection, "reader") == 0


def test_many_materialized_views_of_a_block_delay_no_other_session(
    server: ServerProcess, connection: psycopg.Connection[Any]
) -> None:
    connection.execute("CREATE TABLE base (a int)")
    views = "; ".join(f"CREATE MATERIALIZED VIEW kept{n} AS SELECT a FROM base WHERE a > {n}" for n in range(400))
    with watched(server, USERS_PAUSE_MAX_S):
        connection.execute(f"BEGIN; {views}; COMMIT".encode())
    connection.execute("DROP TABLE base CASCADE")


def test_the_columns_of_altered_tables_do_not_pile_up() -> None:
    """Each action of ALTER TABLE makes a schema and a layout. Those of wide tables took gigabytes."""
    before = resident_bytes(os.getpid())
    columns = tuple(Column(f"c{n}", "int4") for n in range(1_500))
    for width in range(1_000, 1_500):
        numbering = Numbering.initial(width)
        layout = layout_of(Table(ObjectId("u1"), ObjectId("u2"), "t", columns[:width], numbering=numbering))
        assert layout is not None
        assert len(layout.schema) == width
    assert resident_bytes(os.getpid()) - before < 200 << 20


SOURCES_PAUSE_MAX_S = 0.25


def test_many_sources_delay_no_other_session(server: ServerProcess, connection: psycopg.Connection[Any]) -> None:
    """At each change of the catalog, each source searched the whole catalog for its tables."""
    sources = "; ".join(f"CREATE SOURCE many{n} FROM LOAD GENERATOR COUNTER (UP TO 1)" for n in range(1_000))
    connection.execute("CREATE SCHEMA sources; SET search_path = sources")
    with watched(server, SOURCES_PAUSE_MAX_S):
        connection.execute(f"BEGIN; {sources}; COMMIT".encode())
        deadline = time.monotonic() + 30
        while connection.execute("SELECT counter FROM many999").fetchone() is None:  # the sources are started in order
            assert time.monotonic() < deadline
        connection.execute("CREATE TABLE another (a int)")
        connection.execute("ALTER TABLE another RENAME TO renamed")
    connection.execute("DROP SCHEMA sources CASCADE")
