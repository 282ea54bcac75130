"""COMMENT ON."""

from __future__ import annotations

from catalog.objects.relations import Relation
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
LONG_CHARS = 8_192
"""A shorter comment takes no more memory than other properties of its object."""
LONG_CHARS_MAX = 16_777_216
"""The length of all longer comments together."""


def comment(context: Context, statement: CommentOn) -> CatalogState:
    """Executes COMMENT ON. An empty comment removes the comment, as in PostgreSQL."""
    if statement.comment is not None and len(statement.comment.encode()) > BYTES_MAX:
        message = f"comment is too long: {len(statement.comment.encode())} bytes"
        raise PgError(SqlState.PROGRAM_LIMIT_EXCEEDED, message, detail=f"A comment can have at most {BYTES_MAX} bytes.")
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
    return sum(len(text) for text in state.comments.values() if len(text) > LONG_CHARS)


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
