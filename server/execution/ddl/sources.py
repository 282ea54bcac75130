"""CREATE SOURCE, CREATE TABLE ... FROM SOURCE and ALTER SOURCE ... ADD SUBSOURCE, and SHOW CREATE of what they make."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from catalog.drops import InUse, without_item
from catalog.ids import ObjectId
from catalog.objects.columns import Column
from catalog.objects.sources import TIMESTAMPS, UPSTREAM, Source, SourceOutput, SourceTable, Subsource
from catalog.roles import Privilege
from catalog.source_definition import Envelope, Format, ForTables, joined_reference, reference_parts
from catalog.state import CatalogState, NameTaken
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import TEXT, parse_type
from server.authorization import privileges
from server.execution.ddl.columns import check_columns
from server.execution.ddl.connections import used_connection
from server.execution.ddl.formats import format_of, format_text
from server.execution.ddl.named_objects import altered_item, in_use, name_taken, named_item, unless_exists
from server.execution.ddl.retention import retain_clause, retained_ms
from server.execution.names import qualified_name, schema_of
from server.execution.user_types import known_type
from server.ingest.definitions import definition_of, targets_of
from server.ingest.kinds import kind_of
from server.ingest.source_definition import Output, check_column_count
from server.session_state.context import Context
from server.session_state.transaction import Mode
from server.sql.functions.strings import quote_text
from server.sql.grammar.lexer import quote_identifier
from server.sql.grammar.statements.objects import ObjectKind
from server.sql.grammar.statements.parts import Ident, NamedType
from server.sql.grammar.statements.sources import (
    AddSubsources,
    CreateSource,
    CreateSourceTable,
    DropSubsources,
    FormatClause,
    SourceColumn,
)
from server.sql.plan import Field

T = TypeVar("T", bound=SourceOutput)


@dataclass(frozen=True, slots=True)
class EvaluatedSource:
    """A CREATE SOURCE, and the outputs that the external system has for it. `source` has no id and no columns."""

    statement: CreateSource
    source: Source
    outputs: Sequence[Output]


@dataclass(frozen=True, slots=True)
class EvaluatedParts:
    """A CREATE TABLE ... FROM SOURCE or ADD SUBSOURCE, and its outputs. `source` None: nothing is to be done."""

    statement: CreateSourceTable | AddSubsources
    source: Source | None
    format: Format | None
    outputs: Sequence[Output]


# -- evaluation: asking the external system --------------------------------------------------------------------------


async def evaluate(context: Context, statement: CreateSource) -> EvaluatedSource:
    """Asks the external system for the outputs of a new source. Checks privileges and the name before."""
    await context.enter(Mode.DEFINE, statement.tag)
    schema, name = schema_of(context, statement.name)
    if statement.system == "file":
        _require_files(context)
    connection = None
    if statement.connection is not None:
        connection = used_connection(context, statement.connection, system=statement.system).id
    source = Source(
        ObjectId(""),
        schema.id,
        name,
        (),
        system=statement.system,
        connection=connection,
        options={option.name: option.value for option in statement.options},
        format=_format(context, statement.format),
        tables=statement.tables,
        given=_typed(context, statement),
        identity=uuid.uuid4().hex,
        retain_ms=retained_ms(context, statement.retain),
    )
    if context.state.item_named(schema.id, name) is not None:
        return EvaluatedSource(statement, source, ())
    kind, definition = kind_of(source.system), definition_of(context.state, source)
    outputs = await kind.outputs(definition)
    source = replace(source, options=await kind.fixed_options(definition))
    _check_columns(outputs)
    if statement.tables and not outputs:
        raise PgError(SqlState.UNDEFINED_TABLE, f'source "{name}" has no tables of FOR TABLES')
    return EvaluatedSource(statement, source, outputs)


async def evaluate_part(context: Context, statement: CreateSourceTable | AddSubsources) -> EvaluatedParts:
    """Asks the external system for the outputs that are added to a source."""
    await context.enter(Mode.DEFINE, statement.tag)
    source, format, tables = _added_to(context, statement)
    if source is None or _exists(context, statement):
        return EvaluatedParts(statement, source, format, ())
    present = frozenset(target.output.reference for target in targets_of(context.state, source))
    definition = replace(definition_of(context.state, source, tables=tables, format=format), present=present)
    outputs = await kind_of(source.system).outputs(definition)
    _check_columns(outputs)
    if len(outputs) != len(tables.tables):
        raise PgError(SqlState.UNDEFINED_TABLE, f'source "{source.name}" has no such table')
    return EvaluatedParts(statement, source, format, outputs)


def _added_to(
    context: Context, statement: CreateSourceTable | AddSubsources
) -> tuple[Source | None, Format | None, ForTables]:
    """The source, the format and the references of what is added. Checks the privileges on the source."""
    if isinstance(statement, AddSubsources):
        found = altered_item(context, ObjectKind.SOURCE, statement.name, if_exists=statement.if_exists)
        if found is not None:
            privileges.require_owner(context.state, context.role, found)
        format, tables = None, statement.tables
    else:
        found = named_item(context, ObjectKind.SOURCE, statement.source)
        privileges.require_names(context.state, context.role, (found.id,))
        privileges.require(context.state, context.role, found.id, Privilege.SELECT)
        format, tables = _format(context, statement.format), ForTables(tables=((statement.reference.name, None),))
    if found is not None and not isinstance(found, Source):
        raise PgError(SqlState.WRONG_OBJECT_TYPE, f'"{found.name}" is a subsource', hint="Name its source.")
    if found is not None and found.columns:
        raise PgError(
            SqlState.WRONG_OBJECT_TYPE,
            f'source "{found.name}" has one output, which is the source itself',
            hint="Create a view over the source, or another source.",
        )
    return found, format, tables


def _exists(context: Context, statement: CreateSourceTable | AddSubsources) -> bool:
    """Whether the name of a new table is in use, which is reported without asking the external system."""
    if isinstance(statement, AddSubsources):
        return False
    schema, name = schema_of(context, statement.name)
    return context.state.item_named(schema.id, name) is not None


def _check_columns(outputs: Sequence[Output]) -> None:
    for output in outputs:
        check_column_count(len(output.columns))


def _require_files(context: Context) -> None:
    if not privileges.is_superuser(context.state, context.role):
        raise PgError(
            SqlState.INSUFFICIENT_PRIVILEGE,
            "permission denied to create a source from a file",
            detail="Only superusers may read files of the server.",
        )


def _typed(context: Context, statement: CreateSource) -> tuple[Column, ...]:
    """The columns of a column list with types; () for a list of names. PgError 42601 if only some have types, 42704 and
    0A000 for types that are not built in."""
    typed = [column for column in statement.columns if column.type is not None]
    _check_list(statement.columns)
    if not typed:
        return ()
    if statement.system != "file" and not _has_json_changes(statement):
        hint = "Write only the names, and cast the columns in a view."
        if statement.system == "kafka":
            hint += " FORMAT JSON ENVELOPE MATERIALIZE has columns with types."
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f"types of the columns of a source from {statement.system.upper()} are not supported",
            hint=hint,
            position=typed[0].name.position,
        )
    for column in statement.columns:
        if column.type is None:
            message = f'column "{column.name.name}" needs a type, as other columns have one'
            raise PgError(SqlState.SYNTAX_ERROR, message, position=column.name.position)
        if isinstance(column.type, NamedType):
            known_type(context, column.type)
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                f'column "{column.name.name}" of a source cannot have the user-defined type {column.type}',
                hint="Use a built-in type, and cast the column in a view.",
                position=column.type.position,
            )
        if column.type.dimensions > 1:
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                f'column "{column.name.name}" of a source cannot be an array of more than one dimension',
                hint=f"Declare it as text or jsonb, and cast a text to {column.type.declaration} in a view.",
                position=column.name.position,
            )
    return tuple(Column(c.name.name, str(c.type), not c.not_null) for c in statement.columns)


def _has_json_changes(statement: CreateSource) -> bool:
    """Whether the source reads FORMAT JSON ENVELOPE MATERIALIZE, whose messages do not name the types of columns."""
    format = statement.format
    is_json = format is not None and format.value is not None and format.value.name == "json"
    return is_json and format is not None and format.envelope == "materialize"


def _check_list(columns: Sequence[SourceColumn]) -> None:
    if columns:
        check_columns([column.name for column in columns], "source")


def _format(context: Context, clause: FormatClause | None) -> Format | None:
    """The format of a clause, with the ids of its connections. PgError 42704, 42809, 42501."""
    format = format_of(context, clause)
    is_upsert = context.coordinator.setting("source_envelope_debezium") == "upsert"
    if format is not None and format.envelope is Envelope.DEBEZIUM and is_upsert:
        return replace(format, envelope=Envelope.DEBEZIUM_UPSERT)
    return format


# -- changes of the catalog -----------------------------------------------------------------------------------------


def create(context: Context, evaluated: EvaluatedSource) -> CatalogState:
    """Executes CREATE SOURCE."""
    statement = evaluated.statement
    id, state = context.state.new_id()
    source = replace(evaluated.source, id=id)
    parts: Sequence[Output] = ()
    if statement.tables:
        parts = evaluated.outputs
        _refuse_columns(statement.columns)
    elif evaluated.outputs:
        (output,) = evaluated.outputs
        source = _filled(source, output, () if source.given else statement.columns)
    else:
        _refuse_columns(statement.columns)
    try:
        state = state.with_item(source)
    except NameTaken as error:
        return unless_exists(context, error, statement.if_not_exists)
    return _with_subsources(state, source, parts)


def create_table(context: Context, evaluated: EvaluatedParts) -> CatalogState:
    """Executes CREATE TABLE ... FROM SOURCE."""
    statement, source = evaluated.statement, evaluated.source
    assert isinstance(statement, CreateSourceTable)
    assert source is not None
    schema, name = schema_of(context, statement.name)
    id, state = context.state.new_id()
    table = SourceTable(
        id,
        schema.id,
        name,
        (),
        format=evaluated.format,
        source=source.id,
        retain_ms=retained_ms(context, statement.retain),
    )
    if evaluated.outputs:
        table = _filled(table, evaluated.outputs[0], statement.columns)
    try:
        return state.with_item(table)
    except NameTaken as error:
        return unless_exists(context, error, statement.if_not_exists)


def add_subsources(context: Context, evaluated: EvaluatedParts) -> CatalogState:
    """Executes ALTER SOURCE ... ADD SUBSOURCE."""
    if evaluated.source is None:
        return context.state
    source = context.state.items[evaluated.source.id]
    assert isinstance(source, Source)
    privileges.require(context.state, context.role, source.schema_id, Privilege.CREATE)
    existing = {part.reference for part in context.state.items_of(Subsource) if part.source == source.id}
    for output in evaluated.outputs:
        if output.reference in existing:
            message = f'"{output.reference}" is already a subsource of source "{source.name}"'
            raise PgError(SqlState.DUPLICATE_TABLE, message)
    return _with_subsources(context.state, source, evaluated.outputs)


def drop_subsources(context: Context, statement: DropSubsources) -> CatalogState:
    """Executes ALTER SOURCE ... DROP SUBSOURCE."""
    state = context.state
    source = altered_item(context, ObjectKind.SOURCE, statement.name, if_exists=statement.if_exists)
    if source is None:
        return state
    privileges.require_owner(state, context.role, source)
    for name in statement.subsources:
        subsource = named_item(context, ObjectKind.SOURCE, name)
        if not isinstance(subsource, Subsource) or subsource.source != source.id:
            message = f'"{name}" is not a subsource of source "{source.name}"'
            raise PgError(SqlState.WRONG_OBJECT_TYPE, message, position=name.position)
        if subsource.id in state.items:  # it may be named twice
            try:
                state = without_item(state, subsource.id, cascade=statement.cascade)
            except InUse as error:
                raise in_use(error) from None
    return state


def _with_subsources(state: CatalogState, source: Source, outputs: Sequence[Output]) -> CatalogState:
    """Adds a subsource for each output, in the source's schema. PgError 42P07 if a name is in use."""
    for output in outputs:
        id, state = state.new_id()
        keeps_times = source.options.get(TIMESTAMPS) == UPSTREAM
        subsource = Subsource(
            id,
            source.schema_id,
            output.name,
            (),
            keeps_times=keeps_times,
            source=source.id,
            retain_ms=source.retain_ms,
        )
        try:
            state = state.with_item(_filled(subsource, output, ()))
        except NameTaken as error:
            taken = name_taken(error)
            taken.hint = f"Give the subsource another name: FOR TABLES ({_reference(output.reference)} AS name)."
            raise taken from None
    return state


