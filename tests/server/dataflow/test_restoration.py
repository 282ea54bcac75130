"""The state is restored after large steps: random steps, drops and errors, compared with the query from scratch."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from catalog import updates
from catalog.ids import ObjectId, Timestamp
from protocol.pgwire.errors import PgError
from server.dataflow.arrangements.arrangement import Storage
from server.dataflow.arrangements.shared import SharedArrangements
from server.dataflow.operators import step_cost
from server.dataflow.plan.lowering import delta_plan
from server.dataflow.runtime.computation import StepDurations, advanced
from server.dataflow.runtime.incremental import IncrementalComputation
from server.dataflow.runtime.restoration import Restoration
from server.spark.engine import SparkEngine
from server.sql.rewrite import rewritten
from server.timeline.frontiers import Frontiers
from tests.polling import HANG_S
from tests.server.dataflow.histories import History, changes_table, from_scratch, ids, planned, random_row
from tests.server.slow_engine import SlowEngine

SEED = int(os.environ.get("TIDEWIRE_SEED", "1"))
EXAMPLES = max(1, round(2 * float(os.environ.get("TIDEWIRE_EXAMPLES", "1"))))
TIMES = 14
ROWS = 40
FLOWS_MAX = 50
JOINED = "SELECT t.s, u.w FROM t JOIN u ON t.k = u.k"

QUERIES = [
    "SELECT k + 1, s FROM t WHERE v > 0",
    "SELECT t.s, u.w FROM t JOIN u ON t.k = u.k",
    "SELECT t.s, u.w FROM t LEFT JOIN u ON t.k = u.k AND t.v > 0",
    "SELECT k, count(*), sum(v) FROM t GROUP BY k",
    "SELECT k, min(v), max(s), count(DISTINCT v) FROM t GROUP BY k",
    "SELECT DISTINCT k, s FROM t",
    "SELECT k, v, sum(v) OVER (PARTITION BY k) FROM t",
    "SELECT v, rank() OVER (ORDER BY v) FROM t",
    "SELECT k, v, s FROM t ORDER BY v, k, s LIMIT 3",
    "SELECT t.s, sum(u.w) FROM t LEFT JOIN u ON t.k = u.k GROUP BY t.s",
]


@dataclass
class Held(History):
    """Inputs that keep only the history that a dataflow and the restoration of its state hold."""

    own: Timestamp = field(default=Timestamp(1))
    restoring: list[Timestamp] = field(default_factory=list)

    @property
    def since(self) -> Timestamp:
        return min((self.own, *self.restoring))

    @contextmanager
    def hold(self) -> Iterator[Holder]:
        assert not self.restoring, "one restoration at a time"
        self.restoring.append(self.own)
        try:
            yield Holder(self)
        finally:
            self.restoring.pop()

    async def changes(self, id: ObjectId, lower: int, upper: int) -> pa.Table:
        assert lower == 0 or lower > self.since or not self.change_times(id, lower, self.since + 1)
        return await super().changes(id, lower, upper)

    async def rows(self, id: ObjectId, as_of: Timestamp) -> pa.Table:
        assert as_of >= self.since
        await asyncio.sleep(0)
        assert as_of >= self.since, "the history is held until the rows are read"
        return await super().rows(id, as_of)


@dataclass
class Holder:
    held: Held

    @property
    def time(self) -> Timestamp:
        return self.held.restoring[0]

    def advance(self, time: int) -> None:
        assert time >= self.time
        self.held.restoring[0] = Timestamp(time)


def failed(error: Exception) -> None:
    raise AssertionError(error)


def large_and_small(chance: random.Random, times: int = TIMES) -> Held:
    """At time 1 the tables are filled. At each later time few rows of a table, or half of them, are replaced."""
    history = Held()
    present: dict[str, list[tuple[Any, ...]]] = {}
    for time in range(1, times + 1):
        for name in ("t", "u"):
            if time > 1 and chance.random() < 0.3:
                continue
            rows = present.setdefault(name, [])
            count = ROWS if time == 1 else ROWS // 2 if chance.random() < 0.25 else chance.choice([1, 2])
            removed = [] if time == 1 else [rows.pop(chance.randrange(len(rows))) for _ in range(count)]
            added = [random_row(name, chance) for _ in range(count)]
            rows += added
            lines = [(row, -1) for row in removed] + [(row, 1) for row in added]
            history.changes_of.setdefault(ids()[name], []).append((Timestamp(time), changes_table(name, lines)))
    return history


class Following:
    """A maintained query over a history, with the changes that it returned."""

    def __init__(self, sql: str, held: Held, engine: Any, shared: SharedArrangements) -> None:
        self.sql, self.plan, self.held, self.engine = sql, planned(sql), held, engine
        root = delta_plan(rewritten(self.plan.relation), self.plan.inputs)
        self.computation = IncrementalComputation(root, self.plan, held, engine, shared)
        self.changes: list[pa.Table] = []
        self.dropped = 0

    async def hydrate(self) -> None:
        self.changes = [updates.with_diff(await self.computation.hydrate(Timestamp(1)), 1)]

    async def advance(self, upper: int) -> None:
        """Processes all times before `upper`, as a dataflow does."""
        computation, had_state = self.computation, self.computation.has_state
        while times := computation.times(self.held.own + 1, upper):
            async for step_times, found in advanced(computation, times, self.present, StepDurations()):
                assert isinstance(found, list), found
                for time, changes in zip(step_times, found, strict=True):
                    self.changes.append(changes)
                    self.held.own = time
                    assert await self.fault(time) is None
                self.dropped += had_state and not computation.has_state
                had_state = computation.has_state
                computation.restore_state(self.held.hold, failed)
        self.held.own = Timestamp(upper - 1)

    async def present(self) -> pa.Table:
        return updates.expand(updates.consolidate(pa.concat_tables(self.changes)))

    async def fault(self, time: int) -> str | None:
        rows = await from_scratch(self.plan, History(self.held.changes_of), self.engine, time)
        expected = updates.consolidate(updates.with_diff(rows, 1))
        wrong = updates.consolidate(pa.concat_tables([*self.changes, updates.negate(expected)]))
        return f"{self.sql} at {time}: {wrong.to_pylist()[:5]}" if wrong.num_rows else None

    async def close(self) -> None:
        self.computation.close()
        await self.computation.closed()


@pytest.fixture
def shared() -> Iterator[SharedArrangements]:
    storage = Storage()
    yield SharedArrangements(storage, Frontiers().hold_log)
    storage.close()


@pytest.fixture
def chance(monkeypatch: pytest.MonkeyPatch) -> random.Random:
    """Decides what is a large step by few rows, and by chance what a small one does to a restoration."""
    chance = random.Random(SEED)

    async def make_way(self: Restoration, waiting: int, step_s: float, restoration_s: float) -> None:
        match chance.choice(["stop", "wait", "run", "run"]):
            case "stop":
                self.stop()
            case "wait" if self.task is not None:
                await asyncio.wait({self.task}, timeout=chance.choice([0.001, 0.02, 1]))

    monkeypatch.setattr(Restoration, "make_way", make_way)
    monkeypatch.setattr(step_cost, "FEW_ROWS", 20)
    return chance


async def _followed(sql: str, chance: random.Random, engine: Any, shared: SharedArrangements) -> Following:
    flow = Following(sql, large_and_small(chance), engine, shared)
    await flow.hydrate()
    upper = 2
    while upper <= TIMES:
        upper += chance.choice([1, 1, 1, 3])
        await flow.advance(min(upper, TIMES + 1))
        await asyncio.sleep(chance.choice([0, 0, 0.01, 0.1]))
    await flow.close()
    assert not flow.held.restoring
    assert not shared.restoring.locked()
    assert len(shared) == 0, "all arrangements are released"
    assert asyncio.all_tasks() == {asyncio.current_task()}
    return flow


@pytest.mark.ivm
@pytest.mark.parametrize("sql", QUERIES)
def test_large_and_small_steps_have_the_rows_of_the_query_from_scratch(
    sql: str, chance: random.Random, engine: SparkEngine, shared: SharedArrangements
) -> None:
    for _ in range(EXAMPLES):
        asyncio.run(_followed(sql, chance, engine, shared))


@pytest.mark.long
def test_states_are_dropped_and_restored_while_steps_run(
    chance: random.Random, engine: SparkEngine, shared: SharedArrangements, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the test above is about does occur in it."""
    seen: Counter[str] = Counter()

    def count(name: str, outcome: Callable[[Any], str]) -> None:
        counted = getattr(IncrementalComputation, name)

        async def called(self: IncrementalComputation, *arguments: Any) -> Any:
            found = await counted(self, *arguments)
            seen[f"{name}: {outcome(found)}"] += 1
            return found

        monkeypatch.setattr(IncrementalComputation, name, called)

    count("_changes_without_state", lambda found: "restored first" if found is None else "all rows")
    count("_caught_up", lambda _: "done")
    count("_restored", str)
    expected = {"_changes_without_state: restored first", "_changes_without_state: all rows", "_caught_up: done"}
    for number in range(FLOWS_MAX):
        flow = asyncio.run(_followed(QUERIES[number % 2 + 2], chance, engine, shared))
        seen["dropped"] += flow.dropped
        if {*expected, "_restored: True", "dropped"} <= (+seen).keys():
            return
    raise AssertionError(seen)


