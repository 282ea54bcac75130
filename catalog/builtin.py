"""The built-in objects of every catalog: the system schemas and their tables.

Columns follow Materialize's tables of the same names, as far as Tidewire has the information. `mz_timestamp` is sent as
a numeric. `connection_id` is the process id of BackendKeyData. The role of a session is the user name that the client
sent. `server/introspection/system_tables.py` computes the rows.

`PG_TABLES` are PostgreSQL's system relations, with ids derived from PostgreSQL's OIDs. `server/pg_catalog` computes
their rows.
"""

from __future__ import annotations

from catalog.ids import ObjectId
from catalog.objects.columns import Column
from catalog.objects.namespaces import Schema
from catalog.objects.system_tables import SystemTable
from catalog.pg_catalog import RELATIONS

PG_CATALOG = Schema(ObjectId("s1"), None, "pg_catalog")
MZ_CATALOG = Schema(ObjectId("s2"), None, "mz_catalog")
MZ_INTERNAL = Schema(ObjectId("s3"), None, "mz_internal")
INFORMATION_SCHEMA = Schema(ObjectId("s4"), None, "information_schema")
SCHEMAS = (PG_CATALOG, MZ_CATALOG, MZ_INTERNAL, INFORMATION_SCHEMA)


def _table(id: str, schema: Schema, name: str, /, **columns: str) -> SystemTable:
    """`columns` are name=type pairs; a type that ends in `?` is nullable."""
    return SystemTable(
        ObjectId(id),
        schema.id,
        name,
        tuple(Column(c, type.removesuffix("?"), nullable=type.endswith("?")) for c, type in columns.items()),
    )


