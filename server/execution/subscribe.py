"""SUBSCRIBE: its query, its time bounds and its output format. docs/subscribe.md describes the rules."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from catalog import spill, updates
from catalog.ids import TIMESTAMP_MAX, ObjectId, Timestamp
from catalog.objects.kinds import with_article
from catalog.objects.relations import Collection, Relation
from catalog.objects.system_tables import SystemTable
from catalog.objects.views import View
from catalog.state import CatalogState
from protocol.pgwire.errors import Notice, PgError, Severity, SqlState
from protocol.pgwire.types import PgType
from server.authorization import privileges
from server.coordinator.reads import altered_error
from server.coordinator.subscriptions import Joined
from server.dataflow.stream.consolidation import ordered
from server.dataflow.stream.envelope import DiffEnvelope, Envelope, KeyedEnvelope
from server.dataflow.stream.feed import Entry
from server.dataflow.stream.order import Order
from server.dataflow.stream.selection import selection_of
from server.dataflow.stream.snapshot_stream import SnapshotStream
from server.dataflow.stream.subscription import (
    AnySubscription,
    Bounds,
    ConstantSubscription,
    PendingSubscription,
    Progress,
    Subscription,
)
from server.execution.as_of import as_of_time
from server.execution.names import find_item
from server.execution.planning import plan_order
from server.execution.preparation import preparation_of
from server.execution.select import check_unaltered, hold_at, require_inputs, rows_without_inputs
from server.execution.show_query import show_query
from server.execution.times import refuse_parameters, timestamp_of
from server.runtime.errors import evaluation_error, to_pg_error
from server.runtime.offload import offload
from server.session_state.context import Context
from server.session_state.prepared import SubscribePlan
from server.session_state.progress import reporting
from server.session_state.results import Result, SubscriptionRows
from server.session_state.transaction import Mode
from server.session_state.transaction_errors import not_readable
from server.sql.direct_scan import DirectScan
from server.sql.grammar.statements.parts import Ident, Name, Query
from server.sql.grammar.statements.subscribe import (
    EnvelopeDebezium,
    EnvelopeUpsert,
    Output,
    Subscribe,
    WithinTimestampOrderBy,
)
from server.sql.plan import Field, QueryPlan, bound, plan_query
from server.sql.stored_query import relation_query
from server.timeline.frontiers import NotReadable


def plan_subscribe(context: Context, statement: Subscribe, types: Sequence[PgType | None] | None) -> SubscribePlan:
    """Plans the query and the output columns; chooses no timestamp. `types`: parameter types as in `plan_query`."""
    relation: str | None = None
    match statement.source:
        case Name() as name:
            item = find_item(context, name)
            if not isinstance(item, Relation):
                full = ".".join(context.state.full_name(item))
                raise PgError(
                    SqlState.WRONG_OBJECT_TYPE,
                    f"'{full}' cannot be subscribed to because it is {with_article(item.kind)}",
                )
            relation, query = item.name, relation_query(item)
        case Query() as query:
            pass
        case show:
            query = show_query(context, show)
    if statement.as_of is not None:
        refuse_parameters(statement.as_of.time)
    if statement.up_to is not None:
        refuse_parameters(statement.up_to)
    plan = plan_query(query, context.plan_context(), types, maintained=True)
    if not plan.columns:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            "SUBSCRIBE to a query without columns is not supported",
            hint="Subscribe to a query of one constant column, such as SELECT true FROM ...",
        )
    return SubscribePlan(plan, _envelope(context, statement, plan.columns, relation))


def _envelope(context: Context, statement: Subscribe, relation: tuple[Field, ...], name: str | None) -> Envelope:
    progress = statement.progress
    if statement.output is not None:
        _check_enabled(context, statement.output)
    match statement.output:
        case None:
            return DiffEnvelope(relation, progress=progress)
        case WithinTimestampOrderBy() as clause:
            order = plan_order(clause, relation, name, context.plan_context())
            return DiffEnvelope(relation, progress=progress, order=Order(order, context.engine))
        case EnvelopeUpsert(keys=keys):
            return KeyedEnvelope(relation, _key_columns(keys, relation, "UPSERT"), before=False, progress=progress)
        case EnvelopeDebezium(keys=keys):
            return KeyedEnvelope(relation, _key_columns(keys, relation, "DEBEZIUM"), before=True, progress=progress)


_OUTPUT_NAMES: dict[type, str] = {
    type(None): "default",
    WithinTimestampOrderBy: "within_timestamp_order_by",
    EnvelopeUpsert: "envelope_upsert",
    EnvelopeDebezium: "envelope_debezium",
}
OUTPUTS = tuple(_OUTPUT_NAMES.values())
"""The names of the output modes in metrics."""

START_S = 10.0
"""How long a statement waits for its subscription to start. A first FETCH may wait as long, despite its timeout."""

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
    """The numbers of the KEY clause's columns. PgError 42703, 42702; 42701 for a column that is named twice."""
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


