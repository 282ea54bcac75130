"""Operators that look up a collection's rows by the same key share an arrangement, which each reads at its own time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from catalog import updates
from catalog.ids import Timestamp
from protocol.columnar.hashing import key_codes
from server.dataflow.arrangements import file_arrangement
from server.dataflow.arrangements.arrangement import Arranger, Storage
from server.dataflow.arrangements.file_arrangement import EXECUTORS, Executors
from server.dataflow.arrangements.run import ByKey
from server.dataflow.arrangements.shared import Lease, SharedArrangements
from server.timeline.frontiers import Frontiers
from tests.server.dataflow.histories import History, ids, random_history, schema_of
from tests.server.dataflow.workers import Workers

TIMES = 12


@pytest.fixture(params=["server", "executors"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Arranger]:
    storage = Storage()
    if request.param == "server":
        yield storage
    else:
        with mock.patch.object(file_arrangement, "HEAD_BYTES_MAX", 0):
            executors = Executors(tmp_path / "runs", Workers(), storage, lambda: EXECUTORS)  # type: ignore[arg-type]
            yield executors
            executors.close()
            executors.join()
    storage.close()


def lease_at(shared: SharedArrangements, time: int, key: str = "c0") -> Lease:
    schema = updates.rows_schema(schema_of(ids()["t"]).types[:2])
    return shared.lease((ids()["t"], (0, 1), ByKey((key,))), schema, Timestamp(time))


async def is_correct(lease: Lease, history: History) -> bool:
    """Returns whether the lease, at its time, finds the rows of the table at that time."""
    codes = np.unique(key_codes(await lease.arrangement.all_rows(lease.time), ("c0",)))
    found = await lease.arrangement.probe(codes, lease.time)
    rows = await history.rows(ids()["t"], lease.time)
    expected = updates.with_diff(rows.select([0, 1]), -1)
    return updates.consolidate(pa.concat_tables([found, expected])).num_rows == 0


def test_each_lease_reads_at_its_own_time(storage: Arranger) -> None:
    async def run(seed: int) -> None:
        history = random_history(seed, TIMES)
        shared = SharedArrangements(storage, Frontiers().hold_log)
        first, second = lease_at(shared, 1), lease_at(shared, 3)
        assert first.arrangement is second.arrangement
        await second.reach(history, Timestamp(5))
        await first.reach(history, Timestamp(2))
        assert await is_correct(first, history)
        assert await is_correct(second, history)
        second.advance(Timestamp(5))
        assert await is_correct(second, history)
        assert first.arrangement.since == 1
        first.release()
        second.advance(Timestamp(6))
        assert second.arrangement.since == 6
        third = lease_at(shared, 2)  # before `since` of the shared one: a separate arrangement
        assert third.arrangement is not second.arrangement
        await third.reach(history, Timestamp(TIMES))
        for time in range(2, TIMES + 1):
            third.advance(Timestamp(time))
            assert await is_correct(third, history), f"seed {seed}, time {time}"
        for lease in (second, third, third):
            lease.release()
        assert len(shared) == 0

    for seed in range(5):
        asyncio.run(run(seed))


def test_an_arrangement_is_not_shared_at_times_before_its_first_rows(storage: Arranger) -> None:
    """The lease at the earliest time is released before the rows are inserted: they are those at a later time."""

    async def run(seed: int) -> None:
        history = random_history(seed, TIMES)
        shared = SharedArrangements(storage, Frontiers().hold_log)
        first, second = lease_at(shared, 1), lease_at(shared, 5)
        first.release()
        filling = asyncio.create_task(second.reach(history, Timestamp(6)))
        await asyncio.sleep(0)
        third = lease_at(shared, 2)
        await filling
        fourth = lease_at(shared, 3)
        for lease in (third, fourth):
            await lease.reach(history, Timestamp(6))
        for lease in (second, third, fourth):
            assert await is_correct(lease, history), f"seed {seed}, time {lease.time}"

    for seed in range(5):
        asyncio.run(run(seed))


def test_the_first_rows_are_inserted_once_although_their_reader_is_cancelled(storage: Arranger) -> None:
    async def run(seed: int) -> None:
        history = random_history(seed, TIMES)
        shared = SharedArrangements(storage, Frontiers().hold_log)
        first, second = lease_at(shared, 1), lease_at(shared, 4)
        reading = asyncio.create_task(first.reach(history, Timestamp(3)))
        for _ in range(10):
            if first.shared.inserting is None:
                await asyncio.sleep(0)
        assert first.shared.inserting is not None
        assert not first.shared.filled
        reading.cancel()
        await asyncio.wait({reading})
        first.release()
        await second.reach(history, Timestamp(6))
        assert await is_correct(second, history), f"seed {seed}"

    for seed in range(5):
        asyncio.run(run(seed))


class CompactedHistory(History):
    """Merges the changes up to `since`, which is later than the retained times only if nobody holds these."""

    def __init__(self, history: History) -> None:
        super().__init__(history.changes_of)
        self.frontiers = Frontiers()
        self.frontiers.created(ids()["t"], Timestamp(0), Timestamp(TIMES + 1), retention_ms=1)

    def compact(self) -> None:
        id = ids()["t"]
        since = self.frontiers.since(id)
        early = [(time, changes) for time, changes in self.changes_of[id] if time <= since]
        merged = updates.consolidate(pa.concat_tables([changes for _, changes in early]))
        self.frontiers.compacted(id, since)
        self.changes_of[id] = [(early[-1][0], merged), *self.changes_of[id][len(early) :]]


@pytest.mark.parametrize("filled", [True, False])
def test_a_new_lease_holds_the_history_that_it_inserts(storage: Arranger, filled: bool) -> None:
    """The dataflow of the earlier lease, which held the history until now, ends before the new one inserts it."""
    id = ids()["t"]

    async def run(seed: int) -> None:
        history = CompactedHistory(random_history(seed, TIMES))
        frontiers = history.frontiers
        shared = SharedArrangements(storage, frontiers.hold_log)
        before, first = frontiers.hold_history((id,), Timestamp(1)), lease_at(shared, 1)
        if filled:
            await first.reach(history, Timestamp(1))
        frontiers.hold((id,), 6)
        second = lease_at(shared, 6)
        first.release()
        before.release()
        history.compact()
        await second.reach(history, Timestamp(8))
        history.compact()
        assert await is_correct(second, history), f"seed {seed}"
        assert frontiers.since(id) == 6

    for seed in range(5):
        asyncio.run(run(seed))


def test_another_key_is_another_arrangement(storage: Arranger) -> None:
    shared = SharedArrangements(storage, Frontiers().hold_log)
    assert lease_at(shared, 1).arrangement is not lease_at(shared, 1, "c1").arrangement
    assert len(shared) == 2


def test_an_arrangement_with_more_columns_is_shared(storage: Storage) -> None:
    """A lease returns only its columns, under its names. The arrangement of an index is shared this way."""

    async def run(seed: int) -> None:
        history = random_history(seed, TIMES)
        shared = SharedArrangements(storage, Frontiers().hold_log)
        schema = updates.rows_schema([schema_of(ids()["t"]).types[0]])
        whole = lease_at(shared, 1)
        narrow = shared.lease((ids()["t"], (0,), ByKey(("c0",))), schema, Timestamp(1))
        turned = shared.lease(
            (ids()["t"], (1, 0), ByKey(("c1",))), updates.rows_schema(schema_of(ids()["t"]).types[1::-1]), Timestamp(1)
        )
        assert len(shared) == 1
        assert shared.lease((ids()["t"], (0,), ByKey(())), schema, Timestamp(1)).arrangement is not whole.arrangement
        await narrow.reach(history, Timestamp(TIMES))
        for time in range(1, TIMES + 1):
            rows = await history.rows(ids()["t"], Timestamp(time))
            codes = np.unique(key_codes(rows, ("c0",)))
            for lease, places in ((narrow, [0]), (turned, [1, 0])):
                found = await lease.arrangement.probe(codes, time)
                expected = updates.with_diff(rows.select(places).rename_columns(lease.arrangement.schema.names), 1)
                assert updates.difference(updates.expand(found), updates.rows_of(expected)).num_rows == 0, (seed, time)
                assert updates.consolidate(found).num_rows == found.num_rows, "equal rows are one line"
            narrow.advance(Timestamp(time))
        assert whole.arrangement.since == 1
        whole.release()
        turned.release()
        assert narrow.shared.arrangement.rows > 0

    for seed in range(5):
        asyncio.run(run(seed))


def test_an_invalidated_arrangement_is_not_shared_again(storage: Storage) -> None:
    shared = SharedArrangements(storage, Frontiers().hold_log)
    first, second = lease_at(shared, 1), lease_at(shared, 1)
    first.invalidate()
    assert lease_at(shared, 1).arrangement is not second.arrangement


def test_an_arrangement_is_not_shared_again_after_a_failed_insert(storage: Storage) -> None:
    shared, history = SharedArrangements(storage, Frontiers().hold_log), random_history(1, TIMES)
    first, second = lease_at(shared, 1), lease_at(shared, 1)
    with (
        mock.patch.object(first.shared.arrangement, "insert", side_effect=OSError("the disk is full")),
        pytest.raises(OSError, match="the disk is full"),
    ):
        asyncio.run(first.reach(history, Timestamp(TIMES)))
    assert lease_at(shared, 1).arrangement is not second.arrangement
