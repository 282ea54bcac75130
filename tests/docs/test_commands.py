"""The commands and statements of the documentation, executed on servers of this machine."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from server.authentication.rules import RulesError, parse_rules
from server.config import ConfigError, load
from server.spark.engine import SparkEngine
from tests.docs.pages import examples, executes, normalised
from tests.docs.shell import output, shell
from tests.fix_postgres import PostgresServer
from tests.fix_server import ServerThread
from tests.kafka.mock_cluster import MockCluster
from tests.kafka.registry import RegistryThread
from tests.server.authentication.certificates import Authority
from tests.server.slow_engine import PassingEngine

needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")

URL = "127.0.0.1:6875/materialize"


def here(text: str, server: ServerThread) -> str:
    """The text with the ports of a server instead of the default ones."""
    return text.replace(":6875", f":{server.port}").replace(":6876", f":{server.http_port}")


def statements(block: str) -> list[str]:
    return [each.strip() for each in re.sub(r" *-- .*", "", block).split(";") if each.strip()]


def listening(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Waits until a server that logs JSON listens. Returns the event, which has the ports."""
    assert process.stdout is not None
    for line in process.stdout:
        event: dict[str, Any] = json.loads(line) if line.startswith("{") else {}
        if event.get("event") == "listening":
            return event
    raise AssertionError("the server has ended")


@pytest.fixture
def own_server(engine: SparkEngine, tmp_path: Path) -> Iterator[ServerThread]:
    """A server with Spark whose default database no other test uses."""
    own = ServerThread(tmp_path / "data", engine, interval_s=0.02)
    yield own
    own.stop()


# -- psql and programs -------------------------------------------------------------------------------------------------


@executes("clients.md", "sh", section="psql")
def test_psql_connects(passing_server: ServerThread, tmp_path: Path) -> None:
    (command,) = examples("clients.md", "sh", "psql")
    assert URL in command
    assert output(here(f"{command.strip()} -A -t -c 'SELECT 1'", passing_server), tmp_path) == "1\n"


@pytest.mark.slow
@executes("README.md", "sh")
@executes("quick-start.md", "sh")
def test_the_quick_start_starts_a_server(tmp_path: Path) -> None:
    """Executes the commands for the server and psql. `.venv` has the installation already."""
    (block,) = examples("quick-start.md", "sh")
    assert examples("README.md", "sh") == [block]
    install, serve, connect = (line.partition("#")[0].strip() for line in block.splitlines())
    assert install == "python3 -m venv .venv && .venv/bin/pip install ."
    assert serve.startswith(".venv/bin/")
    options = "--listen 127.0.0.1:0 --http-listen= --log-format json"
    with shell(f"exec {serve.removeprefix('.venv/bin/')} {options}", tmp_path) as server:
        try:
            command = connect.replace("6875", str(listening(server)["port"]))
            assert output(f"{command} -A -t -c 'SELECT 1'", tmp_path) == "1\n"
            assert (tmp_path / "tidewire-data" / "catalog.sqlite").exists()
        finally:
            os.killpg(server.pid, signal.SIGTERM)


