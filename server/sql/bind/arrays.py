"""ARRAY[...], ARRAY(query), and subscripts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import (
    BOOL,
    DIMENSIONS_MAX,
    INT4,
    JSONB,
    TEXT,
    PgType,
    array_of,
    bare_numeric,
    too_many_dimensions,
    with_dimensions,
)
from server.sql.bind.binder import Binder, form
from server.sql.bind.calls import apply, call_of, operator, plain_types
from server.sql.coerce import ASSIGNMENT, EXPLICIT, INT4_MAX
from server.sql.expressions import (
    Aggregate,
    Array,
    Call,
    ColumnRef,
    Expression,
    Literal,
    SortKey,
    Subquery,
    SubqueryKind,
)
from server.sql.functions import resolve, syntax
from server.sql.functions.arrays import FILL
from server.sql.functions.matching import group_of_match
from server.sql.functions.syntax import joined
from server.sql.functions.table import INTEGERS
from server.sql.relations import Aggregate as AggregateNode
from server.sql.relations import Limit, Project, Relation, Sort, Values
from server.sql.scope import Scope


@form(exp.Array)
def array_expression(binder: Binder, tree: exp.Array, scope: Scope) -> Expression:
    """ARRAY[a, b] of the elements' common type. 42P18 if it is empty."""
    if is_array_query(tree):
        return array_query(binder, tree.expressions[0], scope, tree)
    elements = [binder.expression(e, scope) for e in tree.expressions]
    if not elements:
        raise PgError(
            SqlState.INDETERMINATE_DATATYPE,
            "cannot determine type of empty array",
            hint="Explicitly cast to the desired type, for example ARRAY[]::integer[].",
            position=binder.at(tree),
        )
    return constant_array(binder.array(elements, binder.at(tree)))


def is_array_query(tree: exp.Array) -> bool:
    """Whether it is ARRAY(query), and not ARRAY[...]."""
    return len(tree.expressions) == 1 and isinstance(tree.expressions[0], (exp.Query, exp.Values))


def array_query(binder: Binder, query: exp.Expr, scope: Scope, tree: exp.Expr) -> Expression:
    """ARRAY(query): array_agg in the query's order; an empty array if there are no rows."""

    array = aggregate_of_query(binder, query, lambda type: "array_agg", scope, tree)
    return Call(syntax.COALESCE, (array, Literal([], array.type)), array.type, False)


def aggregate_of_query(
    binder: Binder, query: exp.Expr, name_for: Callable[[PgType], str], scope: Scope, tree: exp.Expr
) -> Subquery:
    """An aggregate of the only column of a query, in the query's order. 42601 if the query has several columns.

    `name_for`: the name of the aggregate for a column of this type, or PgError.
    """
    relation = binder.subquery(query, scope)
    if len(relation.columns) != 1:
        message = "subquery must return only one column"
        raise PgError(SqlState.SYNTAX_ERROR, message, position=binder.at(tree))
    (column,) = relation.columns
    name = name_for(column.type)
    is_numeric = column.type.name == "numeric"
    element = bare_numeric(column.type.scale or 0) if is_numeric else column.type.without_modifiers
    relation, keys = _with_order(binder, relation)
    resolved = resolve.resolve_function(name, plain_types((element,)))
    assert resolved is not None
    value = binder.rescale(ColumnRef(column), element)
    type = resolved.result
    if type.element is not None:
        type = array_of(element) if element.element is None else with_dimensions(element, type.dimensions)
    call = Aggregate(resolved.function, (value,), type, True, order=keys)
    result = binder.new_column(column.name, call)
    rows = AggregateNode(relation, (), (call,), (result,))
    return Subquery(SubqueryKind.SCALAR, rows, result.type, True)


def _with_order(binder: Binder, relation: Relation) -> tuple[Relation, tuple[SortKey, ...]]:
    """The relation with its sort keys as additional columns where necessary, and the order by these columns."""
    match relation:
        case Sort(keys=keys):
            return relation, keys
        case Limit(input=input):
            below, keys = _with_order(binder, input)
            return replace(relation, input=below), keys
        case Project(input=input, columns=columns, expressions=expressions):
            below, keys = _with_order(binder, input)
            added = tuple(binder.new_column("", key.expression) for key in keys)
            order = tuple(replace(k, expression=ColumnRef(c)) for k, c in zip(keys, added, strict=True))
            hidden = tuple(key.expression for key in keys)
            return Project(below, (*columns, *added), (*expressions, *hidden)), order
        case Values(columns=columns, rows=rows) if len(rows) > 1:
            ordinal = binder.new_column("", Literal(1, INT4))
            numbered = tuple((*row, Literal(number, INT4)) for number, row in enumerate(rows))
            return Values((*columns, ordinal), numbered), (SortKey(ColumnRef(ordinal), False, False),)
    return relation, ()


@form(exp.Bracket)
def subscripted(binder: Binder, tree: exp.Bracket, scope: Scope) -> Expression:
    """array[n][m], array[m:n][k:l] and jsonb['key']. 42804."""
    if (several := _several_subscripts(binder, tree, scope)) is not None:
        return several
    array = binder.expression(tree.this, scope)
    if array.type == JSONB and not isinstance(tree.expressions[0], exp.Slice):
        return _json_subscript(binder, array, tree, scope)
    if array.type.element is None:
        message = f"cannot subscript type {array.type.base_display} because it does not support subscripting"
        raise PgError(SqlState.DATATYPE_MISMATCH, message, position=binder.at(tree))
    (subscript,) = tree.expressions
    if isinstance(subscript, exp.Slice) or array.type.dimensions > 1:
        return _element_or_slice(binder, array, [subscript], scope)
    index = array_index(binder, subscript, scope)
    if (group := group_of_match(array, index)) is not None:
        return group
    return Call(syntax.SUBSCRIPT, (array, index), array.type.element, True, array.type.element.precision or 0)


