"""The nodes of a delta plan at work: each step turns the changes of a tick into changes, and is kept or forgotten.

A tick takes the state from a time to later ones, t1 to tm. Version 0 is what there was, version i what there is at ti.
Changes are tables of a node's columns, the version from which on they hold (`v`), and `diff`. A stateful operator gives
Spark the rows of the touched keys in each version, and what comes out in one version but not in the one before is its
change. Its state changes only when the whole tick has worked (`commit`).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog import updates
from catalog.objects import Timestamp
from catalog.updates import DIFF, DIFF_FIELD
from protocol.pgwire.errors import PgError, SqlState
from server.dataflow.arrangement import Arrangement, ByKey, ByOrder
from server.dataflow.computation import Inputs
from server.dataflow.delta import (
    VERSION,
    Concat,
    Constant,
    InnerJoin,
    Linear,
    Node,
    Recompute,
    Source,
    Statement,
    Temporal,
    Totals,
    called,
    nodes_of,
)
from server.dataflow.hashing import Hashes, key_hashes
from server.dataflow.shared import Lease, SharedArrangements, is_large
from server.dataflow.waiting import Waiting
from server.spark import Engine
from server.sql.constant import Bindings
from server.sql.temporal import LAST

Result = TypeVar("Result")
VERSION_FIELD = pa.field(VERSION, pa.int64(), nullable=False)
_BOUND_FIELDS = (pa.field("lower", pa.int64()), pa.field("upper", pa.int64()))
PAIRS_MAX = 1_000_000  # of rows as they were that a join may look at in vain


@dataclass(frozen=True, eq=False)
class Tick:
    """`since`: where the state stands; None if there is none, and all that there is at `times`, one time, is new."""

    since: Timestamp | None
    times: tuple[Timestamp, ...]

    @property
    def versions(self) -> range:
        """Those that are computed: without a state there is nothing before."""
        return range(1 if self.since is None else 0, len(self.times) + 1)

    @property
    def new(self) -> range:
        return range(1, len(self.times) + 1)


@dataclass(frozen=True, eq=False)
class Place:
    """Where operators work: what they read and share, and the time at which their state begins."""

    engine: Engine
    inputs: Inputs
    shared: SharedArrangements
    as_of: Timestamp


class Operator(ABC):
    """One node. `inputs` of `step` are the changes of the node's inputs, in their order."""

    def __init__(self, node: Node, engine: Engine) -> None:
        self.node = node
        self._engine = engine
        self._own: list[Arrangement] = []
        self._leases: list[Lease] = []
        self._pending: list[tuple[Arrangement, Timestamp, pa.Table]] = []

    @property
    def arrangements(self) -> list[tuple[str, Arrangement]]:
        """What it keeps, or shares with others, each with the columns that it goes by."""
        return []

    @cached_property
    def schema(self) -> pa.Schema:
        """Of the operator's changes."""
        return pa.schema([*self.node.schema, VERSION_FIELD, DIFF_FIELD])

    @cached_property
    def none(self) -> pa.Table:
        return self.schema.empty_table()

    @property
    def next_time(self) -> Timestamp | None:
        """The next time at which there is a change, also if no input has one."""
        return None

    @abstractmethod
    async def step(self, tick: Tick, inputs: Sequence[pa.Table]) -> pa.Table:
        """The changes of a tick, consolidated unless there is no state. Nothing is kept of it before `commit`."""

    def forget(self) -> None:
        """The tick did not work."""
        self._pending.clear()

    def commit(self, tick: Tick) -> None:
        """The tick worked: what it changed is the state."""
        for arrangement, time, changes in self._pending:
            arrangement.insert(changes, time)
        self._pending.clear()
        for arrangement in self._own:
            arrangement.advance(tick.times[-1])
        for lease in self._leases:
            lease.advance(tick.times[-1])

    def close(self) -> None:
        """It is not used any more."""
        for lease in self._leases:
            lease.release()

    async def _run(self, statement: Statement, views: Mapping[str, pa.Table]) -> pa.Table:
        """What a statement gives over tables, whose columns it knows by their places."""
        named = {name: view.rename_columns([f"c{i}" for i in range(view.num_columns)]) for name, view in views.items()}
        return await self._engine.run(statement.text(named), named, patient=True)

    def _result(self, table: pa.Table, extra: Sequence[pa.Field]) -> pa.Table:
        """What a statement gave: the node's columns and these."""
        schema = pa.schema([*self.node.schema, *extra])
        named = table.rename_columns(schema.names)
        return named if named.schema.equals(schema) else named.cast(schema)


