"""GROUP BY: the keys, and the grouping sets of ROLLUP, CUBE and GROUPING SETS."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from server.sql.bind.binder import Binder
from server.sql.bind.keys import groupable
from server.sql.bind.select_list import Item
from server.sql.bind.shapes import is_bare_name, row_of, unparenthesised
from server.sql.bind.terms import output_named, positional
from server.sql.columns import ids, named
from server.sql.expressions import Aggregate, Expression, WindowCall, contains, walk
from server.sql.grammar.lexer import TARGETS_MAX, too_many_targets
from server.sql.scope import Scope, in_clause

GROUPING_SETS_MAX = 4096  # as in PostgreSQL
CUBE_MAX = 12  # as in PostgreSQL


@dataclass(frozen=True, slots=True)
class Groups:
    """GROUP BY: all keys, and for each grouping set the numbers of its keys.

    `items` maps expressions to items of the select list, `outputs` items to their keys. `others`: the numbers of keys
    that are no items. Two items with equal expressions are two keys: with `SELECT a AS x, a AS y`, the set (x) of
    ROLLUP (x, y) has NULL for y. `end`: where a term that is a name or a number ends in the text; None if there is no
    such term, and inside a view's text.
    """

    keys: list[Expression] = field(default_factory=list)
    sets: list[tuple[int, ...]] = field(default_factory=list)
    items: dict[Expression, int] = field(default_factory=dict)
    others: dict[Expression, int] = field(default_factory=dict)
    outputs: dict[int, int] = field(default_factory=dict)
    end: int | None = None


def group_by(binder: Binder, tree: exp.Expr | None, items: Sequence[Item], scope: Scope) -> Groups | None:
    """Binds GROUP BY; None if there is none. A name is an input column, else an output column; a number is an item."""
    if tree is None:
        return None
    if any(tree.args.get(k) for k in ("grouping_sets", "cube", "rollup", "totals")):
        raise binder.unsupported(
            "this GROUP BY",
            tree,
            hint="Use GROUP BY with expressions, ROLLUP (...), CUBE (...) or GROUPING SETS (...).",
        )
    groups = Groups(items={item.expression: n for n, item in reversed(list(enumerate(items)))})
    sets: list[tuple[int, ...]] = [()]
    for term in tree.expressions:
        found = _grouping_sets(binder, term, items, scope, groups)
        if len(sets) * len(found) > GROUPING_SETS_MAX:
            message = f"too many grouping sets present (maximum {GROUPING_SETS_MAX})"
            raise PgError(SqlState.STATEMENT_TOO_COMPLEX, message, position=binder.at(tree))
        sets = [(*a, *(n for n in b if n not in a)) for a in sets for b in found]
    if tree.args.get("all") is False:  # GROUP BY DISTINCT
        sets = [s for i, s in enumerate(sets) if set(s) not in [set(other) for other in sets[:i]]]
    return replace(groups, sets=sets, end=_end_of_name(binder, tree.expressions))


def _end_of_name(binder: Binder, terms: Sequence[exp.Expr]) -> int | None:
    for term in terms:
        bare = unparenthesised(term)
        if isinstance(bare, exp.Column | exp.Literal) and not binder.inside_view:
            ends = [node.meta["end"] for node in bare.walk() if "end" in node.meta]
            if ends:
                return int(max(ends)) + 1
    return None


def _grouping_sets(
    binder: Binder, tree: exp.Expr, items: Sequence[Item], scope: Scope, groups: Groups
) -> list[tuple[int, ...]]:
    """The grouping sets of one term as key numbers. Adds new keys to `groups`."""
    if isinstance(tree, exp.GroupingSets):
        return [found for e in tree.expressions for found in _grouping_sets(binder, e, items, scope, groups)]
    if isinstance(tree, (exp.Rollup, exp.Cube)):
        parts = [_grouping_sets(binder, e, items, scope, groups)[0] for e in tree.expressions]
        if isinstance(tree, exp.Rollup):
            chosen = [parts[:size] for size in range(len(parts), -1, -1)]
        elif len(parts) > CUBE_MAX:
            message = f"CUBE is limited to {CUBE_MAX} elements"
            raise PgError(SqlState.TOO_MANY_COLUMNS, message, position=binder.at(tree))
        else:
            chosen = [
                [part for i, part in enumerate(parts) if mask >> (len(parts) - 1 - i) & 1]
                for mask in range((1 << len(parts)) - 1, -1, -1)
            ]
        return [tuple(dict.fromkeys(number for part in some for number in part)) for some in chosen]
    bare = unparenthesised(tree)
    terms = row_of(bare)
    numbers = [_group_key(binder, term, items, scope, groups) for term in (terms if terms is not None else [bare])]
    return [tuple(dict.fromkeys(numbers))]


def _output_expanded(tree: exp.Expr, items: Sequence[Item], scope: Scope) -> Expression | None:
    """The item of the select list with the same set-returning function, so that its rows are grouped."""
    expanded = ids(column for column, _ in scope.sets or ())
    for item in items if expanded else ():
        written = item.tree.this if isinstance(item.tree, exp.Alias) else item.tree
        if unparenthesised(written) == tree and expanded & named(item.expression):
            return item.expression
    return None


def _group_key(binder: Binder, tree: exp.Expr, items: Sequence[Item], scope: Scope, groups: Groups) -> int:
    """The number of a key. Adds the key to `groups` if it is new."""
    bare = unparenthesised(tree)
    expression = positional(binder, bare, items, "GROUP BY")
    if expression is None and is_bare_name(bare) and not any(e.name == bare.name and e.visible for e in scope.entries):
        expression = output_named(binder, bare, items, "GROUP BY")
    if expression is None:
        expression = _output_expanded(bare, items, scope)
    if expression is None:
        clause = replace(in_clause(scope, "GROUP BY"), sets=scope.sets)
        expression = binder.default_unknown(binder.expression(bare, clause))
    grouped = named(expression) if scope.sets else set()
    expanded = [array for column, array in scope.sets or () if column.id in grouped]
    if any(contains(array, WindowCall) for array in expanded):
        message = "window functions are not allowed in GROUP BY"
        raise PgError(SqlState.WINDOWING_ERROR, message, position=binder.at(tree))
    nodes = (node for part in (expression, *expanded) for node in walk(part))
    if any(isinstance(node, Aggregate) and node.level == scope.level for node in nodes):
        message = "aggregate functions are not allowed in GROUP BY"
        raise PgError(SqlState.GROUPING_ERROR, message, position=binder.at(tree))
    groupable(binder, expression, tree)
    item = next((n for n, i in enumerate(items) if i.expression is expression), None)
    if item is not None:
        items[item].expression = expression = binder.default_unknown(expression)
        groups.items.setdefault(expression, item)
    else:
        item = groups.items.get(expression)
    number = groups.others.get(expression) if item is None else groups.outputs.get(item)
    if number is None:
        number = len(groups.keys)
        if number == TARGETS_MAX:
            raise too_many_targets()
        groups.keys.append(expression)
        if item is None:
            groups.others[expression] = number
        else:
            groups.outputs[item] = number
    return number
