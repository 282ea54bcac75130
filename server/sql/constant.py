"""Evaluation without Spark of queries that read no relation.

Such queries consist of literals, parameters, casts, session values and functions of them. `compiled(relation)` returns
a `Constant` for a plan of this kind. It consists of closures that are created once per plan, so evaluating a row of
`SELECT $1::int` takes a few calls.

The server evaluates constants on its event loop, where a slow one would delay all clients. Only cheap expressions are
evaluated there: functions and casts of fixed-size values, and linear functions of short values. All others raise
`NotCheap`, and `server.evaluation` evaluates them in a process that can be stopped.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import INET, INT4, INT8, NETWORK_TYPES, TEXT, TIMESTAMPTZ, PgType
from server.sql.casts import find_cast, modify, pads_far
from server.sql.expressions import (
    Array,
    Call,
    Cast,
    ColumnRef,
    Expression,
    Literal,
    Parameter,
    SessionValue,
    Volatile,
    walk,
)
from server.sql.functions.worker import evaluator
from server.sql.grammar.checkpoint import checkpoint
from server.sql.relations import Project, Relation, Values
from server.sql.volatile import unplaced
from server.sql.waiting import is_waiting, per_row


class VolatileCalls(Protocol):
    """Evaluates the calls of an evaluation on the event loop. `undo` takes back those since `begin`."""

    def begin(self) -> None: ...
    def undo(self) -> None: ...
    def value(self, call: Volatile, arguments: Sequence[Any]) -> Any:
        """NotCheap if the call has to wait. PgError."""
        ...


class Bindings(NamedTuple):
    """The values that a plan needs at execution. `parameters`: Python scalars as listed in types.py, None for NULL.

    `now_us`: the transaction's start, in microseconds since 1970. `statement_us`: when the statement's message arrived.
    `clock_us`: when the statement began to compute rows.
    `mz_now`: the query's timestamp, in milliseconds.
    """

    parameters: tuple[Any, ...] = ()
    now_us: int = 0
    statement_us: int = 0
    clock_us: int = 0
    mz_now: int | None = None
    database: str = ""
    schema: str | None = None
    user: str = ""
    session_user: str = ""
    version: str = ""
    mz_version: str = ""
    backend_pid: int = 0
    started_us: int = 0
    settings: Mapping[str, str] = MappingProxyType({})
    signal: Callable[[str, int], bool] | None = None
    """Executes a function of SIGNALS, given its name and the process id."""
    fact: Callable[[str], Any] | None = None
    """Evaluates a function of FACTS."""
    privilege_function: Callable[[str, Sequence[str | None]], bool | None] | None = None
    """Evaluates a function of PRIVILEGE_FUNCTIONS, given its name and arguments."""
    sequence: Callable[[str, str], int | bool] | None = None
    """Evaluates a function of SEQUENCE_VALUES, given its name and the sequence's name or id."""
    volatile: VolatileCalls | None = None
    """Evaluates volatile functions. None: they cannot be evaluated here."""

    @property
    def are_short(self) -> bool:
        """Whether every parameter is short enough to be processed on the event loop."""
        return are_short(self.parameters)


FACTS: dict[str, PgType] = {
    **dict.fromkeys(("inet_client_addr", "inet_server_addr"), INET),
    **dict.fromkeys(("current_query", "timeofday"), TEXT),
    **dict.fromkeys(("inet_client_port", "inet_server_port"), INT4),
    **dict.fromkeys(("txid_current", "txid_current_if_assigned"), INT8),
    **dict.fromkeys(("pg_current_xact_id", "pg_current_xact_id_if_assigned"), INT8),
    **dict.fromkeys(("pg_current_wal_lsn", "pg_current_wal_flush_lsn", "pg_current_wal_insert_lsn"), TEXT),
    **dict.fromkeys(("pg_last_wal_receive_lsn", "pg_last_wal_replay_lsn"), TEXT),
    **dict.fromkeys(("pg_conf_load_time", "pg_last_xact_replay_timestamp"), TIMESTAMPTZ),
}
"""The types of functions without arguments that describe the session's connection, query and transaction, or the
server."""


def _fact(name: str) -> Callable[[Bindings], Any]:
    return lambda bindings: None if bindings.fact is None else bindings.fact(name)


