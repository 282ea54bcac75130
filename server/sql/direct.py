"""Plans that take rows as they are: columns of one relation, all rows of it or those with given keys. No Spark.

`SELECT * FROM t` and `SELECT a, b FROM t WHERE id = $1 AND kind = 'x'`. Only equality with a value, and only of types
whose equality is that of their Arrow values; everything else is computed by Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from catalog.objects import ObjectId
from protocol.pgwire.types import PgType
from server.sql.constant import Bindings
from server.sql.expressions import Call, ColumnRef, Expression, Literal, Parameter
from server.sql.functions.syntax import conjuncts
from server.sql.functions.table import INTEGERS, OPERATORS
from server.sql.relations import Filter, Project, Relation, Scan

_SAME = frozenset(("text", "varchar", "bool", "date", "time", "timestamp", "timestamptz", "uuid", "bytea", "numeric"))
_BITS = {"int2": 15, "int4": 31, "int8": 63}


@dataclass(frozen=True, slots=True)
class Key:
    """The column, by number in the relation, has this value."""

    column: int
    type: PgType
    value: Literal | Parameter


@dataclass(frozen=True, slots=True)
class DirectScan:
    """`columns`, by number, of the rows of `source` that have all `keys`."""

    source: ObjectId
    columns: tuple[int, ...]
    keys: tuple[Key, ...] = ()

    def rows(self, table: pa.Table, bindings: Bindings) -> pa.Table:
        """The rows, of the relation's rows at one time; columns keep their names."""
        for key in self.keys:
            value = key.value.value if isinstance(key.value, Literal) else bindings.parameters[key.value.index]
            wanted = _scalar(value, key.type)
            # after the first key few rows are left
            table = table.slice(0, 0) if wanted is None else table.filter(pc.equal(table.column(key.column), wanted))
        return table.select(list(self.columns))


def direct_scan(relation: Relation) -> DirectScan | None:
    """The scan that a plan is, if it is one."""
    match relation:
        case Scan(id=id, columns=columns):
            return DirectScan(id, tuple(range(len(columns))))
        case Filter(input=Scan(id=id, columns=columns) as scan, predicate=predicate):
            keys = tuple(_keys(predicate, scan))
            return DirectScan(id, tuple(range(len(columns))), keys) if len(keys) == len(conjuncts(predicate)) else None
        case Project(input=input, expressions=expressions):
            below = direct_scan(input)
            if below is None:
                return None
            places = {column.id: place for column, place in zip(input.columns, below.columns, strict=True)}
            numbers = tuple(places[e.column.id] for e in expressions if isinstance(e, ColumnRef))
            return DirectScan(below.source, numbers, below.keys) if len(numbers) == len(expressions) else None
    return None


def _keys(predicate: Expression, scan: Scan) -> Iterator[Key]:
    """The conditions that name a key."""
    numbers = {column.id: number for number, column in enumerate(scan.columns)}
    for condition in conjuncts(predicate):
        if not isinstance(condition, Call) or condition.function not in OPERATORS["="]:
            continue
        match condition.arguments:
            case (ColumnRef(column=column), (Literal() | Parameter()) as value):
                pass
            case ((Literal() | Parameter()) as value, ColumnRef(column=column)):
                pass
            case _:
                continue
        if column.id in numbers and _comparable(column.type, value.type):
            yield Key(numbers[column.id], column.type, value)


def _comparable(column: PgType, value: PgType) -> bool:
    return (column.name in INTEGERS and value.name in INTEGERS) or (column.name == value.name and value.name in _SAME)


def _scalar(value: Any, type: PgType) -> pa.Scalar | None:
    """The value as the column has it; None if the column cannot have it, which NULL is too."""
    if value is None or (type.name in _BITS and not -1 << _BITS[type.name] <= value < 1 << _BITS[type.name]):
        return None
    if isinstance(value, Decimal):
        try:
            return pa.scalar(value, type.arrow)
        except pa.ArrowInvalid:  # more digits than the column has
            return None
    return pa.array([value], type.arrow)[0]
