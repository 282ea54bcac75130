"""Expressions over grouped rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import INT4
from server.sql.bind.binder import Binder, Replacement
from server.sql.bind.grouping_sets import Groups
from server.sql.bind.keys import groupable
from server.sql.bind.select_list import Item
from server.sql.columns import Hashes, equivalent
from server.sql.expressions import (
    Aggregate,
    Call,
    Column,
    ColumnRef,
    Expression,
    Literal,
    Subquery,
    WindowCall,
    contains,
    transform,
    walk,
)
from server.sql.functions import syntax
from server.sql.grammar.lexer import quote_identifier
from server.sql.relations import Aggregate as AggregateNode
from server.sql.relations import Project, Relation, SetKind, SetOperation
from server.sql.scope import Entry


class Grouping:
    """Rewrites expressions over the input of an Aggregate into expressions over its output, then builds the node.

    Several grouping sets become a UNION ALL of one aggregate per set. So the empty set has a row for an empty input.

    If the keys include the primary key of a table, the table's other columns can be named, too. Those that are named
    become keys, also in the stored text of a view: so the view does not depend on the primary key.
    """

    def __init__(
        self,
        binder: Binder,
        relation: Relation,
        groups: Groups,
        items: Sequence[Item],
        level: int,
        entries: Sequence[Entry],
    ) -> None:
        """`items`: the select list before it is rewritten. `entries`: the columns that can be named."""
        self.binder = binder
        self.level = level
        self.relation = relation
        self.keys = list(groups.keys)
        self.sets = groups.sets
        self._hashes = Hashes()
        self._numbers: dict[int, list[int]] = {}  # of the keys with each hash
        self._classes: set[Any] = set()
        self._nested: list[bool] = []
        for key in self.keys:
            self._know(key)
        self._written = len(groups.keys)
        self._end = groups.end
        self._entries = entries
        self._grouped = frozenset(key.column.id for key in self.keys if isinstance(key, ColumnRef))
        self._outputs = [(items[item].expression, number) for item, number in groups.outputs.items()]
        self.key_columns = [binder.new_column(getattr(key, "written", ""), key) for key in self.keys]
        if any(len(numbers) < len(self.keys) for numbers in self.sets):
            self.key_columns = [replace(column, nullable=True) for column in self.key_columns]
        self.inputs = frozenset(column.id for column in relation.columns)
        self.calls: dict[Aggregate, Column] = {}
        self.markers: dict[tuple[int, ...], Column] = {}  # by the arguments of each GROUPING()

    def _know(self, key: Expression) -> None:
        """Makes `_find` return the key, which is the next one."""
        self._classes.add(key.__class__)
        self._numbers.setdefault(self._hashes.of(key), []).append(len(self._nested))
        self._nested.append(contains(key, Subquery))

    def node(self) -> Relation:
        self._write_dependents()
        columns = (*self.key_columns, *self.calls.values())
        distinct = len(set(self.keys)) == len(self.keys)
        if len(self.sets) == 1 and len(self.sets[0]) == len(self.keys) and distinct and not self.markers:
            return AggregateNode(self.relation, tuple(self.keys), tuple(self.calls), columns)
        for key, column in zip(self.keys, self.key_columns, strict=True):
            if isinstance(key, ColumnRef):
                self.binder.copies[column.id] = key.column.id
        result: Relation | None = None
        first: dict[Expression, int] = {}
        for number, key in enumerate(self.keys):
            first.setdefault(key, number)
        for numbers in self.sets:
            rows = self._grouping_set(numbers, first)
            if result is None:
                result = rows
            else:
                both = tuple(self.binder.new_column(c.name, ColumnRef(c)) for c in (*columns, *self.markers.values()))
                result = SetOperation(SetKind.UNION, True, result, rows, both)
        assert result is not None
        refs = tuple(ColumnRef(c) for c in result.columns)
        return Project(result, (*columns, *self.markers.values()), refs)

    def _grouping_set(self, numbers: tuple[int, ...], first: Mapping[Expression, int]) -> Project:
        """The groups of one grouping set. Keys that are not in the set are NULL. `first`: the number of each key."""
        keys = list(dict.fromkeys(first[self.keys[number]] for number in numbers))  # without duplicates
        columns = {number: self.binder.new_column("", self.keys[number]) for number in keys}
        inner = {number: columns[first[self.keys[number]]] for number in numbers}
        calls = [self.binder.new_column("", call) for call in self.calls]
        by = tuple(self.keys[number] for number in keys)
        node = AggregateNode(self.relation, by, tuple(self.calls), (*columns.values(), *calls))
        expressions: list[Expression] = [
            ColumnRef(inner[number]) if number in inner else Literal(None, key.type)
            for number, key in enumerate(self.keys)
        ]
        expressions += [ColumnRef(column) for column in calls]
        for marker in self.markers:
            bits = "".join("0" if number in inner else "1" for number in marker)
            expressions.append(Literal(int(bits, 2), INT4))
        return Project(node, tuple(self.binder.new_column("", e) for e in expressions), tuple(expressions))

    def _marker(self, call: Call) -> ColumnRef:
        written = self.keys[: self._written]
        if any(argument not in written for argument in call.arguments):
            message = "arguments to GROUPING must be grouping expressions of the associated query level"
            position = next((getattr(a, "position", None) for a in call.arguments if a not in written), None)
            raise PgError(SqlState.GROUPING_ERROR, message, position=position)
        marker = tuple(self.keys.index(argument) for argument in call.arguments)
        column = self.markers.get(marker)
        if column is None:
            column = self.markers[marker] = self.binder.new_column("grouping", call)
        return ColumnRef(column)

    def rewrite(self, expression: Expression) -> Expression:
        """The expression over the node's output. An item that is a key becomes the key's column."""
        number = next((number for known, number in self._outputs if known is expression), None)
        if number is not None:
            return ColumnRef(self.key_columns[number], getattr(expression, "written", ""))
        return transform(expression, self._change)

    def _find(self, node: Any, *, copies: bool = True) -> int | None:
        """The number of the key that is equal to a node. `copies`: each occurrence of a subquery has own columns."""
        if node.__class__ not in self._classes:
            return None
        for number in self._numbers.get(self._hashes.of(node), ()):
            key = self.keys[number]
            if node == key or (copies and self._nested[number] and equivalent(node, key)):
                return number
        return None

    def _change(self, node: Any) -> Any | None:
        number = self._find(node)
        if number is not None:
            return ColumnRef(self.key_columns[number], getattr(node, "written", ""), getattr(node, "position", None))
        match node:
            case Call(function=syntax.GROUPING):
                return self._marker(node) if _is_marker(node, self.inputs) else node
            case Aggregate():
                return self._call(node) if node.level == self.level else node
            case WindowCall(call=call):
                arguments = tuple(self.rewrite(a) for a in call.arguments)
                condition = None if call.filter is None else self.rewrite(call.filter)
                return replace(
                    node,
                    call=replace(call, arguments=arguments, filter=condition),
                    partition=tuple(self.rewrite(p) for p in node.partition),
                    order=tuple(replace(k, expression=self.rewrite(k.expression)) for k in node.order),
                )
            case Subquery():
                return replace(
                    node,
                    operands=tuple(self.rewrite(o) for o in node.operands),
                    relation=transform(node.relation, self._change_inside),
                )
        return self._named(node)

    def _change_inside(self, node: Any) -> Any | None:
        """Changes a subquery: aggregates of this level are computed here, and columns of this level must be grouped."""
        if isinstance(node, Aggregate) and node.level == self.level:
            return self._call(node)
        if isinstance(node, Call) and node.function is syntax.GROUPING and _is_marker(node, self.inputs):
            return self._marker(node)
        number = self._find(node, copies=False)
        if number is not None:
            return ColumnRef(self.key_columns[number])
        return self._named(node, "subquery uses ungrouped column {} from outer query")

    def _named(
        self,
        node: Any,
        message: str = "column {} must appear in the GROUP BY clause or be used in an aggregate function",
    ) -> ColumnRef | None:
        """The key for a column of the input that a grouped primary key determines; None for other nodes. 42803."""
        if not isinstance(node, ColumnRef) or node.column.id not in self.inputs:
            return None
        key = self.binder.primary_keys.get(node.column.id)
        all_keys = set(range(len(self.keys)))
        if key is None or not key <= self._grouped or any(set(numbers) != all_keys for numbers in self.sets):
            shown = f'"{node.written}"'
            raise PgError(SqlState.GROUPING_ERROR, message.format(shown), position=node.position)
        groupable(self.binder, node, None)
        self.sets = [(*numbers, len(self.keys)) for numbers in self.sets]
        self.keys.append(node)
        self._know(node)
        self.key_columns.append(self.binder.new_column(node.written, node))
        return ColumnRef(self.key_columns[-1], node.written, node.position)

    def _write_dependents(self) -> None:
        """Adds the keys that GROUP BY does not name to the stored text."""
        if self._end is None:
            return
        tables: dict[int, Entry] = {}
        for entry in self._entries:
            if entry.table is not None and isinstance(entry.expression, ColumnRef):
                tables.setdefault(entry.expression.column.id, entry)
        added = [tables[key.column.id] for key in self.keys[self._written :] if isinstance(key, ColumnRef)]
        names = [f", {quote_identifier(entry.table or '')}.{quote_identifier(entry.name)}" for entry in added]
        if names:
            self.binder.replacements.append(Replacement(self._end, self._end, "".join(names)))

    def _call(self, call: Aggregate) -> ColumnRef:
        column = self.calls.get(call)
        if column is None:
            column = self.calls[call] = self.binder.new_column(call.function.name, call)
        return ColumnRef(column)


def is_aggregated(expression: Expression, level: int, inputs: frozenset[int]) -> bool:
    """Whether the expression, including its subqueries, contains an aggregate or GROUPING() of the query level."""
    return any(
        node.level == level
        if isinstance(node, Aggregate)
        else isinstance(node, Call) and node.function is syntax.GROUPING and _is_marker(node, inputs)
        for node in walk(expression)
    )


def _is_marker(call: Call, inputs: frozenset[int]) -> bool:
    """Whether a GROUPING() belongs to the query whose input has these columns, rather than to an enclosing query."""
    named = {node.column.id for node in walk(call) if isinstance(node, ColumnRef)}
    return not named or bool(named & inputs)
