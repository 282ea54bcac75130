"""Dataflows at rest, which have processed all changes of their inputs that may concern them.

A dataflow at rest has no work to do in a commit that does not concern it. Its `upper` is the least `upper` of its
inputs, which costs nothing: for a materialized view `Frontiers` derives it. `written` is called before `upper` of an
input passes a change, and wakes the dataflows that the change may concern, so that none of them skips it:

    at rest from `upper` on  =>  no change at a time in [upper, least upper of the inputs) affects the result
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from catalog.ids import ObjectId
from server.dataflow.plan.relevance import KeyValues

ROWS_MAX = 8_192  # of changes that are examined; larger changes concern every dataflow that reads the collection


class Dataflow(Protocol):
    """The part of a dataflow's interface that this module uses."""

    @property
    def inputs(self) -> frozenset[ObjectId]: ...

    @property
    def relevant(self) -> Mapping[ObjectId, Sequence[KeyValues]]:
        """As `Computation.relevant`."""
        ...

    @property
    def derives_upper(self) -> bool:
        """Whether `upper` needs no `close_times`."""
        ...

    def wake(self) -> None:
        """Ends the rest, if it rests, at the current `upper` of its inputs."""
        ...

    def close_times(self) -> None:
        """Advances the sink to the least `upper` of the inputs, if it rests."""
        ...


class _Key:
    """The dataflows that only rows with certain values in one column concern."""

    def __init__(self, type: pa.DataType) -> None:
        self._type = _compared(type)
        self._dataflows: dict[Any, dict[Dataflow, None]] = {}
        self._values: pa.Array | None = None  # of `_dataflows`; None if they have changed

    def add(self, dataflow: Dataflow, values: pa.Array) -> None:
        for value in values.cast(self._type).to_pylist():
            self._dataflows.setdefault(value, {})[dataflow] = None
        self._values = None

    def remove(self, dataflow: Dataflow, values: pa.Array) -> None:
        for value in values.cast(self._type).to_pylist():
            dataflows = self._dataflows.get(value, {})
            dataflows.pop(dataflow, None)
            if not dataflows:
                self._dataflows.pop(value, None)
        self._values = None

    def concerned(self, column: pa.ChunkedArray) -> Iterator[Dataflow]:
        if self._values is None:
            self._values = pa.array([*self._dataflows], self._type)
        changed = column.cast(self._type).unique()
        for value in changed.filter(pc.is_in(changed, value_set=self._values)).to_pylist():
            yield from self._dataflows.get(value, ())


def _compared(type: pa.DataType) -> pa.DataType:
    """A type with the same equality whose values all have a Python value."""
    return pa.int64() if pa.types.is_timestamp(type) else pa.int32() if pa.types.is_date32(type) else type


class _Readers:
    """The dataflows that read one collection."""

    def __init__(self) -> None:
        self.all: dict[Dataflow, None] = {}
        self.closed: dict[Dataflow, None] = {}  # those that need `close_times`
        self._by_any_row: dict[Dataflow, None] = {}
        self._by_key: dict[int, _Key] = {}

    def add(self, dataflow: Dataflow, conditions: Sequence[KeyValues] | None) -> None:
        self.all[dataflow] = None
        if not dataflow.derives_upper:
            self.closed[dataflow] = None
        if conditions is None:
            self._by_any_row[dataflow] = None
        for condition in conditions or ():
            self._by_key.setdefault(condition.column, _Key(condition.values.type)).add(dataflow, condition.values)

    def remove(self, dataflow: Dataflow, conditions: Sequence[KeyValues] | None) -> None:
        self.all.pop(dataflow, None)
        self.closed.pop(dataflow, None)
        self._by_any_row.pop(dataflow, None)
        for condition in conditions or ():
            self._by_key[condition.column].remove(dataflow, condition.values)

    def concerned(self, tables: Sequence[pa.Table]) -> Iterable[Dataflow]:
        """The dataflows that the changes may concern."""
        if sum(table.num_rows for table in tables) > ROWS_MAX:
            return self.all
        found = dict(self._by_any_row)
        for table in tables:
            for number, key in self._by_key.items():
                found.update(dict.fromkeys(key.concerned(table.column(number))))
        return found


class Resting:
    """Wakes dataflows. Those that are not at rest may be registered, too."""

    def __init__(self) -> None:
        self._readers: dict[ObjectId, _Readers] = {}
        self._relevant: dict[Dataflow, Mapping[ObjectId, Sequence[KeyValues]]] = {}

    def add(self, dataflow: Dataflow) -> None:
        """Registers a dataflow before it rests. Idempotent."""
        if dataflow not in self._relevant:
            relevant = self._relevant[dataflow] = dataflow.relevant
            for id in dataflow.inputs:
                self._readers.setdefault(id, _Readers()).add(dataflow, relevant.get(id))

    def remove(self, dataflow: Dataflow) -> None:
        """Removes a dataflow, which is not woken any more. Idempotent."""
        if (relevant := self._relevant.pop(dataflow, None)) is not None:
            for id in dataflow.inputs:
                self._readers[id].remove(dataflow, relevant.get(id))
                if not self._readers[id].all:
                    del self._readers[id]

    def written(self, id: ObjectId, tables: Sequence[pa.Table], *, all: bool) -> None:
        """Wakes the dataflows that changes of a collection may concern; with `all`, all that read it.

        Called before `upper` of the collection passes the time of the changes. `tables`: rows or changes.
        """
        readers = self._readers.get(id)
        if readers is not None:
            for dataflow in list(readers.all if all else readers.concerned(tables)):
                dataflow.wake()

    def close_times(self, ids: Iterable[ObjectId] | None = None) -> None:
        """Advances the sinks of dataflows at rest that read one of the collections, by default of all."""
        for id in list(self._readers) if ids is None else ids:
            if (readers := self._readers.get(id)) is not None:
                for dataflow in list(readers.closed):
                    dataflow.close_times()
