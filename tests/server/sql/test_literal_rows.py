"""INSERT of rows of literals, parsed by column or as parameters: it has the same rows and errors as by value."""

from __future__ import annotations

import psycopg
import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from protocol.pgwire.errors import PgError
from protocol.pgwire.types import parse_type
from server.coordinator.row_buffer import table_of
from server.sql.constant import Bindings, compiled
from server.sql.grammar.literal_rows import CHUNK_ROWS, ROWS_MIN, split, split_few
from server.sql.grammar.parse import parse, parse_each
from server.sql.grammar.statements import Statement
from server.sql.grammar.statements.writes import Insert
from server.sql.plan import PlanContext
from server.sql.writes.plan import WritePlan
from server.sql.writes.statements import plan_insert
from tests.server.states import state_with_table

TYPES = {
    "a": "int4", "b": "text", "c": "numeric(6,2)", "d": "timestamptz", "e": "float8", "f": "bool", "g": "int2",
    "h": "varchar(3)", "i": "char(2)", "j": "date", "k": "numeric", "l": "float4", "m": "int8",
}  # fmt: skip
STATE, TABLE = state_with_table("t", **TYPES)
CONTEXT = PlanContext(STATE, "materialize", ("public",), "tide", "Europe/Berlin")


def planned(statements: list[Statement]) -> WritePlan:
    (statement,) = statements
    assert isinstance(statement, Insert)
    return plan_insert(statement, CONTEXT)


def rows_of(plan: WritePlan) -> list[list[object]]:
    """Returns the rows that the plan inserts."""
    constant = compiled(plan.query.relation, bounded=False)
    assert constant is not None
    table = pa.Table.from_batches([constant.evaluate(Bindings())])
    if plan.literals is None:
        return [list(row.values()) for row in _numbers(table).to_pylist()]
    count = len(next(iter(plan.literals.values())))
    columns = [plan.literals.get(n, pa.repeat(c[0], count)).cast(c.type) for n, c in enumerate(table.columns)]
    return [list(row.values()) for row in _numbers(pa.table(columns, names=table.column_names)).to_pylist()]


def _numbers(table: pa.Table) -> pa.Table:
    """The table with dates and timestamps as numbers: Python's have a smaller range."""
    for number, type in enumerate(table.schema.types):
        if pa.types.is_date(type) or pa.types.is_timestamp(type):
            column = table.column(number).cast(pa.int32() if pa.types.is_date(type) else pa.int64())
            table = table.set_column(number, table.column_names[number], column)
    return table


def outcome(statements: list[Statement] | None, text: str) -> object:
    """Returns the rows, or the error with its position."""
    try:
        return rows_of(planned(parse_each(text) if statements is None else statements))
    except PgError as error:
        return error.sqlstate, error.message, error.position


def insert(columns: str, *rows: str) -> str:
    return f"INSERT INTO t ({columns}) VALUES " + ", ".join(rows)


CELLS = {
    "number": st.one_of(
        st.integers(-40_000, 40_000).map(str),
        st.integers(-(10**20), 10**20).map(str),
        st.sampled_from(["1.5", "-0.005", "+7", "1e3", ".5", "2.", "1e400", "9" * 40, "99999.99", "007"]),
    ),
    "text": st.text("a'1 -é.:", max_size=5).map(lambda text: "'" + text.replace("'", "''") + "'"),
    "time": st.sampled_from(["'2020-01-01'", "'2020-07-01 10:00'", "'2020-01-01 00:00+02'", "'soon'", "'infinity'"]),
    "word": st.sampled_from(["true", "FALSE", "'t'", "'maybe'"]),
    "null": st.sampled_from(["NULL", "null"]),
}
KINDS = {"a": "number", "c": "number", "e": "number", "g": "number", "k": "number", "l": "number", "m": "number",
         "b": "text", "h": "text", "i": "text", "d": "time", "j": "time", "f": "word"}  # fmt: skip


@st.composite
def statements(draw: st.DrawFn, rows_min: int = ROWS_MIN, rows_max: int = ROWS_MIN + 4) -> str:
    columns = draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=4, unique=True))
    kinds = [draw(st.sampled_from([KINDS[c]] * 6 + ["number", "text"])) for c in columns]
    cells = [st.one_of(*[CELLS[kind]] * 4, CELLS["null"]) for kind in kinds]
    space = st.sampled_from(["", " ", "\n\t"])
    rows = []
    for _ in range(draw(st.integers(rows_min, rows_max))):
        before, between = draw(space), draw(space)
        rows.append(f"({before}{(between + ',' + before).join(draw(cell) for cell in cells)}{between})")
    return insert(", ".join(columns), *rows) + draw(st.sampled_from(["", ";", " ; "]))


@given(statements())
def test_parsing_by_column_and_by_value_have_the_same_outcome(text: str) -> None:
    assert split(text) is not None
    assert outcome(parse(text), text) == outcome(None, text)


