"""FOREIGN KEY constraints: CREATE TABLE and ALTER TABLE record them; no statement enforces them (tablecmds.c)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from catalog.foreign_keys import FOREIGN_KEYS_MAX, ForeignKey
from catalog.ids import ObjectId
from catalog.keys import Key
from catalog.objects.kinds import with_article
from catalog.objects.namespaces import TEMPORARY, is_temporary
from catalog.objects.tables import Table
from catalog.references import key_of_columns, references_to
from catalog.state import CatalogState
from protocol.pgwire.errors import Notice, PgError, Severity, SqlState
from protocol.pgwire.types import PgType, parse_type
from server.execution.ddl.keys import NAME_BYTES, object_name
from server.execution.names import find_relation
from server.session_state.context import Context
from server.sql.casts import Coercion, find_cast
from server.sql.grammar.statements.checks import Reference
from server.sql.grammar.statements.parts import Ident, Name

_FAMILIES = (
    frozenset(("int2", "int4", "int8")),
    frozenset(("float4", "float8")),
    frozenset(("text", "varchar")),
    frozenset(("date", "timestamp", "timestamptz")),
)
"""The types that btree compares with each other."""


def constraint_names(table: Table) -> frozenset[str]:
    """The names of a table's constraints."""
    keys, checks, foreign_keys = table.keys, table.checks, table.foreign_keys
    return frozenset([*(k.name for k in keys), *(c.name for c in checks), *(f.name for f in foreign_keys)])


def with_references(context: Context, table: Table, given: Sequence[Reference]) -> Table:
    """The table with more foreign keys. Sends a notice that they are not enforced. PgError."""
    for reference in given:
        key = _foreign_key(context, table, reference)
        table = replace(table, foreign_keys=(*table.foreign_keys, key))
    if not all(reference.not_enforced for reference in given):
        report_not_enforced(context, table)
    return table


def report_not_enforced(context: Context, table: Table) -> None:
    """Sends a notice that the foreign keys of a table are not enforced."""
    context.notice(
        Notice(
            f'FOREIGN KEY constraints of table "{table.name}" are not enforced',
            severity=Severity.NOTICE,
            hint="Rows that refer to no row are not rejected. Declare the constraint NOT ENFORCED to omit this notice.",
        )
    )


def check_types(state: CatalogState, table: Table) -> None:
    """PgError 42804 if a foreign key of the table, or one that references it, has columns that cannot be compared."""
    state = replace(state, items={**state.items, table.id: table})
    for owner, key in [(table, key) for key in table.foreign_keys] + references_to(state, {table.id}):
        referenced = state.items[key.referenced]
        assert isinstance(referenced, Table)
        _check_comparable(owner, key, referenced)


def _foreign_key(context: Context, table: Table, reference: Reference) -> ForeignKey:
    state = context.state
    referenced = _referenced(context, table, reference.table)
    names = _columns(table, reference.columns)
    others = _columns(referenced, reference.others)
    if not others:
        primary = next((key for key in referenced.keys if key.is_primary), None)
        if primary is None:
            message = f'there is no primary key for referenced table "{referenced.name}"'
            raise PgError(SqlState.UNDEFINED_OBJECT, message)
        others = primary.columns
    for column in reference.set_columns:
        if column.name not in names:
            message = f'column "{column.name}" referenced in ON DELETE SET action must be part of foreign key'
            raise PgError(SqlState.INVALID_COLUMN_REFERENCE, message)
    if len(set(others)) < len(others):
        message = "foreign key referenced-columns list must not contain duplicates"
        raise PgError(SqlState.INVALID_FOREIGN_KEY, message)
    relied = key_of_columns(state, referenced, others)
    if reference.others and relied is None:
        message = f'there is no unique constraint matching given keys for referenced table "{referenced.name}"'
        raise PgError(SqlState.INVALID_FOREIGN_KEY, message)
    if isinstance(relied, Key) and relied.deferrable:
        message = f'cannot use a deferrable unique constraint for referenced table "{referenced.name}"'
        raise PgError(SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE, message)
    if len(names) != len(others):
        message = "number of referencing and referenced columns for foreign key disagree"
        raise PgError(SqlState.INVALID_FOREIGN_KEY, message)
    number = next((n for n in range(FOREIGN_KEYS_MAX) if all(key.number != n for key in table.foreign_keys)), None)
    if number is None:
        raise PgError(SqlState.PROGRAM_LIMIT_EXCEEDED, f"a table can have at most {FOREIGN_KEYS_MAX} foreign keys")
    key = ForeignKey(
        number,
        _name(table, reference, names),
        names,
        referenced.id,
        others,
        reference.match,
        reference.on_update,
        reference.on_delete,
        tuple(column.name for column in reference.set_columns),
        reference.deferrable,
        reference.deferred,
    )
    _check_comparable(table, key, referenced)
    return key


