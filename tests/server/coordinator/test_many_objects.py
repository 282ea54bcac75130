"""The cost of a definition in a catalog with many objects."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import FrameType

from catalog.drops import without_item
from catalog.ids import ObjectId
from catalog.keys import Key
from catalog.objects.columns import Column
from catalog.objects.tables import Table
from catalog.state import CatalogState
from server.coordinator.committer import Request
from server.coordinator.coordinator import Coordinator
from server.runtime.metrics import Metrics
from tests.server.slow_engine import PassingEngine

CALLS_MAX = 6
"""Of Python functions, for each object that a CREATE TABLE and a DROP TABLE do not concern."""


async def calls_of_definitions(directory: Path, tables: int) -> int:
    """The calls of Python functions while a table is created and another one dropped, with `tables` others."""
    coordinator = Coordinator(directory, engine=PassingEngine(), metrics=Metrics(), interval_s=60, system_tables={})
    await coordinator.start()
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    async def commit(after: CatalogState) -> None:
        before = coordinator.state
        after = replace(after, version=before.version + 1).settled(before, ObjectId("u1"))
        await coordinator.commit(Request(catalog=(before, after)))

    try:
        state = coordinator.state
        made = {table.id: table for table in map(_table, range(tables + 1))}
        await commit(replace(state, items={**state.items, **made}))
        sys.setprofile(count)
        await commit(coordinator.state.with_item(_table(tables + 1)))
        await commit(without_item(coordinator.state, _table(0).id))
    finally:
        sys.setprofile(None)
        await coordinator.close()
    return calls


def _table(number: int) -> Table:
    columns = (Column("k", "int4", nullable=False), Column("v", "text", default="'a'"))
    return Table(
        ObjectId(f"u{100 + number}"), ObjectId("u2"), f"t{number}", columns, (Key(1, "pk", ("k",), is_primary=True),)
    )


async def test_a_definition_looks_at_each_other_object_a_few_times(tmp_path: Path) -> None:
    few = await calls_of_definitions(tmp_path / "few", 100)
    many = await calls_of_definitions(tmp_path / "many", 1_100)
    assert (many - few) / 1_000 <= CALLS_MAX
