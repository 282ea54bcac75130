"""The enforced keys of tables: which keys exist, in memory, and the check that no two rows have the same one.

Each enforced key of a table has a `KeyCounts` of its rows at the latest commit. It is computed from the log when the
table is first written after a start, in a thread. A statement computes the changes of the keys from its rows, and
compares them with the counts. The committer compares the changes of each request again, with the counts at that moment
and with the earlier requests of its group. The cost of both comparisons is proportional to the size of the change.

Changes of many rows are not compared with all rows again by the committer, but with the changes of others since the
statement compared them (`KeyIndex.since`).
"""

from __future__ import annotations

import asyncio
import operator
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from catalog import updates
from catalog.ids import ObjectId, Timestamp
from catalog.log import Log
from catalog.objects.indexes import Index
from catalog.objects.tables import Table
from catalog.state import CatalogState
from protocol.pgwire.types import PgType, parse_type
from server.coordinator.key_codes import Codes, KeyLayout
from server.coordinator.key_counts import Changes, KeyCounts, Run, changes_of
from server.coordinator.row_buffer import RowBuffer
from server.coordinator.tasks import BackgroundTasks
from server.runtime.threads import THREAD_ROWS
from server.sql.computed_keys import ComputedKey, computed_key
from server.sql.grammar.lexer import quote_identifier
from server.sql.index_keys import key_column, key_text
from server.timeline.frontiers import Frontiers

HISTORY_MAX = 256  # changes that an index keeps for `since`
HISTORY_KEYS_MAX = 1 << 20  # and keys in them
INLINE_MERGE_MAX = 1 << 15  # keys that are merged on the event loop


@dataclass(frozen=True, slots=True)
class EnforcedKey:
    """An enforced key of a table. `id` is another one when the columns' types or positions change.

    `texts` and `types`: of the columns and expressions of the key. `layout`: of its key tables (`key_values.py`).
    `inputs`: the numbers of the table's columns that it depends on. `columns`: those of the key; None if one of its
    parts is an expression. `computed`: None if it consists of columns and has no condition. `deferrable` and
    `deferred`: as in `Key`.
    """

    id: str
    name: str
    texts: tuple[str, ...]
    types: tuple[PgType, ...]
    layout: KeyLayout
    is_primary: bool
    inputs: frozenset[int]
    columns: tuple[int, ...] | None
    computed: ComputedKey | None = None
    deferrable: bool = False
    deferred: bool = False


class Duplicate(Exception):
    """Rows of a table would have the same key, the one with this code."""

    def __init__(self, table: ObjectId, key: EnforcedKey, code: int) -> None:
        super().__init__(f"{table} {key.name}")
        self.table, self.key, self.code = table, key, code


class KeyIndex:
    """The committed rows of each key, and the latest changes by version."""

    __slots__ = ("_history", "_kept", "counts", "version")

    def __init__(self, counts: KeyCounts) -> None:
        self.counts = counts
        self.version = 0
        self._history: deque[Changes] = deque()
        self._kept = 0  # keys in the history

    def add(self, changes: Changes) -> None:
        self.counts.add(changes)
        self.version += 1
        self._history.append(changes)
        self._kept += len(changes)
        while len(self._history) > HISTORY_MAX or self._kept > HISTORY_KEYS_MAX:
            self._kept -= len(self._history.popleft())

    def since(self, version: int) -> list[Changes] | None:
        """The changes after a version, None if they are not known any more."""
        number = self.version - version
        return None if number > len(self._history) else list(self._history)[len(self._history) - number :]


@dataclass(slots=True)
class OwnKeys:
    """The changes of one key by a transaction.

    `runs`: its large changes, each with the version of the index with which it was compared; -1: with none.
    """

    counts: KeyCounts
    runs: list[tuple[Run, int]] = field(default_factory=list)

    def add(self, changes: Changes, version: int) -> None:
        before = self.counts.runs
        self.counts.add(changes)
        if isinstance(changes, Run):
            self.runs.append((changes, version))
        elif self.counts.runs is not before:  # the small changes have become many
            self.runs.append((self.counts.runs[-1], -1))


