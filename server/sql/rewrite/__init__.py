"""Rewriting of the plans of maintained queries. Each pass maps a relation to an equivalent one, with the same rows.

The order of the passes matters. `dataflow.plan.lowering` finds operators and keys in the result. Queries without a
delta rule are recomputed from the result too, so snapshots, steps and recomputations use the same order of rows.

    sorts        removes every Sort except those directly below a LIMIT
    semijoins    turns EXISTS and IN in WHERE into SEMI and ANTI joins
    scalars      turns aggregates in subqueries correlated by equality into outer joins with a grouped aggregate
    unnested     turns all other subqueries into joins
    one_row      turns an outer join with a relation of exactly one row into a cross join
    rows         passes rows from node to node as their fields
    filters      pushes conditions down to their inputs and into cross joins
    joins        orders inner joins so that intermediate results are small
    spreads      computes variances and standard deviations of exact numbers from sums
    sums         splits aggregates with sums of floats in two, of which the lower one is maintained by adding
                 (`float_sums`)
    keys         makes the keys of groups, partitions, distinct rows and limits columns of the input
    columns      removes columns that no node above needs
    orders       makes the order of rows total where a result depends on it; `frames`: in RANGE frames of windows
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
from server.sql.rewrite.float_sums import sums_split
from server.sql.rewrite.joins import Sizes, joins_ordered
from server.sql.rewrite.keys import keyed
from server.sql.rewrite.one_row import crossed
from server.sql.rewrite.orders import ordered
from server.sql.rewrite.rows import rows_split
from server.sql.rewrite.scalars import scalars_joined
from server.sql.rewrite.semijoins import semijoined
from server.sql.rewrite.sorts import sorts_of_limits
from server.sql.rewrite.spreads import spreads_from_sums

Pass = Callable[[Relation], Relation]


def _unnested(relation: Relation) -> Relation:
    return decorrelated(relation, native=False)


def passes(sizes: Sizes) -> tuple[tuple[str, Pass], ...]:
    """The passes by name, in order. `sizes`: the row counts of collections; a default is used for missing ones."""
    return (
        ("sorts", sorts_of_limits),
        ("semijoins", semijoined),
        ("scalars", scalars_joined),
        ("unnested", _unnested),
        ("one_row", crossed),
        ("rows", rows_split),
        ("filters", filters_down),
        ("joins", partial(joins_ordered, sizes=sizes)),
        ("spreads", spreads_from_sums),
        ("sums", sums_split),
        ("keys", keyed),
        ("columns", pruned),
        ("orders", ordered),
    )


def rewritten(relation: Relation, sizes: Sizes = MappingProxyType({})) -> Relation:
    """The relation after all passes. It has the same columns and the same rows."""
    for _, rewrite in passes(sizes):
        relation = rewrite(relation)
    return relation


def rewritten_or_not(relation: Relation, sizes: Sizes = MappingProxyType({})) -> Relation:
    """As `rewritten`, but returns the relation unchanged if a subquery cannot be turned into a join."""
    try:
        return rewritten(relation, sizes)
    except PgError as error:
        if error.sqlstate not in (SqlState.FEATURE_NOT_SUPPORTED, SqlState.STATEMENT_TOO_COMPLEX):
            raise
        return relation
