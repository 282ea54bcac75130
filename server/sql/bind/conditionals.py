"""CASE, COALESCE, GREATEST, LEAST and NULLIF."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import INTERVAL, UNKNOWN
from server.sql.bind.binder import Binder, form
from server.sql.bind.calls import operator
from server.sql.expressions import Call, Case, Expression, Literal
from server.sql.functions import intervals, syntax
from server.sql.functions.table import GRAMMAR, Function
from server.sql.scope import Scope

SAME_TYPE_FORMS: dict[str, Function] = {
    "coalesce": syntax.COALESCE, "greatest": syntax.GREATEST, "least": syntax.LEAST,
}  # fmt: skip


@form(exp.Case)
def case_expression(binder: Binder, tree: exp.Case, scope: Scope) -> Expression:
    """CASE, with or without an operand. Its results are cast to their common type. 42804."""
    scope = replace(scope, sets=None)
    operand = None if tree.this is None else binder.expression(tree.this, scope)
    conditions: list[Expression] = []
    for branch in tree.args["ifs"]:
        if operand is None:
            conditions.append(binder.condition(branch.this, scope, "CASE/WHEN"))
        else:
            # The same nodes in all branches: a volatile call in them is one call. Only an unknown literal or parameter,
            # which gets its type from the comparison, is bound for each.
            again = operand.type == UNKNOWN
            sides = [binder.expression(tree.this, scope) if again else operand, binder.expression(branch.this, scope)]
            conditions.append(operator(binder, "=", sides, tree))
    default = tree.args.get("default")
    # PostgreSQL considers ELSE first when it determines the common type.
    values = [binder.expression(default, scope) if default is not None else Literal(None, UNKNOWN)]
    values += [binder.expression(branch.args["true"], scope) for branch in tree.args["ifs"]]
    common, coerced = binder.to_common(values, "CASE", binder.at(tree))
    return Case(tuple(zip(conditions, coerced[1:], strict=True)), coerced[0], common)


def same_type(binder: Binder, name: str, arguments: list[Expression], tree: exp.Expr) -> Expression:
    """coalesce, greatest, least."""
    common, coerced = binder.to_common(arguments, name.upper(), binder.at(tree))
    if name != "coalesce":
        operator(binder, "<", [coerced[0], coerced[0]], tree)
    if len(coerced) == 1:
        return coerced[0]
    nullable = all(e.nullable for e in coerced)
    if name != "coalesce" and (common.element is not None or common.name in ("bpchar", "jsonb")):
        return Call(GRAMMAR[name][0], tuple(coerced), common, nullable)
    extreme = intervals.EXTREMES.get(name) if common == INTERVAL else None
    return Call(extreme or SAME_TYPE_FORMS[name], tuple(coerced), common, nullable)


def nullif(binder: Binder, arguments: list[Expression], tree: exp.Expr) -> Expression:
    """nullif(a, b): a, or NULL if they are equal."""
    if len(arguments) != 2:
        raise PgError(SqlState.SYNTAX_ERROR, "NULLIF requires two arguments", position=binder.at(tree))
    equality = operator(binder, "=", arguments, tree)
    assert isinstance(equality, Call)
    first = equality.arguments[0]
    return Case(((equality, Literal(None, first.type)),), first, first.type)