def _filled(item: T, output: Output, columns: Sequence[SourceColumn]) -> T:
    """The item with the columns of its output, renamed by a column list. PgError 42601 if the list is too long."""
    names = [column.name.name for column in columns]
    _check_list(columns)
    for column in columns:
        if column.type is not None:
            message = "the columns of a table from a source have the types of the source"
            raise PgError(SqlState.SYNTAX_ERROR, message, hint="Write only the names.", position=column.name.position)
    if len(names) > len(output.columns):
        message = f'column list has {len(names)} names, but "{output.reference}" has {len(output.columns)} columns'
        raise PgError(SqlState.SYNTAX_ERROR, message, position=columns[len(output.columns)].name.position)
    original = tuple(column.name for column in output.columns)
    final = [*names, *original[len(names) :]]
    check_columns([Ident(name, 0) for name in final], "source")
    renamed = tuple(replace(c, name=name, default=None) for c, name in zip(output.columns, final, strict=True))
    new = dict(zip(original, final, strict=True))
    return replace(
        item,
        columns=renamed,
        reference=output.reference,
        key=tuple(new[name] for name in output.key),
        output_names=original if names else (),
    )


def _refuse_columns(columns: Sequence[SourceColumn]) -> None:
    if columns:
        raise PgError(
            SqlState.SYNTAX_ERROR,
            "a source with several outputs cannot have a column list",
            hint="CREATE TABLE ... FROM SOURCE can rename the columns of an output.",
            position=columns[0].name.position,
        )