def _replaced(rows: list[tuple[Any, ...]], count: int = 60) -> list[tuple[tuple[Any, ...], int]]:
    """Changes of `count` rows, two of each: by default more changes than there are rows."""
    return [line for k, v, s in rows[:count] for line in (((k, v, s), -1), ((k, v, s + "x"), 1))]


async def _without_state(engine: Any, shared: SharedArrangements, sql: str = JOINED) -> Following:
    """A computation whose state a large step has dropped."""
    rows = [(number % 7, number, "a") for number in range(100)]
    held = Held()
    of_t = [[(row, 1) for row in rows], _replaced(rows), [((1, 1000, "b"), 1)], [((2, 7, "c"), 1)]]
    of_u = [[((number, None, 0.0), 1) for number in range(7)]]
    for name, lines_at in (("t", of_t), ("u", of_u)):
        held.changes_of[ids()[name]] = [
            (Timestamp(time), changes_table(name, lines)) for time, lines in enumerate(lines_at, 1)
        ]
    flow = Following(sql, held, engine, shared)
    await flow.hydrate()
    flow.changes += await flow.computation.advance([Timestamp(2)], flow.present)
    held.own = Timestamp(2)
    assert not flow.computation.has_state
    return flow


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(HANG_S):
        while True:
            if condition():
                return
            await asyncio.sleep(0)