KeyTables = Callable[[EnforcedKey, Sequence[pa.Table]], Awaitable[Sequence[pa.Table]]]

KeyChanges = Mapping[str, OwnKeys]
"""What a transaction changes in a table, by the ids of its enforced keys."""

_NO_CHANGES: KeyChanges = {}


def _table(rows: pa.Table | RowBuffer) -> pa.Table:
    return rows.so_far() if isinstance(rows, RowBuffer) else rows


def enforced_keys(state: CatalogState, id: ObjectId) -> tuple[EnforcedKey, ...]:
    """The enforced keys and unique indexes of a table, the primary key first."""
    table = state.items.get(id)
    if not isinstance(table, Table):
        return ()
    found = []
    for key in table.keys:
        if key.is_enforced:
            own = _enforced(table, f"{id} {key.number}", key.name, key.columns, key.nulls_distinct, key.is_primary)
            found.append(replace(own, deferrable=key.deferrable, deferred=key.deferred) if key.deferrable else own)
    for index in state.indexes_on(id):
        if index.is_unique:
            found.append(_enforced_index(table, index))
    return tuple(found)


def has_same_keys(before: CatalogState, after: CatalogState, id: ObjectId) -> bool:
    """Whether neither the table nor an index on it has changed. To bind long keys again takes time."""
    return _are_identical(_definitions(before, id), _definitions(after, id))


def _definitions(state: CatalogState, id: ObjectId) -> tuple[object, ...]:
    """The table, if it exists, and the indexes on it."""
    return (state.items.get(id), *state.indexes_on(id))


def _are_identical(some: Sequence[object], others: Sequence[object]) -> bool:
    return len(some) == len(others) and all(map(operator.is_, some, others))


def _enforced_index(table: Table, index: Index) -> EnforcedKey:
    stem = f"{table.id} {index.id}"
    computed = computed_key(table.columns, index.keys, index.condition)
    numbers = [key_column(key, table.columns) for key in index.keys]
    if computed is None:
        names = tuple(table.columns[number].name for number in numbers if number is not None)
        return _enforced(table, stem, index.name, names, index.nulls_distinct, False)
    layout = KeyLayout(
        tuple(range(len(index.keys))), tuple(type.arrow for type in computed.types), index.nulls_distinct
    )
    inputs = [(number, table.columns[number].type) for number in computed.numbers]
    texts = tuple(
        quote_identifier(table.columns[number].name) if number is not None else key_text(key)
        for key, number in zip(index.keys, numbers, strict=True)
    )
    id = f"{stem} {inputs}"
    columns = tuple(number for number in numbers if number is not None)
    return EnforcedKey(
        id,
        index.name,
        texts,
        computed.types,
        layout,
        False,
        frozenset(computed.numbers),
        columns if len(columns) == len(numbers) else None,
        computed,
    )


def _enforced(
    table: Table, stem: str, name: str, columns: tuple[str, ...], nulls_distinct: bool, is_primary: bool
) -> EnforcedKey:
    numbers = {column.name: number for number, column in enumerate(table.columns)}
    at = tuple(numbers[column] for column in columns)
    types = tuple(parse_type(table.columns[number].type) for number in at)
    layout = KeyLayout(at, tuple(type.arrow for type in types), nulls_distinct)
    id = f"{stem} {[(number, str(type.arrow)) for number, type in zip(at, types, strict=True)]}"
    return EnforcedKey(id, name, tuple(map(quote_identifier, columns)), types, layout, is_primary, frozenset(at), at)


def changes_in(layout: KeyLayout, tables: Iterable[pa.Table]) -> Changes:
    """The changes of a key by its key tables. May run in a thread."""
    return changes_of(
        [
            (layout.codes(table), table[updates.DIFF].to_numpy() if updates.DIFF in table.column_names else None)
            for table in tables
        ]
    )


