"""What INSERT, UPDATE and DELETE write to: a table, or an automatically updatable view over one.

A view is written to as if its base table were named. Its columns become expressions over the table's row, and its
WHERE restricts the rows that UPDATE and DELETE find.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise

from catalog.ids import ObjectId
from catalog.objects.columns import Column as CatalogColumn
from catalog.objects.relations import Relation as CatalogRelation
from catalog.objects.tables import Table
from catalog.objects.views import View
from protocol.pgwire.errors import PgError, SqlState
from server.sql.bind import Binder, relation_of
from server.sql.columns import ids, named
from server.sql.conditions import all_of
from server.sql.expressions import Column, ColumnRef, Expression, Literal, transform, walk
from server.sql.grammar.lexer import Kind, tokenize
from server.sql.relations import Filter, Project, Relation, Scan, Sort
from server.sql.writes.updatable_views import NO_COLUMNS, READ_ONLY_COLUMN, Level, base_numbers, level_of

_HINTS = {
    "insert into": "Insert into a table that the view reads.",
    "update": "Update a table that the view reads.",
    "delete from": "Delete from a table that the view reads.",
    "merge into": "Merge into a table that the view reads.",
}


class NotUpdatable(PgError):
    """The error of a write to a view that is not automatically updatable."""


@dataclass(frozen=True, slots=True)
class WriteTarget:
    """`table`: the table whose rows change. `levels`: the views, from the named one to the one over the table.

    `numbers`: for each column of the named relation the number of the table's column; None if it is read-only.
    """

    table: Table
    levels: tuple[Level, ...] = ()
    numbers: tuple[int | None, ...] = ()

    @property
    def relation(self) -> Table | View:
        """The relation that the statement names."""
        return self.levels[0].view if self.levels else self.table

    @property
    def columns(self) -> Sequence[CatalogColumn]:
        """The columns of the relation, as values are assigned to them."""
        if not self.levels:
            return self.table.columns
        return [
            own if number is None else replace(self.table.columns[number], name=own.name)
            for own, number in zip(self.relation.columns, self.numbers, strict=True)
        ]

    def in_table(self, numbers: Collection[int] | None) -> frozenset[int]:
        """The numbers of the table's columns for those of the relation's; none for None."""
        found = (self.numbers[number] for number in numbers or ())
        return frozenset(number for number in found if number is not None)

    def require_updatable(self, numbers: Collection[int], verb: str) -> None:
        """PgError 0A000 if one of these columns of the relation is read-only."""
        for number in sorted(numbers) if self.levels else ():
            if self.numbers[number] is None:
                level, number = self._read_only(number)
                message = f'cannot {verb} column "{level.view.columns[number].name}" of view "{level.view.name}"'
                raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, detail=READ_ONLY_COLUMN)

    def _read_only(self, number: int) -> tuple[Level, int]:
        """The view that computes a read-only column of the relation, and the number that the column has in it."""
        for level in self.levels:
            below = level.columns[number]
            if below is None:
                return level, number
            number = below
        raise AssertionError(number)


def write_target(
    binder: Binder, item: CatalogRelation, verb: str, position: int | None, *, only_deletes: bool = False
) -> WriteTarget:
    """The target of a statement that names the item. PgError 42809; NotUpdatable."""
    levels: list[Level] = []
    while isinstance(item, View):
        binder.new_relation()
        level = level_of(item, binder.context.state)
        if not isinstance(level, str) and not only_deletes and not level.is_updatable:
            level = NO_COLUMNS
        if isinstance(level, str):
            message = f'cannot {verb} view "{item.name}"'
            raise NotUpdatable(SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE, message, detail=level, hint=_HINTS[verb])
        levels.append(level)
        item = level.base
    if not isinstance(item, Table):
        raise PgError(SqlState.WRONG_OBJECT_TYPE, f'cannot {verb} {item.kind} "{item.name}"', position=position)
    return WriteTarget(item, tuple(levels), base_numbers(tuple(levels), len(item.columns)))


def names_in(text: str, alias: str) -> frozenset[str] | None:
    """The words and names in the text of a write. None if it may name all columns of the target: by *, or as a row."""
    tokens = tokenize(text)
    rows = sum(token.value == alias and after.value != "." for token, after in pairwise(tokens))
    if rows > 1 or any(token[:2] == (Kind.SYMBOL, "*") for token in tokens):
        return None
    return frozenset(token.value for token in tokens)


def shown(
    binder: Binder,
    target: WriteTarget,
    rows: Relation,
    columns: Sequence[Column],
    names: Container[str] | None,
    *,
    filtered: bool = False,
) -> tuple[Relation, tuple[Column, ...]]:
    """The columns of the target's relation over rows whose `columns` are those of the table.

    Returns `rows` with further columns, and the columns of the relation, each of which is declared as such. Columns of
    a view that the statement does not name are not in the rows. `names`: those in the statement, None for all.
    `filtered`: only the rows that the view contains.
    """
    if not target.levels:
        binder.declare_columns(target.table.id, columns)
        return rows, tuple(columns)
    inputs = set(binder.inputs)
    query = relation_of(binder, target.relation)
    needed = [
        column for own, column in zip(target.relation.columns, query.columns, strict=True)
        if names is None or own.name in names
    ]  # fmt: skip
    view = _PlacedView(binder, rows, filtered)
    view.place(query, ids(needed), target.table.id, columns)
    binder.inputs = inputs | {node.id for node in walk(view.rows) if isinstance(node, Scan)}
    found: dict[int, Column] = {}
    repeated: list[tuple[Column, Expression]] = []
    for column in query.columns:
        own = view.known.get(column.id) or binder.new_column(column.name, Literal(None, column.type))
        if own.id in found:  # another column of the view is the same column of the table
            own = binder.new_column(column.name, ColumnRef(own))
            repeated.append((own, ColumnRef(view.known[column.id])))
        found[own.id] = own
    binder.declare_columns(target.relation.id, tuple(found.values()))
    return _with(view.rows, view.rows.columns, repeated), tuple(found.values())


class _PlacedView:
    """The query of a view, a chain of Project, Filter and Sort over a scan that is replaced by `rows`.

    `known`: the columns of the last node that was placed, by id, as columns of `rows`.
    """

    def __init__(self, binder: Binder, rows: Relation, filtered: bool) -> None:
        self.rows = rows
        self.known: dict[int, Column] = {}
        self._binder = binder
        self._own = rows.columns
        self._filtered = filtered

    def place(self, node: Relation, needed: Set[int], table: ObjectId, columns: Sequence[Column]) -> None:
        """`needed`: the ids of those columns of the node that are computed."""
        match node:
            case Scan(id=id) if id == table:
                self.known = {own.id: column for own, column in zip(node.columns, columns, strict=True)}
            case Sort(input=input):
                self.place(input, needed, table, columns)
            case Filter(input=input, predicate=predicate):
                self.place(input, needed | named(predicate) if self._filtered else needed, table, columns)
                if self._filtered:
                    self.rows = _with_condition(self.rows, self._over(predicate))
            case Project(input=input):
                pairs = [pair for pair in zip(node.columns, node.expressions, strict=True) if pair[0].id in needed]
                self.place(input, named(tuple(expression for _, expression in pairs)), table, columns)
                self._project(pairs)
            case _:
                raise AssertionError(node)

    def _project(self, pairs: Sequence[tuple[Column, Expression]]) -> None:
        known: dict[int, Column] = {}
        computed: list[tuple[Column, Expression]] = []
        for column, expression in ((column, self._over(expression)) for column, expression in pairs):
            if isinstance(expression, ColumnRef):
                known[column.id] = expression.column
            else:
                known[column.id] = column
                computed.append((column, expression))
        self.known = known
        if computed:
            used = ids((*self._own, *known.values()))
            kept = tuple(column for column in self.rows.columns if column.id in used)
            for _ in kept:
                self._binder.new_id()  # counts them in the limit of columns
            self.rows = _with(self.rows, kept, computed)

    def _over(self, expression: Expression) -> Expression:
        """An expression of the query over `rows`."""

        def placed(node: object) -> Expression | None:
            column = self.known.get(node.column.id) if isinstance(node, ColumnRef) else None
            return None if column is None else ColumnRef(column)

        return transform(expression, placed)


def filtered_rows(rows: Relation, predicate: Expression) -> Relation:
    """The rows that meet a condition. It is evaluated directly over a scan if possible, so that a key is found."""
    match rows:
        case Project(input=input) | Filter(input=Project(input=input)) if _is_over(predicate, input.columns):
            return replace(rows, input=filtered_rows(rows.input, predicate))
    return _with_condition(rows, predicate)


def _with_condition(rows: Relation, predicate: Expression) -> Relation:
    if not isinstance(rows, Filter):
        return Filter(rows, predicate)
    both = all_of((rows.predicate, predicate))
    assert both is not None
    return Filter(rows.input, both)


def _is_over(expression: Expression, columns: Sequence[Column]) -> bool:
    return named(expression) <= ids(columns)


def _with(rows: Relation, kept: Sequence[Column], computed: Sequence[tuple[Column, Expression]]) -> Relation:
    """Columns of the rows, and further ones."""
    if not computed:
        return rows
    columns, expressions = zip(*computed, strict=True)
    return Project(rows, (*kept, *columns), (*map(ColumnRef, kept), *expressions))
