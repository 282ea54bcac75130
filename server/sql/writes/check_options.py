"""WITH CHECK OPTION: the conditions that rows must meet if they are written through views.

They are rules of the new rows as the CHECK constraints of the table, but NULL is a violation, too. A condition is bound
over the columns of the table: the columns of the views below it are replaced by their expressions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import BOOL, parse_type
from server.sql.bind import Binder, PlanContext
from server.sql.bind.select_list import select_list
from server.sql.expressions import Call, Column, ColumnRef, Expression, Literal, Subquery, Volatile, walk
from server.sql.functions import syntax
from server.sql.row_rules import RowRules, Rule, row_columns, rules_of
from server.sql.scope import Entry, Scope, in_clause
from server.sql.writes.target import WriteTarget
from server.sql.writes.updatable_views import Level, select_of

CONDITION_NODES_MAX = 20_000
"""The limit of nodes in the conditions of all views that a row is checked with. Small texts can have large conditions,
because a view can name a column of the view below it several times. Planning so many takes about 50 ms."""


def rules_through(target: WriteTarget, context: PlanContext) -> RowRules | None:
    """The rules for the rows that a statement writes to a target; None if there are none. PgError 0A000."""
    rules = rules_of(target.table, context)
    checked = list(_checked(target.levels))
    if not any(checked):
        return rules
    binder = Binder(context)
    columns = row_columns(binder, target.table.columns)
    if rules is None:
        rules = RowRules(columns, (), ())
    assert rules.columns == columns
    conditions = _conditions(binder, target.levels, checked, columns)
    return replace(rules, checks=(*rules.checks, *conditions))


def _checked(levels: Sequence[Level]) -> Iterator[bool]:
    """For each view whether it is checked. A view is, if it has the option, or if one over it has it CASCADED."""
    is_cascaded = False
    for level in levels:
        option = level.view.check_option
        is_cascaded |= option == "cascaded"
        yield is_cascaded or option == "local"


def _conditions(
    binder: Binder, levels: Sequence[Level], checked: Sequence[bool], columns: Sequence[Column]
) -> list[tuple[Rule, Expression]]:
    """The conditions of the checked views, those of inner views first."""
    found: list[tuple[Rule, Expression]] = []
    nodes = 0
    values: list[Expression] = list(map(ColumnRef, columns))
    binder.inside_view += 1  # positions in stored texts are not positions in the client's text
    for level, is_checked in reversed(list(zip(levels, checked, strict=True))):
        alias, tree = level.query.alias, select_of(level.view)
        named = level.query.columns([column.name for column in level.base.columns])
        entries = [Entry(name, values[number], alias) for name, number in named if number is not None]
        scope = Scope(entries, real_names={alias: alias})
        where = tree.args.get("where")
        if is_checked and where is not None:
            condition = binder.condition(where.this, in_clause(scope, "WHERE"), "WHERE")
            found.append((Rule(level.view.name, of_view=True), _met(level, condition)))
            nodes += sum(1 for _ in walk(condition))
            if nodes > CONDITION_NODES_MAX:
                raise PgError(
                    SqlState.PROGRAM_LIMIT_EXCEEDED,
                    f'the condition of view "{level.view.name}" is too large for WITH CHECK OPTION',
                    detail=f"The checked conditions may have {CONDITION_NODES_MAX} names, values and calls in total.",
                    hint="Omit WITH CHECK OPTION, or check the rows by a CHECK constraint of the table.",
                )
        items = select_list(binder, tree.expressions, scope)
        values = [
            binder.rescale(binder.default_unknown(item.expression), parse_type(column.type))
            for item, column in zip(items, level.view.columns, strict=True)
        ]
    return found


def _met(level: Level, condition: Expression) -> Expression:
    """Whether a condition is true. PgError 0A000 if the columns of the new row do not determine it."""
    for node in walk(condition):
        if isinstance(node, Subquery | Volatile):
            what = "a subquery" if isinstance(node, Subquery) else f"{node.name}()"
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                f'WITH CHECK OPTION is not supported for {what} in the condition of view "{level.view.name}"',
                hint="Use a condition that depends on the columns of the row only, or omit WITH CHECK OPTION.",
            )
    return Call(syntax.COALESCE, (condition, Literal(False, BOOL)), BOOL, False)
