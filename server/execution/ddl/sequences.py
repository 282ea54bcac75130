"""CREATE SEQUENCE, ALTER SEQUENCE and the sequences of SERIAL and identity columns (PostgreSQL's sequence.c)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from catalog.ids import ObjectId
from catalog.objects.columns import Column
from catalog.objects.sequences import SEQUENCE_COLUMNS
from catalog.objects.sequences import Sequence as SequenceItem
from catalog.objects.tables import Table
from catalog.state import CatalogState, NameTaken
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import INT2, INT4, INT8, PgType, parse_type
from server.authorization import privileges
from server.execution.ddl.named_objects import altered_item, unless_exists
from server.execution.names import find_item, qualified_name, schema_of, temporary_schema_of
from server.session_state.context import Context
from server.sql.grammar.lexer import quote_identifier
from server.sql.grammar.statements.objects import ObjectKind
from server.sql.grammar.statements.parts import Name
from server.sql.grammar.statements.sequences import AlterSequence, CreateSequence, Identity, SequenceOption
from server.sql.sequence_names import nextval_text

_BOUNDS = {INT2: (-(2**15), 2**15 - 1), INT4: (-(2**31), 2**31 - 1), INT8: (-(2**63), 2**63 - 1)}
_NAME_BYTES_MAX = 63


def create(context: Context, statement: CreateSequence) -> CatalogState:
    """Executes CREATE SEQUENCE."""
    if statement.temporary:
        state, schema, name = temporary_schema_of(context, statement.name)
    else:
        state, (schema, name) = context.state, schema_of(context, statement.name)
    if statement.if_not_exists and (taken := state.item_named(schema.id, name)) is not None:
        return unless_exists(context, NameTaken(taken.kind, name), True)
    given = _given(statement.options)
    _refuse_name(statement.options)
    id, state = state.new_id()
    sequence = SequenceItem(id, schema.id, name, SEQUENCE_COLUMNS, **_parameters(given, None, None))
    if given.get("owned by") is not None:
        sequence = _owned(context, sequence, given["owned by"], context.role)
    try:
        state = state.with_item(sequence)
    except NameTaken as error:
        return unless_exists(context, error, statement.if_not_exists)
    context.transaction.sequences.pop((id, 0), None)
    return state


def alter(context: Context, statement: AlterSequence) -> CatalogState:
    """Executes ALTER SEQUENCE with options."""
    state = context.state
    if not statement.if_exists:
        find_item(context, statement.name)  # PostgreSQL's error names a relation
    found = altered_item(context, ObjectKind.SEQUENCE, statement.name, if_exists=statement.if_exists)
    if found is None:
        return state
    assert isinstance(found, SequenceItem)
    privileges.require_owner(state, context.role, found)
    _refuse_name(statement.options)
    given = _given(statement.options)
    changed = _changed(context, found, given)
    if "owned by" in given:
        if found.is_identity:
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "cannot change ownership of identity sequence",
                detail=f'Sequence "{found.name}" is linked to table "{_table_name(state, found)}".',
            )
        if given["owned by"] is None:
            state = state.with_owner(found.id, state.owner(found.id))
            changed = replace(changed, owner_table=None, owner_column=None)
        else:
            changed = _owned(context, changed, given["owned by"], state.owner(found.id))
    return state.with_item(changed)


def _changed(context: Context, sequence: SequenceItem, given: Mapping[str, Any]) -> SequenceItem:
    """The sequence with other options. PgError 22023."""
    last, _ = context.volatile.current_state(sequence).position
    changed = replace(sequence, **_parameters(given, sequence, None if "restart" in given else last))
    return _restarted(context, changed, given["restart"]) if "restart" in given else changed


def identity_sequence(state: CatalogState, table: Table, column: str) -> SequenceItem:
    """The sequence of an identity column."""
    for sequence in state.items_of(SequenceItem):
        if sequence.owner_table == table.id and sequence.owner_column == column and sequence.is_identity:
            return sequence
    raise AssertionError(column)


def alter_owned(
    context: Context, state: CatalogState, sequence: SequenceItem, options: Sequence[SequenceOption]
) -> CatalogState:
    """The state after SET and RESTART of options of an identity column. PgError 22023."""
    _refuse_name(options)
    return state.with_item(_changed(context, sequence, _given(options))) if options else state


def set_identity_type(context: Context, state: CatalogState, table: Table, column: str, type: PgType) -> CatalogState:
    """The state in which the sequence of an identity column has the column's new type. PgError 22023."""
    _check_identity_type(type)
    sequence = identity_sequence(state, table, column)
    return state.with_item(_changed(context, sequence, {"as": type}))


