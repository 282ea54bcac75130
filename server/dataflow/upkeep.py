"""How a query is kept up to date: what is decided of it before any of its rows is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from catalog.objects import ObjectId
from protocol.pgwire.errors import PgError, SqlState
from server.dataflow.delta import NoRule, delta_plan
from server.dataflow.nodes import Node
from server.sql.plan import QueryPlan
from server.sql.relations import Relation
from server.sql.rewrite import rewritten_or_not
from server.sql.temporal import names_now


@dataclass(frozen=True, slots=True)
class Upkeep:
    """By the operators of `root`, or, where that is None, computed anew because there is no rule for `lacking`.

    `relation`: the query as it is computed, by either.
    """

    relation: Relation
    root: Node | None
    lacking: str = ""

    @property
    def is_possible(self) -> bool:
        """A query with a temporal filter changes when no input does: it cannot be computed anew."""
        return self.root is not None or not names_now(self.relation)

    def check(self) -> None:
        """0A000 if it is not possible."""
        if not self.is_possible:
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "a temporal filter in a query that cannot be followed is not supported",
                detail=f"There is no rule for {self.lacking}.",
            )


def upkeep_of(plan: QueryPlan, sizes: Mapping[ObjectId, int]) -> Upkeep:
    """`sizes`: of those of its inputs whose changes the log has, how many lines these are."""
    relation = rewritten_or_not(plan.relation, sizes)
    try:
        return Upkeep(relation, delta_plan(relation, frozenset(sizes)))
    except NoRule as reason:
        return Upkeep(relation, None, str(reason))
