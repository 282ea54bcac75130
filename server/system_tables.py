"""The rows of the built-in tables, made from the server's memory when they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa

from catalog import builtin, updates
from catalog.objects import ObjectId, SystemTable
from protocol.pgwire.types import parse_type
from server.coordinator import Coordinator


def _table(definition: SystemTable, rows: Iterable[tuple[object, ...]]) -> pa.Table:
    types = [parse_type(column.type).arrow for column in definition.columns]
    columns = list(zip(*rows, strict=True)) or [() for _ in types]
    arrays = [pa.array(values).cast(t) if values else pa.array([], t) for values, t in zip(columns, types, strict=True)]
    return pa.table(arrays, schema=updates.rows_schema(types))


def _databases(coordinator: Coordinator) -> pa.Table:
    return _table(builtin.MZ_DATABASES, ((d.id, d.name) for d in coordinator.state.databases.values()))


def _schemas(coordinator: Coordinator) -> pa.Table:
    return _table(builtin.MZ_SCHEMAS, ((s.id, s.database_id, s.name) for s in coordinator.state.schemas.values()))


def _objects(coordinator: Coordinator) -> pa.Table:
    items = coordinator.state.items.values()
    return _table(builtin.MZ_OBJECTS, ((i.id, i.schema_id, i.name, i.kind.replace(" ", "-")) for i in items))


def _columns(coordinator: Coordinator) -> pa.Table:
    return _table(
        builtin.MZ_COLUMNS,
        (
            (item.id, column.name, position, column.nullable, parse_type(column.type).display, column.default)
            for item in coordinator.state.items.values()
            for position, column in enumerate(item.columns, start=1)
        ),
    )


def _frontiers(coordinator: Coordinator) -> pa.Table:
    frontiers = coordinator.frontiers.table().items()
    return _table(builtin.MZ_FRONTIERS, ((id, int(since), int(upper)) for id, (since, upper) in frontiers))


SYSTEM_TABLES: dict[ObjectId, Callable[[Coordinator], pa.Table]] = {
    builtin.MZ_DATABASES.id: _databases,
    builtin.MZ_SCHEMAS.id: _schemas,
    builtin.MZ_OBJECTS.id: _objects,
    builtin.MZ_COLUMNS.id: _columns,
    builtin.MZ_FRONTIERS.id: _frontiers,
}
