"""Predicates with special syntax: IS, IS DISTINCT FROM, BETWEEN, IN."""

from __future__ import annotations

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import BOOL, JSON, JSONB, TEXT
from server.sql.bind.binder import Binder, form
from server.sql.bind.calls import call, call_of, operator
from server.sql.bind.connectives import conjunction, disjunction, negation
from server.sql.bind.row_values import paired_fields, rows_compared
from server.sql.bind.rows import fields_of, row_fields
from server.sql.bind.subqueries import in_query
from server.sql.coerce import EXPLICIT
from server.sql.expressions import Call, Case, Expression, InList, Literal
from server.sql.functions import syntax
from server.sql.functions.json import IS_JSON
from server.sql.scope import Scope


@form(exp.Is)
def is_test(binder: Binder, tree: exp.Is, scope: Scope) -> Expression:
    """IS [NOT] NULL, TRUE, FALSE, UNKNOWN, JSON, NORMALIZED"""
    value = tree.expression
    negate = bool(tree.args.get("negate"))
    if isinstance(value, exp.Null) and (fields := row_fields(tree.this, scope)) is not None:
        null_test = syntax.IS_NOT_NULL if negate else syntax.IS_NULL
        bound = [binder.default_unknown(binder.expression(field, scope)) for field in fields]
        return conjunction([Call(null_test, (field,), BOOL, False) for field in bound] or [Literal(True, BOOL)])
    if isinstance(value, exp.Null):
        operand = binder.default_unknown(binder.expression(tree.this, scope))
        null_test = syntax.IS_NOT_NULL if negate else syntax.IS_NULL
        if operand.type.fields is not None:
            fields_test = conjunction([Call(null_test, (field,), BOOL, False) for field in fields_of(operand)])
            absent = Call(syntax.IS_NULL, (operand,), BOOL, False)
            return Case(((absent, Literal(not negate, BOOL)),), fields_test, BOOL)
        return Call(null_test, (operand,), BOOL, False)
    if isinstance(value, exp.Boolean):
        word = "TRUE" if value.this else "FALSE"
        operand = binder.condition(tree.this, scope, f"IS {'NOT ' if negate else ''}{word}")
        test = Call(syntax.IS_TRUE if value.this else syntax.IS_FALSE, (operand,), BOOL, False)
        return negation(test) if negate else test
    if isinstance(value, (exp.Column, exp.Identifier, exp.Var)) and value.name == "unknown":
        operand = binder.condition(tree.this, scope, "IS UNKNOWN")
        return Call(syntax.IS_NOT_NULL if negate else syntax.IS_NULL, (operand,), BOOL, False)
    if isinstance(value, exp.JSON) and value.args.get("with_") is None:
        operand = binder.default_unknown(binder.expression(tree.this, scope))
        kind = Literal((value.this or "VALUE").lower(), TEXT)
        if not (operand.type.is_string_family or operand.type in (JSON, JSONB)):
            message = f"cannot use type {operand.type.base_display} in IS JSON predicate"
            raise PgError(SqlState.DATATYPE_MISMATCH, message, position=binder.at(tree))
        return call_of(IS_JSON, (binder.coerce(operand, TEXT, EXPLICIT), kind), BOOL)
    if isinstance(value, exp.Column) and value.name == "normalized":
        normalized = call(binder, "is_normalized", [tree.this], scope, tree)
        return negation(normalized) if negate else normalized
    raise binder.unsupported(
        "this IS test", tree, hint="Use IS NULL, IS TRUE, IS FALSE, IS UNKNOWN, IS DISTINCT FROM or IS JSON."
    )


@form(exp.NullSafeEQ, exp.NullSafeNEQ)
def distinct_test(binder: Binder, tree: exp.Expr, scope: Scope) -> Expression:
    """IS [NOT] DISTINCT FROM, of values or rows."""
    fields = row_fields(tree.this, scope), row_fields(tree.expression, scope)
    differ: Expression
    if fields[0] is not None and fields[1] is not None:
        pairs = paired_fields(binder, fields[0], fields[1], tree)
        tests = [_differ(binder, binder.expression(x, scope), binder.expression(y, scope), tree) for x, y in pairs]
        differ = disjunction(tests) if tests else Literal(False, BOOL)
    else:
        differ = _differ(binder, binder.expression(tree.this, scope), binder.expression(tree.expression, scope), tree)
    return negation(differ) if isinstance(tree, exp.NullSafeEQ) else differ


def _differ(binder: Binder, left: Expression, right: Expression, tree: exp.Expr) -> Expression:
    equality = operator(binder, "=", [left, right], tree)
    assert isinstance(equality, Call)
    a, b = equality.arguments
    differ: Expression
    if a.type == b.type and a.type.name not in ("numeric", "bpchar", "interval", "record"):
        differ = Call(syntax.IS_DISTINCT, (a, b), BOOL, False)
    else:
        a_null, b_null = (Call(syntax.IS_NULL, (side,), BOOL, False) for side in (a, b))
        differ = Case(((a_null, negation(b_null)), (b_null, Literal(True, BOOL))), negation(equality), BOOL)
    return differ


@form(exp.Between)
def between(binder: Binder, tree: exp.Between, scope: Scope) -> Expression:
    """BETWEEN [SYMMETRIC], of values or rows."""
    if row_fields(tree.this, scope) is not None:
        below = rows_compared(binder, ">=", tree.this, tree.args["low"], scope, tree)
        return conjunction([below, rows_compared(binder, "<=", tree.this, tree.args["high"], scope, tree)])
    value, low, high = (binder.expression(tree.args[k], scope) for k in ("this", "low", "high"))

    def within(least: Expression, most: Expression) -> Expression:
        return conjunction([operator(binder, ">=", [value, least], tree), operator(binder, "<=", [value, most], tree)])

    if tree.args.get("symmetric"):
        return disjunction([within(low, high), within(high, low)])
    return within(low, high)


@form(exp.In)
def in_test(binder: Binder, tree: exp.In, scope: Scope) -> Expression:
    """IN over a list or a query."""
    query = tree.args.get("query")
    items = tree.expressions
    if query is None and len(items) == 1 and isinstance(items[0], (exp.Values, exp.Select, exp.SetOperation)):
        query = items[0]
    if query is not None:
        return in_query(binder, tree.this, query, scope, tree)
    if not items:  # `IN ()`, or `IN name` without parentheses
        name = field.name if (field := tree.args.get("field")) else ")"
        raise PgError(SqlState.SYNTAX_ERROR, f'syntax error at or near "{name}"', position=binder.at(field))
    if row_fields(tree.this, scope) is not None:
        alternatives = [rows_compared(binder, "=", tree.this, item, scope, tree) for item in items]
        return disjunction(alternatives)
    operand = binder.expression(tree.this, scope)
    bound = [binder.expression(item, scope) for item in items]
    try:
        common, coerced = binder.to_common([operand, *bound], "IN")
    except PgError as error:
        if error.sqlstate is not SqlState.DATATYPE_MISMATCH:
            raise
        return disjunction([operator(binder, "=", [operand, item], tree) for item in bound])
    operator(binder, "=", [coerced[0], coerced[0]], tree)  # raises if the type has no equality
    if common.name in ("bpchar", "interval", "record"):
        return disjunction([operator(binder, "=", [coerced[0], item], tree) for item in coerced[1:]])
    return InList(coerced[0], tuple(coerced[1:]))
