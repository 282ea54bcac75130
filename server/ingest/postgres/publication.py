"""The tables of a publication, and the collections that they become."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from catalog.objects.columns import Column
from catalog.source_definition import ForTables, joined_reference, reference_parts
from protocol.pgoutput.messages import ReplicaIdentity
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import DIMENSIONS_MAX, TEXT, parse_type, with_dimensions
from server.ingest.postgres.connection import Server
from server.ingest.postgres.replication import identifier
from server.ingest.source_definition import Output

_PUBLICATION = """
SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate FROM pg_publication WHERE pubname = $1
"""

# to_jsonb: before version 15, pg_publication_tables has neither column lists nor row filters.
_TABLES = """
SELECT c.oid, n.nspname AS schema, c.relname AS name, c.relreplident AS identity, to_jsonb(p) ->> 'rowfilter' AS filter,
       to_jsonb(p) -> 'attnames' AS published, nullif(c.reltuples, -1)::int8 AS rows,
       has_table_privilege(c.oid, 'SELECT') AS readable
FROM pg_publication_tables p
JOIN pg_namespace n ON n.nspname = p.schemaname
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename
WHERE p.pubname = $1
ORDER BY 2, 3
"""

# `base` is the type behind a domain. Types outside pg_catalog become text. `dimensions`: as declared. PostgreSQL does
# not check them, and CREATE TABLE AS does not declare any.
_COLUMNS = """
SELECT a.attrelid AS table, a.attname AS name, a.attnotnull AS never_null, a.atttypid AS type, a.atttypmod AS typmod,
       CASE WHEN base.typnamespace = 'pg_catalog'::regnamespace
            THEN format_type(base.oid, CASE WHEN base.typcategory IN ('D', 'T') THEN NULL ELSE base.typmod END)
       END AS spelling, base.dimensions AS dimensions,
       coalesce(a.attnum = ANY (k.indkey::int2[]), false) AS is_key, a.attnum AS number
FROM pg_attribute a
JOIN pg_type t ON t.oid = a.atttypid
CROSS JOIN LATERAL (
    WITH RECURSIVE behind AS (
        SELECT t.oid, t.typtype, t.typbasetype, t.typnamespace, t.typcategory, t.typtypmod, a.atttypmod AS typmod,
               t.typndims::int, a.attndims::int AS dimensions
        UNION ALL
        SELECT u.oid, u.typtype, u.typbasetype, u.typnamespace, u.typcategory, u.typtypmod, b.typtypmod,
               u.typndims::int, b.typndims
        FROM behind b JOIN pg_type u ON u.oid = b.typbasetype WHERE b.typtype = 'd'
    )
    SELECT * FROM behind WHERE typtype <> 'd'
) base
LEFT JOIN LATERAL (
    SELECT i.indkey FROM pg_index i WHERE i.indrelid = a.attrelid AND (i.indisprimary OR i.indisreplident)
    ORDER BY i.indisprimary DESC LIMIT 1
) k ON true
WHERE a.attrelid = ANY ($1::oid[]) AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
ORDER BY a.attrelid, a.attnum
"""

_NUMBERS = """
SELECT attrelid AS table, attname AS name, attnum AS number
FROM pg_attribute WHERE attrelid = ANY ($1::oid[]) AND attnum > 0 AND NOT attisdropped
"""

COLUMNS_MAX = 1_600  # of a table of PostgreSQL
NAME_MAX = 255  # characters; PostgreSQL has 63 bytes unless it was compiled with another NAMEDATALEN


@dataclass(frozen=True, slots=True)
class PublishedColumn:
    """`type` is the OID in PostgreSQL; `spelling` is the type of the collection's column.

    `number`: PostgreSQL does not use it again for another column of the table.
    """

    name: str
    type: int
    typmod: int
    spelling: str
    never_null: bool
    is_key: bool
    number: int


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table of a publication. `filter`: the row filter as SQL. `rows`: PostgreSQL's estimate, None before ANALYZE."""

    oid: int
    schema: str
    name: str
    identity: ReplicaIdentity
    columns: tuple[PublishedColumn, ...]
    filter: str | None
    rows: int | None
    readable: bool

    @property
    def reference(self) -> str:
        """`schema.table`, with quotes if it would be ambiguous otherwise."""
        return joined_reference((self.schema, self.name))

    def types_of(self, columns: Iterable[Column]) -> dict[str, tuple[int, int]]:
        """The OID and the modifier of the types of these columns, by name."""
        names = {column.name for column in columns}
        return {column.name: (column.type, column.typmod) for column in self.columns if column.name in names}

    def numbers_of(self, columns: Iterable[Column]) -> dict[str, int]:
        """The numbers of these columns, by name."""
        names = {column.name for column in columns}
        return {column.name: column.number for column in self.columns if column.name in names}

    def missing(self, columns: Iterable[Column]) -> Column | None:
        """The first of the columns that the table does not have with this type; None if it has all. Each can be text.

        The number of dimensions of an array does not matter: PostgreSQL does not check it, and collections of earlier
        versions have one in every array.
        """
        types = {column.name: with_dimensions(parse_type(column.spelling), 1) for column in self.columns}
        for column in columns:
            found = types.get(column.name)
            if found is None or with_dimensions(parse_type(column.type), 1) not in (found, TEXT):
                return column
        return None

    def output(self, name: str | None) -> Output:
        columns = tuple(Column(c.name, c.spelling, nullable=not c.never_null) for c in self.columns)
        key = tuple(c.name for c in self.columns if c.is_key)
        return Output(self.reference, name or self.name, columns, key)


