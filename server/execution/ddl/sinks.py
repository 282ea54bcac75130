"""CREATE SINK, SHOW CREATE SINK and SHOW SINKS."""

from __future__ import annotations

import asyncio
import os.path
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

from catalog.ids import ObjectId
from catalog.objects.relations import Collection
from catalog.objects.sinks import Sink
from catalog.roles import Privilege
from catalog.source_definition import Envelope
from catalog.state import CatalogState, NameTaken
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import TEXT
from server.authorization import privileges
from server.egress.definitions import definition_of
from server.egress.kinds import KINDS
from server.egress.sink_kind import progress_interval_s
from server.egress.sink_task import AS_OF, PROGRESS_S
from server.execution.as_of import check_not_lost
from server.execution.ddl.connections import used_connection
from server.execution.ddl.formats import format_of, format_text
from server.execution.ddl.named_objects import unless_exists
from server.execution.names import find_relation, qualified_name, schema_of
from server.execution.select import hold_at
from server.execution.times import timestamp_of
from server.session_state.context import Context
from server.session_state.transaction import Mode
from server.sql.functions.strings import quote_text
from server.sql.grammar.lexer import quote_identifier
from server.sql.grammar.statements.parts import Ident
from server.sql.grammar.statements.sinks import CreateSink
from server.sql.plan import Field

_NOT_ENFORCED = "key not enforced"
_PROGRESS, _CONTINUE = "progress interval", "continue"
_PARTITION_BY, _HEADERS = "partition by", "headers"
_CLAUSES = (_NOT_ENFORCED, AS_OF, _PROGRESS, _CONTINUE, _HEADERS)  # options of a sink that are not those of its topic


@dataclass(frozen=True, slots=True)
class EvaluatedSink:
    """A CREATE SINK that the external system accepts. `sink` has no id. `as_of`: the time of AS OF."""

    statement: CreateSink
    sink: Sink
    as_of: int | None


async def evaluate(context: Context, statement: CreateSink) -> EvaluatedSink:
    """Lets the kind of sink check the definition and the external system. Checks privileges and the name before."""
    await context.enter(Mode.DEFINE, statement.tag)
    state = context.state
    if statement.system == "file" and not privileges.is_superuser(state, context.role):
        raise PgError(
            SqlState.INSUFFICIENT_PRIVILEGE,
            "permission denied to create a sink into a file",
            detail="Only superusers may write files of the server.",
        )
    if statement.system == "file":
        path = Path(dict(statement.options)["path"])
        await asyncio.to_thread(_check_directory, path, context.coordinator.store.directory)
    schema, name = schema_of(context, statement.name)
    relation = find_relation(context, statement.on)
    if not isinstance(relation, Collection) or not relation.columns:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f'sink from {relation.kind} "{relation.name}" is not supported',
            hint="Create a materialized view of it, and a sink from that.",
        )
    privileges.require_select(state, context.role, (relation.id,))
    privileges.require(state, context.role, schema.id, Privilege.CREATE)
    as_of = await timestamp_of(context, statement.as_of, "AS OF") if statement.as_of is not None else None
    if as_of is not None:
        check_not_lost(context, as_of, (relation.id,))
    connection = None
    if statement.connection is not None:
        connection = used_connection(context, statement.connection, system=statement.system).id
    sink = Sink(
        ObjectId(""),
        schema.id,
        name,
        relation.id,
        statement.system,
        {**dict(statement.options), **({} if as_of is None else {AS_OF: str(as_of)})},
        format_of(context, statement.format),
        statement.snapshot,
        connection,
        _key(relation, statement.key),
        uuid.uuid4().hex,
    )
    progress_interval_s(sink.options, PROGRESS_S)
    if _CONTINUE in sink.options and (sink.format is None or sink.format.envelope is not Envelope.MATERIALIZE):
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            "option CONTINUE of a sink requires ENVELOPE MATERIALIZE",
            hint="Use SNAPSHOT = false.",
        )
    if state.item_named(schema.id, name) is None:
        await KINDS[sink.system].check(definition_of(state, sink))
    return EvaluatedSink(statement, sink, as_of)


def _check_directory(path: Path, data: Path) -> None:
    """PgError 42P17 if a file is in the data directory, where the server removes files and expects those of SQLite."""
    if path.is_absolute() and path.resolve().is_relative_to(data.resolve()):
        raise PgError(
            SqlState.INVALID_OBJECT_DEFINITION,
            f'file "{path}" of a sink must not be in the data directory',
            hint="Use another directory.",
        )