_DAY_US = 86_400_000_000
_SESSION: dict[str, Callable[[Bindings], Any]] = {
    **dict.fromkeys(
        ("now", "transaction_timestamp", "current_timestamp", "localtimestamp"), lambda bindings: bindings.now_us
    ),
    "statement_timestamp": lambda bindings: bindings.statement_us,
    "clock_timestamp": lambda bindings: bindings.clock_us,
    "current_date": lambda bindings: bindings.now_us // _DAY_US,
    "current_database": lambda bindings: bindings.database,
    "current_catalog": lambda bindings: bindings.database,
    "current_schema": lambda bindings: bindings.schema,
    "version": lambda bindings: bindings.version,
    "mz_version": lambda bindings: bindings.mz_version,
    **dict.fromkeys(("current_user", "user", "current_role"), lambda bindings: bindings.user),
    "session_user": lambda bindings: bindings.session_user,
    "pg_backend_pid": lambda bindings: bindings.backend_pid,
    "pg_postmaster_start_time": lambda bindings: bindings.started_us,
    "mz_now": lambda bindings: None if bindings.mz_now is None else Decimal(bindings.mz_now),
    "random_seed": lambda bindings: random.getrandbits(62),  # of Spark's rand()
    **{name: _fact(name) for name in FACTS},
    "lastval": lambda bindings: None if bindings.sequence is None else bindings.sequence("lastval", ""),
}

SIGNALS = ("pg_cancel_backend", "pg_terminate_backend", "pg_reload_conf")
"""Functions that act on another session or on the server. They are called once per row and never by Spark.

The argument is a process id; pg_reload_conf ignores it.
"""

PRIVILEGE_FUNCTIONS = (
    "has_table_privilege",
    "has_column_privilege",
    "has_any_column_privilege",
    "has_sequence_privilege",
    "has_type_privilege",
    "has_schema_privilege",
    "has_database_privilege",
    "has_cluster_privilege",
    "pg_has_role",
)
"""Functions that test privileges. The argument is an array of texts: the role (optional), the object, the privilege.

has_column_privilege has the name of a column after the object.
"""
COLUMN_NUMBER_PRIVILEGE = "has_column_privilege(smallint)"
"""has_column_privilege with the number of the column, as a text, in place of its name."""

SEQUENCE_VALUES = ("currval", "last_value", "log_cnt", "is_called")
"""currval(), whose argument is the name of a sequence, and the columns of a sequence with a given id."""

SETTING_OR_NULL = "current_setting(text, boolean)"
"""current_setting() with missing_ok. The argument is an array of the name and of `true` or `false`."""

Evaluate = Callable[[Bindings, tuple[Any, ...]], Any]
"""A compiled expression. The arguments are the bindings and the input row; the result is a Python scalar."""
Positions = Mapping[int, int]
"""The indexes of columns in the input row, by the ids of the columns."""
Form = Callable[[Expression, Positions, Callable[[Expression, Positions], Evaluate]], Evaluate | None]
"""Compiles a further kind of expression; None for others. The last argument compiles an operand."""


LENGTH_MAX = 1_000
"""The maximum characters or bytes of a value for evaluation on the event loop."""
SIZE_MAX = 16_384
"""The maximum characters and bytes of all values, together. Each value and each element of an array adds VALUE_SIZE."""
VALUE_SIZE = 16
CELLS_MAX = 2_000
"""The maximum number of nodes in the plan of a query that is evaluated on the event loop."""
BATCH_ROWS = 4_096

_FIXED_SIZE = frozenset(
    (*("bool", "int2", "int4", "int8", "float4", "float8", "numeric", "oid", "mz_timestamp"),
     *("date", "time", "timestamp", "timestamptz", "interval", "uuid", *NETWORK_TYPES))
)  # fmt: skip
_EXPENSIVE = frozenset(("^", "power", "pow", "exp", "ln", "log", "log10", "sqrt", "factorial", "gcd", "lcm"))
_LINEAR = frozenset(
    (*("=", "<>", "<", "<=", ">", ">=", "||", "lower", "upper", "length", "char_length", "character_length"),
     *("octet_length", "left", "right", "substr", "substring", "position", "strpos", "btrim", "ltrim", "rtrim"),
     *("coalesce", "greatest", "least", "IS NULL", "IS NOT NULL"),
     *("quote_ident", "quote_literal", "concat", "concat_ws", "starts_with", "md5", "array_length", "cardinality",
      "extract", "date_part", "date_trunc", "timezone"))
)  # fmt: skip
"""Functions of texts and arrays whose time and result size are linear in their arguments. Excludes pattern matching."""


