"""What a table demands of its rows: CHECK constraints, and the expressions of generated columns.

Both are bound over the columns of the table. PgError if an expression is not allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from catalog.objects.columns import Column as CatalogColumn
from catalog.objects.tables import Table
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import PgType, parse_type
from server.sql.bind import Binder, PlanContext, domains
from server.sql.bind.casts import column_value
from server.sql.columns import free_columns
from server.sql.constant import Bindings, Evaluate
from server.sql.expressions import Call, Cast, Column, ColumnRef, Expression, SessionValue, Volatile, transform, walk
from server.sql.grammar.parse import parse_expression
from server.sql.grammar.statements.parts import Expr
from server.sql.row_expressions import compiled_row_expression
from server.sql.scope import Entry, Scope


@dataclass(frozen=True, slots=True)
class Rule:
    """A CHECK constraint of a table, or of a domain. The rule of a domain that is NOT NULL has the name "".

    `of_view`: the rule is the WITH CHECK OPTION of the view with this name.
    """

    name: str
    domain: str = ""
    of_view: bool = False


@dataclass(frozen=True, slots=True)
class RowRules:
    """`columns`: those of the table, over which the expressions are.

    `checks`: the conditions of the constraints, in the order in which they are checked. `generated`: by column number.
    """

    columns: tuple[Column, ...]
    checks: tuple[tuple[Rule, Expression], ...]
    generated: tuple[tuple[int, Expression], ...]

    @property
    def of_table(self) -> RowRules:
        """The rules without those of views."""
        return replace(self, checks=tuple((rule, check) for rule, check in self.checks if not rule.of_view))

    def conditions(self) -> tuple[tuple[Rule, Evaluate], ...] | None:
        """The checks as functions of a row of Python scalars; None if they are not cheap or depend on the session."""
        found = []
        row = {column.id: number for number, column in enumerate(self.columns)}
        for rule, expression in self.checks:
            evaluate = compiled_row_expression(expression, row)
            if evaluate is None:
                return None
            found.append((rule, evaluate))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class RowCondition:
    """The WHERE of COPY, over the columns of a table. Rows for which it is not true are omitted."""

    columns: tuple[Column, ...]
    expression: Expression


_COPY_HINT = "COPY into a temporary table, and INSERT ... SELECT the wanted rows from it."


def copy_condition(context: PlanContext, table: Table, condition: Expr) -> RowCondition:
    """Binds the WHERE of COPY. PgError if it is not allowed."""
    binder = Binder(context, None, text=condition.text, offset=condition.offset)
    columns = row_columns(binder, table.columns)
    if (query := condition.tree.find(exp.Query)) is not None:
        message = "cannot use subquery in COPY FROM WHERE condition"
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, hint=_COPY_HINT, position=binder.at(query))
    scope = replace(_scope(table.name, columns), clause="COPY FROM WHERE conditions")
    bound = binder.condition(condition.tree, scope, "WHERE")
    used = {column.id for column in free_columns(bound)}
    for column, found in zip(columns, table.columns, strict=True):
        if found.generated and column.id in used:
            raise PgError(
                SqlState.INVALID_COLUMN_REFERENCE,
                "generated columns are not supported in COPY FROM WHERE conditions",
                detail=f'Column "{found.name}" is a generated column.',
            )
    for node in walk(bound):
        if isinstance(node, Volatile):
            message = f"{node.name}() is not supported in COPY FROM WHERE conditions"
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, hint=_COPY_HINT)
    return RowCondition(columns, bound)


def rules_of(table: Table, context: PlanContext) -> RowRules | None:
    """The rules for the rows of a table; None if it has none."""
    if not table.checks and not any(column.generated or column.domain for column in table.columns):
        return None
    binder = Binder(context)
    columns = row_columns(binder, table.columns)
    scope = _scope(table.name, columns)
    binder.inside_view += 1  # positions in stored texts are not positions in the client's text
    checks: list[tuple[Rule, Expression]] = []
    for column, bound in zip(table.columns, columns, strict=True):
        if (domain := column.domain) is not None:
            found = domains.conditions(binder, domain, ColumnRef(bound))
            checks += [(Rule(name, domain.name), condition) for name, condition in found]
    for check in sorted(table.checks, key=lambda check: check.name):
        checks.append((Rule(check.name), check_condition(binder, parse_expression(check.expression), scope)))
    generated = [
        (number, generation(binder, column, parse_expression(column.generated), scope))
        for number, column in enumerate(table.columns)
        if column.generated
    ]
    return RowRules(columns, tuple(checks), tuple(generated))


def validate(
    context: PlanContext, name: str, columns: Sequence[CatalogColumn], expression: Expr, generated: str
) -> tuple[set[str], str]:
    """Checks the expression of a CHECK constraint, or of the column `generated` if it is not empty.

    Returns the names of the columns that it uses, and its text as the catalog stores it. PgError.
    """
    binder = Binder(context, None, text=expression.text, offset=expression.offset)
    bound_columns = row_columns(binder, columns)
    scope = _scope(name, bound_columns)
    if (query := expression.tree.find(exp.Query)) is not None:
        what = "column generation expression" if generated else "check constraint"
        message = f"cannot use subquery in {what}"
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, position=binder.at(query))
    if not generated:
        bound = check_condition(binder, expression, scope)
    else:
        column = next(column for column in columns if column.name == generated)
        bound = generation(binder, column, expression, scope)
        used = {column.name for column in free_columns(bound)}
        for other in columns:
            if other.name in used and other.generated:
                raise PgError(
                    SqlState.INVALID_OBJECT_DEFINITION,
                    f'cannot use generated column "{other.name}" in column generation expression',
                    detail="A generated column cannot reference another generated column.",
                )
    return {column.name for column in free_columns(bound)}, binder.stored_text(expression)


def validate_domain(context: PlanContext, base: PgType, expression: Expr) -> str:
    """Checks the expression of a CHECK constraint of a domain. Returns its text as the catalog stores it. PgError."""
    binder = Binder(context, None, text=expression.text, offset=expression.offset)
    if (query := expression.tree.find(exp.Query)) is not None:
        message = "cannot use subquery in check constraint"
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, position=binder.at(query))
    (value,) = row_columns(binder, [CatalogColumn("value", str(base))])
    domains.condition(binder, expression, ColumnRef(value))
    return binder.stored_text(expression)


def check_condition(binder: Binder, expression: Expr, scope: Scope) -> Expression:
    """The bound condition of a CHECK constraint."""
    bound = binder.condition(expression.tree, replace(scope, clause="check constraints"), "CHECK")
    for node in walk(bound):
        if isinstance(node, Volatile):
            message = f"{node.name}() is not supported in a check constraint"
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED, message, hint="Use an expression whose result depends on the row only."
            )
    return bound


def generation(binder: Binder, column: CatalogColumn, expression: Expr, scope: Scope) -> Expression:
    """The bound expression of a generated column, cast to its type. 42P17 if it is not immutable."""
    inner = replace(scope, clause="column generation expressions")
    bound = binder.expression(expression.tree, inner)
    value = column_value(binder, bound, column, None, "default expression")
    if any(map(varies, walk(value))):
        raise PgError(SqlState.INVALID_OBJECT_DEFINITION, "generation expression is not immutable")
    return value


def varies(node: Any) -> bool:
    """Whether the value of an expression with this node depends on the session, the clock or the time zone."""
    return isinstance(node, Volatile | SessionValue) or (isinstance(node, Call | Cast) and bool(node.timezone))


def over(expression: Expression, columns: Sequence[Column], others: Sequence[Column]) -> Expression:
    """An expression over `columns` with `others` in their place."""
    by_id = {column.id: other for column, other in zip(columns, others, strict=True)}
    return transform(expression, lambda n: ColumnRef(by_id[n.column.id]) if isinstance(n, ColumnRef) else None)


def violated(conditions: Sequence[tuple[Rule, Evaluate]], bindings: Bindings, row: tuple[Any, ...]) -> Rule | None:
    """The first rule whose condition is false for a row."""
    return next((rule for rule, evaluate in conditions if evaluate(bindings, row) is False), None)


def row_columns(binder: Binder, columns: Sequence[CatalogColumn]) -> tuple[Column, ...]:
    """The columns over which the rules of a table are. `binder`: a new one, so that their ids are always the same."""
    found = []
    for column in columns:
        type = parse_type(column.type)
        if type.has_seconds:
            type = type.without_modifiers
        digits = (type.precision or 38) if type.name == "numeric" else 0
        found.append(Column(binder.new_id(), column.name, type, column.nullable, digits))
    return tuple(found)


def _scope(table: str, columns: Sequence[Column]) -> Scope:
    return Scope([Entry(column.name, ColumnRef(column), table) for column in columns])