@pytest.mark.ivm
def test_a_state_that_is_being_restored_leaves_nothing_behind_when_it_is_dropped(
    engine: SparkEngine, shared: SharedArrangements, chance: random.Random
) -> None:
    async def follow(delay_s: float | None) -> None:
        slow = SlowEngine(engine, "SELECT")
        flow = await _without_state(slow, shared)
        with slow.shut_gate():
            flow.computation.restore_state(flow.held.hold, failed)
            if delay_s is None:
                await _until(lambda: slow.at_gate > 0)
                assert flow.held.restoring
                assert len(shared)
                operators = [weakref.ref(operator) for operator in flow.computation.operators]
                assert operators
            else:
                operators = []
                await asyncio.sleep(delay_s)
            await flow.close()
            assert slow.at_gate == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert not flow.held.restoring
        assert not shared.restoring.locked()
        assert len(shared) == 0
        gc.collect()
        assert not [operator() for operator in operators if operator() is not None]

    for delay_s in (None, 0.0, 0.001, 0.01, 0.05):
        asyncio.run(follow(delay_s))


@pytest.mark.parametrize(
    "sql", [JOINED, "SELECT k, v, s FROM t ORDER BY v DESC, k, s LIMIT 3", "SELECT k, sum(v) FROM t GROUP BY k"]
)
def test_small_steps_are_incremental_after_a_large_one(
    sql: str, engine: SparkEngine, shared: SharedArrangements, chance: random.Random
) -> None:
    async def follow() -> None:
        flow = await _without_state(engine, shared, sql)
        flow.computation.restore_state(flow.held.hold, failed)
        await _until(lambda: flow.computation.has_state)
        assert not flow.held.restoring
        with mock.patch.object(History, "rows", side_effect=AssertionError("all rows are read")):
            for time in (3, 4):
                flow.changes += await flow.computation.advance([Timestamp(time)], flow.present)
        assert await flow.fault(4) is None
        assert flow.computation.has_state
        await flow.close()

    asyncio.run(follow())


