"""CREATE SOURCE ... FROM POSTGRES: from statements in PostgreSQL to the rows of a client, without a broker."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr

import psycopg
import pytest

from tests.fix_postgres import PostgresServer
from tests.fix_server import ServerThread
from tests.server.slow_engine import PassingEngine

PASSWORD = "battery-staple"


@pytest.fixture(scope="module")
def upstream() -> Iterator[psycopg.Connection]:
    server = PostgresServer("wal_level=logical")
    try:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute(f"CREATE ROLE reader LOGIN REPLICATION PASSWORD '{PASSWORD}'")
            connection.execute("GRANT pg_read_all_data TO reader")
            yield connection
    finally:
        server.stop()


@pytest.fixture
def connection(upstream: psycopg.Connection, tmp_path_factory: pytest.TempPathFactory) -> Iterator[psycopg.Connection]:
    """A session in which connection `pg` exists. Its database in PostgreSQL is `upstream`'s."""
    server = ServerThread(tmp_path_factory.mktemp("source"), PassingEngine(), interval_s=0.02)
    try:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute(f"CREATE SECRET pw AS '{PASSWORD}'")
            connection.execute(
                f"CREATE CONNECTION pg TO POSTGRES (HOST '127.0.0.1', PORT {upstream.info.port}, USER reader, "
                "PASSWORD SECRET pw, DATABASE postgres)"
            )
            upstream.execute("DROP SCHEMA IF EXISTS app CASCADE; DROP PUBLICATION IF EXISTS pub; CREATE SCHEMA app")
            yield connection
    finally:
        server.stop()


def until(connection: psycopg.Connection, relation: str, expected: list[tuple]) -> None:
    """Waits until a subscription to the relation has the expected rows."""
    rows: Counter[tuple] = Counter()
    with connection.transaction():
        connection.execute(f"DECLARE c CURSOR FOR SUBSCRIBE {relation}".encode())
        while rows != Counter(expected):
            for _, diff, *row in connection.execute("FETCH ALL c").fetchall():
                rows[tuple(row)] += diff
            rows = Counter({row: count for row, count in rows.items() if count})
    assert sorted(connection.execute(f"TABLE {relation}".encode()).fetchall()) == expected


def test_tables_follow_postgresql(connection: psycopg.Connection, upstream: psycopg.Connection) -> None:
    upstream.execute("""
        CREATE TABLE app.orders (id int PRIMARY KEY, item text); INSERT INTO app.orders VALUES (1, 'a');
        CREATE TABLE app.items (name text PRIMARY KEY); CREATE PUBLICATION pub FOR TABLES IN SCHEMA app
    """)
    connection.execute(
        "CREATE SOURCE s FROM POSTGRES CONNECTION pg (PUBLICATION 'pub') FOR TABLES (app.orders AS o, app.items)"
    )
    until(connection, "o", [(1, "a")])
    upstream.execute("INSERT INTO app.orders VALUES (2, 'b'); UPDATE app.orders SET item = 'c' WHERE id = 1")
    upstream.execute("INSERT INTO app.items VALUES ('x')")
    until(connection, "o", [(1, "c"), (2, "b")])
    until(connection, "items", [("x",)])
    with pytest.raises(psycopg.Error):
        connection.execute("INSERT INTO o VALUES (3, 'd')")
    connection.execute("DROP SOURCE s CASCADE")
    while upstream.execute("SELECT FROM pg_replication_slots").fetchall():
        connection.execute("SELECT 1")


def test_tables_are_added_one_by_one(connection: psycopg.Connection, upstream: psycopg.Connection) -> None:
    upstream.execute("""
        CREATE TABLE app.a (id int PRIMARY KEY); CREATE TABLE app."B" (id int PRIMARY KEY, v numeric);
        INSERT INTO app.a VALUES (1); INSERT INTO app."B" VALUES (1, 'NaN'); CREATE PUBLICATION pub FOR ALL TABLES
    """)
    connection.execute("CREATE SOURCE s FROM POSTGRES CONNECTION pg (PUBLICATION 'pub', TEXT COLUMNS (app.\"B\".v))")
    connection.execute("CREATE TABLE a FROM SOURCE s (REFERENCE app.a)")
    until(connection, "a", [(1,)])
    connection.execute('CREATE TABLE b FROM SOURCE s (REFERENCE app."B")')
    until(connection, "b", [(1, "NaN")])
    upstream.execute('UPDATE app.a SET id = 2; UPDATE app."B" SET v = 3.50')
    until(connection, "a", [(2,)])
    until(connection, "b", [(1, "3.50")])
    connection.execute("DROP TABLE a")
    upstream.execute('UPDATE app.a SET id = 3; UPDATE app."B" SET v = 4')
    until(connection, "b", [(1, "4")])
    connection.execute("DROP SOURCE s CASCADE")


