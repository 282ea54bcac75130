"""Planning any text gives a plan or an SQL error in bounded time: truncated, damaged, deeply nested and long texts."""

from __future__ import annotations

import re
import time
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.pgwire.errors import PgError, SqlState
from server.sql.grammar.lexer import words
from server.sql.grammar.parse import parse
from server.sql.grammar.statements.queries import Select
from server.sql.grammar.statements.writes import Delete, Insert, Update
from server.sql.plan import PlanContext, plan_query
from server.sql.writes.statements import plan_delete, plan_insert, plan_update
from tests.examples import examples
from tests.sql import ours

SCRIPTS = Path(__file__).parents[2] / "sql"
SECONDS_MAX = 10.0  # CPU time of any statement; superlinear planning would take minutes


@cache
def statements() -> list[str]:
    texts = [path.read_text() for path in sorted(SCRIPTS.glob("*.sql")) if path.name != "tables.sql"]
    lines = "\n".join(line for text in texts for line in text.splitlines() if not line.startswith("--"))
    return [statement.strip() for statement in lines.split(";\n") if statement.strip()]


@cache
def context() -> PlanContext:
    return PlanContext(ours.state(), "materialize", ("public",), "tide")


def outcome(text: str) -> SqlState | None:
    """Returns the SQLSTATE of the error of planning a text, or None if there is a plan. No exception but PgError is
    allowed.
    """
    begun = time.thread_time()
    try:
        for statement in parse(text):
            match statement:
                case Select():
                    plan_query(statement.query, context())
                case Insert():
                    plan_insert(statement, context())
                case Update():
                    plan_update(statement, context())
                case Delete():
                    plan_delete(statement, context())
        state = None
    except PgError as error:
        state = error.sqlstate
    taken = time.thread_time() - begun
    assert taken < SECONDS_MAX, f"{taken:.1f} s: {text[:200]}"
    return state


@examples(300)
@given(st.data())
def test_truncated_statements(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(statements()))
    start = data.draw(st.integers(0, len(text)))
    outcome(text[start:])
    outcome(text[:start])


_WORDS = st.sampled_from(
    sorted(
        words(
            """( ) , . ; * + - / = < > <> :: [ ] ' " $$ $1 1 1.5 'x' null not and or in any all exists select from where
            group by having order limit offset union with recursive as lateral join left full using on case when end
            array row values unnest generate_series rollup grouping over window partition distinct people id name depts
            nums"""
        )
    )
)


@examples(300)
@given(st.data())
def test_statements_with_replaced_words(data: st.DataObject) -> None:
    tokens = re.findall(r"\w+|\s+|[^\w\s]", data.draw(st.sampled_from(statements())))
    for _ in range(data.draw(st.integers(1, 4))):
        index = data.draw(st.integers(0, len(tokens) - 1))
        tokens[index] = data.draw(st.one_of(_WORDS, st.just(""), st.sampled_from(tokens)))
    outcome("".join(tokens))


@examples(300)
@given(st.lists(_WORDS, max_size=25))
def test_random_sequences_of_words(tokens: list[str]) -> None:
    outcome(" ".join(tokens))


@examples(300)
@given(st.text(max_size=60), st.sampled_from(["{}", "select {}", "select '{}'", 'select "{}"', "select 1 as {}"]))
def test_random_characters(text: str, template: str) -> None:
    outcome(template.replace("{}", text))