class _NotConstant(Exception):
    """The plan needs Spark."""


class NotCheap(Exception):
    """The expression is too expensive to be evaluated on the event loop for these values."""


def session_value(expression: SessionValue, bindings: Bindings) -> Any:
    """The value of a session function in a query that Spark runs.

    Raises 42704 for a setting that does not exist, and 0A000 for a function of SIGNALS or an argument that is expensive
    or no constant.
    """
    if expression.name in SIGNALS:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f"{expression.name}() is not supported in a query that reads relations",
            hint="Call it in a SELECT without FROM, with a constant, or in the list of a SELECT from pg_stat_activity.",
        )
    if expression.argument is not None:
        try:
            return _evaluator(expression, {}, bounded=True)(bindings, ())
        except (NotCheap, _NotConstant):
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                f"this argument of {expression.name}() is not supported in a query that reads relations",
                hint="Pass a literal or a parameter.",
            ) from None
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


def _setting_or_null(function: str, arguments: Evaluate) -> Evaluate:
    def evaluate(bindings: Bindings, row: tuple[Any, ...]) -> Any:
        name, missing_ok = arguments(bindings, row)
        if name is None or missing_ok is None:
            return None
        value = bindings.settings.get(str(name).lower())
        if value is None and missing_ok == "false":
            raise PgError(SqlState.UNDEFINED_OBJECT, f'unrecognized configuration parameter "{name}"')
        return value

    return evaluate


def _refusal(function: str) -> Evaluate:
    def evaluate(bindings: Bindings, row: tuple[Any, ...]) -> Any:
        raise per_row(function)

    return evaluate


def _signal(function: str, process_id: Evaluate) -> Evaluate:
    def evaluate(bindings: Bindings, row: tuple[Any, ...]) -> Any:
        id = process_id(bindings, row)
        return None if id is None or bindings.signal is None else bindings.signal(function, id)

    return evaluate


def _privilege_function(function: str, arguments: Evaluate) -> Evaluate:
    def evaluate(bindings: Bindings, row: tuple[Any, ...]) -> Any:
        return (
            None
            if bindings.privilege_function is None
            else bindings.privilege_function(function, arguments(bindings, row))
        )

    return evaluate


def _sequence_value(function: str, name: Evaluate) -> Evaluate:
    def evaluate(bindings: Bindings, row: tuple[Any, ...]) -> Any:
        text = name(bindings, row)
        return None if text is None or bindings.sequence is None else bindings.sequence(function, text)

    return evaluate


_FUNCTIONS: dict[str, Callable[[str, Evaluate], Evaluate]] = {
    **dict.fromkeys(SIGNALS, _signal),
    **dict.fromkeys((*PRIVILEGE_FUNCTIONS, COLUMN_NUMBER_PRIVILEGE), _privilege_function),
    **dict.fromkeys(SEQUENCE_VALUES, _sequence_value),
    SETTING_OR_NULL: _setting_or_null,
}
"""How each session function with an argument is evaluated. The argument of all others names a setting."""


def _volatile(call: Volatile, arguments: Sequence[Evaluate]) -> Evaluate:
    def evaluate(bindings: Bindings, row: tuple[Any, ...]) -> Any:
        if bindings.volatile is None:
            raise unplaced(call.name)
        return bindings.volatile.value(call, [argument(bindings, row) for argument in arguments])

    return evaluate


