"""References to catalog relations; views are replaced by their queries."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from catalog.objects.relations import Relation as CatalogRelation
from catalog.objects.sequences import Sequence
from catalog.objects.tables import Table
from catalog.objects.views import View
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import PgType, parse_type
from server.sql.bind.binder import Binder
from server.sql.bind.common_tables import common_table
from server.sql.bind.names import replace_name
from server.sql.bind.volatile import sequence_row
from server.sql.cached_texts import cached_by_length
from server.sql.expressions import Column, ColumnRef, Expression
from server.sql.grammar.lexer import quoted
from server.sql.grammar.parse import parse_query
from server.sql.grammar.statements.parts import Query
from server.sql.relations import Project, Relation, Scan
from server.sql.scope import Scope, find_relation


def named_relation(binder: Binder, tree: exp.Table, outer: Scope) -> Relation:
    """A relation of the catalog or of WITH by name. The stored text references it by id. 42P01, 42809, 54000."""
    binder.new_relation()
    if isinstance(tree.this, exp.Dot):
        message = f"improper qualified name (too many dotted names): {tree.sql()}"
        raise PgError(SqlState.SYNTAX_ERROR, message, position=binder.at(tree))
    parts = tuple(tree.args[k].name for k in ("catalog", "db", "this") if tree.args.get(k) is not None)
    if len(parts) == 1 and (table := outer.common_tables.find(parts[0])) is not None:
        return common_table(binder, table, parts[0], outer, tree)
    item = find_relation(
        binder.context.state, parts, binder.context.database, binder.context.search_path, binder.at(tree)
    )
    if not binder.inside_view:
        binder.uses.add(item.id)
        if (keyword := _table_keyword(tree)) is not None:
            replace_name(binder, [keyword], "SELECT * FROM")  # TABLE cannot be followed by an alias
        identifiers = [tree.args[k] for k in ("catalog", "db", "this") if tree.args.get(k) is not None]
        alias = "" if tree.alias else f" AS {quoted(item.name)}"
        replace_name(binder, identifiers, f'"$id".{quoted(item.id)}{alias}')
    relation = relation_of(binder, item)
    if not binder.inside_view:
        binder.declare_columns(item.id, relation.columns)
    if isinstance(item, Table):
        binder.declare_primary_key(item, relation.columns)
    return relation


def _table_keyword(relation: exp.Table) -> exp.Star | None:
    """The star that the parser made of the keyword of `TABLE relation`; None if that is not the query."""
    query = relation.parent.parent if isinstance(relation.parent, exp.From) else None
    items = query.expressions if isinstance(query, exp.Select) else []
    if len(items) != 1 or not isinstance(items[0], exp.Star):
        return None
    star: exp.Star = items[0]
    return star if star.meta.get("start") != star.meta.get("end") else None


def relation_of(binder: Binder, item: CatalogRelation) -> Relation:
    """The rows of a catalog relation. A view is replaced by its query, unless an index has the view's rows."""
    if isinstance(item, View):
        binder.views[item.id] = item
        context = binder.context
        inputs = context.state.collections(item.uses)
        indexed = bool(context.state.indexes_on(item.id)) and bool(inputs)
        if binder.maintained or context.views_expanded or not indexed:
            return _view(binder, item)
        binder.inputs |= inputs
    elif isinstance(item, Sequence):
        return sequence_row(binder, item)
    else:
        binder.inputs.add(item.id)
    columns = []
    for column in item.columns:
        type = parse_type(column.type)
        if type.has_seconds:
            type = type.without_modifiers  # the stored values are rounded
        columns.append(Column(binder.new_id(), column.name, type, column.nullable, _digits(type)))
    return Scan(item.id, tuple(columns))


def _view(binder: Binder, view: View) -> Relation:
    binder.inside_view += 1
    try:
        relation = binder.query(stored_query(view.query), Scope())
    finally:
        binder.inside_view -= 1
    exprs: list[Expression] = []
    for column, declared in zip(relation.columns, view.columns, strict=True):
        exprs.append(binder.rescale(ColumnRef(column), parse_type(declared.type)))
    columns = tuple(
        replace(binder.new_column(declared.name, e)) for declared, e in zip(view.columns, exprs, strict=True)
    )
    return Project(relation, columns, tuple(exprs))


def _digits(type: PgType) -> int:
    return (type.precision or 38) if type.name == "numeric" else 0


@cached_by_length((200, 1_024), (5_000, 48), (50_000, 4), (250_000, 1), length=len)
def stored_query(text: str) -> exp.Expr:
    """The tree of a view's stored text. It is cached and must not be modified."""
    query: Query = parse_query(text)
    return query.tree
