"""COMMENT ON."""

from __future__ import annotations

from catalog.objects import Relation
from catalog.state import CatalogState
from protocol.pgwire.errors import PgError, SqlState
from server.authorization import privileges
from server.execution.ddl.named_objects import altered_object
from server.execution.names import find_item
from server.session_state.context import Context
from server.sql.grammar.statements.objects import CommentOn
from server.sql.grammar.statements.parts import Name

BYTES_MAX = 1_048_576
"""The size of a comment: all comments are in memory and in the catalog's file."""


def comment(context: Context, statement: CommentOn) -> CatalogState:
    """Executes COMMENT ON. An empty comment removes the comment, as in PostgreSQL."""
    state, name = context.state, statement.name
    if statement.comment is not None and len(statement.comment.encode()) > BYTES_MAX:
        message = f"comment is too long: {len(statement.comment.encode())} bytes"
        raise PgError(SqlState.PROGRAM_LIMIT_EXCEEDED, message, detail=f"A comment can have at most {BYTES_MAX} bytes.")
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