DEEP = 1_000
_DEEP = {
    "brackets": "select " + "(" * DEEP + "1" + ")" * DEEP,
    "additions": "select " + "1 + " * DEEP + "1",
    "negations": "select " + "not " * DEEP + "true",
    "minus": "select " + "- " * DEEP + "1",
    "calls": "select " + "abs(" * DEEP + "1" + ")" * DEEP,
    "casts": "select 1" + "::int" * DEEP,
    "cases": "select " + "case when true then " * DEEP + "1" + " end" * DEEP,
    "arrays": "select " + "array[" * DEEP + "1" + "]" * DEEP,
    "subqueries": "select " + "(select " * DEEP + "1" + ")" * DEEP,
    "from": "select 1 from " + "(select 1 from " * DEEP + "people" + ") x" * DEEP,
    "exists": "select " + "exists (select " * DEEP + "1" + ")" * DEEP,
    "unions": "select 1" + " union all select 1" * DEEP,
    "ands": "select true" + " and true" * DEEP,
    "ors": "select id from people where id = 1" + " or id = 1" * DEEP,
    "concatenations": "select 'a'" + " || 'b'" * DEEP,
    "joins": "select 1 from people p0" + "".join(f" cross join people p{i + 1}" for i in range(100)),
    "with": "with " + ", ".join(f"c{i} as (select {i} as x)" for i in range(DEEP)) + " select 1",
    "laterals": "select 1 from people p" + "".join(f", lateral (select p.id) l{i}" for i in range(20)),
    "nullifs": "select " + "nullif(" * 40 + "id" + ", 1)" * 40 + " from people",
    "simple cases": "select " + "case " * 40 + "id" + " when 1 then 2 when 3 then 4 end" * 40 + " from people",
    "lefts": "select " + "left(" * 30 + "name" + ", 2)" * 30 + " from people",
    "domains": "select 'x'" + "::code" * 40,
    "betweens": "select " + "(" * 40 + "id" + " between 1 and 2)::int" * 40 + " from people",
    "correlated": "select 1 from people p where "
    + "".join(f"exists (select 1 from people p{i} where p{i}.id = p.id and " for i in range(12)) + "true" + ")" * 12,
}  # fmt: skip


@pytest.mark.parametrize("text", _DEEP.values(), ids=_DEEP.keys())
def test_deep_nesting(text: str) -> None:
    assert outcome(text) in (None, SqlState.STATEMENT_TOO_COMPLEX, SqlState.FEATURE_NOT_SUPPORTED)


@pytest.mark.sql
def test_long_lists_and_long_texts() -> None:
    assert outcome(f"select id from people where id in ({', '.join(map(str, range(10_000)))})") is None
    assert outcome(f"select id from people where id not in ({', '.join(['null'] * 10_000)})") is None
    assert outcome(f"select '{'x' * 1_000_000}'") is None
    assert outcome(f"select 1 /* {'x' * 1_000_000} */") is None
    assert outcome(f"select {'9' * 100_000}") in (None, SqlState.NUMERIC_VALUE_OUT_OF_RANGE)
    assert outcome("(" * 200_000) in (SqlState.SYNTAX_ERROR, SqlState.STATEMENT_TOO_COMPLEX)
    assert outcome("select 1;" * 5_000) is None
    assert outcome(f"select {', '.join(['id'] * 1_600)} from people") is None
    assert outcome(f"values {', '.join(['(1)'] * 10_000)}") is None


def test_parameters_with_many_digits() -> None:
    for digits in ("65536", "9" * 100, "9" * 5_000, "0" * 50 + "99999999999999999999"):
        assert outcome(f"select ${digits}") == SqlState.UNDEFINED_PARAMETER
        assert outcome(f"select id from people where id = ${digits}") == SqlState.UNDEFINED_PARAMETER


def test_nul_bytes_and_long_names() -> None:
    assert outcome("select 'a\0b'") is not None
    assert outcome("select a\0b from people") is not None
    name = "n" * 63
    assert outcome(f"select {name}x from (select 1 as {name}y) t") is None  # names are truncated to 63 bytes
    assert outcome(f"select 1 as {'ü' * 100}") is None


@pytest.mark.parametrize(
    "text",
    [
        *(
            "'1 day'::interval(people)",
            "'2020-01-01'::timestamp(1.5)",
            "time(1, 2) '10:00'",
            "interval '1' second(1.5)",
        ),
        *("current_timestamp('x')", "localtime(people)", "localtimestamp(-1)", "grouping()"),
        "sum(id) over (order by id rows between 1 preceding and 1) from people",
    ],
)
def test_arguments_that_must_be_integers_or_exist(text: str) -> None:
    assert outcome(f"select {text}") == SqlState.SYNTAX_ERROR


def test_numbers_and_functions_that_have_no_type() -> None:
    assert outcome(f"select -{'9' * 3_000}::int") == SqlState.NUMERIC_VALUE_OUT_OF_RANGE
    assert outcome("select * from row(1, 2)") == SqlState.FEATURE_NOT_SUPPORTED
