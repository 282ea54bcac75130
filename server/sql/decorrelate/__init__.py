"""Decorrelation: turns correlated subqueries and LATERAL joins into joins. Spark itself supports only a few forms.

`decorrelated(relation)` rewrites LATERAL joins, and subqueries and outer joins that Spark would reject (see `native`).
Afterwards, only native subqueries name columns of an enclosing query. `decorrelator` finds the nodes to rewrite.
`values_joined(relation)` then rewrites scalar subqueries that are not correlated, for small inputs.

The method is that of Neumann and Kemper, "Unnesting Arbitrary Queries" (2015). The domain of an inner query (`domain`)
is the set of distinct combinations of the outer columns that it names. The inner query is computed once for the whole
domain: `pushdown` adds the domain's columns to its nodes, and `limits` turns a LIMIT into a condition. The result is
joined with the outer rows on these columns, with NULL equal to NULL (`values`). References to outer columns become
references to the domain's columns:

    (query)        LEFT JOIN, with an error if a combination has more than one row
    EXISTS         LEFT JOIN with the number of rows per combination
    ANY, ALL, IN   LEFT JOIN with the counts of decisive and of NULL comparisons; the operands are outer columns too
    LATERAL        a join of the same kind, with equality of the combinations as an additional condition
"""

from __future__ import annotations

from typing import Any

from server.sql.columns import free_columns
from server.sql.decorrelate.decorrelator import Decorrelator
from server.sql.decorrelate.limits import needs_numbers
from server.sql.decorrelate.native import is_native, needs_lateral
from server.sql.expressions import Subquery, SubqueryKind, Volatile, children, walk
from server.sql.relations import Filter, Join, Limit, Project, Relation, Sort


def decorrelated(relation: Relation, *, native: bool = True) -> Relation:
    """An equivalent relation without constructs that Spark rejects. 0A000 for what cannot be rewritten.

    If not `native`, all subqueries are rewritten, including those that Spark supports.
    """
    if any(isinstance(n, Subquery) or _is_rewritten_join(n) or needs_numbers(n) for n in walk(relation)):
        return Decorrelator(relation, is_native if native else _is_never_kept).relation(relation)
    return relation


def values_joined(relation: Relation) -> Relation | None:
    """An equivalent of a decorrelated relation in which a row with the value of each scalar subquery is cross-joined.

    Spark can prepare such a statement: it computes a subquery in a job of its own each time, and generates code that
    contains the value. For large inputs the subquery is faster. None if there is no such subquery, if one is above a
    Sort, whose order a join would not keep, or if the relation calls random().
    """
    nodes = list(walk(relation))
    if any(isinstance(node, Volatile) for node in nodes):
        return None
    owners = [node for node in nodes if isinstance(node, Relation) and _has_value(node)]
    if not owners or any(_is_sorted(getattr(node, "input", None)) for node in owners):
        return None
    return Decorrelator(relation, _is_no_value, crosses=True).relation(relation)


def _is_never_kept(*_: Any) -> bool:
    return False


def _is_no_value(subquery: Subquery, owner: Relation) -> bool:
    return is_native(subquery, owner) and not _is_value(subquery)


def _is_rewritten_join(node: Any) -> bool:
    return isinstance(node, Join) and (node.lateral or needs_lateral(node))


def _has_value(node: Relation) -> bool:
    """Whether an expression of the node itself contains a scalar subquery that is not correlated."""
    parts = [part for part in children(node) if not isinstance(part, Relation)]
    return any(_is_value(inner) for part in parts for inner in walk(part))


def _is_value(node: Any) -> bool:
    return isinstance(node, Subquery) and node.kind is SubqueryKind.SCALAR and not free_columns(node)


def _is_sorted(node: Relation | None) -> bool:
    while isinstance(node, Project | Filter | Limit):
        node = node.input
    return isinstance(node, Sort)