# -- SHOW -----------------------------------------------------------------------------------------------------------


def show_create(context: Context, source: Source) -> str:
    """The CREATE SOURCE statement."""
    state = context.state
    text = f"CREATE SOURCE {qualified_name(context, source)}"
    if source.given:
        described = (f"{quote_identifier(c.name)} {parse_type(c.type).declaration}{_null(c)}" for c in source.given)
        text += f" ({', '.join(described)})"
    elif source.output_names:
        text += _column_list(source)
    options = dict(source.options)
    path, generator = options.pop("path", None), options.pop("generator", None)
    text += f" FROM {source.system.upper()}"
    if source.connection is not None:
        text += f" CONNECTION {qualified_name(context, state.items[source.connection])}"
    if path is not None:
        text += f" {quote_text(path)}"
    if generator is not None:
        text += f" {generator.upper()}"
    if options:
        text += f" ({', '.join(f'{name.upper()} = {quote_text(value)}' for name, value in options.items())})"
    text += format_text(context, source.format)
    if parts := [part for part in state.items_of(Subsource) if part.source == source.id]:
        text += f" FOR TABLES ({', '.join(f'{_reference(p.reference)} AS {quote_identifier(p.name)}' for p in parts)})"
    return text + retain_clause(source)


def show_create_subsource(context: Context, part: Subsource) -> str:
    """The ALTER SOURCE statement that makes a subsource."""
    source = qualified_name(context, context.state.items[part.source])
    return f"ALTER SOURCE {source} ADD SUBSOURCE {_reference(part.reference)} AS {quote_identifier(part.name)}"