class ArrangedInput:
    """An input of an operator by a key, as it was before a tick; that of a collection is shared."""

    def __init__(self, place: Place, node: Node, sorting: ByKey | ByOrder) -> None:
        self._inputs = place.inputs
        self.lease: Lease | None = None
        if isinstance(node, Source):
            key = (node.id, node.places, sorting)
            self.lease = place.shared.lease(key, node.schema, place.as_of)
            self.arrangement = self.lease.arrangement
        else:
            self.arrangement = Arrangement(sorting, node.schema, place.shared.storage)

    async def take(self, changes: pa.Table, tick: Tick) -> list[tuple[Arrangement, Timestamp, pa.Table]]:
        """What is to be inserted once the tick has worked. A shared one takes it from the log at once."""
        if self.lease is not None:
            await self.lease.reach(self._inputs, tick.times[-1])
            return []
        pending = []
        for version, time in enumerate(tick.times, 1):
            part = changes if len(tick.times) == 1 else changes.filter(pc.equal(changes[VERSION], version))
            if part.num_rows:
                pending.append((self.arrangement, time, part.drop_columns([VERSION])))
        return pending


class ArrangingOperator(Operator):
    """One whose inputs are arranged."""

    def __init__(self, node: InnerJoin | Recompute, place: Place, sortings: Sequence[ByKey | ByOrder]) -> None:
        super().__init__(node, place.engine)
        self._arranged = [ArrangedInput(place, i, sorting) for i, sorting in zip(node.inputs, sortings, strict=True)]
        self._leases = [arranged.lease for arranged in self._arranged if arranged.lease is not None]
        self._own = [arranged.arrangement for arranged in self._arranged if arranged.lease is None]

    @property
    def arrangements(self) -> list[tuple[str, Arrangement]]:
        found = []
        for node, arranged in zip(self.node.inputs, self._arranged, strict=True):
            sorting = arranged.arrangement.sorted_by
            names = sorting.columns if isinstance(sorting, ByKey) else (sorting.column,)
            found.append((called(node, [int(name[1:]) for name in names]), arranged.arrangement))
        return found

    async def _take(self, tick: Tick, inputs: Sequence[pa.Table]) -> None:
        for arranged, changes in zip(self._arranged, inputs, strict=True):
            self._pending += await arranged.take(changes, tick)


class SourceOperator(Operator):
    def __init__(self, node: Source, engine: Engine, inputs: Inputs) -> None:
        super().__init__(node, engine)
        self._source = node
        self._inputs = inputs
        self.rows = 0  # that there were at first

    async def step(self, tick: Tick, inputs: Sequence[pa.Table]) -> pa.Table:
        id = self._source.id
        if tick.since is None:
            rows = await self._inputs.rows(id, tick.times[0])
            self.rows = rows.num_rows
            return self._picked(updates.with_diff(rows, 1), 1)
        parts, lower = [self.none], tick.since + 1
        for version, time in enumerate(tick.times, 1):
            if times := self._inputs.change_times(id, lower, time + 1):
                # From the first on: of the times before it, at which nothing happened, the log may have no history.
                parts.append(self._picked(await self._inputs.changes(id, times[0], time + 1), version))
            lower = time + 1
        return await in_thread(updates.consolidate, pa.concat_tables(parts))

    def _picked(self, changes: pa.Table, version: int) -> pa.Table:
        columns = [changes.column(place) for place in self._source.places]
        versions = pa.array(np.full(changes.num_rows, version))
        return pa.table([*columns, versions, changes[DIFF]], schema=self.schema)


