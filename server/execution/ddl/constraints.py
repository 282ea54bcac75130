"""ALTER TABLE ... DROP CONSTRAINT and RENAME CONSTRAINT."""

from __future__ import annotations

from dataclasses import replace

from catalog.objects.tables import Table
from catalog.references import referenced_key, references_to, without_references
from catalog.state import CatalogState
from protocol.pgwire.errors import Notice, PgError, SqlState
from server.authorization import privileges
from server.execution.ddl.drop import report_lines
from server.execution.ddl.foreign_keys import constraint_names
from server.execution.ddl.keys import is_taken
from server.execution.ddl.named_objects import altered_item
from server.session_state.context import Context
from server.sql.grammar.statements.alter_table import DropConstraint
from server.sql.grammar.statements.objects import ObjectKind
from server.sql.grammar.statements.tables import RenameConstraint


def drop_constraint(context: Context, table: Table, action: DropConstraint) -> CatalogState:
    """The state after DROP CONSTRAINT of a table. PgError 42704, 2BP01."""
    state = context.state
    name = action.constraint.name
    if any(check.name == name for check in table.checks):
        return state.with_item(replace(table, checks=tuple(check for check in table.checks if check.name != name)))
    if any(key.name == name for key in table.foreign_keys):
        others = tuple(key for key in table.foreign_keys if key.name != name)
        return state.with_item(replace(table, foreign_keys=others))
    dropped = next((key for key in table.keys if key.name == name), None)
    if dropped is None:
        message = f'constraint "{name}" of relation "{table.name}" does not exist'
        if action.if_exists:
            context.notice(Notice(f"{message}, skipping"))
            return state
        raise PgError(SqlState.UNDEFINED_OBJECT, message)
    relying = [(owner, key) for owner, key in references_to(state, {table.id}) if referenced_key(state, key) == dropped]
    if relying and not action.cascade:
        lines = tuple((f"constraint {key.name} on table {owner.name}", f"index {name}") for owner, key in relying)
        raise _relied_on(table, name, lines)
    report_lines(context, [f"drop cascades to constraint {key.name} on table {owner.name}" for owner, key in relying])
    state = without_references(state, relying)
    left = state.items[table.id]
    assert isinstance(left, Table)
    return state.with_item(replace(left, keys=tuple(key for key in left.keys if key.name != name)))


def _relied_on(table: Table, name: str, lines: tuple[tuple[str, str], ...]) -> PgError:
    return PgError(
        SqlState.DEPENDENT_OBJECTS_STILL_EXIST,
        f"cannot drop constraint {name} on table {table.name} because other objects depend on it",
        detail="\n".join(f"{user} depends on {used}" for user, used in lines),
        hint="Use DROP ... CASCADE to drop the dependent objects too.",
    )


def rename_constraint(context: Context, statement: RenameConstraint) -> CatalogState:
    """Executes ALTER TABLE ... RENAME CONSTRAINT, which also renames the index of a key. PgError."""
    table = altered_item(context, ObjectKind.TABLE, statement.table, if_exists=statement.if_exists)
    if table is None:
        return context.state
    assert isinstance(table, Table)
    return with_renamed_constraint(context, table, statement.constraint.name, statement.new_name.name)


def with_renamed_constraint(context: Context, table: Table, old: str, new: str) -> CatalogState:
    """The state after a constraint of a table, and the index of a key, get another name. PgError."""
    state = context.state
    privileges.require_owner(state, context.role, table)
    names = constraint_names(table)
    if old not in names:
        message = f'constraint "{old}" for table "{table.name}" does not exist'
        raise PgError(SqlState.UNDEFINED_OBJECT, message)
    if any(key.name == old for key in table.keys) and is_taken(state, table.schema_id, new):
        raise PgError(SqlState.DUPLICATE_TABLE, f'relation "{new}" already exists')
    if new in names:
        message = f'constraint "{new}" for relation "{table.name}" already exists'
        raise PgError(SqlState.DUPLICATE_OBJECT, message)
    return state.with_item(
        replace(
            table,
            keys=tuple(replace(key, name=new) if key.name == old else key for key in table.keys),
            checks=tuple(replace(check, name=new) if check.name == old else check for check in table.checks),
            foreign_keys=tuple(replace(key, name=new) if key.name == old else key for key in table.foreign_keys),
        )
    )