def _evaluator(expression: Expression, row: Positions, *, bounded: bool, form: Form | None = None) -> Evaluate:
    """The closure for an expression. `bounded`: it raises NotCheap for values that are too long."""
    checkpoint()
    compiled = partial(_evaluator, bounded=bounded, form=form)
    if form is not None and (found := form(expression, row, compiled)) is not None:
        return found
    match expression:
        case Literal(value=value):
            return lambda bindings, row: value
        case Parameter(index=index):
            return lambda bindings, row: bindings.parameters[index]
        case SessionValue(name=name) if is_waiting(expression):
            return _refusal(name)
        case SessionValue(argument=None, name=name):
            value_of = _SESSION[name]
            return lambda bindings, row: value_of(bindings)
        case SessionValue(argument=argument, name=name) if argument is not None:
            value_of_argument = compiled(argument, row)
            make = _FUNCTIONS.get(name)
            return _setting(value_of_argument) if make is None else make(name, value_of_argument)
        case Volatile(arguments=arguments):
            return _volatile(expression, [compiled(a, row) for a in arguments])
        case ColumnRef(column=column) if column.id in row:
            number = row[column.id]
            return lambda bindings, row: row[number]
        case Array(elements=elements):
            items = [compiled(e, row) for e in elements]
            return lambda bindings, row: [item(bindings, row) for item in items]
        case Cast(operand=operand):
            return _cast(expression, compiled(operand, row), bounded=bounded)
        case Call(function=function, arguments=arguments) if function.python is not None:
            return _call(expression, [compiled(a, row) for a in arguments], bounded=bounded)
    raise _NotConstant


def are_short(values: Iterable[Any]) -> bool:
    """Whether values are short enough, each and together, to be parsed or evaluated on the event loop."""
    return _remaining_size(values, SIZE_MAX) >= 0


def _remaining_size(values: Iterable[Any], size: int) -> int:
    """`size` without that of the values; negative if they are too long."""
    for value in values:
        size -= VALUE_SIZE
        if isinstance(value, (str, bytes)):
            size = size - len(value) if len(value) <= LENGTH_MAX else -1
        elif isinstance(value, (list, tuple)):
            size = _remaining_size(value, size)
        if size < 0:
            break
    return size


def _call(call: Call, arguments: Sequence[Evaluate], *, bounded: bool) -> Evaluate:
    function, type = evaluator(call.function, call.timezone, [a.type for a in call.arguments]), call.type
    if bounded and not _is_of_fixed_size(call):

        def evaluate_short(bindings: Bindings, row: tuple[Any, ...]) -> Any:
            values = [argument(bindings, row) for argument in arguments]
            if not are_short(values):
                raise NotCheap
            return modify(function(*values), type)

        return evaluate_short

    def evaluate(bindings: Bindings, row: tuple[Any, ...]) -> Any:
        return modify(function(*[argument(bindings, row) for argument in arguments]), type)

    return evaluate


def _cast(cast: Cast, operand: Evaluate, *, bounded: bool) -> Evaluate:
    target, assignment = cast.type, cast.assignment
    rule = find_cast(cast.operand.type.without_modifiers, target.without_modifiers)
    assert rule is not None
    timezone = cast.timezone
    limited = bounded and not _is_short(cast.operand.type)

    def evaluate(bindings: Bindings, row: tuple[Any, ...]) -> Any:
        value = operand(bindings, row)
        if limited and not are_short((value,)):
            raise NotCheap
        return None if value is None else modify(rule.apply(value, target, timezone), target, assignment=assignment)

    return evaluate


def _is_short(type: PgType) -> bool:
    """Whether all values of the type have a fixed or small size."""
    return type.name in _FIXED_SIZE or type.enum is not None


def _is_of_fixed_size(call: Call) -> bool:
    return all(map(_is_short, (call.type, *(a.type for a in call.arguments))))


def _is_cheap(node: Any) -> bool:
    """Whether evaluating a node, without its children, is cheap for short values."""
    match node:
        case Call(function=function):
            return function.name in _LINEAR or (_is_of_fixed_size(node) and function.name not in _EXPENSIVE)
        case Cast(type=type):
            return not pads_far(type)
    return True


def compiled_expression(expression: Expression, row: Positions, form: Form | None = None) -> Evaluate | None:
    """The function that evaluates an expression for a row on the event loop. It raises NotCheap.

    None if the expression is not cheap, needs Spark, or depends on the session.
    """
    nodes = list(islice(walk(expression), CELLS_MAX + 1))
    if len(nodes) > CELLS_MAX or not all(_is_cheap(n) and not isinstance(n, SessionValue) for n in nodes):
        return None
    try:
        return _evaluator(expression, row, bounded=True, form=form)
    except _NotConstant:
        return None


