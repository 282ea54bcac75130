"""Joins of two items of FROM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
from server.sql.expressions import Call, Column, ColumnRef, Expression, Literal, transform
from server.sql.functions import syntax
from server.sql.relations import Join, JoinKind, Relation
from server.sql.scope import Entry, Scope


def crossed(binder: Binder, left: FromItem, right: FromItem) -> FromItem:
    """CROSS JOIN."""
    columns = left.relation.columns + right.relation.columns
    binder.count_joined(columns)
    node = Join(JoinKind.CROSS, left.relation, right.relation, None, columns, right.lateral)
    return FromItem(node, left.entries + right.entries, left.lateral or right.lateral)


def joined(binder: Binder, left: FromItem, right: FromItem, join: exp.Join, outer: Scope) -> FromItem:
    """A join of any kind: ON, USING or NATURAL. 42703 and 42702 for columns of USING, 42P10 for LATERAL."""
    kind = _kind_of(binder, join)
    pairs = _merged_pairs(join, left, right)
    condition = _condition(binder, left, right, join, pairs, outer)
    if condition is None and kind is not JoinKind.CROSS:
        condition = Literal(True, BOOL)
    is_left_nullable = kind in (JoinKind.RIGHT, JoinKind.FULL)
    is_right_nullable = kind in (JoinKind.LEFT, JoinKind.FULL)
    left_entries = _nullable_entries(left.entries) if is_left_nullable else left.entries
    right_entries = _nullable_entries(right.entries) if is_right_nullable else right.entries
    left_columns = _nullable_columns(left.relation) if is_left_nullable else left.relation.columns
    right_columns = _nullable_columns(right.relation) if is_right_nullable else right.relation.columns
    columns = left_columns + right_columns
    binder.count_joined(columns)
    if right.lateral and is_left_nullable:
        _check_lateral(left, right)
    node = Join(kind, left.relation, right.relation, condition, columns, right.lateral)
    lateral = left.lateral or right.lateral
    if not pairs:
        return FromItem(node, left_entries + right_entries, lateral)
    merged = _merged_entries(binder, pairs, left_entries, right_entries, kind)
    entries = merged + [
        replace(entry, visible=entry.visible and i not in hidden)
        for side, hidden in (
            (left_entries, {pair.left for pair in pairs}),
            (right_entries, {pair.right for pair in pairs}),
        )
        for i, entry in enumerate(side)
    ]
    if (alias := join.args.get("alias")) is not None:
        entries += [replace(entry, table=alias.name, visible=False) for entry in merged]
    return FromItem(node, entries, lateral)


@dataclass(frozen=True, slots=True)
class _MergedPair:
    """A column of USING or NATURAL: its name, and the positions of its entries on both sides.

    The two are merged into one column. `*` and bare names do not find the original columns, but `table.column` does.
    `nullable`: both may be NULL, apart from the NULLs of an outer join.
    """

    name: str
    left: int
    right: int
    nullable: bool


def _kind_of(binder: Binder, join: exp.Join) -> JoinKind:
    """0A000 for kinds that PostgreSQL does not have, such as SEMI."""
    side, kind = (join.args.get(k) or "" for k in ("side", "kind"))
    if kind not in ("", "INNER", "OUTER", "CROSS") or join.args.get("method") not in (None, "", "NATURAL"):
        raise binder.unsupported(
            f"{kind} JOIN", join, hint="Use [INNER] JOIN, LEFT, RIGHT or FULL JOIN, CROSS JOIN, or EXISTS (...)."
        )
    return JoinKind(side) if side else JoinKind.CROSS if kind == "CROSS" else JoinKind.INNER


def _merged_pairs(join: exp.Join, left: FromItem, right: FromItem) -> list[_MergedPair]:
    """The columns of USING, or those that a NATURAL join finds on both sides. 42701, 42702, 42703."""
    names = [i.name for i in join.args.get("using") or ()]
    if join.args.get("method") == "NATURAL":
        visible = {e.name for e in right.entries if e.visible}
        names = [e.name for e in left.entries if e.visible and e.name in visible]
    if len(set(names)) < len(names):
        twice = next(n for n in names if names.count(n) > 1)
        message = f'column name "{twice}" appears more than once in USING clause'
        raise PgError(SqlState.DUPLICATE_COLUMN, message)
    pairs = []
    left_positions, right_positions = _positions(left), _positions(right)
    for name in names:
        i, j = _position(name, left_positions, "left"), _position(name, right_positions, "right")
        nullable = left.entries[i].expression.nullable and right.entries[j].expression.nullable
        pairs.append(_MergedPair(name, i, j, nullable))
    return pairs


def _positions(side: FromItem) -> dict[str, list[int]]:
    """The positions of the visible entries of each name."""
    positions: dict[str, list[int]] = {}
    for i, entry in enumerate(side.entries):
        if entry.visible:
            positions.setdefault(entry.name, []).append(i)
    return positions


def _position(name: str, positions: Mapping[str, Sequence[int]], which: str) -> int:
    found = positions.get(name, ())
    if not found:
        message = f'column "{name}" specified in USING clause does not exist in {which} table'
        raise PgError(SqlState.UNDEFINED_COLUMN, message)
    if len(found) > 1:
        message = f'common column name "{name}" appears more than once in {which} table'
        raise PgError(SqlState.AMBIGUOUS_COLUMN, message)
    return found[0]


def _condition(
    binder: Binder, left: FromItem, right: FromItem, join: exp.Join, pairs: Sequence[_MergedPair], outer: Scope
) -> Expression | None:
    """The equality of all pairs, or the condition of ON; None if there is neither."""
    if pairs:
        operands = [(left.entries[pair.left].expression, right.entries[pair.right].expression) for pair in pairs]
        return conjunction([operator(binder, "=", [binder.read(a), binder.read(b)], join) for a, b in operands])
    if join.args.get("on") is None:
        return None
    scope = Scope(left.entries + right.entries, outer.parent, outer.common_tables, "JOIN conditions", level=outer.level)
    seen = {entry.table for entry in scope.entries}
    names_here = real_names(join.parent) if join.parent is not None else {}
    scope.real_names = {real: alias for real, alias in names_here.items() if alias in seen}
    scope.hidden = outer.hidden - seen
    return binder.condition(join.args["on"], scope, "JOIN/ON")


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


def _merged_entries(
    binder: Binder,
    pairs: Sequence[_MergedPair],
    left_entries: Sequence[Entry],
    right_entries: Sequence[Entry],
    kind: JoinKind,
) -> list[Entry]:
    """The merged columns, without a table name: the side that is never NULL, or COALESCE of both in a FULL JOIN."""
    merged = []
    for pair in pairs:
        left, right = left_entries[pair.left].expression, right_entries[pair.right].expression
        _, (x, y) = binder.to_common([left, right], "JOIN/USING")
        expression: Expression = y if kind is JoinKind.RIGHT else x
        if kind is JoinKind.FULL:
            expression = Call(syntax.COALESCE, (x, y), x.type, pair.nullable)
        merged.append(Entry(pair.name, expression, None))
    return merged


def _nullable_columns(relation: Relation) -> tuple[Column, ...]:
    """The columns of a side that an outer join may fill with NULLs."""
    return tuple(column if column.nullable else replace(column, nullable=True) for column in relation.columns)


def _nullable_entries(entries: Sequence[Entry]) -> list[Entry]:
    """The entries of a side that an outer join may fill with NULLs."""

    def nullable(node: Any) -> Any | None:
        return ColumnRef(replace(node.column, nullable=True)) if isinstance(node, ColumnRef) else None

    return [
        e if e.is_extended else replace(e, expression=transform(e.expression, nullable), is_extended=True)
        for e in entries
    ]
