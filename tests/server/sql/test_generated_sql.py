"""Random SQL on PostgreSQL and on Tidewire: both give the same multisets of rows and the same SQLSTATEs.

Typed expressions are generated from the function table: a function with the wanted result type, whose arguments are
columns, literals or further expressions. `random_queries` generates the queries. An example has many expressions or
queries, because a Spark statement costs the same with one expression as with twenty.

These differences are accepted: statements that Tidewire refuses (0A000), numbers of more than 38 digits (22003 where a
numeric is involved), and an error of class 22 on one side only if SQL does not define whether the failing part is
evaluated.

TIDEWIRE_EXAMPLES=<factor> multiplies the number of examples. TIDEWIRE_SEED=<number> sets the seed, which a failure
reports.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from protocol.pgwire.errors import PgError
from protocol.pgwire.types import JSON, JSONB, PgType
from server.spark.engine import SparkEngine
from server.sql.expressions import walk
from server.sql.functions.table import FUNCTIONS, OPERATORS, Function, Kind
from server.sql.grammar.lexer import words
from server.sql.plan import QueryPlan
from tests.server.sql.random_queries import Maker
from tests.sql import ours
from tests.sql.answers import Answer, Cell, Column
from tests.sql.compare import columns_difference, difference
from tests.sql.oracle import Oracle
from tests.sql.statements import Statement

pytestmark = pytest.mark.sql

FACTOR = int(os.environ.get("TIDEWIRE_EXAMPLES", "1"))
SEED = int(os.environ.get("TIDEWIRE_SEED", "1"))
EXPRESSIONS, QUERIES = 60, 24  # per example
FAILING = 8  # the maximum number of expressions per example that PostgreSQL refuses: each needs its own statement
COLUMNS = 20  # expressions per statement
DEPTH = 3
SLOTS = 4  # statements that run concurrently on the engine
TIMEOUT_S = 120.0  # a statement that takes longer is reported as not ending

Random = random.Random

# -- expressions ----------------------------------------------------------------------------------------------------

_COLUMNS: dict[str, Sequence[str]] = {
    "bool": ("bo", "(s = v)"), "int2": ("i2",), "int4": ("i4", "id"), "int8": ("i8",),
    "numeric": ("n", "nb"), "float4": ("f4",), "float8": ("f8",), "text": ("s",), "varchar": ("v",), "bpchar": ("c",),
    "bytea": ("b",), "uuid": ("u",), "date": ("d",), "time": ("t",), "timestamp": ("ts",), "timestamptz": ("tz",),
    "interval": ("iv",), "_int4": ("ia",), "_text": ("ta",), "_numeric": ("na",), "_float8": ("fa",), "_date": ("da",),
    "_bool": ("ba",), "json": ("j",), "jsonb": ("jb",),
    "inet": ("('10.0.0.0/8'::inet + id)", "('::'::inet + id)"), "cidr": ("network('10.0.0.0/30'::inet + id)",),
    "macaddr": ("substr(md5(s), 1, 12)::macaddr",), "macaddr8": ("substr(md5(s), 1, 16)::macaddr8",),
}  # fmt: skip
_LITERALS: dict[str, Sequence[str]] = {
    "bool": ("true", "false"),
    "int2": ("0::int2", "3::int2", "(-7)::int2"),
    "int4": ("0", "1", "2", "-3", "42"),
    "int8": ("0::int8", "5::int8", "(-12345678901)::int8"),
    "numeric": ("0.0", "1.5", "-2.25", "100.001", "0.5"),
    "float4": ("0.5::float4", "(-2.25)::float4"),
    "float8": ("0.5::float8", "(-3)::float8", "1e10::float8", "'NaN'::float8"),
    "text": ("''", "'a'", "'abc'", "'ß日本'", "'  x '", "'1'", "'A,b,,c'", "'a%'"),
    "varchar": ("'abc'::varchar", "''::varchar"),
    "bpchar": ("'ab '::char(4)",),
    "bytea": (r"'\x'::bytea", r"'\x00ff61'::bytea"),
    "uuid": ("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid",),
    "inet": ("'10.0.0.1'::inet", "'10.1.2.3/8'::inet", "'::1'::inet"),
    "cidr": ("'10/8'::cidr", "'2001:db8::/32'::cidr"),
    "macaddr": ("'08002b010203'::macaddr",), "macaddr8": ("'08002b010203'::macaddr8",),
    "date": ("'2024-02-29'::date", "'1969-12-31'::date"),
    "time": ("'12:34:56.7'::time", "'00:00'::time"),
    "timestamp": ("'2024-02-29 12:34:56.789'::timestamp", "'1969-12-31 23:59:59'::timestamp"),
    "timestamptz": ("'2024-02-29 12:34:56.789+03'::timestamptz", "'1969-12-31 23:59:59Z'::timestamptz"),
    "interval": ("'1 day 02:03:04.5'::interval", "'-1 mon 3 days'::interval", "'1 year'::interval"),
    "_int4": ("'{1,2,NULL}'::int4[]", "'{}'::int4[]"), "_text": ("'{a,NULL,\"x y\"}'::text[]",),
    "_numeric": ("'{1.5,NULL}'::numeric[]",), "_float8": ("'{0.5,NaN}'::float8[]",),
    "_date": ("'{2024-02-29}'::date[]",), "_bool": ("'{t,NULL,f}'::bool[]",),
    "json": ("'{\"a\":[1,2]}'::json",), "jsonb": ("'{\"a\":[1,{\"b\":null}]}'::jsonb", "'[3,\"x\"]'::jsonb"),
}  # fmt: skip
_FIELDS = ("'year'", "'month'", "'day'", "'hour'", "'minute'", "'second'", "'epoch'", "'dow'", "'week'", "'quarter'")
_FORMATS = ("'YYYY-MM-DD'", "'HH24:MI:SS.US'", "'Day, DDth Mon'", "'999.99'", "'FM000'")
_PATTERNS = ("'a'", "'^[a-c]+'", "'(b|c)'", r"'\d+'", "'.*'", "'B'")
_PATHS = ("'$'", "'$.a[*]'", "'strict $.b'", "'$.a[*] ? (@ > 1)'", "'$[*].type()'", "'exists($.a)'", "'$.a[0] + 1'")
_CODES = ("'hex'", "'base64'", "'escape'")
_LIKES = ("'%b%'", "'a_c'", "'%'", "''", "'A%'")
# Arguments for which most values are invalid: the functions, the argument's index, the values.
_SPECIAL: Sequence[tuple[str, int, Sequence[str]]] = (
    ("extract date_part date_trunc", 0, _FIELDS),
    ("to_char to_date to_timestamp", 1, _FORMATS),
    ("to_number", 1, ("'999.99'", "'S9,999'")),
    ("encode decode", 1, _CODES),
    ("~ ~* !~ !~* regexp_like regexp_count regexp_replace regexp_match regexp_substr regexp_instr", 1, _PATTERNS),
    ("regexp_split_to_array", 1, _PATTERNS),
    ("~~ !~~ ~~* !~~*", 1, _LIKES),
    ("jsonb_path_exists jsonb_path_match jsonb_path_query_array jsonb_path_query_first @? @@", 1, _PATHS),
    ("jsonb_path_exists_tz jsonb_path_match_tz jsonb_path_query_array_tz jsonb_path_query_first_tz", 1, _PATHS),
    ("timezone", 0, ("'UTC'", "'America/New_York'", "'+03'")),
    ("make_date", 0, ("2024", "1970")),
    ("make_date", 1, ("2", "12", "13")),
    ("make_date", 2, ("1", "29", "31")),
    ("format", 0, ("'%s'", "'%I|%L|%%'", "'%1$s %1$s'")),
    ("normalize is_normalized", 1, ("'NFC'", "'NFKD'")),
)
_GIVEN = {(name, place): values for names, place, values in _SPECIAL for name in names.split()}
# Functions whose results may differ in the last digits. They occur only at the top of an expression: further down, the
# difference could change the result arbitrarily.
_ROUNDED = words(
    "/ ^ |/ ||/ sqrt cbrt exp ln log log10 power pow sin cos tan cot asin acos atan atan2 sinh cosh tanh asinh acosh "
    "atanh sind cosd tand cotd asind acosd atand atan2d degrees radians erf erfc width_bucket"
)
_BINDINGS = ("int4", "text", "numeric", "date")  # the types that replace a pseudo-type
_SMALL = ("0", "1", "2", "3", "-1", "7")
_LEFT_OUT = words("""
    random random_normal setseed timeofday pg_sleep to_ascii
    time timestamp interval
