"""CREATE SINK and the statements about sinks."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from time import sleep

import psycopg
import pytest

from tests.fix_server import ServerThread
from tests.kafka.outputs import JoinEngine
from tests.server.refusals import refused


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[psycopg.Connection]:
    server = ServerThread(tmp_path / "data", JoinEngine(), interval_s=0.02)
    try:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute("CREATE TABLE t (n bigint NOT NULL, v text)")
            yield connection
    finally:
        server.stop()


def test_a_sink_is_created_shown_and_dropped(connection: psycopg.Connection, tmp_path: Path) -> None:
    path = tmp_path / "changes.json"
    connection.execute("INSERT INTO t VALUES (1, 'a')")
    into = f"INTO FILE '{path}' FORMAT JSON ENVELOPE MATERIALIZE"
    create = f"CREATE SINK materialize.public.s FROM materialize.public.t {into}"
    connection.execute(create.encode())
    connection.execute(create.replace("SINK", "SINK IF NOT EXISTS").encode())
    refused(connection, create, "42710", 'sink "s" already exists')
    assert connection.execute("SHOW SINKS").fetchall() == [("s", "file", "t")]
    shown = connection.execute("SHOW CREATE SINK s").fetchall()
    assert shown[0][-1] == create
    with connection.transaction():
        connection.execute("DECLARE c CURSOR FOR SUBSCRIBE mz_internal.mz_sink_statuses")
        statuses: list[tuple] = []
        while not any(row[5] == "running" and row[8] is not None for row in statuses):
            statuses += connection.execute("FETCH ALL c").fetchall()
    assert b'"data":{"n":1,"v":"a"}' in path.read_bytes()
    ((id, _, name, type, on, envelope, format, _),) = connection.execute("TABLE mz_sinks").fetchall()
    assert (name, type, envelope, format) == ("s", "file", "materialize", "json")
    ((statistics_id, _, updates, _, _),) = connection.execute("TABLE mz_internal.mz_sink_statistics").fetchall()
    assert (statistics_id, updates) == (id, 1)
    assert on.startswith("u")
    refused(connection, "DROP TABLE t", "2BP01", "cannot drop table t because other objects depend on it")
    connection.execute("ALTER SINK s RENAME TO r")
    connection.execute("DROP SINK r")
    assert connection.execute("SHOW SINKS").fetchall() == []
    assert path.exists()
    refused(connection, create, "42710", f'file "{path}" already exists')


def test_two_sinks_cannot_write_one_file(connection: psycopg.Connection, tmp_path: Path) -> None:
    """The second one is created before the first one has created the file."""
    create = "CREATE SINK {} FROM t INTO FILE '{}' FORMAT JSON ENVELOPE MATERIALIZE"
    with pytest.raises(psycopg.errors.DuplicateObject, match='sink "r" already writes file') as error:
        with connection.transaction():
            connection.execute(create.format("r", tmp_path / "f").encode())
            connection.execute(create.format("s", f"{tmp_path}/./f").encode())
    assert error.value.diag.message_hint
    assert connection.execute("SHOW SINKS").fetchall() == []


def test_a_file_with_the_changes_of_rows(connection: psycopg.Connection, tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    connection.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    into = f"INTO FILE '{path}' KEY (n) NOT ENFORCED FORMAT JSON ENVELOPE UPSERT"
    create = f"CREATE SINK materialize.public.s FROM materialize.public.t {into}"
    connection.execute(create.encode())
    assert connection.execute("SHOW CREATE SINK s").fetchall()[0][-1] == create
    expected = {b'{"key":{"n":1},"value":{"n":1,"v":"a"}}', b'{"key":{"n":2},"value":{"n":2,"v":"b"}}'}
    found: list[bytes] = []
    while not found or not found[-1].startswith(b'{"frontier":['):
        found = path.read_bytes().splitlines() if path.exists() else []
    assert {*found[:2]} == expected
    connection.execute("INSERT INTO t VALUES (3, NULL)")
    while b'{"key":{"n":3},"value":{"n":3,"v":null}}' not in found:
        found = path.read_bytes().splitlines()


def test_what_is_not_supported_is_refused(connection: psycopg.Connection, tmp_path: Path) -> None:
    into = f"INTO FILE '{tmp_path}/f'"
    json = "FORMAT JSON ENVELOPE MATERIALIZE"
    message = "a sink into a file requires FORMAT AVRO or JSON"
    refused(connection, f"CREATE SINK s FROM t {into} FORMAT TEXT", "0A000", message)
    message = "USING of a sink into a file is not supported"
    refused(connection, f"CREATE SINK s FROM t {into} FORMAT AVRO USING SCHEMA '{{}}'", "0A000", message)
    connection.execute('CREATE TABLE x ("a b" bigint)')
    message = 'column "a b" has a name that Avro does not allow'
    avro = "FORMAT AVRO ENVELOPE MATERIALIZE"
    refused(connection, f"CREATE SINK s FROM x {into} {avro}", "42602", message)
    message = "ENVELOPE NONE of a sink into a file is not supported"
    refused(connection, f"CREATE SINK s FROM t {into} FORMAT JSON ENVELOPE NONE", "0A000", message)
    message = "ENVELOPE UPSERT of a sink requires a KEY"
    refused(connection, f"CREATE SINK s FROM t {into} FORMAT JSON ENVELOPE UPSERT", "0A000", message)
    message = "KEY of a sink into a file with ENVELOPE MATERIALIZE is not supported"
    refused(connection, f"CREATE SINK s FROM t {into} KEY (n) {json}", "0A000", message)
    message = "FORMAT AVRO of a sink into a file with ENVELOPE DEBEZIUM is not supported"
    refused(connection, f"CREATE SINK s FROM t {into} FORMAT AVRO ENVELOPE DEBEZIUM", "0A000", message)
    message = "CREATE SINK INTO ICEBERG is not supported"
    refused(connection, f"CREATE SINK s FROM t INTO ICEBERG {json}", "0A000", message)
    message = "relative path not allowed for a sink into a file"
    refused(connection, f"CREATE SINK s FROM t INTO FILE 'f' {json}", "42602", message)
    (tmp_path / "link").symlink_to(tmp_path / "data")
    for file in (tmp_path / "data/catalog.sqlite-journal", tmp_path / "x/../data/payloads/f", tmp_path / "link/f"):
        message = f'file "{file}" of a sink must not be in the data directory'
        refused(connection, f"CREATE SINK s FROM t INTO FILE '{file}' {json}", "42P17", message)
    connection.execute("CREATE VIEW w AS SELECT n FROM t")
    refused(connection, f"CREATE SINK s FROM w {into} {json}", "0A000", 'sink from view "w" is not supported')
    connection.execute("CREATE ROLE engineer")
    connection.execute("SET ROLE engineer")
    refused(
        connection, f"CREATE SINK s FROM t {into} {json}", "42501", "permission denied to create a sink into a file"
    )


@pytest.mark.parametrize(
    ("format", "columns"), [("JSON", "(n bigint NOT NULL, v text)"), ("AVRO", "(n bigint, v text)")]
)
def test_a_source_from_the_file_of_a_sink_follows_its_table(
    connection: psycopg.Connection, tmp_path: Path, format: str, columns: str
) -> None:
    connection.execute("INSERT INTO t VALUES (1, 'a'), (1, 'a'), (2, NULL)")
    connection.execute(f"CREATE SINK s FROM t INTO FILE '{tmp_path}/f' FORMAT {format} ENVELOPE MATERIALIZE".encode())
    options = "(POLL INTERVAL '0.01s')"
    source = f"CREATE SOURCE r {columns} FROM FILE '{tmp_path}/*' {options} FORMAT {format} ENVELOPE MATERIALIZE"
    connection.execute(source.encode())
    with connection.transaction():
        connection.execute("DECLARE c CURSOR FOR SUBSCRIBE r")
        found: list[tuple] = []
        while len(found) < 2:
            found += connection.execute("FETCH ALL c").fetchall()
        assert sorted(row[1:] for row in found) == [(1, 2, None), (2, 1, "a")]
    with connection.transaction():
        connection.execute("DECLARE c CURSOR FOR SUBSCRIBE r WITH (SNAPSHOT false)")
        with psycopg.connect(connection.info.dsn, autocommit=True) as writer:
            writer.execute("INSERT INTO t VALUES (3, 'c\"\n')")
        found = []
        while not found:
            found += connection.execute("FETCH ALL c").fetchall()
    assert [row[1:] for row in found] == [(1, 3, 'c"\n')]


@pytest.mark.parametrize("envelope", ["UPSERT", "DEBEZIUM"])
def test_a_source_from_the_changes_of_rows_of_a_sink_follows_its_table(
    connection: psycopg.Connection, tmp_path: Path, envelope: str
) -> None:
    connection.execute("INSERT INTO t VALUES (1, 'a'), (2, '')")
    format = f"FORMAT JSON ENVELOPE {envelope}"
    connection.execute(f"CREATE SINK s FROM t INTO FILE '{tmp_path}/f' KEY (n) {format}".encode())
    options = "(POLL INTERVAL '0.01s')"
    connection.execute(f"CREATE SOURCE r (n int, v text) FROM FILE '{tmp_path}/*' {options} {format}".encode())

    def until(*expected: tuple[int, str]) -> None:
        while sorted(connection.execute("SELECT * FROM r").fetchall()) != list(expected):
            sleep(0.01)

    until((1, "a"), (2, ""))
    with connection.transaction():
        connection.execute("DELETE FROM t")
        connection.execute("INSERT INTO t VALUES (1, 'b\"'), (3, 'c')")
    until((1, 'b"'), (3, "c"))
    connection.execute("DELETE FROM t")
    until()


def test_a_sink_into_an_avro_file_stalls_when_the_columns_change(
    connection: psycopg.Connection, tmp_path: Path
) -> None:
    path = tmp_path / "f"
    connection.execute(f"CREATE SINK s FROM t INTO FILE '{path}' FORMAT AVRO ENVELOPE MATERIALIZE".encode())
    while not path.exists() or path.stat().st_size == 0:
        sleep(0.01)
    connection.execute("ALTER TABLE t ADD COLUMN x text")
    connection.execute("INSERT INTO t VALUES (1, 'a', 'b')")
    query = b"SELECT error, hint FROM mz_internal.mz_sink_statuses WHERE status = 'stalled'"
    while not (found := connection.execute(query).fetchall()):
        sleep(0.01)
    hint = "Drop the sink and create another one, with another file."
    assert found == [(f'file "{path}" of a sink has another schema than the messages', hint)]


def test_a_sink_begins_at_the_time_of_as_of(connection: psycopg.Connection, tmp_path: Path) -> None:
    connection.execute("CREATE HOLD h ON t")
    with connection.transaction():
        connection.execute("DECLARE c CURSOR FOR SUBSCRIBE t")
        times: list[int] = []
        for number in range(3):
            with psycopg.connect(connection.info.dsn, autocommit=True) as writer:
                writer.execute("INSERT INTO t VALUES (%s, 'a')", (number + 1,))
            while len(times) <= number:
                times += [int(row[0]) for row in connection.execute("FETCH ALL c").fetchall()]
    rest = "FORMAT JSON ENVELOPE MATERIALIZE WITH"
    for name, options in (("s", f"AS OF {times[1]}"), ("r", f"SNAPSHOT = false, AS OF = {times[1]}")):
        create = f"CREATE SINK {name} FROM t INTO FILE '{tmp_path}/{name}' {rest} ({options})"
        connection.execute(create.encode())
    shown = connection.execute("SHOW CREATE SINK r").fetchall()[0][-1]
    assert shown.endswith(f" WITH (AS OF {times[1]}, SNAPSHOT = false)")
    last = b'{"array":[{"data":{"n":3,"v":"a"},"time":%d,"diff":1}]}' % times[2]
    begin = [
        b'{"array":[{"data":{"n":%d,"v":"a"},"time":%d,"diff":1}' % (1, times[1]),
        b'{"data":{"n":%d,"v":"a"},"time":%d,"diff":1}]}' % (2, times[1]),
    ]
    for name, wanted in (("s", [b",".join(begin), last]), ("r", [last])):
        path = tmp_path / name
        while not path.exists() or last not in path.read_bytes():
            sleep(0.005)
        assert [line for line in path.read_bytes().splitlines() if line.startswith(b'{"array')] == wanted
    create = f"CREATE SINK q FROM t INTO FILE '{tmp_path}/q' {rest}"
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="is after the latest time"):
        connection.execute(f"{create} (AS OF {times[2] + 10**9})".encode())
    with pytest.raises(psycopg.errors.DataError):
        connection.execute(f"{create} (AS OF 1)".encode())
    refused(connection, f"{create} (AS OF 1, AS OF 2)", "42601", "option AS OF specified more than once")


def test_a_sink_that_continues_says_nothing_about_earlier_times(connection: psycopg.Connection, tmp_path: Path) -> None:
    path = tmp_path / "changes.json"
    into = f"INTO FILE '{path}' FORMAT JSON ENVELOPE MATERIALIZE WITH (CONTINUE, PROGRESS INTERVAL = '50ms')"
    connection.execute("INSERT INTO t VALUES (1, 'a')")
    connection.execute(f"CREATE SINK materialize.public.s FROM materialize.public.t {into}".encode())
    connection.execute("INSERT INTO t VALUES (2, 'b')")
    while not path.exists() or b'"lower"' not in path.read_bytes().partition(b'"n":2')[2]:
        sleep(0.01)
    messages = [json.loads(line) for line in path.read_bytes().splitlines()]
    statements = [m["com.materialize.cdc.progress"] for m in messages if "array" not in m]
    updates = [update for message in messages for update in message.get("array", ())]
    assert [update["data"] for update in updates] == [{"n": 2, "v": "b"}]
    lowers = [statement["lower"] for statement in statements]
    assert 0 < lowers[0][0] <= updates[0]["time"]
    assert lowers[1:] == [statement["upper"] for statement in statements[:-1]]
    shown = connection.execute("SHOW CREATE SINK s").fetchone()
    assert shown is not None
    assert shown[-1].endswith("WITH (PROGRESS INTERVAL = '50ms', CONTINUE = true)")


def test_continue_requires_a_history(connection: psycopg.Connection) -> None:
    connection.execute(
        "CREATE CONNECTION pg TO POSTGRES (HOST '127.0.0.1', PORT 1, USER u, DATABASE d) WITH (VALIDATE = false)"
    )
    connection.execute("CREATE CONNECTION k TO KAFKA (BROKER '127.0.0.1:1') WITH (VALIDATE = false)")
    for into in (
        "INTO POSTGRES CONNECTION pg TABLE x",
        "INTO KAFKA CONNECTION k (TOPIC 't') KEY (n) FORMAT JSON ENVELOPE UPSERT",
        "INTO KAFKA CONNECTION k (TOPIC 't') FORMAT JSON ENVELOPE DEBEZIUM",
    ):
        message = "option CONTINUE of a sink requires ENVELOPE MATERIALIZE"
        refused(connection, f"CREATE SINK s FROM t {into} WITH (CONTINUE)", "0A000", message)


@pytest.mark.parametrize(
    ("options", "state", "message"),
    [
        ("CONTINUE, SNAPSHOT", "42601", "conflicting options SNAPSHOT and CONTINUE"),
        ("CONTINUE, CONTINUE", "42601", "option CONTINUE specified more than once"),
        ("PROGRESS INTERVAL 'x'", "22023", 'invalid value for option PROGRESS INTERVAL: "x"'),
    ],
)
def test_options_of_sinks_are_checked(
    connection: psycopg.Connection, tmp_path: Path, options: str, state: str, message: str
) -> None:
    into = f"INTO FILE '{tmp_path}/f' FORMAT JSON ENVELOPE MATERIALIZE"
    refused(connection, f"CREATE SINK s FROM t {into} WITH ({options})", state, message)


def metrics(server: ServerThread, prefix: str) -> dict[str, float]:
    """The metrics whose names, with labels, have this prefix."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {name: float(value) for name, value in re.findall(rf"(?m)^({prefix}\S*) (\S+)$", text)}


