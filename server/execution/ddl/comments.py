"""COMMENT ON."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

from catalog.objects.relations import Relation
from catalog.objects.tables import Table
from catalog.state import CatalogState
from protocol.pgwire.errors import PgError, SqlState
from server.authorization import privileges
from server.execution.ddl.foreign_keys import constraint_names
from server.execution.ddl.named_objects import altered_object
from server.execution.names import find_item
from server.session_state.context import Context
from server.sql.grammar.statements.objects import CommentOn, CommentOnConstraint
from server.sql.grammar.statements.parts import Name

BYTES_MAX = 1_048_576
"""The size of a comment: all comments are in memory and in the catalog's file."""
LONG_CHARS = 8_192
"""A shorter comment takes no more memory than other properties of its object."""
LONG_CHARS_MAX = 16_777_216
"""The length of all longer comments together."""


def comment(context: Context, statement: CommentOn | CommentOnConstraint) -> CatalogState:
    """Executes COMMENT ON. An empty comment removes the comment, as in PostgreSQL."""
    if statement.comment is not None and len(statement.comment.encode()) > BYTES_MAX:
        message = f"comment is too long: {len(statement.comment.encode())} bytes"
        raise PgError(SqlState.PROGRAM_LIMIT_EXCEEDED, message, detail=f"A comment can have at most {BYTES_MAX} bytes.")
    if isinstance(statement, CommentOnConstraint):
        after = _commented_constraint(context, statement)
    else:
        after = _commented(context, statement)
    if len(statement.comment or "") > LONG_CHARS and _long_chars(after) > LONG_CHARS_MAX:
        raise PgError(
            SqlState.PROGRAM_LIMIT_EXCEEDED,
            "too many long comments",
            detail=f"All comments of more than {LONG_CHARS} characters can have at most {LONG_CHARS_MAX} together.",
            hint="Remove or shorten some of them.",
        )
    return after


def _long_chars(state: CatalogState) -> int:
    tables = list(state.items_of(Table))
    of_constraints = chain(
        (key.comment or "" for table in tables for key in table.keys),
        (check.comment or "" for table in tables for check in table.checks),
        (key.comment or "" for table in tables for key in table.foreign_keys),
    )
    return sum(len(text) for text in chain(state.comments.values(), of_constraints) if len(text) > LONG_CHARS)


def _commented_constraint(context: Context, statement: CommentOnConstraint) -> CatalogState:
    """PgError 42704 if the table has no such constraint."""
    table, name, text = find_item(context, statement.table), statement.constraint.name, statement.comment or None
    if not isinstance(table, Table) or name not in constraint_names(table):
        message = f'constraint "{name}" for table "{table.name}" does not exist'
        raise PgError(SqlState.UNDEFINED_OBJECT, message)
    privileges.require_owner(context.state, context.role, table)
    return context.state.with_item(
        replace(
            table,
            keys=tuple(replace(key, comment=text) if key.name == name else key for key in table.keys),
            checks=tuple(replace(check, comment=text) if check.name == name else check for check in table.checks),
            foreign_keys=tuple(replace(key, comment=text) if key.name == name else key for key in table.foreign_keys),
        )
    )


def _commented(context: Context, statement: CommentOn) -> CatalogState:
    state, name = context.state, statement.name
    if statement.kind is not None:
        found = altered_object(context, statement)
        assert found is not None, "COMMENT ON has no IF EXISTS"
        privileges.require_owner(state, context.role, found)
        return state.with_comment(found.id, 0, statement.comment or None)
    item = find_item(context, Name(name.parts[:-1], name.position))
    names = [column.name for column in item.columns] if isinstance(item, Relation) else []
    if name.parts[-1] not in names:
        raise PgError(
            SqlState.UNDEFINED_COLUMN,
            f'column "{name.parts[-1]}" of relation "{item.name}" does not exist',
            position=name.position,
        )
    privileges.require_owner(state, context.role, item)
    return state.with_comment(item.id, names.index(name.parts[-1]) + 1, statement.comment or None)
