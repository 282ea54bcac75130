"""Plans, without executing them: names, types and errors as in PostgreSQL, and queries that need no Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal

import numpy as np
import psycopg
import pyarrow as pa
import pytest

from catalog.ids import ObjectId
from catalog.objects.columns import Column
from catalog.objects.tables import Table
from catalog.objects.views import View
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import FLOAT8, INT4, TEXT, PgType
from server.sql.constant import Bindings
from server.sql.direct_scan import DirectScan
from server.sql.expressions import Literal, Parameter
from server.sql.grammar.parse import parse_query
from server.sql.key_conditions import KeyCondition
from server.sql.plan import PlanContext, QueryPlan, bound, plan_query
from server.sql.writes.plan import WritePlan
from tests.server.sql.planned import planned_write
from tests.sql import answers, ours
from tests.sql.oracle import DATABASE, Oracle

CONTEXT = PlanContext(ours.state(), "materialize", ("public",), "tide")
T, U = (CONTEXT.state.resolve((name,), "materialize", ("public",)) for name in "tu")
assert T is not None
assert U is not None


def plan(sql: str, types: tuple[PgType | None, ...] = (), *, maintained: bool = False) -> QueryPlan:
    return plan_query(parse_query(sql), CONTEXT, types, maintained=maintained)


def write(sql: str, context: PlanContext = CONTEXT) -> WritePlan:
    return planned_write(sql, context)


def with_view(sql: str, *columns: Column) -> PlanContext:
    """Returns the context with a view `w` of the query."""
    stored = plan(sql)
    view = View(ObjectId("u99"), ObjectId("u2"), "w", columns, stored.stored_text, stored.uses)
    return replace(CONTEXT, state=CONTEXT.state.with_item(view))


# -- as PostgreSQL describes ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def connection(postgres: str) -> Iterator[psycopg.Connection]:
    with Oracle(postgres), psycopg.connect(postgres, dbname=DATABASE, autocommit=True) as connection:
        yield connection


# Statements for which our position or message differs from PostgreSQL's, because sqlglot does not keep the position.
_ELSEWHERE = (
    "true::date",
    "(select a, b from t)",
    "array[]",
    "extract(",
    "date_trunc(",
    "like",
    "varchar(0)",
    "x(a, b)",
)


def test_planning_errors_equal_those_of_postgresql(connection: psycopg.Connection) -> None:
    wrong = []
    for sql in (statement.sql for statement, answer in answers.read("mixed") if answer.sqlstate is not None):
        try:
            plan(sql)
            continue  # the error occurs at run time
        except PgError as error:
            found = (error.sqlstate, error.message, error.hint, error.position)
        with pytest.raises(psycopg.Error) as raised:
            connection.execute(sql.encode())
        diagnosis = raised.value.diag
        position = int(diagnosis.statement_position) if diagnosis.statement_position else None
        expected = (raised.value.sqlstate, diagnosis.message_primary, diagnosis.message_hint, position)
        if any(part in sql for part in _ELSEWHERE):
            found, expected = (*found[:1], "", *found[2:3], 0), (*expected[:1], "", *expected[2:3], 0)
        if found != expected:
            wrong.append(f"{sql}\n  PostgreSQL {expected}\n  planned    {found}")
    assert not wrong, "\n".join(wrong)


# -- parameters -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "types"),
    [
        ("select $1", "text"),
        ("select $1::int", "int4"),
        ("select $1::numeric(10,2)", "numeric"),
        ("select a from t where a = $1 and b like $2", "int4 text"),
        ("select a from t where c between $1 and $2", "int8 int8"),
        ("select a from t where a = any($1)", "_int4"),
        ("select a from t where a in ($1, $2)", "int4 int4"),
        ("select coalesce($1, a) from t", "int4"),
        ("select $1 || 'x'", "text"),
        ("select case when $1 then 1 else $2 end", "bool int4"),
        ("select a from t limit $1 offset $2", "int8 int8"),
        ("select $1 union select 1", "int4"),
        ("values ($1, 2), (1.5, $2)", "numeric int4"),
    ],
)
def test_parameter_types_are_inferred(sql: str, types: str, connection: psycopg.Connection) -> None:
    prepared = connection.pgconn.prepare(b"", sql.encode())
    assert prepared.status == psycopg.pq.ExecStatus.COMMAND_OK, prepared.error_message
    described = connection.pgconn.describe_prepared(b"")
    assert [t.oid for t in plan(sql).parameters] == [described.param_type(i) for i in range(described.nparams)]
    assert [t.name for t in plan(sql).parameters] == types.split()


@pytest.mark.parametrize("name", ["int4", "pg_catalog.int4", '"pg_catalog"."int4"', 'pg_catalog."int4"'])
def test_type_names_can_have_a_schema(name: str) -> None:
    assert plan(f"select $1::{name}, cast(1 as {name})").parameters == (INT4,)


def test_declared_parameter_types_are_used() -> None:
    assert plan("select $1 + $2", (INT4, None)).parameters == (INT4, INT4)


@pytest.mark.parametrize(
    ("sql", "state"),
    [
        ("select a from t where a = $1 and b = $1", SqlState.UNDEFINED_FUNCTION),
        ("select $2::int", SqlState.INDETERMINATE_DATATYPE),
        ("select $0", SqlState.UNDEFINED_PARAMETER),
    ],
)
def test_invalid_parameters_are_refused(sql: str, state: SqlState) -> None:
    with pytest.raises(PgError) as raised:
        plan(sql)
    assert raised.value.sqlstate is state


# -- without Spark --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("select * from t", (0, 1, 2, 3, 4)),
        ("table t", (0, 1, 2, 3, 4)),
        ("select b, a, b from t as x", (1, 0, 1)),
        ("select y from (select a as x, b as y from t) s", (1,)),
        ("with w as (select c, b from t) select * from w", (2, 1)),
    ],
)
def test_selecting_columns_of_one_relation_is_a_direct_scan(sql: str, columns: tuple[int, ...]) -> None:
    assert T is not None
    assert plan(sql).direct_scan == DirectScan(T.id, columns)


def test_selecting_columns_of_a_view_is_a_direct_scan() -> None:
    assert T is not None
    context = with_view("select b, a from t", Column("x", "text"), Column("y", "int4"))
    planned = plan_query(parse_query("select y, x from w"), context)
    assert planned.direct_scan == DirectScan(T.id, (0, 1))
    assert planned.inputs == frozenset({T.id})
    assert planned.uses == frozenset({ObjectId("u99")})


@pytest.mark.parametrize(
    "sql",
    [
        "select a from t limit 1",
        "select distinct a from t",
        "select a + 0 from t",
        "select 1 from t",
        "select a from t where a = 1 or b = 'x'",
        "select a from t where a = 1 and b > 'x'",
        "select a from t where a = b::int",
        "select a from t where a = 1.5",
    ],
)
def test_queries_that_are_no_direct_scan(sql: str) -> None:
    assert plan(sql).direct_scan is None


def test_a_direct_scan_can_filter_by_key() -> None:
    assert T is not None
    rows = pa.table(
        {
            "c0": pa.array([1, 2, None, 1], pa.int32()),
            "c1": ["x", "x", "y", "z"],
            **{f"c{i}": [None] * 4 for i in range(2, len(T.columns))},
        }
    )

    def found(sql: str, *parameters: object) -> list[dict[str, object]]:
        scan = plan(sql).direct_scan
        assert scan is not None
        return scan.rows(rows, Bindings(parameters)).to_pylist()  # type: ignore[no-any-return]

    assert found("select b, a from t where a = 1") == [{"c1": "x", "c0": 1}, {"c1": "z", "c0": 1}]
    assert found("select a from t where $1 = a and b = $2", 1, "z") == [{"c0": 1}]
    assert found("select a from t where a = $1", None) == []
    assert found("select a from t where a = 5000000000") == []
    assert found("select b from t where a in (2, 3, null)") == [{"c1": "x"}]
    assert found("select b from t where a = any ($1)", [1, None]) == [{"c1": "x"}, {"c1": "z"}]
    assert found("select b from t where a = any ($1)", None) == []
    assert found("select a from t where a = 2 or a = 7") == [{"c0": 2}]


def test_equality_of_floats_follows_postgresql() -> None:
    assert T is not None
    zeros_and_nans = np.array([0x8000000000000000, 0, 0xFFF8000000000001, 0x7FF8000000000000], np.uint64)
    values = pa.array([*zeros_and_nans.view(np.float64), None, 1.5], from_pandas=False)
    scan = DirectScan(T.id, (0,), (KeyCondition(0, FLOAT8, Literal(None, FLOAT8), (Parameter(0, FLOAT8),)),))
    for wanted, count in ((0.0, 2), (-0.0, 2), (float("nan"), 2), (1.5, 1), (None, 0), (2.0, 0)):
        assert scan.rows(pa.table({"c0": values}), Bindings((wanted,))).num_rows == count


BINDINGS = Bindings(
    parameters=(7, None),
    now_us=1_700_000_000_000_000,
    database="materialize",
    schema="public",
    user="tide",
    session_user="tide",
    version="PostgreSQL 16",
    backend_pid=4,
    settings={"timezone": "UTC"},
)


@pytest.mark.parametrize(
    ("sql", "row"),
    [
        ("select 42", (42,)),
        ("select $1::int, $2::text", (7, None)),
        ("select '5'::int, 2.5::int, 3.5::int, -1, -2147483648", (5, 3, 4, -1, -2147483648)),
        ("select 2.5::float8::int, 'abc'::varchar(2), 1.255::numeric(4,2)", (2, "ab", Decimal("1.26"))),
        ("select null::date, date '1970-01-02', true, 'x'", (None, 1, True, "x")),
        ("select array[1,2], '{1,NULL}'::int[], array['a', $1::int::text]", ([1, 2], [1, None], ["a", "7"])),
        ("select $1::int::numeric(10,2), ($1::int8)::text", (Decimal("7.00"), "7")),
        ("select now()::timestamp, current_date", (1_700_000_000_000_000, 19675)),
        ("select current_user, current_schema(), version(), pg_backend_pid()", ("tide", "public", "PostgreSQL 16", 4)),
        ("select current_setting('TimeZone'), pg_catalog.current_database()", ("UTC", "materialize")),
        ("select x, y from (values (1, 'a')) as v(x, y)", (1, "a")),
        ("with w as (select 1 as a) select a, a from w", (1, 1)),
    ],
)
def test_constants_are_evaluated_without_spark(sql: str, row: tuple[object, ...]) -> None:
    constant = plan(sql, (INT4, TEXT) if "$2" in sql else ()).constant
    assert constant is not None
    assert constant.is_single_row
    assert constant.evaluate_row(BINDINGS) == row
    assert constant.evaluate(BINDINGS).num_rows == 1


@pytest.mark.parametrize("sql", ["values (1), (2) order by 1", "select 1 where true"])
def test_queries_that_are_no_constants(sql: str) -> None:
    assert plan(sql).constant is None


@pytest.mark.parametrize(
    ("sql", "state"),
    [
        ("select 'x'::int", SqlState.INVALID_TEXT_REPRESENTATION),
        ("select 40000::int2", SqlState.NUMERIC_VALUE_OUT_OF_RANGE),
        ("select 99.95::numeric(3,1)", SqlState.NUMERIC_VALUE_OUT_OF_RANGE),
        ("select current_setting('nope')", SqlState.UNDEFINED_OBJECT),
    ],
)
def test_errors_of_constants(sql: str, state: SqlState) -> None:
    def run() -> None:
        constant = plan(sql).constant
        assert constant is not None
        constant.evaluate_row(BINDINGS)

    with pytest.raises(PgError) as raised:
        run()
    assert raised.value.sqlstate is state


# -- maintained queries, stored text, fingerprints ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "state"),
    [
        ("select a from t where d > now()", SqlState.FEATURE_NOT_SUPPORTED),
        ("select current_user", SqlState.FEATURE_NOT_SUPPORTED),
        ("select random()", SqlState.FEATURE_NOT_SUPPORTED),
    ],
)
def test_maintained_queries_cannot_use_functions_of_the_session(sql: str, state: SqlState) -> None:
    with pytest.raises(PgError) as raised:
        plan(sql, maintained=True)
    assert raised.value.sqlstate is state


def test_maintained_queries_have_no_parameters() -> None:
    with pytest.raises(PgError) as raised:
        plan_query(parse_query("select a from t where a = $1"), CONTEXT, None, maintained=True)
    assert (raised.value.sqlstate, raised.value.position) == (SqlState.UNDEFINED_PARAMETER, 27)


@pytest.mark.parametrize(
    ("sql", "values", "written"),
    [
        ("select * from t where a = $1", (3,), "select * from t where a = 3"),
        ("select a from t where b = $1 or a > $2", ("x", 2), "select a from t where b = 'x' or a > 2"),
        ("select count(*) from t where a < $1 limit $2", (3, 4), "select count(*) from t where a < 3 limit 4"),
        ("select b from t where a = any ($1)", ([1, 2],), "select b from t where a = any ('{1,2}'::int[])"),
        ("select $1::text, a from t", (None,), "select null::text, a from t"),
    ],
)
def test_a_bound_plan_equals_the_plan_with_literals(sql: str, values: tuple[object, ...], written: str) -> None:
    bound_plan, literal_plan = bound(plan(sql, maintained=True), values), plan(written, maintained=True)
    assert bound_plan.fingerprint == literal_plan.fingerprint
    assert bound_plan.direct_scan == literal_plan.direct_scan
    assert bound_plan.parameters == ()
    assert bound_plan.is_bound
    assert bound(bound_plan, ()) is bound_plan


@pytest.mark.parametrize(
    "sql",
    [
        "select * from t",
        "select t.a, public.t.b from public.t, u as x where exists (select from materialize.public.u where u.a = t.a)",
        'with t as (select 1 as a) select * from t, u "odd name" where t.a = "odd name".k',
        "select 'select * from t' as x from t",
    ],
)
def test_stored_text_does_not_depend_on_names(sql: str) -> None:
    planned = plan(sql)
    assert T is not None
    renamed = replace(CONTEXT, state=CONTEXT.state.with_item(replace(T, name="renamed")), search_path=())
    again = plan_query(parse_query(planned.stored_text), renamed)
    assert (again.fingerprint, again.columns) == (planned.fingerprint, planned.columns)
    assert (again.uses, again.stored_text) == (planned.uses, planned.stored_text)


def test_equivalent_texts_have_the_same_fingerprint() -> None:
    first = plan("select a, count(*) from t where b = 'x' group by a")
    assert (
        first.fingerprint
        == plan("SELECT z.a AS k, count( * ) n FROM public.t z WHERE \"b\"='x' GROUP BY 1").fingerprint
    )
    assert first.fingerprint != plan("select a, count(*) from t where b = 'y' group by a").fingerprint
    assert plan("select 1").fingerprint != plan("select 2").fingerprint
    assert plan("select 1").spark_sql() == "SELECT 1 AS c0"


def test_spark_text_of_a_join_and_an_aggregate() -> None:
    planned = plan("select w, sum(c) from t join u on t.a = u.a where k > 0 group by w having count(*) > 1")
    assert planned.spark_sql() == (
        "SELECT x9 AS c0, CAST(x10 AS DECIMAL(38,0)) AS c1 FROM (".replace("CAST(x10 AS DECIMAL(38,0))", "x10")
        + "SELECT x8 AS x9, sum(CAST(x3 AS DECIMAL(28,0))) AS x10, count(1) AS x11 FROM "
        "(SELECT /*+ COALESCE(1) */ c0 AS x1, c2 AS x3 FROM u18) INNER JOIN "
        "(SELECT /*+ COALESCE(1) */ c0 AS x6, c1 AS x7, c2 AS x8 FROM u19) ON (x1 = x6) WHERE (x7 > 0) GROUP BY x8) "
        "WHERE (x11 > 1)"
    )


def test_parameters_and_session_values_are_literals_in_spark_text() -> None:
    planned = plan("select a from t where b = $1 and d < now() and a = $2")
    text = planned.spark_sql(BINDINGS._replace(parameters=("it's ${x} \\", None)))
    assert "(x2 = 'it\\'s \\u0024{x} \\\\')" in text
    assert "timestamp_micros(1700000000000000L)" in text
    assert "CAST(NULL AS INT)" in text


# -- writes ---------------------------------------------------------------------------------------------------------


def test_insert_of_constant_values_needs_no_spark() -> None:
    planned = write("insert into t (b, a) values ('x', 1), (default, 2.5) returning a, b as z")
    assert (planned.old, planned.new, planned.returning) == (None, slice(0, 5), slice(5, 7))
    assert [field.name for field in planned.query.columns[5:]] == ["a", "z"]
    assert planned.query.constant is not None
    rows = planned.query.constant.evaluate(Bindings()).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        (1, "x", None, None, None, 1, "x"),
        (3, None, None, None, None, 3, None),
    ]


def test_insert_uses_defaults_and_declared_types() -> None:
    columns = (Column("a", "int4", True, "40 + 2"), Column("s", "varchar(3)", True, "'d'"), Column("n", "numeric(5,2)"))
    table = Table(ObjectId("u99"), ObjectId("u2"), "z", columns)
    context = replace(CONTEXT, state=CONTEXT.state.with_item(table))
    planned = write("insert into z (n, s) values (1.239, 'ab  ')", context)
    assert [str(field.type) for field in planned.query.columns] == ["int4", "varchar(3)", "numeric(5,2)"]
    assert "'ab '" in planned.query.spark_sql()
    computed = write("insert into z default values", context).query.constant
    assert computed is not None
    assert computed.evaluate_row(Bindings()) == (42, "d", None)
    constant = write("insert into z values (1)", context).query.constant
    assert constant is not None
    assert constant.evaluate_row(Bindings()) == (1, "d", None)


def test_insert_select_casts_by_assignment() -> None:
    planned = write("insert into t select c, a, 1, null from t")
    text = planned.query.spark_sql()
    assert "CAST(x3 AS INT)" in text
    assert "CAST(x1 AS STRING)" in text


def test_update_plans_return_old_and_new_rows() -> None:
    planned = write("update t as x set c = x.c + 1, b = default where a > 1 returning c, *")
    assert (planned.old, planned.new, planned.returning) == (slice(0, 5), slice(5, 10), slice(10, 16))
    names = [field.name for field in planned.query.columns]
    assert names == ["a", "b", "c", "n", "d"] * 2 + ["c", "a", "b", "c", "n", "d"]


def test_delete_plans_return_old_rows() -> None:
    planned = write("delete from t where b = 'x' returning a * 2")
    assert (planned.old, planned.new, planned.returning) == (slice(0, 5), None, slice(5, 6))
    assert write("delete from t").query.direct_scan is not None


@pytest.mark.parametrize(
    ("sql", "state", "message"),
    [
        ("insert into t (nope) values (1)", "42703", 'column "nope" of relation "t" does not exist'),
        ("insert into t (a, a) values (1, 2)", "42701", 'column "a" specified more than once'),
        ("insert into t (a) values (1, 2)", "42601", "INSERT has more expressions than target columns"),
        ("insert into t (a, b) values (1)", "42601", "INSERT has more target columns than expressions"),
        ("insert into t (a) values ('x')", "22P02", 'invalid input syntax for type integer: "x"'),
        ("insert into t (a) values (1=1)", "42804", 'column "a" is of type integer but expression is of type boolean'),
        ("insert into t (a) select b from t", "42804", 'column "a" is of type integer but expression is of type text'),
        ("insert into v (vc) values ('12345678901')", "22001", "value too long for type character varying(10)"),
        ("insert into v (n2) values (123456789)", "22003", "numeric field overflow"),
        ("insert into nope values (1)", "42P01", 'relation "nope" does not exist'),
        ("insert into t values (1), (1, 2)", "42601", "VALUES lists must all be the same length"),
        ("update t set a = b", "42804", 'column "a" is of type integer but expression is of type text'),
        ("update t set a = 1, a = 2", "42601", 'multiple assignments to same column "a"'),
        ("update t set nope = 1", "42703", 'column "nope" of relation "t" does not exist'),
        ("update t set a = sum(c)", "42803", "aggregate functions are not allowed in UPDATE"),
        ("delete from t where nope", "42703", 'column "nope" does not exist'),
        ("delete from t returning sum(a)", "42803", "aggregate functions are not allowed in RETURNING"),
    ],
)
def test_errors_of_writes_equal_those_of_postgresql(
    sql: str, state: str, message: str, connection: psycopg.Connection
) -> None:
    with pytest.raises(PgError) as ours:
        write(sql)
    assert (ours.value.sqlstate, ours.value.message) == (state, message)
    with pytest.raises(psycopg.Error) as theirs:
        connection.execute(sql.encode())
    diagnosis = theirs.value.diag
    assert (diagnosis.sqlstate, diagnosis.message_primary) == (state, message)
    if diagnosis.statement_position:
        assert ours.value.position == int(diagnosis.statement_position)


@pytest.mark.parametrize("make", [lambda n: "(" * n + "1" + ")" * n, lambda n: " + ".join(["a"] * n)])
def test_nesting_beyond_the_limit_is_an_error(make: Callable[[int], str]) -> None:
    """The outcome is a plan or a PgError."""
    with suppress(PgError):
        assert plan(f"select {make(3_000)} from t").columns


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("SELECT * FROM tumble(people, born, INTERVAL '1 day')", "GROUP BY date_bin(size, column, origin)"),
        ("SELECT * FROM HOP(people, born, '1 day', '2 days')", "Join the table with generate_series()"),
        ("select case when true then array[1] else array[[2]] end", "Declare the type as integer[]: "),
        ("select array_agg(array[row(a)]) from t", "jsonb_agg(array)"),
        ("select array_position('{{1},{2}}'::int[], 2)", "ARRAY(SELECT unnest(array))"),
        ("select percentile_disc(0.5) within group (order by array[[a]]) from t", "unnest()"),
        ("select '1'::money", "numeric(12, 2)"),
        ("select '[1,2)'::int4range", "two columns"),
        ("select ctid from t", "a key of the table"),
        ("select a from t order by row('1'::jsonb)", "Sort by its columns."),
        ("select distinct array[row('1 day'::interval)] from t", "Group by its columns."),
        ("select jsonb_each('{}')", "Call it in FROM"),
        ("select t.a from t left join t u on (select u.a = t.a)", "in a subquery in FROM"),
        ("select (select a from t for update skip locked)", "in a SELECT of its own"),
        ("select a, lag(a, a) over (order by a) from t", "as a literal"),
        ("select '[2:3]={1,2}'::int[]", "subscripts begin at 1"),
    ],
)
def test_hints_of_refusals_say_what_to_write_instead(sql: str, hint: str) -> None:
    with pytest.raises(PgError) as raised:
        plan(sql)
    assert raised.value.sqlstate is SqlState.FEATURE_NOT_SUPPORTED
    assert hint in (raised.value.hint or "")