def _check_identity_type(type: PgType) -> None:
    if type not in _BOUNDS:
        raise _invalid("identity column type must be smallint, integer, or bigint")


def restarted(context: Context, state: CatalogState, tables: Sequence[Table]) -> CatalogState:
    """The state after TRUNCATE ... RESTART IDENTITY: the sequences that the tables' columns own begin again."""
    ids = {table.id for table in tables}
    for sequence in list(state.items_of(SequenceItem)):
        if sequence.owner_table in ids:
            state = state.with_item(_restarted(context, sequence, None))
    return state


def _restarted(context: Context, sequence: SequenceItem, value: int | None) -> SequenceItem:
    first = sequence.start if value is None else value
    _check_within("RESTART", first, sequence.minimum, sequence.maximum)
    generation = sequence.generation + 1
    context.transaction.sequences.pop((sequence.id, generation), None)
    return replace(sequence, generation=generation, first=first)


def create_owned(
    context: Context, state: CatalogState, table: Table, column: Column, identity: Identity
) -> tuple[Column, CatalogState]:
    """Creates the sequence of a SERIAL or identity column. Returns the column with its default."""
    type = parse_type(column.type)
    _check_identity_type(type)
    given = _given(identity.options)
    schema, name = table.schema_id, _free_name(state, table, column.name)
    if (named := given.pop("sequence name", None)) is not None:
        container, name = schema_of(context, named)
        schema = container.id
    given.setdefault("as", type)
    id, state = state.new_id()
    sequence = SequenceItem(
        id,
        schema,
        name,
        SEQUENCE_COLUMNS,
        **_parameters(given, None, None),
        owner_table=table.id,
        owner_column=column.name,
        is_identity=not identity.serial,
    )
    context.transaction.sequences.pop((id, 0), None)
    letter = "" if identity.serial else "a" if identity.always else "d"
    column = replace(column, default=nextval_text(id), nullable=False, identity=letter, sequences=(id,))
    return column, state.with_item(sequence)


def _free_name(state: CatalogState, table: Table, column: str) -> str:
    """`table_column_seq`, shortened to 63 bytes, with a number if the name is in use (ChooseRelationName)."""
    number = 0
    while True:
        ending = f"_seq{number or ''}"
        first, second = table.name.encode(), column.encode()
        while len(first) + 1 + len(second) + len(ending) > _NAME_BYTES_MAX:
            if len(first) > len(second):
                first = first[:-1]
            else:
                second = second[:-1]
        name = f"{first.decode(errors='ignore')}_{second.decode(errors='ignore')}{ending}"
        if state.item_named(table.schema_id, name) is None:
            return name
        number += 1


def _given(options: Sequence[SequenceOption]) -> dict[str, Any]:
    return {option.name: option.value for option in options}


def _refuse_name(options: Sequence[SequenceOption]) -> None:
    for option in options:
        if option.name == "sequence name":
            message = "invalid sequence option SEQUENCE NAME"
            raise PgError(SqlState.SYNTAX_ERROR, message, position=option.position)


