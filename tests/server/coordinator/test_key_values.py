"""The values of computed keys: few rows are computed in the server, and many by Spark, with the same results."""

from __future__ import annotations

import asyncio
from collections import Counter
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from catalog.objects.columns import Column
from protocol.pgwire.types import parse_type
from server.coordinator.key_codes import KeyLayout
from server.coordinator.key_indexes import EnforcedKey
from server.coordinator.key_values import FEW_ROWS, cheap_key_tables, key_tables, row_changes
from server.spark.engine import SparkEngine
from server.sql.computed_keys import ComputedKey, computed_key

COLUMNS = {
    "t": ("text", ["", "a", "A ", "Straße", "İI", "ΑΣ σς", "ǅ", "ﬁ", "é", "12", "x" * 9, "😀Z", None]),
    "v": ("varchar(9)", ["", "b", " B", "Bb", "12", None]),
    "c": ("char(3)", ["b  ", "B  ", "12 ", "   ", None]),
    "i": ("int4", [0, 1, -1, 2, 7, -8, 12, None]),
    "b": ("int8", [0, 1, -3, 12, 10**12, -(10**12), None]),
    "n": ("numeric(8,2)", [Decimal("0"), Decimal("1.50"), Decimal("-2.25"), Decimal("12"), None]),
    "d": ("date", [0, -1, 19_000, 12, None]),
    "s": ("timestamp", [0, -1, 1_700_000_000_123_456, None]),
    "f": ("bool", [True, False, None]),
}
LEAVES = {
    "text": ("t", "v", "'x'", "''"),
    "int": ("i", "b", "3", "-1"),
    "bool": ("f", "true"),
    "numeric": ("n", "1.25"),
    "date": ("d", "date '2024-02-29'"),
    "timestamp": ("s", "timestamp '2000-01-01 01:02:03'"),
}
FORMS = {
    "text": (
        *("lower({text})", "upper({text})", "btrim({text})", "ltrim({text})", "rtrim({text})", "left({text}, 2)"),
        *("right({text}, 2)", "substr({text}, 2)", "({text} || {text})", "md5({text})", "({int})::text"),
        *("({numeric})::text", "({date})::text", "({bool})::text", "({text})::varchar(2)", "concat({text}, {int})"),
        *("(c)::text", "(c || {text})", "lower(c)"),
    ),
    "int": (
        *("({int} + 1)", "({int} - i)", "({int} * 2)", "({int} / 3)", "({int} % 3)", "abs({int})", "length({text})"),
        *(
            "octet_length({text})",
            "position('a' IN {text})",
            "({date} - date '2000-01-01')",
            "(- {int})",
            "({int} & 3)",
        ),
        *("({numeric})::bigint", "({bool})::int", "({int} + 0::bigint)", "sign({int})::int"),
        "extract(year FROM {date})::int",
    ),
    "bool": (
        *(
            "({text} = {text})",
            "({int} < {int})",
            "({numeric} >= {numeric})",
            "({date} <> {date})",
            "({text} < {text})",
        ),
        *("(NOT {bool})", "({bool} AND {bool})", "({bool} OR {bool})", "({text} IS NULL)", "({int} IS NOT NULL)"),
        *(
            "({bool} IS TRUE)",
            "({int} IN (1, 7, NULL))",
            "({text} IN ('a', lower({text})))",
            "starts_with({text}, 'a')",
        ),
        *("(c = 'b')", "(c = {text})"),
    ),
    "numeric": ("({numeric} + {numeric})", "round({numeric})", "abs({numeric})", "({int})::numeric", "(- {numeric})"),
    "date": ("({date} + 1)", "({timestamp})::date", "({date} - 7)"),
    "timestamp": ("({date})::timestamp", "date_trunc('hour', {timestamp})", "({timestamp} + interval '1 day')"),
}
ANY = (
    "coalesce({0}, {0})",
    "nullif({0}, {0})",
    "greatest({0}, {0})",
    "least({0}, {0}, {0})",
    "CASE WHEN {bool} THEN {0} WHEN {bool} THEN {0} END",
    "CASE {int} WHEN 1 THEN {0} ELSE {0} END",
)


