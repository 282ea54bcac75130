"""SEARCH and CYCLE of a recursive query, as columns that both of its terms compute (rewriteSearchCycle.c).

With the columns BY (or CYCLE) as `row`, and the previous iteration's values with an apostrophe:

    SEARCH DEPTH FIRST SET s      s = ARRAY[row]                    s = s' || row
    SEARCH BREADTH FIRST SET s    s = ROW(0, columns)               s = ROW(s'.depth + 1, columns)
    CYCLE SET c USING p           c = false, p = ARRAY[row]         c = row = ANY (p'), p = p' || row, WHERE NOT c'
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import INT8, array_of, row_type
from server.sql.bind.binder import Binder
from server.sql.bind.calls import apply, operator
from server.sql.bind.keys import groupable
from server.sql.bind.shapes import unparenthesised
from server.sql.expressions import Array, Call, Case, Column, ColumnRef, Expression, Literal, Quantified
from server.sql.functions.records import ROW, field_of
from server.sql.grammar.dialect import CycleClause, SearchClause
from server.sql.relations import Project, Relation
from server.sql.scope import Scope

_DEPTH = "*DEPTH*"


class Paths:
    """The columns of SEARCH and CYCLE.

    `names`: their names. `previous`: the names of those whose values of the previous iteration are needed.
    """

    def __init__(
        self,
        binder: Binder,
        search: SearchClause | None,
        cycle: CycleClause | None,
        query: str,
        columns: Sequence[str],
        union: exp.Expr,
    ) -> None:
        """`columns`: the names of the query's own columns. 0A000 or 42601 if a term is not a SELECT; 42601, 42701."""
        self._binder, self._search, self._cycle, self._query = binder, search, cycle, query
        self._columns = tuple(columns)
        self.names: list[str] = []
        self.previous: list[str] = []
        if search is None and cycle is None:
            return
        for side, term, state in (
            ("left", union.this, SqlState.FEATURE_NOT_SUPPORTED),
            ("right", union.expression, SqlState.SYNTAX_ERROR),
        ):
            if isinstance(_unwrapped(term), exp.SetOperation):
                message = f"with a SEARCH or CYCLE clause, the {side} side of the UNION must be a SELECT"
                raise PgError(state, message, position=binder.at(term))
        if search is not None:
            self._check_columns(search, "search")
            self._add(search.args["column"], "search sequence column")
            self.previous.append(search.args["column"].name)
        if cycle is not None:
            self._check_columns(cycle, "cycle")
            self._add(cycle.args["column"], "cycle mark column")
            self._add(cycle.args["path"], "cycle path column")
            self.previous.append(cycle.args["path"].name)
            self._value, self._otherwise = self._marks(cycle)

    def _check_columns(self, clause: SearchClause | CycleClause, what: str) -> None:
        seen = set()
        for column in clause.expressions:
            fault = None
            if column.name not in self._columns:
                fault = SqlState.SYNTAX_ERROR, f'{what} column "{column.name}" not in WITH query column list'
            elif column.name in seen:
                fault = SqlState.DUPLICATE_COLUMN, f'{what} column "{column.name}" specified more than once'
            if fault is not None:
                raise PgError(*fault, position=self._binder.at(column))
            seen.add(column.name)

    def _add(self, identifier: exp.Expr, what: str) -> None:
        name = identifier.name
        if name in self._columns or name in self.names:
            message = f'{what} name "{name}" already used in WITH query column list'
            raise PgError(SqlState.SYNTAX_ERROR, message, position=self._binder.at(identifier))
        self.names.append(name)

    def _marks(self, cycle: CycleClause) -> tuple[Literal, Literal]:
        """The values of the mark, of their common type. 42804 if there is none, 42883 if it has no equality."""
        binder = self._binder
        trees = cycle.args["value"], cycle.args["otherwise"]
        _, marks = binder.to_common([self._literal(tree) for tree in trees], "CYCLE", binder.at(trees[1]))
        groupable(binder, marks[0], trees[0])
        value, otherwise = marks
        assert isinstance(value, Literal)
        assert isinstance(otherwise, Literal)
        return value, otherwise

    def _literal(self, tree: exp.Expr) -> Literal:
        bound = self._binder.expression(tree, Scope())
        if not isinstance(bound, Literal):
            raise self._binder.unsupported("this constant of CYCLE", tree, hint="Write a literal of a plain type.")
        return bound

    # -- the columns ----------------------------------------------------------------------------------------------

    def of_anchor(self, anchor: Relation) -> Relation:
        """The non-recursive term with the columns."""
        values = [ColumnRef(column) for column in anchor.columns]
        added: list[Expression] = []
        if self._search is not None:
            row = self._row(self._search, values, Literal(0, INT8) if self._search.args["breadth"] else None)
            added.append(row if self._search.args["breadth"] else _array(row))
        if self._cycle is not None:
            added += [self._otherwise, _array(self._row(self._cycle, values))]
        return self._extended(anchor, values, added)

    def step_tree(self, tree: exp.Expr) -> exp.Expr:
        """The recursive term, with the previous values that are needed, and without the rows that closed a cycle.

        0A000 if the rows of the previous iteration are not in FROM of the term itself.
        """
        if not self.names:
            return tree
        select = _unwrapped(tree).copy()
        found = [t for t in select.find_all(exp.Table) if t.name == self._query and not t.args.get("db")]
        if not isinstance(select, exp.Select) or any(t.find_ancestor(exp.Select) is not select for t in found):
            message = f'the recursive reference to WITH query "{self._query}" must be at the top level'
            message += " of its right-hand SELECT"
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, position=self._binder.at(tree))
        table = found[0].alias or found[0].name
        select.set("expressions", [*select.expressions, *(_column(table, name) for name in self.previous)])
        if self._cycle is not None:
            mark = _column(table, self._cycle.args["column"].name)
            test: exp.Expr = exp.NEQ(this=mark, expression=self._cycle.args["value"].copy())
            if (where := select.args.get("where")) is not None:
                test = exp.And(this=exp.Paren(this=where.this), expression=test)
            select.set("where", exp.Where(this=test))
        return select

    def of_step(self, step: Relation) -> Relation:
        """The recursive term of `step_tree` with the columns in place of their previous values."""
        width = len(self._columns)
        values = [ColumnRef(column) for column in step.columns[:width]]
        previous = {name: ColumnRef(c) for name, c in zip(self.previous, step.columns[width:], strict=True)}
        added: list[Expression] = []
        if self._search is not None:
            old = previous[self._search.args["column"].name]
            if self._search.args["breadth"]:
                depth = operator(self._binder, "+", [field_of(old, 0), Literal(1, INT8)], None)
                added.append(self._row(self._search, values, depth))
            else:
                added.append(self._appended(old, self._row(self._search, values), self._search))
        if self._cycle is not None:
            old = previous[self._cycle.args["path"].name]
            row = self._row(self._cycle, values)
            added += [self._mark(old, row), self._appended(old, row, self._cycle)]
        return self._extended(step, values, added)

    def _extended(self, term: Relation, values: Sequence[Expression], added: Sequence[Expression]) -> Relation:
        if not added:
            return term
        columns = (self._binder.new_column(name, value) for name, value in zip(self.names, added, strict=True))
        return Project(term, (*term.columns[: len(values)], *columns), (*values, *added))

    def _row(
        self, clause: SearchClause | CycleClause, values: Sequence[Expression], depth: Expression | None = None
    ) -> Expression:
        names = [column.name for column in clause.expressions]
        fields = [values[self._columns.index(name)] for name in names]
        if depth is not None:
            names, fields = [_DEPTH, *names], [depth, *fields]
        return Call(ROW, tuple(fields), row_type(names, [field.type for field in fields]), False)

    def _appended(self, path: Expression, row: Expression, tree: exp.Expr) -> Expression:
        return apply(self._binder, "array_append", [path, row], tree)

    def _mark(self, path: Expression, row: Expression) -> Expression:
        """The mark of a row: whether the path to it contains it."""
        assert path.type.element is not None
        element = Column(self._binder.new_id(), "", path.type.element, True)
        call = operator(self._binder, "=", [row, ColumnRef(element)], None)
        found = Quantified(call, element, path, all=False)
        return Case(((found, self._value),), self._otherwise, self._value.type)


def _array(row: Expression) -> Array:
    return Array((row,), array_of(row.type))


def _column(table: str, name: str) -> exp.Column:
    return exp.Column(this=exp.Identifier(this=name, quoted=True), table=exp.Identifier(this=table, quoted=True))


def _unwrapped(tree: exp.Expr) -> exp.Expr:
    """The query inside parentheses that have no clauses of their own."""
    while isinstance(tree, exp.Subquery) and not any(tree.args.get(k) for k in ("alias", "order", "limit", "with_")):
        tree = tree.this
    return unparenthesised(tree)
