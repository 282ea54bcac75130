"""Small tables with random histories, and queries over them: maintained incrementally, and run from scratch."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from typing import Any

import pyarrow as pa

from catalog import updates
from catalog.ids import ObjectId, Timestamp
from catalog.objects.tables import Table
from catalog.state import CatalogState
from protocol.pgwire.types import parse_type
from server.dataflow.arrangements.arrangement import Arranger
from server.dataflow.arrangements.shared import SharedArrangements
from server.dataflow.plan.lowering import delta_plan
from server.dataflow.runtime.incremental import IncrementalComputation
from server.spark import Engine
from server.sql.constant import Bindings
from server.sql.plan import QueryPlan
from server.sql.rewrite import rewritten
from server.timeline.frontiers import Frontiers
from tests.server.states import planned_for_maintenance, state_with_tables

TABLES = {
    "t": {"k": "int4", "v": "int4", "s": "text"},
    "u": {"k": "int4", "w": "numeric(10,2)", "f": "float8"},
    "w": {"k": "int8", "x": "int4", "d": "date"},
}
_VALUES: dict[str, Sequence[Any]] = {
    "k": (None, 1, 1, 2, 2, 3, 4),
    "v": (None, -3, 0, 1, 2, 2, 7),
    "x": (None, 0, 1, 2, 3, 5),
    "s": (None, "", "a", "a", "b", "ab"),
    "w": (None, Decimal("-1.50"), Decimal("0.00"), Decimal("2.25"), Decimal("10.10")),
    "f": (None, -0.5, 0.0, 0.25, 1.5, 4.0),  # their sums are exact, in any order
    "d": (None, 19_000, 19_001, 19_031),
}


@cache
def state() -> CatalogState:
    return state_with_tables(TABLES)


@cache
def ids() -> dict[str, ObjectId]:
    return {item.name: item.id for item in state().items.values() if isinstance(item, Table)}


def planned(sql: str) -> QueryPlan:
    return planned_for_maintenance(sql, state())


@dataclass
class History:
    """The updates of the tables. `changes_of` has the changes of each table, in order of time."""

    changes_of: dict[ObjectId, list[tuple[Timestamp, pa.Table]]] = field(default_factory=dict)

    def is_logged(self, id: ObjectId) -> bool:
        return True

    def change_times(self, id: ObjectId, lower: int, upper: int) -> list[Timestamp]:
        return [time for time, _ in self.changes_of.get(id, []) if lower <= time < upper]

    def log_row_count(self, id: ObjectId, lower: int = 0, upper: int | None = None) -> int:
        found = self.changes_of.get(id, [])
        return sum(changes.num_rows for time, changes in found if lower <= time and (upper is None or time < upper))

    async def changes(self, id: ObjectId, lower: int, upper: int) -> pa.Table:
        found = [changes for time, changes in self.changes_of.get(id, []) if lower <= time < upper]
        return updates.consolidate(pa.concat_tables([empty_changes(id), *found]))

    def check_errors(self, ids: Iterable[ObjectId], times: Iterable[Timestamp]) -> None:
        """No collection has an error."""

    async def check(self, id: ObjectId, lower: int, time: Timestamp) -> None:
        await self.rows(id, time)

    async def rows(self, id: ObjectId, as_of: Timestamp) -> pa.Table:
        return updates.expand(await self.changes(id, 0, as_of + 1))


def schema_of(id: ObjectId) -> pa.Schema:
    item = state().items[id]
    assert isinstance(item, Table)
    return updates.rows_schema([parse_type(column.type).arrow for column in item.columns])


def empty_changes(id: ObjectId) -> pa.Table:
    return updates.with_diff(schema_of(id).empty_table(), 1)


def random_row(name: str, dice: random.Random) -> tuple[Any, ...]:
    return tuple(dice.choice(_VALUES[column]) for column in TABLES[name])


def random_history(seed: int, times: int, rows: int = 12, *, skewed: bool = False) -> History:
    """At time 1 the tables are filled. At each later time, rows of some tables are inserted, deleted and updated.

    `skewed`: about two thirds of the rows have the same key.
    """
    dice = random.Random(seed)

    def value(column: str) -> Any:
        return 2 if skewed and column == "k" and dice.random() < 0.5 else dice.choice(_VALUES[column])

    history = History()
    present: dict[str, list[tuple[Any, ...]]] = {name: [] for name in TABLES}
    for time in range(1, times + 1):
        for name, columns in TABLES.items():
            if time > 1 and dice.random() < 0.35:
                continue
            lines: list[tuple[tuple[Any, ...], int]] = []
            own = present[name]
            for _ in range(dice.randrange(len(own) // 3 + 1) if time > 1 else 0):
                gone = own.pop(dice.randrange(len(own)))
                lines.append((gone, -1))
                if dice.random() < 0.4:  # an update of one column
                    place = dice.randrange(len(columns))
                    new = (*gone[:place], value(list(columns)[place]), *gone[place + 1 :])
                    own.append(new)
                    lines.append((new, 1))
            for _ in range(rows if time == 1 else dice.randrange(4)):
                new = tuple(map(value, columns))
                own.append(new)
                lines.append((new, 1))
                if dice.random() < 0.2:
                    own.append(new)
                    lines.append((new, 1))
            if time > 1 and dice.random() < 0.05:  # delete all rows
                lines += [(row, -1) for row in own]
                own.clear()
            history.changes_of.setdefault(ids()[name], []).append((Timestamp(time), changes_table(name, lines)))
    return history


def changes_table(name: str, lines: Sequence[tuple[tuple[Any, ...], int]]) -> pa.Table:
    schema = schema_of(ids()[name])
    columns = [pa.array([row[i] for row, _ in lines], pa.int32() if t == pa.date32() else t).cast(t)
               for i, t in enumerate(schema.types)]  # fmt: skip
    rows = pa.table(columns, schema=schema)
    diffs = pa.array([diff for _, diff in lines], pa.int64())
    return updates.consolidate(rows.append_column(updates.DIFF_FIELD, diffs))


def followed(plan: QueryPlan, history: History, engine: Engine, storage: Arranger) -> IncrementalComputation:
    """Returns the incremental computation of a query. NoRule if an operator has no delta rule."""
    root = delta_plan(rewritten(plan.relation), plan.inputs)
    return IncrementalComputation(root, plan, history, engine, SharedArrangements(storage, Frontiers().hold_log))


async def from_scratch(plan: QueryPlan, history: History, engine: Engine, time: int) -> pa.Table:
    """Returns the query's rows at a time. Spark computes them by the plan before any rewrite."""
    views = {id: await history.rows(id, Timestamp(time)) for id in plan.inputs}
    schema = updates.rows_schema([field.type.arrow for field in plan.columns])
    return (await engine.run(plan.spark_sql(Bindings(mz_now=time)), views)).rename_columns(schema.names).cast(schema)