@pytest.mark.slow
@executes("clients.md", "sh", section="Dumps")
def test_a_dump_is_restored(passing_server: ServerThread, tmp_path: Path) -> None:
    restore, copy = examples("clients.md", "sh", "Dumps")
    postgres = PostgresServer()
    try:
        with psycopg.connect(postgres.dsn, autocommit=True) as connection:
            connection.execute("CREATE DATABASE shop")
        shop = f"{postgres.dsn.removesuffix('/postgres')}/shop"
        with psycopg.connect(shop, autocommit=True) as connection:
            connection.execute("CREATE TABLE products (id serial PRIMARY KEY, name text NOT NULL)")
            connection.execute("INSERT INTO products (name) VALUES ('tea'), ('milk')")
        output(here(restore, passing_server).replace(" shop ", f" {shop} "), tmp_path)
    finally:
        postgres.stop()
    with psycopg.connect(passing_server.dsn()) as restored:
        assert sorted(restored.execute("SELECT * FROM products").fetchall()) == [(1, "tea"), (2, "milk")]
    with psycopg.connect(passing_server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE copy")
    port = str(passing_server.port)
    output(copy.replace("6875", port), tmp_path)
    with psycopg.connect(passing_server.dsn("copy")) as copied:
        assert sorted(copied.execute("SELECT * FROM products").fetchall()) == [(1, "tea"), (2, "milk")]


@executes("holds.md", "sh")
def test_the_mirror_copies_a_relation(passing_server: ServerThread, tmp_path: Path) -> None:
    (commands,) = examples("holds.md", "sh")
    create, mirror = here(commands, passing_server).strip().splitlines()
    with psycopg.connect(passing_server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE TABLE payments (id int, amount int)")
        connection.execute("INSERT INTO payments VALUES (1, 10)")
        assert output(create, tmp_path) == "CREATE HOLD\n"
        program = mirror.replace("docs/examples", str(Path(__file__).parents[2] / "docs" / "examples"))
        with shell(f"exec {program}", tmp_path) as process:
            try:
                while not copied(tmp_path / "copy.sqlite"):
                    assert process.poll() is None, process.stdout and process.stdout.read()
                    time.sleep(0.02)
            finally:
                process.kill()
        assert copied(tmp_path / "copy.sqlite") == [("[1, 10]", 1)]


def copied(file: Path) -> list[tuple[str, int]]:
    """The rows of the copy; none before it has tables."""
    if not file.exists():
        return []
    with sqlite3.connect(file, timeout=30) as store:
        if not store.execute("SELECT 1 FROM sqlite_master WHERE name = 'copy'").fetchone():
            return []
        return store.execute("SELECT row, count FROM copy").fetchall()


@executes("testdrive.md", "sh")
@executes("testdrive.md", "td", "pt")
def test_testdrive_runs_scripts(own_server: ServerThread, tmp_path: Path) -> None:
    (command,) = examples("testdrive.md", "sh")
    plain, kafka_script = examples("testdrive.md", "td")
    (messages,) = examples("testdrive.md", "pt")
    (tmp_path / "plain.td").write_text(plain)
    (tmp_path / "messages.pt").write_text(messages)
    command = here(command.replace("[", "").replace("]", ""), own_server).replace(" FILE...", " plain.td messages.pt")
    assert re.findall(r"^ok  +(\S+)", output(command, tmp_path), re.MULTILINE) == ["plain.td", "messages.pt"]
    with MockCluster() as kafka, RegistryThread() as registry:
        kafka.create_topic("testdrive-orders-7")
        (tmp_path / "kafka.td").write_text(kafka_script)
        options = f"--kafka-addr {kafka.address} --schema-registry-url {registry.url} --seed 7 --no-reset"
        output(f"testdrive --url {own_server.dsn()} {options} kafka.td", tmp_path)


# -- HTTP --------------------------------------------------------------------------------------------------------------


@needs_curl
@executes("http.md", "sh", "json", "text", "python", "js")
def test_the_page_on_http(own_server: ServerThread, tmp_path: Path) -> None:
    with psycopg.connect(own_server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE TABLE t (k int PRIMARY KEY, v text)")
        connection.execute("INSERT INTO t VALUES (1, 'a'), (2, NULL), (3, 'c')")
        connection.execute("CREATE HOLD browser ON t")
    query, follow = (here(block, own_server).strip() for block in examples("http.md", "sh"))
    rows, error = map(json.loads, examples("http.md", "json"))
    assert by_row(json.loads(output(f"{query} --silent --show-error", tmp_path))) == rows
    wrong = re.sub(r"-d '.*'", """-d '{"query": "SELECT * FROM nope"}'""", query)
    assert json.loads(output(f"{wrong} --silent --show-error", tmp_path)) == error

    (python,) = examples("http.md", "python")
    names: dict[str, Any] = {}
    exec(here(python, own_server), names)
    assert sorted(names["table"].to_pylist(), key=lambda row: row["k"])[0] == {"k": 1, "v": "a"}

    (shown,) = examples("http.md", "text")
    with shell(f"exec {follow} --silent --show-error", tmp_path) as process:
        assert process.stdout is not None
        printed = ""
        while not re.search(r"event: rows\n.*\n\n(.*\n)*event: progress\ndata: .*\n", printed):
            printed += process.stdout.readline()
        process.kill()
    assert masked(printed) == masked(shown)

    node = shutil.which("node")
    if node is not None:
        served = urllib.request.urlopen(f"http://127.0.0.1:{own_server.http_port}/client.js", timeout=10).read()
        (tmp_path / "client.mjs").write_bytes(served)
        script, together = examples("http.md", "js")
        # The program stores the rows somewhere and does not end: here it prints the first ones.
        store = "async function store(rows) { console.log('stored', JSON.stringify([...rows].sort())); }\n"
        (tmp_path / "page.mjs").write_text(store + here(script, own_server))
        with shell(f"exec {node} page.mjs", tmp_path) as process:
            assert process.stdout is not None
            found = ""
            while "stored" not in found:
                line = process.stdout.readline()
                assert line, found
                found += line
            process.kill()
        assert 'stored [[1,"a"],[2,null],[3,"c"]]' in found
        assert "SELECT 2\n" in found
        _check_together(tmp_path, script, together, own_server)


def _check_together(directory: Path, first: str, script: str, server: ServerThread) -> None:
    """Runs the example with several queries, which uses the `tidewire` of the first one, while their table changes."""
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE TABLE sales (region text, cents bigint)")
        beginning = "\n".join(line for line in first.splitlines() if "Tidewire" in line)
        (directory / "together.mjs").write_text(f"{here(beginning, server)}\n{script}")
        with shell("exec node together.mjs", directory) as process:
            assert process.stdout is not None
            printed = [process.stdout.readline()]
            for cents in range(3):
                connection.execute("INSERT INTO sales VALUES ('north', %s), ('south', 1)", [cents])
                printed.append("")
                while not printed[-1].startswith("update"):
                    printed.append(process.stdout.readline())
                    assert printed[-1], printed
            process.kill()
    assert printed[0] == "snapshot true\n"
    assert {line.split()[1] for line in printed if line} == {"true"}


def by_row(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer with its rows in order."""
    for result in answer["results"]:
        result["rows"].sort()
    return answer


def masked(events: str) -> str:
    """The events without their times and fingerprints. The first progress, which precedes the rows, is omitted."""
    events = re.sub(r"\b1[789]\d{11}\b", "<time>", events)
    events = re.sub(r"\b[0-9a-f]{16}\b", "<fingerprint>", events)
    start, *others = events.strip().split("\n\n")
    return "\n\n".join([start, *others[next(i for i, each in enumerate(others) if "rows" in each) :]])


@needs_curl
@executes("operations.md", "sh", section="The HTTP port")
def test_metrics_are_served(passing_server: ServerThread, tmp_path: Path) -> None:
    (command,) = examples("operations.md", "sh", section="The HTTP port")
    assert "\ntidewire_sessions " in output(here(command.strip(), passing_server) + " --silent --show-error", tmp_path)


@executes("operations.md", "sh", section="Backups")
def test_a_backup_is_restored(tmp_path: Path) -> None:
    """The copy of a running server's directory has its rows, holds and times."""
    (command,) = examples("operations.md", "sh", section="Backups")
    data, copy = tmp_path / "data", tmp_path / "backup"
    server = ServerThread(data, PassingEngine(), interval_s=0.02)
    try:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute("CREATE TABLE t (a int); CREATE HOLD h ON t; INSERT INTO t VALUES (1)")
            (time,) = connection.execute("SELECT mz_now()").fetchone() or (None,)
            connection.execute("INSERT INTO t VALUES (2)")
        command = command.replace("/backup/tidewire", str(copy)).replace("/var/lib/tidewire", str(data))
        assert "checked 2 batches" in output(command, tmp_path)
    finally:
        server.stop()
    restored = ServerThread(copy, PassingEngine(), interval_s=0.02)
    try:
        with psycopg.connect(restored.dsn(), autocommit=True) as connection:
            assert connection.execute("SELECT status FROM mz_holds").fetchall() == [("ok",)]
            changes = f"SUBSCRIBE t WITH (SNAPSHOT false) AS OF {time} UP TO {time + 60_000}"
            with closing(connection.cursor().stream(changes.encode())) as stream:
                assert [next(stream)[1:]] == [(1, 2)]
    finally:
        restored.stop()


# -- security and operations -------------------------------------------------------------------------------------------


@pytest.mark.slow
@needs_curl
@executes("security.md", "sh", "sql")
@executes("operations.md", "sql", section="Metrics")
@executes("operations.md", "yaml")
def test_a_server_for_a_network(tmp_path: Path) -> None:
    (commands,) = examples("security.md", "sh")
    serve, connect = re.split(r"\n(?=psql)", commands)
    authority = Authority(tmp_path)
    authority.server("server")
    (tmp_path / "password").write_text("s3cret\n")
    serve = serve.replace("0.0.0.0:6875", "127.0.0.1:0").replace("0.0.0.0:6876", "127.0.0.1:0")
    with shell(f"exec {serve} --log-format json", tmp_path) as process:
        try:
            event = listening(process)
            (options,) = re.findall(r'psql "(.*)"', connect)  # the psql of the tests has no TLS
            options = options.replace("db.example.org", "127.0.0.1").replace("6875", str(event["port"]))
            (create,) = examples("operations.md", "sql", "Metrics")
            with psycopg.connect(
                options, password="s3cret", sslrootcert=str(authority.file), autocommit=True
            ) as connection:
                for block in (*examples("security.md", "sql"), create):
                    for statement in statements(block):
                        connection.execute(statement.encode())
                logins = "SELECT rolname, rolvaliduntil IS NULL, rolconnlimit FROM pg_roles"
                assert set(connection.execute(logins)) > {("alice", False, 10), ("prometheus", True, -1)}
            (scrape,) = yaml.safe_load(examples("operations.md", "yaml")[0])["scrape_configs"]
            (target,) = scrape["static_configs"][0]["targets"]
            login = scrape["basic_auth"]
            assert target == "db.example.org:6876"
            assert event["http"].startswith(f"{scrape['scheme']}://")
            user = shlex.quote(f"{login['username']}:{login['password']}")
            trust = f"--cacert {scrape['tls_config']['ca_file']}"
            metrics = output(f"curl --silent --show-error {trust} --user {user} {event['http']}/metrics", tmp_path)
            assert "\ntidewire_sessions " in metrics
        finally:
            os.killpg(process.pid, signal.SIGTERM)


@executes("security.md", "hba")
@executes("security.md", "text")
def test_rules_and_refusals(tmp_path: Path) -> None:
    (rules,) = examples("security.md", "hba")
    assert len(list(parse_rules(rules, "hba.conf"))) == 5
    unreachable, faulty = (text.strip().removeprefix("tidewire: ") for text in examples("security.md", "text"))
    with pytest.raises(ConfigError) as refused:
        load({"listen": "0.0.0.0:6875", "data_dir": tmp_path}, None)
    assert str(refused.value) == unreachable
    lines = rules.splitlines()
    with pytest.raises(RulesError) as wrong:
        parse_rules("\n".join([lines[0], lines[1].replace("trust", "magic"), *lines[2:]]), "/etc/tidewire/hba.conf")
    assert str(wrong.value) == faulty


@executes("operations.md", "text")
def test_a_directory_that_others_can_read(tmp_path: Path) -> None:
    (message,) = examples("operations.md", "text")
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    (data / "file").touch()
    with shell(f"tidewire serve --listen 127.0.0.1:0 --http-listen= --data-dir {data}", tmp_path) as process:
        printed = process.communicate(timeout=60)[0]
        assert process.returncode
    assert printed == message.replace("/var/lib/tidewire", str(data))


@executes("operations.md", "sql", section="Sessions")
def test_sessions_are_ended(passing_server: ServerThread) -> None:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as one:
        with psycopg.connect(passing_server.dsn()) as other:
            listed, *end = statements(examples("operations.md", "sql", "Sessions")[0])
            assert (other.info.backend_pid, "materialize") in [row[:2] for row in one.execute(listed.encode())]
            for statement in end:
                found = one.execute(statement.replace("12", str(other.info.backend_pid)).encode()).fetchall()
                assert found == [(True,)]
            with pytest.raises(psycopg.OperationalError):
                other.execute("SELECT 1")


# -- sql.md and sinks.md -----------------------------------------------------------------------------------------------


@executes("sql.md", "sql", section="Time")
@executes("sql.md", "sql", section="System tables")
def test_statements_about_system_tables(dsn: str) -> None:
    (frontiers,) = examples("sql.md", "sql", "Time")
    (subscriptions,) = examples("sql.md", "sql", "System tables")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE sql_page (a int)")
        (query,) = statements(frontiers)
        names = [row[0] for row in connection.execute(query.encode())]
        assert "sql_page" in names
        with psycopg.connect(dsn, autocommit=True) as canceller:
            for statement in statements(subscriptions):
                with pytest.raises(psycopg.errors.QueryCanceled), connection.cursor().copy(statement.encode()) as copy:
                    for line in copy:
                        if b"sql_page" in bytes(line):
                            canceller.execute(f"SELECT pg_cancel_backend({connection.info.backend_pid})".encode())


@executes("sql.md", "sql", section="Functions, operators, and differences from PostgreSQL")
def test_equal_rows_are_deleted_but_one(dsn: str) -> None:
    (script,) = examples("sql.md", "sql", "Functions, operators, and differences from PostgreSQL")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (k int, v text)")
        connection.execute("INSERT INTO t VALUES (1, 'a'), (1, 'a'), (2, 'b'), (1, 'a')")
        for statement in statements(script):
            connection.execute(statement.encode())
        assert connection.execute("SELECT k, v FROM t ORDER BY k").fetchall() == [(1, "a"), (2, "b")]


@executes("sql.md", "sql", section="EXPLAIN")
@executes("sql.md", "mermaid")
def test_a_plan_as_a_graph(dsn: str) -> None:
    explain, (graph,) = examples("sql.md", "sql", "EXPLAIN")[0], examples("sql.md", "mermaid")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE flights (id int, carrier text, dep_delay int)")
        connection.execute("CREATE TABLE carriers (code text, name text)")
        found = connection.execute(explain.encode()).fetchall()
    assert normalised("\n".join(row[0] for row in found)).strip() == normalised(graph).strip()


@pytest.mark.slow
@executes("sinks.md", "sql")
@executes("sinks.md", "json")
def test_sinks(tmp_path: Path) -> None:
    postgres_block, kafka_block, file_block, changes_block = examples("sinks.md", "sql")
    postgres = PostgresServer()
    server = ServerThread(tmp_path / "data", PassingEngine(), interval_s=0.02)
    try:
        with MockCluster() as kafka, RegistryThread() as registry:
            kafka.create_topic("balances", 3)  # the mock brokers create only topics of four partitions
            with psycopg.connect(postgres.dsn, autocommit=True) as target:
                target.execute("CREATE DATABASE app")
                target.execute("CREATE ROLE writer LOGIN SUPERUSER PASSWORD 'secret'")
            app = f"{postgres.dsn.removesuffix('/postgres')}/app"
            with psycopg.connect(app, autocommit=True) as target:
                target.execute("CREATE SCHEMA reports")
                with psycopg.connect(server.dsn(), autocommit=True) as connection:
                    address = f"HOST '127.0.0.1', PORT {postgres.port}"
                    connection.execute("CREATE SECRET writer_password AS 'secret'")
                    connection.execute("CREATE TABLE orders (id int)")
                    urls = {"localhost:9092": kafka.address, "http://localhost:8081": registry.url}
                    for statement in statements(re.sub("|".join(urls), lambda url: urls[url[0]], kafka_block)):
                        connection.execute(statement.encode())
                    connection.execute("DROP SINK balances_out")
                    for statement in statements(postgres_block.replace("HOST 'db.example'", address)):
                        connection.execute(statement.encode())
                    while len(written(target)) < 2:
                        time.sleep(0.02)
                    (statement,) = statements(file_block.replace("/data/", f"{tmp_path}/"))
                    connection.execute(statement.encode())
                    while not (tmp_path / "orders.json").exists():
                        time.sleep(0.02)
                    connection.execute("CREATE TABLE prices (item text PRIMARY KEY, price numeric(10, 2))")
                    connection.execute("INSERT INTO prices VALUES ('milk', 1.20), ('tea', 2.50)")
                    (statement,) = statements(changes_block.replace("/data/", f"{tmp_path}/"))
                    connection.execute(statement.encode())
                    snapshot, changes = _between_frontiers(examples("sinks.md", "json")[0])
                    prices = tmp_path / "prices.json"
                    while not prices.exists() or _between_frontiers(prices.read_text())[:1] != [snapshot]:
                        time.sleep(0.02)
                    connection.execute("BEGIN; DELETE FROM prices; INSERT INTO prices VALUES ('tea', 2.70); COMMIT")
                    while _between_frontiers(prices.read_text()) != [snapshot, changes]:
                        time.sleep(0.02)
    finally:
        server.stop()
        postgres.stop()


def _between_frontiers(lines: str) -> list[list[str]]:
    """The lines with changes before each frontier, sorted, without those between which nothing changed."""
    parts: list[list[str]] = [[]]
    for line in lines.splitlines():
        if line.startswith('{"frontier"'):
            parts.append([])
        else:
            parts[-1].append(line)
    return [sorted(part) for part in parts if part]


def written(connection: psycopg.Connection) -> list[tuple[Any, ...]]:
    """The rows of the sink's table; none before it exists."""
    ((exists,),) = connection.execute("SELECT to_regclass('reports.balances') IS NOT NULL").fetchall()
    return connection.execute("SELECT * FROM reports.balances").fetchall() if exists else []
