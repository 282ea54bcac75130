"""Plans INSERT, UPDATE and DELETE."""

from __future__ import annotations

from collections.abc import Sequence, Set

from protocol.pgwire.types import PgType
from server.sql.bind import PlanContext
from server.sql.grammar.statements.writes import Delete, Insert, Update
from server.sql.plan import QueryPlan, reject_deep_nesting
from server.sql.writes.literals import plan_literals
from server.sql.writes.plan import WritePlan
from server.sql.writes.planner import WritePlanner, planned_insert


def plan_insert(statement: Insert, context: PlanContext, parameter_types: Sequence[PgType | None] = ()) -> WritePlan:
    """Plans an INSERT, with casts to the columns' types and with defaults. RETURNING is over the new row."""
    if statement.rows is None:
        return planned_insert(statement, context, parameter_types)
    return plan_literals(statement, statement.rows, context)


def plan_defaults(statement: Insert, numbers: Set[int], context: PlanContext) -> QueryPlan:
    """The query of one row of the table: the defaults of the columns with these numbers, and NULL in all others."""
    return reject_deep_nesting(lambda: WritePlanner(statement, context, ()).defaults(statement, numbers))


def plan_update(statement: Update, context: PlanContext, parameter_types: Sequence[PgType | None] = ()) -> WritePlan:
    """Plans an UPDATE; RETURNING is over the new row."""
    return reject_deep_nesting(lambda: WritePlanner(statement, context, parameter_types).update(statement))


def plan_delete(statement: Delete, context: PlanContext, parameter_types: Sequence[PgType | None] = ()) -> WritePlan:
    """Plans a DELETE; RETURNING is over the old row."""
    return reject_deep_nesting(lambda: WritePlanner(statement, context, parameter_types).delete(statement))
