"""Secrets, connections and sources as statements: definitions, errors, privileges, and that no secret is shown."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from time import sleep

import fastavro
import psycopg
import pytest
from psycopg import sql
from structlog.testing import capture_logs

from server.ingest import sources
from tests.fix_server import ServerThread
from tests.polling import until
from tests.server.slow_engine import PassingEngine

SECRET = "correct-horse"


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    """A server without Spark, as sources need none."""
    server = ServerThread(tmp_path_factory.mktemp("sources"), PassingEngine(), interval_s=0.02)
    yield server
    server.stop()


@pytest.fixture
def connection(own_server: ServerThread) -> Iterator[psycopg.Connection]:
    with psycopg.connect(own_server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE d")
        with psycopg.connect(own_server.dsn("d"), autocommit=True) as inner:
            yield inner
        connection.execute("DROP DATABASE d CASCADE")


def rows(connection: psycopg.Connection, query: str) -> list[tuple]:
    return connection.execute(query.encode()).fetchall()


def await_rows(connection: psycopg.Connection, relation: str, count: int) -> list[tuple]:
    """The rows of a relation, when there are `count` of them. Its subscription says when to look."""
    with connection.transaction():
        connection.execute(f"DECLARE changes CURSOR FOR SUBSCRIBE {relation}".encode())
        found = 0
        while found < count:
            found += sum(int(row[1]) for row in connection.execute("FETCH ALL changes").fetchall())
    return sorted(rows(connection, f"TABLE {relation}"))


def refused(connection: psycopg.Connection, statement: str, state: str, message: str, hint: str | None = None) -> None:
    with pytest.raises(psycopg.Error) as caught:
        connection.execute(statement.encode())
    error = caught.value
    assert (error.sqlstate, error.diag.message_primary) == (state, message)
    if hint is not None:
        assert hint in str(error.diag.message_hint)


def define_connections(connection: psycopg.Connection) -> None:
    connection.execute(f"CREATE SECRET pw AS '{SECRET}'".encode())
    connection.execute("CREATE CONNECTION k TO KAFKA (BROKER 'b:1', SASL USERNAME 'u', SASL PASSWORD SECRET pw)")
    connection.execute("CREATE CONNECTION p TO POSTGRES (HOST 'h', DATABASE 'd', PASSWORD SECRET pw)")
    connection.execute("CREATE CONNECTION r TO CONFLUENT SCHEMA REGISTRY (URL 'http://r', PASSWORD SECRET pw)")


def shown(connection: psycopg.Connection, kind: str, name: str) -> str:
    ((_, text),) = rows(connection, f"SHOW CREATE {kind} {name}")
    return str(text)


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("s", "SOURCE", "CREATE SOURCE d.public.s FROM LOAD GENERATOR COUNTER (UP TO = '3')"),
        ("s", "SOURCE", "CREATE SOURCE d.public.s (n) FROM LOAD GENERATOR COUNTER WITH (RETAIN HISTORY FOR '60s')"),
        (
            "s",
            "SOURCE",
            "CREATE SOURCE d.public.s FROM LOAD GENERATOR AUCTION (SEED = '1') FOR TABLES (bids AS b, users AS \"U\")",
        ),
        ("s", "SOURCE", "CREATE SOURCE d.public.s FROM LOAD GENERATOR KEY VALUE INCLUDE KEY ENVELOPE UPSERT"),
        (
            "s",
            "SOURCE",
            "CREATE SOURCE d.public.s (a integer NOT NULL, b numeric(10,2)) FROM FILE '/x/*.csv' (NULL = 'n') "
            "FORMAT CSV WITH HEADER DELIMITED BY ';'",
        ),
        (
            "s",
            "SOURCE",
            "CREATE SOURCE d.public.s (a bigint) FROM FILE '/x/*.json' (STALL TIMEOUT = '5s') "
            "FORMAT JSON ENVELOPE MATERIALIZE",
        ),
        (
            "k",
            "CONNECTION",
            "CREATE CONNECTION d.public.k TO KAFKA (BROKER = 'b:1', SASL PASSWORD = SECRET d.public.pw)",
        ),
    ],
)
def test_show_create_is_the_statement(connection: psycopg.Connection, name: str, kind: str, text: str) -> None:
    connection.execute("CREATE SECRET pw AS 'x'")
    connection.execute(text.encode())
    assert shown(connection, kind, name) == text
    connection.execute(f"DROP {kind} {name}".encode())
    connection.execute(text.encode())
    assert shown(connection, kind, name) == text


def test_changes_of_a_file_are_those_of_closed_upstream_times(connection: psycopg.Connection, tmp_path: Path) -> None:
    update = '{"array": [{"data": {"a": %d, "b": %s}, "time": %d, "diff": %d}]}\n'
    progress = '{"com.materialize.cdc.progress": {"lower": [%d], "upper": %s, "counts": [{"time": %d, "count": %d}]}}\n'
    file = tmp_path / "changes.json"
    file.write_text(update % (1, '"x"', 2, 2) + update % (2, "null", 2, 1) + progress % (0, "[5]", 2, 2))
    text = f"(a bigint NOT NULL, b text) FROM FILE '{file}' (POLL INTERVAL '0.01s') FORMAT JSON ENVELOPE MATERIALIZE"
    connection.execute(f"CREATE SOURCE s {text}".encode())
    assert sorted(await_rows(connection, "s", 3)) == [(1, "x"), (1, "x"), (2, None)]
    with connection.transaction():
        connection.execute("DECLARE changes CURSOR FOR SUBSCRIBE s WITH (SNAPSHOT false)")
        with file.open("a") as more:
            more.write(progress % (5, "[]", 7, 1) + update % (1, '"x"', 7, -1))
        changes: list[tuple] = []
        while not changes:
            changes = connection.execute("FETCH ALL changes").fetchall()
    assert [row[1:] for row in changes] == [(-1, 1, "x")]
    assert rows(connection, "TABLE s") == [(1, "x"), (2, None)]
    assert [row[1:] for row in rows(connection, "TABLE mz_internal.mz_source_frontiers")] == [(None, 0, 0, 0, 0)]
    assert "materialize" in rows(connection, "TABLE mz_sources")[0]


def test_a_row_that_was_never_inserted_is_deleted(connection: psycopg.Connection, tmp_path: Path) -> None:
    """Reads fail and name the source, and its status has their error, until the row is inserted."""
    update = '{"array": [{"data": {"a": 1}, "time": %d, "diff": %d}]}\n'
    counts = '[{"time": %d, "count": 1}]'
    progress = '{"com.materialize.cdc.progress": {"lower": [%d], "upper": [%d], "counts": ' + counts + "}}\n"
    file = tmp_path / "changes.json"
    file.write_text(update % (1, -1) + progress % (0, 2, 1))
    text = f"(a bigint) FROM FILE '{file}' (POLL INTERVAL '0.01s') FORMAT JSON ENVELOPE MATERIALIZE"
    connection.execute(f"CREATE SOURCE s {text}".encode())
    committed = "SELECT updates_committed FROM mz_internal.mz_source_statistics"
    until(lambda: rows(connection, committed) == [(1,)])
    status = "SELECT status, error, hint FROM mz_internal.mz_source_statuses"
    assert rows(connection, status) == [("running", None, None)]
    message = 'the count of a row is negative in relation "s"'
    refused(connection, "TABLE s", "22000", message)
    refused(connection, "SELECT a FROM s WHERE a = 2", "22000", message)
    with pytest.raises(psycopg.Error, match=message), connection.transaction():
        connection.execute("DECLARE changes CURSOR FOR SUBSCRIBE s")
        connection.execute("FETCH ALL changes")
    hint = "The source has deleted a row that it had not inserted. Reads succeed after it has inserted the row."
    assert rows(connection, status) == [("running", message, hint)]
    with file.open("a") as more:
        more.write(update % (3, 2) + progress % (2, 4, 3))
    until(lambda: rows(connection, committed) == [(2,)])
    assert rows(connection, "TABLE s") == [(1,)]
    assert rows(connection, status) == [("running", None, None)]


def test_rows_of_avro_files(connection: psycopg.Connection, tmp_path: Path) -> None:
    schema = {
        "type": "record",
        "name": "bid",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        ],
    }
    at = datetime(2026, 11, 25, 12, tzinfo=UTC)
    values = [{"id": n, "price": Decimal(n) / 4, "at": at if n % 2 else None} for n in range(1, 4)]
    with (tmp_path / "a.avro").open("wb") as file:
        fastavro.writer(file, schema, values, codec="deflate")
    text = f"FROM FILE '{tmp_path}/*.avro' (POLL INTERVAL = '0.01s') FORMAT AVRO"
    connection.execute(f"CREATE SOURCE s {text}".encode())
    naive = at.replace(tzinfo=None)
    expected = [(n, Decimal(n) / 4, naive if n % 2 else None) for n in range(1, 4)]
    assert await_rows(connection, "s", 3) == expected
    assert rows(connection, "SHOW COLUMNS FROM s") == [
        ("id", False, "bigint"),
        ("price", False, "numeric(10,2)"),
        ("at", True, "timestamp without time zone"),
    ]
    assert shown(connection, "SOURCE", "s").endswith(text)
    (tmp_path / "b.avro").write_bytes((tmp_path / "a.avro").read_bytes()[:-1] + b"x")
    connection.execute(f"CREATE SOURCE b FROM FILE '{tmp_path}/b.avro' FORMAT AVRO".encode())
    errors = "SELECT error FROM mz_internal.mz_source_statuses WHERE status = 'failed' AND name = 'b'"
    while not (found := rows(connection, errors)):
        sleep(0.05)
    assert "does not end with the sync marker of the file" in str(found[0][0])


def test_a_source_is_read_as_any_collection(connection: psycopg.Connection) -> None:
    connection.execute("CREATE SOURCE c (n) FROM LOAD GENERATOR COUNTER (TICK INTERVAL '0s', UP TO 5)")
    connection.execute("CREATE HOLD h ON c")
    connection.execute("CREATE INDEX i ON c (n)")
    assert await_rows(connection, "c", 5) == [(n,) for n in range(1, 6)]
    assert rows(connection, "SELECT * FROM c WHERE n = 3") == [(3,)]
    connection.execute("CREATE VIEW v AS SELECT * FROM c")
    connection.execute("ALTER SOURCE c SET (RETAIN HISTORY FOR '1h')")
    connection.execute("ALTER SOURCE c RENAME TO c2")
    ((at,),) = rows(connection, "SELECT at FROM mz_holds")
    assert rows(connection, f"SELECT * FROM c2 AS OF {at}") == []
    assert rows(connection, "SHOW SOURCES") == [("c2", "load-generator")]
    assert rows(connection, "SHOW COLUMNS FROM c2") == [("n", False, "bigint")]
    assert rows(connection, "EXPLAIN SELECT * FROM c2")[0] == ("Reads: d.public.c2",)
    refused(connection, "DROP SOURCE c2", "2BP01", "cannot drop source c2 because other objects depend on it")
    connection.execute("DROP SOURCE c2 CASCADE")
    assert rows(connection, "SHOW OBJECTS") == []


def test_a_source_is_read_only(connection: psycopg.Connection) -> None:
    connection.execute("CREATE SOURCE c FROM LOAD GENERATOR COUNTER")
    connection.execute("CREATE SOURCE a FROM LOAD GENERATOR AUCTION FOR TABLES (bids)")
    connection.execute("CREATE TABLE u FROM SOURCE a (REFERENCE users)")
    for kind, name in (("source", "c"), ("subsource", "bids"), ("source table", "u")):
        refused(connection, f"INSERT INTO {name} VALUES (1)", "42809", f'cannot insert into {kind} "{name}"')
        refused(connection, f"UPDATE {name} SET id = 1", "42809", f'cannot update {kind} "{name}"')
        refused(connection, f"DELETE FROM {name}", "42809", f'cannot delete from {kind} "{name}"')
        refused(connection, f"TRUNCATE {name}", "42809", f'cannot truncate {kind} "{name}"')
        refused(connection, f"COPY {name} FROM STDIN", "42809", f'cannot copy to {kind} "{name}"')
    refused(connection, "TABLE a", "42809", 'cannot open relation "a"')
    refused(connection, "CREATE DEFAULT INDEX ON a", "42809", 'cannot create index on source "a"')


def test_outputs_are_added_and_dropped(connection: psycopg.Connection) -> None:
    with connection.transaction():
        connection.execute("CREATE SOURCE a FROM LOAD GENERATOR AUCTION")
        connection.execute("CREATE TABLE o (key) FROM SOURCE a (REFERENCE organizations)")
    connection.execute("ALTER SOURCE a ADD SUBSOURCE users, accounts AS acc")
    assert len(await_rows(connection, "o", 100)) == len(await_rows(connection, "acc", 100)) == 100
    assert rows(connection, "SHOW TABLES") == [("o",)]
    assert rows(connection, "SHOW SOURCES") == [("a", "load-generator"), ("acc", "subsource"), ("users", "subsource")]
    assert rows(connection, "SHOW COLUMNS FROM o") == [("key", False, "bigint"), ("name", False, "text")]
    text = "CREATE TABLE d.public.o (key, name) FROM SOURCE d.public.a (REFERENCE organizations)"
    assert shown(connection, "TABLE", "o") == text
    assert shown(connection, "SOURCE", "acc") == "ALTER SOURCE d.public.a ADD SUBSOURCE accounts AS acc"
    refused(
        connection, "ALTER SOURCE a ADD SUBSOURCE users AS u", "42P07", '"users" is already a subsource of source "a"'
    )
    refused(connection, "ALTER SOURCE acc ADD SUBSOURCE users", "42809", '"acc" is a subsource', "Name its source.")
    refused(connection, "ALTER SOURCE acc OWNER TO materialize", "42809", 'cannot change owner of subsource "acc"')
    refused(connection, "DROP TABLE acc", "42809", '"acc" is not a table', "Use DROP SOURCE")
    refused(connection, "DROP SOURCE a", "2BP01", "cannot drop source a because other objects depend on it")
    refused(connection, "ALTER SOURCE a DROP SUBSOURCE o", "42809", '"o" is not a source')
    refused(connection, "ALTER SOURCE a DROP SUBSOURCE a", "42809", '"a" is not a subsource of source "a"')
    connection.execute("CREATE VIEW v AS SELECT * FROM users")
    dropping = "ALTER SOURCE a DROP SUBSOURCE users, acc"
    refused(connection, dropping, "2BP01", "cannot drop subsource users because other objects depend on it")
    connection.execute(f"{dropping} CASCADE".encode())
    assert rows(connection, "SHOW OBJECTS") == [("a", "source"), ("o", "source table")]
    connection.execute("DROP TABLE o")
    connection.execute("DROP SOURCE a")
    assert rows(connection, "SHOW SOURCES") == []


@pytest.mark.parametrize(
    ("statement", "state", "message", "hint"),
    [
        (
            "CREATE SOURCE s FROM LOAD GENERATOR COUNTER (UP TO 'x')",
            "22023",
            'invalid value for option UP TO: "x"',
            "whole",
        ),
        (
            "CREATE SOURCE s FROM LOAD GENERATOR COUNTER (UP TO -1)",
            "22023",
            'invalid value for option UP TO: "-1"',
            "from 0",
        ),
        (
            "CREATE SOURCE s FROM LOAD GENERATOR COUNTER (TICK INTERVAL '-1s')",
            "22023",
            'invalid value for option TICK INTERVAL: "-1s"',
            "not negative",
        ),
        (
            "CREATE SOURCE s FROM LOAD GENERATOR AUCTION FOR TABLES (x)",
            "42P01",
            'load generator has no table "x"',
            "bids",
        ),
        (
            "CREATE SOURCE s (a, b) FROM LOAD GENERATOR COUNTER",
            "42601",
            'column list has 2 names, but "counter" has 1 columns',
            None,
        ),
        (
            "CREATE SOURCE s (a int) FROM LOAD GENERATOR COUNTER",
            "0A000",
            "types of the columns of a source from LOAD GENERATOR are not supported",
            "view",
        ),
        (
            "CREATE SOURCE s FROM LOAD GENERATOR COUNTER FORMAT TEXT",
            "0A000",
            "FORMAT, INCLUDE and ENVELOPE of LOAD GENERATOR COUNTER are not supported",
            None,
        ),
        (
            "CREATE SOURCE s FROM FILE '/missing.csv' FORMAT CSV WITH 1 COLUMNS",
            "22023",
            'could not open file "/missing.csv" for reading: No such file or directory',
            None,
        ),
        ("CREATE SOURCE s FROM KAFKA CONNECTION nope (TOPIC 't')", "42704", 'connection "nope" does not exist', None),
        (
            "CREATE SOURCE s FROM KAFKA CONNECTION p (TOPIC 't')",
            "42809",
            'connection "p" is not a connection to KAFKA',
            None,
        ),
        ("CREATE SOURCE s FROM KAFKA CONNECTION pw (TOPIC 't')", "42809", '"pw" is not a connection', None),
        (
            "CREATE SOURCE s FROM LOAD GENERATOR COUNTER (UP TO SECRET pw)",
            "22023",
            "option UP TO cannot be a secret",
            None,
        ),
        (
            "CREATE CONNECTION x TO POSTGRES (HOST 'h')",
            "22023",
            "connection to POSTGRES needs the option DATABASE",
            None,
        ),
        (
            "CREATE CONNECTION x TO KAFKA (BROKER 'h', SASL PASSWORD SECRET nope)",
            "42704",
            'secret "nope" does not exist',
            None,
        ),
        ("ALTER CONNECTION k SET (HOST 'h')", "22023", "unrecognized option HOST of TO KAFKA", "BROKER"),
        ("ALTER CONNECTION k RESET (BROKER)", "22023", "connection to KAFKA needs the option BROKER", None),
        (
            "CREATE CONNECTION x TO CONFLUENT SCHEMA REGISTRY (URL 'http://u:pass@h')",
            "22023",
            "option URL contains a user name or password",
            "Use the options USERNAME and PASSWORD.",
        ),
        ("ALTER CONNECTION r SET (URL 'http://u@h')", "22023", "option URL contains a user name or password", None),
        ("ALTER CONNECTION r SET (URL 'http://[::1')", "22023", "option URL is not a URL", None),
        (
            "CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 't') FORMAT PROTOBUF",
            "0A000",
            "FORMAT PROTOBUF is not supported",
            "The formats are AVRO, JSON, CSV, TEXT and BYTES",
        ),
        (
            "CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 't') FORMAT TEXT WITH (TIMESTAMP INTERVAL '100ms')",
            "0A000",
            "option TIMESTAMP INTERVAL is not supported",
            "--timestamp-interval",
        ),
        ("DROP SECRET pw", "2BP01", "cannot drop secret pw because other objects depend on it", "CASCADE"),
        ("ALTER SECRET nope AS 'x'", "42704", 'secret "nope" does not exist', None),
        ("CREATE TABLE t FROM SOURCE nope (REFERENCE x)", "42P01", 'source "nope" does not exist', None),
        ("SELECT * FROM pw", "42809", 'cannot open relation "pw"', None),
    ],
)
def test_mistakes_are_refused(
    connection: psycopg.Connection, statement: str, state: str, message: str, hint: str | None
) -> None:
    define_connections(connection)
    refused(connection, statement, state, message, hint)
    connection.execute("ALTER SECRET IF EXISTS nope AS 'x'")


def test_existing_names(connection: psycopg.Connection) -> None:
    connection.execute("CREATE SOURCE s FROM LOAD GENERATOR AUCTION FOR ALL TABLES")
    connection.execute("CREATE SOURCE IF NOT EXISTS s FROM LOAD GENERATOR COUNTER")
    refused(connection, "CREATE SOURCE s FROM LOAD GENERATOR COUNTER", "42P07", 'relation "s" already exists')
    refused(
        connection,
        "CREATE SOURCE t FROM LOAD GENERATOR AUCTION FOR TABLES (bids)",
        "42P07",
        'relation "bids" already exists',
        "bids AS name",
    )
    assert rows(connection, "SHOW SOURCES LIKE 't'") == []  # nothing of it was created


def test_privileges(own_server: ServerThread, connection: psycopg.Connection) -> None:
    define_connections(connection)
    connection.execute("CREATE SOURCE c FROM LOAD GENERATOR AUCTION")
    connection.execute("CREATE ROLE engineer")
    connection.execute("GRANT CREATE ON SCHEMA public TO engineer")
    try:
        connection.execute("SET ROLE engineer")
        kafka = "CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 't') FORMAT TEXT"
        refused(connection, kafka, "42501", "permission denied for connection k")
        stealing = "CREATE CONNECTION x TO KAFKA (BROKER 'h', SASL PASSWORD SECRET pw)"
        refused(connection, stealing, "42501", 'permission denied to create connection "x"')
        file = "CREATE SOURCE s FROM FILE '/etc/passwd' FORMAT TEXT"
        refused(connection, file, "42501", "permission denied to create a source from a file")
        for statement in ("ALTER SECRET pw AS 'x'", "DROP SECRET pw CASCADE"):
            refused(connection, statement, "42501", "must be owner of secret pw")
        altering = "ALTER CONNECTION k SET (BROKER 'x')"
        refused(connection, altering, "42501", 'permission denied to alter connection "k"')
        refused(connection, "VALIDATE CONNECTION k", "42501", "permission denied for connection k")
        refused(connection, "CREATE TABLE t FROM SOURCE c (REFERENCE bids)", "42501", "permission denied for source c")
        refused(connection, "ALTER SOURCE c ADD SUBSOURCE bids", "42501", "must be owner of source c")
        connection.execute("RESET ROLE")
        connection.execute("GRANT USAGE ON SECRET pw TO engineer")
        connection.execute("GRANT SELECT ON c TO engineer")
        connection.execute("ALTER CONNECTION k OWNER TO engineer")
        connection.execute("SET ROLE engineer")
        refused(connection, stealing, "42501", 'permission denied to create connection "x"')
        refused(connection, altering, "42501", 'permission denied to alter connection "k"')
        connection.execute("CREATE TABLE t FROM SOURCE c (REFERENCE bids)")
        connection.execute("CREATE SOURCE own FROM LOAD GENERATOR COUNTER (UP TO 1)")
        connection.execute("SELECT * FROM own")
    finally:
        connection.execute("RESET ROLE")
        connection.execute("DROP OWNED BY engineer CASCADE")
        connection.execute("DROP ROLE engineer")


def test_no_secret_is_shown(own_server: ServerThread, connection: psycopg.Connection, tmp_path: Path) -> None:
    """The value is searched in all answers, errors and entries of the log."""
    answers: list[object] = []
    with capture_logs() as logged:
        define_connections(connection)
        for statement in (
            f"CREATE SECRET pw AS '{SECRET}'",
            f"CREATE SECRET other '{SECRET}'",
            f"CREATE SECRET other AS {SECRET.replace('-', '_')}",
            f"CREATE SECRET other AS 'x' '{SECRET}'",
            f"CREATE SECRET nope.other AS '{SECRET}'",
            f"ALTER SECRET nope AS '{SECRET}'",
            f"EXPLAIN CREATE SECRET other AS '{SECRET}'",
            f"CREATE CONNECTION x TO KAFKA (BROKER 'b', SASL PASSWORD '{SECRET}')",
            f"CREATE CONNECTION x TO KAFKA (BROKER 'b', SASL PASSWORD = '{SECRET}')",
            f"CREATE CONNECTION x TO POSTGRES (HOST 'h', PASSWORD ('{SECRET}'))",
            f"ALTER CONNECTION p SET (PASSWORD = '{SECRET}')",
            "CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 't') FORMAT TEXT",
            "CREATE SOURCE s FROM POSTGRES CONNECTION p (PUBLICATION 'x') FOR ALL TABLES",
            "CREATE SOURCE c FROM LOAD GENERATOR COUNTER (TICK INTERVAL '0s', UP TO 1)",
            "SHOW CREATE SECRET pw",
            "SHOW CREATE CONNECTION k",
            "SHOW SECRETS",
            "SHOW CONNECTIONS",
            "SHOW ALL",
            "SELECT * FROM mz_secrets",
            "SELECT * FROM mz_connections",
            "SELECT * FROM mz_objects WHERE name = 'pw'",
            "SELECT * FROM pg_stat_activity",
            "SELECT * FROM pg_prepared_statements",
            "SELECT * FROM pw",
            "DROP SECRET pw",
        ):
            try:
                found = connection.execute(statement.encode())
                answers.append(found.fetchall() if found.description else found.statusmessage)
            except psycopg.Error as error:
                answers += [getattr(error.diag, field) for field in dir(error.diag) if not field.startswith("_")]
    state = own_server.app.coordinator.state
    answers += [repr(state), [str(item) for item in state.items.values()]]
    assert any(event["event"] == "source started" for event in logged), "the log is captured"
    for marker in (SECRET, SECRET.replace("-", "_")):
        assert marker not in str(answers)
        assert marker not in str(logged)


def test_system_tables(connection: psycopg.Connection) -> None:
    define_connections(connection)
    assert [row[2:4] for row in sorted(rows(connection, "TABLE mz_connections"), key=lambda row: row[2])] == [
        ("k", "kafka"),
        ("p", "postgres"),
        ("r", "confluent-schema-registry"),
    ]
    assert [row[2] for row in rows(connection, "TABLE mz_secrets")] == ["pw"]
    connection.execute("CREATE SOURCE c FROM LOAD GENERATOR COUNTER (TICK INTERVAL '0s', UP TO 50)")
    await_rows(connection, "c", 50)
    ((id, *shown_source),) = [row for row in rows(connection, "TABLE mz_sources") if row[2] == "c"]
    assert shown_source[2:6] == ["load-generator", None, None, "counter"]
    statuses = [row for row in rows(connection, "TABLE mz_internal.mz_source_statuses") if row[0] == id]
    assert [(row[1], row[2], row[4], row[5]) for row in statuses] == [("c", "load-generator", "running", None)]
    statistics = [row[1:4] for row in rows(connection, "TABLE mz_internal.mz_source_statistics") if row[0] == id]
    assert statistics == [(50, 400, 50)]


def source_metrics(server: ServerThread, name: str) -> dict[str, float]:
    """The metrics `tidewire_source_*` of a source, by their names without this prefix."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/metrics", timeout=10) as answer:
        found = re.findall(rf'^tidewire_source_(\w+){{source="{name}"}} (.*)$', answer.read().decode(), re.MULTILINE)
    return {metric: float(value) for metric, value in found}