@dataclass(frozen=True, slots=True)
class Constant:
    """A query of constant rows. `rows`: the closures of each row's cells. `levels`: the projections over them.

    `is_cheap`: it may be evaluated on the event loop, where it may still raise NotCheap for long values. `is_literal`:
    all its cells are literals, but there are too many for the event loop.
    """

    relation: Relation
    is_cheap: bool
    is_literal: bool
    types: tuple[PgType, ...]
    rows: Sequence[Sequence[Evaluate]]
    levels: Sequence[Sequence[Evaluate]]

    @property
    def is_single_row(self) -> bool:
        return len(self.rows) == 1

    def evaluate_row(self, bindings: Bindings) -> tuple[Any, ...]:
        """The row of a query with `is_single_row`, as Python scalars. Raises NotCheap."""
        (row,) = self.evaluate_rows(bindings)
        return row

    def _row(self, cells: Sequence[Evaluate], bindings: Bindings) -> tuple[Any, ...]:
        row: tuple[Any, ...] = tuple([cell(bindings, ()) for cell in cells])
        for level in self.levels:
            row = tuple([cell(bindings, row) for cell in level])
        return row

    def evaluate_rows(self, bindings: Bindings) -> list[tuple[Any, ...]]:
        """All rows, as Python scalars. Raises NotCheap."""
        if not self.is_cheap:
            raise NotCheap
        volatile = bindings.volatile
        if volatile is None:
            return [self._row(cells, bindings) for cells in self.rows]
        volatile.begin()
        try:
            return [self._row(cells, bindings) for cells in self.rows]
        except NotCheap:
            volatile.undo()
            raise

    def evaluate(self, bindings: Bindings) -> pa.RecordBatch:
        """All rows, with columns c0, c1, ... Raises NotCheap."""
        return batch_of(self.evaluate_rows(bindings), self.types)

    def _batch(self, rows: Sequence[Sequence[Evaluate]], bindings: Bindings) -> pa.RecordBatch:
        return batch_of([self._row(cells, bindings) for cells in rows], self.types)

    def literal_rows(self) -> pa.Table:
        """All rows of a query with `is_literal`. They are made in batches so that other threads can run in between."""
        starts = range(0, len(self.rows), BATCH_ROWS)
        return pa.Table.from_batches([self._batch(self.rows[i : i + BATCH_ROWS], Bindings()) for i in starts])


def batch_of(rows: Sequence[tuple[Any, ...]], types: Sequence[PgType]) -> pa.RecordBatch:
    """Rows of Python scalars as an Arrow batch with columns c0, c1, ..."""
    columns = zip(*rows, strict=True) if rows else [() for _ in types]
    arrays = [pa.array(list(cells), type.arrow) for cells, type in zip(columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, [f"c{i}" for i in range(len(arrays))])


def compiled(relation: Relation, *, bounded: bool = True) -> Constant | None:
    """Compiles a plan that needs no Spark; None for any other plan. `bounded` False: never raises NotCheap."""
    projections: list[Project] = []
    node = relation
    while isinstance(node, Project):
        projections.append(node)
        node = node.input
    if not isinstance(node, Values):
        return None
    try:
        rows = [[_evaluator(cell, {}, bounded=bounded) for cell in row] for row in node.rows]
        levels = []
        for project in reversed(projections):
            indexes = {column.id: i for i, column in enumerate(project.input.columns)}
            levels.append([_evaluator(e, indexes, bounded=bounded) for e in project.expressions])
    except _NotConstant:
        return None
    if not node.columns and levels:  # SELECT without FROM: its cells are the first projection's
        rows = [levels.pop(0) for _ in node.rows]
    types = tuple(column.type for column in relation.columns)
    is_cheap = not bounded or _is_cheap_query(relation)
    is_literal = not is_cheap and all(isinstance(node, _LITERAL_NODES) for node in walk(relation))
    return Constant(relation, is_cheap, is_literal, types, rows, levels)


_LITERAL_NODES = (Project, Values, Literal, ColumnRef)


def _is_cheap_query(relation: Relation) -> bool:
    nodes = list(islice(walk(relation), CELLS_MAX + 1))
    # NotCheap restarts the evaluation elsewhere, which must not repeat a call that has an effect
    signals = any(isinstance(node, SessionValue) and node.name in SIGNALS for node in nodes)
    if any(map(is_waiting, nodes)):
        return False
    return len(nodes) <= CELLS_MAX and all(_is_cheap(n) and not (signals and isinstance(n, Call)) for n in nodes)
