"""What a query waits for before it is computed, in words: the start of Spark, or a hydration."""

from __future__ import annotations

from catalog.roles import Privilege
from server.authorization import privileges
from server.dataflow.runtime.hydration import Hydration, State
from server.pg_catalog.rows import MZ_TABLES
from server.session_state.context import Context
from server.sql.plan import QueryPlan


def preparation_of(context: Context, plan: QueryPlan) -> str | None:
    """Whether Spark is starting; else how far the hydration of a view that a query reads is, or that of its dataflow.

    None: the query waits for neither. Numbers of rows are shown to the roles that may read them in
    mz_hydration_statuses.
    """
    if not context.engine.ready:
        return "waiting for Spark, which is starting"
    for flow in context.coordinator.dataflows.running.values():
        if flow.hydrated:
            continue
        if flow.item is not None and flow.item.id in plan.inputs:
            return _described(context, f'{flow.item.kind} "{flow.item.name}"', flow.computation.hydration)
        if flow.item is None and flow.computation.fingerprint == plan.fingerprint:
            return _described(context, "the query", flow.computation.hydration)
    return None


def _described(context: Context, what: str, hydration: Hydration) -> str:
    if hydration.state is not State.RUNNING:
        return f"{what} waits to be hydrated"
    text = f"hydrating {what}: {hydration.operators_done} of {hydration.operators} operators done"
    table = MZ_TABLES["mz_hydration_statuses"]
    if privileges.has(context.state, context.role, table.id, Privilege.SELECT):
        text += f", {hydration.rows_read} of {hydration.rows_there} rows read"
    return text
