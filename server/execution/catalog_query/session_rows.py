"""The system rows that a session sees: the catalog's rows, cached between queries, and rows that change without it."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa

from catalog.ids import ObjectId
from catalog.objects.sequences import Sequence
from catalog.roles import Privilege, Through
from server.authorization import privileges
from server.coordinator.activity import Observation, SessionEntry
from server.coordinator.locks import EXCLUSIVE, SHARED
from server.pg_catalog import oids
from server.pg_catalog.acls import ENABLED
from server.pg_catalog.database import needed_by
from server.pg_catalog.rows import MZ_TABLES, SIZES, CatalogRows
from server.pg_catalog.sequences import LAST_VALUES
from server.pg_catalog.static import BY_NAME, schema_of
from server.pg_catalog.time_zones import TIME_ZONES, zone_rows
from server.pg_catalog.visible import Viewpoint
from server.session_state.advisory_locks import locked_numbers
from server.session_state.context import Context
from server.settings.parsers import Quantity, parse_boolean, parse_cost
from server.settings.variables import VARIABLES, Variable

_ROWS_MAX = 8  # cached (catalog state, viewpoint) pairs; few are in use concurrently
_cache: OrderedDict[tuple[int, Viewpoint], CatalogRows] = OrderedDict()
_cache_lock = threading.Lock()


def _viewpoint(context: Context) -> Viewpoint:
    return Viewpoint(context.settings["database"], context.search_path)


def catalog_rows(context: Context) -> CatalogRows:
    """Returns the rows of the catalog as the session sees it, cached for later queries."""
    state, viewpoint = context.state, _viewpoint(context)
    key = (id(state), viewpoint)
    with _cache_lock:
        found = _cache.get(key)
        if found is None:
            found = _cache[key] = CatalogRows(state, viewpoint)
            if len(_cache) > _ROWS_MAX:
                _cache.popitem(last=False)
        _cache.move_to_end(key)
        return found


async def uncached_relations(context: Context, query: str) -> dict[tuple[str, str], pa.Table]:
    """Returns the relations of a query that do not depend on the catalog alone, by DuckDB schema and name.

    These are sessions, settings, sizes, time zones and the tables of mz_catalog and mz_internal.
    """
    found: dict[tuple[str, str], pa.Table] = {}
    for schema, name in sorted(needed_by(query)):
        if schema == "mz" and name in MZ_TABLES:
            privileges.require(context.state, context.role, MZ_TABLES[name].id, Privilege.SELECT)
            table = context.coordinator.system_tables.current_rows(MZ_TABLES[name])
            found[schema, name] = table.rename_columns([column.name for column in MZ_TABLES[name].columns])
        elif schema == "pg" and (rows := _ROWS.get(name)) is not None:
            found[schema, name] = rows(context)
        elif schema == "pg" and name in context.own_rows:
            found[schema, name] = await asyncio.to_thread(_own_rows, context, name)
        elif schema == "pg" and name in TIME_ZONES:
            found[schema, name] = await asyncio.to_thread(zone_rows, name, context.bindings().now_us)
    return found


def _settings(context: Context) -> pa.Table:
    """pg_settings, with the session's values."""
    settings = context.settings
    rows = [_setting(VARIABLES[name.lower()], settings[name]) | {"name": name} for name in settings]
    return pa.Table.from_pylist(rows, schema_of(BY_NAME["pg_catalog", "pg_settings"]))


def _setting(variable: Variable, value: str) -> dict[str, object]:
    parse = variable.parse
    default = parse.count(variable.default) if isinstance(parse, Quantity) else variable.default
    return {
        "setting": parse.count(value) if isinstance(parse, Quantity) else value,
        "unit": (parse.unit or None) if isinstance(parse, Quantity) else None,
        "category": "Tidewire",
        "context": "internal" if variable.fixed else "user",
        "vartype": "integer" if isinstance(parse, Quantity) else _SETTING_TYPES.get(parse, "string"),
        "source": "default" if value == variable.default else "session",
        "boot_val": default,
        "reset_val": default,
        "pending_restart": False,
    }