def violation(base: KeyCounts, own: KeyCounts | None, changes: Changes) -> int | None:
    """The code of a key that more than one row has with `changes`, None if there is none.

    `base`: the rows of others. `own`: the earlier changes of the transaction.
    """
    if isinstance(changes, dict):
        for code, diff in changes.items():
            if diff > 0 and diff + base.count(code) + (own.count(code) if own is not None else 0) > 1:
                return code
        return None
    total = changes.all_diffs + base.counts(changes)
    if own is not None and own:
        total += own.counts(changes)
    bad = np.flatnonzero((total > 1) & (changes.all_diffs > 0))
    return code_at(changes, int(bad[0])) if len(bad) else None


def code_at(run: Run, position: int) -> int:
    """The code at a position of a run, of 64 or 128 bits, as one number."""
    high = int(run.hashes[position])
    return high if run.checks is None else high << 64 | int(run.checks[position])


class KeyIndexes:
    """The indexes of all enforced keys. `latest_time` and `last_write`: of the tables, and of one of them.

    `key_tables`: computes the key tables of tables of rows or changes.
    """

    def __init__(
        self,
        log: Log,
        frontiers: Frontiers,
        tasks: BackgroundTasks,
        latest_time: Callable[[], Timestamp],
        last_write: Callable[[ObjectId], int],
        key_tables: KeyTables,
    ) -> None:
        self._log = log
        self._frontiers = frontiers
        self._tasks = tasks
        self._latest_time = latest_time
        self._last_write = last_write
        self._key_tables = key_tables
        self._indexes: dict[str, KeyIndex] = {}
        self._loading: dict[str, asyncio.Task[None]] = {}
        self._merging: set[str] = set()
        self._created: dict[str, KeyIndex] = {}  # by the group that is being committed
        self._staged: dict[str, list[Changes]] = {}  # by the group that is being committed
        self._keys: dict[ObjectId, tuple[EnforcedKey, ...]] = {}  # of `_keys_state`
        self._keys_state: CatalogState | None = None
        self._bound: dict[ObjectId, tuple[tuple[object, ...], tuple[EnforcedKey, ...]]] = {}
        """The definitions of a table, and its keys, as of the last call of `of`."""

    def of(self, state: CatalogState, table: ObjectId) -> tuple[EnforcedKey, ...]:
        """As `enforced_keys`, from a cache for the latest state."""
        if state is not self._keys_state:
            self._keys_state = state
            self._keys = {}
            if len(self._bound) > 2 * len(state.items):  # most of the tables were dropped
                self._bound = {id: bound for id, bound in self._bound.items() if id in state.items}
        keys = self._keys.get(table)
        if keys is None:
            definitions = _definitions(state, table)
            bound = self._bound.get(table)
            if bound is None or not _are_identical(bound[0], definitions):
                bound = self._bound[table] = (definitions, enforced_keys(state, table))
            keys = self._keys[table] = bound[1]
        return keys

    def index(self, key: EnforcedKey) -> KeyIndex | None:
        """The index of the committed rows, None if it is not loaded."""
        return self._indexes.get(key.id)

    async def load(self, table: ObjectId, keys: Sequence[EnforcedKey]) -> None:
        """Loads the indexes of a table's keys that are not loaded. Cancel safety: they are loaded all the same."""
        for key in keys:
            while key.id not in self._indexes:
                task = self._loading.get(key.id)
                if task is None:
                    task = self._tasks.start(self._load(table, key), f"key {key.name} of {table}")
                    self._loading[key.id] = task
                await asyncio.shield(task)

    async def _load(self, table: ObjectId, key: EnforcedKey) -> None:
        try:
            while True:
                time = self._latest_time()
                holder = self._frontiers.hold(frozenset((table,)), time)
                try:
                    counts = await self._read(table, key, time)
                finally:
                    holder.release()
                if self._last_write(table) <= time:
                    break
            self._indexes[key.id] = KeyIndex(counts)
        finally:
            del self._loading[key.id]

    async def _read(self, table: ObjectId, key: EnforcedKey, time: Timestamp) -> KeyCounts:
        tables = await asyncio.to_thread(self._log.current_tables, table, 0, time + 1)
        return await asyncio.to_thread(counts_of, key.layout, await self._key_tables(key, tables))

    # -- commits --------------------------------------------------------------------------------------------------

    def stage(
        self,
        state: CatalogState,
        changes: Mapping[ObjectId, KeyChanges],
        written: Mapping[ObjectId, Sequence[pa.Table | RowBuffer]],
        created: Mapping[str, KeyCounts],
        new: Iterable[ObjectId],
        *,
        alters: bool,
    ) -> ObjectId | None:
        """Adds the changes of a request to those of its group. Raises Duplicate, and then adds nothing.

        Returns a table if the index of one of its keys is not loaded, or if the changes of a computed key are missing.
        `state`: the catalog after the request.
        `changes`: by table; those that are missing are computed from `written`. `created`: the rows of keys that the
        request creates, before its changes. `new`: the tables that it creates. `alters`: the request changes the
        catalog. It may have replaced all rows of a table, whose index will then be loaded again.
        """
        altered = {ObjectId(id.partition(" ")[0]) for id in created}
        existing = {key.id for table in altered for key in self.of(state, table)}
        indexes = {id: KeyIndex(counts) for id, counts in created.items() if id in existing}
        for table in new:
            for key in self.of(state, table):
                indexes.setdefault(key.id, KeyIndex(KeyCounts(key.layout.is_narrow)))
        staged: dict[str, list[Changes]] = {}
        for table in written:
            for key in self.of(state, table):
                index = indexes.get(key.id) or self._created.get(key.id) or self._indexes.get(key.id)
                if index is None:
                    if alters:
                        continue
                    return table
                own = changes.get(table, _NO_CHANGES).get(key.id)
                if own is None and key.computed is not None:
                    return table  # the statement is executed again, and computes the values of the new key
                if own is None:
                    own = OwnKeys(KeyCounts(key.layout.is_narrow))
                    own.add(changes_in(key.layout, map(_table, written[table])), -1)
                if (violated := self._violation(index, self._staged.get(key.id, ()), own)) is not None:
                    raise Duplicate(table, key, violated)
                staged[key.id] = list(own.counts.parts())
        self._created.update(indexes)
        for id, parts in staged.items():
            self._staged.setdefault(id, []).extend(parts)
        return None

    def _violation(self, index: KeyIndex, staged: Sequence[Changes], own: OwnKeys) -> int | None:
        """The code of a key of which there is more than one row after the changes `own` of a request."""
        counts = index.counts
        for code, diff in own.counts.recent.items():
            if diff > 0 and own.counts.count(code) + counts.count(code) + _count(staged, code) > 1:
                return code
        for run, version in own.runs:
            others = index.since(version) if version >= 0 else None
            if others is None:
                total = counts.counts(run) + own.counts.counts(run)
                bad = np.flatnonzero((total > 1) & (run.all_diffs > 0))
                if len(bad):
                    return code_at(run, int(bad[0]))
                others = []
            for changes in (*others, *staged):
                for code in _common(run, changes):
                    if self._is_violated(counts, staged, own, code):
                        return code
        return None

    def _is_violated(self, counts: KeyCounts, staged: Sequence[Changes], own: OwnKeys, code: int) -> bool:
        added = own.counts.count(code)
        return added > 0 and added + counts.count(code) + _count(staged, code) > 1

    def committed(self) -> None:
        """Applies the changes of the group, which is on disk."""
        self._indexes.update(self._created)
        for id, parts in self._staged.items():
            if (index := self._indexes.get(id)) is not None:
                for part in parts:
                    index.add(part)
                self._merge(id, index)
        self.discard()

    def discard(self) -> None:
        """Forgets the changes of the group, which was not committed."""
        self._created.clear()
        self._staged.clear()

    def adopt(self, state: CatalogState, changed: Iterable[ObjectId]) -> None:
        """Forgets the indexes of keys that do not exist any more. `changed`: the items that differ."""
        tables = {id for id in changed if isinstance(state.items[id], Table)}
        kept = {key.id for id in tables for key in self.of(state, id)}
        for id in [*self._indexes]:
            table = id.partition(" ")[0]
            if table not in state.items or (table in tables and id not in kept):
                del self._indexes[id]

    def _merge(self, id: str, index: KeyIndex) -> None:
        runs = index.counts.mergeable()
        if not runs or id in self._merging:
            return
        if sum(map(len, runs)) <= INLINE_MERGE_MAX:
            index.counts.replace(runs, Run.merged(runs))
            return
        self._merging.add(id)
        self._tasks.start(self._merge_in_thread(id, index, runs), f"merge of keys {id}")

    async def _merge_in_thread(self, id: str, index: KeyIndex, runs: Sequence[Run]) -> None:
        try:
            merged = await asyncio.to_thread(Run.merged, runs)
            index.counts.replace(runs, merged)
        finally:
            self._merging.discard(id)
        self._merge(id, index)


