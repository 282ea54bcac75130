"""Plans that compute each output row from one row of one relation, such as the query of `UPDATE t SET x = x + 1`.

Over few rows, most of Spark's time is planning, which a session does once for each text (`PreparedPlan.java`).
Therefore the constants of such a plan become columns of the rows that are sent, and the text is the same for all
constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pyarrow as pa

from catalog.ids import ObjectId
from catalog.updates import size_of
from protocol.pgwire.errors import PgError
from protocol.pgwire.types import INT4
from server.sql.constant import Bindings, session_value
from server.sql.expressions import (
    Array,
    Call,
    Case,
    Cast,
    Column,
    ColumnRef,
    Expression,
    InList,
    Literal,
    Parameter,
    Quantified,
    SessionValue,
    Subquery,
    WindowCall,
    precision,
    walk,
)
from server.sql.functions import syntax
from server.sql.functions.table import OPERATORS
from server.sql.relations import Filter, Project, Relation, Scan, only
from server.sql.render import Renderer
from server.sql.versioned_plan import carried

ROWS_MAX = 1_000
BYTES_MAX = 256 * 1024  # of the rows, and of the constants in all rows; `SparkBridge.java` prepares up to 16 MB
CONSTANTS_MAX = 64
TEXTS_MAX = 16  # texts kept for a plan; they differ in the precisions of numeric constants

Constant = Literal | Parameter | SessionValue

_TYPES = frozenset(
    (*("int2", "int4", "int8", "float4", "float8", "numeric", "text", "varchar", "bpchar", "uuid", "bytea"),
     *("date", "timestamp", "timestamptz", "bool"))
)  # fmt: skip
_CALLS = frozenset(
    id(function)
    for function in (
        *(syntax.AND, syntax.OR, syntax.NOT, syntax.IS_NULL, syntax.IS_NOT_NULL, syntax.IS_TRUE, syntax.IS_FALSE),
        *(syntax.IS_DISTINCT, syntax.COALESCE, syntax.GREATEST, syntax.LEAST),
        *(f for name in ("=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "||") for f in OPERATORS[name]),
    )
)
"""Functions whose Spark form is the same for a column as for a literal of the same Spark type."""


def is_rowwise(relation: Relation) -> bool:
    """Whether the relation is a chain of Project and Filter over one Scan, without subqueries."""
    node = relation
    while isinstance(node, (Project, Filter)):
        node = node.input
    return isinstance(node, Scan) and not any(isinstance(n, (Subquery, WindowCall)) for n in walk(relation))


class RowwisePlan:
    """A plan for which `is_rowwise` holds."""

    def __init__(self, relation: Relation) -> None:
        self._relation = relation
        scan = next(node for node in walk(relation) if isinstance(node, Scan))
        self.source = scan.id
        self._constants: list[Constant] | None = None
        self._texts: dict[tuple[int, ...], str | None] = {}

    @property
    def view(self) -> str:
        """The name of the view that `statement` reads. The view `source` may contain all rows of the relation."""
        return _view(self.source)

    def statement(self, rows: pa.Table, bindings: Bindings) -> tuple[str, pa.Table] | None:
        """The Spark SQL over these rows of the relation, and the rows with the constants as columns.

        The view needs one more column, a number, which becomes the last column of the output.

        None if the rows or the constants are too large, or if a value that changes cannot be a column.
        """
        if rows.num_rows > ROWS_MAX or size_of(rows) > BYTES_MAX:
            return None
        if self._constants is None:
            self._constants = _Extraction(self._relation, None).constants
        if len(self._constants) > CONSTANTS_MAX:
            return None
        values = [_value(constant, bindings) for constant in self._constants]
        shapes = tuple(precision(value) for value in values if value.type.name == "numeric")
        if shapes not in self._texts:
            if len(self._texts) >= TEXTS_MAX:
                self._texts.clear()
            self._texts[shapes] = _Extraction(self._relation, values).text()
        text = self._texts[shapes]
        if text is None:
            return None
        try:
            columns = [_column(value, rows.num_rows) for value in values]
        except (pa.ArrowException, ValueError):  # such as a numeric with too many digits: Spark reports the error
            return None
        if sum(column.get_total_buffer_size() for column in columns) > BYTES_MAX:
            return None
        for column in columns:
            rows = rows.append_column(f"c{rows.num_columns}", column)
        return text, rows


def _view(source: ObjectId) -> str:
    return f"{source}_and_constants"


def _value(constant: Constant, bindings: Bindings) -> Literal:
    match constant:
        case Literal():
            return constant
        case Parameter(index=index, type=type):
            return Literal(bindings.parameters[index], type)
        case SessionValue():
            return Literal(session_value(constant, bindings), constant.type)


def _column(value: Literal, count: int) -> pa.Array:
    """The literal `count` times, with the Arrow type of the Spark type to which it would be rendered.

    ValueError for a value that only a literal can represent.
    """
    if isinstance(value.value, list) and None in value.value:
        raise ValueError("Spark's generated code fails for a NULL in an array of an Arrow column")
    kind = value.type.arrow
    if value.type.name == "numeric":
        scale = value.type.scale or 0
        kind = pa.decimal128(max(precision(value), scale), scale)
    return pa.array([value.value] * count, kind)


class _Extraction:
    """A plan whose constants are replaced by columns of its scan. `constants`: the replaced ones, in their order."""

    def __init__(self, relation: Relation, values: Sequence[Literal] | None) -> None:
        """`values`: the constants' values, None if they are not known yet."""
        self.constants: list[Constant] = []
        self._values = values
        self._columns: list[Column] = []
        self._ids = count(1 + max((c.id for node in walk(relation) for c in _columns_of(node)), default=0))
        self._relation = self._extracted(relation)

    def text(self) -> str | None:
        """The Spark SQL. None if it would contain a parameter or a session value, or cannot be rendered."""
        node = self._relation
        if any(isinstance(n, (Parameter, SessionValue)) for n in walk(node)):
            return None
        while not isinstance(node, Scan):
            assert isinstance(node, (Project, Filter))
            node = node.input
        number = Column(next(self._ids), "", INT4, False)
        more = (*self._columns, number)
        over = Scan(ObjectId(_view(node.id)), (*node.columns, *more))
        whole = carried(self._relation, node, over, more)
        output = only(whole, (*self._relation.columns, number))
        if isinstance(whole, Project):
            expressions = (*whole.expressions[: len(self._relation.columns)], ColumnRef(number))
            output = Project(whole.input, (*self._relation.columns, number), expressions)
        try:
            return Renderer(output, _unbound).text()
        except PgError:  # the literal's text is needed: the normal rendering has it
            return None

    def _extracted(self, node: Relation) -> Relation:
        match node:
            case Filter(input=input, predicate=predicate):
                return Filter(self._extracted(input), self._expression(predicate))
            case Project(input=input, columns=columns, expressions=expressions):
                return Project(self._extracted(input), columns, tuple(map(self._expression, expressions)))
        return node

    def _expression(self, node: Expression) -> Expression:
        """The expression with those constants replaced that Spark need not know when it plans."""
        match node:
            case Literal() | Parameter() | SessionValue():
                return self._constant(node)
            case Call(function=function, arguments=arguments):
                known = id(function) in _CALLS
                changed = tuple(self._expression(a) if known or not isinstance(a, Constant) else a for a in arguments)
                return replace(node, arguments=changed)
            case Cast(operand=operand, type=type):
                if (type.element or type).is_string_family and (operand.type.element or operand.type).name == "numeric":
                    return node  # the text of a numeric depends on its digits
                return replace(node, operand=self._expression(operand))
            case Case(branches=branches, default=default):
                replaced = tuple((self._expression(c), self._expression(v)) for c, v in branches)
                return replace(node, branches=replaced, default=self._expression(default))
            case InList(operand=operand, items=items):
                return InList(self._expression(operand), tuple(map(self._expression, items)))
            case Quantified(call=call, array=array):
                return replace(node, call=self._expression(call), array=self._expression(array))
            case Array(elements=elements):
                return replace(node, elements=tuple(map(self._expression, elements)))
        return node

    def _constant(self, node: Constant) -> Expression:
        type = node.type
        scalar = type.element or type
        if (
            type.dimensions > 1
            or scalar.representation not in _TYPES
            or (type.element is not None and scalar.name == "numeric")
        ):
            return node
        if isinstance(node, Literal) and (node.value is None or type.name == "bool"):
            return node  # the optimizer uses these
        for known, column in zip(self.constants, self._columns, strict=True):
            if isinstance(node, Parameter) and node == known:
                return ColumnRef(column)
        digits = 0
        if self._values is not None and type.name == "numeric":
            value = self._values[len(self._columns)]
            digits = max(precision(value), type.scale or 0)
        column = Column(next(self._ids), "", type, node.nullable, digits)
        self.constants.append(node)
        self._columns.append(column)
        return ColumnRef(column)


def _columns_of(node: Any) -> Sequence[Column]:
    if isinstance(node, (Project, Scan)):
        return node.columns
    return (node.element,) if isinstance(node, Quantified) else ()


def _unbound(constant: Parameter | SessionValue) -> str:
    raise AssertionError(constant)
