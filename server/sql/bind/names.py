"""Column and table names in expressions."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from server.sql.bind.binder import Binder, Replacement, form
from server.sql.bind.rows import record, whole_row
from server.sql.expressions import Expression
from server.sql.grammar.lexer import quoted
from server.sql.scope import Scope, find_column


@form(exp.Column)
def column(binder: Binder, tree: exp.Column, scope: Scope) -> Expression:
    """A column by its name, optionally qualified by table and schema. 42703, 42702, 42P01."""
    forget_schema(binder, tree)
    if isinstance(tree.this, exp.Star):
        return record(binder, tree, scope)
    table = tree.table or None
    if table is None and tree.name == "default" and not tree.this.quoted:
        message = "DEFAULT is not allowed in this context"
        raise PgError(SqlState.SYNTAX_ERROR, message, position=binder.at(tree))
    try:
        return binder.read(find_column(scope, table, tree.name, binder.at(tree)))
    except PgError as error:
        if error.sqlstate is not SqlState.FEATURE_NOT_SUPPORTED or whole_row(tree, scope) is None:
            raise
    return record(binder, tree, scope)


def forget_schema(binder: Binder, tree: exp.Expr) -> None:
    """Stores schema.table.column as table.column, because the stored query refers to a table by its alias."""
    qualifiers = [tree.args[k] for k in ("catalog", "db", "table") if tree.args.get(k) is not None]
    schema = tree.args.get("db")
    if schema is not None and all(schema.name != s.name for s in binder.context.state.schemas.values()):
        message = f'invalid reference to FROM-clause entry for table "{qualifiers[-1].name}"'
        raise PgError(SqlState.UNDEFINED_TABLE, message, position=binder.at(tree))
    if len(qualifiers) > 1 and not binder.inside_view:
        replace_name(binder, qualifiers, quoted(qualifiers[-1].name))


def replace_name(binder: Binder, identifiers: Sequence[exp.Expr], text: str) -> None:
    """Replaces the identifiers by `text` in the stored text."""
    spans = [(i.meta["start"], i.meta["end"]) for i in identifiers if "start" in i.meta]
    if spans:
        binder.replacements.append(Replacement(min(s for s, _ in spans), max(e for _, e in spans) + 1, text))