def counts_of(layout: KeyLayout, tables: Iterable[pa.Table]) -> KeyCounts:
    """The number of rows of each key in tables of rows or changes. May run in a thread."""
    counts = KeyCounts(layout.is_narrow)
    changes = changes_in(layout, tables)
    counts.add(changes)
    return counts


def _count(parts: Sequence[Changes], code: int) -> int:
    return sum(part.get(code, 0) if isinstance(part, dict) else part.count(code) for part in parts)


def _common(run: Run, changes: Changes) -> list[int]:
    """The codes whose counts both changes increase."""
    if isinstance(changes, dict):
        return [code for code, diff in changes.items() if diff > 0 and run.count(code) > 0]
    few, many = sorted((run, changes), key=len)
    both = np.flatnonzero((few.all_diffs > 0) & (many.counts(few.hashes, few.checks) > 0))
    return [code_at(few, int(position)) for position in both]


def first_duplicate(
    layout: KeyLayout, base: KeyCounts, own: KeyCounts | None, tables: Sequence[pa.Table]
) -> tuple[int, int] | None:
    """The first added row whose key another row has, one of others or an earlier one; None if there is none.

    The result is the number of its key table and its position there. Retractions in `tables` precede additions.
    `own`: the changes before `tables`. May run in a thread.
    """
    parts = [(codes, _diffs(table)) for table in tables if len(codes := layout.codes(table))]
    taken = KeyCounts(layout.is_narrow)
    bad = _run(layout, parts)
    taken.add(_run(layout, [(codes, np.minimum(diffs, 0)) for codes, diffs in parts]))
    before = base.counts(bad) + (own.counts(bad) if own is not None else 0)
    found = np.flatnonzero((bad.all_diffs > 0) & (bad.all_diffs + before > 1))
    sought = {code_at(bad, int(at)) for at in found}
    seen = {code for at in found if before[at] + taken.count(code := code_at(bad, int(at))) > 0}
    hashes = bad.hashes[found]
    for number, table in enumerate(tables):
        codes, diffs = layout.codes(table), _diffs(table)
        rows = codes.rows if codes.rows is not None else np.arange(len(codes))
        for at in np.flatnonzero(np.isin(codes.hashes, hashes) & (diffs[rows] > 0)).tolist():
            code = (
                int(codes.hashes[at]) if codes.checks is None else int(codes.hashes[at]) << 64 | int(codes.checks[at])
            )
            if code in seen:
                return number, int(rows[at])
            if code in sought:
                seen.add(code)
    return None


def _run(layout: KeyLayout, parts: Sequence[tuple[Codes, NDArray[np.int64]]]) -> Run:
    changes = changes_of(parts)
    return Run.of_counts(changes, layout.is_narrow) if isinstance(changes, dict) else changes


def _diffs(table: pa.Table) -> NDArray[np.int64]:
    return table[updates.DIFF].to_numpy() if updates.DIFF in table.column_names else np.ones(table.num_rows, np.int64)


def is_many(tables: Iterable[pa.Table]) -> bool:
    """Whether the keys of rows are computed in a thread."""
    return sum(len(table) for table in tables) > THREAD_ROWS