def test_names_with_dots_and_quotes(connection: psycopg.Connection, upstream: psycopg.Connection) -> None:
    upstream.execute("""
        CREATE TABLE app."a.b" (id int PRIMARY KEY); INSERT INTO app."a.b" VALUES (1);
        CREATE TABLE app."c""d.e" (id int PRIMARY KEY); INSERT INTO app."c""d.e" VALUES (2);
        CREATE PUBLICATION pub FOR ALL TABLES
    """)
    tables = 'FOR TABLES (app."a.b" AS one, "c""d.e" AS two)'
    connection.execute(f"CREATE SOURCE s FROM POSTGRES CONNECTION pg (PUBLICATION 'pub') {tables}".encode())
    until(connection, "one", [(1,)])
    until(connection, "two", [(2,)])
    connection.execute('CREATE TABLE three FROM SOURCE s (REFERENCE app."c""d.e")')
    until(connection, "three", [(2,)])
    for kind, name, text in (
        ("SOURCE", "s", 'FOR TABLES (app."a.b" AS one, app."c""d.e" AS two)'),
        ("TABLE", "three", 'FROM SOURCE materialize.public.s (REFERENCE app."c""d.e")'),
    ):
        row = connection.execute(f"SHOW CREATE {kind} {name}".encode()).fetchone()
        assert row is not None
        assert text in row[1]
    connection.execute("DROP SOURCE s CASCADE")


def test_columns_are_named_with_or_without_their_database(
    connection: psycopg.Connection, upstream: psycopg.Connection
) -> None:
    upstream.execute("CREATE TABLE app.t (id int, a int, b int); CREATE PUBLICATION pub FOR ALL TABLES")
    database = upstream.info.dbname
    options = f"EXCLUDE COLUMNS ({database}.app.t.a), TEXT COLUMNS (t.b)"
    connection.execute(f"CREATE SOURCE s FROM POSTGRES CONNECTION pg (PUBLICATION 'pub', {options})".encode())
    connection.execute("CREATE TABLE t FROM SOURCE s (REFERENCE app.t)")
    assert [row[0::2] for row in connection.execute("SHOW COLUMNS FROM t")] == [("id", "integer"), ("b", "text")]
    upstream.execute("ALTER TABLE app.t DROP COLUMN a; ALTER TABLE app.t ADD c int")
    connection.execute("DROP TABLE t; CREATE TABLE t FROM SOURCE s (REFERENCE app.t)")  # although `a` does not exist
    connection.execute("DROP SOURCE s CASCADE")


@pytest.mark.parametrize(
    ("options", "tables", "state", "message"),
    [
        ("PUBLICATION 'nix'", "FOR ALL TABLES", "42704", 'publication "nix" does not exist in'),
        ("PUBLICATION 'inserts'", "FOR ALL TABLES", "55000", 'publication "inserts" in'),
        ("PUBLICATION 'pub'", "FOR TABLES (app.nix)", "42P01", 'table "app.nix" is not in publication "pub"'),
        ("PUBLICATION 'pub'", "FOR SCHEMAS (nix)", "42P01", 'schema "nix" has no table in publication "pub"'),
        ("PUBLICATION 'pub'", "FOR TABLES (app.nothing)", "0A000", 'table "app.nothing" has no columns'),
        (
            "PUBLICATION 'pub', EXCLUDE COLUMNS (app.t.idd)",
            "",
            "42703",
            'column "app.t.idd" of option EXCLUDE COLUMNS is not in publication "pub"',
        ),
        (
            "PUBLICATION 'pub', TEXT COLUMNS (id)",
            "FOR TABLES (app.t)",
            "42703",
            'column "id" of option TEXT COLUMNS is not in publication "pub"',
        ),
    ],
)
def test_what_postgresql_does_not_have_is_refused(
    connection: psycopg.Connection, upstream: psycopg.Connection, options: str, tables: str, state: str, message: str
) -> None:
    upstream.execute("""
        CREATE TABLE app.t (id int); CREATE TABLE app.nothing (); CREATE PUBLICATION pub FOR TABLES IN SCHEMA app;
        DROP PUBLICATION IF EXISTS inserts; CREATE PUBLICATION inserts FOR TABLE app.t WITH (publish = 'insert')
    """)
    with pytest.raises(psycopg.Error) as caught:
        connection.execute(f"CREATE SOURCE s FROM POSTGRES CONNECTION pg ({options}) {tables}".encode())
    assert caught.value.sqlstate == state
    assert str(caught.value.diag.message_primary).startswith(message)


def test_an_unreachable_server_is_named_without_its_secret(
    connection: psycopg.Connection, upstream: psycopg.Connection
) -> None:
    upstream.execute("CREATE TABLE app.t (id int); CREATE PUBLICATION pub FOR TABLES IN SCHEMA app")
    with redirect_stderr(io.StringIO()) as logged:
        connection.execute(
            "CREATE CONNECTION nowhere TO POSTGRES (HOST '127.0.0.1', PORT 1, DATABASE d, PASSWORD SECRET pw) "
            "WITH (VALIDATE = false)"
        )
        with pytest.raises(psycopg.Error) as caught:
            connection.execute("CREATE SOURCE s FROM POSTGRES CONNECTION nowhere (PUBLICATION 'pub') FOR ALL TABLES")
    assert caught.value.sqlstate == "08006"
    message = str(caught.value.diag.message_primary)
    assert message.startswith('could not connect to PostgreSQL "127.0.0.1:1", database "d" as user "postgres"')
    assert PASSWORD not in message + logged.getvalue()
