"""Which views are automatically updatable, and which column of its base relation each of their columns is.

The rules, their order and the messages are those of view_query_is_auto_updatable() in PostgreSQL's rewriteHandler.c.
They are applied to the stored text of a view, which is cheaper than planning it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from catalog.ids import ObjectId
from catalog.objects.relations import Relation
from catalog.objects.tables import Table
from catalog.objects.views import View
from catalog.state import CatalogState
from server.sql.bind.aggregates import is_aggregate
from server.sql.bind.from_item import column_aliases
from server.sql.bind.hypothetical_sets import HYPOTHETICAL_SETS
from server.sql.bind.shapes import function_name, unparenthesised
from server.sql.bind.tables import stored_query
from server.sql.functions.aggregates import ORDERED_SETS
from server.sql.functions.sets import SETS
from server.sql.grammar.checkpoint import checkpoint
from server.sql.grammar.json_constructors import JsonAggregate
from server.sql.scope import ID_SCHEMA

READ_ONLY_COLUMN = "View columns that are not columns of their base relation are not updatable."
NO_COLUMNS = "Views that have no updatable columns are not automatically updatable."
_NO_SINGLE_RELATION = "Views that do not select from a single table or view are not automatically updatable."


@dataclass(frozen=True, slots=True)
class ViewQuery:
    """The query of an updatable view. `read`: the relations that it reads in subqueries.

    `exposed`: the names of the base's columns, with their names in the base, if the base is in a subquery; None for a
    dropped one. `names`: other names of the first columns. `items`: the select list: the name of a column, `*`, or None
    for another expression.
    """

    base: ObjectId
    alias: str
    exposed: tuple[tuple[str, str | None], ...] | None
    names: tuple[str, ...]
    items: tuple[str | None, ...]
    read: frozenset[ObjectId]

    def columns(self, base: Sequence[str]) -> tuple[tuple[str, int | None], ...]:
        """The base's columns, by their names in the query, and their numbers. `base`: their names in the base."""
        numbers: dict[str | None, int] = {name: number for number, name in enumerate(base)}
        exposed = self.exposed if self.exposed is not None else tuple(zip(base, base, strict=True))
        names = [*self.names, *(name for name, _ in exposed[len(self.names) :])]
        return tuple((name, numbers.get(column)) for name, (_, column) in zip(names, exposed, strict=True))


@dataclass(frozen=True, slots=True)
class Level:
    """A view over its base relation. `columns`: for each column of the view the number of the base's, or None."""

    view: View
    base: Relation
    columns: tuple[int | None, ...]
    query: ViewQuery

    @property
    def is_updatable(self) -> bool:
        """Whether a column is one of the base's. If not, rows can only be deleted."""
        return any(number is not None for number in self.columns)

    def in_base(self, columns: frozenset[int] | None) -> frozenset[int] | None:
        """The numbers of the base's columns for those of the view's. None for None."""
        if columns is None:
            return None
        found = (self.columns[number] for number in columns)
        return frozenset(number for number in found if number is not None)


def level_of(view: View, state: CatalogState) -> Level | str:
    """The view, or the DETAIL that says why it is not automatically updatable."""
    checkpoint()
    query: ViewQuery | str | None = view.derived.get("updatable")
    if query is None:
        query = view.derived["updatable"] = _analyzed(view)
    if isinstance(query, str):
        return query
    base = state.items.get(query.base)
    if not isinstance(base, Table | View):
        return _NO_SINGLE_RELATION
    columns = _columns(query, tuple(column.name for column in base.columns))
    if len(columns) != len(view.columns):  # an item is expanded to the columns of a row
        columns = (None,) * len(view.columns)
    return Level(view, base, columns, query)


def base_numbers(levels: tuple[Level, ...], width: int) -> tuple[int | None, ...]:
    """For each column of the first view the number of the column of the last base relation, which has `width` columns.

    None for columns that are not updatable.
    """
    numbers: tuple[int | None, ...] = tuple(range(width))
    for level in reversed(levels):
        numbers = tuple(None if number is None else numbers[number] for number in level.columns)
    return numbers


def updatable_columns(views: Iterable[View], state: CatalogState) -> dict[ObjectId, tuple[int | None, ...]]:
    """Those of the views that are automatically updatable, with their `base_numbers`."""
    known: dict[ObjectId, tuple[int | None, ...] | None] = {}
    for view in views:
        item: Relation = view
        levels: list[Level] = []
        while isinstance(item, View) and item.id not in known:
            level = level_of(item, state)
            if isinstance(level, str):
                known[item.id] = None
                break
            levels.append(level)
            item = level.base
        below = known[item.id] if isinstance(item, View) else tuple(range(len(item.columns)))
        for level in reversed(levels):
            if below is not None:
                below = tuple(None if number is None else below[number] for number in level.columns)
            known[level.view.id] = below
    return {id: numbers for id, numbers in known.items() if numbers is not None}


_STAR = "\0*"
"""The item `*`. No column has this name."""


def select_of(view: View) -> exp.Select:
    """The SELECT of an updatable view. It is cached and must not be modified."""
    tree = stored_query(view.query)
    while isinstance(tree, exp.Subquery):
        tree = tree.this
    assert isinstance(tree, exp.Select)
    return tree