def _parameters(given: Mapping[str, Any], before: SequenceItem | None, last: int | None) -> dict[str, Any]:
    """The fields of a sequence with these options. `before`: it is changed. `last`: its last value. PgError 22023."""
    type: PgType = given.get("as", parse_type(before.type) if before is not None else INT8)
    if type not in _BOUNDS:
        raise _invalid("sequence type must be smallint, integer, or bigint")
    least, greatest = _BOUNDS[type]
    increment = given.get("increment", before.increment if before is not None else 1)
    if increment == 0:
        raise _invalid("INCREMENT must not be zero")
    old = _BOUNDS[parse_type(before.type)] if before is not None and "as" in given else None
    minimum, maximum = given.get("minvalue"), given.get("maxvalue")
    if maximum is None:
        follows_type = old is not None and before is not None and before.maximum == old[1]
        if before is None or "maxvalue" in given or follows_type:
            maximum = greatest if increment > 0 or follows_type else -1
        else:
            maximum = before.maximum
    if minimum is None:
        follows_type = old is not None and before is not None and before.minimum == old[0]
        if before is None or "minvalue" in given or follows_type:
            minimum = least if increment < 0 or follows_type else 1
        else:
            minimum = before.minimum
    for word, value in (("MAXVALUE", maximum), ("MINVALUE", minimum)):
        if not least <= value <= greatest:
            raise _invalid(f"{word} ({value}) is out of range for sequence data type {type.display}")
    if minimum >= maximum:
        raise _invalid(f"MINVALUE ({minimum}) must be less than MAXVALUE ({maximum})")
    start = given.get("start")
    if start is None:
        start = before.start if before is not None else minimum if increment > 0 else maximum
    _check_within("START", start, minimum, maximum)
    if last is not None:
        _check_within("RESTART", last, minimum, maximum)
    cache = given.get("cache", before.cache if before is not None else 1)
    if cache < 1:
        raise _invalid(f"CACHE ({cache}) must be greater than zero")
    parameters = {
        "type": str(type),
        "start": start,
        "increment": increment,
        "minimum": minimum,
        "maximum": maximum,
        "cache": cache,
        "cycle": given.get("cycle", before.cycle if before is not None else False),
    }
    return parameters if before is not None else {**parameters, "first": start}


def _check_within(word: str, value: int, minimum: int, maximum: int) -> None:
    if value < minimum:
        raise _invalid(f"{word} value ({value}) cannot be less than MINVALUE ({minimum})")
    if value > maximum:
        raise _invalid(f"{word} value ({value}) cannot be greater than MAXVALUE ({maximum})")


def _invalid(message: str) -> PgError:
    return PgError(SqlState.INVALID_PARAMETER_VALUE, message)


def _owned(context: Context, sequence: SequenceItem, by: Name, owner: ObjectId) -> SequenceItem:
    """The sequence with OWNED BY table.column. PgError 42601, 42809, 42703, 55000."""
    *qualified, column = by.parts
    if not qualified:
        hint = "Specify OWNED BY table.column or OWNED BY NONE."
        raise PgError(SqlState.SYNTAX_ERROR, "invalid OWNED BY option", hint=hint)
    table = find_item(context, Name(tuple(qualified), by.position))
    if not isinstance(table, Table):
        message = f'sequence cannot be owned by relation "{table.name}"'
        raise PgError(SqlState.WRONG_OBJECT_TYPE, message)
    state = context.state
    if state.owner(table.id) != owner:
        message = "sequence must have same owner as table it is linked to"
        raise PgError(SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE, message)
    if table.schema_id != sequence.schema_id:
        message = "sequence must be in same schema as table it is linked to"
        raise PgError(SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE, message)
    if all(known.name != column for known in table.columns):
        message = f'column "{column}" of relation "{table.name}" does not exist'
        raise PgError(SqlState.UNDEFINED_COLUMN, message)
    return replace(sequence, owner_table=table.id, owner_column=column)


def _table_name(state: CatalogState, sequence: SequenceItem) -> str:
    assert sequence.owner_table is not None
    return state.items[sequence.owner_table].name


def show_create(context: Context, sequence: SequenceItem) -> str:
    """The CREATE SEQUENCE statement of a sequence."""
    type = parse_type(sequence.type)
    parts = [
        f"CREATE SEQUENCE {qualified_name(context, sequence)} AS {type.display}",
        options_text(sequence),
    ]
    if sequence.owner_table is not None and sequence.owner_column is not None:
        table = context.state.items[sequence.owner_table]
        parts.append(f"OWNED BY {qualified_name(context, table)}.{quote_identifier(sequence.owner_column)}")
    return " ".join(parts)


def options_text(sequence: SequenceItem) -> str:
    """The options of a sequence except its type."""
    return (
        f"INCREMENT BY {sequence.increment} MINVALUE {sequence.minimum} MAXVALUE {sequence.maximum} "
        f"START WITH {sequence.start} CACHE {sequence.cache}{' CYCLE' if sequence.cycle else ''}"
    )
