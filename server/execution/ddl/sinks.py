"""CREATE SINK, SHOW CREATE SINK and SHOW SINKS."""

from __future__ import annotations

from catalog.objects import Collection, Sink
from catalog.roles import Privilege
from catalog.source_definition import Encoding, Envelope, Format
from catalog.state import CatalogState, NameTaken
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import TEXT
from server.authorization import privileges
from server.egress.changes_file import check_new
from server.execution.ddl.named_objects import unless_exists
from server.execution.names import find_relation, qualified_name, schema_of
from server.session_state.context import Context
from server.sql.functions.strings import quote_text
from server.sql.grammar.statements.sinks import CreateSink
from server.sql.plan import Field

_FORMAT = Format(Encoding("json"), envelope=Envelope.MATERIALIZE)


def create(context: Context, statement: CreateSink) -> CatalogState:
    """Executes CREATE SINK. The file is created when the sink starts, after the commit."""
    state = context.state
    if not privileges.is_superuser(state, context.role):
        raise PgError(
            SqlState.INSUFFICIENT_PRIVILEGE,
            "permission denied to create a sink into a file",
            detail="Only superusers may write files of the server.",
        )
    schema, name = schema_of(context, statement.name)
    if statement.if_not_exists and (taken := state.item_named(schema.id, name)) is not None:
        return unless_exists(context, NameTaken(taken.kind, taken.name), True)
    relation = find_relation(context, statement.on)
    if not isinstance(relation, Collection) or not relation.columns:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f'sink from {relation.kind} "{relation.name}" is not supported',
            hint="Create a materialized view of it, and a sink from that.",
        )
    privileges.require_select(state, context.role, (relation.id,))
    privileges.require(state, context.role, schema.id, Privilege.CREATE)
    _check_format(statement)
    check_new(statement.path)
    id, state = state.new_id()
    options = {"path": statement.path}
    try:
        return state.with_item(Sink(id, schema.id, name, relation.id, "file", options, _FORMAT, statement.snapshot))
    except NameTaken as error:
        return unless_exists(context, error, statement.if_not_exists)


def _check_format(statement: CreateSink) -> None:
    clause = statement.format
    value = clause.value if clause is not None else None
    if clause is None or value is None or value.name != "json" or clause.key is not None or clause.include:
        position = clause.position if clause is not None else statement.position
        message = "a sink into a file requires FORMAT JSON"
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, position=position)
    if clause.envelope != "materialize":
        envelope = (clause.envelope or "none").upper()
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f"ENVELOPE {envelope} of a sink into a file is not supported",
            hint="Use ENVELOPE MATERIALIZE.",
            position=clause.position,
        )


def show_create(context: Context, sink: Sink) -> str:
    """The CREATE SINK statement."""
    on = qualified_name(context, context.state.items[sink.on])
    text = f"CREATE SINK {qualified_name(context, sink)} FROM {on} INTO FILE {quote_text(sink.options['path'])}"
    text += " FORMAT JSON ENVELOPE MATERIALIZE"
    return text if sink.with_snapshot else f"{text} WITH (SNAPSHOT = false)"


SHOW_FIELDS = (Field("name", TEXT, False), Field("type", TEXT, False), Field("on", TEXT, False))


def show_row(context: Context, sink: Sink) -> tuple[object, ...]:
    """A row of SHOW SINKS."""
    return sink.name, sink.system, context.state.items[sink.on].name
