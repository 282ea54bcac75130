"""Definitions of PRIMARY KEY and UNIQUE constraints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from catalog.ids import ObjectId
from catalog.keys import KEYS_MAX, Key
from catalog.objects.columns import Column
from catalog.objects.tables import Table
from catalog.state import CatalogState
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import PgType, parse_type
from server.execution.names import find_schema
from server.session_state.context import Context
from server.sql.grammar.statements import tables as grammar
from server.sql.grammar.statements.parts import Name

NAME_BYTES = 63
_COMPARABLE = frozenset(
    ("int2", "int4", "int8", "float4", "float8", "numeric", "text", "varchar", "bpchar", "bytea", "uuid", "bool")
) | frozenset(("date", "time", "timestamp", "timestamptz"))


def with_keys(
    state: CatalogState,
    schema: ObjectId,
    table: str,
    columns: tuple[Column, ...],
    given: Iterable[grammar.Key],
    known: tuple[Key, ...] = (),
) -> tuple[tuple[Column, ...], tuple[Key, ...]]:
    """The columns, those of a primary key NOT NULL, and `known` with the new keys, the primary key first. PgError."""
    keys = list(known)
    names = {column.name: column for column in columns}
    taken = {key.name for key in known}
    for key in sorted(given, key=lambda key: not key.primary):
        found: list[str] = []
        for column in key.columns:
            if column.name not in names:
                message = f'column "{column.name}" named in key does not exist'
                raise PgError(SqlState.UNDEFINED_COLUMN, message, position=column.position)
            if column.name in found:
                what = "primary key" if key.primary else "unique"
                message = f'column "{column.name}" appears twice in {what} constraint'
                raise PgError(SqlState.DUPLICATE_COLUMN, message, position=column.position)
            found.append(column.name)
            if not key.not_enforced:
                check_type(names[column.name], column.position)
        if key.primary and any(other.is_primary for other in keys):
            message = f'multiple primary keys for table "{table}" are not allowed'
            raise PgError(SqlState.INVALID_TABLE_DEFINITION, message, position=key.position)
        if key.name is None and any(
            other.columns == tuple(found) and other.nulls_distinct != key.nulls_not_distinct and other not in known
            for other in keys
        ):
            continue  # as in PostgreSQL, a repeated key is one key
        if key.name is not None and (is_taken(state, schema, key.name.name) or key.name.name in taken):
            message = f'relation "{key.name.name}" already exists'
            raise PgError(SqlState.DUPLICATE_TABLE, message, position=key.name.position)
        name = key.name.name if key.name is not None else _name(state, schema, taken, table, found, key.primary)
        taken.add(name)
        number = next((n for n in range(KEYS_MAX) if all(other.number != n for other in keys)), None)
        if number is None:
            raise PgError(SqlState.PROGRAM_LIMIT_EXCEEDED, f"a table can have at most {KEYS_MAX} keys")
        new = Key(number, name, tuple(found), key.primary, not key.not_enforced, not key.nulls_not_distinct)
        keys.append(replace(new, deferrable=key.deferrable, deferred=key.deferred))
    required = {name for key in keys if key.is_primary for name in key.columns}
    columns = tuple(replace(c, nullable=False) if c.name in required and c.nullable else c for c in columns)
    return columns, tuple(sorted(keys, key=lambda key: not key.is_primary))


def check_type(column: Column, position: int | None) -> None:
    """PgError if the equality of a column's type is not that of key codes."""
    check_key_type(parse_type(column.type), f'column "{column.name}"', position)


def check_key_type(type: PgType, part: str, position: int | None) -> None:
    """PgError if the equality of a type is not that of key codes. `part`: what has it, for the message."""
    if type.representation in _COMPARABLE:
        return
    if type.name == "json":
        raise PgError(
            SqlState.UNDEFINED_OBJECT,
            'data type json has no default operator class for access method "btree"',
            hint="You must specify an operator class for the index or define a default operator class for the data "
            "type.",
        )
    raise PgError(
        SqlState.FEATURE_NOT_SUPPORTED,
        f"a key with {part} of type {type.base_display} is not supported",
        hint="Declare a key of columns NOT ENFORCED, or cast the value in a unique index, for example to text.",
        position=position,
    )


def is_taken(state: CatalogState, schema: ObjectId, name: str) -> bool:
    """Whether a relation, or the index of a key, has the name."""
    if state.item_named(schema, name) is not None:
        return True
    return any(key.name == name for t in state.items_of(Table) if t.schema_id == schema for key in t.keys)


def key_owner(context: Context, name: Name) -> Table | None:
    """The table whose key has the index of this name."""
    state = context.state
    *qualifier, last = name.parts
    for path in [qualifier[-1]] if qualifier else context.search_path:
        try:
            schema = find_schema(context, (*qualifier[:-1], path))
        except PgError:
            continue
        if state.item_named(schema.id, last) is not None:
            return None
        for table in state.items_of(Table):
            if table.schema_id == schema.id and any(key.name == last for key in table.keys):
                return table
    return None


def _name(
    state: CatalogState, schema: ObjectId, taken: AbstractSet[str], table: str, columns: Sequence[str], primary: bool
) -> str:
    """PostgreSQL's name for a constraint without one."""
    number = 0
    while True:
        label = ("pkey" if primary else "key") + (str(number) if number else "")
        name = object_name(table, "" if primary else "_".join(columns), label)
        if name not in taken and not is_taken(state, schema, name):
            return name
        number += 1


def object_name(first: str, second: str, label: str) -> str:
    """`first_second_label` in at most 63 bytes: the longer of the first parts is shortened, as in PostgreSQL."""
    free = NAME_BYTES - len(label) - 1 - (1 if second else 0)
    one, two = first.encode(), second.encode()
    while len(one) + len(two) > free:
        if len(one) > len(two):
            one = one[:-1]
        else:
            two = two[:-1]
    parts = [one.decode(errors="ignore"), *([two.decode(errors="ignore")] if second else []), label]
    return "_".join(parts)
