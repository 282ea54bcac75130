"""Rewriting of the plans of maintained queries: small passes, each from a relation to one with the same rows.

Their order matters; each says what it leaves. The result is what `dataflow.delta` finds operators and keys in, and what
a query without a rule is recomputed from: so one order of rows holds in a snapshot, in a tick and in a recomputation.

    sorts        only LIMIT has an order, and stands over it
    semijoins    EXISTS and IN in WHERE become SEMI and ANTI joins
    scalars      aggregates in subqueries that go by a column become outer joins with the aggregate by it
    unnested     every other subquery becomes a join
    one_row      an outer join to what always is one row is a cross join
    filters      conditions go down to where their columns come from; cross joins get them
    joins        inner joins are in an order that makes few rows
    keys         what joins, groups and partitions go by are columns
    columns      no node has columns that nobody above it needs
    orders       what depends on the order of rows goes by one total order
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import MappingProxyType

from protocol.pgwire.errors import PgError, SqlState
from server.sql.decorrelate import decorrelated
from server.sql.relations import Relation
from server.sql.rewrite.columns import pruned
from server.sql.rewrite.filters import filters_down
from server.sql.rewrite.joins import Sizes, joins_ordered
from server.sql.rewrite.keys import keyed
from server.sql.rewrite.one_row import crossed
from server.sql.rewrite.orders import ordered
from server.sql.rewrite.scalars import scalars_joined
from server.sql.rewrite.semijoins import semijoined
from server.sql.rewrite.sorts import sorts_of_limits

Pass = Callable[[Relation], Relation]


def _unnested(relation: Relation) -> Relation:
    return decorrelated(relation, native=False)


def passes(sizes: Sizes) -> tuple[tuple[str, Pass], ...]:
    """`sizes`: how many rows collections have; what is not known is taken to be a usual one."""
    return (
        ("sorts", sorts_of_limits),
        ("semijoins", semijoined),
        ("scalars", scalars_joined),
        ("unnested", _unnested),
        ("one_row", crossed),
        ("filters", filters_down),
        ("joins", partial(joins_ordered, sizes=sizes)),
        ("keys", keyed),
        ("columns", pruned),
        ("orders", ordered),
    )


def rewritten(relation: Relation, sizes: Sizes = MappingProxyType({})) -> Relation:
    """The relation after all passes: the same columns, the same rows."""
    for _, rewrite in passes(sizes):
        relation = rewrite(relation)
    return relation


def rewritten_or_not(relation: Relation, sizes: Sizes = MappingProxyType({})) -> Relation:
    """As `rewritten`; the relation as it is, if it has a subquery that cannot be made a join."""
    try:
        return rewritten(relation, sizes)
    except PgError as error:
        if error.sqlstate not in (SqlState.FEATURE_NOT_SUPPORTED, SqlState.STATEMENT_TOO_COMPLEX):
            raise
        return relation
