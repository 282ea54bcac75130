"""AND, OR and NOT."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from protocol.pgwire.types import BOOL
from server.sql.bind.binder import Binder, form
from server.sql.expressions import Call, Expression
from server.sql.functions import syntax
from server.sql.functions.table import Function
from server.sql.scope import Scope


@form(exp.And, exp.Or)
def and_or(binder: Binder, tree: exp.Expr, scope: Scope) -> Expression:
    """A chain of the same connective is bound as one call, without recursion over its length."""
    kind = type(tree)
    parts: list[exp.Expr] = []
    stack = [tree]
    while stack:
        current = stack.pop()
        if isinstance(current, kind):
            stack.extend((current.args["expression"], current.this))
        else:
            parts.append(current)
    word = "AND" if kind is exp.And else "OR"
    bound = [binder.condition(part, scope, word) for part in parts]
    return conjunction(bound) if word == "AND" else disjunction(bound)


def conjunction(conditions: Sequence[Expression]) -> Expression:
    """AND of one or more conditions."""
    return _connective(syntax.AND, conditions)


def disjunction(conditions: Sequence[Expression]) -> Expression:
    """OR of one or more conditions."""
    return _connective(syntax.OR, conditions)


def negation(condition: Expression) -> Expression:
    """NOT of a bound condition."""
    return Call(syntax.NOT, (condition,), BOOL, condition.nullable)


def _connective(function: Function, conditions: Sequence[Expression]) -> Expression:
    if len(conditions) == 1:
        return conditions[0]
    return Call(function, tuple(conditions), BOOL, any(c.nullable for c in conditions))


@form(exp.Not)
def negated(binder: Binder, tree: exp.Not, scope: Scope) -> Expression:
    """NOT x"""
    return negation(binder.condition(tree.this, scope, "NOT"))
