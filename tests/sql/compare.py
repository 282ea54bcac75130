"""Comparison of two answers.

Names, type OIDs and text forms must be equal byte for byte. Rows are compared as a multiset. If the statement has ORDER
BY, they are compared as a list, as far as ORDER BY determines their order. There are two exceptions. A numeric without
declared precision is compared as a value; if it has at least sixteen digits, one of the two may be rounded to the
digits of the other. A computed float is compared to twelve digits (float4: six). Errors are equal if their SQLSTATEs
are.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal, localcontext

from sqlglot import exp

from protocol.pgwire.errors import PgError
from protocol.pgwire.types import BY_OID, PgType
from server.sql.grammar.parse import parse_query
from tests.sql.answers import Answer, Cell, Column

_DIGITS = 16  # the least number of digits of a quotient in PostgreSQL
_CLOSE = {"float4": 1e-6, "float8": 1e-12}

Row = Sequence[Cell]


def difference(sql: str, expected: Answer, actual: Answer) -> str | None:
    """A description of the difference; None if there is none."""
    if expected.sqlstate is not None or actual.sqlstate is not None:
        same = expected.sqlstate == actual.sqlstate
        return None if same else f"PostgreSQL  {expected}\n    Tidewire    {actual}"
    if fault := columns_difference(expected.columns, actual.columns):
        return fault
    if expected.rows == actual.rows:
        return None
    left, right = _paired(sql, expected, actual)
    same = len(left) == len(right) and all(_same_row(expected.columns, *rows) for rows in zip(left, right, strict=True))
    return None if same else f"PostgreSQL  {_shown(left, right)}\n    Tidewire    {_shown(right, left)}"


def columns_difference(expected: Sequence[Column], actual: Sequence[Column]) -> str | None:
    pairs = [(column.name, column.oid) for column in expected], [(column.name, column.oid) for column in actual]
    return None if pairs[0] == pairs[1] else f"columns: PostgreSQL {pairs[0]}, Tidewire {pairs[1]}"


def _shown(rows: Sequence[Row], others: Sequence[Row]) -> str:
    """The rows that the other side lacks."""
    rest = Counter(map(tuple, rows))
    rest.subtract(map(tuple, others))
    only = [row for row in map(tuple, rows) if rest[row] > 0]
    return str(list(map(tuple, rows)) if len(rows) <= 4 or not only else only[:6]) + f" of {len(rows)} rows"


def _paired(sql: str, expected: Answer, actual: Answer) -> tuple[Sequence[Row], Sequence[Row]]:
    """The rows of both sides, in an order in which equal rows have equal positions."""
    keys = _order_keys(sql, expected.columns)
    if keys is None:
        return sorted_rows(expected), sorted_rows(actual)
    if not keys:  # the keys are not in the output: the order is compared as it is
        return expected.rows, actual.rows
    return _ties_sorted(expected, keys), _ties_sorted(actual, keys)


def sorted_rows(answer: Answer) -> list[Row]:
    return sorted(answer.rows, key=lambda row: [_sort_key(*pair) for pair in zip(answer.columns, row, strict=True)])


def _ties_sorted(answer: Answer, keys: Sequence[int]) -> list[Row]:
    """The rows in their order, where rows with equal keys are sorted."""
    result: list[Row] = []
    group: list[Row] = []
    for row in answer.rows:
        if group and any(row[key] != group[0][key] for key in keys):
            result += sorted_rows(Answer(answer.columns, tuple(map(tuple, group))))
            group = []
        group.append(row)
    return result + sorted_rows(Answer(answer.columns, tuple(map(tuple, group))))


def _order_keys(sql: str, columns: Sequence[Column]) -> list[int] | None:
    """The output columns that the outermost ORDER BY names. [] if it also names something else, None if there is
    none."""
    try:
        tree = parse_query(sql).tree
    except PgError:  # Tidewire refuses the statement; the rows are only printed
        return None
    while isinstance(tree, exp.Subquery):
        tree = tree.this
    order = tree.args.get("order")
    if order is None:
        return None
    names = [column.name for column in columns]
    keys = []
    for ordered in order.expressions:
        key = ordered.this
        if isinstance(key, exp.Literal) and not key.is_string:
            keys.append(int(key.this) - 1)
        elif isinstance(key, exp.Column) and names.count(key.name) == 1:
            keys.append(names.index(key.name))
        else:
            return []
    return keys


# -- values ---------------------------------------------------------------------------------------------------------


def _sort_key(column: Column, cell: Cell) -> tuple[int, float, str]:
    """A key that sorts nearly equal values to neighbouring positions."""
    if cell is None:
        return (2, 0.0, "")
    name = _type(column).name if column.oid in BY_OID else ""
    if name in ("numeric", *_CLOSE) and cell != "NaN":
        return (0, float(f"{float(cell):.5g}"), "" if column.modifier < 0 else cell)
    return (1, 0.0, "" if name.startswith(("_numeric", "_float")) else cell)


def _type(column: Column) -> PgType:
    return BY_OID[column.oid]


def _same_row(columns: Sequence[Column], expected: Row, actual: Row) -> bool:
    return all(map(_same_cell, columns, expected, actual))


def _same_cell(column: Column, expected: Cell, actual: Cell) -> bool:
    if expected == actual:
        return True
    if expected is None or actual is None or column.modifier >= 0 or column.oid not in BY_OID:
        return False
    type = _type(column)
    if type.element is None:
        return _same_value(type.name, expected, actual)
    if type.element.name not in ("numeric", *_CLOSE):
        return False
    left, right = _elements(expected), _elements(actual)
    return len(left) == len(right) and all(
        a == b or (None not in (a, b) and _same_value(type.element.name, str(a), str(b)))
        for a, b in zip(left, right, strict=True)
    )


def _elements(text: str) -> list[Cell]:
    """The elements of an array of numbers, which have no quotes."""
    return [None if item == "NULL" else item for item in text.strip("{}").split(",")]


def _same_value(type: str, expected: str, actual: str) -> bool:
    if type == "numeric":
        return same_numeric(expected, actual)
    if type in _CLOSE:
        left, right = float(expected), float(actual)
        return left != right and math.isclose(left, right, rel_tol=_CLOSE[type])
    return False


def same_numeric(expected: str, actual: str) -> bool:
    """Whether the values are equal, or one is the other one rounded."""
    with localcontext(prec=200):
        left, right = Decimal(expected), Decimal(actual)
        if left == right or not (left.is_finite() and right.is_finite()):
            return left == right or expected == actual
        shorter, longer = sorted((left, right), key=lambda value: -int(value.as_tuple().exponent))
        places = Decimal(1).scaleb(int(shorter.as_tuple().exponent))
        if len(shorter.as_tuple().digits) < _DIGITS and -int(shorter.as_tuple().exponent) < _DIGITS:
            return False
        return shorter == longer.quantize(places, ROUND_HALF_UP)
