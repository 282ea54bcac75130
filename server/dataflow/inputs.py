"""The inputs of dataflows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import pyarrow as pa

from catalog.ids import ObjectId, Timestamp


class Inputs(Protocol):
    """The collections that a dataflow reads. The caller holds the history that it reads."""

    def is_logged(self, id: ObjectId) -> bool:
        """Whether it is a collection whose updates are in the log."""
        ...

    async def rows(self, id: ObjectId, as_of: Timestamp) -> pa.Table:
        """The rows at a time, even if the collection has an error then."""
        ...

    def log_row_count(self, id: ObjectId, lower: int = 0, upper: int | None = None) -> int:
        """The number of log rows at times in [lower, upper); without `upper`, up to now. 0 if not known."""
        ...

    async def changes(self, id: ObjectId, lower: int, upper: int) -> pa.Table:
        """The changes of a logged collection at times in [lower, upper), consolidated as if at one time."""
        ...

    def change_times(self, id: ObjectId, lower: int, upper: int) -> list[Timestamp]:
        """The times in [lower, upper) at which the collection has updates or its error changes, ascending."""
        ...

    def check_errors(self, ids: Iterable[ObjectId], times: Iterable[Timestamp]) -> None:
        """PgError if one of the collections has an error at one of the times (`catalog.collection_errors`)."""
        ...

    async def check(self, id: ObjectId, lower: int, time: Timestamp) -> None:
        """NegativeCount if a row of a logged collection has a negative multiplicity at `time`, but not before `lower`.

        Reads nothing if every transaction that wrote at `lower` or later had read the rows that it retracted.
        """
        ...
