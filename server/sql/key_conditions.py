"""Conditions of WHERE that list a column's values: `k = $1`, `k IN (1, 2)`, `k = ANY ($1)`, `k = 1 OR k = 2`.

They select rows without Spark (`direct_scan.py`) or from an index without a scan (`index_lookups.py`), and reduce the
rows that Spark gets (`key_filters`). Only types are supported whose equality is that of their Arrow values after
normalizing -0.0 to 0.0 and all NaNs to one. Spark evaluates all other conditions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal, DecimalException
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from catalog.ids import ObjectId
from protocol.pgwire.types import NETWORK_TYPES, PgType
from server.sql.constant import Bindings
from server.sql.expressions import (
    Array,
    Call,
    Cast,
    Column,
    ColumnRef,
    Expression,
    InList,
    Literal,
    Parameter,
    Quantified,
)
from server.sql.functions import syntax
from server.sql.functions.syntax import conjuncts
from server.sql.functions.table import INTEGERS, OPERATORS
from server.sql.relations import Filter, Scan

Value = Literal | Parameter
Numbers = Callable[[Expression], int | None]
"""Returns the number of the column that an expression refers to; None if it is not a column."""

EXACT = frozenset(("int2", "int4", "int8", "text", "varchar", "uuid", "bool", "date", "timestamp", "timestamptz"))
"""The types whose equality is that of their Arrow values, without normalization."""
Wanted = Sequence[tuple[int, pa.Array]]
"""Selects the rows whose columns with these numbers have one of the values in these arrays (`column_values`)."""

FEW_ROWS = 8  # so many rows are compared faster in Python than by Arrow
SLICES_MAX = 16  # so few rows are selected faster one by one than with a mask

_EXACT_IN_PYTHON = frozenset(type.id for type in (pa.int16(), pa.int32(), pa.int64(), pa.string()))
_SAME = NETWORK_TYPES | {"bool", "date", "time", "timestamp", "timestamptz", "uuid", "bytea", "numeric"}
_TEXTS = frozenset(("text", "varchar"))
_FLOATS = frozenset(("float4", "float8"))
_BITS = {"int2": 15, "int4": 31, "int8": 63}
_EXACT_IN_FLOAT8 = frozenset(("int2", "int4", *_FLOATS))
_FLOAT8_WHOLE_MAX = 1 << 53
_ALL_DIGITS = Context(prec=1_000)
_INTEGERS = frozenset(INTEGERS)


@dataclass(frozen=True, slots=True)
class KeyCondition:
    """The condition that a column is equal to one of `values`, or to an element of one that is an array.

    `column`: the column's number. `type`: its type. `operand`: the compared expression, which is the column or a
    lossless cast of it. `is_cast`: `operand` is a cast that changes values.
    """

    column: int
    type: PgType
    operand: Expression
    values: tuple[Value, ...]
    is_cast: bool = False

    def column_values(self, bindings: Bindings) -> pa.Array:
        """The values in the column's Arrow type, distinct, without NULL and without values the column cannot have."""
        given: list[Any] = []
        for value in self.values:
            scalar = value.value if isinstance(value, Literal) else bindings.parameters[value.index]
            given += scalar if value.type.element is not None and scalar is not None else (scalar,)
        found = (_as_column(one, self.type, self.operand.type) for one in given if one is not None)
        values = pa.array([one for one in found if one is not None], self.type.arrow)
        return values if len(values) == 1 else values.unique()


def selected(table: pa.Table, wanted: Wanted) -> pa.Table:
    """The wanted rows of a table."""
    for number, values in wanted:  # after the first column few rows are left
        if table.num_rows <= FEW_ROWS and values.type.id in _EXACT_IN_PYTHON:
            found = set(values.to_pylist())
            numbers = [at for at, value in enumerate(table.column(number).to_pylist()) if value in found]
            table = at_positions(table, np.array(numbers, np.int64))
            continue
        table = at_positions(table, pc.indices_nonzero(_is_one_of(table.column(number), values)).to_numpy())
    return table


def at_positions(table: pa.Table, positions: NDArray[np.integer[Any]]) -> pa.Table:
    """The rows at these positions. If they are few, they share the table's memory."""
    if len(positions) == table.num_rows:
        return table
    if len(positions) == 1:
        return table.slice(int(positions[0]), 1)
    if len(positions) > SLICES_MAX:
        return table.take(pa.array(positions))
    return pa.concat_tables([table.slice(0, 0), *(table.slice(position, 1) for position in positions.tolist())])


def _is_one_of(column: pa.ChunkedArray, wanted: pa.Array) -> pa.ChunkedArray:
    if len(wanted) == 1 and not pa.types.is_floating(wanted.type):
        return pc.equal(column, wanted[0])
    if pa.types.is_floating(wanted.type):
        nan = pa.scalar(float("nan"), wanted.type)
        column = pc.if_else(pc.is_nan(column), nan, pc.add(column, pa.scalar(0.0, wanted.type)))  # 0.0 for -0.0
    return pc.is_in(column, value_set=wanted)


def key_filters(nodes: Iterable[object]) -> Mapping[ObjectId, tuple[KeyCondition, ...]]:
    """The relations of which a plan needs only rows with given keys: rows that meet all of the conditions.

    `nodes`: those of the plan. A relation that is scanned more than once is omitted.
    """
    scans: dict[ObjectId, int] = {}
    found: dict[ObjectId, tuple[KeyCondition, ...]] = {}
    for node in nodes:
        match node:
            case Scan(id=id):
                scans[id] = scans.get(id, 0) + 1
            case Filter(input=Scan(id=id, columns=columns), predicate=predicate):
                if keys := key_conditions(conjuncts(predicate), numbers_of(columns)):
                    found[id] = tuple(sorted(keys, key=lambda key: key.column))
    return {id: keys for id, keys in found.items() if scans[id] == 1}


