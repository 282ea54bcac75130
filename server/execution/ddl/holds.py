"""CREATE HOLD and ALTER HOLD ... ADVANCE. docs/holds.md describes their rules."""

from __future__ import annotations

from dataclasses import dataclass

from catalog.holds import Status
from catalog.objects import Hold, Index, Item, MaterializedView, ObjectId, SystemTable, Timestamp, View
from catalog.state import CatalogState, NameTaken
from protocol.pgwire.errors import Notice, PgError, Severity, SqlState
from server.authorization import privileges
from server.coordinator.committer import Request
from server.coordinator.holds import Advance, check_final
from server.execution.ddl.definitions import check_kind, exists, take
from server.execution.names import find_relation, schema_of
from server.execution.times import duration_of, timestamp_of
from server.session_state.context import Context
from server.session_state.results import Result
from server.settings import milliseconds
from server.sql.grammar.statements import AdvanceHold, CreateHold, ObjectKind
from server.timeline.frontiers import Holder, NotReadable

HELD_KINDS = frozenset(("table", "materialized view", "index", "source"))
MAX_LAG_DEFAULT_MS = 3 * 3_600_000


@dataclass(frozen=True, slots=True)
class _Beginning:
    """The time at which a hold begins (None: its commit), and a holder that keeps that time readable until then."""

    time: Timestamp | None
    holder: Holder | None


async def create_hold(context: Context, statement: CreateHold) -> Result:
    """Executes CREATE HOLD."""
    at = await timestamp_of(context, statement.at, "AT") if statement.at is not None else None
    max_lag_ms = await _max_lag_ms(context, statement)

    def step(context: Context) -> CatalogState:
        schema, name = schema_of(context, statement.name)
        on = tuple(dict.fromkeys(find_relation(context, object).id for object in statement.on))
        items = [context.state.items[id] for id in on]
        for item in items:
            _check_held(item)
        privileges.require_hold(context.state, context.role, schema, on)
        id, state = context.state.new_id()
        try:
            state = state.with_item(Hold(id, schema.id, name, on, max_lag_ms))
        except NameTaken as error:
            return exists(context, error, statement.if_not_exists)
        created = _created(context)
        begun = _with_creation(context, created, items, at) if created else _over_existing(context, on, at)
        transaction = context.transaction
        transaction.release()
        transaction.holder = begun.holder
        if begun.time is not None:
            transaction.begins[id] = begun.time
            if created and isinstance(items[0], MaterializedView | Index):
                transaction.begins[items[0].id] = begun.time
        return state

    return await take(context, statement.tag, step)


async def _max_lag_ms(context: Context, statement: CreateHold) -> int:
    cap_ms = milliseconds(context.settings["max_hold_lag"])
    if statement.max_lag is None:
        return min(MAX_LAG_DEFAULT_MS, cap_ms)
    lag_ms = await duration_of(context, statement.max_lag, "MAX LAG")
    position = statement.max_lag.position
    if lag_ms <= 0:
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, "MAX LAG must be positive", position=position)
    if lag_ms > cap_ms:
        raise PgError(
            SqlState.INVALID_PARAMETER_VALUE,
            f"MAX LAG is above max_hold_lag, which is {context.settings['max_hold_lag']}",
            hint="A hold with a shorter MAX LAG must be advanced more often. ALTER SYSTEM SET max_hold_lag raises the "
            "bound.",
            position=position,
        )
    return lag_ms


def _check_held(item: Item) -> None:
    if item.kind in HELD_KINDS:
        return
    hint = "Tables, materialized views and indexes can be held."
    if isinstance(item, View):
        hint = "A view has no history of its own: hold the tables and materialized views that it reads."
    if isinstance(item, SystemTable):
        hint = "A system table has no history before somebody subscribes to it."
    raise PgError(SqlState.WRONG_OBJECT_TYPE, f'cannot create hold on {item.kind} "{item.name}"', hint=hint)


