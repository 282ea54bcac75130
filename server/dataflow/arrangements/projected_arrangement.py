"""Projection of an arrangement to some of its columns. A join can use the arrangement of an index this way."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from catalog import updates
from protocol.columnar.hashing import Hashes
from server.dataflow.arrangements.arrangement import Arrangement
from server.dataflow.arrangements.run import Sorting
from server.runtime.threads import in_thread


class ProjectedArrangement:
    """The columns with these names of another arrangement, as a read-only `Arrangement`."""

    def __init__(self, arrangement: Arrangement, columns: Sequence[str], schema: pa.Schema, sorted_by: Sorting) -> None:
        """`schema` and `sorted_by` use the names of the projected columns."""
        self.schema = schema
        self.sorted_by = sorted_by
        self._arrangement = arrangement
        self._columns = [*columns, updates.DIFF]

    @property
    def since(self) -> int:
        return self._arrangement.since

    @property
    def upper(self) -> int:
        return self._arrangement.upper

    @property
    def rows(self) -> int:
        return self._arrangement.rows

    @property
    def bytes(self) -> int:
        return self._arrangement.bytes

    @property
    def memory_bytes(self) -> int:
        return self._arrangement.memory_bytes

    @property
    def probed_by(self) -> str:
        return self._arrangement.probed_by

    def entries(self, codes: Hashes) -> int:
        return self._arrangement.entries(codes)

    async def probe(self, codes: Hashes, as_of: int) -> pa.Table:
        return await self._projected(await self._arrangement.probe(codes, as_of))

    async def all_rows(self, as_of: int) -> pa.Table:
        return await self._projected(await self._arrangement.all_rows(as_of))

    async def first(self, count: int, as_of: int) -> pa.Table:
        return await self._projected(await self._arrangement.first(count, as_of))

    async def first_of(self, codes: Hashes, counts: NDArray[np.int64], as_of: int) -> pa.Table:
        return await self._projected(await self._arrangement.first_of(codes, counts, as_of))

    async def _projected(self, found: pa.Table) -> pa.Table:
        """The projected changes, consolidated: rows that differ only in other columns become equal."""
        named = found.select(self._columns).rename_columns([*self.schema.names, updates.DIFF])
        return await in_thread(updates.consolidate, named)

    async def insert(self, changes: pa.Table, time: int, times: NDArray[np.int64] | None = None) -> None:
        raise AssertionError("the arrangement with all columns is written to")

    def advance(self, since: int) -> None:
        self._arrangement.advance(since)

    async def settle(self) -> None:
        await self._arrangement.settle()

    def close(self) -> None:
        """Does nothing: the owner of the whole arrangement closes it."""