""")  # the last three are keywords, which would need quotes as function names


def _computed() -> dict[str, list[tuple[Function, bool, tuple[str, ...]]]]:
    """Returns, by result type: the function, whether it is an operator, and the types of its arguments."""
    found: dict[str, list[tuple[Function, bool, tuple[str, ...]]]] = {}
    for is_operator, table in ((False, FUNCTIONS), (True, OPERATORS)):
        for row in (row for rows in table.values() for row in rows):
            if row.kind is not Kind.SCALAR or (row.spark is None and row.python is None) or row.name in _LEFT_OUT:
                continue
            if is_operator and len(row.arguments) > 2:
                continue
            for result, arguments in _bound(row):
                if result in _COLUMNS and all(argument in _COLUMNS for argument in arguments):
                    found.setdefault(result, []).append((row, is_operator, arguments))
    return found


def _bound(row: Function) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields the type names of result and arguments, with pseudo-types replaced."""
    names = [type.name for type in (row.result, *row.arguments)]
    if not any(name.startswith("any") for name in names):
        yield names[0], tuple(names[1:])
        return
    for element in _BINDINGS:
        bound = [f"_{element}" if n.endswith("array") and n.startswith("any") else n for n in names]
        bound = [element if n.startswith("any") else n for n in bound]
        yield bound[0], tuple(bound[1:])


