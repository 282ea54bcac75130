"""An expensive statement hardly delays other sessions, ends when it is cancelled, and has a bound on its memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from psycopg import errors, sql

from tests.attacks.clients import resident_bytes, watched
from tests.fix_server import ServerProcess

pytestmark = [pytest.mark.attacks, pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")]

TIMEOUT = "3s"
ENDS_WITHIN_S = 20.0  # TIMEOUT, and the start of a worker process on a busy machine
EXPECTED = (
    *(errors.QueryCanceled, errors.OutOfMemory, errors.ProgramLimitExceeded, errors.StatementTooComplex),
    *(errors.DataError, errors.FeatureNotSupported),
)
GROWTH_MAX = 300 * 1024 * 1024


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path_factory.mktemp("server"))
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE texts (x text)")
        connection.execute("INSERT INTO texts SELECT repeat('a', 1000 * i) || '!' FROM generate_series(1, 20) AS g (i)")
    yield server
    server.stop()


def attack(server: ServerProcess, statement: str, *parameters: object) -> None:
    """Executes a statement that may take TIMEOUT. It may fail, as long as the connection is kept."""
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("SET statement_timeout = {}").format(TIMEOUT))
        begun = time.monotonic()
        with suppress(*EXPECTED):
            connection.execute(statement.encode(), parameters or None)
        assert time.monotonic() - begun < ENDS_WITHIN_S
        assert connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT repeat('a', 40) || 'b' ~ '^(a+)+$'",
        "SELECT repeat('a', 40) || 'b' SIMILAR TO '(a+)+'",
        "SELECT repeat('a', 5000) || 'b' ~ '(?=a)(a|aa)+$'",
        "SELECT regexp_replace(repeat('a', 50000), '(a*)*b', 'x')",
        "SELECT regexp_replace(repeat('a', 50000), '(a*)(a*)(a*)$', 'x')",
        "SELECT repeat('a', 100000) LIKE repeat('%a', 50) || 'b'",
        "SELECT ('{' || repeat('1,', 5000000) || '1}')::int[]",
        "SELECT string_to_array(repeat('a,', 20000000), ',')",
        "SELECT to_char(1, repeat('9', 10000000))",
        "SELECT md5(repeat('x', 300000000))",
        "SELECT array_fill(1, array[100000000])",
        "SELECT replace(repeat('a', 10000000), 'a', repeat('b', 200))",
        "SELECT " + ", ".join(["''::char(10000000)"] * 300),
        "SELECT factorial(30000), 9.999999999::numeric ^ 12345678",
        "SELECT repeat('x', 100000)::numeric",
        "SELECT ('[' || repeat('[', 1000000))::jsonb",
        "SELECT repeat('1:', 1000000)::interval",
        "WITH a AS (SELECT repeat('x', 1000) AS x)"
        + "".join(f", a{i} AS (SELECT x || x AS x FROM a{i - 1 if i else ''})" for i in range(30))
        + " SELECT length(x) FROM a29",
    ],
)
def test_an_expensive_constant_delays_no_other_session(server: ServerProcess, statement: str) -> None:
    with watched(server):
        attack(server, statement)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT count(*) FROM pg_class a, pg_class b, pg_class c, pg_class d, pg_class e",
        "SELECT length(repeat('x', 2000000000)) FROM pg_class",
        "SELECT relname || repeat(relname, 100000000) FROM pg_class",
        "SELECT string_agg(repeat('x', 1000000), '') FROM pg_class a, pg_class b",
        "SELECT relname FROM pg_class LIMIT length(repeat('x', 2000000000))",
        "SELECT * FROM pg_class WHERE relname ~ repeat('(a*)*', 1000)",
    ],
)
def test_an_expensive_catalog_query_delays_no_other_session(server: ServerProcess, statement: str) -> None:
    with watched(server):
        attack(server, statement)
    with psycopg.connect(server.dsn, autocommit=True) as connection:  # as in queries of psql's \d
        assert connection.execute("SELECT relname FROM pg_class WHERE relname = 'texts'").fetchone() == ("texts",)


def test_expensive_catalog_queries_do_not_occupy_all_workers(server: ServerProcess) -> None:
    """Other sessions' queries are answered while there are more expensive ones than workers."""
    expensive = "SELECT count(*) FROM pg_attribute a, pg_attribute b, pg_attribute c, pg_attribute d"
    connections = [psycopg.connect(server.dsn, autocommit=True) for _ in range(4)]
    with ThreadPoolExecutor(len(connections)) as threads:
        attacks = [threads.submit(connection.execute, expensive) for connection in connections]
        try:
            with psycopg.connect(server.dsn, autocommit=True) as other:
                for name in ("pg_class", "pg_namespace", "pg_type"):
                    count = other.execute(f"SELECT count(*) FROM pg_class WHERE relname = '{name}'".encode()).fetchone()
                    assert count == (1,)
            assert not any(attack.done() for attack in attacks)
        finally:
            for connection in connections:
                connection.cancel_safe()
            wait(attacks)
            for connection in connections:
                connection.close()