class ConstantOperator(Operator):
    def __init__(self, node: Constant, engine: Engine) -> None:
        super().__init__(node, engine)
        self._constant = node

    async def step(self, tick: Tick, inputs: Sequence[pa.Table]) -> pa.Table:
        if tick.since is not None:
            return self.none
        rows = await self._run(self._constant.sql, {})
        rows = self._result(rows if self.node.schema.names else _nothing(rows), [])
        ones = pa.array(np.ones(rows.num_rows, np.int64))
        return pa.table([*rows.columns, ones, ones], schema=self.schema)


class LinearOperator(Operator):
    def __init__(self, node: Linear, engine: Engine) -> None:
        super().__init__(node, engine)
        self._linear = node
        self._scan = node.scan
        if node.scan is not None:
            width = len(node.input.schema)
            self._scan = replace(node.scan, columns=(*node.scan.columns, width, width + 1))

    async def step(self, tick: Tick, inputs: Sequence[pa.Table]) -> pa.Table:
        (changes,) = inputs
        if changes.num_rows == 0:
            return self.none
        if self._scan is not None:
            found = self._scan.rows(changes, Bindings())
        else:
            found = await self._run(self._linear.sql, {"d0": changes})
        return await in_thread(_consolidated, self._result(found, (VERSION_FIELD, DIFF_FIELD)), tick)


class TemporalOperator(Operator):
    """A change comes when its row is first seen, and its opposite when the row no longer is. One time a tick."""

    def __init__(self, node: Temporal, engine: Engine) -> None:
        super().__init__(node, engine)
        self._temporal = node
        self._waiting = Waiting(pa.schema([*node.schema, DIFF_FIELD]))
        self._come: pa.Table | None = None

    @property
    def next_time(self) -> Timestamp | None:
        time = self._waiting.next_time
        return None if time is None else Timestamp(time)

    async def step(self, tick: Tick, inputs: Sequence[pa.Table]) -> pa.Table:
        (changes,) = inputs
        (now,) = tick.times
        parts = [] if tick.since is None else [self._waiting.due(now)]
        if changes.num_rows:
            found = await self._run(self._temporal.sql, {"d0": changes})
            come = self._result(found, (*_BOUND_FIELDS, VERSION_FIELD, DIFF_FIELD))
            lower, upper = (come[field.name].to_numpy() for field in _BOUND_FIELDS)
            seen = pa.array(np.maximum(lower, now) < upper)
            self._come = come.filter(seen)
            parts.append(self._come.filter(pc.less_equal(self._come["lower"], now)).select(self._waiting.schema.names))
        found = pa.concat_tables([self._waiting.schema.empty_table(), *parts])
        return await in_thread(_consolidated, _versioned(found, 1), tick)

    def forget(self) -> None:
        super().forget()
        self._come = None

    def commit(self, tick: Tick) -> None:
        super().commit(tick)
        (now,) = tick.times
        self._waiting.drop(now)
        if self._come is not None:
            come, self._come = self._come, None
            rows = come.select(self._waiting.schema.names)
            lower, upper = (come[field.name].to_numpy() for field in _BOUND_FIELDS)
            later, ends = lower > now, upper < LAST
            self._waiting.insert(rows.filter(pa.array(later)), lower[later])
            self._waiting.insert(updates.negate(rows.filter(pa.array(ends))), upper[ends])


class ConcatOperator(Operator):
    async def step(self, tick: Tick, inputs: Sequence[pa.Table]) -> pa.Table:
        named = (changes.rename_columns(self.schema.names).cast(self.schema) for changes in inputs)
        return await in_thread(_consolidated, pa.concat_tables(named), tick)