def test_metrics_and_the_log_show_the_progress_of_a_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "SNAPSHOT_LOG_S", 0.1)
    with capture_logs() as logs:
        server = ServerThread(tmp_path, PassingEngine(), interval_s=0.02)
        try:
            with psycopg.connect(server.dsn(), autocommit=True) as connection:
                options = "(UP TO 3, TICK INTERVAL '0s', SCALE FACTOR 0.001)"
                connection.execute(f"CREATE SOURCE s FROM LOAD GENERATOR TPCH {options} FOR ALL TABLES".encode())
                connection.execute("CREATE SOURCE c FROM LOAD GENERATOR COUNTER (TICK INTERVAL '0s', UP TO 5)")
                await_rows(connection, "c", 5)
                while source_metrics(server, "materialize.public.s").get("offset_committed", 0) < 4:
                    sleep(0.02)
                found = source_metrics(server, "materialize.public.s")
                statistics = rows(connection, "TABLE mz_internal.mz_source_statistics")
                known, staged, end, committed = max(statistics, key=lambda row: int(row[1]))[4:8]
                assert known is None
                assert found == {
                    "snapshot_records_staged": staged,
                    "offset_known": end,
                    "offset_committed": committed,
                }
                while not any(entry.get("staged") == staged for entry in logs):
                    sleep(0.02)
                connection.execute("DROP SOURCE s CASCADE")
                while source_metrics(server, "materialize.public.s"):
                    sleep(0.02)
        finally:
            server.stop()
    shown = [(entry["staged"], entry["known"]) for entry in logs if entry["event"] == "source snapshot"]
    assert shown[-1] == (staged, None)
    assert shown == sorted(set(shown))  # none is repeated


def test_a_failing_source_reports_its_error(connection: psycopg.Connection, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("1\nx\n")
    path = sql.Literal(str(file)).as_string()
    connection.execute(f"CREATE SOURCE f (n int) FROM FILE {path} FORMAT CSV".encode())
    connection.execute("CREATE SOURCE c FROM LOAD GENERATOR COUNTER (TICK INTERVAL '0s', UP TO 5)")
    assert len(await_rows(connection, "c", 5)) == 5  # the other source goes on
    with connection.transaction():
        connection.execute("DECLARE s CURSOR FOR SUBSCRIBE mz_internal.mz_source_statuses")
        status: dict[object, tuple] = {}
        while status.get("f", ("",))[0] != "failed":
            for row in connection.execute("FETCH ALL s").fetchall():
                if row[1] > 0:
                    status[row[3]] = (row[6], row[7])
    message = f'file "{file}", line 2, column n: invalid input syntax for type integer: "x"'
    assert status["f"] == ("failed", message)
