"""Short statements with large plans: views and items of WITH that double at each level, and joins of many relations."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors

from protocol.pgwire.errors import PgError, SqlState
from server.session_state.prepared import PREPARED_CHARS_MAX
from server.sql.bind.binder import MAINTAINED_RELATIONS_MAX, RELATIONS_MAX
from server.sql.expressions import Aggregate, Call, WindowCall
from server.sql.grammar.lexer import TARGETS_MAX
from server.sql.grammar.parse import parse, parse_query
from server.sql.grammar.rules.with_clauses import PARTS_MAX
from server.sql.plan import PlanContext, plan_query
from tests.attacks.clients import traced, watched
from tests.fix_server import ServerProcess, server_without_spark
from tests.polling import until
from tests.sql import ours

pytestmark = pytest.mark.attacks

LEVELS = 30


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server without Spark. Each view names the one before it twice."""
    server = server_without_spark(tmp_path_factory.mktemp("server"))
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (a int, b int, c text); CREATE VIEW v0 AS SELECT a FROM t")
        level = 0
        with watched(server), pytest.raises(errors.ProgramLimitExceeded, match="too many range table entries"):
            for level in range(1, LEVELS):
                connection.execute(f"CREATE VIEW v{level} AS SELECT x.a FROM v{level - 1} x, v{level - 1} y".encode())
        connection.execute(f"ALTER VIEW v{level - 1} RENAME TO largest".encode())
    yield server
    assert server.stop() == 0


def doubling(first: str) -> str:
    levels = ", ".join(f"w{n} AS (SELECT x.a FROM w{n - 1} x, w{n - 1} y)" for n in range(1, LEVELS))
    return f"WITH w0 AS ({first}), {levels} SELECT * FROM w{LEVELS - 1}"


@pytest.mark.parametrize(
    "query",
    [doubling("SELECT a FROM t"), doubling("SELECT 1 AS a"), "SELECT x.a FROM largest x, largest y"],
    ids=["tables", "constants", "views"],
)
@pytest.mark.parametrize("command", ["EXPLAIN {}", "PREPARE p AS {}", "CREATE VIEW w AS {}", "SUBSCRIBE ({})"])
def test_names_of_relations_in_views_and_with_are_limited(
    server: ServerProcess, connection: psycopg.Connection[Any], command: str, query: str
) -> None:
    with watched(server), pytest.raises(errors.ProgramLimitExceeded, match="too many range table") as refusal:
        connection.execute(command.format(query).encode())
    limit = MAINTAINED_RELATIONS_MAX if "SUBSCRIBE" in command else RELATIONS_MAX
    assert f"can name at most {limit} relations" in str(refusal.value.diag.message_detail)


@pytest.mark.parametrize(
    "statement",
    [
        "EXPLAIN SELECT * FROM largest",
        "PREPARE p AS SELECT * FROM largest",
        "EXPLAIN SELECT 1 FROM t t0 " + " ".join(f"NATURAL FULL JOIN t t{n}" for n in range(1, 300)),
        "EXPLAIN SELECT 1 FROM " + ", ".join(f"t t{n}" for n in range(900)),
        f"EXPLAIN SELECT count(*) FROM t GROUP BY GROUPING SETS ({', '.join(['CUBE(a, b, c)'] * 300)})",
        "ALTER TABLE t ALTER b SET NOT NULL",
        "ALTER TABLE t RENAME c TO d",
    ],
)
def test_planning_delays_no_other_session(
    server: ServerProcess, connection: psycopg.Connection[Any], statement: str
) -> None:
    connection.execute("SET statement_timeout = '2s'")
    refusals = (errors.QueryCanceled, errors.StatementTooComplex, errors.TooManyColumns)
    with watched(server), suppress(*refusals):
        connection.execute(statement.encode())


def test_explain_timestamp_delays_no_other_session(server: ServerProcess, connection: psycopg.Connection[Any]) -> None:
    views = [f"CREATE VIEW pair{n + 1} AS SELECT x.a FROM pair{n} x JOIN pair{n} y ON x.a = y.a" for n in range(9)]
    connection.execute("; ".join(["CREATE VIEW pair0 AS SELECT a FROM t", *views]).encode())
    with watched(server, 0.25):
        connection.execute("EXPLAIN TIMESTAMP FOR SELECT * FROM pair9")


def test_the_plan_of_a_with_is_not_larger_for_each_pair_of_its_items() -> None:
    """Each item can name those before it. With 20,000 items, a copy of their names for each took 5 GB."""
    items = ", ".join(f"w{n} AS (SELECT 1 AS a)" for n in range(2000))
    query = parse_query(f"WITH {items} SELECT 1")
    context = PlanContext(ours.state(), "materialize", ("public",), "tide")
    assert traced(lambda: plan_query(query, context)) < 20 << 20


