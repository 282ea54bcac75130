"""The table of a sink: its columns, which must be those of the collection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from catalog.objects.columns import Column
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import PgType, parse_type
from server.egress.postgres.connection import Connection
from server.egress.postgres.statements import STORED, Statements
from server.egress.sink_kind import SinkDefinition
from server.ingest.postgres.replication import identifier

_TABLE = """
SELECT c.oid, c.relkind::text AS kind, c.relkind = 'p' OR c.relhassubclass AS is_divided,
       ARRAY(SELECT p FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) p
             WHERE NOT has_table_privilege(c.oid, p)) AS missing
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2
"""
_COLUMNS = """
SELECT attname::text AS name, atttypid AS type, atttypmod AS modifier, format_type(atttypid, atttypmod) AS shown,
       attnotnull AS not_null, attgenerated <> '' OR attidentity = 'a' AS is_generated,
       atthasdef OR attidentity <> '' AS has_default
FROM pg_attribute WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped
"""
_UNIQUE = """
SELECT ARRAY(SELECT a.attname::text FROM pg_attribute a
             WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])) AS columns
FROM pg_index i
WHERE i.indrelid = $1 AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL
"""
_SCHEMA = "SELECT has_schema_privilege(oid, 'CREATE') AS may_create FROM pg_namespace WHERE nspname = $1"
_TEXTS = ("text", "varchar")


@dataclass(frozen=True)
class Target:
    """The table that a sink writes. `key`: positions of the columns of KEY, None without it."""

    schema: str
    table: str
    columns: tuple[Column, ...]
    key: tuple[int, ...] | None

    @classmethod
    def of(cls, definition: SinkDefinition) -> Target:
        schema, table = definition.options["schema"], definition.options["table"]
        return cls(schema, table, definition.columns, definition.key_positions)

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"

    @cached_property
    def types(self) -> tuple[PgType, ...]:
        return tuple(parse_type(column.type) for column in self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def quoted(self) -> str:
        return f"{identifier(self.schema)}.{identifier(self.table)}"

    @property
    def create(self) -> str:
        """The CREATE TABLE statement. The columns of the key are its primary key."""
        parts = [
            f"{identifier(column.name)} {type.display}{'' if column.nullable else ' NOT NULL'}"
            for column, type in zip(self.columns, self.types, strict=True)
        ]
        if self.key is not None:
            parts.append(f"PRIMARY KEY ({', '.join(identifier(self.columns[i].name) for i in self.key)})")
        return f"CREATE TABLE {self.quoted} ({', '.join(parts)})"

    async def statements(self, connection: Connection) -> Statements | None:
        """The statements for the table as it is; None if it does not exist. PgError if it cannot be the target."""
        found = await connection.rows(_TABLE, self.schema, self.table)
        if not found:
            return None
        oid, kind, missing = found[0]["oid"], found[0]["kind"], found[0]["missing"]
        if kind not in ("r", "p"):
            raise PgError(SqlState.WRONG_OBJECT_TYPE, f'"{self}" is not a table')
        if missing:
            raise PgError(
                SqlState.INSUFFICIENT_PRIVILEGE,
                f'permission denied for table "{self}"',
                detail=f"The user of the connection does not have the privileges {', '.join(missing)}.",
                hint=f"Grant them there: GRANT {', '.join(missing)} ON {self.quoted} TO ...",
            )
        columns = {row["name"]: row for row in await connection.rows(_COLUMNS, oid)}
        self._check_columns(columns)
        if self.key is not None:
            key = {self.columns[i].name for i in self.key}
            if not any(set(row["columns"]) == key for row in await connection.rows(_UNIQUE, oid)):
                listed = ", ".join(map(identifier, sorted(key)))
                raise PgError(
                    SqlState.INVALID_COLUMN_REFERENCE,
                    f'there is no unique constraint matching the key of the sink for table "{self}"',
                    hint=f"Add one there: ALTER TABLE {self.quoted} ADD UNIQUE ({listed}).",
                )
        not_null = frozenset(i for i, c in enumerate(self.columns) if columns[c.name]["not_null"])
        comparable = frozenset(i for i, type in enumerate(self.types) if type.name != "json")
        stored = frozenset(i for i, type in enumerate(self.types) if type.name in STORED)
        return Statements(self.quoted, self.names, self.key, not_null & comparable, stored, found[0]["is_divided"])

    async def check_may_create(self, connection: Connection) -> None:
        """PgError if the table, which does not exist, cannot be created."""
        found = await connection.rows(_SCHEMA, self.schema)
        if not found:
            raise PgError(SqlState.INVALID_SCHEMA_NAME, f'schema "{self.schema}" of the table does not exist')
        if not found[0]["may_create"]:
            raise PgError(
                SqlState.INSUFFICIENT_PRIVILEGE,
                f'permission denied to create table "{self}"',
                hint=f"Create it there: {self.create}.",
            )

    async def check_empty(self, connection: Connection) -> None:
        """PgError if the table has rows."""
        if await connection.rows(f"SELECT FROM {self.quoted} LIMIT 1"):
            raise PgError(
                SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE,
                f'table "{self}" is not empty',
                detail="A sink begins with the rows of its collection, and does not replace those of others.",
                hint="Empty the table. If it already has the rows of the collection, use WITH (SNAPSHOT = false).",
            )

    def _check_columns(self, found: Mapping[str, Any]) -> None:
        for column, type in zip(self.columns, self.types, strict=True):
            there = found.get(column.name)
            if there is None:
                raise PgError(
                    SqlState.UNDEFINED_COLUMN,
                    f'column "{column.name}" of table "{self}" does not exist',
                    hint=f"Add it there: ALTER TABLE {self.quoted} "
                    f"ADD COLUMN {identifier(column.name)} {type.display}.",
                )
            if there["is_generated"]:
                raise PgError(
                    SqlState.INVALID_COLUMN_REFERENCE,
                    f'column "{column.name}" of table "{self}" is generated',
                    hint="Omit the column in a materialized view, and create the sink from that.",
                )
            if not _holds(there["type"], there["modifier"], type):
                raise PgError(
                    SqlState.DATATYPE_MISMATCH,
                    f'column "{column.name}" of table "{self}" is of type {there["shown"]}, not {type.display}',
                    hint=f"Cast the column in a materialized view, and create the sink from that: "
                    f"{identifier(column.name)}::{there['shown']}.",
                )
        names = set(self.names)
        for name, row in found.items():
            if name not in names and row["not_null"] and not row["has_default"]:
                raise PgError(
                    SqlState.NOT_NULL_VIOLATION,
                    f'column "{name}" of table "{self}" is NOT NULL without a default, and the collection has no such '
                    "column",
                    hint=f"Give it a default there: ALTER TABLE {self.quoted} "
                    f"ALTER COLUMN {identifier(name)} SET DEFAULT ....",
                )


def _holds(oid: int, modifier: int, type: PgType) -> bool:
    """Whether a column has all values of a type, as they are and in the same binary form."""
    texts = [parse_type(name).oid for name in _TEXTS]
    if type.oid in texts and oid in texts:
        return True  # a value that is too long is an error
    return oid == type.oid and modifier in (-1, type.typmod)