@given(statements(1, ROWS_MIN - 1))
def test_few_literals_are_inserted_like_values_that_are_parsed(text: str) -> None:
    """Unless a literal needs a cast or is invalid: then the statement is parsed."""
    literals = split_few(text)
    assert literals is not None
    (template,) = parse_each(literals.template)
    assert isinstance(template, Insert)
    plan = plan_insert(template, CONTEXT)
    try:
        values = literals.values(plan.query.parameters, CONTEXT.timezone)
        assert plan.added is not None
        found = None if values is None else plan.added.constant.evaluate_rows(Bindings(values))
    except PgError:
        found = None
    expected = outcome(None, text)
    if found is None:
        event("parsed")
    else:
        assert plan.added is not None
        assert _numbers(table_of(found, plan.added.schema)).to_pylist() == [
            {f"c{number}": value for number, value in enumerate(row)} for row in expected
        ]


def test_which_literals_become_parameters() -> None:
    literals = split_few("insert into t (a, b, f) VALUES(-1, 'it''s', TRUE) ,(2,NULL,'f');")
    assert literals is not None
    assert literals.template == "insert into t (a, b, f) VALUES($1, $2, $3) ,($4,$5,$6)"
    types = [parse_type(TYPES[name]) for name in "abfabf"]
    assert literals.values(types, "UTC") == (-1, "it's", True, 2, None, False)


@pytest.mark.parametrize(("literal", "column"), [("1", "b"), ("1.5", "a"), ("true", "a"), ("1", "f"), ("1", "d")])
def test_literals_that_need_a_cast_do_not_become_parameters(literal: str, column: str) -> None:
    literals = split_few(insert(column, f"({literal})"))
    assert literals is not None
    assert literals.values([parse_type(TYPES[column])], "UTC") is None


@pytest.mark.parametrize(
    "text",
    [
        insert("a", *["(1)"] * ROWS_MIN),
        insert("a", "(1)") + " RETURNING a",
        insert("a", "(1)") + "; SELECT 1",
        insert("a", "(1)") + " -- one",
        insert("a", "(1 + 1)"),
        insert("a", "(DEFAULT)"),
        insert("b", "(E'\\n')"),
        insert("b", "('x'\n'y')"),
        insert("b", "('x"),
        insert("a", "($1)"),
        insert("a", "(1_000)"),
        insert("a", "()"),
        "INSERT INTO t SELECT 1",
        "EXPLAIN " + insert("a", "(1)"),
    ],
)
def test_other_statements_have_no_few_literals(text: str) -> None:
    assert split_few(text) is None


@pytest.mark.parametrize(
    "text",
    [
        insert("a, b", *["(1, 'x')"] * 7),  # too few rows
        insert("a", *["(1)"] * 8) + " RETURNING a",
        insert("a", *["(1)"] * 8) + "; SELECT 1",
        insert("a", *["(1)"] * 7, "(1 + 1)"),
        insert("a", *["(1)"] * 7, "(DEFAULT)"),
        insert("a", *["(1)"] * 7, "(1, 2)"),
        insert("b", *["('x')"] * 7, "(E'\\n')"),
        insert("b", *["('x')"] * 7, "('x'\n'y')"),
        insert("a", *["(1)"] * 7, "(1 /* one */)"),
        insert("a", *["(1)"] * 7, "(1_000)"),
        insert("a", *["(1)"] * 7, "(0x1f)"),
        insert("a", *["(1)"] * 7) + ", (1",
        "SELECT 1 WHERE 1 IN (VALUES " + ", ".join(["(1)"] * 8) + ")",
        "VALUES " + ", ".join(["(1)"] * 8),
        "EXPLAIN " + insert("a", *["(1)"] * 8),
    ],
)
def test_other_statements_are_not_parsed_by_column(text: str) -> None:
    assert split(text) is None


@pytest.mark.parametrize("number", [0, 1, CHUNK_ROWS - 1, CHUNK_ROWS, 2 * CHUNK_ROWS + 3])
def test_an_error_has_the_position_of_its_value(number: int) -> None:
    rows = [f"({i})" for i in range(3 * CHUNK_ROWS)]
    rows[number] = "(99999999999)"
    text = insert("a", *rows)
    with pytest.raises(PgError) as caught:
        planned(parse(text))
    assert caught.value.sqlstate == "22003"
    with pytest.raises(PgError) as expected:
        planned(parse_each(text))
    assert caught.value.position == expected.value.position


def test_values_that_need_a_cast_are_not_parsed_by_column() -> None:
    text = insert("b, a", *["(12, 1.5)"] * 10)
    plan = planned(parse(text))
    assert plan.literals is None
    assert [row[:2] for row in rows_of(plan)] == [[2, "12"]] * 10


def test_quoted_names_and_an_alias_before_values() -> None:
    text = 'insert into "public"."t" as x ("a") values ' + ", ".join(f"({i})" for i in range(10))
    assert [row[0] for row in rows_of(planned(parse(text)))] == list(range(10))


def test_a_long_list_of_rows_is_inserted(dsn: str) -> None:
    count = 300_000
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (a int, b text DEFAULT 'none', c timestamptz NOT NULL DEFAULT now())")
        result = connection.execute(f"INSERT INTO t (a) VALUES {', '.join(f'({i})' for i in range(count))}".encode())
        assert result.rowcount == count
        assert connection.execute("SELECT count(*), sum(a), min(b), max(b) FROM t").fetchone() == (
            count,
            count * (count - 1) // 2,
            "none",
            "none",
        )
        connection.execute("CREATE TABLE n (a int NOT NULL)")
        with pytest.raises(psycopg.errors.NotNullViolation):
            connection.execute("INSERT INTO n VALUES (1), (2), (3), (4), (5), (6), (7), (NULL)")