def test_joins_of_wide_relations_are_limited() -> None:
    """Each join has the columns of both sides. 900 joins of 190 columns took gigabytes, and minutes."""
    context = PlanContext(ours.state(), "materialize", ("public",), "tide")
    wide = f"WITH wide AS (SELECT {', '.join(f'1 AS c{n}' for n in range(1000))})"

    def plan(join: str, relations: int) -> None:
        items = f" {join} ".join(f"wide AS t{n}" for n in range(relations))
        plan_query(parse_query(f"{wide} SELECT 1 FROM {items}"), context)

    plan("CROSS JOIN", 10)
    for join in (",", "CROSS JOIN"):
        with pytest.raises(PgError, match="can have at most 2000000 columns together") as refusal:
            plan(join, 70)
        assert refusal.value.sqlstate is SqlState.PROGRAM_LIMIT_EXCEEDED


CLAUSES = ("SELECT 1 FROM t ORDER BY {}", "SELECT 1 FROM t GROUP BY {}", "SELECT DISTINCT ON ({}) 1 FROM t")
TERMS = [f"a + {n}" for n in range(TARGETS_MAX)]


@pytest.mark.parametrize("clause", CLAUSES, ids=["order", "group", "distinct"])
def test_keys_of_queries_are_limited(clause: str) -> None:
    context = PlanContext(ours.state(), "materialize", ("public",), "tide")
    with pytest.raises(PgError, match="target lists can have at most 1664 entries") as refusal:
        plan_query(parse_query(clause.format(", ".join([*TERMS, "a + 9999"]))), context)
    assert refusal.value.sqlstate is SqlState.TOO_MANY_COLUMNS


@pytest.mark.parametrize(
    "query",
    [
        *(clause.format(", ".join(TERMS * 4)) for clause in CLAUSES),
        f"SELECT {', '.join(reversed(TERMS))} FROM t GROUP BY {', '.join(TERMS)}",
        f"SELECT DISTINCT {', '.join(reversed(TERMS))} FROM t ORDER BY {', '.join(TERMS)}",
        f"SELECT concat({', '.join(f'sum({term})' for term in TERMS)}) FROM t",
        f"SELECT concat({', '.join(f'sum({term}) OVER ()' for term in TERMS)}) FROM t",
    ],
    ids=["order", "group", "distinct", "items of groups", "distinct items", "aggregates", "windows"],
)
def test_no_key_of_a_query_is_compared_with_all_others(monkeypatch: pytest.MonkeyPatch, query: str) -> None:
    """With comparisons of each pair, 20,000 keys occupied a thread of the planner for minutes."""
    compared = 0

    def counted(equal: Callable[[Any, object], bool]) -> Callable[[Any, object], bool]:
        def compare(one: Any, other: object) -> bool:
            nonlocal compared
            compared += 1
            return equal(one, other)

        return compare

    tree = parse_query(query)
    for kind in (Call, Aggregate, WindowCall):
        monkeypatch.setattr(kind, "__eq__", counted(kind.__eq__))
    plan_query(tree, PlanContext(ours.state(), "materialize", ("public",), "tide"))
    assert compared < 20 * len(TERMS)


def test_items_of_with_that_write_take_memory_for_what_they_name() -> None:
    """Each has a WITH of the queries that it names. 3,000 items had all queries before them, which took gigabytes."""
    queries = [f"q{n} AS (SELECT {n}, '{'x' * 10_000}' AS a)" for n in range(500)]
    writes = [f"w{n} AS (INSERT INTO t SELECT a FROM q{n} RETURNING a)" for n in range(PARTS_MAX)]
    assert traced(lambda: parse(f"WITH {', '.join(queries + writes)} SELECT 1")) < 100 << 20


def test_items_of_with_that_write_are_limited() -> None:
    write = "w{} AS (INSERT INTO t SELECT a FROM {})"
    writes = ", ".join(write.format(n, "t") for n in range(PARTS_MAX + 1))
    with pytest.raises(PgError, match="too many data-modifying WITH items") as refusal:
        parse(f"WITH {writes} SELECT 1")
    assert refusal.value.sqlstate is SqlState.PROGRAM_LIMIT_EXCEEDED
    sum = " + ".join("1" * 1000)
    writes = ", ".join(write.format(n, "q") for n in range(150))
    with pytest.raises(PgError, match="statement is too long") as refusal:
        parse(f"WITH q AS (SELECT {sum} AS a), {writes} SELECT 1")
    assert refusal.value.sqlstate is SqlState.PROGRAM_LIMIT_EXCEEDED


