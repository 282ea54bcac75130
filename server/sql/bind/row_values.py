"""Comparisons of rows, field by field."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import BOOL
from server.sql.bind.binder import Binder
from server.sql.bind.calls import operator, operator_position
from server.sql.bind.connectives import conjunction, disjunction, negation
from server.sql.bind.rows import row_fields, whole_row
from server.sql.expressions import Call, Case, Expression, Literal
from server.sql.functions import syntax
from server.sql.functions.records import check_same_field
from server.sql.scope import Scope


def rows_compared(
    binder: Binder, name: str, left: exp.Expr, right: exp.Expr, scope: Scope, tree: exp.Expr
) -> Expression:
    """A comparison of rows as they are written. 42601 for different lengths."""
    fields = row_fields(left, scope), row_fields(right, scope)
    if None in fields:
        values = [binder.expression(side, scope) for side in (left, right)]
        if all(value.type.name == "record" for value in values):
            return operator(binder, name, values, tree)
    pairs = paired_fields(binder, fields[0] or [left], fields[1] if fields[1] is not None else [right], tree)
    if not pairs:
        message = "cannot compare rows of zero length"
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, position=operator_position(binder, tree))
    bound = [(binder.expression(x, scope), binder.expression(y, scope)) for x, y in pairs]
    if whole_row(left, scope) is not None or whole_row(right, scope) is not None:
        return _compared_records(binder, name, bound, tree)
    return compared_rows(binder, name, bound, tree)


def compared_rows(
    binder: Binder, name: str, pairs: Sequence[tuple[Expression, Expression]], tree: exp.Expr
) -> Expression:
    """A comparison of rows. = and <> compare all fields; < etc. are decided by the first fields that are not equal."""
    tests = [operator(binder, name, [a, b], tree) for a, b in pairs]
    for test in tests:
        if test.type != BOOL:
            raise PgError(
                SqlState.DATATYPE_MISMATCH,
                f"row comparison operator must yield type boolean, not type {test.type.base_display}",
                position=operator_position(binder, tree),
            )
    if len(tests) == 1 or name == "=":
        return conjunction(tests)
    if name == "<>":
        return disjunction(tests)
    if name not in ("<", "<=", ">", ">="):
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f"could not determine interpretation of row comparison operator {name}",
            hint="Row comparison operators must be associated with btree operator families.",
            position=operator_position(binder, tree),
        )
    result = tests[-1]
    for a, b in reversed(pairs[:-1]):
        less = operator(binder, name[0], [a, b], tree)
        result = Case(((operator(binder, "=", [a, b], tree), result),), less, BOOL)
    return result


def _compared_records(
    binder: Binder, name: str, pairs: Sequence[tuple[Expression, Expression]], tree: exp.Expr
) -> Expression:
    """A comparison with a whole row of a table: NULL is equal to NULL, and greater than any value. 42804."""
    for number, sides in enumerate(pairs, 1):
        check_same_field(sides[0].type, sides[1].type, number)
    differ = [_differs(binder, a, b, tree) for a, b in pairs]
    if name == "=":
        return conjunction([negation(test) for test in differ])
    if name == "<>":
        return disjunction(differ)
    result: Expression = Literal(name in ("<=", ">="), BOOL)
    for (a, b), test in zip(reversed(pairs), reversed(differ), strict=True):
        first, second = (a, b) if name[0] == "<" else (b, a)
        first_null, second_null = (Call(syntax.IS_NULL, (side,), BOOL, False) for side in (first, second))
        less = Case(
            ((first_null, Literal(False, BOOL)), (second_null, Literal(True, BOOL))),
            operator(binder, "<", [first, second], tree),
            BOOL,
        )
        result = Case(((test, less),), result, BOOL)
    return result


def _differs(binder: Binder, a: Expression, b: Expression, tree: exp.Expr) -> Expression:
    """Whether two values are different, or only one of them is NULL."""
    a_null, b_null = (Call(syntax.IS_NULL, (side,), BOOL, False) for side in (a, b))
    unequal = operator(binder, "<>", [a, b], tree)
    return Case(((a_null, negation(b_null)), (b_null, Literal(True, BOOL))), unequal, BOOL)


def paired_fields(
    binder: Binder, left: Sequence[exp.Expr], right: Sequence[exp.Expr], tree: exp.Expr
) -> list[tuple[exp.Expr, exp.Expr]]:
    """Pairs of corresponding fields. 42601 if the lengths differ."""
    if len(left) != len(right):
        message = "unequal number of entries in row expressions"
        raise PgError(SqlState.SYNTAX_ERROR, message, position=operator_position(binder, tree))
    return list(zip(left, right, strict=True))