def _created(context: Context) -> frozenset[ObjectId]:
    """Ids of the objects created by the transaction block. PgError if it changed the catalog but created nothing."""
    catalog = context.transaction.catalog
    if catalog is None:
        return frozenset()
    before, after = catalog
    created = (after.items.keys() - before.items.keys()) | (after.schemas.keys() - before.schemas.keys())
    if not created:
        raise _one_creation()
    return frozenset(created)


def _one_creation() -> PgError:
    return PgError(
        SqlState.INVALID_TRANSACTION_STATE,
        "CREATE HOLD in a transaction block can only follow the one CREATE of the object that it names",
        hint="Commit first, or create the hold by a statement of its own.",
    )


def _over_existing(context: Context, on: tuple[ObjectId, ...], at: int | None) -> _Beginning:
    coordinator = context.coordinator
    if at is None:
        time = coordinator.frontiers.greatest_retained(on)
    else:
        coordinator.holds.check(context.state, on, at, {})
        time = Timestamp(at)
    return _Beginning(time, coordinator.frontiers.hold(on, time))


def _with_creation(context: Context, created: frozenset[ObjectId], items: list[Item], at: int | None) -> _Beginning:
    """The beginning of a hold on an object created in the same transaction block.

    The object's history begins at the hold's time, by default the greatest `since` of its inputs. A table's history
    begins at the commit. PgError 22023 if AT is earlier, or if it is given for a table.
    """
    if len(items) != 1 or created != {items[0].id}:
        raise _one_creation()
    match items[0]:
        case Index(uses=uses) | MaterializedView(uses=uses):
            inputs = context.state.collections(uses)
        case item:
            if at is not None:
                raise PgError(
                    SqlState.INVALID_PARAMETER_VALUE,
                    f'hold time {at} is before the read frontier of "{item.name}"',
                    detail="Its history begins when the transaction commits.",
                    hint="Leave out AT.",
                )
            return _Beginning(None, None)
    frontiers = context.coordinator.frontiers
    if any(id not in frontiers.floors for id in inputs):
        raise _one_creation()
    time = Timestamp(at) if at is not None else frontiers.greatest_since(inputs)
    check_final(frontiers, time)
    try:
        return _Beginning(time, frontiers.hold(inputs, time))
    except NotReadable as error:
        raise PgError(
            SqlState.INVALID_PARAMETER_VALUE,
            f'hold time {time} is before the read frontier of "{items[0].name}"',
            detail=f"The earliest time at which what it is made from can be read is {error.since}.",
        ) from None


async def advance_hold(context: Context, statement: AdvanceHold) -> Result:
    """Executes ALTER HOLD ... ADVANCE. The advance is durable when this returns."""
    tag = "ALTER HOLD"
    if context.transaction.explicit:
        raise PgError(SqlState.ACTIVE_SQL_TRANSACTION, "ALTER HOLD ... ADVANCE cannot run inside a transaction block")
    to = await timestamp_of(context, statement.to, "TO") if statement.to is not None else None
    await context.end_implicit()
    name = statement.name
    item = context.state.resolve(name.parts, context.settings["database"], context.search_path)
    if item is None:
        message = f'hold "{name}" does not exist'
        if not statement.if_exists:
            raise PgError(SqlState.UNDEFINED_OBJECT, message, position=name.position)
        context.notice(Notice(f"{message}, skipping"))
        return Result(tag)
    check_kind(item, ObjectKind.HOLD)
    privileges.require_owner(context.state, context.role, item)
    move = Advance(item.id, to)
    await context.coordinator.commit(Request(advances=(move,)))
    before = move.before
    if before is not None and before.status is Status.ADVANCED:
        context.notice(
            Notice(
                f'hold "{item.name}" had been advanced to {before.at} because it lagged by more than its MAX LAG',
                severity=Severity.NOTICE,
                detail="History before that time may be gone.",
                hint="Advance the hold more often, or give it a longer MAX LAG.",
            )
        )
    return Result(tag)