def test_planning_again_delays_no_other_session(server: ServerProcess, connection: psycopg.Connection[Any]) -> None:
    """After a change of the catalog, Bind plans a prepared statement again."""
    query = "EXPLAIN SELECT * FROM largest WHERE a = %s"
    with watched(server):
        expected = connection.execute(query, [1], prepare=True).fetchall()
        for change in ("CREATE TABLE another (a int)", "DROP TABLE another"):
            connection.execute(change.encode())
            assert connection.execute(query, [1], prepare=True).fetchall() == expected


@pytest.mark.long
def test_plans_of_dataflows_delay_no_other_session(tmp_path: Path) -> None:
    """The dataflow plans its query again after CREATE MATERIALIZED VIEW, and at each start of the server."""
    columns = ", ".join(f"(SELECT max(b) FROM t WHERE t.a = s.b + {n}) AS c{n}" for n in range(60))
    server = server_without_spark(tmp_path)
    try:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("CREATE TABLE t (a int, b int)")
            with watched(server):
                connection.execute(f"CREATE MATERIALIZED VIEW large AS SELECT {columns} FROM t s".encode())
                await_plans(connection)
    finally:
        assert server.stop() == 0
    server = server_without_spark(tmp_path)
    try:
        with watched(server), psycopg.connect(server.dsn, autocommit=True) as connection:
            await_plans(connection)
    finally:
        assert server.stop() == 0


def test_the_plan_of_a_slow_view_does_not_delay_those_of_others(tmp_path: Path) -> None:
    """They wait for the same thread at a start of the server. The slow view is older, and therefore begins first."""

    def columns(count: int) -> str:
        return ", ".join(f"(SELECT max(b) FROM t WHERE t.a = s.b + {n}) AS c{n}" for n in range(count))

    server = server_without_spark(tmp_path)
    try:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("CREATE TABLE t (a int, b int)")
            for name, count in (("slow", 40), ("fast", 4)):
                create = f"CREATE MATERIALIZED VIEW {name} AS SELECT {columns(count)} FROM t s"
                connection.execute(create.encode())
    finally:
        assert server.stop() == 0
    server = server_without_spark(tmp_path)
    try:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            found: dict[str, str] = {}
            until(lambda: found.update(rules(connection)) or found["fast"] != "unplanned")
            assert found["slow"] == "unplanned"
            await_plans(connection)
    finally:
        assert server.stop() == 0


def await_plans(connection: psycopg.Connection[Any]) -> None:
    until(lambda: "unplanned" not in rules(connection).values())


def rules(connection: psycopg.Connection[Any]) -> dict[str, str]:
    """How each materialized view is maintained, by its name."""
    names = dict(connection.execute("SELECT id, name FROM mz_materialized_views").fetchall())
    found = connection.execute("SELECT object_id, rule FROM mz_internal.mz_dataflows").fetchall()
    return {names[id]: rule for id, rule in found if id in names}


def test_views_are_created_concurrently_with_a_slow_one(
    server: ServerProcess, connection: psycopg.Connection[Any]
) -> None:
    """While a thread plans a view, others change the catalog. Nothing of either is lost."""
    done = threading.Event()

    def create() -> None:
        try:
            with psycopg.connect(server.dsn, autocommit=True) as other:
                for number in range(5):
                    other.execute(f"CREATE VIEW slow{number} AS SELECT * FROM largest".encode())
        finally:
            done.set()

    thread = threading.Thread(target=create)
    thread.start()
    created = 0
    while not done.wait(0.02):
        connection.execute(f"CREATE VIEW fast{created} AS SELECT a FROM t".encode())
        created += 1
    thread.join()
    for prefix, count in (("slow", 5), ("fast", created)):
        names = connection.execute("SELECT relname FROM pg_class WHERE relname LIKE %s", [f"{prefix}%"]).fetchall()
        assert {name for (name,) in names} == {f"{prefix}{number}" for number in range(count)}


def test_prepared_statements_of_short_texts_are_limited_by_their_plans(
    server: ServerProcess, connection: psycopg.Connection[Any]
) -> None:
    text, prepared = b"SELECT a FROM largest", 0
    while (result := connection.pgconn.prepare(b"p%d" % prepared, text)).status == psycopg.pq.ExecStatus.COMMAND_OK:
        prepared += 1
        assert prepared * 1_000 < PREPARED_CHARS_MAX
    assert result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) == b"54000"
    connection.execute("DEALLOCATE ALL")
    assert connection.pgconn.prepare(b"p0", text).status == psycopg.pq.ExecStatus.COMMAND_OK
