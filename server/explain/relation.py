"""Formatting of plans for EXPLAIN: one line per relational node, with its inputs indented below it.

Expressions are written in PostgreSQL's syntax, including the casts that the planner added. A subquery is written below
the node that uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

from catalog.ids import ObjectId
from protocol.pgwire.scalars import format_text
from server.sql import relations as r
from server.sql.expressions import (
    Aggregate,
    Array,
    Call,
    Case,
    Cast,
    Column,
    ColumnRef,
    Expression,
    InList,
    Literal,
    Parameter,
    Quantified,
    SessionValue,
    SortKey,
    Subquery,
    SubqueryKind,
    Volatile,
    WindowCall,
)
from server.sql.functions.table import OPERATORS
from server.sql.index_lookups import Lookup
from server.sql.key_conditions import KeyCondition
from server.sql.outline import Outline

_BARE = frozenset(("bool", "int2", "int4", "int8", "numeric"))
_POSTFIX = frozenset(("IS NULL", "IS NOT NULL", "IS TRUE", "IS FALSE"))
_INFIX = frozenset(("AND", "OR", "IS DISTINCT FROM"))


def explained(
    relation: r.Relation,
    name_of: Callable[[ObjectId], str],
    lookups: Mapping[ObjectId, Lookup] = MappingProxyType({}),
) -> Outline:
    """The plan as an Outline. `name_of` returns the name of a scanned relation or of an index."""
    return _Explainer(name_of, lookups).outline(relation)


class _Explainer:
    def __init__(self, name_of: Callable[[ObjectId], str], lookups: Mapping[ObjectId, Lookup]) -> None:
        self._name_of = name_of
        self._lookups = {key: (lookup, keys) for lookup in lookups.values() for key, keys in lookup.scans.items()}
        self._subqueries: list[Subquery] = []
        self._numbered = 0

    def outline(self, node: r.Relation) -> Outline:
        head = self._head(node)
        used, self._subqueries = self._subqueries, []
        first = self._numbered - len(used) + 1
        subqueries = [Outline(f"Subquery {n}", (self.outline(q.relation),)) for n, q in enumerate(used, first)]
        return Outline(head, (*subqueries, *map(self.outline, _inputs(node))))

    def _head(self, node: r.Relation) -> str:
        match node:
            case r.Scan(id=id, columns=columns) if columns and columns[0].id in self._lookups:
                lookup, keys = self._lookups[columns[0].id]
                asked = " AND ".join(f"{self.text(key.operand)} {self._values(key)}" for key in keys)
                return f"Index lookup {self._name_of(lookup.index)} of {self._name_of(id)} ({asked})"
            case r.Scan(id=id):
                return f"Scan {self._name_of(id)}"
            case r.Sample(percent=percent):
                return f"Sample of {percent.rstrip('0').rstrip('.')} percent"
            case r.Values(rows=rows):
                return f"Values, {len(rows)} row{'s' if len(rows) != 1 else ''}"
            case r.Project(columns=columns, expressions=expressions):
                return f"Project {self._outputs(expressions, columns)}"
            case r.Filter(predicate=predicate):
                return f"Filter {self.text(predicate)}"
            case r.Join(kind=kind, condition=condition):
                return f"Join {kind}" + (f" on {self.text(condition)}" if condition is not None else "")
            case r.Aggregate(keys=keys, calls=calls):
                by = f" by {self._list(keys)}" if keys else ""
                return f"Aggregate{by}: {self._list(calls)}" if calls else f"Aggregate{by}"
            case r.Window(calls=calls):
                return f"Window {self._list(calls)}"
            case r.DistinctOn(keys=keys, order=order):
                return f"Distinct on {self._list(keys)}, first by {self._keys(order)}"
            case r.SetOperation(kind=kind, all=every):
                return f"{kind.title()}{' all' if every else ''}"
            case r.Recursive(distinct=distinct):
                return f"Recursive union{'' if distinct else ' all'}"
            case r.RecursiveRows():
                return "Rows of the previous iteration"
            case r.Sort(keys=keys):
                return f"Sort by {self._keys(keys)}"
            case r.Limit(limit=limit, offset=offset):
                parts = [
                    f"{word} {self.text(e)}" for word, e in (("Limit", limit), ("Offset", offset)) if e is not None
                ]
                return " ".join(parts)
            case r.Unnest(arrays=arrays):
                return f"Unnest {self._list(arrays)}"
            case r.Series(start=start, stop=stop, step=step):
                return f"Series {self.text(start)} to {self.text(stop)} by {self.text(step)}"
            case _:
                return type(node).__name__

    def _values(self, key: KeyCondition) -> str:
        (first, *others) = key.values
        if first.type.element is not None:
            return f"= ANY ({self._list(key.values)})"
        return f"IN ({self._list(key.values)})" if others else f"= {self.text(first)}"

    def _outputs(self, expressions: Iterable[Expression], columns: Iterable[Column]) -> str:
        texts = []
        for expression, column in zip(expressions, columns, strict=True):
            text = self.text(expression)
            texts.append(text if text == column.name else f"{text} AS {column.name}")
        return ", ".join(texts)

    def _list(self, expressions: Iterable[Expression]) -> str:
        return ", ".join(map(self.text, expressions))

    def _keys(self, keys: Iterable[SortKey]) -> str:
        return ", ".join(
            self.text(key.expression)
            + (" DESC" if key.descending else "")
            + (f" NULLS {'FIRST' if key.nulls_first else 'LAST'}" if key.nulls_first != key.descending else "")
            for key in keys
        )

    def text(self, expression: Expression) -> str:
        """The expression as SQL text."""
        match expression:
            case Literal(value=None):
                return "NULL"
            case Literal(value=value):
                shown = format_text(expression.type, value)
                quoted = "'" + shown.replace("'", "''") + f"'::{expression.type.display}"
                return shown if expression.type.name in _BARE else quoted
            case Parameter(index=index):
                return f"${index + 1}"
            case Volatile(name=name, arguments=arguments):
                return f"{name}({', '.join(map(self.text, arguments))})"
            case SessionValue(name=name, argument=argument):
                return f"{name}({'' if argument is None else self.text(argument)})"
            case ColumnRef(column=column):
                return column.name
            case Call():
                return self._call(expression)
            case Cast(operand=operand):
                return f"{self.text(operand)}::{expression.type.display}"
            case Case(branches=branches, default=default):
                whens = " ".join(f"WHEN {self.text(c)} THEN {self.text(v)}" for c, v in branches)
                return f"CASE {whens} ELSE {self.text(default)} END"
            case Array(elements=elements):
                return f"ARRAY[{self._list(elements)}]"
            case InList(operand=operand, items=items):
                return f"({self.text(operand)} IN ({self._list(items)}))"
            case Quantified(call=call, array=array):
                return f"({self.text(call)} for {'all' if expression.all else 'any'} of {self.text(array)})"
            case Aggregate():
                return self._aggregate(expression)
            case WindowCall(call=call, partition=partition, order=order):
                frame = expression.frame.format(*map(self.text, expression.offsets))
                parts = [f"PARTITION BY {self._list(partition)}"] if partition else []
                parts += [f"ORDER BY {self._keys(order)}"] if order else []
                return f"{self.text(call)} OVER ({' '.join([*parts, frame]).strip()})"
            case Subquery(kind=kind, operands=operands):
                self._subqueries.append(expression)
                self._numbered += 1
                number = f"subquery {self._numbered}"
                match kind:
                    case SubqueryKind.EXISTS:
                        return f"EXISTS ({number})"
                    case SubqueryKind.IN:
                        return f"({self._list(operands)}) IN ({number})"
                return f"({number})"
            case _:
                return type(expression).__name__

    def _call(self, call: Call) -> str:
        name, arguments = call.function.name, [self.text(a) for a in call.arguments]
        if name in _POSTFIX:
            return f"({arguments[0]} {name})"
        if name in _INFIX or (call.function in OPERATORS.get(name, ()) and len(arguments) > 1):
            return f"({f' {name} '.join(arguments)})"
        if name == "NOT" or call.function in OPERATORS.get(name, ()):
            return f"({name} {arguments[0]})"
        return f"{name}({', '.join(arguments)})"

    def _aggregate(self, call: Aggregate) -> str:
        arguments = self._list(call.arguments) or ("*" if call.function.name == "count" else "")
        order = f" ORDER BY {self._keys(call.order)}" if call.order else ""
        text = f"{call.function.name}({'DISTINCT ' if call.distinct else ''}{arguments}{order})"
        return text if call.filter is None else f"{text} FILTER (WHERE {self.text(call.filter)})"


def _inputs(node: r.Relation) -> Iterator[r.Relation]:
    """The inputs of a node, left to right."""
    for name in ("input", "left", "right", "anchor", "step"):
        below = getattr(node, name, None)
        if below is not None and hasattr(below, "columns"):
            yield below
