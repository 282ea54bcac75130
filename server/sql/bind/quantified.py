"""operator ANY and operator ALL, over an array or a query."""

from __future__ import annotations

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import BOOL, UNKNOWN, array_of
from server.sql.bind.binder import Binder
from server.sql.bind.calls import flat, operator
from server.sql.bind.connectives import negation
from server.sql.bind.row_values import compared_rows
from server.sql.bind.shapes import function_name, row_of, unparenthesised
from server.sql.bind.subqueries import check_width_of_query, in_query
from server.sql.expressions import Call, Column, ColumnRef, Expression, Quantified, Subquery, SubqueryKind
from server.sql.scope import Scope


def quantified(binder: Binder, name: str, left: exp.Expr, right: exp.Expr, scope: Scope) -> Expression:
    """left operator ANY or ALL of `right`. 42809 if `right` is neither array nor query, or if it is no comparison."""
    word = quantifier(right)
    every = isinstance(right, exp.All) if word is None else word == "all"
    inner = unparenthesised(right.this if word is None else right.expressions[0])
    if isinstance(inner, (exp.Subquery, exp.Select, exp.SetOperation, exp.Values)):
        if (name, every) == ("=", False):
            return in_query(binder, left, inner, scope, right)
        if (name, every) == ("<>", True):
            return negation(in_query(binder, left, inner, scope, right))
        return _quantified_query(binder, name, every, left, inner, scope, right)
    operand = binder.expression(left, scope)
    array = binder.expression(inner, scope)
    if array.type == UNKNOWN:
        type = array_of(binder.default_unknown(operand).type.without_modifiers)
        array = binder.coerce(array, binder.fitting(array, type))
    if array.type.element is None:
        message = "op ANY/ALL (array) requires array on right side"
        raise PgError(SqlState.WRONG_OBJECT_TYPE, message, position=binder.at(right))
    array = flat(array)
    assert array.type.element is not None
    element = Column(binder.element_id((name, operand, array)), "", array.type.element, True)
    call = operator(binder, name, [operand, ColumnRef(element)], right.parent)
    if call.type != BOOL:
        message = "op ANY/ALL (array) requires operator to yield boolean"
        raise PgError(SqlState.WRONG_OBJECT_TYPE, message, position=binder.at(right))
    wanted = call.arguments[1].type.without_modifiers if isinstance(call, Call) else element.type
    if wanted.element is None and wanted.name != element.type.name:  # cast the array, not each element
        array = binder.coerce(array, array_of(wanted))
        element = Column(element.id, "", array_of(wanted).element or wanted, True)
        call = operator(binder, name, [operand, ColumnRef(element)], right.parent)
    return Quantified(call, element, array, every)


def _quantified_query(
    binder: Binder, name: str, every: bool, left: exp.Expr, query: exp.Expr, scope: Scope, tree: exp.Expr
) -> Expression:
    """operand operator ANY/ALL (query)"""
    relation = binder.subquery(query, scope)
    fields = row_of(left)
    operands = [binder.expression(e, scope) for e in (fields if fields is not None else [left])]
    check_width_of_query(binder, len(operands), relation, tree)
    outer = tree.parent if tree.parent is not None else tree
    for operand, column in zip(operands, relation.columns, strict=True):
        operator(binder, name, [operand, ColumnRef(column)], outer)  # raises the operator's own error
    typed = tuple(_typed_like(binder, o, c, name, outer) for o, c in zip(operands, relation.columns, strict=True))
    holders = tuple(binder.new_column("", operand) for operand in typed)
    pairs = [(ColumnRef(h), ColumnRef(c)) for h, c in zip(holders, relation.columns, strict=True)]
    test = compared_rows(binder, name, pairs, outer)
    kind = SubqueryKind.ALL if every else SubqueryKind.ANY
    return Subquery(kind, relation, BOOL, True, typed, holders=holders, test=test)


def _typed_like(binder: Binder, operand: Expression, column: Column, name: str, tree: exp.Expr) -> Expression:
    """The operand; if of type unknown, with the type that the operator's resolution chose."""
    if operand.type != UNKNOWN:
        return operand
    call = operator(binder, name, [operand, ColumnRef(column)], tree)
    return call.arguments[0] if isinstance(call, Call) else binder.default_unknown(operand)


def quantifier(tree: exp.Expr) -> str | None:
    """`any`, `some` or `all` if sqlglot parsed it as a function call."""
    if isinstance(tree, exp.Anonymous) and len(tree.expressions) == 1:
        name = function_name(tree)
        return name if name in ("any", "some", "all") else None
    return None
