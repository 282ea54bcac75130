"""User-defined types in statements, and in the columns of relations."""

from __future__ import annotations

from dataclasses import replace

from catalog.ids import types_in
from catalog.objects import Column, EnumType, Relation
from catalog.state import CatalogState
from protocol.pgwire.types import PgType, array_of, parse_type
from server.session_state.context import Context
from server.sql.grammar.statements.parts import NamedType
from server.sql.grammar.statements.tables import ColumnDefinition
from server.sql.type_names import resolved, type_of_item


def known_type(context: Context, type: PgType) -> PgType:
    """The type that a statement names. PgError 42704 if there is none."""
    if not isinstance(type, NamedType):
        return type
    found, _ = resolved(context.state, type, context.settings["database"], context.search_path)
    return found


def known_column(context: Context, definition: ColumnDefinition) -> ColumnDefinition:
    """The definition of a column with the type that it names. PgError 42704."""
    return replace(definition, type=known_type(context, definition.type))


def with_enum(state: CatalogState, item: EnumType) -> CatalogState:
    """The state with a changed type, also in the columns of the relations that have it.

    A column's type contains the labels. So a change of the labels changes the relations, and what was planned or
    computed with other labels is noticed in the same way as after ALTER TABLE.
    """
    state = state.with_item(item)
    scalar = type_of_item(state, item)

    def retyped(column: Column) -> Column:
        if item.id not in types_in(column.type):
            return column
        is_array = parse_type(column.type).element is not None
        return replace(column, type=str(array_of(scalar) if is_array else scalar))

    for relation in list(state.items_of(Relation)):
        if item.id in relation.depends_on:
            state = state.with_item(replace(relation, columns=tuple(map(retyped, relation.columns))))
    return state