_BY_RESULT = _computed()


def expression(draw: Random, type: str, depth: int = DEPTH) -> str:
    """Returns an SQL expression of this type."""
    rows = _BY_RESULT.get(type, [])
    choice = draw.random()
    if depth == 0 or not rows or choice < 0.15:
        return _leaf(draw, type)
    if choice < 0.22:
        condition, one, other = (expression(draw, t, depth - 1) for t in ("bool", type, type))
        return draw.choice((f"CASE WHEN {condition} THEN {one} ELSE {other} END", f"coalesce({one}, {other})"))
    names = sorted({row.name for row, _, _ in rows})  # choose a name first, because some names have many functions
    name = draw.choice(names)
    row, is_operator, arguments = draw.choice([entry for entry in rows if entry[0].name == name])
    if row.name in _ROUNDED and depth < DEPTH:
        return _leaf(draw, type)
    return _call(draw, row, arguments, depth, is_operator=is_operator)


def _leaf(draw: Random, type: str) -> str:
    choice = draw.random()
    if choice < 0.65:
        return draw.choice(_COLUMNS[type])
    return draw.choice(_LITERALS[type])


def _call(draw: Random, row: Function, types: tuple[str, ...], depth: int, *, is_operator: bool) -> str:
    if row.variadic and types:
        types += (types[-1],) * draw.randrange(3)
    arguments = []
    for place, type in enumerate(types):
        given = _GIVEN.get((row.name, place))
        sized = not is_operator and type in ("int4", "int8") and "text" in (row.result.name, *types)
        if given is not None:
            arguments.append(draw.choice(given))
        elif sized:  # lengths and counts, kept small so that results are small
            arguments.append(draw.choice(_SMALL))
        else:
            arguments.append(expression(draw, type, depth - 1))
    if is_operator:
        return f"({row.name} {arguments[0]})" if len(arguments) == 1 else f"({arguments[0]} {row.name} {arguments[1]})"
    match row.name:
        case "position":
            return f"position(({arguments[0]}) IN ({arguments[1]}))"
        case "overlaps":
            return "(({}, {}) OVERLAPS ({}, {}))".format(*arguments)
        case "extract":
            return f"extract({arguments[0]} FROM {arguments[1]})"
        case "normalize" if len(arguments) == 2:  # the normalization form is a keyword
            return f"normalize({arguments[0]}, {arguments[1].strip(chr(39))})"
    return f"{row.name}({', '.join(arguments)})"


