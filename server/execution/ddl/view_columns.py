"""RENAME COLUMN, and the columns of views over a relation whose columns change."""

from __future__ import annotations

from dataclasses import replace

from catalog.objects.indexes import Index
from catalog.objects.relations import DerivedRelation, Relation
from catalog.objects.sequences import Sequence
from catalog.objects.sinks import Sink
from catalog.objects.tables import Table
from catalog.references import references_to
from catalog.state import CatalogState
from protocol.pgwire.errors import PgError, SqlState
from server.authorization import privileges
from server.coordinator.key_indexes import enforced_keys
from server.execution.ddl.columns import check_column_name
from server.execution.ddl.named_objects import altered_object
from server.session_state.context import Context
from server.sql.grammar.checkpoint import checkpoint
from server.sql.grammar.statements.alter_table import RenameColumn
from server.sql.stored_columns import Change, renamed, renamed_key, with_columns


def rename_column(context: Context, statement: RenameColumn) -> CatalogState:
    """Executes ALTER TABLE, VIEW or MATERIALIZED VIEW ... RENAME COLUMN."""
    state, old, new = context.state, statement.column.name, statement.new_name.name
    relation = altered_object(context, statement)
    if relation is None:
        return state
    privileges.require_owner(state, context.role, relation)
    if not isinstance(relation, Table | DerivedRelation):
        message = f'the columns of {relation.kind} "{relation.name}" cannot be renamed'
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, hint="Create a view that has the wanted names.")
    names = [column.name for column in relation.columns]
    if old not in names:
        raise PgError(SqlState.UNDEFINED_COLUMN, f'column "{old}" does not exist')
    if isinstance(relation, Table):
        check_column_name(statement.new_name)
    if new in names:
        message = f'column "{new}" of relation "{relation.name}" already exists'
        raise PgError(SqlState.DUPLICATE_COLUMN, message)
    for sink in state.items_of(Sink):
        if sink.on == relation.id and old in sink.key:
            raise PgError(
                SqlState.DEPENDENT_OBJECTS_STILL_EXIST,
                f'cannot rename column "{old}" because a sink uses it',
                detail=f'sink {sink.name} has column "{old}" in its key',
                hint="Drop the sink, and create it again afterwards.",
            )
    columns = tuple(replace(column, name=new) if column.name == old else column for column in relation.columns)
    if isinstance(relation, Table):
        keys = tuple(
            replace(key, columns=tuple(new if name == old else name for name in key.columns)) for key in relation.keys
        )
        columns = tuple(
            replace(column, generated=renamed_key(column.generated, old, new)) if column.generated else column
            for column in columns
        )
        checks = tuple(replace(c, expression=renamed_key(c.expression, old, new)) for c in relation.checks)
        state = state.with_item(replace(relation, columns=columns, keys=keys, checks=checks))
        state = _with_references(state, relation, old, new)
        for sequence in [*state.items_of(Sequence)]:
            if sequence.owner_table == relation.id and sequence.owner_column == old:
                state = state.with_item(replace(sequence, owner_column=new))
    else:
        state = state.with_item(replace(relation, columns=columns))
    indexes = [_with_renamed_column(index, old, new) for index in state.indexes_on(relation.id)]
    state = with_views(state.with_items(indexes), relation, renamed(old, new))
    enforced_keys(state, relation.id)  # the event loop will find the bound keys in caches
    return state


def _with_renamed_column(index: Index, old: str, new: str) -> Index:
    checkpoint()
    keys = tuple(renamed_key(key, old, new) for key in index.keys)
    included = tuple(renamed_key(name, old, new) for name in index.included)
    condition = renamed_key(index.condition, old, new) if index.condition else ""
    return replace(index, keys=keys, included=included, condition=condition)


def _with_references(state: CatalogState, renamed: Table, old: str, new: str) -> CatalogState:
    """The state in which foreign keys name a renamed column of a table."""

    def with_renamed(table: Table) -> Table:
        keys = (
            key.renamed(table.id == renamed.id, key.referenced == renamed.id, old, new) for key in table.foreign_keys
        )
        return replace(table, foreign_keys=tuple(keys))

    ids = {renamed.id} | {table.id for table, _ in references_to(state, {renamed.id})}
    return state.with_items(with_renamed(table) for table in state.items_of(Table) if table.id in ids)


def with_views(state: CatalogState, relation: Relation, change: Change) -> CatalogState:
    """The state in which the views over a relation have the columns that they had before the change."""
    views = [view for view in state.items_of(DerivedRelation) if relation.id in view.uses]
    return state.with_items(_with_columns(view, relation, change) for view in views)


def _with_columns(view: DerivedRelation, relation: Relation, change: Change) -> DerivedRelation:
    checkpoint()
    return replace(view, query=with_columns(view.query, relation.id, relation.columns, change))