async def published_tables(connection: Any, server: Server, publication: str) -> list[PublishedTable]:
    """The tables of a publication, by schema and name. PgError if there is no such publication, or it is partial."""
    with server.understanding(), server.reporting():
        complete = await connection.fetchval(_PUBLICATION, publication)
        if complete is None:
            raise PgError(
                SqlState.UNDEFINED_OBJECT,
                f'publication "{publication}" does not exist in {server}',
                hint=f"Create it there: CREATE PUBLICATION {identifier(publication)} FOR TABLE ...",
            )
        if not complete:
            raise PgError(
                SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE,
                f'publication "{publication}" in {server} does not publish all changes',
                hint=f"ALTER PUBLICATION {identifier(publication)} SET "
                "(publish = 'insert, update, delete, truncate') there.",
            )
        tables = await connection.fetch(_TABLES, publication)
        columns = await connection.fetch(_COLUMNS, [table["oid"] for table in tables])
        return await asyncio.to_thread(_with_columns, tables, columns)


async def column_numbers(connection: Any, server: Server, tables: Sequence[int]) -> dict[int, dict[str, int]]:
    """The present numbers of the columns of tables, by OID and name. Tables that do not exist are omitted."""
    with server.understanding(), server.reporting():
        return await asyncio.to_thread(_numbers, await connection.fetch(_NUMBERS, tables))


def _numbers(columns: Iterable[Any]) -> dict[int, dict[str, int]]:
    """The numbers in rows of _NUMBERS. TypeError or ValueError if PostgreSQL does not have such columns."""
    found: dict[int, dict[str, int]] = {}
    for row in columns:
        found.setdefault(_value(row, "table", int), {})[_name(row, "name")] = _value(row, "number", int)
    return found


def _with_columns(tables: Iterable[Any], columns: Iterable[Any]) -> list[PublishedTable]:
    """The tables in rows of _TABLES, with the columns in rows of _COLUMNS."""
    found: dict[int, list[Any]] = {}
    for column in columns:
        found.setdefault(column["table"], []).append(column)
    return [_table(table, found.get(table["oid"], [])) for table in tables]


def _table(row: Any, columns: Iterable[Any]) -> PublishedTable:
    """TypeError or ValueError if PostgreSQL does not have such a table."""
    published = None if row["published"] is None else json.loads(row["published"])
    found = PublishedTable(
        _value(row, "oid", int),
        _name(row, "schema"),
        _name(row, "name"),
        ReplicaIdentity(_character(row["identity"])),
        tuple(
            PublishedColumn(
                name,
                _value(column, "type", int),
                _value(column, "typmod", int),
                _spelling(_value(column, "spelling", str, type(None)), _value(column, "dimensions", int)),
                _value(column, "never_null", bool),
                _value(column, "is_key", bool),
                _value(column, "number", int),
            )
            for column in columns
            if (name := _name(column, "name")) and (published is None or name in published)
        ),
        _value(row, "filter", str, type(None)),
        _value(row, "rows", int, type(None)),
        _value(row, "readable", bool),
    )
    if len(found.columns) > COLUMNS_MAX:
        raise ValueError(len(found.columns))
    return found