_SETTING_TYPES: dict[Callable[[str], str], str] = {parse_boolean: "bool", parse_cost: "real"}


def _activity(context: Context) -> pa.Table:
    """pg_stat_activity. As in PostgreSQL, a role sees what sessions of its own and of its roles do."""
    activity = context.coordinator.activity
    rows = [
        _activity_row(context, entry, observe())
        for entry in activity.sessions.values()
        if (observe := activity.observers.get(entry.process_id)) is not None
    ]
    return pa.Table.from_pylist(rows, schema_of(BY_NAME["pg_catalog", "pg_stat_activity"]))


def _activity_row(context: Context, entry: SessionEntry, seen: Observation) -> dict[str, object]:
    database = context.state.database_named(seen.database)
    shown = {
        "datid": None if database is None else oids.oid_of(database.id),
        "datname": seen.database,
        "pid": entry.process_id,
        "usesysid": oids.oid_of(entry.role),
        "usename": entry.user,
        "application_name": seen.application_name,
    }
    if not privileges.has_rights_of(context.state, context.role, entry.role):
        return {**shown, "query": "<insufficient privilege>"}
    waits_for = ("Lock", "relation") if seen.waits_for_lock else (None, None)
    if seen.state != "active":
        waits_for = ("Client", "ClientRead")
    return {
        **shown,
        "client_addr": entry.client_ip and entry.client_ip.partition("%")[0],  # without the zone of a link-local one
        "client_port": None if entry.endpoints.client is None else entry.endpoints.client.port,
        "backend_start": entry.connected_us,
        "xact_start": seen.transaction_us,
        "query_start": seen.query_us,
        "state_change": entry.connected_us if seen.changed_us is None else seen.changed_us,
        "wait_event_type": waits_for[0],
        "wait_event": waits_for[1],
        "state": seen.state,
        "query": seen.query,
        "backend_type": "client backend",
    }


_NUMERIC_END = 10**38  # of the values of a numeric column


def _encryption(context: Context) -> pa.Table:
    """pg_stat_ssl. As in PostgreSQL, a role sees the values of its own sessions and of its roles.

    `client_serial` is NULL if the number has more than 38 digits.
    """
    rows = []
    for entry in context.coordinator.activity.sessions.values():
        row: dict[str, object] = {"pid": entry.process_id}
        if privileges.has_rights_of(context.state, context.role, entry.role):
            tls = entry.endpoints.encryption
            row["ssl"] = tls is not None
            if tls is not None:
                number = tls.client_serial
                serial = None if number is None or number >= _NUMERIC_END else Decimal(number)
                row |= {"version": tls.version, "cipher": tls.cipher, "bits": tls.bits}
                row |= {"client_dn": tls.client_dn, "client_serial": serial, "issuer_dn": tls.issuer_dn}
        rows.append(row)
    return pa.Table.from_pylist(rows, schema_of(BY_NAME["pg_catalog", "pg_stat_ssl"]))


def _kerberos(context: Context) -> pa.Table:
    """pg_stat_gssapi: no session uses GSSAPI."""
    rows = []
    for entry in context.coordinator.activity.sessions.values():
        shown = privileges.has_rights_of(context.state, context.role, entry.role)
        value = False if shown else None
        row = {"pid": entry.process_id, "gss_authenticated": value, "encrypted": value, "credentials_delegated": value}
        rows.append(row)
    return pa.Table.from_pylist(rows, schema_of(BY_NAME["pg_catalog", "pg_stat_gssapi"]))


def _own_rows(context: Context, name: str) -> pa.Table:
    """One of `Context.own_rows`. Its statements can have a million columns: it is called in a thread."""
    return pa.Table.from_pylist(context.own_rows[name](), schema_of(BY_NAME["pg_catalog", name]))