@pytest.mark.parametrize(
    ("statement", "parameter"),
    [
        ("SELECT array_length(%s::int[], 1)", "{" + "1," * 1_000_000 + "1}"),
        ("SELECT 1 WHERE 5 = ANY (%s::int[])", "{" + "1," * 1_000_000 + "1}"),
        ("SELECT x FROM texts WHERE x = ANY (%s::text[])", "{" + '"a",' * 1_000_000 + "b}"),
        ("SELECT %s::int", "9" * 10_000_000),
        ("SELECT %s::numeric", "0x" + "f" * 1_000_000),
        ("SELECT %s::jsonb", "[" * 1_000_000),
        ("SELECT upper(%s)", "x" * 30_000_000),
    ],
)
def test_a_long_parameter_delays_no_other_session(server: ServerProcess, statement: str, parameter: str) -> None:
    with watched(server):
        attack(server, statement, parameter)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT count(*) FROM texts WHERE x ~ '^(a+)+$'",
        "SELECT count(*) FROM texts WHERE x ~ 'a.*a.*a.*a.*a.*b'",
        "SELECT count(*) FROM texts WHERE x LIKE '%a%a%a%a%a%a%b'",
        "SELECT count(*) FROM texts WHERE x SIMILAR TO '(a+)+'",
    ],
)
def test_a_pattern_over_rows_takes_linear_time(server: ServerProcess, statement: str) -> None:
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("SET statement_timeout = '60s'")
        assert connection.execute(statement.encode()).fetchone() == (0,)


def test_a_pattern_over_rows_that_backtracks_can_be_cancelled(server: ServerProcess) -> None:
    with watched(server):
        attack(server, "SELECT count(*) FROM texts WHERE x ~ '(?=a)(a|aa)+$'")
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        assert connection.execute("SELECT count(*) FROM texts").fetchone() == (20,)


@pytest.mark.long
def test_long_conditions_delay_no_other_session(server: ServerProcess) -> None:
    """They are bound and compiled for CREATE TABLE, for each INSERT, and for ALTER TABLE."""
    condition = " AND ".join(f"(a + {n} > 0 OR a * {n} < 5 OR coalesce(a, {n}) <> {n})" for n in range(1, 41))
    checks = ", ".join([f"CHECK ({condition})"] * 100)
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        for statement in (
            f"CREATE TABLE checked (a smallint, {checks})",
            "INSERT INTO checked VALUES (1), (2)",
            f"ALTER TABLE checked ADD CHECK ({' AND '.join([condition] * 20)})",
            "ALTER TABLE checked ALTER a TYPE int",
        ):
            with watched(server):
                connection.execute(statement.encode())
        assert connection.execute("SELECT count(*) FROM checked").fetchone() == (2,)