class JoinOperator(ArrangingOperator):
    """Inner: the changes of each side with the rows of the other, and with its changes."""

    def __init__(self, node: InnerJoin, place: Place) -> None:
        super().__init__(node, place, [ByKey(_names(key)) for key in node.keys])
        self._join = node

    async def step(self, tick: Tick, inputs: Sequence[pa.Table]) -> pa.Table:
        await self._take(tick, inputs)
        if not any(changes.num_rows for changes in inputs):
            return self.none
        codes = [await in_thread(_codes, [c], [k]) for c, k in zip(inputs, self._join.keys, strict=True)]
        before = [
            _versioned(await in_thread(_slice, arranged.arrangement, other, tick), 0)
            for arranged, other in zip(self._arranged, reversed(codes), strict=True)
        ]
        pairs = before[0].num_rows * before[1].num_rows
        if pairs > PAIRS_MAX and len(np.intersect1d(codes[0], codes[1], assume_unique=True)):
            # a large key that changes on both sides: no pair of rows as they were is looked at
            tasks = [(inputs[0], pa.concat_tables([before[1], inputs[1]])), (before[0], inputs[1])]
        else:
            left, right = (pa.concat_tables([b, c]) for b, c in zip(before, inputs, strict=True))
            tasks = [(left, right)]
        found = [await self._computed(left, right) for left, right in tasks]
        return await in_thread(_consolidated, pa.concat_tables(found), tick)

    async def _computed(self, left: pa.Table, right: pa.Table) -> pa.Table:
        if left.num_rows == 0 or right.num_rows == 0:
            return self.none
        found = await self._run(self._join.sql, {"d0": left, "d1": right})
        return self._result(found, (VERSION_FIELD, DIFF_FIELD))


class TotalsOperator(Operator):
    """Exact sums and counts by key, kept: what comes and goes is added."""

    def __init__(self, node: Totals, place: Place) -> None:
        super().__init__(node, place.engine)
        self._totals = node
        self._width = len(node.key)
        key = ByKey(tuple(f"c{i}" for i in range(self._width)))
        self._own = [Arrangement(key, node.state, place.shared.storage)]
        self._key_names = called(node.input, node.key)
        numbers = list(node.state)[self._width :]
        named = [pa.field(f"n{i}", field.type) for i, field in enumerate(numbers)]
        self._lines = pa.schema([*node.input.schema, VERSION_FIELD, DIFF_FIELD, *named])

    async def step(self, tick: Tick, inputs: Sequence[pa.Table]) -> pa.Table:
        (changes,) = inputs
        empty_at_first = tick.since is None and not self._width
        if changes.num_rows == 0 and not empty_at_first:
            return self.none
        before, lines = await in_thread(self._read, tick, changes)
        found = await self._run(self._totals.sql, {"d0": lines})
        state = [pa.field(f"s{i}", field.type) for i, field in enumerate(self._totals.state)]
        found = self._result(found, [*state, VERSION_FIELD])
        return await in_thread(self._told, tick, before, found)

    @property
    def arrangements(self) -> list[tuple[str, Arrangement]]:
        return [(self._key_names, self._own[0])]

    def _read(self, tick: Tick, changes: pa.Table) -> tuple[pa.Table, pa.Table]:
        """The state of the touched keys, and what the statement reads."""
        codes = _codes([changes], [self._totals.key])
        before = _slice(self._own[0], codes, tick)
        _check_counts(before)
        state = updates.rows_of(before)
        if not self._width and tick.since is None:
            zeros = [pa.array([0], field.type) for field in self._totals.state]
            state = pa.table(zeros, schema=self._totals.state)
        diffs = changes[DIFF].to_numpy()
        single = changes.take(pa.array(np.repeat(np.arange(len(diffs)), np.abs(diffs))))
        signs = pa.array(np.sign(np.repeat(diffs, np.abs(diffs))))
        single = single.set_column(single.num_columns - 1, DIFF_FIELD, signs)
        parts = [self._lines.empty_table()]
        for version in tick.versions:
            parts.append(self._state_lines(state, version))
            here = single.filter(pc.less_equal(single[VERSION], version)) if len(tick.times) > 1 else single
            if version and here.num_rows:
                parts.append(self._change_lines(here, version))
        return before, pa.concat_tables(parts)

    def _state_lines(self, state: pa.Table, version: int) -> pa.Table:
        count = state.num_rows
        columns = {f"c{place}": state.column(i) for i, place in enumerate(self._totals.key)}
        columns[VERSION] = pa.array(np.full(count, version))
        columns[DIFF] = pa.array(np.zeros(count, np.int64))
        columns |= {f"n{i}": column for i, column in enumerate(state.columns[self._width :])}
        return pa.table([columns.get(f.name, pa.nulls(count, f.type)) for f in self._lines], schema=self._lines)

    def _change_lines(self, changes: pa.Table, version: int) -> pa.Table:
        count = changes.num_rows
        own = [*changes.columns[:-2], pa.array(np.full(count, version)), changes[DIFF]]
        nulls = [pa.nulls(count, field.type) for field in list(self._lines)[len(own) :]]
        return pa.table([*own, *nulls], schema=self._lines)

    def _told(self, tick: Tick, before: pa.Table, found: pa.Table) -> pa.Table:
        rows = found[f"s{self._width}"]
        if found.num_rows and pc.min(rows).as_py() < 0:
            raise negative_count()
        last = found.filter(pc.equal(found[VERSION], len(tick.times)))
        after = last.select([f"s{i}" for i in range(len(self._totals.state))]).rename_columns(self._totals.state.names)
        change = pa.concat_tables([updates.with_diff(after, 1), updates.negate(before)])
        self._pending.append((self._own[0], tick.times[-1], updates.consolidate(change)))
        return _differences(found.select([*self.node.schema.names, VERSION]), tick, self.schema)


