"""Queries that read nothing and compute nothing: literals, parameters, casts, session values. They need no Spark.

`compiled(relation)` gives a `Constant` if the plan is of that kind, whatever its text was. It is closures, made once
per plan: a row of `SELECT $1::int` costs a few calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import PgType
from server.sql.casts import find_cast, modify
from server.sql.expressions import Array, Call, Cast, ColumnRef, Expression, Literal, Parameter, SessionValue
from server.sql.functions.worker import evaluator
from server.sql.relations import Project, Relation, Values


class Bindings(NamedTuple):
    """What a plan needs at execution. `parameters`: Python scalars as types.py lists them, None for NULL.

    `now_us`: microseconds since 1970, of the transaction's start. `mz_now`: the query's timestamp, milliseconds.
    """

    parameters: tuple[Any, ...] = ()
    now_us: int = 0
    mz_now: int | None = None
    database: str = ""
    schema: str | None = None
    user: str = ""
    session_user: str = ""
    version: str = ""
    backend_pid: int = 0
    settings: Mapping[str, str] = MappingProxyType({})
    signal: Callable[[str, int], bool] | None = None
    """What a function of SIGNALS does, by its name and the process id."""
    inquire: Callable[[str, Sequence[str | None]], bool | None] | None = None
    """What a function of INQUIRIES answers, by its name and arguments."""


_DAY_US = 86_400_000_000
_SESSION: dict[str, Callable[[Bindings], Any]] = {
    **dict.fromkeys(
        ("now", "transaction_timestamp", "statement_timestamp", "current_timestamp", "localtimestamp"),
        lambda bindings: bindings.now_us,
    ),
    "current_date": lambda bindings: bindings.now_us // _DAY_US,
    "current_database": lambda bindings: bindings.database,
    "current_catalog": lambda bindings: bindings.database,
    "current_schema": lambda bindings: bindings.schema,
    "version": lambda bindings: bindings.version,
    **dict.fromkeys(("current_user", "user", "current_role"), lambda bindings: bindings.user),
    "session_user": lambda bindings: bindings.session_user,
    "pg_backend_pid": lambda bindings: bindings.backend_pid,
    "mz_now": lambda bindings: None if bindings.mz_now is None else Decimal(bindings.mz_now),
}

SIGNALS = ("pg_cancel_backend", "pg_terminate_backend")
"""Functions of a process id that act on another session: called once a row, and never by Spark."""

INQUIRIES = (
    "has_table_privilege",
    "has_schema_privilege",
    "has_database_privilege",
    "has_cluster_privilege",
    "pg_has_role",
)
"""Functions that tell what a role may do: of an array of texts, role (or none), object and privilege."""

Evaluate = Callable[[Bindings, tuple[Any, ...]], Any]
"""A compiled expression: bindings and the row of the node below, to a Python scalar."""


class _NotConstant(Exception):
    """The plan needs Spark."""


def session_value(expression: SessionValue, bindings: Bindings) -> Any:
    """The value of a session function. 42704 for a setting that does not exist."""
    if expression.name in SIGNALS:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED, f"{expression.name}() is not supported in a query that reads relations"
        )
    if expression.argument is not None:
        return _evaluator(expression, {})(bindings, ())
    return _SESSION[expression.name](bindings)


def _setting(name: Evaluate) -> Evaluate:
    def evaluate(bindings: Bindings, row: tuple[Any, ...]) -> Any:
        key = name(bindings, row)
        if key is None:
            return None
        value = bindings.settings.get(str(key).lower())
        if value is None:
            raise PgError(SqlState.UNDEFINED_OBJECT, f'unrecognized configuration parameter "{key}"')
        return value

    return evaluate


def _signal(function: str, process_id: Evaluate) -> Evaluate:
    def evaluate(bindings: Bindings, row: tuple[Any, ...]) -> Any:
        id = process_id(bindings, row)
        return None if id is None or bindings.signal is None else bindings.signal(function, id)

    return evaluate


def _inquiry(function: str, arguments: Evaluate) -> Evaluate:
    def evaluate(bindings: Bindings, row: tuple[Any, ...]) -> Any:
        return None if bindings.inquire is None else bindings.inquire(function, arguments(bindings, row))

    return evaluate


def _evaluator(expression: Expression, row: Mapping[int, int]) -> Evaluate:
    """The closure for an expression; `row` maps column ids to places in the row below."""
    match expression:
        case Literal(value=value):
            return lambda bindings, row: value
        case Parameter(index=index):
            return lambda bindings, row: bindings.parameters[index]
        case SessionValue(argument=None, name=name):
            value_of = _SESSION[name]
            return lambda bindings, row: value_of(bindings)
        case SessionValue(argument=argument, name=name) if argument is not None and name in SIGNALS:
            return _signal(name, _evaluator(argument, row))
        case SessionValue(argument=argument, name=name) if argument is not None and name in INQUIRIES:
            return _inquiry(name, _evaluator(argument, row))
        case SessionValue(argument=argument) if argument is not None:
            return _setting(_evaluator(argument, row))
        case ColumnRef(column=column) if column.id in row:
            place = row[column.id]
            return lambda bindings, row: row[place]
        case Array(elements=elements):
            items = [_evaluator(e, row) for e in elements]
            return lambda bindings, row: [item(bindings, row) for item in items]
        case Cast():
            return _cast(expression, _evaluator(expression.operand, row))
        case Call(function=function, arguments=arguments) if function.python is not None:
            return _call(expression, [_evaluator(a, row) for a in arguments])
    raise _NotConstant


def _call(call: Call, arguments: Sequence[Evaluate]) -> Evaluate:
    function, type = evaluator(call.function, call.timezone, [a.type for a in call.arguments]), call.type

    def evaluate(bindings: Bindings, row: tuple[Any, ...]) -> Any:
        return modify(function(*[argument(bindings, row) for argument in arguments]), type)

    return evaluate


def _cast(cast: Cast, operand: Evaluate) -> Evaluate:
    target, assignment = cast.type, cast.assignment
    rule = find_cast(cast.operand.type.without_modifiers, target.without_modifiers)
    assert rule is not None
    timezone = cast.timezone

    def evaluate(bindings: Bindings, row: tuple[Any, ...]) -> Any:
        value = operand(bindings, row)
        return None if value is None else modify(rule.apply(value, target, timezone), target, assignment=assignment)

    return evaluate


@dataclass(frozen=True, slots=True)
class Constant:
    """A query that is evaluated here. `rows`: per row the closures of its cells; `levels`: projections over them."""

    types: tuple[PgType, ...]
    rows: Sequence[Sequence[Evaluate]]
    levels: Sequence[Sequence[Evaluate]]

    @property
    def is_single_row(self) -> bool:
        return len(self.rows) == 1

    def evaluate_row(self, bindings: Bindings) -> tuple[Any, ...]:
        """The one row of a query `is_single_row`, as Python scalars."""
        return self._row(self.rows[0], bindings)

    def _row(self, cells: Sequence[Evaluate], bindings: Bindings) -> tuple[Any, ...]:
        row: tuple[Any, ...] = tuple([cell(bindings, ()) for cell in cells])
        for level in self.levels:
            row = tuple([cell(bindings, row) for cell in level])
        return row

    def evaluate(self, bindings: Bindings) -> pa.RecordBatch:
        """All rows; the columns are c0, c1, ..."""
        rows = [self._row(cells, bindings) for cells in self.rows]
        columns = zip(*rows, strict=True) if rows else [() for _ in self.types]
        if not self.types:
            return pa.RecordBatch.from_pydict({"": pa.nulls(len(rows))}).select([])  # rows, and no columns
        arrays = [pa.array(list(cells), type.arrow) for cells, type in zip(columns, self.types, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, [f"c{i}" for i in range(len(arrays))])


def compiled(relation: Relation) -> Constant | None:
    """The evaluator of a plan that needs no Spark, None if it needs it."""
    projections: list[Project] = []
    node = relation
    while isinstance(node, Project):
        projections.append(node)
        node = node.input
    if not isinstance(node, Values):
        return None
    try:
        rows = [[_evaluator(cell, {}) for cell in row] for row in node.rows]
        levels = []
        for project in reversed(projections):
            places = {column.id: i for i, column in enumerate(project.input.columns)}
            levels.append([_evaluator(e, places) for e in project.expressions])
    except _NotConstant:
        return None
    if not node.columns and levels:  # SELECT without FROM: its cells are the first projection's
        rows = [levels.pop(0) for _ in node.rows]
    return Constant(tuple(column.type for column in relation.columns), rows, levels)