LONG = "+".join(["1"] * 40_000)
DEFINITIONS = {
    "domain": f"CREATE DOMAIN d AS int CHECK (VALUE IN ({LONG.replace('+', ',')}))",
    "generated": f"CREATE TABLE generated (a int, b int GENERATED ALWAYS AS (a+{LONG}) STORED)",
    "index": f"CREATE INDEX ON defined ((a+{LONG}))",
    "type": f"ALTER TABLE defined ALTER a TYPE int USING (a+{LONG})",
    "default": f"ALTER TABLE defined ALTER a SET DEFAULT {LONG}",
    "column": f"ALTER TABLE defined ADD b int DEFAULT {LONG}",
}


@pytest.mark.parametrize("statement", DEFINITIONS.values(), ids=DEFINITIONS)
def test_long_expressions_of_definitions_delay_no_other_session(own_server: ServerProcess, statement: str) -> None:
    with psycopg.connect(own_server.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS defined (a int)")
        with watched(own_server), suppress(errors.StatementTooComplex):
            connection.execute(statement.encode())


def test_long_conditions_of_indexes_are_refused(own_server: ServerProcess) -> None:
    """As in PostgreSQL. The event loop binds those of unique indexes again after each change of the catalog."""
    condition = " OR ".join(f"a = {n}" for n in range(3_000))
    with psycopg.connect(own_server.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE conditional (a int, b text)")
        with watched(own_server):
            for index in (f"UNIQUE INDEX ON conditional (a) WHERE {condition}", "INDEX ON conditional ((b || '%s'))"):
                with pytest.raises(errors.ProgramLimitExceeded, match=r"row is too big: size .* maximum size 8160"):
                    connection.execute(f"CREATE {index}".replace("%s", "x" * 8_200).encode())
            connection.execute(
                f"CREATE UNIQUE INDEX ON conditional (a) WHERE {condition[:6_000].rpartition(' OR ')[0]}".encode()
            )


KEYS_PAUSE_MAX_S = 0.25  # to bind the conditions of five indexes takes longer


def test_long_conditions_of_unique_indexes_are_bound_in_threads(own_server: ServerProcess) -> None:
    condition = " OR ".join(f"a = {n}" for n in range(480))
    with psycopg.connect(own_server.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE keyed (a int, b int)")
        with watched(own_server, KEYS_PAUSE_MAX_S):
            for n in range(5):
                connection.execute(f"CREATE UNIQUE INDEX ON keyed (b) WHERE a <> {n} AND ({condition})".encode())
            for n, change in enumerate(("ADD c int", "RENAME b TO d", "DROP c", "ALTER d SET DEFAULT 1")):
                connection.execute(f"ALTER TABLE keyed {change}".encode())
                connection.execute(f"INSERT INTO keyed (a) VALUES ({n})".encode())
        refused = pytest.raises(errors.ProgramLimitExceeded, match='unique indexes on table "keyed"')
        with watched(own_server, KEYS_PAUSE_MAX_S), refused:
            for n in range(5):
                connection.execute(f"CREATE UNIQUE INDEX ON keyed (d) WHERE a <> {n} AND ({condition})".encode())


@pytest.mark.long
def test_memory_of_the_server_does_not_grow_with_expensive_statements(server: ServerProcess) -> None:
    before = resident_bytes(server.process.pid)
    for _ in range(3):
        attack(server, "SELECT string_to_array(repeat('a,', 5000000), ',')")
        attack(server, "SELECT repeat('x', 60000000)")
        attack(server, "SELECT relname || repeat(relname, 1000000) FROM pg_class")
    assert resident_bytes(server.process.pid) - before < GROWTH_MAX


def test_a_server_that_evaluates_an_expensive_constant_stops_on_request(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path)
    connection = psycopg.connect(server.dsn, autocommit=True)
    connection.execute("SELECT repeat('a', 1)")  # a worker process is running
    connection.pgconn.send_query(b"SELECT to_char(1, repeat('9', 100000000))")
    assert server.stop() == 0  # within 30 s
    connection.close()
