"""ORDER BY."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from server.sql.bind.binder import Binder
from server.sql.bind.keys import sort_key
from server.sql.bind.limits import limited
from server.sql.bind.select_list import Item
from server.sql.bind.shapes import is_bare_name, unparenthesised
from server.sql.bind.terms import output_named, output_term, positional
from server.sql.expressions import ColumnRef, Expression, SortKey
from server.sql.grammar.lexer import TARGETS_MAX, too_many_targets
from server.sql.relations import Relation, Sort
from server.sql.scope import Scope, alone, no_table


def order_terms(binder: Binder, tree: exp.Expr | None, items: Sequence[Item], scope: Scope) -> list[SortKey]:
    """The keys of ORDER BY without duplicates. 54011 if they are too many."""
    if tree is None:
        return []
    keys: dict[Expression, SortKey] = {}
    for term in tree.expressions:
        key = sort_key(binder, term, binder.default_unknown(output_term(binder, term.this, items, scope, "ORDER BY")))
        keys.setdefault(key.expression, key)
        if len(keys) > TARGETS_MAX:
            raise too_many_targets()
    return list(keys.values())


def ordered_output(binder: Binder, relation: Relation, tree: exp.Expr, scope: Scope) -> Relation:
    """ORDER BY and LIMIT after a set operation, VALUES or parentheses. Only output columns can be referenced."""
    order = tree.args.get("order")
    if order is not None:
        keys = []
        items = [Item(c.name, ColumnRef(c), tree) for c in relation.columns]
        for term in order.expressions:
            bare = unparenthesised(term.this)
            expression = positional(binder, bare, items, "ORDER BY")
            if expression is None and is_bare_name(bare):
                expression = output_named(binder, bare, items, "ORDER BY")
                if expression is None:
                    message = f'column "{bare.name}" does not exist'
                    raise PgError(SqlState.UNDEFINED_COLUMN, message, position=binder.at(bare))
            if expression is None and isinstance(bare, exp.Column) and bare.table:
                raise no_table(alone(scope), bare.table, binder.at(bare))
            if expression is None:
                raise PgError(
                    SqlState.FEATURE_NOT_SUPPORTED,
                    "invalid UNION/INTERSECT/EXCEPT ORDER BY clause",
                    detail="Only result column names can be used, not expressions or functions.",
                    hint="Add the expression/function to every SELECT, or move the UNION into a FROM clause.",
                    position=binder.at(bare),
                )
            keys.append(sort_key(binder, term, expression))
        relation = Sort(relation, tuple(keys))
    return limited(binder, relation, tree, scope)
