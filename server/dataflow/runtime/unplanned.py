"""Placeholder for the computation of a view or index whose stored query is not planned yet, or cannot be planned."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

import pyarrow as pa

from catalog.ids import ObjectId, Timestamp
from server.dataflow.arrangements.arrangement import Arrangement
from server.dataflow.inputs import Inputs
from server.dataflow.plan.relevance import KeyValues
from server.dataflow.runtime.computation import Computation, Hold, Present
from server.dataflow.runtime.hydration import Hydration, State


class Unplanned:
    """A `Computation` without rows. `plan` returns the real one, or raises the error of planning."""

    arrangements: Sequence[tuple[str, Arrangement]] = ()
    relevant: Mapping[ObjectId, Sequence[KeyValues]] = {}
    next_time: Timestamp | None = None
    fingerprint = ""

    def __init__(
        self, plan: Callable[[], Awaitable[Computation]], state: State, inputs: frozenset[ObjectId], reads: Inputs
    ) -> None:
        """`state`: FAILED if planning has failed. `inputs`: the collections that the query may read."""
        self.plan = plan
        self.inputs = inputs
        self.hydration = Hydration(state)
        self._reads = reads

    async def hydrate(self, as_of: Timestamp, stored: pa.Table | None = None) -> pa.Table:
        raise AssertionError("it has no rows")

    def times(self, lower: int, upper: int) -> list[Timestamp]:
        return sorted({time for id in self.inputs for time in self._reads.change_times(id, lower, upper)})

    async def advance(self, times: Sequence[Timestamp], present: Present | None = None) -> list[pa.Table]:
        raise AssertionError("it has no rows")

    def pass_to(self, time: Timestamp) -> None:
        """Does nothing: there is no state."""

    def restore_state(self, hold: Hold, failed: Callable[[Exception], None]) -> None:
        """Does nothing: there is no state."""

    def close(self) -> None:
        """Does nothing: there is no state."""

    async def closed(self) -> None:
        """Returns at once."""
