"""System tables: their rows, joins, and subscriptions. Functions that act on other sessions."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.fix_server import ServerThread
from tests.polling import HANG_S, until
from tests.server.execution.test_subscribe import Follower, now

Row = tuple[Any, ...]


@pytest.fixture
def connection(dsn: str) -> Iterator[psycopg.Connection[Row]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (k int NOT NULL, v text DEFAULT 'x')")
        yield connection


def rows(connection: psycopg.Connection[Row], query: str) -> list[Row]:
    return connection.execute(query).fetchall()


def one(connection: psycopg.Connection[Row], query: str) -> Any:
    ((value,),) = connection.execute(query).fetchall()
    return value


def begun(follower: Follower) -> None:
    """Waits until the snapshot is complete. The first progress message precedes the snapshot."""
    until(lambda: len(follower.progress) > 1)


# -- their content ------------------------------------------------------------------------------------------------


def test_objects_are_listed(connection: psycopg.Connection[Row]) -> None:
    connection.execute("CREATE VIEW w AS SELECT k FROM t")
    connection.execute("CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM w")
    connection.execute("CREATE INDEX i ON t (k)")
    database = connection.info.dbname
    schema = one(
        connection,
        "SELECT s.id FROM mz_schemas s JOIN mz_databases d ON d.id = s.database_id "
        f"WHERE d.name = '{database}' AND s.name = 'public'",
    )
    assert rows(connection, f"SELECT name, type FROM mz_objects WHERE schema_id = '{schema}' ORDER BY name") == [
        ("i", "index"),
        ("m", "materialized-view"),
        ("t", "table"),
        ("w", "view"),
    ]
    assert rows(
        connection,
        'SELECT c.name, position, nullable, c.type, c."default" FROM mz_columns c JOIN mz_tables t ON t.id = c.id '
        f"WHERE t.schema_id = '{schema}' ORDER BY position",
    ) == [("k", 1, False, "integer", None), ("v", 2, True, "text", "'x'")]
    ((name, definition),) = rows(connection, f"SELECT name, definition FROM mz_views WHERE schema_id = '{schema}'")
    assert (name, f"{database}.public.t" in definition) == ("w", True)
    assert one(connection, f"SELECT name FROM mz_materialized_views WHERE schema_id = '{schema}'") == "m"
    assert rows(
        connection,
        f"SELECT i.name, o.name, i.key FROM mz_indexes i JOIN mz_objects o ON o.id = i.on_id "
        f"WHERE o.schema_id = '{schema}'",
    ) == [("i", "t", "k")]


def test_system_tables_and_tables_in_one_query(connection: psycopg.Connection[Row]) -> None:
    connection.execute("INSERT INTO t VALUES (1, 't'), (2, 'nothing')")
    assert rows(
        connection,
        "SELECT t.k, o.type FROM t LEFT JOIN mz_tables o2 ON o2.name = t.v "
        "LEFT JOIN mz_objects o ON o.id = o2.id ORDER BY k",
    )[1] == (2, None)
    assert rows(
        connection,
        "SELECT o.name, f.write_frontier > f.read_frontier FROM mz_internal.mz_frontiers f "
        "JOIN mz_objects o ON o.id = f.object_id JOIN mz_schemas s ON s.id = o.schema_id "
        f"JOIN mz_databases d ON d.id = s.database_id WHERE d.name = '{connection.info.dbname}'",
    ) == [("t", True)]


def test_sessions(dsn: str, connection: psycopg.Connection[Row]) -> None:
    found = "SELECT * FROM mz_internal.mz_sessions WHERE connection_id = "
    with psycopg.connect(dsn, user="somebody") as other:
        ((id, pid, role, ip, since),) = rows(connection, f"{found}{other.info.backend_pid}")
        assert isinstance(id, uuid.UUID)
        assert (pid, role, ip) == (other.info.backend_pid, "somebody", "127.0.0.1")
        assert rows(connection, f"SELECT now() - '{since.isoformat()}'::timestamptz < '1 min'") == [(True,)]
    until(lambda: not rows(connection, f"{found}{pid}"))


def test_subscriptions(dsn: str, connection: psycopg.Connection[Row]) -> None:
    mine = (
        "SELECT s.cluster_id, s.referenced_object_ids, s.created_at >= c.connected_at "
        "FROM mz_internal.mz_subscriptions s JOIN mz_internal.mz_sessions c ON c.id = s.session_id "
        "WHERE c.connection_id = "
    )
    connection.execute("CREATE VIEW w AS SELECT k FROM t")
    ids = dict(rows(connection, "SELECT name, id FROM mz_objects WHERE name IN ('t', 'w')"))
    with psycopg.connect(dsn) as other:
        pid = other.info.backend_pid
        other.execute("DECLARE c CURSOR FOR SUBSCRIBE (SELECT count(*) FROM w, t)")
        assert rows(connection, f"{mine}{pid}") == []
        other.execute("FETCH 1 c")
        assert rows(connection, f"{mine}{pid}") == [("s1001", sorted(ids.values()), True)]
        other.execute("CLOSE c")
        assert rows(connection, f"{mine}{pid}") == []


def test_the_past_of_a_system_table_is_refused(connection: psycopg.Connection[Row]) -> None:
    latest = int(one(connection, "SELECT mz_now()"))
    with pytest.raises(errors.DataException, match="could not find a valid timestamp") as refused:
        connection.execute(f"SELECT * FROM mz_objects AS OF {latest - 500}")
    assert 'the earliest readable time of "mz_catalog.mz_objects" is' in str(refused.value.diag.message_detail)
    assert rows(connection, f"SELECT name FROM mz_objects AS OF AT LEAST {latest - 500}")
    with pytest.raises(errors.DataException, match="could not find a valid timestamp"):
        connection.execute(f"SUBSCRIBE mz_objects AS OF {latest - 500}")


# -- subscriptions ------------------------------------------------------------------------------------------------


def test_subscribe_to_the_catalog(dsn: str, connection: psycopg.Connection[Row]) -> None:
    """After each definition, the accumulated stream equals the table. Updates have the times of the commits."""
    follower = Follower(dsn, "SELECT name, type FROM mz_objects WHERE id LIKE 'u%'")
    try:
        query = "SELECT name, type FROM mz_objects WHERE id LIKE 'u%'"
        begun(follower)
        assert follower.at(now(connection)) == Counter(rows(connection, query))
        for statement in (
            "CREATE TABLE a (x int)",
            "CREATE MATERIALIZED VIEW b AS SELECT x FROM a",
            "ALTER TABLE a RENAME TO c",
            "DROP MATERIALIZED VIEW b",
            "DROP TABLE c",
        ):
            connection.execute(statement)
            assert follower.at(now(connection)) == Counter(rows(connection, query))
        changes = [message for message in follower.messages if not message[1]][-6:]
        assert [(diff, name) for _, _, diff, name, _ in changes[-1:]] == [(-1, "c")]
        times = [message[0] for message in changes]
        assert times == sorted(times)
    finally:
        follower.stop()


def test_subscribe_to_a_whole_table(dsn: str, connection: psycopg.Connection[Row]) -> None:
    """It needs no Spark, because the server has the rows in memory."""
    with psycopg.connect(dsn) as other:
        other.execute("DECLARE c CURSOR FOR SUBSCRIBE mz_catalog.mz_databases WITH (PROGRESS)")
        snapshot = other.execute("FETCH ALL c WITH (TIMEOUT '300ms')").fetchall()
        assert snapshot[0][1] is True
        assert snapshot[-1][1] is True
        assert snapshot[-1][0] > snapshot[0][0]
        assert sum(row[4] == connection.info.dbname for row in snapshot) == 1
        connection.execute("CREATE DATABASE another")
        seen = other.execute("FETCH ALL c WITH (TIMEOUT '500ms')").fetchall()
        connection.execute("DROP DATABASE another")
        seen += other.execute("FETCH ALL c WITH (TIMEOUT '500ms')").fetchall()
        assert [(diff, name) for _, progressed, diff, _, name, *_ in seen if not progressed] == [
            (1, "another"),
            (-1, "another"),
        ]


def test_subscribe_to_a_join_with_a_table(dsn: str, connection: psycopg.Connection[Row]) -> None:
    query = (
        "SELECT t.k, c.position FROM t JOIN mz_columns c ON c.name = t.v "
        "JOIN mz_tables x ON x.id = c.id AND x.name LIKE 'a%'"
    )
    follower = Follower(dsn, query)
    try:
        begun(follower)
        assert follower.at(now(connection)) == Counter()
        connection.execute("INSERT INTO t VALUES (1, 'wing')")
        connection.execute("CREATE TABLE a1 (leg int, wing int)")
        assert follower.at(now(connection)) == Counter({(1, 2): 1})
        connection.execute("INSERT INTO t VALUES (2, 'leg')")
        assert follower.at(now(connection)) == Counter({(1, 2): 1, (2, 1): 1})
        connection.execute("DROP TABLE a1")
        assert follower.at(now(connection)) == Counter()
    finally:
        follower.stop()


def test_subscribe_to_sessions_and_subscriptions(dsn: str, connection: psycopg.Connection[Row]) -> None:
    sessions = Follower(dsn, "SELECT role_id FROM mz_internal.mz_sessions WHERE role_id LIKE 'guest%'")
    subscriptions = Follower(
        dsn,
        "SELECT s.role_id FROM mz_internal.mz_subscriptions b JOIN mz_internal.mz_sessions s ON s.id = b.session_id "
        "WHERE s.role_id LIKE 'guest%'",
    )
    try:
        begun(sessions)
        begun(subscriptions)
        with psycopg.connect(dsn, user="guest1") as guest:
            assert sessions.at(now(connection) + 200) == Counter({("guest1",): 1})
            guest.execute("DECLARE c CURSOR FOR SUBSCRIBE t")
            guest.execute("FETCH 0 c")
            assert subscriptions.at(now(connection) + 200) == Counter({("guest1",): 1})
        assert sessions.at(now(connection) + 300) == Counter()
        assert subscriptions.at(now(connection) + 300) == Counter()
    finally:
        sessions.stop()
        subscriptions.stop()


def test_subscribe_to_frontiers(dsn: str, connection: psycopg.Connection[Row]) -> None:
    id = one(connection, f"SELECT max(id) FROM mz_tables WHERE name = 't' AND schema_id IN ({_schema(connection)})")
    with psycopg.connect(dsn) as other:
        other.execute(
            f"DECLARE c CURSOR FOR SUBSCRIBE (SELECT * FROM mz_internal.mz_frontiers WHERE object_id = '{id}')"
        )
        seen = [row for _ in range(7) for row in other.execute("FETCH 1 c").fetchall()]
    uppers = [upper for _, diff, _, _, upper in seen if diff == 1]
    assert len(uppers) >= 3
    assert uppers == sorted(set(uppers))
    assert all(time <= upper for time, diff, _, _, upper in seen if diff == 1)


def _schema(connection: psycopg.Connection[Row]) -> str:
    return (
        "SELECT s.id FROM mz_schemas s JOIN mz_databases d ON d.id = s.database_id "
        f"WHERE d.name = '{connection.info.dbname}'"
    )


def test_history_of_system_tables_ends_with_the_last_subscription(
    server: ServerThread, dsn: str, connection: psycopg.Connection[Row]
) -> None:
    followed = lambda: any(table in server.app.coordinator.system_tables for table in ("s11", "s13", "s15"))
    until(lambda: not followed())
    with psycopg.connect(dsn) as other:
        other.execute("DECLARE c CURSOR FOR SUBSCRIBE mz_objects")
        other.execute("FETCH 1 c")
        assert "s13" in server.app.coordinator.system_tables
        shown = one(connection, "SELECT count(*) FROM mz_internal.mz_frontiers WHERE object_id LIKE 's%'")
        assert shown == 0, "a system table is no collection for its readers"
    until(lambda: not followed())


# -- SHOW -----------------------------------------------------------------------------------------------------------

SHOWS = (
    "SHOW TABLES",
    "SHOW TABLES FROM mz_internal",
    "SHOW TABLES LIKE 't%'",
    "SHOW VIEWS",
    "SHOW MATERIALIZED VIEWS",
    "SHOW OBJECTS",
    "SHOW SOURCES",
    "SHOW DATABASES LIKE 'test_%'",
    "SHOW SCHEMAS",
    "SHOW INDEXES",
    "SHOW INDEXES ON t",
    "SHOW COLUMNS FROM t",
)


@pytest.mark.parametrize("show", SHOWS)
def test_show_can_be_subscribed_to(connection: psycopg.Connection[Row], show: str) -> None:
    connection.execute("CREATE TABLE other (x int)")
    connection.execute("CREATE VIEW w AS SELECT k FROM t")
    connection.execute("CREATE MATERIALIZED VIEW m AS SELECT k FROM t")
    connection.execute("CREATE INDEX i ON t (k, v)")
    expected = rows(connection, show)
    with connection.transaction():
        connection.execute(f"DECLARE c CURSOR FOR SUBSCRIBE ({show}) WITH (PROGRESS)")
        seen: list[Row] = []
        while sum(bool(message[1]) for message in seen) < 2:  # the second one states that the snapshot is complete
            seen += connection.execute("FETCH 1 c").fetchall()
    assert Counter(message[3:] for message in seen if not message[1]) == Counter(expected)


def test_show_that_cannot_be_subscribed_to(connection: psycopg.Connection[Row]) -> None:
    for show in ("SHOW ALL", "SHOW search_path", "SHOW CREATE TABLE t"):
        with pytest.raises(errors.FeatureNotSupported):
            connection.execute(f"SUBSCRIBE ({show})")


# -- acting on other sessions ---------------------------------------------------------------------------------------


class Statement:
    """A statement that runs in its own session."""

    def __init__(self, dsn: str, text: str) -> None:
        self.connection = psycopg.connect(dsn, autocommit=True)
        self.pid = self.connection.info.backend_pid
        self.error: psycopg.Error | None = None
        self._text = text
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            cursor = self.connection.cursor()
            if self._text.startswith("COPY"):
                with cursor.copy(self._text) as copy:
                    list(copy)
            else:
                cursor.execute(self._text)
        except psycopg.Error as error:
            self.error = error

    def ended(self) -> psycopg.Error | None:
        self._thread.join(HANG_S)
        assert not self._thread.is_alive()
        return self.error


def subscribed(connection: psycopg.Connection[Row], pid: int) -> bool:
    return bool(
        rows(
            connection,
            "SELECT b.id FROM mz_internal.mz_subscriptions b JOIN mz_internal.mz_sessions s ON s.id = b.session_id "
            f"WHERE connection_id = {pid}",
        )
    )


@pytest.mark.parametrize("copy", [False, True])
def test_pg_cancel_backend(dsn: str, connection: psycopg.Connection[Row], copy: bool) -> None:
    victim = Statement(dsn, "COPY (SUBSCRIBE t) TO STDOUT" if copy else "SUBSCRIBE t")
    until(lambda: subscribed(connection, victim.pid))
    assert one(connection, f"SELECT pg_cancel_backend({victim.pid})") is True
    error = victim.ended()
    assert isinstance(error, errors.QueryCanceled)
    assert "canceling statement due to user request" in str(error)
    assert one(victim.connection, "SELECT 1") == 1
    victim.connection.close()


def test_pg_cancel_backend_with_a_parameter(dsn: str, connection: psycopg.Connection[Row]) -> None:
    for _ in range(3):
        victim = Statement(dsn, "SUBSCRIBE t")
        until(lambda v=victim: subscribed(connection, v.pid))  # type: ignore[misc]
        found = connection.execute("SELECT pg_cancel_backend(%s)", [victim.pid], prepare=True).fetchone()
        assert found == (True,)
        assert isinstance(victim.ended(), errors.QueryCanceled)
        victim.connection.close()


def test_a_cancel_between_two_fetches_ends_the_stream(dsn: str, connection: psycopg.Connection[Row]) -> None:
    connection.execute("INSERT INTO t VALUES (1), (2)")
    with psycopg.connect(dsn) as other:
        other.execute("DECLARE c CURSOR FOR SUBSCRIBE t")
        assert len(other.execute("FETCH 1 c").fetchall()) == 1
        assert one(connection, f"SELECT pg_cancel_backend({other.info.backend_pid})") is True
        assert not subscribed(connection, other.info.backend_pid)
        with pytest.raises(errors.QueryCanceled, match="canceling statement due to user request"):
            other.execute("FETCH 1 c")
        with pytest.raises(errors.InFailedSqlTransaction):
            other.execute("SELECT 1")
        other.rollback()
        assert one(other, "SELECT 1") == 1


def test_a_cancel_before_the_statement_has_begun(
    server: ServerThread, dsn: str, connection: psycopg.Connection[Row]
) -> None:
    """A cancellation in the same turn of the event loop as the statement cancels the statement."""
    with psycopg.connect(dsn, autocommit=True) as other:
        pid = other.info.backend_pid
        (client,) = [c for c in server.app.listener.clients if c.process_id == pid]
        session: Any = client._session
        kept = session.received
        session.received = lambda: (kept(), client.cancel())
        with pytest.raises(errors.QueryCanceled):
            other.execute("SUBSCRIBE t")
        session.received = kept
        assert one(other, "SELECT 1") == 1


def test_cancelling_an_idle_session_has_no_effect(dsn: str, connection: psycopg.Connection[Row]) -> None:
    with psycopg.connect(dsn) as other:
        assert one(connection, f"SELECT pg_cancel_backend({other.info.backend_pid})") is True
        assert one(other, "SELECT 1") == 1


def test_a_session_can_cancel_itself(connection: psycopg.Connection[Row]) -> None:
    for options in ({}, {"prepare": True}):
        with pytest.raises(errors.QueryCanceled):
            connection.execute("SELECT pg_cancel_backend(pg_backend_pid())", **options)
    assert one(connection, "SELECT 1") == 1


def test_pg_terminate_backend(dsn: str, connection: psycopg.Connection[Row]) -> None:
    victim = Statement(dsn, "SUBSCRIBE t")
    until(lambda: subscribed(connection, victim.pid))
    assert one(connection, f"SELECT pg_terminate_backend({victim.pid})") is True
    assert isinstance(victim.ended(), errors.AdminShutdown)
    assert victim.connection.closed
    until(lambda: not rows(connection, f"SELECT 1 FROM mz_internal.mz_sessions WHERE connection_id = {victim.pid}"))


def test_a_session_can_terminate_itself(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")
            connection.execute("SELECT 1")
        assert connection.closed


def test_an_unknown_session_is_a_warning(connection: psycopg.Connection[Row]) -> None:
    notices = []
    connection.add_notice_handler(lambda d: notices.append((d.severity, d.message_primary)))
    for function in ("pg_cancel_backend", "pg_terminate_backend"):
        assert one(connection, f"SELECT {function}(2000000000)") is False
        assert connection.execute(f"SELECT {function}(%s)", [2_000_000_000], prepare=True).fetchone() == (False,)
    assert notices == [("WARNING", "PID 2000000000 is not a PostgreSQL backend process")] * 4
    assert one(connection, "SELECT pg_cancel_backend(NULL)") is None


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("SELECT pg_cancel_backend(connection_id) FROM mz_internal.mz_sessions", errors.FeatureNotSupported),
        ("SELECT k FROM t WHERE pg_terminate_backend(1)", errors.FeatureNotSupported),
        ("SUBSCRIBE (SELECT pg_cancel_backend(1))", errors.FeatureNotSupported),
        ("CREATE MATERIALIZED VIEW w AS SELECT pg_cancel_backend(1)", errors.FeatureNotSupported),
        ("SELECT pg_cancel_backend()", errors.UndefinedFunction),
        ("SELECT pg_cancel_backend('x')", errors.InvalidTextRepresentation),
    ],
)
def test_calls_in_other_places_are_refused(
    connection: psycopg.Connection[Row], statement: str, error: type[psycopg.Error]
) -> None:
    with pytest.raises(error):
        connection.execute(statement)


# -- pg_catalog -----------------------------------------------------------------------------------------------------


def test_postgresqls_catalogs_and_tables_in_one_query(connection: psycopg.Connection[Row]) -> None:
    """Queries that also read a user's table are planned. In them, OIDs are numbers and names are text."""
    connection.execute("INSERT INTO t VALUES (1, 'k'), (2, 'nothing')")
    query = (
        "SELECT t.k, a.attnum, c.relkind FROM t LEFT JOIN pg_attribute a ON a.attname = t.v "
        "AND a.attrelid = (SELECT oid FROM pg_class WHERE relname = 't' AND relkind = 'r') "
        "LEFT JOIN pg_class c ON c.oid = a.attrelid ORDER BY t.k"
    )
    assert rows(connection, query) == [(1, 1, "r"), (2, None, None)]
    connection.execute("CREATE VIEW names AS SELECT relname FROM pg_class WHERE relkind = 'v'")
    assert rows(connection, "SELECT * FROM names WHERE relname = 'names'") == [("names",)]


def test_rows_of_postgresqls_catalogs_can_be_inserted_into_tables(connection: psycopg.Connection[Row]) -> None:
    connection.execute("CREATE TABLE kept (name text, number int)")
    connection.execute(
        "INSERT INTO kept SELECT attname, attnum FROM pg_attribute JOIN pg_class c ON attrelid = c.oid "
        "WHERE relname = 'kept'"
    )
    assert sorted(rows(connection, "SELECT * FROM kept")) == [("name", 1), ("number", 2)]


def test_postgresqls_catalogs_cannot_be_maintained(connection: psycopg.Connection[Row]) -> None:
    for statement in (
        "SUBSCRIBE pg_class",
        "SUBSCRIBE (SELECT count(*) FROM pg_class, t)",
        "CREATE MATERIALIZED VIEW m AS SELECT relname FROM pg_class",
        "EXPLAIN RAW PLAN FOR SELECT relname FROM pg_class",
    ):
        with pytest.raises(errors.FeatureNotSupported):
            connection.execute(statement.encode())
        assert rows(connection, "SELECT 1") == [(1,)]
