"""Dataflows that rest and wake, over random commits and interleavings: each view has the right rows at every time."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from catalog.ids import ObjectId, Timestamp
from catalog.objects.columns import Column
from catalog.objects.views import MaterializedView
from catalog.updates import DIFF_FIELD
from server.dataflow.arrangements.arrangement import Arrangement
from server.dataflow.plan.relevance import KeyValues
from server.dataflow.runtime.computation import Hold, Present
from server.dataflow.runtime.dataflow import Dataflow
from server.dataflow.runtime.hydration import Hydration
from server.dataflow.runtime.resting import Resting
from server.runtime.metrics import Metrics
from server.timeline.frontiers import Frontiers
from tests.polling import HANG_S

T, U = ObjectId("t"), ObjectId("u")
SCHEMA = pa.schema([("c0", pa.int64()), DIFF_FIELD])
Numbers = Counter[int]


def table(numbers: Mapping[int, int]) -> pa.Table:
    return pa.table([pa.array([*numbers], pa.int64()), pa.array([*numbers.values()], pa.int64())], schema=SCHEMA)


@dataclass
class World:
    """A log of numbers by collection and time, and the order of a commit as the committer has it."""

    chance: random.Random
    frontiers: Frontiers = field(default_factory=Frontiers)
    resting: Resting = field(default_factory=Resting)
    log: dict[ObjectId, dict[int, Numbers]] = field(default_factory=dict)
    steps: Counter[ObjectId] = field(default_factory=Counter)
    flows: dict[ObjectId, Dataflow] = field(default_factory=dict)

    def create(self, id: ObjectId, upper: Timestamp | None = None) -> None:
        self.log[id] = {}
        self.frontiers.created(id, Timestamp(0), upper, retention_ms=1)

    def view(self, id: str, key: int | None, *inputs: ObjectId) -> ObjectId:
        """Creates a view of the rows of its inputs, with `key` of those only that are equal to it."""
        made = ObjectId(id)
        self.create(made, Timestamp(1))
        item = MaterializedView(made, ObjectId("u2"), id, (Column("c", "int8"),), "", frozenset(inputs))
        holder = self.frontiers.hold(inputs, 0)
        flow = Dataflow(
            made, Rows(self, made, inputs, key), Log(self, made), self.frontiers, holder, Metrics(), item=item,
            resting=self.resting,
        )  # fmt: skip
        self.flows[made] = flow
        return made

    def commit(self, written: Mapping[ObjectId, Numbers]) -> None:
        time = self.frontiers.tables_upper
        for id, numbers in written.items():
            self.log[id][time] = numbers
            self.resting.written(id, [table(numbers)], all=False)
        self.frontiers.tables_upper = Timestamp(time + self.chance.choice([1, 5]))
        self.resting.close_times()
        self.frontiers.moved.fire()

    def numbers(self) -> Numbers:
        return Counter({self.chance.randrange(5): self.chance.choice([-1, 1, 2]) for _ in range(2)})

    def rows(self, id: ObjectId, time: int) -> Numbers:
        found: Numbers = Counter()
        for at, numbers in self.log[id].items():
            if at <= time:
                found.update(numbers)
        return Counter({number: count for number, count in found.items() if count})

    async def turns(self) -> None:
        for _ in range(self.chance.choice([0, 0, 1, 3, 8])):
            await asyncio.sleep(0)


class Rows:
    """The computation of a view. Fails if the history that it reads is not held. Some steps drop the state.

    A restoration holds the history from a time on until its end.
    """

    fingerprint = ""
    next_time: Timestamp | None = None
    arrangements: Sequence[tuple[str, Arrangement]] = ()

    def __init__(self, world: World, id: ObjectId, inputs: Sequence[ObjectId], key: int | None) -> None:
        self.inputs = frozenset(inputs)
        self.hydration = Hydration()
        self._world, self._id, self._key = world, id, key
        self._time = 0
        self.has_state = True
        self._restoring: asyncio.Task[None] | None = None
        values = pa.array([key], pa.int64())
        self.relevant = {} if key is None else {id: [KeyValues(0, values)] for id in inputs}

    async def hydrate(self, as_of: Timestamp, stored: pa.Table | None = None) -> pa.Table:
        frontiers = self._world.frontiers
        assert all(frontiers.since(id) <= as_of < frontiers.upper(id) for id in self.inputs)
        await self._world.turns()
        assert all(frontiers.since(id) <= as_of for id in self.inputs), "the history is held"
        self._time, self.has_state = as_of, True
        return table({}).select(["c0"])

    def times(self, lower: int, upper: int) -> list[Timestamp]:
        found = {time for id in self.inputs for time in self._world.log[id] if lower <= time < upper}
        return [Timestamp(time) for time in sorted(found)[: self._world.chance.choice([1, 2, 8])]]

    async def advance(self, times: Sequence[Timestamp], present: Present | None = None) -> list[pa.Table]:
        found, last = [], self._time
        self._world.steps[self._id] += 1
        for time in times:
            await self._world.turns()
            changes: Numbers = Counter()
            for id in self.inputs:
                assert time < self._world.frontiers.upper(id), "the input is complete"
                for at, numbers in self._world.log[id].items():
                    if last < at <= time:
                        assert self._world.frontiers.since(id) < at, "the history is held"
                        changes.update({n: c for n, c in numbers.items() if self._key in (None, n)})
            found.append(table({number: count for number, count in changes.items() if count}))
            last = time
        self._time, self.has_state = last, self.has_state and self._world.chance.random() < 0.7
        return found

    def pass_to(self, time: Timestamp) -> None:
        self._time = max(self._time, time)

    def restore_state(self, hold: Hold, failed: Callable[[Exception], None]) -> None:
        if not self.has_state and self._restoring is None:
            self._restoring = asyncio.create_task(self._restore(hold))

    async def _restore(self, hold: Hold) -> None:
        await self._world.turns()
        flow, frontiers = self._world.flows[self._id], self._world.frontiers
        with hold() as holder:
            for _ in range(self._world.chance.randrange(5)):
                await self._world.turns()
                assert flow.next_time <= holder.time + 1, "writers wait if the restoration lags"
                assert all(frontiers.since(id) <= holder.time for id in self.inputs), "the history is held"
                if self._world.chance.random() < 0.5:
                    holder.advance(max(self._time, holder.time))
        self.has_state, self._restoring = True, None

    def close(self) -> None:
        if self._restoring is not None:
            self._restoring.cancel()

    async def closed(self) -> None:
        if self._restoring is not None:
            await asyncio.wait({self._restoring})


class Log:
    """The sink of a view, in the order of `LogWriter`."""

    retries = True
    awaited = None

    def __init__(self, world: World, id: ObjectId) -> None:
        self._world, self._id = world, id

    @property
    def upper(self) -> Timestamp:
        return self._world.frontiers.upper(self._id)

    def first_time(self, time: Timestamp) -> Timestamp:
        return time

    async def rows(self) -> pa.Table | None:
        return None

    async def begin(self, time: Timestamp, rows: pa.Table, stored: pa.Table | None) -> None:
        self.advance(Timestamp(time + 1))

    async def write(self, changes: Sequence[tuple[Timestamp, pa.Table]]) -> None:
        await self._world.turns()
        assert changes[0][0] >= self.upper
        for time, table in changes:
            self._world.log[self._id][time] = Counter(dict(zip(*(c.to_pylist() for c in table.columns), strict=True)))
            self._world.resting.written(self._id, [table], all=False)
        self.advance(Timestamp(changes[-1][0] + 1))

    def advance(self, upper: Timestamp) -> None:
        assert upper >= self.upper
        frontiers = self._world.frontiers
        frontiers.view_uppers[self._id] = upper
        self._world.resting.close_times({self._id} | frontiers.followers(self._id))
        frontiers.moved.fire()

    def failed(self, error: object, upper: Timestamp) -> None:
        raise AssertionError(error)

    def close(self) -> None:
        """Does nothing."""


async def until(condition: Callable[[], bool], tasks: list[asyncio.Task[None]]) -> None:
    async with asyncio.timeout(HANG_S):
        while not condition():
            assert not any(task.done() for task in tasks), [task.exception() for task in tasks if task.done()]
            await asyncio.sleep(0)


@pytest.mark.parametrize("seed", range(30))
async def test_views_have_the_right_rows_at_every_time(seed: int) -> None:
    world = World(random.Random(seed))
    world.frontiers.tables_upper = Timestamp(1)
    for id in (T, U):
        world.create(id)
    one = world.view("v1", 1, T)
    both = world.view("v2", None, one, U)
    world.view("v3", 2, both, T)
    world.view("v4", None, both, one, T)
    world.view("v5", 7, T, U)
    flows = [*world.flows.values()]
    tasks = [asyncio.create_task(flow.run()) for flow in flows]
    if seed % 2:  # otherwise there are commits during hydration
        await until(lambda: all(flow.is_resting for flow in flows), tasks)
    for _ in range(60):
        await world.turns()
        written = {id: world.numbers() for id in (T, U) if world.chance.random() < 0.4}
        world.commit(written)
    await until(lambda: all(flow.is_resting and flow.upper == world.frontiers.tables_upper for flow in flows), tasks)
    computations = [flow.computation for flow in flows]
    await until(lambda: all(isinstance(c, Rows) and c.has_state for c in computations), tasks)
    assert len(world.frontiers.holders) == len(flows), "those of restorations are released"
    selected = {ObjectId("v1"): 1, ObjectId("v3"): 2, ObjectId("v5"): 7}
    for time in range(world.frontiers.tables_upper):
        for id, flow in world.flows.items():
            expected: Numbers = Counter()
            for input in flow.inputs:
                expected.update({n: c for n, c in world.rows(input, time).items() if selected.get(id, n) == n})
            assert world.rows(id, time) == Counter({n: c for n, c in expected.items() if c}), (seed, id, time)
    assert seed % 2 == 0 or world.steps[ObjectId("v5")] == 0, "no change concerned it"
    for id in (T, U):  # the dataflows are dropped in the middle of steps and restorations
        world.commit({id: world.numbers()})
        await world.turns()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert not world.frontiers.holders
    assert not world.frontiers.passive_of
