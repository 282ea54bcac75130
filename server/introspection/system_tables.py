"""The rows of the system tables, computed from the server's memory when they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from catalog import builtin, updates
from catalog.acls import acl_items
from catalog.ids import ObjectId
from catalog.objects.clusters import QUICKSTART
from catalog.objects.connections import Connection
from catalog.objects.holds import Hold
from catalog.objects.indexes import Index
from catalog.objects.kinds import object_type
from catalog.objects.relations import DerivedRelation, Relation, Retained
from catalog.objects.secrets import NamedSecret
from catalog.objects.sinks import Sink
from catalog.objects.sources import Source, SourceOutput, SourcePart, SourceTable
from catalog.objects.system_tables import SystemTable
from catalog.objects.tables import Table
from catalog.objects.views import MaterializedView, View
from catalog.state import CatalogState
from protocol.pgwire.types import parse_type
from server.coordinator.coordinator import Coordinator, SystemSource
from server.execution.times import interval_of_ms
from server.introspection.dataflow_tables import (
    arrangements,
    dataflows,
    hydration_statuses,
    lags,
    operators,
    step_durations,
)
from server.sql.stored_query import definition
from server.timeline.frontiers import RETENTION_MS


def _table(definition: SystemTable, rows: Iterable[tuple[object, ...]]) -> pa.Table:
    types = [parse_type(column.type).arrow for column in definition.columns]
    columns = list(zip(*rows, strict=True)) or [() for _ in types]
    arrays = [pa.array(values).cast(t) if values else pa.array([], t) for values, t in zip(columns, types, strict=True)]
    return pa.table(arrays, schema=updates.rows_schema(types))


def _owned(state: CatalogState, id: ObjectId) -> tuple[object, object]:
    """Returns the columns owner_id and privileges."""
    owner = state.owner(id)
    return owner, acl_items(state.acl(id))


def _databases(coordinator: Coordinator) -> pa.Table:
    state = coordinator.state
    return _table(builtin.MZ_DATABASES, ((d.id, d.name, *_owned(state, d.id)) for d in state.databases.values()))


def _schemas(coordinator: Coordinator) -> pa.Table:
    state = coordinator.state
    rows = ((s.id, s.database_id, s.name, *_owned(state, s.id)) for s in state.schemas.values())
    return _table(builtin.MZ_SCHEMAS, rows)


def _objects(coordinator: Coordinator) -> pa.Table:
    state = coordinator.state
    rows = ((i.id, i.schema_id, i.name, object_type(i.kind), *_owned(state, i.id)) for i in state.items.values())
    return _table(builtin.MZ_OBJECTS, rows)


def _roles(coordinator: Coordinator) -> pa.Table:
    roles = coordinator.state.roles.values()
    return _table(builtin.MZ_ROLES, ((r.id, r.name, r.inherit, r.login, r.superuser, r.create_db) for r in roles))


def _role_members(coordinator: Coordinator) -> pa.Table:
    return _table(builtin.MZ_ROLE_MEMBERS, coordinator.state.memberships)


def _columns(coordinator: Coordinator) -> pa.Table:
    return _table(
        builtin.MZ_COLUMNS,
        (
            (item.id, column.name, position, column.nullable, parse_type(column.type).display, column.default)
            for item in coordinator.state.items_of(Relation)
            for position, column in enumerate(item.columns, start=1)
        ),
    )


def _tables(coordinator: Coordinator) -> pa.Table:
    state = coordinator.state
    tables = (item for item in state.items.values() if item.plural == Table.plural)
    return _table(builtin.MZ_TABLES, ((t.id, t.schema_id, t.name, *_owned(state, t.id)) for t in tables))


def _views(coordinator: Coordinator) -> pa.Table:
    state = coordinator.state
    return _table(builtin.MZ_VIEWS, _derived(state, View))


def _materialized_views(coordinator: Coordinator) -> pa.Table:
    state = coordinator.state
    return _table(builtin.MZ_MATERIALIZED_VIEWS, _derived(state, MaterializedView))


def _derived(state: CatalogState, kind: type[DerivedRelation]) -> Iterator[tuple[object, ...]]:
    return ((v.id, v.schema_id, v.name, definition(v, state), *_owned(state, v.id)) for v in state.items_of(kind))


def _indexes(coordinator: Coordinator) -> pa.Table:
    state = coordinator.state
    rows = ((i.id, i.name, i.on, ", ".join(i.keys), state.owner(i.id)) for i in state.items_of(Index))
    return _table(builtin.MZ_INDEXES, rows)


def _sources(coordinator: Coordinator) -> pa.Table:
    state = coordinator.state
    return _table(builtin.MZ_SOURCES, (_source(state, item) for item in state.items_of(SourceOutput)))


def _source(state: CatalogState, item: SourceOutput) -> tuple[object, ...]:
    format = item.format if isinstance(item, Source | SourceTable) else None
    key, value = (format.key, format.value) if format is not None else (None, None)
    return (
        item.id,
        item.schema_id,
        item.name,
        item.system.replace(" ", "-") if isinstance(item, Source) else object_type(item.kind),
        item.connection if isinstance(item, Source) else None,
        item.source if isinstance(item, SourcePart) else None,
        item.reference or None,
        format.envelope.value if format is not None else None,
        key.name if key is not None else None,
        value.name if value is not None else None,
        *_owned(state, item.id),
    )


def _connections(coordinator: Coordinator) -> pa.Table:
    state = coordinator.state
    connections = state.items_of(Connection)
    rows = ((c.id, c.schema_id, c.name, c.system.replace(" ", "-"), *_owned(state, c.id)) for c in connections)
    return _table(builtin.MZ_CONNECTIONS, rows)


def _secrets(coordinator: Coordinator) -> pa.Table:
    state = coordinator.state
    secrets = state.items_of(NamedSecret)
    return _table(builtin.MZ_SECRETS, ((s.id, s.schema_id, s.name, *_owned(state, s.id)) for s in secrets))


def _sinks(coordinator: Coordinator) -> pa.Table:
    state = coordinator.state
    rows = (
        (s.id, s.schema_id, s.name, s.system, s.on, *_envelope_and_format(s), state.owner(s.id))
        for s in state.items_of(Sink)
    )
    return _table(builtin.MZ_SINKS, rows)


def _envelope_and_format(sink: Sink) -> tuple[str | None, str | None]:
    if sink.format is None:
        return None, None
    return sink.format.envelope.value, sink.format.value.name if sink.format.value is not None else None


def _frontiers(coordinator: Coordinator) -> pa.Table:
    items = coordinator.state.items
    frontiers = (
        (id, *map(int, pair))
        for id, pair in coordinator.frontiers.table().items()
        if isinstance(items.get(id), Retained)
    )
    return _table(builtin.MZ_FRONTIERS, frontiers)


def _clusters(coordinator: Coordinator) -> pa.Table:
    return _table(builtin.MZ_CLUSTERS, [(QUICKSTART.id, QUICKSTART.name)])


def _holds(coordinator: Coordinator) -> pa.Table:
    positions = coordinator.holds.positions
    holds = [item for item in coordinator.state.items.values() if isinstance(item, Hold)]
    return _table(
        builtin.MZ_HOLDS,
        (
            (
                h.id,
                h.schema_id,
                h.name,
                int(positions[h.id].at),
                interval_of_ms(h.max_lag_ms),
                positions[h.id].status.value,
            )
            for h in holds
        ),
    )


def _hold_objects(coordinator: Coordinator) -> pa.Table:
    holds = coordinator.state.items_of(Hold)
    return _table(builtin.MZ_HOLD_OBJECTS, ((hold.id, id) for hold in holds for id in hold.on))


def _comments(coordinator: Coordinator) -> pa.Table:
    state = coordinator.state
    return _table(
        builtin.MZ_COMMENTS,
        (
            (id, object_type(state.object(id).kind), position or None, comment)
            for (id, position), comment in state.comments.items()
        ),
    )


def _retention(coordinator: Coordinator) -> pa.Table:
    retained = coordinator.state.items_of(Retained)
    return _table(
        builtin.MZ_HISTORY_RETENTION_STRATEGIES,
        ((i.id, "FOR", str(RETENTION_MS if i.retain_ms is None else i.retain_ms)) for i in retained),
    )


def _subscriptions(coordinator: Coordinator) -> pa.Table:
    entries = coordinator.activity.subscriptions.values()
    return _table(
        builtin.MZ_SUBSCRIPTIONS,
        ((s.id, s.session_id, QUICKSTART.id, s.created_us, list(s.references)) for s in entries),
    )


def _sessions(coordinator: Coordinator) -> pa.Table:
    entries = coordinator.activity.sessions.values()
    return _table(builtin.MZ_SESSIONS, ((s.id, s.process_id, s.user, s.client_ip, s.connected_us) for s in entries))


def _catalog(rows: Callable[[Coordinator], pa.Table]) -> SystemSource:
    return SystemSource(rows, lambda coordinator: coordinator.state.version)


def _interval(coordinator: Coordinator) -> int:
    return int(coordinator.frontiers.tables_upper / (coordinator.interval_s * 1_000))


def moving(definition: SystemTable, rows: Callable[[Coordinator], Iterable[tuple[object, ...]]]) -> SystemSource:
    """A table that may change with every commit. It is computed again at most once per interval."""
    return SystemSource(lambda coordinator: _table(definition, rows(coordinator)), _interval)


SYSTEM_TABLES: dict[ObjectId, SystemSource] = {
    builtin.MZ_DATABASES.id: _catalog(_databases),
    builtin.MZ_SCHEMAS.id: _catalog(_schemas),
    builtin.MZ_OBJECTS.id: _catalog(_objects),
    builtin.MZ_COLUMNS.id: _catalog(_columns),
    builtin.MZ_TABLES.id: _catalog(_tables),
    builtin.MZ_VIEWS.id: _catalog(_views),
    builtin.MZ_MATERIALIZED_VIEWS.id: _catalog(_materialized_views),
    builtin.MZ_INDEXES.id: _catalog(_indexes),
    builtin.MZ_ROLES.id: _catalog(_roles),
    builtin.MZ_ROLE_MEMBERS.id: _catalog(_role_members),
    builtin.MZ_HOLDS.id: SystemSource(
        _holds, lambda coordinator: (coordinator.state.version, coordinator.holds.revision)
    ),
    builtin.MZ_HOLD_OBJECTS.id: _catalog(_hold_objects),
    builtin.MZ_COMMENTS.id: _catalog(_comments),
    builtin.MZ_HISTORY_RETENTION_STRATEGIES.id: _catalog(_retention),
    builtin.MZ_CLUSTERS.id: _catalog(_clusters),
    builtin.MZ_SOURCES.id: _catalog(_sources),
    builtin.MZ_CONNECTIONS.id: _catalog(_connections),
    builtin.MZ_SECRETS.id: _catalog(_secrets),
    builtin.MZ_SINKS.id: _catalog(_sinks),
    # These change with every commit. Their revision changes once per interval, to limit how often they are computed.
    builtin.MZ_FRONTIERS.id: SystemSource(_frontiers, _interval),
    builtin.MZ_DATAFLOWS.id: moving(builtin.MZ_DATAFLOWS, dataflows),
    builtin.MZ_ARRANGEMENTS.id: moving(builtin.MZ_ARRANGEMENTS, arrangements),
    builtin.MZ_DATAFLOW_LAGS.id: moving(builtin.MZ_DATAFLOW_LAGS, lags),
    builtin.MZ_DATAFLOW_OPERATORS.id: moving(builtin.MZ_DATAFLOW_OPERATORS, operators),
    builtin.MZ_DATAFLOW_STEP_DURATIONS_HISTOGRAM.id: moving(
        builtin.MZ_DATAFLOW_STEP_DURATIONS_HISTOGRAM, step_durations
    ),
    builtin.MZ_HYDRATION_STATUSES.id: moving(builtin.MZ_HYDRATION_STATUSES, hydration_statuses),
    builtin.MZ_SUBSCRIPTIONS.id: SystemSource(
        _subscriptions, lambda coordinator: coordinator.activity.subscriptions_revision
    ),
    builtin.MZ_SESSIONS.id: SystemSource(_sessions, lambda coordinator: coordinator.activity.sessions_revision),
}
