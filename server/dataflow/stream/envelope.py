"""Envelopes: conversion of a subscription's messages to Arrow tables with the columns of SUBSCRIBE's result.

The rows of a timestamp are a pure function of its consolidated changes; earlier timestamps have no influence. A
progress row is NULL in all columns but the first two. docs/subscribe.md specifies the envelopes.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import replace
from enum import StrEnum

import numpy as np
import pyarrow as pa

from catalog import updates
from protocol.pgwire.types import BOOL, INT8, MZ_TIMESTAMP, TEXT
from server.dataflow.stream.feed import Entry
from server.dataflow.stream.order import THREAD_ROWS, Order, SortColumns, SortKey, codes, sorted_rows
from server.dataflow.stream.subscription import Message, Progress
from server.sql.plan import Field


class Envelope(ABC):
    """The output of a SUBSCRIBE.

    `fields`: the columns of the result. `form`: equal for envelopes with the same rows for the same changes.
    """

    def __init__(self, fields: Sequence[Field], form: Hashable, *, progress: bool) -> None:
        """`fields`: the columns after mz_timestamp and mz_progressed."""
        self.progress = progress
        self.form = (form, progress)
        self.fields = (
            Field("mz_timestamp", MZ_TIMESTAMP, False),
            *((Field("mz_progressed", BOOL, False),) if progress else ()),
            *((replace(f, nullable=True) for f in fields) if progress else fields),
        )
        types = [pa.uint64(), *(f.type.arrow for f in self.fields[1:])]
        self.schema = updates.rows_schema(types)  # mz_timestamp as uint64: all values of its decimal type fit

    async def rows(self, message: Message) -> pa.Table:
        """The message's rows, with columns c0, c1, ...."""
        match message:
            case Progress(time):
                nulls = (pa.nulls(1, field.type) for field in list(self.schema)[2:])
                return pa.table([pa.array([time], pa.uint64()), pa.array([True]), *nulls], schema=self.schema)
            case Entry(time, changes):
                columns = await self.columns(changes)
                count = len(columns[0])
                progressed = [pa.array(np.zeros(count, np.bool_))] if self.progress else []
                head = [pa.array(np.full(count, time, np.uint64)), *progressed]
                return pa.table([*head, *columns], schema=self.schema)

    @property
    def sorts(self) -> bool:
        """Whether this envelope sorts the rows of a time."""
        return True

    @abstractmethod
    async def sort_columns(self, changes: pa.Table) -> tuple[pa.Table, SortColumns]:
        """If it `sorts`: the changes in any order, and the columns by which this envelope sorts them.

        Rows that are equal in all of these columns must be passed to the same call of `columns`. With
        `needs_all_rows`, so must all rows of a time.
        """

    @property
    def needs_all_rows(self) -> bool:
        """Whether the sort keys of a row depend on the other rows of its time (window functions)."""
        return False

    @property
    def copies(self) -> bool:
        """Whether the result of `columns` is a copy instead of a view of the changes."""
        return True

    @abstractmethod
    async def columns(self, changes: pa.Table) -> list[pa.ChunkedArray]:
        """The columns after mz_timestamp and mz_progressed, for one time's consolidated changes."""


class DiffEnvelope(Envelope):
    """The default envelope: mz_diff and the row. `order`: WITHIN TIMESTAMP ORDER BY."""

    def __init__(self, relation: tuple[Field, ...], *, progress: bool, order: Order | None = None) -> None:
        form = ("diff", order.plan.form if order is not None else None)
        super().__init__((Field("mz_diff", INT8, False), *relation), form, progress=progress)
        self._order = order

    @property
    def sorts(self) -> bool:
        return self._order is not None

    async def sort_columns(self, changes: pa.Table) -> tuple[pa.Table, SortColumns]:
        assert self._order is not None
        return await self._order.sort_columns(changes)

    @property
    def needs_all_rows(self) -> bool:
        return self._order is not None and not self._order.plan.is_rowwise

    @property
    def copies(self) -> bool:
        return self._order is not None

    async def columns(self, changes: pa.Table) -> list[pa.ChunkedArray]:
        if self._order is not None:
            changes = await self._order.arrange(changes)
        return [changes[updates.DIFF], *updates.rows_of(changes).columns]


class State(StrEnum):
    """The values of mz_state."""

    INSERT = "insert"
    UPSERT = "upsert"
    DELETE = "delete"
    KEY_VIOLATION = "key_violation"


class KeyedEnvelope(Envelope):
    """ENVELOPE UPSERT, or with `before` ENVELOPE DEBEZIUM: one row for each changed key, sorted by key."""

    def __init__(self, relation: tuple[Field, ...], keys: tuple[int, ...], *, before: bool, progress: bool) -> None:
        """`keys`: positions of the key columns in the relation, in the order of the KEY clause."""
        self._keys = keys
        self._values = tuple(i for i in range(len(relation)) if i not in keys)
        self._before = before
        values = [replace(relation[i], nullable=True) for i in self._values]
        if before:
            values = [replace(f, name=f"{side}_{f.name}") for side in ("before", "after") for f in values]
        fields = (Field("mz_state", TEXT, False), *(relation[i] for i in keys), *values)
        super().__init__(fields, ("debezium" if before else "upsert", keys), progress=progress)

    async def sort_columns(self, changes: pa.Table) -> tuple[pa.Table, SortColumns]:
        return changes, [(changes.column(key), SortKey()) for key in self._keys]

    async def columns(self, changes: pa.Table) -> list[pa.ChunkedArray]:
        if changes.num_rows < THREAD_ROWS:
            return self._columns(changes)
        return await asyncio.to_thread(self._columns, changes)

    def _columns(self, changes: pa.Table) -> list[pa.ChunkedArray]:
        rows, diffs = updates.rows_of(changes), changes[updates.DIFF].to_numpy()
        ranks = [codes(rows.column(key)) for key in self._keys]
        order = sorted_rows(ranks)
        starts = np.flatnonzero(_differs(ranks, order))
        counts = np.diff(np.append(starts, len(order)))
        first, second = order[starts], order[np.minimum(starts + 1, len(order) - 1)]
        lone = counts == 1
        inserted, deleted = lone & (diffs[first] == 1), lone & (diffs[first] == -1)
        pair = (counts == 2) & (np.abs(diffs[first]) == 1) & (diffs[first] == -diffs[second])
        state = np.full(len(starts), State.KEY_VIOLATION, dtype=object)
        state[inserted] = State.INSERT if self._before else State.UPSERT
        state[deleted] = State.DELETE
        state[pair] = State.UPSERT
        new = pa.array(np.where(pair & (diffs[second] == 1), second, first), mask=~(inserted | pair))
        old = pa.array(np.where(pair & (diffs[second] == -1), second, first), mask=~(deleted | pair))
        keys = [rows.column(key).take(pa.array(first)) for key in self._keys]
        sides = (old, new) if self._before else (new,)
        values = [rows.column(value).take(side) for side in sides for value in self._values]
        return [pa.chunked_array([pa.array(state.tolist(), pa.string())]), *keys, *values]


def _differs(ranks: Sequence[np.ndarray], order: np.ndarray) -> np.ndarray:
    """For each row in `order`: whether its key differs from the previous row's. True for the first row."""
    differs = np.zeros(len(order), np.bool_)
    differs[:1] = True
    for rank in ranks:
        differs[1:] |= rank[order][1:] != rank[order][:-1]
    return differs
