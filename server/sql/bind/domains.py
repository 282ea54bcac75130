"""The constraints of domains: NOT NULL, and CHECK conditions over `value`."""

from __future__ import annotations

from catalog.objects.columns import DomainUse
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import BOOL, TEXT
from server.sql.bind.binder import Binder
from server.sql.expressions import Call, Expression, Literal, Volatile, precision, walk
from server.sql.functions import syntax
from server.sql.grammar.parse import parse_expression
from server.sql.grammar.statements.parts import Expr
from server.sql.scope import Entry, Scope


def violation(domain: str, check: str) -> PgError:
    """The error for a value that violates a constraint of a domain. `check` "": it is NULL."""
    if not check:
        return PgError(SqlState.NOT_NULL_VIOLATION, f"domain {domain} does not allow null values")
    message = f'value for domain {domain} violates check constraint "{check}"'
    return PgError(SqlState.CHECK_VIOLATION, message, constraint_name=check)


def conditions(binder: Binder, domain: DomainUse, value: Expression) -> list[tuple[str, Expression]]:
    """The conditions that a value must meet, each with the name of its CHECK constraint; "" for NOT NULL."""
    found: list[tuple[str, Expression]] = []
    if domain.not_null:
        found.append(("", Call(syntax.IS_NOT_NULL, (value,), BOOL, False)))
    binder.inside_view += 1  # positions in stored texts are not positions in the client's text
    try:
        for check in sorted(domain.checks, key=lambda check: check.name):
            found.append((check.name, condition(binder, parse_expression(check.expression), value)))
    finally:
        binder.inside_view -= 1
    return found


def condition(binder: Binder, expression: Expr, value: Expression) -> Expression:
    """The bound condition of a CHECK constraint of a domain."""
    scope = Scope([Entry("value", value, None)], clause="check constraints")
    bound = binder.condition(expression.tree, scope, "CHECK")
    for node in walk(bound):
        if isinstance(node, Volatile):
            message = f"{node.name}() is not supported in a check constraint"
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                message,
                hint="Use an expression whose result depends on the value only.",
            )
    return bound


def checked(binder: Binder, domain: DomainUse, value: Expression) -> Expression:
    """The value, or an error if it violates a constraint of the domain."""
    result = value
    for name, test in conditions(binder, domain, value):
        error = violation(domain.name, name)
        message = Literal(f"{error.sqlstate}:{error.message}", TEXT)
        if name:
            result = Call(syntax.REQUIRED, (result, test, message), value.type, value.nullable, precision(value))
        else:
            result = Call(syntax.PRESENT, (result, message), value.type, value.nullable, precision(value))
    return result