def show_create_table(context: Context, table: SourceTable) -> str:
    """The CREATE TABLE ... FROM SOURCE statement."""
    columns = _column_list(table) if table.output_names else ""
    source = qualified_name(context, context.state.items[table.source])
    head = f"CREATE TABLE {qualified_name(context, table)}{columns} FROM SOURCE {source}"
    return f"{head} (REFERENCE {_reference(table.reference)}){format_text(context, table.format)}{retain_clause(table)}"


def _null(column: Column) -> str:
    return "" if column.nullable else " NOT NULL"


def _column_list(output: SourceOutput) -> str:
    return f" ({', '.join(quote_identifier(column.name) for column in output.columns)})"


def _reference(reference: str) -> str:
    """The reference as CREATE SOURCE accepts it. A topic such as `a..b` is one name."""
    parts = reference_parts(reference)
    named = parts if joined_reference(parts) == reference else (reference,)
    return ".".join(map(quote_identifier, named))


SHOW_FIELDS = (Field("name", TEXT, False), Field("type", TEXT, False))


def show_row(context: Context, source: Source | Subsource) -> tuple[object, ...]:
    """A row of SHOW SOURCES."""
    return source.name, source_type(source)


def source_type(source: Source | Subsource) -> str:
    """The type of a source as SHOW and mz_sources name it."""
    return source.system.replace(" ", "-") if isinstance(source, Source) else "subsource"
