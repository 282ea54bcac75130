"""A source of PostgreSQL tables on a coordinator without Spark, and comparisons with PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pyarrow as pa

from catalog.ids import ObjectId, Timestamp
from catalog.objects.tables import Table
from catalog.source_definition import ForTables
from server.coordinator.committer import Request
from server.coordinator.coordinator import Coordinator
from server.ingest.ingestion import Ingestion
from server.ingest.postgres.kind import PostgresSource
from server.ingest.source_definition import Output, SourceDefinition, Target
from server.ingest.source_kind import SourceContext, Statistics
from server.runtime.metrics import Metrics
from tests.server.slow_engine import PassingEngine

SOURCE = Table(ObjectId("u10"), ObjectId("u2"), "source", ())
"""Represents the source, which has a position and no rows."""

EVERYTHING = ForTables(all=True)


def definition(dsn: str, tables: ForTables = EVERYTHING, **options: str) -> SourceDefinition:
    """The source over publication `pub` of the database. Options: those of the source, with `_` for spaces."""
    url = urlsplit(dsn)
    return SourceDefinition(
        "postgres",
        {"host": url.hostname or "", "port": str(url.port), "user": "postgres", "database": url.path[1:]},
        {"publication": "pub"} | {name.replace("_", " "): value for name, value in options.items()},
        tables=tables,
        identity=url.path[1:],
    )


def opened(directory: Path) -> Coordinator:
    return Coordinator(directory, engine=PassingEngine(), metrics=Metrics(), interval_s=0.01, system_tables={})


async def targets(coordinator: Coordinator, source: SourceDefinition) -> list[Target]:
    """The outputs of the source, as tables that are created if they do not exist."""
    found = []
    for output in await PostgresSource().outputs(source):
        by_name = {item.name: item for item in coordinator.state.items.values() if isinstance(item, Table)}
        if SOURCE.name not in by_name:
            await _created(coordinator, SOURCE)
        if output.name not in by_name:
            number = max([10, *(int(id[1:]) for id in coordinator.state.items if id.startswith("u"))]) + 1
            await _created(
                coordinator, Table(ObjectId(f"u{number}"), ObjectId("u2"), output.name, output.columns, retain_ms=0)
            )
        by_name = {item.name: item for item in coordinator.state.items.values() if isinstance(item, Table)}
        table = by_name[output.name]
        found.append(Target(table.id, replace(output, columns=table.columns)))
    return found


async def _created(coordinator: Coordinator, table: Table) -> None:
    before = coordinator.state
    after = replace(before.with_item(table), version=before.version + 1)
    await coordinator.commit(Request(catalog=(before, after)))


class Source:
    """A running source."""

    def __init__(
        self, coordinator: Coordinator, ingestion: Ingestion, statistics: Statistics, targets: Sequence[Target]
    ) -> None:
        self.coordinator, self.ingestion, self.statistics = coordinator, ingestion, statistics
        self.ids = {target.output.name: target.id for target in targets}
        self.references = {target.output.name: target.output.reference for target in targets}

    async def until(self, condition: Callable[[], bool]) -> None:
        """Waits for a condition."""
        while not condition():
            assert self.ingestion.status != "failed", self.ingestion.error
            await self.coordinator.frontiers.moved.wait()

    async def reached(self, connection: Any) -> None:
        """Waits until everything that is committed in PostgreSQL is here."""
        end = int(await connection.fetchval("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"))
        await self.until(lambda: (self.statistics.offset_committed or 0) >= end)

    async def rows(self, name: str, time: Timestamp | None = None) -> list[tuple[object, ...]]:
        """The rows of a collection, sorted by their representation; by default the latest."""
        return ordered(await self.table(name, time))

    async def table(self, name: str, time: Timestamp | None = None) -> pa.Table:
        return await self.coordinator.reads.rows(self.ids[name], time or self.coordinator.latest_time())

    def times(self, name: str) -> list[Timestamp]:
        """The times at which a collection changed."""
        return self.coordinator.log.times(self.ids[name], 0, 1 << 62)

    async def same(self, connection: Any, name: str) -> None:
        """The collection has the rows of its table."""
        expected = await connection.fetch(f"SELECT * FROM {self.references[name]}")
        assert await self.rows(name) == sorted((tuple(row.values()) for row in expected), key=repr)


def ordered(table: pa.Table) -> list[tuple[object, ...]]:
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True), key=repr)


@asynccontextmanager
async def running(directory: Path, source: SourceDefinition, also: Sequence[str] = ()) -> AsyncIterator[Source]:
    """A coordinator in `directory` with the running source. `also`: existing tables of the source that it has, too."""
    coordinator = opened(directory)
    await coordinator.start()
    try:
        found = await targets(coordinator, source)
        for table in coordinator.state.items.values():
            if isinstance(table, Table) and table.name in also:
                found.append(Target(table.id, Output(f"public.{table.name}", table.name, table.columns)))
        statistics = Statistics()
        context = SourceContext(SOURCE.id, coordinator, PassingEngine(), statistics)  # type: ignore[arg-type]
        ingestion = Ingestion(SOURCE.id, PostgresSource().upstream(source, found, context), coordinator, retry_s=0.01)
        task = asyncio.create_task(ingestion.run())
        try:
            yield Source(coordinator, ingestion, statistics, found)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    finally:
        await coordinator.close()


@asynccontextmanager
async def database(dsn: str, name: str) -> AsyncIterator[tuple[str, Any]]:
    """A new database with publication `pub` FOR ALL TABLES: its DSN and a connection."""
    admin = await asyncpg.connect(dsn)
    await admin.execute(f"CREATE DATABASE {name}")
    own = dsn.rsplit("/", 1)[0] + f"/{name}"
    connection = await asyncpg.connect(own)
    try:
        yield own, connection
    finally:
        await connection.close()
        await admin.execute(
            f"SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active AND database = '{name}'"
        )
        for _ in range(1_000):
            rows = await admin.fetch("SELECT slot_name, active FROM pg_replication_slots WHERE database = $1", name)
            for row in rows:
                if not row["active"]:
                    await admin.execute(f"SELECT pg_drop_replication_slot('{row['slot_name']}')")
            if not rows:
                break
            await asyncio.sleep(0.01)
        await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
        await admin.close()
