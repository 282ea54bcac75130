"""Decides how a query is maintained: by operators or by recomputation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from catalog.ids import ObjectId
from protocol.pgwire.errors import PgError, SqlState
from server.dataflow.plan.lowering import NoRule, delta_plan
from server.dataflow.plan.nodes import Node
from server.sql.plan import QueryPlan
from server.sql.relations import Relation
from server.sql.rewrite import rewritten_or_not
from server.sql.temporal import names_now


@dataclass(frozen=True, slots=True)
class MaintenanceStrategy:
    """The operators of the delta plan `root`. None: recomputation, because the part `lacking` has no delta rule.

    `relation`: the rewritten query, which is computed in both cases.
    """

    relation: Relation
    root: Node | None
    lacking: str = ""

    @property
    def is_possible(self) -> bool:
        """Whether the query can be maintained. A temporal filter needs operators: time alone changes its result."""
        return self.root is not None or not names_now(self.relation)

    def check(self) -> None:
        """Raises 0A000 unless `is_possible`."""
        if not self.is_possible:
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "a temporal filter in a query without incremental maintenance is not supported",
                detail=f"There is no rule for {self.lacking}.",
                hint="Compute that part in a materialized view, and apply the temporal filter to the view.",
            )


def maintenance_strategy(plan: QueryPlan, sizes: Mapping[ObjectId, int]) -> MaintenanceStrategy:
    """How a query is maintained: by a delta plan, or if a part has no rule, by recomputation.

    `sizes`: the number of log rows by input; inputs that are not in the log are omitted.
    """
    relation = rewritten_or_not(plan.relation, sizes)
    try:
        return MaintenanceStrategy(relation, delta_plan(relation, frozenset(sizes)))
    except NoRule as reason:
        return MaintenanceStrategy(relation, None, str(reason))
