"""PostgreSQL's names and types of a query's output columns, where they derive from columns of system relations.

DuckDB describes any query, but it has no types `name` and `"char"`, and names some columns differently from PostgreSQL.
This module traces plain columns, stars and casts through subqueries and WITH to their relation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from sqlglot import exp

from catalog.pg_catalog import PgRelation
from server.sql.bind import output_name


class Output(NamedTuple):
    """An output column. `type` is PostgreSQL's type name; None if it cannot be determined here."""

    name: str
    type: str | None


Outputs = Sequence[Output]
FindRelation = Callable[[exp.Table], PgRelation | None]


def outputs_of(
    query: exp.Expr,
    relation: FindRelation,
    type_name: Callable[[exp.DataType], str],
    ctes: Mapping[str, Outputs | None] = {},
) -> Outputs | None:
    """Returns the output columns of a query; None if their number cannot be determined here."""
    ctes = dict(ctes)
    if isinstance(query, exp.Query):
        for cte in query.ctes:
            ctes[cte.alias] = None  # a recursive query's reference to itself
            ctes[cte.alias] = _renamed(outputs_of(cte.this, relation, type_name, ctes), cte.args["alias"])
    if isinstance(query, exp.SetOperation | exp.Subquery):
        return outputs_of(query.this, relation, type_name, ctes)
    if not isinstance(query, exp.Select):
        return None
    sources = dict(_sources(query, relation, type_name, ctes))
    found: list[Output] = []
    for item in query.expressions:
        tree = item.unalias()
        if isinstance(tree, exp.Star) or (isinstance(tree, exp.Column) and isinstance(tree.this, exp.Star)):
            named = [tree.table] if isinstance(tree, exp.Column) else list(sources)
            for source in named:
                columns = sources.get(source)
                if columns is None:
                    return None
                found.extend(columns)
            continue
        name = item.alias if isinstance(item, exp.Alias) else output_name(item).strip('"')
        found.append(Output(name, _type(tree, sources, type_name)))
    return found


_FUNCTIONS = {
    **dict.fromkeys(("current_database", "current_schema", "pg_encoding_to_char", "pg_get_userbyid"), "name"),
    "current_schemas": "name[]",
}
"""Functions whose results have type text in DuckDB, with PostgreSQL's result types."""


def _type(
    tree: exp.Expr, sources: Mapping[str, Outputs | None], type_name: Callable[[exp.DataType], str]
) -> str | None:
    if isinstance(tree, exp.Cast):
        type = type_name(tree.to)
        return type if not type.startswith("reg") else None
    if isinstance(tree, exp.Case | exp.Paren) or _is_call(tree, "coalesce"):
        return _common(_branches(tree), sources, type_name)
    if isinstance(tree, exp.Dot):
        tree = tree.expression
    if isinstance(tree, exp.Anonymous):
        return _FUNCTIONS.get(tree.name.lower())
    if isinstance(tree, exp.CurrentUser | exp.SessionUser | exp.CurrentRole | exp.CurrentSchema | exp.CurrentCatalog):
        return "name"
    if not isinstance(tree, exp.Column):
        return None
    named = [tree.table] if tree.table else list(sources)
    types = {column.type for source in named for column in sources.get(source) or () if column.name == tree.name}
    return types.pop() if len(types) == 1 else None


def _is_call(tree: exp.Expr, name: str) -> bool:
    return isinstance(tree, exp.Anonymous) and tree.name.lower() == name


def _branches(tree: exp.Expr) -> list[exp.Expr | None]:
    match tree:
        case exp.Case():
            return [*(branch.args["true"] for branch in tree.args["ifs"]), tree.args.get("default")]
        case exp.Anonymous():
            return list(tree.expressions)
        case _:
            return [tree.this]


def _common(
    trees: Sequence[exp.Expr | None],
    sources: Mapping[str, Outputs | None],
    type_name: Callable[[exp.DataType], str],
) -> str | None:
    """Returns the common type of all expressions except literals and NULL; None if they differ."""
    typed = [tree for tree in trees if tree is not None and not isinstance(tree, exp.Literal | exp.Null)]
    types = {_type(tree, sources, type_name) for tree in typed}
    return types.pop() if len(types) == 1 else None


def _sources(
    select: exp.Select,
    relation: FindRelation,
    type_name: Callable[[exp.DataType], str],
    ctes: Mapping[str, Outputs | None],
) -> list[tuple[str, Outputs | None]]:
    """Returns the alias and the columns of each source in FROM."""
    first = select.args.get("from_")
    joins = select.args.get("joins") or []
    merged = any(join.args.get("using") or join.method == "NATURAL" for join in joins)
    found: list[tuple[str, Outputs | None]] = []
    for node in [*([first] if first is not None else []), *joins, *(select.args.get("laterals") or [])]:
        source = node if isinstance(node, exp.Lateral) else node.this
        query = source.this if isinstance(source, exp.Lateral) else source
        columns: Outputs | None = None
        if isinstance(source, exp.Table):
            known = relation(source)
            if known is not None:
                columns = [Output(column.name, column.type) for column in known.columns]
            elif not source.db:
                columns = ctes.get(source.name)
        elif isinstance(query, exp.Subquery):
            columns = outputs_of(query, relation, type_name, ctes)
        found.append((source.alias_or_name, _renamed(columns, source.args.get("alias"))))
    # The star of a join with USING has each merged column once, first. The None leaves the description to DuckDB, which
    # expands it the same way.
    return found if not merged else [*found, ("", None)]


def _renamed(columns: Outputs | None, alias: exp.Expr | None) -> Outputs | None:
    """Renames columns by the column list of an alias, `t(a, b)`."""
    names = [name.name for name in (alias.args.get("columns") or ())] if isinstance(alias, exp.TableAlias) else []
    if columns is None or not names:
        return columns
    kept = [column.name for column in columns[len(names) :]]
    return [Output(name, column.type) for name, column in zip([*names, *kept], columns, strict=False)]
