"""`python -m tests.server.ingest.source_child DIRECTORY COUNT`: load generators until COUNT ticks are written."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

from catalog.ids import ObjectId
from catalog.objects.catalog_object import Item
from catalog.objects.columns import Column
from catalog.objects.sources import Source, Subsource
from catalog.source_definition import Envelope, Format
from server.coordinator.committer import Request
from server.coordinator.coordinator import Coordinator
from server.ingest.sources import Sources
from tests.server.ingest.child import opened
from tests.server.slow_engine import PassingEngine

SCHEMA = ObjectId("u2")


def items(count: int) -> list[Item]:
    """A counter, the keys and values of an upsert source, and two of the tables of an auction."""
    ticks = {"tick interval": "100us", "up to": str(count)}
    counter = Source(
        ObjectId("u10"),
        SCHEMA,
        "counter",
        (Column("counter", "int8"),),
        "counter",
        system="load generator",
        options={"generator": "counter", **ticks},
    )
    columns = (Column("partition", "int4"), Column("key", "int8"), Column("value", "bytea"))
    keys = replace(
        counter,
        id=ObjectId("u11"),
        name="keys",
        columns=columns,
        reference="key_value",
        format=Format(envelope=Envelope.UPSERT),
        options={"generator": "key value", "keys": "13", "batch size": "3", **ticks},
    )
    auction = replace(
        counter,
        id=ObjectId("u12"),
        name="auction",
        columns=(),
        reference="",
        options={"generator": "auction", **ticks},
    )
    organizations = Subsource(
        ObjectId("u13"),
        SCHEMA,
        "organizations",
        (Column("id", "int8"), Column("name", "text")),
        "organizations",
        source=auction.id,
    )
    bids = replace(
        organizations,
        id=ObjectId("u14"),
        name="bids",
        columns=(
            Column("id", "int8"),
            Column("buyer", "int8"),
            Column("auction_id", "int8"),
            Column("amount", "int4"),
            Column("bid_time", "timestamptz"),
        ),
        reference="bids",
    )
    return [counter, keys, auction, organizations, bids]


async def define(coordinator: Coordinator, created: list[Item]) -> None:
    before = coordinator.state
    after = replace(before, version=before.version + 1)
    for item in created:
        if item.id not in before.items:
            after = after.with_item(item)
    await coordinator.commit(Request(catalog=(before, after)))


async def main(directory: Path, count: int) -> None:
    coordinator = opened(directory)
    await coordinator.start()
    await define(coordinator, items(count))
    sources = Sources(coordinator, PassingEngine())
    sources.start()
    while not all(is_complete(coordinator, item.id, count) for item in items(count) if item.name != "auction"):
        await coordinator.frontiers.moved.wait()
    await sources.close()
    await coordinator.close()


def is_complete(coordinator: Coordinator, id: ObjectId, count: int) -> bool:
    """Whether all ticks of a collection are written."""
    source = coordinator.state.items[id]
    owner = source.source if isinstance(source, Subsource) else id
    found = coordinator.store.read("SELECT value FROM source_state WHERE id = ? AND key = ?", (owner, id))
    return bool(found) and int(found[0][0]) == count + (0 if source.name == "counter" else 1)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