class RecomputeOperator(ArrangingOperator):
    """The touched keys, before and after."""

    def __init__(self, node: Recompute, place: Place) -> None:
        super().__init__(node, place, [_sorting(node, key) for key in node.keys])
        self._recompute = node

    async def step(self, tick: Tick, inputs: Sequence[pa.Table]) -> pa.Table:
        node = self._recompute
        await self._take(tick, inputs)
        if not any(changes.num_rows for changes in inputs) and not (node.marked and tick.since is None):
            return self.none
        codes = await in_thread(_codes, inputs, node.keys)
        views = {}
        for number, changes in enumerate(inputs):
            views[f"d{number}"] = await in_thread(self._lines, tick, number, codes, changes)
        if not node.marked and not any(view.num_rows for view in views.values()):
            return self.none
        found = self._result(await self._run(node.sql, views), [VERSION_FIELD])
        return await in_thread(_differences, found, tick, self.schema)

    def _lines(self, tick: Tick, number: int, codes: Hashes, changes: pa.Table) -> pa.Table:
        """The rows of an input in each version."""
        arrangement, once = self._arranged[number].arrangement, self._recompute.once[number]
        before = self._before(arrangement, codes, changes, tick)
        parts = []
        for version in tick.versions:
            now = before
            if version:
                here = changes.filter(pc.less_equal(changes[VERSION], version)) if len(tick.times) > 1 else changes
                now = pa.concat_tables([before, here.drop_columns([VERSION])])
                if tick.since is not None or once:
                    now = updates.consolidate(now)
                if self._recompute.first is not None:  # what goes from behind the first was not among them
                    now = now.filter(pc.greater(now[DIFF], 0))
            parts.append(self._at_version(now, once, version))
        return pa.concat_tables(parts)

    def _before(self, arrangement: Arrangement, codes: Hashes, changes: pa.Table, tick: Tick) -> pa.Table:
        first = self._recompute.first
        if first is None or tick.since is None:
            return _slice(arrangement, codes, tick)
        # As many more as go: then the first of any later version are among these, and what comes.
        gone = -int(np.minimum(changes[DIFF].to_numpy(), 0).sum())
        return arrangement.first(first.count + gone, tick.since)

    def _at_version(self, now: pa.Table, once: bool, version: int) -> pa.Table:
        _check_counts(now)
        rows = updates.rows_of(now) if once else updates.expand(now)
        count = rows.num_rows
        lines = rows.append_column(VERSION_FIELD, pa.array(np.full(count, version)))
        if not self._recompute.marked:
            return lines
        nulls = [pa.nulls(1, field.type) for field in rows.schema]
        mark = pa.table([*nulls, pa.array([version])], schema=lines.schema)
        marks = pa.array(np.arange(count + 1) < count)
        return pa.concat_tables([lines, mark]).append_column("mark", marks)