def _key(relation: Collection, key: tuple[Ident, ...]) -> tuple[str, ...]:
    """The columns of KEY. PgError 42703 for an unknown one, 42701 for one that is given twice."""
    names = [column.name for column in relation.columns]
    for number, column in enumerate(key):
        if names.count(column.name) != 1:
            message = f'column "{column.name}" named in key does not exist'
            raise PgError(SqlState.UNDEFINED_COLUMN, message, position=column.position)
        if column.name in (other.name for other in key[:number]):
            message = f'column "{column.name}" specified more than once'
            raise PgError(SqlState.DUPLICATE_COLUMN, message, position=column.position)
    return tuple(column.name for column in key)


def create(context: Context, evaluated: EvaluatedSink) -> CatalogState:
    """Executes CREATE SINK. The sink starts after the commit."""
    id, state = context.state.new_id()
    try:
        state = state.with_item(replace(evaluated.sink, id=id))
    except NameTaken as error:
        return unless_exists(context, error, evaluated.statement.if_not_exists)
    _check_file(context.state, evaluated.sink)
    if evaluated.as_of is not None:
        _hold(context, evaluated.sink.on, evaluated.as_of)
    return state


def _check_file(state: CatalogState, sink: Sink) -> None:
    """PgError if another sink of the catalog writes the same file, which may not have been created yet."""
    if sink.system != "file":
        return
    path = os.path.normpath(sink.options["path"])
    for other in state.items_of(Sink):
        if other.system == sink.system and os.path.normpath(other.options["path"]) == path:
            raise PgError(
                SqlState.DUPLICATE_OBJECT,
                f'sink "{other.name}" already writes file "{path}"',
                hint="Use another file, or drop the other sink and remove its file.",
            )


def _hold(context: Context, on: ObjectId, as_of: int) -> None:
    """Keeps the history of a collection at a time until the commit, after which the sink holds it. PgError 22023."""
    transaction, latest = context.transaction, context.coordinator.latest_time()
    if transaction.catalog is not None or transaction.history_holder is not None:
        raise PgError(
            SqlState.INVALID_TRANSACTION_STATE,
            "CREATE SINK with AS OF must be the first statement of a transaction block that changes the catalog",
        )
    if as_of > latest:
        message = f"sink time {as_of} is after the latest time, which is {latest}"
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, message)
    transaction.history_holder = hold_at(context, frozenset((on,)), as_of)


def show_create(context: Context, sink: Sink) -> str:
    """The CREATE SINK statement."""
    items, options = context.state.items, sink.options
    text = f"CREATE SINK {qualified_name(context, sink)} FROM {qualified_name(context, items[sink.on])}"
    text += f" INTO {sink.system.upper()}"
    if sink.connection is not None:
        text += f" CONNECTION {qualified_name(context, items[sink.connection])}"
    if "path" in options:
        text += f" {quote_text(options['path'])}"
    if "table" in options:
        text += f" TABLE {quote_identifier(options['schema'])}.{quote_identifier(options['table'])}"
    if sink.system == "kafka":
        given = [
            f"{name.upper()} = {value if name == _PARTITION_BY else quote_text(value)}"
            for name, value in options.items()
            if name not in _CLAUSES
        ]
        text += f" ({', '.join(given)})"
    if sink.key:
        text += f" KEY ({', '.join(map(quote_identifier, sink.key))})"
    if _NOT_ENFORCED in options:
        text += " NOT ENFORCED"
    if _HEADERS in options:
        text += f" HEADERS {quote_identifier(options[_HEADERS])}"
    text += format_text(context, sink.format)
    given = [f"AS OF {options[AS_OF]}"] if AS_OF in options else []
    if _PROGRESS in options:
        given.append(f"PROGRESS INTERVAL = {quote_text(options[_PROGRESS])}")
    if _CONTINUE in options:
        given.append("CONTINUE = true")
    elif not sink.with_snapshot:
        given.append("SNAPSHOT = false")
    return f"{text} WITH ({', '.join(given)})" if given else text


SHOW_FIELDS = (Field("name", TEXT, False), Field("type", TEXT, False), Field("on", TEXT, False))


def show_row(context: Context, sink: Sink) -> tuple[object, ...]:
    """A row of SHOW SINKS."""
    return sink.name, sink.system, context.state.items[sink.on].name