@dataclass(frozen=True, slots=True)
class _Start:
    """What starts a subscription to a query over relations.

    `is_exact`: the stream must begin at `as_of`, not later. `role`: the one that executes it.
    """

    query: QueryPlan
    envelope: Envelope
    as_of: Timestamp
    is_exact: bool
    bounds: Bounds
    output: str
    role: ObjectId


async def subscribe(
    context: Context, statement: Subscribe, plan: SubscribePlan, parameters: tuple[object, ...]
) -> Result:
    """Chooses the start time and joins a feed. Closing the result's rows leaves the feed. PgError 42501."""
    privileges.require_query(context.state, context.role, plan.query)
    query = bound(plan.query, parameters)
    up_to = await timestamp_of(context, statement.up_to) if statement.up_to is not None else None
    as_of = await _start_time(context, statement, query.inputs)
    output = _OUTPUT_NAMES[type(statement.output)]
    subscription: AnySubscription
    # A temporal filter sets `uses_session`: its result changes with time, although it may read no relation.
    if not query.inputs and not query.uses_session:
        _check_bounds(context, TIMESTAMP_MAX, up_to)  # whatever AS OF is: constant rows do not depend on time
        with _evaluation():
            rows = await rows_without_inputs(context, query, ())
        snapshot = statement.snapshot and up_to is None
        subscription = ConstantSubscription(rows, snapshot=snapshot, progress=statement.progress)
    else:
        _check_bounds(context, as_of, up_to)
        if as_of == up_to and as_of > context.coordinator.latest_time():  # empty interval: no need to wait
            nothing = pa.table({})
            subscription = ConstantSubscription(nothing, snapshot=False, progress=statement.progress, time=as_of)
        else:
            bounds = Bounds(up_to, statement.snapshot, statement.progress)
            # With UP TO, a later time could be beyond it. The history of a system table may begin only now.
            is_bounded = up_to is not None and not _reads_system_tables(context, query)
            is_exact = statement.as_of is not None or is_bounded
            start = _Start(query, plan.envelope, Timestamp(as_of), is_exact, bounds, output, context.role)
            subscription = await _started_or_pending(context, start)
    context.coordinator.activity.subscriptions_started[output] += 1
    return Result("SELECT {}", SubscriptionRows(subscription, plan.envelope))


async def _start_time(context: Context, statement: Subscribe, inputs: frozenset[ObjectId]) -> int:
    """The time of AS OF; without it, the latest time at which all inputs can be read."""
    if statement.as_of is None:
        await context.enter(Mode.SUBSCRIBE, "SUBSCRIBE")
        return context.coordinator.frontiers.next_readable(inputs, context.coordinator.read_time(inputs))
    return await as_of_time(context, statement.as_of, inputs)


async def _started_or_pending(context: Context, start: _Start) -> PendingSubscription | Subscription:
    """The subscription, or a pending one if AS OF is in the future or the start takes longer than START_S."""
    holder = hold_at(context, start.query.inputs, start.as_of)  # at once: the next commit may move `since` beyond it
    starting = asyncio.create_task(_started(context, start))
    starting.add_done_callback(lambda _: holder.release())
    # Without AS OF, the snapshot may have a later time.
    first = Progress(start.as_of) if start.bounds.progress and start.is_exact else None
    pending = PendingSubscription(starting, first)
    is_past = start.as_of <= context.coordinator.latest_time()
    return await pending.started_within(START_S) if is_past else pending


async def _started(context: Context, start: _Start) -> Subscription:
    """Joins a feed and starts reading the snapshot. Waits until the time of AS OF has been reached.

    The caller holds the inputs at this time.
    """
    query, bounds = start.query, start.bounds
    with reporting(context, lambda: preparation_of(context, query)):
        joined = await _join(context, query, start.as_of, exact=start.is_exact)
    snapshot_stream = SnapshotStream(_entries_before(joined, bounds, start.envelope), joined.release)
    buffered_bytes_max = int(context.settings["subscription_waiting_bytes_max"])
    subscription = Subscription(joined.feed, joined.reader, snapshot_stream, joined.as_of, bounds, buffered_bytes_max)
    check = _check(context, query, start.role, subscription)
    activity = context.coordinator.activity
    joined.reader.on_close = activity.subscribed(context.process_id, start.output, query.uses, check)
    check()  # AS OF may be much later than the statement
    if joined.as_of > start.as_of and bounds.past(joined.as_of):
        subscription.end(_began_late(joined.as_of, bounds))
    snapshot_stream.start()
    try:
        if spill.size_of(joined.tables) <= spill.MEMORY_BYTES_MAX:
            await snapshot_stream.started()  # so that the first FETCH returns it, however short its timeout is
    except BaseException:
        subscription.close()
        raise
    return subscription