def _several_subscripts(binder: Binder, tree: exp.Bracket, scope: Scope) -> Expression | None:
    """array[n][m] and array[k:l][m:n]. None for a single subscript, and for subscripts of what is no array."""
    subscripts: list[exp.Expr] = []
    inner: exp.Expr = tree
    while isinstance(inner, exp.Bracket):
        subscripts = [*inner.expressions, *subscripts]
        inner = inner.this
    if len(subscripts) == 1:
        return None
    array = binder.expression(inner, scope)
    return None if array.type.element is None else _element_or_slice(binder, array, subscripts, scope)


def _element_or_slice(binder: Binder, array: Expression, subscripts: Sequence[exp.Expr], scope: Scope) -> Expression:
    """The element at these subscripts, NULL unless there is one for each dimension. If one of them is a slice, the part
    of the array within them all, where `n` is `1:n`. That is empty if there are more subscripts than dimensions.
    """
    element, count = array.type.element, array.type.dimensions
    assert element is not None
    if any(isinstance(subscript, exp.Slice) for subscript in subscripts):
        bounds = []
        for subscript in subscripts:
            pair = (subscript.this, subscript.expression) if isinstance(subscript, exp.Slice) else (None, subscript)
            bounds += [
                Literal(default, INT4) if bound is None else array_index(binder, bound, scope)
                for bound, default in zip(pair, (1, INT4_MAX), strict=True)
            ]
        whole = (Literal(1, INT4), Literal(INT4_MAX, INT4))
        if len(subscripts) > count:
            bounds = [Literal(1, INT4), Literal(0, INT4)]
        bounds += whole * (count - len(bounds) // 2)
        return call_of(syntax.SLICE if count == 1 else syntax.SLICES, (array, *bounds), array.type)
    indexes = [array_index(binder, subscript, scope) for subscript in subscripts]
    if len(indexes) != count:
        return Literal(None, element)
    found = array
    for index in indexes:
        type = found.type.item
        found = Call(syntax.SUBSCRIPT, (found, index), type, True, type.precision or 0)
    return found


def array_index(binder: Binder, tree: exp.Expr, scope: Scope) -> Expression:
    """A subscript of an array. 42804."""
    index = binder.expression(tree, scope)
    try:
        return binder.coerce(index, INT4, ASSIGNMENT)
    except PgError as error:
        if error.sqlstate is not SqlState.CANNOT_COERCE:
            raise
        message = "array subscript must have type integer"
        raise PgError(SqlState.DATATYPE_MISMATCH, message, position=binder.at(tree)) from None


def _json_subscript(binder: Binder, json: Expression, tree: exp.Bracket, scope: Scope) -> Expression:
    """jsonb['key'] is jsonb #> '{key}'."""
    path, _ = json_path(binder, tree.expressions[:1], scope)
    return operator(binder, "#>", [json, path], tree)


def json_path(binder: Binder, subscripts: Sequence[exp.Expr], scope: Scope) -> tuple[Expression, Expression]:
    """The path that subscripts of a jsonb value are, an array of texts, and whether the first one is an integer."""
    steps = [binder.expression(subscript, scope) for subscript in subscripts]
    texts = [binder.coerce(step, TEXT, EXPLICIT) for step in steps]
    is_integer = Literal(steps[0].type.name in INTEGERS, BOOL)
    return constant_array(binder.array(texts, binder.at(subscripts[0]))), is_integer


def filled_array(binder: Binder, arguments: list[Expression], tree: exp.Expr) -> Expression:
    """array_fill(value, lengths [, bounds]). The number of dimensions of the result is that of the lengths if they are
    a constant or ARRAY[...], otherwise 1.
    """
    call = apply(binder, "array_fill", arguments, tree)
    assert isinstance(call, Call)
    value, lengths, *bounds = call.arguments
    count = 1
    if isinstance(lengths, Array):
        count = len(lengths.elements)
    elif isinstance(lengths, Literal) and lengths.value:
        count = len(lengths.value)
    if count > DIMENSIONS_MAX:
        raise PgError(SqlState.PROGRAM_LIMIT_EXCEEDED, too_many_dimensions(count), position=binder.at(tree))
    if count == 1:
        return call
    bounds = bounds or [Literal([], lengths.type)]
    type = with_dimensions(call.type, count)
    return replace(call, function=FILL, arguments=(value, lengths, *bounds, Literal(count, INT4)), type=type)


def constant_array(array: Expression) -> Expression:
    """Folds an ARRAY of literals into a literal. 2202E."""
    if isinstance(array, Call) and array.function is syntax.JOINED:
        items = constant_array(array.arguments[0])
        return Literal(joined(items.value, [array.type]), array.type) if isinstance(items, Literal) else array
    if isinstance(array, Array) and all(isinstance(e, Literal) for e in array.elements):
        return Literal([e.value for e in array.elements if isinstance(e, Literal)], array.type)
    return array