def test_a_large_step_of_a_filter_drops_nothing(
    engine: SparkEngine, shared: SharedArrangements, chance: random.Random
) -> None:
    async def follow() -> None:
        rows = [(number % 7, number, "a") for number in range(100)]
        flow = Following("SELECT k + 1 FROM t WHERE v > 3", Held(), engine, shared)
        flow.held.changes_of[ids()["t"]] = [
            (Timestamp(1), changes_table("t", [(row, 1) for row in rows])),
            (Timestamp(2), changes_table("t", _replaced(rows, len(rows)))),
        ]
        await flow.hydrate()
        computed = 0

        async def present() -> pa.Table:
            nonlocal computed
            computed += 1
            return await flow.present()

        flow.changes += await flow.computation.advance([Timestamp(2)], present)
        assert computed == 1, "it computed all rows"
        assert flow.computation.has_state
        assert await flow.fault(2) is None
        await flow.close()

    asyncio.run(follow())


def test_states_are_restored_one_at_a_time(
    engine: SparkEngine, shared: SharedArrangements, chance: random.Random
) -> None:
    async def follow() -> None:
        slow = SlowEngine(engine, "SELECT")
        first, second = await _without_state(slow, shared), await _without_state(slow, shared)
        with slow.shut_gate():
            for flow in (first, second):
                flow.computation.restore_state(flow.held.hold, failed)
            await _until(lambda: slow.at_gate > 0)
            await asyncio.sleep(0.1)
            assert len(first.held.restoring) + len(second.held.restoring) == 1
        await _until(lambda: first.computation.has_state and second.computation.has_state)
        for flow in (first, second):
            await flow.advance(5)
            await flow.close()

    asyncio.run(follow())


def test_a_restoration_that_fails_is_repeated_after_the_next_step(
    engine: SparkEngine, shared: SharedArrangements, chance: random.Random
) -> None:
    async def follow() -> None:
        flow = await _without_state(engine, shared)
        errors: list[Exception] = []
        with mock.patch.object(SparkEngine, "run", side_effect=PgError("53100", "disk full")):
            flow.computation.restore_state(flow.held.hold, errors.append)
            await _until(lambda: bool(errors))
        assert len(shared) == 0
        assert not flow.held.restoring
        assert not flow.computation.has_state
        await flow.advance(4)
        await _until(lambda: flow.computation.has_state)
        await flow.advance(5)
        assert flow.computation.has_state
        await flow.close()

    asyncio.run(follow())


def test_a_small_step_stops_a_restoration_until_its_duration_is_used_up() -> None:
    async def steps() -> list[bool]:
        restoration, stopped = Restoration(), []
        for _ in range(4):
            if restoration.task is None:
                restoration.start(asyncio.sleep(60))
                restoration.begin()
            await restoration.make_way(1, 10, 25)
            stopped.append(restoration.task is None)
        restoration.stop()
        await restoration.closed()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return stopped

    assert asyncio.run(steps()) == [True, True, True, False]


@pytest.mark.parametrize(("waiting", "step_s", "waits"), [(1, 1.0, True), (1, 0.001, False), (1000, 0.001, True)])
def test_a_step_waits_for_a_state_that_is_nearly_restored(waiting: int, step_s: float, waits: bool) -> None:
    async def step() -> bool:
        restoration = Restoration()
        restoration.start(asyncio.sleep(0.1))
        restoration.begin()
        restoration._made_way_s = 0.5
        running = restoration.task
        await restoration.make_way(waiting, step_s, 0.5)
        assert running is not None
        found = running.done()
        restoration.stop()
        await restoration.closed()
        return found

    assert asyncio.run(step()) == waits
