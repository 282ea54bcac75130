"""The forms of EXPLAIN: their output and formats, and that ANALYZE executes the statement."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors

Connection = psycopg.Connection[Any]

QUERY = "SELECT c.name, count(*) AS n, max(o.v) AS most FROM o JOIN c ON o.c = c.id WHERE o.v > 0 GROUP BY c.name"

PARTS = ("waiting", "tables", "planning", "execution")


@pytest.fixture
def db(dsn: str) -> Iterator[Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE o (c int, v int)")
        connection.execute("CREATE TABLE c (id int, name text)")
        connection.execute("INSERT INTO c VALUES (1, 'a'), (2, 'b')")
        connection.execute("INSERT INTO o VALUES (1, 5), (1, 7), (2, 1)")
        yield connection


def lines(db: Connection, sql: str, parameters: tuple[Any, ...] | None = None) -> list[str]:
    """Returns the output, with `<n>` in place of times, sizes, ids and the database."""
    cursor = db.execute(sql.encode(), parameters)
    assert [column.name for column in cursor.description or ()] == ["QUERY PLAN"]
    found = [re.sub(r"\b\d+\.\d{3} ms\b", "<n> ms", line) for (line,) in cursor.fetchall()]
    return [re.sub(r"\d+ bytes|\b\d{13}\b|\b[uq]\d+\b|test_\d+\.public\.", "<n>", line) for line in found]


def document(db: Connection, sql: str) -> dict[str, Any]:
    ((found,),) = db.execute(sql.encode()).fetchall()
    (shown,) = found
    assert isinstance(shown, dict)
    return shown


def test_stages_of_a_plan(db: Connection) -> None:
    assert lines(db, f"EXPLAIN RAW PLAN FOR {QUERY}") == [
        "Project c.name AS name, count AS n, max AS most",
        "  Aggregate by name: count(*), max(v)",
        "    Filter (v > 0)",
        "      Join INNER on (c = id)",
        "        Scan <n>o",
        "        Scan <n>c",
    ]
    assert lines(db, f"EXPLAIN OPTIMIZED PLAN FOR {QUERY}") == [
        "Project c.name AS name, count AS n, max AS most",
        "  Aggregate by name: count(*), max(v)",
        "    Project v, name",
        "      Join INNER on (c = id)",
        "        Filter (v > 0)",
        "          Scan <n>o",
        "        Scan <n>c",
    ]
    physical = [
        "1 Aggregate (accumulable), by (name): n, most",
        "    arrangement of sums and counts by (name)",
        "    arrangement of 6 by (name), in the order of v",
        "  2 Join, by (c) = (id)",
        "      arrangement of 3 by (c)",
        "      arrangement of 5 by (id)",
        "    3 Map/Filter/Project: c, v",
        "      4 Changes of <n>o: c, v",
        "    5 Changes of <n>c: id, name",
        "  6 Distinct: name, v",
        "      arrangement of multiplicities by (name, v)",
        "    as 2",
    ]
    assert lines(db, f"EXPLAIN PHYSICAL PLAN FOR {QUERY}") == physical
    assert lines(db, f"EXPLAIN PHYSICAL PLAN FOR SUBSCRIBE ({QUERY}) WITH (PROGRESS)") == physical
    assert lines(db, f"EXPLAIN PHYSICAL PLAN FOR CREATE MATERIALIZED VIEW m AS {QUERY}") == physical
    db.execute(f"CREATE VIEW m AS {QUERY}".encode())
    assert lines(db, "EXPLAIN PHYSICAL PLAN FOR VIEW m") == physical
    assert lines(db, "EXPLAIN RAW PLAN FOR VIEW m") == lines(db, f"EXPLAIN RAW PLAN FOR {QUERY}")
    verbose = lines(db, f"EXPLAIN PHYSICAL PLAN WITH (VERBOSE) FOR {QUERY}")
    assert [line for line in verbose if "statement: " not in line] == physical
    assert sum("statement: SELECT " in line for line in verbose) == 3
    nodes = document(db, f"EXPLAIN PHYSICAL PLAN AS JSON FOR {QUERY}")["Kept up to date"]
    assert nodes["Node Type"] == "1 Aggregate (accumulable), by (name): n, most"
    assert nodes["Plans"][0]["Arrangements"][1] == {"Arrangement": "arrangement of 5 by (id)"}


def test_a_recomputed_aggregate_shows_its_kept_results(db: Connection) -> None:
    query = "SELECT array_agg(v) AS vs, c AS k FROM o GROUP BY c"
    assert lines(db, f"EXPLAIN PHYSICAL PLAN FOR {query}") == [
        "1 Recompute aggregate, by (c)",
        "    arrangement of 2 by (c)",
        "    arrangement of its results by (k)",
        "  2 Changes of <n>o: c, v",
    ]
    without_key = "SELECT array_agg(v) AS vs FROM o GROUP BY c"
    assert not any("results" in line for line in lines(db, f"EXPLAIN PHYSICAL PLAN FOR {without_key}"))


def test_a_plan_as_a_graph(db: Connection) -> None:
    """A node is drawn once, with an edge to each operator that reads it."""
    query = QUERY.replace("most", '"<m>"')
    drawn = "\n".join(lines(db, f"EXPLAIN PHYSICAL PLAN AS MERMAID FOR {query}"))
    assert drawn.startswith("flowchart BT\n")
    nodes = dict(re.findall(r'^    (n\d+)\["(.*)"\]$', drawn, re.MULTILINE))
    edges = re.findall(r"^    (n\d+) --> (n\d+)$", drawn, re.MULTILINE)
    assert drawn.count("\n") == len(nodes) + len(edges)
    labels = [label.split("<br/>") for label in nodes.values()]
    plan = lines(db, f"EXPLAIN PHYSICAL PLAN FOR {query}")
    numbered = {line.strip() for line in plan if line.strip()[0].isdigit()}
    assert {first.replace("#lt;", "<").replace("#gt;", ">") for first, *_ in labels} == numbered
    assert len(nodes) == len(numbered)
    assert any("arrangement of 3 by (c)" in notes for _, *notes in labels)
    assert {node for edge in edges for node in edge} == nodes.keys()
    (join,) = [node for node, label in nodes.items() if label.startswith("2 Join")]
    assert len([edge for edge in edges if edge[0] == join]) == 2

    drawn = "\n".join(lines(db, f"EXPLAIN (FORMAT DOT, VERBOSE) {query}"))
    assert re.findall(r"^    (n\d+) -> (n\d+)$", drawn, re.MULTILINE) == edges
    assert lines(db, 'EXPLAIN OPTIMIZED PLAN AS DOT FOR SELECT v AS "a\\""b" FROM o')[3] == (
        r'    n0 [label="Project v AS a\\\"b"]'
    )
    with pytest.raises(errors.FeatureNotSupported, match="no plan that could be shown as a graph"):
        db.execute("EXPLAIN SPARK PLAN AS MERMAID FOR SELECT 1")


def test_spark_plan(db: Connection) -> None:
    simple = lines(db, f"EXPLAIN SPARK PLAN FOR {QUERY}")
    assert simple[0] == "== Physical Plan =="
    assert any("HashAggregate" in line for line in simple)
    extended = lines(db, f"EXPLAIN SPARK PLAN WITH (EXTENDED) FOR {QUERY}")
    assert "== Optimized Logical Plan ==" in extended
    text = document(db, f"EXPLAIN SPARK PLAN AS JSON FOR {QUERY}")["Spark Plan"]
    assert text.startswith("== Physical Plan ==\n")
    assert lines(db, "EXPLAIN SPARK PLAN FOR SELECT 1") == ["Spark is not asked: runs in the server, a constant"]
    assert lines(db, "EXPLAIN SPARK PLAN FOR SELECT upper(name) FROM c WHERE id = %s", (1,))[0] == simple[0]


def test_json_has_the_structure_that_tools_read(db: Connection) -> None:
    shown = document(db, f"EXPLAIN (FORMAT json, VERBOSE, COSTS off, SUMMARY) {QUERY}")
    assert list(shown) == ["Reads", "Gives", "Plan", "Runs", "Spark SQL", "Kept up to date", "Planning Time"]
    assert shown["Plan"]["Node Type"].startswith("Project")
    assert shown["Plan"]["Plans"][0]["Node Type"] == "Aggregate by name: count(*), max(v)"
    assert shown["Planning Time"] > 0
    assert shown["Kept up to date"]["Statement"].startswith("SELECT")


def test_analyze_executes_a_query_and_shows_its_steps(db: Connection) -> None:
    assert lines(db, f"EXPLAIN ANALYZE {QUERY}")[-7:] == [
        "Steps:",
        "  Read <n>o: 3 rows, <n> ms",
        "  Read <n>c: 2 rows, <n> ms",
        f"  Run on Spark: 2 rows, <n> ms: {', '.join(f'{part} <n> ms' for part in PARTS)}",
        "  Encode as text: 2 rows, <n>, <n> ms",
        "Planning Time: <n> ms",
        "Execution Time: <n> ms",
    ]
    assert lines(db, "EXPLAIN (ANALYZE, TIMING off, SUMMARY off, BUFFERS) SELECT * FROM c WHERE id = 1")[-4:] == [
        "Steps:",
        "  Read <n>c: 1 row",
        "  Return unchanged rows: 1 row",
        "  Encode as text: 1 row, <n>",
    ]
    shown = document(db, f"EXPLAIN (ANALYZE, FORMAT json) {QUERY}")
    assert list(shown) == ["Plan", "Steps", "Planning Time", "Execution Time"]
    assert shown["Plan"]["Actual Rows"] == 2
    spark = shown["Steps"][2]
    assert spark["Node Type"] == "Run on Spark"
    assert spark["Actual Rows"] == 2
    parts = [spark[f"{part.title()} Time"] for part in PARTS]
    assert 0 < sum(parts) <= spark["Actual Total Time"] + 0.01 <= shown["Execution Time"] + 0.02
    assert json.dumps(shown)


def test_analyze_executes_writes(db: Connection) -> None:
    steps = lines(db, "EXPLAIN (ANALYZE, TIMING off, SUMMARY off) INSERT INTO c VALUES (3, 'c') RETURNING id")
    assert steps[-4:] == [
        "Steps:",
        "  Evaluate in the server: 1 row",
        "  Write <n>c: 1 row",
        "  Encode as text: 1 row, <n>",
    ]
    steps = lines(db, "EXPLAIN (ANALYZE, TIMING off, SUMMARY off) UPDATE c SET name = name || name WHERE id >= 2")
    assert steps[-3:] == ["  Read <n>c: 3 rows", "  Run on Spark: 2 rows", "  Write <n>c: 2 rows"]
    assert sorted(db.execute("SELECT * FROM c").fetchall()) == [(1, "a"), (2, "bb"), (3, "cc")]
    lines(db, "EXPLAIN DELETE FROM c")
    with db.transaction(force_rollback=True):
        lines(db, "EXPLAIN ANALYZE DELETE FROM c")
    assert len(db.execute("SELECT * FROM c").fetchall()) == 3
    with pytest.raises(errors.ReadOnlySqlTransaction), db.transaction():
        db.execute("SET TRANSACTION READ ONLY")
        db.execute("EXPLAIN ANALYZE INSERT INTO c VALUES (4, 'd')")


def test_parameters_and_prepared_statements(db: Connection) -> None:
    assert "    Filter (id = 2)" in lines(db, "EXPLAIN SELECT name FROM c WHERE id = %s", (2,))
    assert "  Return unchanged rows: 1 row, <n> ms" in lines(
        db, "EXPLAIN ANALYZE SELECT name FROM c WHERE id = %s", (2,)
    )
    db.execute("PREPARE p AS SELECT name FROM c WHERE id = $1")
    assert "    Filter (id = 1)" in lines(db, "EXPLAIN EXECUTE p (1)")
    assert "  Encode as text: 0 rows, <n>, <n> ms" in lines(db, "EXPLAIN ANALYZE EXECUTE p (17)")
    db.execute("PREPARE w AS INSERT INTO c VALUES ($1, 'w')")
    lines(db, "EXPLAIN ANALYZE EXECUTE w (9)")
    assert db.execute("SELECT name FROM c WHERE id = 9").fetchall() == [("w",)]


def test_analyze_of_a_materialized_view_shows_statistics_of_its_operators(db: Connection) -> None:
    db.execute(f"CREATE MATERIALIZED VIEW m AS {QUERY}".encode())
    db.execute("SELECT * FROM m")
    db.execute("INSERT INTO o VALUES (1, 9), (2, -1)")
    assert sorted(db.execute("SELECT * FROM m").fetchall()) == [("a", 3, 9), ("b", 1, 1)]
    assert lines(db, "EXPLAIN (ANALYZE, TIMING off) MATERIALIZED VIEW m") == [
        "Dataflow: <n>, of <n>m",
        "Hydration: hydrated as of <n>: 5 of 5 rows read, 6 of 6 operators done",
        "Steps: 1",
        "Kept up to date:",
        "  1 Aggregate (accumulable), by (name): n, most",
        "      hydration: rows 6 in, 2 out, 1 Spark statement",
        "      last step: rows 2 in, 2 out, 1 Spark statement",
        "      arrangement of sums and counts by (name): 4 rows, <n>",
        "      arrangement of 6 by (name), in the order of v: 4 rows, <n>",
        "    2 Join, by (c) = (id)",
        "        hydration: rows 5 in, 3 out, 1 Spark statement",
        "        last step: rows 1 in, 1 out, 1 Spark statement",
        "        arrangement of 3 by (c): 4 rows, <n>",
        "        arrangement of 5 by (id): 2 rows, <n>",
        "      3 Map/Filter/Project: c, v",
        "          hydration: rows 3 in, 3 out, 1 Spark statement",
        "          last step: rows 2 in, 1 out, 1 Spark statement",
        "        4 Changes of <n>o: c, v",
        "            hydration: rows 0 in, 3 out",
        "            last step: rows 0 in, 2 out",
        "      5 Changes of <n>c: id, name",
        "          hydration: rows 0 in, 2 out",
        "          last step: rows 0 in, 0 out",
        "    6 Distinct: name, v",
        "        hydration: rows 3 in, 3 out",
        "        last step: rows 1 in, 1 out",
        "        arrangement of multiplicities by (name, v): 4 rows, <n>",
        "      as 2",
    ]
    db.execute("CREATE MATERIALIZED VIEW other AS SELECT o.v, c.name FROM o JOIN c ON o.c = c.id")
    db.execute("SELECT * FROM other")
    timed = lines(db, "EXPLAIN ANALYZE MATERIALIZED VIEW m")
    assert timed[2] == "Steps: 1, last <n> ms, mean <n> ms, most <n> ms"
    assert timed[5] == "      hydration: rows 6 in, 2 out, <n> ms, 1 Spark statement of <n> ms"
    assert "        arrangement of 5 by (id): 2 rows, <n>, shared with <n>other" in timed
    shown = document(db, "EXPLAIN (ANALYZE, FORMAT json) MATERIALIZED VIEW m")
    join = shown["Kept up to date"]["Plans"][0]
    assert join["Last Step"]["Rows In"] == 1
    assert join["All Steps"]["Time"] >= join["Last Step"]["Spark Time"] > 0
    assert join["Arrangements"][1]["Rows"] == 2
    assert [name.rpartition(".")[2] for name in join["Arrangements"][1]["Shared With"]] == ["other"]
    # For a query without a dataflow, the plan shows the arrangements that it would share.
    physical = lines(db, "EXPLAIN PHYSICAL PLAN FOR SELECT c.name FROM c JOIN o ON o.v = c.id")
    assert "    arrangement of 2 by (id): 2 rows, <n>, shared with <n>m, <n>other" in physical


def test_analyze_of_a_subscription(dsn: str, db: Connection) -> None:
    query = "(SELECT c, count(*) FROM o GROUP BY c)"
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="no dataflow of this query runs"):
        db.execute(f"EXPLAIN ANALYZE SUBSCRIBE {query}".encode())
    with psycopg.connect(dsn) as other:
        other.execute(f"DECLARE s CURSOR FOR SUBSCRIBE {query}".encode())
        other.execute("FETCH 2 s WITH (TIMEOUT '60s')")
        shown = lines(db, f"EXPLAIN (ANALYZE, TIMING off) SUBSCRIBE {query}")
        assert shown[0] == "Dataflow: <n>, of a subscribed query"
        assert shown[4:7] == [
            "  1 Aggregate (accumulable), by (c): count",
            "      hydration: rows 3 in, 2 out, 1 Spark statement",
            "      arrangement of sums and counts by (c): 2 rows, <n>",
        ]
        assert "    arrangement of sums and counts by (c): 2 rows, <n>" in lines(
            db, f"EXPLAIN PHYSICAL PLAN FOR SUBSCRIBE {query}"
        )
    with pytest.raises(errors.ObjectNotInPrerequisiteState):
        db.execute("EXPLAIN ANALYZE SUBSCRIBE o")


def test_missing_rules_and_errors_are_shown(db: Connection) -> None:
    output = lines(db, "EXPLAIN PHYSICAL PLAN FOR SELECT m.name FROM mz_catalog.mz_objects m JOIN c ON true")
    (line,) = output
    assert line.startswith("Kept up to date: recomputed when an input changes, because there is no rule for a relation")
    db.execute("CREATE MATERIALIZED VIEW fails AS SELECT 10 / (v - 5) AS q FROM o")
    with pytest.raises(errors.DivisionByZero):
        db.execute("SELECT * FROM fails")
    shown = lines(db, "EXPLAIN ANALYZE MATERIALIZED VIEW fails")
    assert shown[1].startswith("Hydration: failed as of")
    assert shown[3] == "Error: division by zero"
    for sql, error in (
        ("EXPLAIN PHYSICAL PLAN FOR SELECT random()", errors.FeatureNotSupported),
        ("EXPLAIN PHYSICAL PLAN FOR DELETE FROM o", errors.FeatureNotSupported),
        ("EXPLAIN ANALYZE INDEX fails", errors.WrongObjectType),
        ("EXPLAIN MATERIALIZED VIEW missing", errors.UndefinedTable),
        ("EXPLAIN ANALYZE SELECT 1 / 0", errors.DivisionByZero),
    ):
        with pytest.raises(error):
            db.execute(sql.encode())


def test_an_index_is_explained_as_its_relation(db: Connection) -> None:
    db.execute("CREATE INDEX i ON c (id)")
    shown = lines(db, "EXPLAIN INDEX i")
    assert shown[0] == "Index: <n>i on <n>c by (id)"
    assert shown[-1] == "Runs: in the server, unchanged rows of the log"
    assert lines(db, "EXPLAIN PHYSICAL PLAN FOR INDEX i") == ["1 Changes of <n>c: id, name"]


def test_explain_requires_the_privileges_of_the_query(dsn: str, db: Connection) -> None:
    db.execute(f"CREATE MATERIALIZED VIEW m AS {QUERY}".encode())
    db.execute("CREATE ROLE explain_guest LOGIN")
    try:
        with psycopg.connect(dsn, user="explain_guest", autocommit=True) as guest:
            for what in ("MATERIALIZED VIEW m", "PHYSICAL PLAN FOR MATERIALIZED VIEW m", "ANALYZE SELECT * FROM m"):
                with pytest.raises(errors.InsufficientPrivilege):
                    guest.execute(f"EXPLAIN {what}".encode())
    finally:
        db.execute("DROP ROLE explain_guest")