def numbers_of(columns: Sequence[Column]) -> Numbers:
    """Maps references to these columns to their positions."""
    numbers = {column.id: number for number, column in enumerate(columns)}
    return lambda expression: numbers.get(expression.column.id) if isinstance(expression, ColumnRef) else None


def key_conditions(conditions: Iterable[Expression], number_of: Numbers) -> list[KeyCondition]:
    """The key conditions among the conditions."""
    found = (_key_condition(condition, number_of) for condition in conditions)
    return [key for key in found if key is not None]


def _key_condition(condition: Expression, number_of: Numbers) -> KeyCondition | None:
    match condition:
        case Call(function=function, arguments=(left, right)) if function in OPERATORS["="]:
            return _equality(left, (right,), number_of) or _equality(right, (left,), number_of)
        case InList(operand=operand, items=items):
            return _equality(operand, items, number_of)
        case Quantified(call=Call(function=function, arguments=(operand, ColumnRef(column=element))), all=False) if (
            function in OPERATORS["="] and element == condition.element
        ):
            array = condition.array
            elements = array.elements if isinstance(array, Array) else (array,)
            return _equality(operand, elements, number_of)
        case Call(function=syntax.OR, arguments=branches):
            return _either([_key_condition(branch, number_of) for branch in branches])
    return None


def _either(keys: list[KeyCondition | None]) -> KeyCondition | None:
    """The disjunction of key conditions; None if they are not all for the same column."""
    first = keys[0]
    if first is None or any(key is None or replace(key, values=first.values) != first for key in keys):
        return None
    return replace(first, values=tuple(value for key in keys if key is not None for value in key.values))


def _equality(operand: Expression, values: Iterable[Expression], number_of: Numbers) -> KeyCondition | None:
    is_cast = isinstance(operand, Cast) and number_of(operand) is None
    column = operand.operand if isinstance(operand, Cast) and is_cast else operand
    number = number_of(column)
    values = tuple(map(_without_widening, values))
    given = tuple(value for value in values if isinstance(value, (Literal, Parameter)))
    if number is None or len(given) < len(values):
        return None
    compared = operand.type
    for value in given:
        type = value.type.element or value.type
        if not (_is_comparable(compared, type) and _loses_nothing(column.type, compared)):
            return None
    is_cast = is_cast and (column.type.name, compared.name) != ("cidr", "inet")  # which have the same values
    return KeyCondition(number, column.type, operand, given, is_cast)


def _without_widening(value: Expression) -> Expression:
    """The operand of a cast of integers, or of an array of integers, to a wider type. Other expressions unchanged.

    A cast of one integer to numeric or to float8 is one to a wider type, too.
    """
    if isinstance(value, Cast) and isinstance(value.operand, (Literal, Parameter)):
        source, target = value.operand.type, value.type
        if source.name in INTEGERS and (
            target.name == "float8" or (target.name == "numeric" and target.precision is None)
        ):
            return value.operand
        if (source.element is None) == (target.element is None):
            narrow, wide = (_BITS.get((type.element or type).name, 0) for type in (source, target))
            return value.operand if 0 < narrow <= wide else value
    return value


def _is_comparable(column: PgType, value: PgType) -> bool:
    a, b = column.name, value.name
    both = {a, b}
    return (
        both <= _INTEGERS or both <= _FLOATS or both <= _TEXTS or (a == b and (a in _SAME or column.enum is not None))
        or (b in _INTEGERS and a in ("numeric", "float8")) or (both == {"bpchar"} and column.length is not None)
    )  # fmt: skip


def _loses_nothing(column: PgType, compared: PgType) -> bool:
    """Whether a cast of the column keeps distinct values distinct and can be inverted by `_as_column`."""
    a, b = column.name, compared.name
    return (
        column == compared
        or {a, b} <= _INTEGERS
        or {a, b} <= _TEXTS
        or (a == "cidr" and b == "inet")
        or (a in _INTEGERS and b == "numeric" and compared.precision is None)
        or (a in _EXACT_IN_FLOAT8 and b == "float8")
        or (a == b == "numeric" and compared.precision is None and (compared.scale or 0) >= (column.scale or 0))
    )


def _as_column(value: Any, type: PgType, compared: PgType) -> Any | None:
    """The column's value that is equal to `value`; None if the column's type has no such value."""
    if compared.name in _FLOATS:
        number = float(np.float32(value)) if compared.name == "float4" else float(value)
        if type.name in _BITS:
            whole = number.is_integer() and abs(number) <= _FLOAT8_WHOLE_MAX
            return _as_column(int(number), type, type) if whole else None
        if type.name == "float4" and number == number and float(np.float32(number)) != number:
            return None
        return number + 0.0  # 0.0 for -0.0
    if type.name in _BITS:
        if isinstance(value, Decimal):
            if not value.is_finite() or value != int(value):
                return None
            value = int(value)
        return value if -1 << _BITS[type.name] <= value < 1 << _BITS[type.name] else None
    if type.name == "numeric":
        try:
            value = Decimal(value)
            found = value.quantize(Decimal(1).scaleb(-(type.scale or 0)), context=_ALL_DIGITS)
        except DecimalException:
            return None
        digits = (type.precision or 38) - (type.scale or 0)
        return found if found == value and found.adjusted() < digits else None
    if type.name == "bpchar":
        bare = value.rstrip(" ")
        return bare.ljust(type.length or 0) if len(bare) <= (type.length or 0) else None
    return value