# -- both servers ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Count:
    """Numbers of generated statements by outcome."""

    compared: int = 0
    refused: int = 0
    open: int = 0  # SQL does not define whether they fail


@pytest.fixture(scope="module")
def oracle(postgres: str) -> Iterator[Oracle]:
    with Oracle(postgres) as oracle:
        yield oracle


def _statement(sql: str) -> Statement:
    return Statement("generated", sql)


def _planned(sql: str) -> QueryPlan | Answer:
    try:
        return ours.plan(_statement(sql))
    except PgError as error:
        return ours.failed(error)


async def _ours(plan: QueryPlan, sql: str, engine: SparkEngine, slots: asyncio.Semaphore) -> Answer:
    if plan.constant is not None:
        return ours.constant_answer(plan, _statement(sql))
    try:
        async with slots, asyncio.timeout(TIMEOUT_S):
            return await ours.answer(plan, _statement(sql), engine)
    except TimeoutError:
        return Answer(sqlstate="57014", message=f"not done after {TIMEOUT_S:.0f} s")


def _has_numeric(plan: QueryPlan) -> bool:
    types = (type for node in walk(plan.relation) if isinstance(type := getattr(node, "type", None), PgType))
    return any((type.element or type).name == "numeric" for type in types)


def _without_zeros(answer: Answer) -> Answer:
    """JSON without the trailing zeros of its numbers, of which a numeric without a declared scale may lack some."""
    number = re.compile(r"(?<=\d)(?:\.0+|(\.\d*?[1-9])0+)(?!\d)")

    def plain(column: Column, cell: Cell) -> Cell:
        return number.sub(r"\1", cell) if cell is not None and column.oid in (JSON.oid, JSONB.oid) else cell

    rows = [tuple(plain(*pair) for pair in zip(answer.columns, row, strict=True)) for row in answer.rows]
    return replace(answer, rows=tuple(rows))


def _is_open(sql: str, expected: Answer, actual: Answer, plan: QueryPlan | None) -> bool:
    """Whether SQL leaves open if there is an error, so that an error on one side only is accepted."""
    if actual.sqlstate == "22003" and expected.sqlstate is None and plan is not None and _has_numeric(plan):
        return True
    answers = (expected, actual)
    lazy = any(word in sql for word in (" WHERE ", "CASE ", "coalesce(", " AND ", " OR "))
    # It also leaves open which of several errors is raised.
    return all(map(_depends_on_values, answers)) and (lazy or all(answer.sqlstate for answer in answers))


def _depends_on_values(answer: Answer) -> bool:
    """Whether there is no error, or one that other values would not raise. unistr() raises 42601 for values."""
    state = answer.sqlstate
    return state is None or state.startswith("22") or "invalid Unicode" in (answer.message or "")


def _judge(sql: str, expected: Answer, actual: Answer, plan: QueryPlan | None, count: Count) -> str | None:
    """Returns the difference, or None if there is none or it is accepted."""
    if actual.sqlstate == "0A000":
        count.refused += 1
        return None
    if expected.sqlstate == "42725" and "function pg_size_pretty(" in (expected.message or ""):
        count.open += 1  # Tidewire accepts the call, see docs/sql-differences.md
        return None
    fault = difference(sql, expected, actual)
    if fault is not None and plan is not None and _has_numeric(plan):
        fault = difference(sql, _without_zeros(expected), _without_zeros(actual))
    if fault is not None and (expected.sqlstate or actual.sqlstate) and _is_open(sql, expected, actual, plan):
        count.open += 1
        return None
    count.compared += 1
    return None if fault is None else f"{sql}\n    {fault}"


