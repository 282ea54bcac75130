"""SUBSCRIBE: what it reads, from when to when, and how it is shown (`spec.md` 1)."""

from __future__ import annotations

from dataclasses import dataclass

from catalog.objects import Index, Timestamp
from protocol.pgwire.errors import Notice, PgError, Severity, SqlState
from server.context import Context
from server.coordinator import Joined
from server.dataflow.computation import QueryComputation
from server.dataflow.envelope import DiffEnvelope, Envelope, KeyedEnvelope
from server.dataflow.subscription import Bounds, ConstantSubscription, Subscription
from server.execution.names import find_relation
from server.execution.planning import plan_order, relation_query, system_table_in
from server.execution.query import hold_at, rows_without_inputs
from server.execution.times import timestamp_of
from server.results import Result, SubscriptionRows
from server.sql.direct import DirectScan
from server.sql.plan import Field, QueryPlan, plan_query
from server.sql.statements import (
    EnvelopeDebezium,
    EnvelopeUpsert,
    Ident,
    Name,
    Output,
    Query,
    Subscribe,
    WithinTimestampOrderBy,
)
from server.transaction import Mode


@dataclass(frozen=True, slots=True)
class SubscribePlan:
    query: QueryPlan
    envelope: Envelope


def plan_subscribe(context: Context, statement: Subscribe) -> SubscribePlan:
    """Types and columns, without choosing a time."""
    match statement.source:
        case Name() as name:
            item = find_relation(context, name)
            if isinstance(item, Index):
                full = ".".join(context.state.full_name(item))
                raise PgError(
                    SqlState.WRONG_OBJECT_TYPE, f"'{full}' cannot be subscribed to because it is an {item.kind}"
                )
            query = relation_query(item)
        case Query() as query:
            pass
        case _:
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, "SUBSCRIBE to SHOW is not supported yet")
    plan = plan_query(query, context.plan_context(), maintained=True)
    if not plan.columns:
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, "SUBSCRIBE to a query without columns is not supported")
    if (system := system_table_in(plan, context.state)) is not None:
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, f'SUBSCRIBE to system table "{system.name}" is not supported yet')
    return SubscribePlan(plan, _envelope(context, statement, plan.columns))


def _envelope(context: Context, statement: Subscribe, relation: tuple[Field, ...]) -> Envelope:
    progress = statement.progress
    if statement.output is not None:
        _check_enabled(context, statement.output)
    match statement.output:
        case None:
            return DiffEnvelope(relation, progress=progress)
        case WithinTimestampOrderBy() as clause:
            order = plan_order(clause, relation, context.plan_context())
            engine = context.engine
            return DiffEnvelope(
                relation, progress=progress, arrange=lambda changes: order.arrange(changes, engine), order=order.form
            )
        case EnvelopeUpsert(keys=keys):
            return KeyedEnvelope(relation, _key_columns(keys, relation, "UPSERT"), before=False, progress=progress)
        case EnvelopeDebezium(keys=keys):
            return KeyedEnvelope(relation, _key_columns(keys, relation, "DEBEZIUM"), before=True, progress=progress)


_SWITCHES: dict[type[Output], tuple[str, str]] = {
    WithinTimestampOrderBy: ("enable_within_timestamp_order_by_in_subscribe", "WITHIN TIMESTAMP ORDER BY .."),
    EnvelopeUpsert: ("enable_envelope_upsert_in_subscribe", "ENVELOPE UPSERT (KEY (..))"),
    EnvelopeDebezium: ("enable_envelope_debezium_in_subscribe", "ENVELOPE DEBEZIUM (KEY (..))"),
}


def _check_enabled(context: Context, output: Output) -> None:
    switch, feature = _SWITCHES[type(output)]
    if context.settings[switch] == "off":
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f"{feature} is not available",
            detail="It has been switched off on this server.",
            hint=f"ALTER SYSTEM SET {switch} = on switches it on.",
        )


def _key_columns(keys: tuple[Ident, ...], relation: tuple[Field, ...], envelope: str) -> tuple[int, ...]:
    """The numbers of the KEY clause's columns. 42703, 42702; 42701 for one that is named twice."""
    numbers: list[int] = []
    for key in keys:
        found = [number for number, field in enumerate(relation) if field.name == key.name]
        if not found:
            message = f'column "{key.name}" does not exist'
            raise PgError(SqlState.UNDEFINED_COLUMN, message, position=key.position)
        if len(found) > 1:
            message = f'column reference "{key.name}" is ambiguous'
            raise PgError(SqlState.AMBIGUOUS_COLUMN, message, position=key.position)
        if found[0] in numbers:
            raise PgError(
                SqlState.DUPLICATE_COLUMN,
                f"invalid keys in SUBSCRIBE ENVELOPE {envelope} (KEY (..))",
                detail=f'Column "{key.name}" is named more than once.',
                hint="Name each key column once.",
                position=key.position,
            )
        numbers += found
    return tuple(numbers)


async def subscribe(context: Context, statement: Subscribe, plan: SubscribePlan) -> Result:
    """Chooses the time and takes a place in a feed. The rows release it when they are closed."""
    frontiers = context.coordinator.frontiers
    up_to = timestamp_of(context, statement.up_to) if statement.up_to is not None else None
    inputs = plan.query.inputs
    exact = statement.as_of is not None
    if statement.as_of is not None:
        as_of = timestamp_of(context, statement.as_of.time)
        if statement.as_of.at_least:
            as_of = max(as_of, frontiers.greatest_since(inputs))
    else:
        await context.enter(Mode.SUBSCRIBE, "SUBSCRIBE")
        as_of = max(context.coordinator.latest_time(), frontiers.greatest_since(inputs))
    if not inputs:
        rows = await rows_without_inputs(context, plan.query, ())
        constant = ConstantSubscription(rows, snapshot=statement.snapshot, progress=statement.progress)
        return Result("SUBSCRIBE {}", SubscriptionRows(constant, plan.envelope))
    _check_bounds(context, as_of, up_to)
    bounds = Bounds(up_to, statement.snapshot, statement.progress)
    joined = await _join(context, plan.query, Timestamp(as_of), exact=exact)
    waiting_bytes_max = int(context.settings["subscription_waiting_bytes_max"])
    return Result("SUBSCRIBE {}", SubscriptionRows(Subscription(joined, bounds, waiting_bytes_max), plan.envelope))


def _check_bounds(context: Context, as_of: int, up_to: int | None) -> None:
    if up_to is None:
        return
    if as_of > up_to:
        raise PgError(
            SqlState.DATA_EXCEPTION,
            f"subscription lower bound (`AS OF`) is greater than its upper bound (`UP TO`): {as_of} > {up_to}",
        )
    if as_of == up_to:
        context.notice(
            Notice(
                f"subscribe as of {as_of} (inclusive) up to the same bound {up_to} (exclusive) "
                "is guaranteed to be empty",
                severity=Severity.NOTICE,
            )
        )


async def _join(context: Context, plan: QueryPlan, as_of: Timestamp, *, exact: bool) -> Joined:
    coordinator = context.coordinator
    holder = hold_at(context, plan.inputs, as_of)
    try:
        scan = plan.direct_scan
        if scan is not None and scan == DirectScan(
            scan.source, tuple(range(len(context.state.items[scan.source].columns)))
        ):
            return await coordinator.join_collection(scan.source, as_of)
        computation = QueryComputation(plan, context.engine, coordinator.rows, coordinator.log)
        return await coordinator.join_query(computation, as_of, exact=exact)
    finally:
        holder.release()
