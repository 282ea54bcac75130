"""The shared text of statements that differ in literals has the same plan, with the literals as parameters."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import PgType
from server.sql.constant import Bindings, compiled
from server.sql.grammar.parse import parse_each
from server.sql.grammar.shared_text import SharedText, shared_text
from server.sql.grammar.statements.queries import Select
from server.sql.grammar.statements.writes import Delete, Insert, Update
from server.sql.plan import PlanContext, QueryPlan, plan_query
from server.sql.writes.statements import plan_delete, plan_insert, plan_update
from tests.server.states import state_with_table

TYPES = {"a": "int4", "b": "text", "c": "numeric(6,2)", "d": "int8", "e": "float8", "f": "varchar(5)", "g": "date"}
STATE, TABLE = state_with_table("t", **TYPES)
CONTEXT = PlanContext(STATE, "materialize", ("public",), "tide", "Europe/Berlin")


def planned(text: str, types: tuple[PgType | None, ...] = ()) -> QueryPlan:
    (statement,) = parse_each(text)
    match statement:
        case Insert():
            return plan_insert(statement, CONTEXT, types).query
        case Update():
            return plan_update(statement, CONTEXT, types).query
        case Delete():
            return plan_delete(statement, CONTEXT, types).query
        case Select():
            return plan_query(statement.query, CONTEXT, types)
    raise AssertionError(statement)


def bound(shared: SharedText) -> tuple[QueryPlan, Bindings]:
    plan = planned(shared.text, shared.types)
    return plan, Bindings(shared.values(plan.parameters, CONTEXT.timezone))


def same(text: str) -> bool:
    """Compares a text with its shared text: types, rows of constants, and keys. False if it has none, or is invalid."""
    shared = shared_text(text)
    if shared is None:
        return False
    assert shared_text(shared.text) is None
    try:
        plan = planned(text)
    except PgError:
        plan = None
    try:
        other, bindings = bound(shared)
    except PgError:
        return False  # the text itself is executed
    if plan is None:  # an error of constants: of the plan, or of its execution
        assert other.inputs or isinstance(rows_of(other, bindings), SqlState)
        return False
    assert [field.type for field in other.columns] == [field.type for field in plan.columns]
    assert rows_of(other, bindings) == rows_of(plan, Bindings())
    keys = {(key.column, *key.column_values(Bindings()).to_pylist()) for key in plan.key_filters.get(TABLE, ())}
    found = {(key.column, *key.column_values(bindings).to_pylist()) for key in other.key_filters.get(TABLE, ())}
    assert found == keys
    return True


def rows_of(plan: QueryPlan, bindings: Bindings) -> object:
    """The rows of constants, or the error of their evaluation. None if the plan reads the table."""
    if plan.inputs:
        return None
    constant = compiled(plan.relation, bounded=False)
    assert constant is not None
    try:
        return constant.evaluate(bindings).to_pylist()
    except PgError as error:
        return error.sqlstate


@pytest.mark.parametrize(
    ("text", "shared", "literals"),
    [
        ("UPDATE t SET a = a + -12 WHERE d = 7;", "UPDATE t SET a = a + $1 WHERE d = $2;", ("-12", "7")),
        ("DELETE FROM t WHERE b='x''y' AND a<-5", "DELETE FROM t WHERE b=$1 AND a<$2", ("'x''y'", "-5")),
        ("SELECT a - 1 FROM t WHERE d = 3000000000", "SELECT a - $1 FROM t WHERE d = $2", ("1", "3000000000")),
        (
            "INSERT INTO t (a, b, g) VALUES (1, 'x', CURRENT_DATE), (-2, 'y', CURRENT_DATE)",
            "INSERT INTO t (a, b, g) VALUES ($1, $2, CURRENT_DATE), ($3, $4, CURRENT_DATE)",
            ("1", "'x'", "-2", "'y'"),
        ),
    ],
)
def test_literals_become_parameters_of_the_shared_text(text: str, shared: str, literals: tuple[str, ...]) -> None:
    found = shared_text(text)
    assert found is not None
    assert (found.text, found.literals) == (shared, literals)
    assert same(text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a FROM t",
        "SELECT a FROM t WHERE a = 1 ORDER BY 1",
        "SELECT a FROM t WHERE a = 1 LIMIT 5",
        "SELECT a + 1 FROM t GROUP BY a + 1",
        "SELECT a FROM t WHERE a = 1 -- = 2",
        "SELECT a FROM t WHERE a = /* = 2 */ 1",
        "SELECT a FROM t WHERE a = 1; DELETE FROM t WHERE a = 2",
        "SELECT a FROM t WHERE a = $1 AND d = 2",
        "SELECT a FROM t WHERE b = $$x$$ AND d = 2",
        "SELECT a FROM t WHERE b = E'x' AND d = 2",
        "SELECT a FROM t WHERE c = 1.5 AND a = 1",
        "SELECT a FROM t WHERE a = 1::bigint",
        "SELECT a FROM t WHERE g = date '2020-01-01' AND a = 1",
        "SELECT a FROM t WHERE b::json -> 0 = '1' AND a = 1",
        'SELECT a AS "= 1" FROM t WHERE a = 1',
        "UPDATE t SET b = round(c, 1) WHERE a = 1",
        "INSERT INTO t (a) VALUES (abs(1))",
        "INSERT INTO t (a) VALUES (1) RETURNING (2)",
        "INSERT INTO t (a) SELECT 1",
        "CREATE TABLE u AS SELECT a FROM t WHERE a = 1",
    ],
)
def test_not_shared(text: str) -> None:
    """A literal remains whose parameter would mean something else."""
    assert shared_text(text) is None


LITERALS = st.sampled_from(
    [
        "0",
        "1",
        "-1",
        "2147483647",
        "-2147483648",
        "2147483648",
        "9999999999",
        "'5'",
        "'x'",
        "'it''s'",
        "'2024-02-29'",
        "''",
    ]
)
COLUMNS = st.sampled_from(list(TYPES))
OPERANDS = st.one_of(
    COLUMNS,
    LITERALS,
    st.builds(lambda column, sign, value: f"{column} {sign} {value}", COLUMNS, st.sampled_from("+-*/%"), LITERALS),
)
CONDITIONS = st.lists(
    st.builds(
        lambda left, sign, right: f"{left} {sign} {right}",
        OPERANDS,
        st.sampled_from(["=", "<>", "<", ">="]),
        OPERANDS,
    ),
    min_size=1,
    max_size=3,
).map(" AND ".join)
STATEMENTS = st.one_of(
    st.builds(
        lambda column, value, where: f"UPDATE t SET {column} = {value} WHERE {where}", COLUMNS, OPERANDS, CONDITIONS
    ),
    st.builds(lambda where: f"DELETE FROM t WHERE {where}", CONDITIONS),
    st.builds(lambda value, where: f"SELECT {value}, b FROM t WHERE {where}", OPERANDS, CONDITIONS),
    st.builds(
        lambda columns, row: f"INSERT INTO t ({', '.join(columns)}) VALUES ({', '.join(row[: len(columns)])})",
        st.lists(COLUMNS, min_size=1, max_size=7, unique=True),
        st.lists(LITERALS, min_size=7, max_size=7),
    ),
)


@example("SELECT -2147483648, b FROM t WHERE a = a")
@example("SELECT a FROM t WHERE a = -2147483648")
@example("DELETE FROM t WHERE -1 = a")
@example("SELECT a FROM t WHERE (- 1 = a) AND b = 'x'")
@given(STATEMENTS)
def test_the_shared_text_has_the_plan_of_the_text(text: str) -> None:
    same(text)
