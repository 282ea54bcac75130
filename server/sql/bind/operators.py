"""Operators over unbound operands."""

from __future__ import annotations

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from server.sql.bind.binder import Binder, form
from server.sql.bind.calls import operator
from server.sql.bind.grammar import similar
from server.sql.bind.literals import number_literal
from server.sql.bind.quantified import quantified, quantifier
from server.sql.bind.row_identity import rows_identified
from server.sql.bind.row_values import rows_compared
from server.sql.bind.rows import row_fields
from server.sql.bind.shapes import row_of, unparenthesised
from server.sql.bind.subqueries import row_subquery
from server.sql.expressions import Expression
from server.sql.functions.table import COMPARISONS
from server.sql.grammar.dialect import Containing, PathMatch, Within
from server.sql.scope import Scope

_BINARY: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.Pow: "^",
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.DPipe: "||",
    exp.Like: "~~",
    exp.ILike: "~~*",
    exp.RegexpLike: "~",
    exp.RegexpILike: "~*",
    exp.StartsWith: "^@",
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "#",
    exp.BitwiseLeftShift: "<<",
    exp.BitwiseRightShift: ">>",
    exp.JSONExtract: "->",
    exp.JSONExtractScalar: "->>",
    exp.JSONBExtract: "#>",
    exp.JSONBExtractScalar: "#>>",
    exp.ArrayContainsAll: "@>",
    exp.ArrayContainedBy: "<@",
    exp.ArrayOverlaps: "&&",
    exp.JSONBContains: "?",
    exp.JSONBContainsAnyTopKeys: "?|",
    exp.JSONBContainsAllTopKeys: "?&",
    exp.JSONBDeleteAtPath: "#-",
    exp.JSONBPathExists: "@?",
    PathMatch: "@@",
    Within: "<<=",
    Containing: ">>=",
}
_PREFIX: dict[type[exp.Expr], str] = {
    exp.Neg: "-",
    exp.BitwiseNot: "~",
    exp.Sqrt: "|/",
    exp.Cbrt: "||/",
    exp.Abs: "@",
    exp.Unary: "+",
}


@form(*_BINARY)
def binary(binder: Binder, tree: exp.Expr, scope: Scope) -> Expression:
    """left operator right: values, rows, or ANY and ALL on the right."""
    name = f"!{_BINARY[type(tree)]}" if tree.args.get("negate") else _BINARY[type(tree)]
    left, right = tree.this, tree.expression
    if isinstance(right, (exp.Any, exp.All)) or quantifier(right) is not None:
        return quantified(binder, name, left, right, scope)
    if name in ("=", "<>") and (identified := rows_identified(binder, name, tree, scope)) is not None:
        return identified
    if row_of(left) is not None or (name in COMPARISONS and row_fields(left, scope) is not None):
        return _row_comparison(binder, name, tree, scope)
    if name in ("+", "-") and isinstance(tree, (exp.Add, exp.Sub)):
        return _chain(binder, tree, scope)
    sides = [binder.expression(left, scope), binder.expression(right, scope)]
    return operator(binder, name, sides, tree)


def _chain(binder: Binder, tree: exp.Expr, scope: Scope) -> Expression:
    """a + b - c + ...: binds a long chain, which is a deep tree, without recursion."""
    links = []
    current: exp.Expr = tree
    while isinstance(current, (exp.Add, exp.Sub)):
        links.append(current)
        current = current.this
    result = binder.expression(current, scope)
    for link in reversed(links):
        result = operator(binder, _BINARY[type(link)], [result, binder.expression(link.expression, scope)], link)
    return result


@form(*_PREFIX)
def prefix(binder: Binder, tree: exp.Expr, scope: Scope) -> Expression:
    """operator operand. A minus before a number is part of the literal."""
    inner = tree.this
    if isinstance(tree, exp.Neg) and isinstance(inner, exp.Literal) and not inner.is_string:
        return number_literal("-" + inner.this, binder.at(tree))
    return operator(binder, _PREFIX[type(tree)], [binder.expression(inner, scope)], tree)


def _row_comparison(binder: Binder, name: str, tree: exp.Expr, scope: Scope) -> Expression:
    right = unparenthesised(tree.expression)
    if isinstance(right, exp.Subquery):
        return row_subquery(binder, name, tree, right, scope)
    return rows_compared(binder, name, tree.this, tree.expression, scope, tree)


@form(exp.Escape)
def escape(binder: Binder, tree: exp.Escape, scope: Scope) -> Expression:
    """LIKE and SIMILAR TO with ESCAPE."""
    like = tree.this
    if isinstance(like, exp.SimilarTo):
        return similar(binder, [like.this, like.expression, tree.expression], scope, like)
    name = _BINARY[type(like)]
    sides = [binder.expression(e, scope) for e in (like.this, like.expression, tree.expression)]
    return operator(binder, "!" + name if like.args.get("negate") else name, sides, like)


@form(exp.Collate)
def collate(binder: Binder, tree: exp.Collate, scope: Scope) -> Expression:
    """x COLLATE name. The only collation is by bytes. 42704 for any other."""
    if tree.expression.name not in ("C", "POSIX", "default", "ucs_basic"):
        message = f'collation "{tree.expression.name}" for encoding "UTF8" does not exist'
        raise PgError(SqlState.UNDEFINED_OBJECT, message, position=binder.at(tree.expression))
    return binder.expression(tree.this, scope)


@form(exp.Paren)
def parentheses(binder: Binder, tree: exp.Paren, scope: Scope) -> Expression:
    """(x)"""
    return binder.expression(tree.this, scope)
