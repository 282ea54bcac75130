"""An upstream for tests: partitions of ascending numbers, of which each must be in the table exactly once."""

from __future__ import annotations

import asyncio
import random

import pyarrow as pa

from catalog.ids import ObjectId
from catalog.objects.columns import Column
from catalog.objects.tables import Table
from catalog.source_state import State
from server.ingest.upstream import Changes, UpstreamError

TABLE = Table(ObjectId("u10"), ObjectId("u2"), "numbers", (Column("part", "int4"), Column("number", "int4")))
"""The source's collection. Its id is also the source's, because no kind of catalog object for sources exists yet."""

PARTS = 3


def changes(part: int, start: int, end: int) -> pa.Table:
    """Returns the rows for the numbers `start <= n < end` of a partition."""
    numbers = range(start, end)
    return pa.table({"c0": pa.array([part] * len(numbers), pa.int32()), "c1": pa.array(numbers, pa.int32())})


class Numbers:
    """Partitions with `count` numbers each. A read returns a few numbers of one of them, chosen by `random`.

    `failures`: how many of the next calls raise UpstreamError. `acknowledged`: the last state known to be on disk.
    """

    def __init__(self, count: int, seed: int = 0) -> None:
        self.count = count
        self.failures = 0
        self.opened = self.closed = 0
        self.acknowledged: dict[str, bytes | None] = {}
        self._random = random.Random(seed)
        self._next: dict[int, int] = {}

    async def open(self, state: State) -> None:
        self.opened += 1
        self._fail()
        self._next = {part: int(state.get(str(part)) or b"0") for part in range(PARTS)}

    async def read(self, bytes_max: int) -> Changes:
        self._fail()
        left = [part for part, start in self._next.items() if start < self.count]
        if not left:
            await asyncio.Event().wait()
        part = self._random.choice(left)
        start = self._next[part]
        end = self._next[part] = min(self.count, start + self._random.randint(1, 5))
        return Changes({TABLE.id: [changes(part, start, end)]}, {str(part): b"%d" % end})

    async def committed(self, state: State) -> None:
        self.acknowledged.update(state)
        self._fail()

    async def close(self) -> None:
        self.closed += 1

    def _fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise UpstreamError("broker is not available")