def test_metrics_show_what_each_sink_has_written_and_how_far_it_lags(tmp_path: Path) -> None:
    server = ServerThread(tmp_path / "data", JoinEngine(), interval_s=0.02)
    label = '{sink="materialize.public.s"}'
    try:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute("CREATE TABLE t (n bigint NOT NULL)")
            connection.execute("INSERT INTO t VALUES (1), (2)")
            assert "tidewire_sink_lag_seconds" not in "".join(metrics(server, "tidewire_sink_"))
            path = tmp_path / "changes.json"
            create = f"CREATE SINK s FROM t INTO FILE '{path}' FORMAT JSON ENVELOPE MATERIALIZE"
            connection.execute(create.encode())
            while metrics(server, "tidewire_sink_").get(f"tidewire_sink_updates_total{label}") != 2:
                sleep(0.005)
            while metrics(server, "tidewire_sink_lag")[f"tidewire_sink_lag_seconds{label}"] != 0:
                sleep(0.005)
            found = metrics(server, "tidewire_sink")
            assert found['tidewire_sinks{status="running"}'] == 1
            assert found['tidewire_sinks{status="stalled"}'] == 0
            assert found[f"tidewire_sink_errors_total{label}"] == 0
            assert found[f"tidewire_sink_messages_total{label}"] >= 2
            assert found[f"tidewire_sink_bytes_total{label}"] == path.stat().st_size
            frontier = found[f"tidewire_sink_frontier_seconds{label}"]
            path.rename(tmp_path / "moved")
            path.mkdir()
            connection.execute("ALTER SINK s RENAME TO r")  # the sink opens the file again after the next change
            connection.execute("INSERT INTO t VALUES (3)")
            label = label.replace(".s", ".r")
            while not metrics(server, "tidewire_sink_").get(f"tidewire_sink_errors_total{label}"):
                sleep(0.005)
            connection.execute("INSERT INTO t VALUES (4)")
            while metrics(server, "tidewire_sink_lag")[f"tidewire_sink_lag_seconds{label}"] < 0.05:
                sleep(0.005)
            found = metrics(server, "tidewire_sink")
            assert found['tidewire_sinks{status="stalled"}'] == 1
            assert found[f"tidewire_sink_updates_total{label}"] <= 3
            assert found[f"tidewire_sink_frontier_seconds{label}"] >= frontier
            ((errors,),) = connection.execute("SELECT errors FROM mz_internal.mz_sink_statistics").fetchall()
            assert errors >= 1
            connection.execute("DROP SINK r")
            assert not metrics(server, "tidewire_sink_lag")
    finally:
        server.stop()
