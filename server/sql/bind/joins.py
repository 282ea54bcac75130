"""Joins of two items of FROM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import BOOL
from server.sql.bind.binder import Binder
from server.sql.bind.calls import operator
from server.sql.bind.connectives import conjunction
from server.sql.bind.from_item import FromItem
from server.sql.bind.shapes import real_names
from server.sql.columns import free_columns
from server.sql.expressions import Call, ColumnRef, Expression, Literal, transform
from server.sql.functions import syntax
from server.sql.relations import Join, JoinKind
from server.sql.scope import Entry, Scope


def crossed(left: FromItem, right: FromItem) -> FromItem:
    """CROSS JOIN."""
    columns = left.relation.columns + right.relation.columns
    node = Join(JoinKind.CROSS, left.relation, right.relation, None, columns, right.lateral)
    return FromItem(node, left.entries + right.entries, left.lateral or right.lateral)


def joined(binder: Binder, left: FromItem, right: FromItem, join: exp.Join, outer: Scope) -> FromItem:
    """A join of any kind: ON, USING or NATURAL. 42703 and 42702 for columns of USING, 42P10 for LATERAL."""
    side, kind = (join.args.get(k) or "" for k in ("side", "kind"))
    names = [i.name for i in join.args.get("using") or ()]
    natural = join.args.get("method") == "NATURAL"
    if natural:
        visible = {e.name for e in right.entries if e.visible}
        names = [e.name for e in left.entries if e.visible and e.name in visible]
    if kind not in ("", "INNER", "OUTER", "CROSS") or join.args.get("method") not in (None, "", "NATURAL"):
        raise binder.unsupported(
            f"{kind} JOIN", join, hint="Use [INNER] JOIN, LEFT, RIGHT or FULL JOIN, CROSS JOIN, or EXISTS (...)."
        )
    join_kind = JoinKind(side) if side else JoinKind.CROSS if kind == "CROSS" else JoinKind.INNER
    merged: list[tuple[str, Entry, Entry]] = []
    condition: Expression | None = None
    if len(set(names)) < len(names):
        twice = next(n for n in names if names.count(n) > 1)
        message = f'column name "{twice}" appears more than once in USING clause'
        raise PgError(SqlState.DUPLICATE_COLUMN, message)
    if names:
        merged = [(n, _using(n, left, "left"), _using(n, right, "right")) for n in names]
        condition = conjunction(
            [operator(binder, "=", [binder.read(a.expression), binder.read(b.expression)], join) for _, a, b in merged]
        )
    elif join.args.get("on") is not None:
        scope = Scope(
            left.entries + right.entries, outer.parent, outer.common_tables, "JOIN conditions", level=outer.level
        )
        seen = {entry.table for entry in scope.entries}
        names_here = real_names(join.parent) if join.parent is not None else {}
        scope.real_names = {real: alias for real, alias in names_here.items() if alias in seen}
        scope.hidden = outer.hidden - seen
        condition = binder.condition(join.args["on"], scope, "JOIN/ON")
    if condition is None and join_kind is not JoinKind.CROSS:
        condition = Literal(True, BOOL)
    left_entries = _maybe_null(left.entries, join_kind in (JoinKind.RIGHT, JoinKind.FULL))
    right_entries = _maybe_null(right.entries, join_kind in (JoinKind.LEFT, JoinKind.FULL))
    columns = tuple(
        replace(c, nullable=c.nullable or nulls)
        for relation, nulls in (
            (left.relation, join_kind in (JoinKind.RIGHT, JoinKind.FULL)),
            (right.relation, join_kind in (JoinKind.LEFT, JoinKind.FULL)),
        )
        for c in relation.columns
    )
    if right.lateral and join_kind in (JoinKind.RIGHT, JoinKind.FULL):
        _check_lateral(left, right)
    node = Join(join_kind, left.relation, right.relation, condition, columns, right.lateral)
    if not names:
        return FromItem(node, left_entries + right_entries, left.lateral or right.lateral)
    entries = _merged(binder, merged, left_entries, right_entries, left, right, join_kind)
    if (alias := join.args.get("alias")) is not None:
        entries += [replace(entry, table=alias.name, visible=False) for entry in entries[: len(merged)]]
    return FromItem(node, entries, left.lateral or right.lateral)


def _check_lateral(left: FromItem, right: FromItem) -> None:
    known = {entry.expression.column.id: entry.table for entry in left.entries if isinstance(
        entry.expression, ColumnRef)}  # fmt: skip
    for column in free_columns(right.relation):
        if column.id in known:
            raise PgError(
                SqlState.INVALID_COLUMN_REFERENCE,
                f'invalid reference to FROM-clause entry for table "{known[column.id]}"',
                detail="The combining JOIN type must be INNER or LEFT for a LATERAL reference.",
            )


def _using(name: str, side: FromItem, which: str) -> Entry:
    found = [e for e in side.entries if e.name == name and e.visible]
    if not found:
        message = f'column "{name}" specified in USING clause does not exist in {which} table'
        raise PgError(SqlState.UNDEFINED_COLUMN, message)
    if len(found) > 1:
        message = f'common column name "{name}" appears more than once in {which} table'
        raise PgError(SqlState.AMBIGUOUS_COLUMN, message)
    return found[0]


def _merged(
    binder: Binder,
    merged: Sequence[tuple[str, Entry, Entry]],
    left_entries: list[Entry],
    right_entries: list[Entry],
    left: FromItem,
    right: FromItem,
    kind: JoinKind,
) -> list[Entry]:
    """The merged columns without a table name, then all columns of both sides.

    The sides' merged columns are hidden from `*` and bare names, but can be referenced by table name.
    """
    result = []
    for name, a, b in merged:
        after_a = left_entries[left.entries.index(a)].expression
        after_b = right_entries[right.entries.index(b)].expression
        _, (x, y) = binder.to_common([after_a, after_b], "JOIN/USING")
        expression: Expression = y if kind is JoinKind.RIGHT else x
        if kind is JoinKind.FULL:
            expression = Call(syntax.COALESCE, (x, y), x.type, a.expression.nullable and b.expression.nullable)
        result.append(Entry(name, expression, None))
    hidden_left = {left.entries.index(a) for _, a, _ in merged}
    hidden_right = {right.entries.index(b) for _, _, b in merged}
    result += [replace(e, visible=e.visible and i not in hidden_left) for i, e in enumerate(left_entries)]
    result += [replace(e, visible=e.visible and i not in hidden_right) for i, e in enumerate(right_entries)]
    return result


def _maybe_null(entries: list[Entry], nulls: bool) -> list[Entry]:
    """If `nulls`, the entries as nullable: the outer join may fill their side with NULLs."""
    if not nulls:
        return entries
    inner = {}
    for entry in entries:
        expression = entry.expression

        def change(node: Any) -> Any | None:
            return ColumnRef(replace(node.column, nullable=True)) if isinstance(node, ColumnRef) else None

        inner[id(entry)] = replace(entry, expression=transform(expression, change), is_extended=True)
    return [inner[id(entry)] for entry in entries]
