"""Plans of statements."""

from __future__ import annotations

from server.sql.grammar.parse import parse
from server.sql.grammar.statements.merges import Merge
from server.sql.grammar.statements.writes import Delete, Insert, Update
from server.sql.plan import PlanContext
from server.sql.writes.merge import plan_merge
from server.sql.writes.plan import WritePlan
from server.sql.writes.statements import plan_delete, plan_insert, plan_update


def planned_write(sql: str, context: PlanContext) -> WritePlan:
    """The plan of an INSERT, UPDATE, DELETE or MERGE, which is the only statement of the text."""
    (statement,) = parse(sql)
    match statement:
        case Insert():
            return plan_insert(statement, context)
        case Update():
            return plan_update(statement, context)
        case Delete():
            return plan_delete(statement, context)
        case Merge():
            return plan_merge(statement, context)
    raise AssertionError(sql)
