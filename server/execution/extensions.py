"""CREATE EXTENSION and COMMENT ON EXTENSION of what dumps and ORMs name.

plpgsql has no functions here. pg_extension shows tidewire, and ActiveRecord's schema dumps name all of its rows. Of
uuid-ossp and pgcrypto, the functions that make random UUIDs are built in.
"""

from __future__ import annotations

from protocol.pgwire.errors import Notice, PgError, SqlState
from server.session_state.context import Context
from server.session_state.results import Result
from server.sql.grammar.statements.objects import CommentOnExtension, CreateExtension

ACCEPTED = ("plpgsql", "uuid-ossp", "pgcrypto", "tidewire")
_HINTS = {
    "citext": "Use text, and compare lower(column). An index can have the key lower(column).",
    "hstore": "Use jsonb.",
    "pg_trgm": "LIKE and regular expressions read all rows: omit the indexes for them.",
    "btree_gin": "Omit it: an index can have several columns.",
    "btree_gist": "Omit it: an index can have several columns.",
    "pg_stat_statements": "pg_stat_activity shows what sessions do, and the log and /metrics how long statements take.",
    "postgres_fdw": "CREATE SOURCE ... FROM POSTGRES keeps copies of the tables of another server.",
    "dblink": "CREATE SOURCE ... FROM POSTGRES keeps copies of the tables of another server.",
}


def create_extension(context: Context, statement: CreateExtension) -> Result:
    """Executes CREATE EXTENSION. PgError 42710 without IF NOT EXISTS, 0A000 for extensions other than ACCEPTED."""
    name = statement.name.name
    if name not in ACCEPTED:
        message = f'extension "{name}" is not available'
        hint = _HINTS.get(name, "The server cannot load extensions.")
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, hint=hint)
    message = f'extension "{name}" already exists'
    if not statement.if_not_exists:
        raise PgError(SqlState.DUPLICATE_OBJECT, message)
    context.notice(Notice(f"{message}, skipping", sqlstate=SqlState.DUPLICATE_OBJECT))
    return Result("CREATE EXTENSION")


def comment_on_extension(statement: CommentOnExtension) -> Result:
    """Executes COMMENT ON EXTENSION, which has no effect. PgError 42704 for extensions other than ACCEPTED."""
    if statement.name.name not in ACCEPTED:
        raise PgError(SqlState.UNDEFINED_OBJECT, f'extension "{statement.name.name}" does not exist')
    return Result("COMMENT")
