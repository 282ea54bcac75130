"""CREATE HOLD, ALTER HOLD ... ADVANCE and SET, SHOW CREATE HOLD and SHOW HOLDS. docs/holds.md describes their rules."""

from __future__ import annotations

from dataclasses import dataclass, replace

from catalog.holds import Status
from catalog.ids import ObjectId, Timestamp
from catalog.objects.catalog_object import Item
from catalog.objects.holds import Hold
from catalog.objects.relations import Retained, WrittenCollection
from catalog.objects.system_tables import SystemTable
from catalog.objects.views import View
from catalog.state import CatalogState, NameTaken
from protocol.pgwire.errors import Notice, PgError, Severity, SqlState
from protocol.pgwire.types import INTERVAL, MZ_TIMESTAMP, TEXT
from server.authorization import privileges
from server.coordinator.committer import Request
from server.coordinator.holds import Advance, check_final
from server.execution.ddl.named_objects import altered_item, check_kind, refuse_missing, unless_exists
from server.execution.names import find_item, qualified_name, schema_of
from server.execution.times import duration_of, interval_of_ms, interval_text, timestamp_of
from server.session_state.context import Context
from server.session_state.results import Result
from server.settings.parsers import milliseconds
from server.sql.grammar.statements.holds import AdvanceHold, AlterHold, CreateHold
from server.sql.grammar.statements.objects import ObjectKind
from server.sql.grammar.statements.parts import Expr
from server.sql.plan import Field
from server.timeline.frontiers import Holder, NotReadable

_NOT_HELD: dict[type[Item], str] = {
    View: "A view has no history of its own: hold the tables and materialized views that it reads.",
    SystemTable: "A system table has no history before a client subscribes to it.",
}
MAX_LAG_DEFAULT_MS = 3 * 3_600_000


@dataclass(frozen=True, slots=True)
class _Start:
    """The time at which a hold starts, and a holder that keeps this time readable until then. None: its commit."""

    time: Timestamp | None
    holder: Holder | None


@dataclass(frozen=True, slots=True)
class EvaluatedHold:
    """A CREATE HOLD, and the values of its expressions. `at` None: without AT."""

    statement: CreateHold
    at: int | None
    max_lag_ms: int


@dataclass(frozen=True, slots=True)
class EvaluatedAlteration:
    """An ALTER HOLD ... SET, and the value of its expression."""

    statement: AlterHold
    max_lag_ms: int


async def evaluate(context: Context, statement: CreateHold) -> EvaluatedHold:
    """Evaluates AT and MAX LAG. PgError 22023."""
    at = await timestamp_of(context, statement.at, "AT") if statement.at is not None else None
    return EvaluatedHold(statement, at, await _max_lag_ms(context, statement.max_lag))


def create(context: Context, hold: EvaluatedHold) -> CatalogState:
    """Executes CREATE HOLD."""
    schema, name = schema_of(context, hold.statement.name)
    on = tuple(dict.fromkeys(find_item(context, object).id for object in hold.statement.on))
    items = [context.state.items[id] for id in on]
    for item in items:
        _check_held(item)
    privileges.require_hold(context.state, context.role, schema, on)
    id, state = context.state.new_id()
    try:
        state = state.with_item(Hold(id, schema.id, name, on, hold.max_lag_ms))
    except NameTaken as error:
        return unless_exists(context, error, hold.statement.if_not_exists)
    created = _created_in_block(context)
    if created:
        start = _start_with_creation(context, created, items, hold.at)
    else:
        start = _start_over_existing(context, on, hold.at)
    transaction = context.transaction
    if transaction.history_holder is not None:
        transaction.history_holder.release()
    transaction.history_holder = start.holder
    if start.time is not None:
        transaction.history_starts[id] = start.time
        if created and not isinstance(items[0], WrittenCollection):
            transaction.history_starts[items[0].id] = start.time
    return state


async def evaluate_alteration(context: Context, statement: AlterHold) -> EvaluatedAlteration:
    """Evaluates MAX LAG. PgError 22023."""
    return EvaluatedAlteration(statement, await _max_lag_ms(context, statement.max_lag))


def alter(context: Context, alteration: EvaluatedAlteration) -> CatalogState:
    """Executes ALTER HOLD ... SET (MAX LAG)."""
    statement = alteration.statement
    hold = altered_item(context, ObjectKind.HOLD, statement.name, if_exists=statement.if_exists)
    if hold is None:
        return context.state
    assert isinstance(hold, Hold)
    privileges.require_owner(context.state, context.role, hold)
    return context.state.with_item(replace(hold, max_lag_ms=alteration.max_lag_ms))