_OWNED = {"owner_id": "text", "privileges": "text[]"}
MZ_DATABASES = _table("s11", MZ_CATALOG, "mz_databases", id="text", name="text", **_OWNED)
MZ_SCHEMAS = _table("s12", MZ_CATALOG, "mz_schemas", id="text", database_id="text?", name="text", **_OWNED)
MZ_OBJECTS = _table("s13", MZ_CATALOG, "mz_objects", id="text", schema_id="text", name="text", type="text", **_OWNED)
MZ_COLUMNS = _table(
    "s14",
    MZ_CATALOG,
    "mz_columns",
    id="text",
    name="text",
    position="int8",
    nullable="bool",
    type="text",
    default="text?",
)
MZ_FRONTIERS = _table(
    "s15", MZ_INTERNAL, "mz_frontiers", object_id="text", read_frontier="mz_timestamp?", write_frontier="mz_timestamp?"
)
MZ_SUBSCRIPTIONS = _table(
    "s16",
    MZ_INTERNAL,
    "mz_subscriptions",
    id="text",
    session_id="uuid",
    cluster_id="text",
    created_at="timestamptz",
    referenced_object_ids="text[]",
)
MZ_SESSIONS = _table(
    "s17",
    MZ_INTERNAL,
    "mz_sessions",
    id="uuid",
    connection_id="int4",
    role_id="text",
    client_ip="text?",
    connected_at="timestamptz",
)
MZ_TABLES = _table("s18", MZ_CATALOG, "mz_tables", id="text", schema_id="text", name="text", **_OWNED)
MZ_VIEWS = _table("s19", MZ_CATALOG, "mz_views", id="text", schema_id="text", name="text", definition="text", **_OWNED)
MZ_MATERIALIZED_VIEWS = _table(
    "s20", MZ_CATALOG, "mz_materialized_views", id="text", schema_id="text", name="text", definition="text", **_OWNED
)
MZ_INDEXES = _table("s21", MZ_CATALOG, "mz_indexes", id="text", name="text", on_id="text", key="text", owner_id="text")
MZ_ROLES = _table(
    "s61",
    MZ_CATALOG,
    "mz_roles",
    id="text",
    name="text",
    inherit="bool",
    rolcanlogin="bool",
    rolsuper="bool",
    rolcreatedb="bool",
)
MZ_ROLE_MEMBERS = _table("s62", MZ_CATALOG, "mz_role_members", role_id="text", member="text", grantor="text")
PG_SCHEMAS = {schema.name: schema for schema in (PG_CATALOG, INFORMATION_SCHEMA)}
PG_TABLES = {
    relation.id: SystemTable(relation.id, PG_SCHEMAS[relation.schema].id, relation.name, relation.planned_columns())
    for relation in RELATIONS
}
MZ_HOLDS = _table(
    "s22",
    MZ_CATALOG,
    "mz_holds",
    id="text",
    schema_id="text",
    name="text",
    at="mz_timestamp",
    max_lag="interval",
    status="text",
)
MZ_HOLD_OBJECTS = _table("s23", MZ_CATALOG, "mz_hold_objects", hold_id="text", on_id="text")
MZ_COMMENTS = _table(
    "s24", MZ_INTERNAL, "mz_comments", id="text", object_type="text", object_sub_id="int4?", comment="text"
)
MZ_HISTORY_RETENTION_STRATEGIES = _table(
    "s25", MZ_INTERNAL, "mz_history_retention_strategies", id="text", strategy="text", value="jsonb"
)
MZ_SOURCES = _table(
    "s27",
    MZ_CATALOG,
    "mz_sources",
    id="text",
    schema_id="text",
    name="text",
    type="text",
    connection_id="text?",
    source_id="text?",
    reference="text?",
    envelope_type="text?",
    key_format="text?",
    value_format="text?",
    **_OWNED,
)
MZ_CONNECTIONS = _table(
    "s28", MZ_CATALOG, "mz_connections", id="text", schema_id="text", name="text", type="text", **_OWNED
)
MZ_SECRETS = _table("s29", MZ_CATALOG, "mz_secrets", id="text", schema_id="text", name="text", **_OWNED)
MZ_SOURCE_STATUSES = _table(
    "s30",
    MZ_INTERNAL,
    "mz_source_statuses",
    id="text",
    name="text",
    type="text",
    last_status_change_at="timestamptz?",
    status="text",
    error="text?",
    hint="text?",
)
MZ_SOURCE_STATISTICS = _table(
    "s31",
    MZ_INTERNAL,
    "mz_source_statistics",
    id="text",
    messages_received="int8",
    bytes_received="int8",
    updates_committed="int8",
    snapshot_records_known="int8?",
    snapshot_records_staged="int8?",
    offset_known="int8?",
    offset_committed="int8?",
    invalid_messages="int8",
    last_invalid_message="text?",
)
MZ_SOURCE_FRONTIERS = _table(
    "s32",
    MZ_INTERNAL,
    "mz_source_frontiers",
    id="text",
    upstream_frontier="mz_timestamp?",
    open_updates="int8",
    missing_updates="int8",
    duplicate_updates="int8",
    invalid_messages="int8",
)
MZ_SINKS = _table(
    "s33",
    MZ_CATALOG,
    "mz_sinks",
    id="text",
    schema_id="text",
    name="text",
    type="text",
    on_id="text",
    envelope_type="text?",
    format="text?",
    owner_id="text",
)
MZ_SINK_STATUSES = _table(
    "s34",
    MZ_INTERNAL,
    "mz_sink_statuses",
    id="text",
    name="text",
    type="text",
    status="text",
    error="text?",
    hint="text?",
    frontier="mz_timestamp?",
    held_at="mz_timestamp",
)
MZ_SINK_STATISTICS = _table(
    "s35",
    MZ_INTERNAL,
    "mz_sink_statistics",
    id="text",
    messages_written="int8",
    updates_written="int8",
    bytes_written="int8",
    errors="int8",
)
MZ_CLUSTERS = _table("s26", MZ_CATALOG, "mz_clusters", id="text", name="text")
MZ_DATAFLOWS = _table(
    "s71",
    MZ_INTERNAL,
    "mz_dataflows",
    id="text",
    object_id="text?",
    rule="text",
    write_frontier="mz_timestamp",
    hydrated="bool",
    steps="int8",
    last_step_ms="float8?",
    mean_step_ms="float8?",
    max_step_ms="float8?",
    steps_ms="float8",
    error="text?",
)
MZ_ARRANGEMENTS = _table(
    "s72",
    MZ_INTERNAL,
    "mz_arrangements",
    id="text",
    dataflow_id="text",
    operator_id="int8?",
    name="text?",
    sorted_by="text",
    rows="int8",
    bytes="int8",
    memory_bytes="int8",
    probed_by="text",
)
MZ_DATAFLOW_LAGS = _table(
    "s79",
    MZ_INTERNAL,
    "mz_dataflow_lags",
    dataflow_id="text",
    lag_ms="int8",
    commits="int8",
    bytes="int8",
    holds_writers="bool",
)
MZ_DATAFLOW_OPERATORS = _table(
    "s81",
    MZ_INTERNAL,
    "mz_dataflow_operators",
    dataflow_id="text",
    id="int8",
    name="text",
    input_ids="int8[]",
    hydration_rows="int8?",
    hydration_ms="float8?",
    steps="int8",
    last_rows_in="int8?",
    last_rows_out="int8?",
    last_step_ms="float8?",
    rows_in="int8",
    rows_out="int8",
    steps_ms="float8",
    statements="int8",
    spark_ms="float8",
)
MZ_DATAFLOW_STEP_DURATIONS_HISTOGRAM = _table(
    "s82",
    MZ_INTERNAL,
    "mz_dataflow_step_durations_histogram",
    dataflow_id="text",
    at_most_ms="float8?",
    count="int8",
)
MZ_HYDRATION_STATUSES = _table(
    "s83",
    MZ_INTERNAL,
    "mz_hydration_statuses",
    dataflow_id="text",
    object_id="text?",
    hydrated="bool",
    state="text",
    since="timestamptz",
    as_of="mz_timestamp?",
    rows_read="int8",
    rows_there="int8",
    operators_done="int8",
    operators="int8",
    hydrations="int8",
    last_ms="float8?",
)
TABLES = (
    *PG_TABLES.values(),
    MZ_DATABASES,
    MZ_SCHEMAS,
    MZ_OBJECTS,
    MZ_COLUMNS,
    MZ_FRONTIERS,
    MZ_SUBSCRIPTIONS,
    MZ_SESSIONS,
    MZ_TABLES,
    MZ_VIEWS,
    MZ_MATERIALIZED_VIEWS,
    MZ_INDEXES,
    MZ_ROLES,
    MZ_ROLE_MEMBERS,
    MZ_HOLDS,
    MZ_HOLD_OBJECTS,
    MZ_COMMENTS,
    MZ_HISTORY_RETENTION_STRATEGIES,
    MZ_CLUSTERS,
    MZ_SOURCES,
    MZ_CONNECTIONS,
    MZ_SECRETS,
    MZ_SOURCE_STATUSES,
    MZ_SOURCE_STATISTICS,
    MZ_SOURCE_FRONTIERS,
    MZ_SINKS,
    MZ_SINK_STATUSES,
    MZ_SINK_STATISTICS,
    MZ_DATAFLOWS,
    MZ_ARRANGEMENTS,
    MZ_DATAFLOW_LAGS,
    MZ_DATAFLOW_OPERATORS,
    MZ_DATAFLOW_STEP_DURATIONS_HISTOGRAM,
    MZ_HYDRATION_STATUSES,
)