def _referenced(context: Context, table: Table, name: Name) -> Table:
    """The referenced table, which can be the one that is defined. PgError 42P01, 42809, 42P16."""
    state = context.state
    if table.id not in state.items and _denotes(context, name, table):
        return table
    found = find_relation(context, name)
    if found.id == table.id:
        return table
    if not isinstance(found, Table):
        message = f'referenced relation "{found.name}" is not a table'
        hint = f"It is {with_article(found.kind)}."
        raise PgError(SqlState.WRONG_OBJECT_TYPE, message, hint=hint, position=name.position)
    temporary = _is_temporary(state, table)
    if temporary != _is_temporary(state, found):
        kind = "temporary" if temporary else "permanent"
        message = f"constraints on {kind} tables may reference only {kind} tables"
        raise PgError(SqlState.INVALID_TABLE_DEFINITION, message)
    return found


def _denotes(context: Context, name: Name, table: Table) -> bool:
    """Whether a name denotes a table that is being created. If it is unqualified, search_path decides."""
    full_name = _full_name(context.state, table)
    if name.parts != full_name[-len(name.parts) :]:
        return False
    schema = full_name[-2]
    if len(name.parts) > 1 or schema == TEMPORARY:
        return True
    path = context.search_path
    if schema not in path:
        return False
    before = path[: path.index(schema)]
    return context.state.resolve(name.parts, context.settings["database"], before) is None


def _full_name(state: CatalogState, table: Table) -> tuple[str, ...]:
    """The name of a new table. The schema of temporary objects may be as new as the table."""
    return state.full_name(table) if table.schema_id in state.schemas else (TEMPORARY, table.name)


def _is_temporary(state: CatalogState, table: Table) -> bool:
    """Whether a table is temporary. A schema that the statement itself creates is one of temporary objects."""
    schema = state.schemas.get(table.schema_id)
    return schema is None or is_temporary(schema)


def _columns(table: Table, names: Sequence[Ident]) -> tuple[str, ...]:
    known = {column.name for column in table.columns}
    for name in names:
        if name.name not in known:
            message = f'column "{name.name}" referenced in foreign key constraint does not exist'
            raise PgError(SqlState.UNDEFINED_COLUMN, message)
    return tuple(name.name for name in names)


def _name(table: Table, reference: Reference, columns: Sequence[str]) -> str:
    """The constraint's name: the given one, or PostgreSQL's. PgError 42710."""
    taken = constraint_names(table)
    if reference.name is not None:
        if reference.name.name in taken:
            message = f'constraint "{reference.name.name}" for relation "{table.name}" already exists'
            raise PgError(SqlState.DUPLICATE_OBJECT, message)
        return reference.name.name
    number = 0
    while True:
        name = object_name(table.name, "_".join(columns)[:NAME_BYTES], f"fkey{number or ''}")
        if name not in taken:
            return name
        number += 1


def _check_comparable(table: Table, key: ForeignKey, referenced: Table) -> None:
    types = {column.name: parse_type(column.type) for column in table.columns}
    other_types = {column.name: parse_type(column.type) for column in referenced.columns}
    for name, other in zip(key.columns, key.others, strict=True):
        if not _is_comparable(types[name], other_types[other]):
            raise PgError(
                SqlState.DATATYPE_MISMATCH,
                f'foreign key constraint "{key.name}" cannot be implemented',
                detail=f'Key columns "{name}" and "{other}" are of incompatible types: '
                f"{types[name].base_display} and {other_types[other].base_display}.",
            )


def _is_comparable(type: PgType, other: PgType) -> bool:
    if type.name == other.name or any({type.name, other.name} <= family for family in _FAMILIES):
        return True
    rule = find_cast(type, other)
    return rule is not None and rule.context is Coercion.IMPLICIT


def referenced_column_users(state: CatalogState, table: ObjectId, column: str) -> list[tuple[Table, ForeignKey]]:
    """The foreign keys of other columns that reference this column of a table."""
    return [
        (owner, key)
        for owner, key in references_to(state, {table})
        if column in key.others and not (owner.id == table and column in key.columns)
    ]