def _copies(context: Context) -> pa.Table:
    """pg_stat_progress_copy. As in PostgreSQL, a role sees the numbers of its own sessions and of its roles."""
    state, activity, rows = context.state, context.coordinator.activity, []
    for process_id, copy in activity.copies.items():
        observe = activity.observers.get(process_id)
        database = None if observe is None else state.database_named(observe().database)
        row: dict[str, object] = {
            "pid": process_id,
            "datid": None if database is None else oids.oid_of(database.id),
            "datname": None if database is None else database.name,
        }
        if privileges.has_rights_of(state, context.role, activity.sessions[process_id].role):
            row |= {
                "relid": 0 if copy.relation is None else oids.oid_of(copy.relation),
                "command": copy.command,
                "type": "PIPE",
                "bytes_processed": copy.bytes,
                "bytes_total": 0,
                "tuples_processed": copy.rows,
                "tuples_excluded": 0,
            }
        rows.append(row)
    return pa.Table.from_pylist(rows, schema_of(BY_NAME["pg_catalog", "pg_stat_progress_copy"]))


def _locks(context: Context) -> pa.Table:
    """pg_locks. Keys, and the turns of SKIP LOCKED queries, are shown as tuples of their table, without a number."""
    rows = []
    for lock in context.coordinator.locks.observed():
        owner = lock.owner
        assert isinstance(owner, Context)
        advisory = locked_numbers(lock.lock)
        table, _, key = lock.lock.partition(" ")
        database = context.state.database_named(owner.settings["database"] if advisory is None else advisory[0])
        row: dict[str, object] = {
            "locktype": "advisory" if advisory is not None else "tuple" if key else "relation",
            "database": None if database is None else oids.oid_of(database.id),
            "virtualtransaction": f"{owner.process_id}/0",
            "pid": owner.process_id,
            "mode": _LOCK_MODES.get(lock.mode, "RowExclusiveLock"),
            "granted": lock.granted,
            "fastpath": False,
        }
        match advisory:
            case None:
                row["relation"] = oids.oid_of(ObjectId(table))
            case _, (number,):
                row |= {"classid": number >> 32 & 0xFFFFFFFF, "objid": number & 0xFFFFFFFF, "objsubid": 1}
            case _, (first, second):
                row |= {"classid": first & 0xFFFFFFFF, "objid": second & 0xFFFFFFFF, "objsubid": 2}
        rows.append(row)
    return pa.Table.from_pylist(rows, schema_of(BY_NAME["pg_catalog", "pg_locks"]))


_LOCK_MODES = {EXCLUSIVE: "ExclusiveLock", SHARED: "ShareLock"}


def _enabled(context: Context) -> pa.Table:
    """The roles whose privileges the session's role has: all of them for a superuser."""
    state, role = context.state, context.role
    is_superuser = privileges.is_superuser(state, role)
    roles = state.roles if is_superuser else state.roles_of(role, Through.INHERIT)
    return pa.table([pa.array([oids.oid_of(id) for id in roles], pa.uint32())], ENABLED)


def _last_values(context: Context) -> pa.Table:
    """The last value of each sequence that the role may read and that has returned one."""
    state, rows = context.state, []
    for sequence in state.items_of(Sequence):
        if any(privileges.has(state, context.role, sequence.id, p) for p in (Privilege.SELECT, Privilege.USAGE)):
            value, is_called = context.volatile.current_state(sequence).position
            if is_called:
                rows.append({"oid": oids.oid_of(sequence.id), "last_value": value})
    return pa.Table.from_pylist(rows, LAST_VALUES)


def _sizes(context: Context) -> pa.Table:
    """The sizes of the collections on which the role has a privilege."""
    state, role = context.state, context.role
    rows = []
    for id, (_, size) in context.coordinator.log.sizes().items():
        item = state.items.get(id)
        database = state.schemas[item.schema_id].database_id if item is not None else None
        if database is not None and privileges.has_any(state, role, id):
            rows.append({"oid": oids.oid_of(id), "database": oids.oid_of(database), "bytes": size})
    return pa.Table.from_pylist(rows, SIZES)


_ROWS: dict[str, Callable[[Context], pa.Table]] = {
    "pg_locks": _locks,
    "pg_settings": _settings,
    "pg_stat_activity": _activity,
    "pg_stat_gssapi": _kerberos,
    "pg_stat_progress_copy": _copies,
    "pg_stat_ssl": _encryption,
    "tw_enabled": _enabled,
    "tw_last_values": _last_values,
    "tw_sizes": _sizes,
}