def _analyzed(view: View) -> ViewQuery | str:
    """The query of a view, or the DETAIL that says why the view is not updatable."""
    tree = stored_query(view.query)
    is_limited = has_with = False
    while isinstance(tree, exp.Subquery):
        is_limited |= _is_limited(tree)
        has_with |= bool(tree.args.get("with_"))
        tree = tree.this
    is_limited |= _is_limited(tree)
    has_with |= bool(tree.args.get("with_"))
    calls = set(_calls(tree)) if isinstance(tree, exp.Select) else set()
    for what, is_contained in (
        ("DISTINCT", isinstance(tree, exp.Select) and tree.args.get("distinct") is not None),
        ("GROUP BY", tree.args.get("group") is not None),
        ("HAVING", tree.args.get("having") is not None),
        ("UNION, INTERSECT, or EXCEPT", isinstance(tree, exp.SetOperation)),
        ("WITH", has_with),
        ("LIMIT or OFFSET", is_limited),
    ):
        if is_contained:
            return f"Views containing {what} are not automatically updatable."
    for what in ("aggregate functions", "window functions", "set-returning functions"):
        if what in calls:
            return f"Views that return {what} are not automatically updatable."
    from_ = tree.args.get("from_")
    if not isinstance(tree, exp.Select) or from_ is None or tree.args.get("joins"):
        return _NO_SINGLE_RELATION
    return _over_single(tree, from_.this)


def _is_limited(tree: exp.Expr) -> bool:
    return tree.args.get("limit") is not None or tree.args.get("offset") is not None


def _over_single(tree: exp.Select, source: exp.Expr) -> ViewQuery | str:
    """`source`: the only item of FROM."""
    if source.args.get("joins"):
        return _NO_SINGLE_RELATION
    table, exposed = source, None
    if isinstance(source, exp.Subquery) and _is_made(source.this):
        table = source.this.args["from_"].this
        exposed = tuple(_exposed(item) for item in source.this.expressions)
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier) or table.db != ID_SCHEMA:
        return _NO_SINGLE_RELATION
    if source.args.get("sample"):
        return "Views containing TABLESAMPLE are not automatically updatable."
    others = [other for other in tree.find_all(exp.Table) if other is not table and other.db == ID_SCHEMA]
    read = frozenset(ObjectId(other.name) for other in others)
    items = tuple(map(_item, tree.expressions))
    alias = source.alias or table.name
    return ViewQuery(ObjectId(table.name), alias, exposed, tuple(column_aliases(source)), items, read)


def _is_made(tree: exp.Expr) -> bool:
    """Whether it is a subquery as `stored_columns` makes them: of a relation without an alias."""
    from_ = tree.args.get("from_") if isinstance(tree, exp.Select) else None
    table = from_.this if from_ is not None else None
    return isinstance(table, exp.Table) and table.db == ID_SCHEMA and not table.alias


def _exposed(item: exp.Expr) -> tuple[str, str | None]:
    value = unparenthesised(item.this)
    return item.alias, value.name if isinstance(value, exp.Column) else None


def _item(item: exp.Expr) -> str | None:
    value = unparenthesised(item.this if isinstance(item, exp.Alias) else item)
    if isinstance(value, exp.Star) or (isinstance(value, exp.Column) and isinstance(value.this, exp.Star)):
        return _STAR
    return value.name if isinstance(value, exp.Column) else None


def _columns(query: ViewQuery, base: tuple[str, ...]) -> tuple[int | None, ...]:
    """For each column of a view the number of its column of the base relation, whose columns have these names."""
    named = query.columns(base)
    all_columns = [number for _, number in named]
    by_name = dict(named)
    found: list[int | None] = []
    for item in query.items:
        found += all_columns if item == _STAR else (by_name.get(item) if item is not None else None,)
    return tuple(found)


def _calls(tree: exp.Select) -> Iterator[str]:
    """What the select list and ORDER BY call, without subqueries: aggregate functions, window functions, sets."""
    order = tree.args.get("order")
    stack: list[exp.Expr] = [*tree.expressions, *([order] if order is not None else [])]
    while stack:
        node = stack.pop()
        below = [child for child in node.iter_expressions() if not isinstance(child, exp.Query)]
        if isinstance(node, exp.Window):
            yield "window functions"
            below = [inner for child in below for inner in (_arguments(child) if child is node.this else [child])]
        elif isinstance(node, JsonAggregate):
            yield "aggregate functions"
        elif isinstance(node, exp.Unnest):
            yield "set-returning functions"
        elif isinstance(node, exp.Anonymous):
            name = function_name(node)
            if is_aggregate(name) or name in ORDERED_SETS or name in HYPOTHETICAL_SETS:
                yield "aggregate functions"
            elif name in SETS or name == "unnest":
                yield "set-returning functions"
        stack += below


def _arguments(call: exp.Expr) -> list[exp.Expr]:
    """The arguments of a call that OVER follows, also behind FILTER."""
    inner = call.this if isinstance(call, exp.Filter) else call
    return [child for child in inner.iter_expressions() if not isinstance(child, exp.Query)]
