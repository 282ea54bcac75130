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
from catalog.objects import Timestamp
from protocol.columnar.hashing import key_codes
from server.dataflow.arrangements import file_arrangement
from server.dataflow.arrangements.arrangement import Arranger, Storage
from server.dataflow.arrangements.file_arrangement import EXECUTORS, Executors
from server.dataflow.arrangements.run import ByKey
from server.dataflow.arrangements.shared import Lease, SharedArrangements
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
    codes = np.unique(key_codes(await lease.arrangement.whole(lease.time), ("c0",)))
    found = await lease.arrangement.probe(codes, lease.time)
    rows = await history.rows(ids()["t"], lease.time)
    expected = updates.with_diff(rows.select([0, 1]), -1)
    return updates.consolidate(pa.concat_tables([found, expected])).num_rows == 0


def test_each_lease_reads_at_its_own_time(storage: Arranger) -> None:
    async def run(seed: int) -> None:
        history = random_history(seed, TIMES)
        shared = SharedArrangements(storage)
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


def test_another_key_is_another_arrangement(storage: Arranger) -> None:
    shared = SharedArrangements(storage)
    assert lease_at(shared, 1).arrangement is not lease_at(shared, 1, "c1").arrangement
    assert len(shared) == 2


def test_an_arrangement_with_more_columns_is_shared(storage: Storage) -> None:
    """A lease returns only its columns, under its names. The arrangement of an index is shared this way."""

    async def run(seed: int) -> None:
        history = random_history(seed, TIMES)
        shared = SharedArrangements(storage)
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
    shared = SharedArrangements(storage)
    first, second = lease_at(shared, 1), lease_at(shared, 1)
    first.invalidate()
    assert lease_at(shared, 1).arrangement is not second.arrangement


def test_an_arrangement_is_not_shared_again_after_a_failed_insert(storage: Storage) -> None:
    shared, history = SharedArrangements(storage), random_history(1, TIMES)
    first, second = lease_at(shared, 1), lease_at(shared, 1)
    with (
        mock.patch.object(first.shared.arrangement, "insert", side_effect=OSError("the disk is full")),
        pytest.raises(OSError, match="the disk is full"),
    ):
        asyncio.run(first.reach(history, Timestamp(TIMES)))
    assert lease_at(shared, 1).arrangement is not second.arrangement