class Maker:
    def __init__(self, draw: Random) -> None:
        self.draw = draw

    def expression(self, type: str, depth: int) -> str:
        """An expression with operators; a column or a literal if `depth` is 0."""
        if depth == 0:
            return self.draw.choice(LEAVES[type])
        form = self.draw.choice(FORMS[type] if self.draw.random() < 0.6 else ANY)
        made = ""
        while form:  # each operand is another one
            before, opened, rest = form.partition("{")
            name, _, form = rest.partition("}")
            made += before + (self._operand(type if name == "0" else name, depth) if opened else "")
        return made

    def _operand(self, type: str, depth: int) -> str:
        return self.expression(type, self.draw.randrange(depth))


def computed(expressions: list[str], condition: str = "") -> ComputedKey:
    columns = tuple(Column(name, type, nullable=True) for name, (type, _) in COLUMNS.items())
    found = computed_key(columns, tuple(f"({expression})" for expression in expressions), condition)
    assert found is not None, expressions
    return found


def key_of(expressions: list[str], condition: str = "") -> EnforcedKey:
    computed_values = computed(expressions, condition)
    types = tuple(type.arrow for type in computed_values.types)
    layout = KeyLayout(tuple(range(len(types))), types, nulls_distinct=False)
    return EnforcedKey("k", "k", (), computed_values.types, layout, False, frozenset(), None, computed_values)


def rows_of(draw: Random) -> list[tuple[Any, ...]]:
    """More rows than the server computes itself."""
    return [tuple(draw.choice(values) for _, values in COLUMNS.values()) for _ in range(FEW_ROWS + 100)]


def table_of(rows: list[tuple[Any, ...]]) -> pa.Table:
    types = [parse_type(type).arrow for type, _ in COLUMNS.values()]
    return pa.table(
        [pa.array(cells, type) for cells, type in zip(zip(*rows, strict=True), types, strict=True)], names=[*COLUMNS]
    )


def parts(table: pa.Table) -> list[pa.Table]:
    return [table.slice(start, FEW_ROWS) for start in range(0, table.num_rows, FEW_ROWS)]


@pytest.mark.parametrize("seed", range(4))
def test_few_rows_have_the_values_that_spark_computes(engine: SparkEngine, seed: int) -> None:
    draw = Random(seed)
    make = Maker(draw)
    drawn = [make.expression(draw.choice([*FORMS]), draw.choice((1, 2, 2, 3))) for _ in range(60)]
    cheap = [expression for expression in drawn if computed([expression]).is_cheap]
    assert len(cheap) > 50, set(drawn) - set(cheap)
    key, rows = key_of(cheap), rows_of(draw)
    (spark,) = asyncio.run(key_tables(engine, key, [table_of(rows)]))
    found = cheap_key_tables(key, parts(table_of(rows)))
    assert found is not None
    own = pa.concat_tables(found)
    for number, expression in enumerate(cheap):
        ours, theirs = own.column(number).to_pylist(), spark.column(number).cast(own.column(number).type).to_pylist()
        different = [(row, a, b) for row, a, b in zip(rows, ours, theirs, strict=True) if a != b]
        assert not different, (expression, different[0])


@pytest.mark.parametrize("expressions", [["lower(t)"], ["coalesce(i, -1)", "d"], ["n + 1"], ["s", "upper(v)"]])
def test_the_codes_of_few_rows_are_those_of_their_values(expressions: list[str]) -> None:
    key, rows = key_of(expressions, "f IS NOT FALSE"), rows_of(Random(1))[:FEW_ROWS]
    tables = cheap_key_tables(key, [table_of(rows)])
    assert tables is not None
    expected = Counter(key.layout.codes(tables[0]).to_list())
    assert len(expected) > 3
    assert row_changes(key, rows) == expected
    assert sum(expected.values()) == sum(row[[*COLUMNS].index("f")] is not False for row in rows)
