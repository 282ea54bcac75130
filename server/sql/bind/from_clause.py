"""FROM: tables, queries, functions and joins of them."""

from __future__ import annotations

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from server.sql.bind.binder import Binder
from server.sql.bind.from_item import FromItem, aliased, column_aliases
from server.sql.bind.joins import crossed, joined
from server.sql.bind.samples import sampled
from server.sql.bind.shapes import real_names, tables_of
from server.sql.bind.table_functions import functions_in_from, special_call
from server.sql.bind.tables import named_relation
from server.sql.bind.values import written_values
from server.sql.grammar.checkpoint import checkpoint
from server.sql.relations import Values
from server.sql.scope import Entry, Scope, alone

FROM_ITEMS_MAX = 1_000  # memory and time of a join of n relations are quadratic in n


def from_clause(binder: Binder, tree: exp.Expr, outer: Scope) -> FromItem:
    """The whole FROM clause; without one, a single row without columns."""
    from_ = tree.args.get("from_")
    if from_ is None:
        return FromItem(Values((), ((),)), [])
    # A comma binds less tightly than JOIN: each comma starts a new group of joins.
    hidden = frozenset(real_names(tree).values())
    outer = Scope([], outer.parent, outer.common_tables, hidden=hidden, level=outer.level)
    result: FromItem | None = None
    joins = tree.args.get("joins") or ()
    if len(joins) >= FROM_ITEMS_MAX:
        detail = f"A FROM clause can have at most {FROM_ITEMS_MAX} relations."
        raise PgError(SqlState.PROGRAM_LIMIT_EXCEEDED, "too many range table entries", detail=detail)
    group = _from_item(binder, from_.this, outer, [])
    for join in joins:
        before = result.entries if result is not None else []
        if _is_comma(join):
            result = group if result is None else crossed(binder, result, group)
            group = _from_item(binder, join.this, outer, result.entries)
        else:
            group = _with_join(binder, group, join, outer, before)
    result = group if result is None else crossed(binder, result, group)
    _check_aliases(tree)
    return result


def other_tables(binder: Binder, tree: exp.Expr, scope: Scope) -> FromItem:
    """FROM of an UPDATE, USING of a DELETE. LATERAL items cannot reference the table that is written."""
    return from_clause(binder, tree, Scope(parent=scope.parent, common_tables=scope.common_tables))


def _from_item(binder: Binder, tree: exp.Expr, outer: Scope, before: list[Entry]) -> FromItem:
    """One item of FROM with its alias. LATERAL items, and functions, can reference `before`."""
    checkpoint()
    if tree.args.get("sample") and not (isinstance(tree, exp.Table) and isinstance(tree.this, exp.Identifier)):
        raise PgError(SqlState.SYNTAX_ERROR, 'syntax error at or near "TABLESAMPLE"', position=binder.at(tree))
    clause = "FROM clause of their own query level"
    seeing = Scope(before, outer.parent, outer.common_tables, clause, hidden=outer.hidden, level=outer.level)
    match tree:
        case exp.Lateral():
            if isinstance(tree.this, (exp.Subquery, exp.Values)):
                relation = binder.query(tree.this, Scope(parent=seeing, common_tables=outer.common_tables))
                return FromItem(relation, aliased(binder, relation, tree, ""), True)
            function = tree.this
            if not isinstance(function, (exp.Anonymous, exp.Unnest)):
                raise binder.unsupported(
                    "this LATERAL item", tree, hint="Write LATERAL before a function, or before a query in parentheses."
                )
            return functions_in_from(binder, [function], tree, seeing)
        case exp.Table() if tree.args.get("rows_from"):
            calls = [t if isinstance(t, exp.Unnest) else t.this for t in tree.args["rows_from"]]
            return functions_in_from(binder, calls, tree, seeing)
        case exp.Table() if isinstance(tree.this, exp.Anonymous):
            return functions_in_from(binder, [tree.this], tree, seeing)
        case exp.Unnest():
            return functions_in_from(binder, [tree], tree, seeing)
        case exp.Table() | exp.Subquery() if tree.args.get("joins"):
            return _with_own_joins(binder, tree, outer, before)
        case exp.Values() | exp.Table(this=exp.Values()):
            rows = tree if isinstance(tree, exp.Values) else tree.this
            relation, default = written_values(binder, rows, alone(outer), False), ""
        case exp.Table() if (call := special_call(tree)) is not None:
            return functions_in_from(binder, [call], tree, seeing)
        case exp.Table():
            relation, default = named_relation(binder, tree, outer), tree.name
            if tree.args.get("sample"):
                relation = sampled(binder, tree, relation)
        case exp.Subquery() if _is_join(tree):
            return _parenthesised(binder, tree, outer, before)
        case exp.Subquery():
            around = Scope(parent=outer.parent, hidden=outer.hidden)
            relation, default = binder.query(tree, Scope(parent=around, common_tables=outer.common_tables)), ""
        case _:
            raise binder.unsupported(
                "this item of FROM", tree, hint="Name a table, a function, or a query in parentheses."
            )
    return FromItem(relation, aliased(binder, relation, tree, default))


def _with_own_joins(binder: Binder, tree: exp.Table | exp.Subquery, outer: Scope, before: list[Entry]) -> FromItem:
    """The first item in parentheses, to which sqlglot attached the joins: `(a JOIN b ON ...)`."""
    bare = tree.copy()
    joins = bare.args.pop("joins")
    result = _from_item(binder, bare, outer, before)
    for join in joins:
        if _is_comma(join):
            result = crossed(binder, result, _from_item(binder, join.this, outer, before + result.entries))
        else:
            result = _with_join(binder, result, join, outer, before)
    return result


def _parenthesised(binder: Binder, tree: exp.Subquery, outer: Scope, before: list[Entry]) -> FromItem:
    result = _from_item(binder, tree.this, outer, before)
    if not tree.alias:
        return result
    visible = [entry for entry in result.entries if entry.visible]
    names = column_aliases(tree)
    if len(names) > len(visible):
        raise PgError(
            SqlState.INVALID_COLUMN_REFERENCE,
            f'join expression "{tree.alias}" has {len(visible)} columns available but {len(names)} columns specified',
            position=binder.at(tree),
        )
    shown = names + [entry.name for entry in visible[len(names) :]]
    entries = [Entry(name, entry.expression, tree.alias) for name, entry in zip(shown, visible, strict=True)]
    return FromItem(result.relation, entries, result.lateral)


def _check_aliases(tree: exp.Expr) -> None:
    seen = set()
    for table in tables_of(tree):
        name = table.alias or (table.name if isinstance(table, exp.Table) else "")
        if name and name in seen:
            message = f'table name "{name}" specified more than once'
            raise PgError(SqlState.DUPLICATE_ALIAS, message)
        seen.add(name)


def _with_join(binder: Binder, left: FromItem, join: exp.Join, outer: Scope, before: list[Entry]) -> FromItem:
    right = _from_item(binder, join.this, outer, before + left.entries)
    return joined(binder, left, right, join, outer)


def _is_join(tree: exp.Expr) -> bool:
    """Whether parentheses in FROM contain a table or joins rather than a query."""
    while isinstance(tree, exp.Subquery):
        if tree.args.get("joins"):
            return True
        tree = tree.this
    return isinstance(tree, exp.Table)


def _is_comma(join: exp.Join) -> bool:
    return not any(join.args.get(k) for k in ("kind", "side", "method", "on", "using"))