def _value(row: Any, name: str, *types: type) -> Any:
    """The value of a column of a row. TypeError if it has another type."""
    if type(row[name]) not in types:
        raise TypeError(name)
    return row[name]


def _name(row: Any, column: str) -> str:
    """The name in a column of a row. TypeError or ValueError if it cannot be one."""
    name = str(_value(row, column, str))
    if not 0 < len(name) <= NAME_MAX:
        raise ValueError(column)
    return name


def _character(value: str | bytes) -> str:
    """A value of type "char" as asyncpg has it."""
    return value.decode() if isinstance(value, bytes) else value


def _spelling(spelled: str | None, dimensions: int) -> str:
    """The type of a collection's column for a PostgreSQL type: text, if Tidewire has no such type."""
    try:
        type = parse_type(spelled) if spelled is not None else TEXT
    except ValueError:
        return "text"
    return str(with_dimensions(type, max(dimensions, 1))) if dimensions <= DIMENSIONS_MAX else "text"


def chosen(tables: Sequence[PublishedTable], wanted: ForTables, publication: str) -> list[Output]:
    """The outputs for FOR ALL TABLES, FOR SCHEMAS or FOR TABLES. PgError if a table or schema is not published."""
    if wanted.all:
        return [_checked(table).output(None) for table in tables]
    for schema in wanted.schemas:
        if all(table.schema != schema for table in tables):
            raise _absent(f'schema "{schema}" has no table', publication)
    outputs = [_checked(table).output(None) for table in tables if table.schema in wanted.schemas]
    for reference, name in wanted.tables:
        outputs.append(_checked(find(tables, reference, publication)).output(name))
    return outputs


def find(tables: Sequence[PublishedTable], reference: str, publication: str) -> PublishedTable:
    """The table that a reference names: `table`, `schema.table` or `database.schema.table`."""
    parts = reference_parts(reference)[-2:]
    found = [table for table in tables if table.name == reference]  # a single name may have dots and quotes
    found = found or [table for table in tables if (table.schema, table.name)[-len(parts) :] == parts]
    if not found:
        raise _absent(f'table "{reference}" is not', publication)
    if len(found) > 1:
        public = [table for table in found if table.schema == "public"]
        if len(public) != 1:
            raise PgError(
                SqlState.INVALID_PARAMETER_VALUE, f'table "{reference}" is ambiguous', hint="Name its schema, too."
            )
        found = public
    return found[0]


def _absent(what: str, publication: str) -> PgError:
    return PgError(
        SqlState.UNDEFINED_TABLE,
        f'{what} in publication "{publication}"',
        hint=f"Add it in PostgreSQL: ALTER PUBLICATION {identifier(publication)} ADD TABLE ...",
    )


def _checked(table: PublishedTable) -> PublishedTable:
    """The table itself. PgError if it cannot be read."""
    if not table.readable:
        raise PgError(
            SqlState.INSUFFICIENT_PRIVILEGE,
            f'permission denied for table "{table.reference}"',
            hint="Grant SELECT on it to the user of the connection.",
        )
    if not table.columns:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f'table "{table.reference}" has no columns',
            hint="Remove the table from the publication, or add a column to it.",
        )
    return table


def incompatibility(known: Mapping[str, tuple[int, int]], now: Mapping[str, tuple[int, int]]) -> str | None:
    """What an ALTER TABLE changed in the columns that a collection has; None if the table can still be followed.

    Both map the names of columns to the OID and the modifier of their types. Added columns are ignored.
    """
    for name, type in known.items():
        if name not in now:
            return f'column "{name}" was dropped or renamed'
        if now[name] != type:
            return f'the type of column "{name}" was changed'
    return None


def replacement(known: Mapping[str, int], now: Mapping[str, int]) -> str | None:
    """The column that ALTER TABLE dropped and added again with the same name; None if there is none.

    Both map the names of columns to their numbers. Rows that were not changed since have other values in it.
    """
    for name, number in known.items():
        if now.get(name, number) != number:
            return f'column "{name}" was dropped and added again'
    return None