def operators_of(root: Node, place: Place) -> list[Operator]:
    """An operator for each node, with no state, those that are read before those that read them. Close them."""
    made: list[Operator] = []
    for node in nodes_of(root):
        match node:
            case Source():
                made.append(SourceOperator(node, place.engine, place.inputs))
            case Constant():
                made.append(ConstantOperator(node, place.engine))
            case Linear():
                made.append(LinearOperator(node, place.engine))
            case Temporal():
                made.append(TemporalOperator(node, place.engine))
            case Concat():
                made.append(ConcatOperator(node, place.engine))
            case InnerJoin():
                made.append(JoinOperator(node, place))
            case Totals():
                made.append(TotalsOperator(node, place))
            case Recompute():
                made.append(RecomputeOperator(node, place))
            case _:
                raise AssertionError(node)
    return made


def negative_count() -> PgError:
    return PgError(
        SqlState.DATA_EXCEPTION,
        "the count of a row is negative",
        detail="More copies of a row were taken away than ever stood there.",
    )


async def in_thread(work: Callable[..., Result], *args: Any) -> Result:
    """`work` here, or in a thread if one of its arguments is a large table."""
    return await asyncio.to_thread(work, *args) if is_large(args) else work(*args)


def _sorting(node: Recompute, key: tuple[int, ...]) -> ByKey | ByOrder:
    first = node.first
    return ByKey(_names(key)) if first is None else ByOrder(f"c{first.place}", first.descending, first.nulls_first)


def _consolidated(changes: pa.Table, tick: Tick) -> pa.Table:
    """At first rows only come: a line for each is as good."""
    return changes if tick.since is None else updates.consolidate(changes)


def _codes(changes: Sequence[pa.Table], keys: Sequence[tuple[int, ...]]) -> Hashes:
    """The hashes of the keys that changes touch, ascending and distinct."""
    return np.unique(np.concatenate([key_hashes(c, _names(k)) for c, k in zip(changes, keys, strict=True)]))


def _slice(arrangement: Arrangement, codes: Hashes, tick: Tick) -> pa.Table:
    if tick.since is None:
        return updates.with_diff(arrangement.schema.empty_table(), 1)
    return arrangement.probe(codes, tick.since)


def _names(places: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(f"c{place}" for place in places)


def _nothing(rows: pa.Table) -> pa.Table:
    return rows.select([])


def _versioned(changes: pa.Table, version: int) -> pa.Table:
    versions = pa.array(np.full(changes.num_rows, version))
    return changes.add_column(changes.num_columns - 1, VERSION_FIELD, versions)


def _check_counts(changes: pa.Table) -> None:
    if changes.num_rows and pc.min(changes[DIFF]).as_py() < 0:
        raise negative_count()


def _differences(found: pa.Table, tick: Tick, schema: pa.Schema) -> pa.Table:
    """From the rows of each version the changes from each to the next."""
    versions = found[VERSION]
    come = found if tick.since is None else found.filter(pc.greater(versions, 0))
    parts = [updates.with_diff(come, 1)]
    if tick.since is not None:
        gone = found.filter(pc.less(versions, len(tick.times)))
        gone = gone.set_column(gone.num_columns - 1, VERSION_FIELD, pc.add(gone[VERSION], 1))
        parts.append(updates.with_diff(gone, -1))
    return _consolidated(pa.concat_tables(parts).cast(schema), tick)