def _check(context: Context, query: QueryPlan, role: ObjectId, subscription: Subscription) -> Callable[[], None]:
    """Returns a function that ends the subscription if `role` may not run the query any more, or a view has changed."""
    state = context.coordinator.state
    names = {view.id: ".".join(state.full_name(view)) for view in query.views if view.id in state.items}

    def check() -> None:
        state = context.coordinator.state
        error = _changed_view_error(state, query, names) or privileges.refusal(state, role, query)
        if error is not None:
            subscription.end(error)

    return check


def _changed_view_error(state: CatalogState, query: QueryPlan, names: Mapping[ObjectId, str]) -> PgError | None:
    """The error if a view of the query was dropped or replaced. `names`: the full names of the views."""
    for view in query.views:
        current = state.items.get(view.id)
        name = names.get(view.id, view.name)
        if isinstance(current, View):
            if current.replacements != view.replacements:
                return altered_error(name)
        elif query.inputs <= state.items.keys():  # the feed fails if an input was dropped
            return PgError(SqlState.UNDEFINED_OBJECT, f"relation '{name}' was dropped")
    return None


async def _entries_before(joined: Joined, bounds: Bounds, envelope: Envelope) -> AsyncGenerator[Entry]:
    """The snapshot, then the changes before the reader's position in the feed; of one time in the envelope's order."""
    directory = joined.feed.directory
    try:
        if bounds.snapshot and not bounds.past(joined.as_of):
            async for changes in ordered(joined.tables, directory, envelope):
                if updates.has_retractions(changes):
                    raise updates.NegativeCount("of a row of the snapshot", joined.relation)
                yield Entry(joined.as_of, changes, shared=False)
        for time in joined.times:
            if not bounds.past(time):
                async for changes in ordered(await joined.changes(time), directory, envelope):
                    yield Entry(time, changes, shared=False)
    except (updates.NegativeCount, PgError) as error:
        raise evaluation_error(to_pg_error(error)) from None


def _reads_system_tables(context: Context, query: QueryPlan) -> bool:
    return any(isinstance(context.state.items[id], SystemTable) for id in query.inputs)


def _began_late(as_of: Timestamp, bounds: Bounds) -> PgError:
    message = f"subscription began at {as_of}, not before its upper bound (`UP TO`): {bounds.up_to}"
    return PgError(SqlState.DATA_EXCEPTION, message, hint="Write a later time in UP TO.")


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
    try:
        await _until_reached(context, plan.inputs, as_of)
        require_inputs(context, plan.inputs)
        check_unaltered(context, plan)
        with _evaluation():
            scan = plan.direct_scan
            item = context.state.items[scan.source] if scan is not None else None
            if scan is not None and isinstance(item, Collection):
                width = len(item.columns)
                selection = selection_of(scan, width)
                if selection is not None or scan == DirectScan(item.id, tuple(range(width))):
                    return await coordinator.subscriptions.join_collection(scan.source, as_of, selection)
            computation = await offload(plan.stored_text, coordinator.computations.of_query, plan)
            return await coordinator.subscriptions.join_query(computation, as_of, exact=exact)
    except NotReadable as error:  # a system table has no history before its first subscription
        raise not_readable(context, error, as_of) from None


async def _until_reached(context: Context, inputs: frozenset[ObjectId], time: Timestamp) -> None:
    """Waits until `time` is reached. PgError 42704 if a relation is dropped meanwhile."""
    coordinator, state = context.coordinator, context.state
    require_inputs(context, inputs)
    names = {id: ".".join(state.full_name(state.items[id])) for id in inputs}
    while coordinator.latest_time() < time:
        for id, name in names.items():
            if id not in coordinator.state.items:
                raise PgError(SqlState.UNDEFINED_OBJECT, f"relation '{name}' was dropped")
        await coordinator.frontiers.moved.wait()


@contextmanager
def _evaluation() -> Iterator[None]:
    """Reports errors of computing rows with the same SQLSTATE and message as errors that end a running stream."""
    try:
        yield
    except PgError as error:
        raise evaluation_error(error) from None
