"""Column and table names in expressions."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from catalog.ids import user_oid
from catalog.objects.relations import Relation
from catalog.objects.system_tables import SystemTable
from catalog.objects.views import View
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import INT8
from server.sql.bind.binder import Binder, Replacement, form
from server.sql.bind.rows import record, whole_row
from server.sql.expressions import Expression, Literal
from server.sql.grammar.lexer import quoted
from server.sql.scope import TABLE_OID, Scope, find_column


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
        if error.sqlstate is not SqlState.FEATURE_NOT_SUPPORTED:
            raise
        if (relation := system_column_of(binder, tree, scope)) is not None:
            return Literal(user_oid(relation.id), INT8)
        if whole_row(tree, scope) is None:
            raise
    return record(binder, tree, scope)


def system_column_of(binder: Binder, tree: exp.Expr, scope: Scope) -> Relation | None:
    """The relation whose column `tableoid` a name denotes; None for another name. 42702; 0A000 in an outer join."""
    if not isinstance(tree, exp.Column) or tree.name != TABLE_OID:
        return None
    for level in scope.chain:
        entries = level.table_entries(tree.table) if tree.table else [entry for entry in level.entries if entry.visible]
        if not entries:
            continue
        found = {id for entry in entries if (id := binder.relation_of(entry.expression)) is not None}
        if len({entry.table for entry in entries}) > 1:
            message = f'column reference "{TABLE_OID}" is ambiguous'
            raise PgError(SqlState.AMBIGUOUS_COLUMN, message, position=binder.at(tree))
        relation = binder.context.state.items.get(found.pop()) if len(found) == 1 else None
        if not isinstance(relation, Relation) or isinstance(relation, SystemTable | View):
            return None
        if any(entry.is_extended for entry in entries):
            raise binder.unsupported(
                f'system column "{TABLE_OID}" of a table whose rows an outer join extends',
                tree,
                hint="Select it in a subquery in FROM.",
            )
        return relation
    return None


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