async def _max_lag_ms(context: Context, max_lag: Expr | None) -> int:
    cap_ms = milliseconds(context.settings["max_hold_lag"])
    if max_lag is None:
        return min(MAX_LAG_DEFAULT_MS, cap_ms)
    lag_ms = await duration_of(context, max_lag, "MAX LAG")
    position = max_lag.position
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
    if not isinstance(item, Retained):
        hint = _NOT_HELD.get(type(item), "Tables, sources, materialized views and indexes can be held.")
        raise PgError(SqlState.WRONG_OBJECT_TYPE, f'cannot create hold on {item.kind} "{item.name}"', hint=hint)


def _created_in_block(context: Context) -> frozenset[ObjectId]:
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


def _start_over_existing(context: Context, on: tuple[ObjectId, ...], at: int | None) -> _Start:
    coordinator = context.coordinator
    if at is None:
        time = coordinator.frontiers.greatest_retained(on)
    else:
        coordinator.holds.check(context.state, on, at, {})
        time = Timestamp(at)
    return _Start(time, coordinator.frontiers.hold(on, time))


def _start_with_creation(context: Context, created: frozenset[ObjectId], items: list[Item], at: int | None) -> _Start:
    """The start of a hold on an object created in the same transaction block.

    The object's history begins at the hold's time, by default the greatest `since` of its inputs. A table's history
    begins at the commit. PgError 22023 if AT is earlier, or if it is given for a table.
    """
    if len(items) != 1 or created != {items[0].id}:
        raise _one_creation()
    (item,) = items
    if isinstance(item, WrittenCollection):
        if at is not None:
            raise PgError(
                SqlState.INVALID_PARAMETER_VALUE,
                f'hold time {at} is before the read frontier of "{item.name}"',
                detail="Its history begins when the transaction commits.",
                hint="Leave out AT.",
            )
        return _Start(None, None)
    inputs = context.state.collections(item.depends_on)
    frontiers = context.coordinator.frontiers
    if any(id not in frontiers.floors for id in inputs):
        raise _one_creation()
    time = Timestamp(at) if at is not None else frontiers.greatest_since(inputs)
    check_final(frontiers, time)
    try:
        return _Start(time, frontiers.hold(inputs, time))
    except NotReadable as error:
        raise PgError(
            SqlState.INVALID_PARAMETER_VALUE,
            f'hold time {time} is before the read frontier of "{item.name}"',
            detail=f"The earliest time at which its inputs can be read is {error.since}.",
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
        refuse_missing(context, ObjectKind.HOLD, name, if_exists=statement.if_exists)
        return Result(tag)
    check_kind(item, ObjectKind.HOLD)
    privileges.require_owner(context.state, context.role, item)
    commit = await context.coordinator.commit(Request(advances=(Advance(item.id, to),)))
    before = commit.replaced[item.id]
    if before.status is Status.ADVANCED:
        context.notice(
            Notice(
                f'hold "{item.name}" had been advanced to {before.at} because it lagged by more than its MAX LAG',
                severity=Severity.NOTICE,
                detail="History before that time may be gone.",
                hint="Advance the hold more often, or give it a longer MAX LAG with ALTER HOLD ... SET (MAX LAG).",
            )
        )
    return Result(tag)


def show_create(context: Context, hold: Hold) -> str:
    """The CREATE HOLD statement of a hold at its present time."""
    objects = ", ".join(qualified_name(context, context.state.items[id]) for id in hold.on)
    position = context.coordinator.holds.positions.get(hold.id)
    at = f" AT {position.at}" if position is not None else ""
    max_lag = interval_text(hold.max_lag_ms)
    return f"CREATE HOLD {qualified_name(context, hold)} ON {objects}{at} WITH (MAX LAG = '{max_lag}')"


SHOW_FIELDS = (
    Field("name", TEXT, True),
    Field("at", MZ_TIMESTAMP, True),
    Field("max_lag", INTERVAL, True),
    Field("status", TEXT, True),
)


def show_row(context: Context, hold: Hold) -> tuple[object, ...]:
    """A row of SHOW HOLDS. An uncommitted hold has no time and no status yet."""
    position = context.coordinator.holds.positions.get(hold.id)
    at, status = (position.at, position.status.value) if position is not None else (None, None)
    return hold.name, at, interval_of_ms(hold.max_lag_ms), status
