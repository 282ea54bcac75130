"""Decorrelation: turns correlated subqueries and LATERAL joins into joins. Spark itself supports only a few forms.

`decorrelated(relation)` rewrites LATERAL joins, and subqueries and outer joins that Spark would reject (see `native`).
Afterwards, only native subqueries name columns of an enclosing query. `decorrelator` finds the nodes to rewrite.

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

from server.sql.decorrelate.decorrelator import Decorrelator
from server.sql.decorrelate.native import needs_lateral
from server.sql.expressions import Subquery, walk
from server.sql.relations import Join, Relation


def decorrelated(relation: Relation, *, native: bool = True) -> Relation:
    """An equivalent relation without constructs that Spark rejects. 0A000 for what cannot be rewritten.

    If not `native`, all subqueries are rewritten, including those that Spark supports.
    """
    if any(isinstance(n, Subquery) or _is_rewritten_join(n) for n in walk(relation)):
        return Decorrelator(relation, native=native).relation(relation)
    return relation


def _is_rewritten_join(node: Any) -> bool:
    return isinstance(node, Join) and (node.lateral or needs_lateral(node))