async def compare_each(sqls: Sequence[str], oracle: Oracle, engine: SparkEngine, count: Count) -> list[str]:
    """Returns the differences of statements. Up to SLOTS statements run concurrently."""

    async def one(sql: str) -> str | None:
        expected = oracle.answer(_statement(sql))
        plan = _planned(sql)
        if isinstance(plan, Answer):
            return _judge(sql, expected, plan, None, count)
        return _judge(sql, expected, await _ours(plan, sql, engine, slots), plan, count)

    slots = asyncio.Semaphore(SLOTS)
    found = await asyncio.gather(*map(one, sqls))
    return [fault for fault in found if fault is not None]


async def compare_expressions(
    expressions: Sequence[str], condition: str, oracle: Oracle, engine: SparkEngine, count: Count
) -> list[str]:
    """Returns the differences of expressions. Those that PostgreSQL accepts share statements; each other one has its
    own.
    """

    def select(*chosen: str) -> str:
        return f"SELECT id, {', '.join(chosen)} FROM wide{condition}"

    together: list[str] = []
    alone: list[str] = []
    faults: list[str | None] = []
    for text in expressions:
        expected, plan = oracle.answer(_statement(select(text))), _planned(select(text))
        if isinstance(plan, Answer):
            faults.append(_judge(select(text), expected, plan, None, count))
        elif expected.sqlstate is not None:
            if len(alone) < FAILING:
                alone.append(select(text))
        elif fault := columns_difference(expected.columns, ours.columns(plan)):
            faults.append(f"{select(text)}\n    {fault}")
        else:
            together.append(text)
    slots = asyncio.Semaphore(SLOTS)
    groups = [together[i : i + COLUMNS] for i in range(0, len(together), COLUMNS)]

    async def one(group: list[str]) -> None:
        sql = select(*group)
        plan = _planned(sql)
        assert not isinstance(plan, Answer), f"{sql}: {plan}"
        actual = await _ours(plan, sql, engine, slots)
        if actual.sqlstate is not None or difference(sql, oracle.answer(_statement(sql)), actual) is not None:
            alone.extend(map(select, group))
        else:
            count.compared += len(group)

    await asyncio.gather(*map(one, groups))
    faults += await compare_each(alone, oracle, engine, count)
    return [fault for fault in faults if fault is not None]


def _report(faults: Sequence[str], count: Count) -> None:
    assert not faults, f"{len(faults)} differ with TIDEWIRE_SEED={SEED} ({count})\n" + "\n".join(faults)
    assert count.compared > count.refused, count


def _bounded(examples: int) -> settings:
    """Disables shrinking, because Spark is too slow for it."""
    return settings(
        max_examples=examples * FACTOR,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


def test_random_expressions_agree_with_postgresql(oracle: Oracle, engine: SparkEngine) -> None:
    count, faults = Count(), list[str]()

    @seed(SEED)
    @_bounded(4)
    @given(st.integers(0, 2**32))
    def check(number: int) -> None:
        draw = Random(number)
        types = [draw.choice(sorted(_BY_RESULT)) for _ in range(EXPRESSIONS)]
        condition = draw.choice(("", " WHERE id NOT IN (4, 5)", " WHERE id IN (2, 6, 7)"))
        expressions = [expression(draw, type) for type in types]
        faults.extend(asyncio.run(compare_expressions(expressions, condition, oracle, engine, count)))

    check()
    _report(faults, count)


def test_random_queries_agree_with_postgresql(oracle: Oracle, engine: SparkEngine) -> None:
    count, faults = Count(), list[str]()

    @seed(SEED)
    @_bounded(4)
    @given(st.integers(0, 2**32))
    def check(number: int) -> None:
        draw = Random(number)
        faults.extend(asyncio.run(compare_each([Maker(draw).query() for _ in range(QUERIES)], oracle, engine, count)))

    check()
    _report(faults, count)
